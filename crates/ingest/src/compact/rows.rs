//! The rows of parts that are merged, in the places that they have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use catalog::{Chunk, Table, TableKind};
use futures::StreamExt;
use sky::{ChunkId, Chunker, SubChunkId};
use store::{
    ChunkFile, DirectorIndex, Directory, IndexEntries, IndexEntry, IndexWriter, LoadDir, OpenFiles,
    ScanRequest, StoreError, numbers_in_file,
};
use tokio::runtime::Handle;

use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::pace::Pace;
use crate::pipeline::file_schema;
use crate::place::PlacedRows;
use crate::place::again::{PlacedAgain, PlacedAgainInput};
use crate::progress::{Phase, Progress};
use crate::row_batch::Place;

/// Files that are kept open: the parts' files of chunks near each other.
const OPEN_FILES: usize = 64;

/// A part that is merged, kept from being removed.
pub(super) struct StoredPart {
    pub chunks: Vec<Chunk>,
    pub dir: LoadDir,
}

/// Parts of a table that become one.
pub(super) struct PartsToMerge {
    /// The table with these parts alone.
    pub table: Table,
    /// The same parts.
    pub parts: Vec<StoredPart>,
    pub chunker: Chunker,
    pub budget: Arc<MemoryBudget>,
    pub spill_dir: PathBuf,
    pub progress: Arc<Progress>,
    pub pace: Arc<Pace>,
}

impl PartsToMerge {
    /// Rows in all chunks.
    fn stored_rows(&self) -> u64 {
        let chunks = self.parts.iter().flat_map(|part| &part.chunks);
        chunks.map(|chunk| chunk.rows).sum()
    }

    /// Reads all rows. Each keeps its chunk and sub-chunk; what is near another chunk becomes a part of that one's overlap.
    pub(super) fn read(&self, runtime: &Handle) -> Result<PlacedRows, IngestError> {
        self.progress.enter(Phase::Reading, self.stored_rows());
        let chunker = self.chunker.clone();
        let placed = PlacedAgain::new(&self.table, chunker, &self.budget, &self.spill_dir)?;
        let mut reader = PartsReader {
            merge: self,
            runtime,
            files: OpenFiles::new(OPEN_FILES),
            schema: file_schema(&self.table.spec.columns, self.table.spec.kind),
            travel: Arc::clone(placed.travel()),
            rows: placed.input(),
        };
        for (chunk, parts) in self.parts_by_chunk() {
            for (part, stored) in parts {
                reader.read_chunk(&self.parts[part], chunk, stored)?;
            }
        }
        let strays = reader.rows.finish()?;
        Ok(placed.finish(strays, self.table.rows()))
    }

    /// The chunks of all parts, each with the parts that have rows in it, in the order of the list.
    fn parts_by_chunk(&self) -> BTreeMap<ChunkId, Vec<(usize, &Chunk)>> {
        let mut by_chunk: BTreeMap<ChunkId, Vec<(usize, &Chunk)>> = BTreeMap::new();
        for (at, part) in self.parts.iter().enumerate() {
            for chunk in &part.chunks {
                by_chunk.entry(chunk.chunk).or_default().push((at, chunk));
            }
        }
        by_chunk
    }

    /// Writes one run of the index with the keys of all parts' runs. Gives its bytes; 0 for a table that has no index.
    pub(super) fn write_index(&self, to: &Path) -> Result<u64, IngestError> {
        self.progress.enter(Phase::Indexing, 0);
        let is_child = match self.table.spec.kind {
            TableKind::Director => false,
            TableKind::Child => true,
            TableKind::Match | TableKind::Replicated => return Ok(0),
        };
        let dirs = self.parts.iter().map(|part| part.dir.index_dir());
        let dirs = dirs.filter(|dir| !is_child || dir.exists());
        let runs: Vec<DirectorIndex> = dirs
            .map(|dir| DirectorIndex::open(&dir))
            .collect::<Result<_, _>>()?;
        let mut index = IndexWriter::create(to)?;
        for entry in MergedRuns::new(&runs)? {
            let (key, entry) = entry?;
            index.push(key, entry.location, entry.orphan)?;
        }
        Ok(index.finish()?.bytes)
    }
}

/// Reads the chunks of parts into sorters.
struct PartsReader<'a> {
    merge: &'a PartsToMerge,
    runtime: &'a Handle,
    files: OpenFiles,
    /// The columns of the files.
    schema: SchemaRef,
    travel: SchemaRef,
    rows: PlacedAgainInput<'a>,
}

impl PartsReader<'_> {
    /// Reads what a part has in a chunk.
    fn read_chunk(
        &mut self,
        part: &StoredPart,
        chunk: ChunkId,
        stored: &Chunk,
    ) -> Result<(), IngestError> {
        let path = part.dir.chunk_path(stored.file);
        let damaged = |what: String| {
            let path = path.clone();
            StoreError::Damaged { path, what }
        };
        let file = self.runtime.block_on(self.files.get(&path, chunk))?;
        if file.checksum() != stored.checksum || file.num_rows() != stored.rows {
            return Err(damaged("it is not the file that was published".to_owned()).into());
        }
        let mut sub_chunks = SubChunkRows::new(file.directory());
        let mut batches = file.scan(self.request(&file)?);
        let mut read = 0;
        while let Some(batch) = self.runtime.block_on(batches.next()) {
            let batch = batch?;
            read += batch.num_rows() as u64;
            let places = sub_chunks.places(chunk, batch.num_rows());
            self.push(&batch, places)?;
        }
        match read == stored.rows {
            true => Ok(()),
            false => Err(damaged(format!("{read} of {} rows were read", stored.rows)).into()),
        }
    }

    fn request(&self, file: &ChunkFile) -> Result<ScanRequest, IngestError> {
        Ok(ScanRequest {
            projection: numbers_in_file(&self.schema, file.schema())?,
            filter: None,
            hints: Vec::new(),
            condition: None,
            ranges: None,
            sorted: None,
            sharers: 0,
            counters: None,
            schema: Arc::clone(&self.schema),
        })
    }

    fn push(&mut self, batch: &RecordBatch, places: Vec<u64>) -> Result<(), IngestError> {
        let as_travelling = |(array, field): (&ArrayRef, &Arc<arrow::datatypes::Field>)| match array
            .data_type()
            == field.data_type()
        {
            true => Ok(Arc::clone(array)),
            false => cast(array, field.data_type()),
        };
        let arrays = batch.columns().iter().zip(self.travel.fields());
        let arrays: Vec<ArrayRef> = arrays.map(as_travelling).collect::<Result<_, _>>()?;
        let bytes = self.rows.push(&arrays, places)?;
        let progress = &self.merge.progress;
        progress.read(batch.num_rows() as u64, bytes);
        progress.advance(batch.num_rows() as u64);
        self.merge.pace.pass(bytes, progress)
    }
}

/// Goes through the sub-chunks of a chunk's rows.
struct SubChunkRows<'a> {
    directory: &'a Directory,
    entry: usize,
    row: u64,
}

impl<'a> SubChunkRows<'a> {
    fn new(directory: &'a Directory) -> Self {
        Self {
            directory,
            entry: 0,
            row: 0,
        }
    }

    /// The places of the next rows. Those of a replicated table are in no sub-chunk.
    fn places(&mut self, chunk: ChunkId, rows: usize) -> Vec<u64> {
        let entries = self.directory.entries();
        let mut places = Vec::with_capacity(rows);
        for _ in 0..rows {
            while (entries.get(self.entry)).is_some_and(|entry| entry.rows.end <= self.row) {
                self.entry += 1;
            }
            let sub_chunk = (entries.get(self.entry)).map_or(SubChunkId(0), |it| it.sub_chunk);
            places.push(Place::new(chunk, sub_chunk).0);
            self.row += 1;
        }
        places
    }
}

/// The entries of several runs of an index in the order of their keys. A key that is in several of them, an orphan of several
/// parts, is in one place: it comes once.
struct MergedRuns {
    runs: Vec<IndexEntries>,
    /// The next key of each run, with its run's number.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    /// The entries of these keys.
    entries: Vec<Option<IndexEntry>>,
    last: Option<i64>,
}

impl MergedRuns {
    fn new(runs: &[DirectorIndex]) -> Result<Self, StoreError> {
        let mut merged = Self {
            runs: runs.iter().map(DirectorIndex::iter).collect(),
            next: BinaryHeap::with_capacity(runs.len()),
            entries: vec![None; runs.len()],
            last: None,
        };
        for run in 0..runs.len() {
            merged.advance(run)?;
        }
        Ok(merged)
    }

    fn advance(&mut self, run: usize) -> Result<(), StoreError> {
        if let Some(next) = self.runs[run].next().transpose()? {
            self.next.push(Reverse((next.0, run)));
            self.entries[run] = Some(next.1);
        }
        Ok(())
    }
}

impl Iterator for MergedRuns {
    type Item = Result<(i64, IndexEntry), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse((key, run)) = self.next.pop()?;
            let entry = self.entries[run].take();
            if let Err(error) = self.advance(run) {
                return Some(Err(error));
            }
            if self.last.replace(key) != Some(key)
                && let Some(entry) = entry
            {
                return Some(Ok((key, entry)));
            }
        }
    }
}
