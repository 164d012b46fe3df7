//! The writing phase: sorted rows become chunk files and overlap files, several at a time.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use catalog::{Chunk, OverlapFile, REPLICATED_CHUNK};
use sky::ChunkId;
use store::{
    ChunkSection, DirectoryBuilder, Durability, FileSummary, LoadDir, StoreError,
    write_chunk_file_with, write_packed_file_with,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::IngestError;
use crate::file_of_chunks::{FileOfChunks, in_files, overlaps_in_files};
use crate::pace::Pace;
use crate::place::PlacedRows;
use crate::position::{Bounds, PositionColumns, Positions};
use crate::progress::Progress;
use crate::row_batch::{Place, batch_bytes, places_of, rows_of, to_file_batch};
use crate::sort::{ChunkRows, ChunkSize, Chunks};

/// Batches that wait between the sort and the compression of a file.
const WAITING_BATCHES: usize = 2;

/// Writes the files of one load.
pub(crate) struct ChunkWriter<'a> {
    pub placed: &'a PlacedRows,
    pub load_dir: &'a LoadDir,
    /// The columns of the files: those of the table, then hidden ones.
    pub schema: SchemaRef,
    pub runtime: Handle,
    pub progress: &'a Progress,
    /// Files written at a time.
    pub writers: usize,
    /// How fast rows may be written.
    pub pace: &'a Pace,
    /// When the files are on the disk.
    pub durability: Durability,
}

/// What became of the rows of one chunk.
struct WrittenFile {
    chunk: ChunkId,
    /// The chunk after which the file is named.
    file: ChunkId,
    summary: FileSummary,
    bounds: Option<[f64; 4]>,
}

impl From<WrittenFile> for Chunk {
    fn from(written: WrittenFile) -> Self {
        Self {
            chunk: written.chunk,
            file: written.file,
            rows: written.summary.rows,
            strays: 0,
            bytes: written.summary.bytes,
            checksum: written.summary.checksum,
            overlap: None,
            bounds: written.bounds,
        }
    }
}

impl ChunkWriter<'_> {
    /// Writes all chunk files. Chunks of which no row is left are left out.
    pub(crate) fn write_chunks(&self) -> Result<Vec<Chunk>, IngestError> {
        let rows = &self.placed.rows;
        let files = in_files(rows.sizes());
        let written = self.for_each_file(files, |file| self.write_file(file, rows, true))?;
        let strays = |chunk: &Chunk| self.placed.strays.get(&chunk.chunk).copied();
        let mut chunks: Vec<Chunk> = written.into_iter().map(Chunk::from).collect();
        for chunk in &mut chunks {
            chunk.strays = strays(chunk).unwrap_or(0);
        }
        chunks.sort_by_key(|chunk| chunk.chunk);
        Ok(chunks)
    }

    /// Writes the one file of a replicated table without rows.
    pub(crate) fn write_empty(&self) -> Result<Chunk, IngestError> {
        let file = FileOfChunks::of_one(&ChunkSize {
            chunk: REPLICATED_CHUNK,
            rows: 0,
            bytes: 0,
        });
        let empty = RecordBatch::new_empty(self.placed.rows.schema().clone());
        let rows = std::iter::once(Ok((REPLICATED_CHUNK, empty)));
        let written = self.write_rows(&file, REPLICATED_CHUNK, rows, true)?;
        let chunk = written.into_iter().next().map(Chunk::from);
        chunk.ok_or(IngestError::Internal)
    }

    /// Writes the overlap files of these chunks and notes them in the chunks. What is together in a file of chunks is so in one of
    /// overlaps of the same number.
    pub(crate) fn write_overlaps(&self, chunks: &mut [Chunk]) -> Result<(), IngestError> {
        let Some(rows) = &self.placed.overlap else {
            return Ok(());
        };
        let files = overlaps_in_files(chunks, rows.sizes());
        let written = self.for_each_file(files, |file| self.write_file(file, rows, false))?;
        for WrittenFile { chunk, summary, .. } in written {
            if let Ok(at) = chunks.binary_search_by_key(&chunk, |chunk| chunk.chunk) {
                chunks[at].overlap = Some(OverlapFile {
                    rows: summary.rows,
                    bytes: summary.bytes,
                    checksum: summary.checksum,
                });
            }
        }
        Ok(())
    }

    /// Runs `write` for every file on several threads, the largest first so that none is left for the end.
    fn for_each_file<T: Send>(
        &self,
        mut files: Vec<FileOfChunks>,
        write: impl Fn(&FileOfChunks) -> Result<Vec<T>, IngestError> + Sync,
    ) -> Result<Vec<T>, IngestError> {
        files.sort_by_key(|file| std::cmp::Reverse(file.bytes));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut written = Vec::new();
            while let Some(file) = files.get(next.fetch_add(1, Relaxed)) {
                let outcome = write(file);
                if outcome.is_err() {
                    next.store(files.len(), Relaxed);
                }
                written.extend(outcome?);
            }
            Ok(written)
        };
        let outcomes: Vec<Result<Vec<T>, IngestError>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.writers.max(1))
                .map(|_| scope.spawn(work))
                .collect();
            handles
                .into_iter()
                .map(|h| h.join().unwrap_or(Err(IngestError::Internal)))
                .collect()
        });
        let mut all = Vec::new();
        for outcome in outcomes {
            all.extend(outcome?);
        }
        Ok(all)
    }

    /// Writes the rows of a file's chunks; nothing if no row is left.
    fn write_file(
        &self,
        file: &FileOfChunks,
        rows: &Chunks,
        own: bool,
    ) -> Result<Vec<WrittenFile>, IngestError> {
        let mut rows = KeptRows {
            rows,
            dropped: &self.placed.dropped,
            chunks: file.chunks.iter(),
            sorted: None,
        };
        let Some(first) = rows.next().transpose()? else {
            return Ok(Vec::new());
        };
        let name = file.name.unwrap_or(first.0);
        self.write_rows(file, name, std::iter::once(Ok(first)).chain(rows), own)
    }

    /// Sorts on this thread while the runtime compresses and writes.
    fn write_rows(
        &self,
        file: &FileOfChunks,
        name: ChunkId,
        rows: impl Iterator<Item = Result<(ChunkId, RecordBatch), IngestError>>,
        own: bool,
    ) -> Result<Vec<WrittenFile>, IngestError> {
        let path = match own {
            true => self.load_dir.chunk_path(name),
            false => self.load_dir.overlap_path(name),
        };
        let directory = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
        let writing = self.start_writing(&path, file.is_packed, receiver, directory.clone());
        let mut bounds_collector = BoundsCollector::new(self.placed, own);
        let produced: Result<(), IngestError> = rows.into_iter().try_for_each(|rows| {
            let (chunk, batch) = rows?;
            bounds_collector.collect(chunk, &batch, &directory)?;
            self.progress.advance(batch.num_rows() as u64);
            self.pace.pass(batch_bytes(&batch), self.progress)?;
            // A writer that has failed takes no more; its error is told below.
            let _ = sender.blocking_send(Ok(to_file_batch(&batch, &self.schema)?));
            Ok(())
        });
        if produced.is_err() {
            let _ = sender.blocking_send(Err(std::io::Error::other("the rows ended")));
        }
        drop(sender);
        let written = self
            .runtime
            .block_on(writing)
            .unwrap_or(Err(StoreError::Input(Arc::new(IngestError::Internal))));
        produced?;
        let bounds = bounds_collector.into_bounds();
        let written = written?.into_iter().zip(bounds);
        let of_chunk = |((chunk, summary), bounds)| WrittenFile {
            chunk,
            file: name,
            summary,
            bounds,
        };
        Ok(written.map(of_chunk).collect())
    }

    /// What is written of each chunk, in their order.
    fn start_writing(
        &self,
        path: &Path,
        is_packed: bool,
        receiver: mpsc::Receiver<Result<RecordBatch, std::io::Error>>,
        directory: Arc<Mutex<Vec<SurveyedChunk>>>,
    ) -> JoinHandle<Result<Vec<(ChunkId, FileSummary)>, StoreError>> {
        let (path, schema, durability) = (path.to_path_buf(), self.schema.clone(), self.durability);
        let batches = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|batch| (batch, receiver))
        });
        self.runtime.spawn(async move {
            if is_packed {
                let sections = || finish_survey(&directory);
                let packed =
                    write_packed_file_with(&path, schema, batches, durability, sections).await?;
                return Ok(packed.chunks);
            }
            let mut chunk = None;
            let directory = || {
                let sections = finish_survey(&directory)?;
                let only = sections.into_iter().next();
                let (id, directory) = only.map(|only| (only.chunk, only.directory)).unzip();
                chunk = id;
                Ok(directory.unwrap_or_default())
            };
            let written =
                write_chunk_file_with(&path, schema, batches, durability, directory).await?;
            Ok(chunk.map(|chunk| (chunk, written)).into_iter().collect())
        })
    }
}

fn finish_survey(directory: &Mutex<Vec<SurveyedChunk>>) -> Result<Vec<ChunkSection>, StoreError> {
    let surveyed = std::mem::take(&mut *directory.lock().unwrap_or_else(PoisonError::into_inner));
    let section = |surveyed: SurveyedChunk| {
        Ok(ChunkSection {
            chunk: surveyed.chunk,
            rows: surveyed.rows,
            directory: surveyed.directory.finish()?,
        })
    };
    surveyed.into_iter().map(section).collect()
}

/// Sorted rows of chunks, one after another, without those that were rejected after they were placed.
struct KeptRows<'a> {
    rows: &'a Chunks,
    dropped: &'a HashSet<u64>,
    /// Those that are still to come.
    chunks: std::slice::Iter<'a, ChunkId>,
    sorted: Option<(ChunkId, ChunkRows)>,
}

impl KeptRows<'_> {
    /// The next batch of the present chunk, or of the next one.
    fn next_sorted(&mut self) -> Option<Result<(ChunkId, RecordBatch), IngestError>> {
        loop {
            if let Some((chunk, sorted)) = &mut self.sorted
                && let Some(batch) = sorted.next()
            {
                return Some(batch.map(|batch| (*chunk, batch)));
            }
            // Its memory is freed before the next one is sorted.
            self.sorted = None;
            let chunk = *self.chunks.next()?;
            match self.rows.take(chunk) {
                Ok(sorted) => self.sorted = Some((chunk, sorted)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Iterator for KeptRows<'_> {
    type Item = Result<(ChunkId, RecordBatch), IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (chunk, batch) = match self.next_sorted()? {
                Ok(rows) if self.dropped.is_empty() => return Some(Ok(rows)),
                Ok(rows) => rows,
                Err(error) => return Some(Err(error)),
            };
            let keep: BooleanArray = rows_of(&batch)
                .iter()
                .map(|row| Some(!self.dropped.contains(row)))
                .collect();
            match arrow::compute::filter_record_batch(&batch, &keep) {
                Ok(kept) if kept.num_rows() == 0 => {}
                kept => return Some(kept.map(|kept| (chunk, kept)).map_err(IngestError::from)),
            }
        }
    }
}

/// What is known of a chunk's rows that went by.
struct SurveyedChunk {
    chunk: ChunkId,
    rows: u64,
    directory: DirectoryBuilder,
}

/// Notes where chunks and sub-chunks begin and what positions there are.
struct BoundsCollector {
    positions: Option<PositionColumns>,
    bounds_in_directory: bool,
    by_sub_chunk: bool,
    /// The bounds of each chunk.
    chunks: Vec<(ChunkId, Bounds)>,
    /// The bounds of the current sub-chunk, which may go on in the next batch.
    current: (u64, Bounds),
}

impl BoundsCollector {
    /// For chunks' own rows or those of their overlaps, which belong to no sub-chunk of them.
    fn new(placed: &PlacedRows, own: bool) -> Self {
        Self {
            positions: placed.positions,
            bounds_in_directory: placed.bounds_in_directory,
            by_sub_chunk: own && placed.by_sub_chunk,
            chunks: Vec::new(),
            current: (u64::MAX, Bounds::default()),
        }
    }

    fn collect(
        &mut self,
        chunk: ChunkId,
        batch: &RecordBatch,
        directory: &Mutex<Vec<SurveyedChunk>>,
    ) -> Result<(), IngestError> {
        let positions = self
            .positions
            .map(|columns| Positions::read(batch.columns(), columns))
            .transpose()?;
        let mut directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
        if self.chunks.last().is_none_or(|(last, _)| *last != chunk) {
            self.chunks.push((chunk, Bounds::default()));
            self.current = (u64::MAX, Bounds::default());
            directory.push(SurveyedChunk {
                chunk,
                rows: 0,
                directory: DirectoryBuilder::default(),
            });
        }
        let Some(surveyed) = directory.last_mut() else {
            return Err(IngestError::Internal);
        };
        surveyed.rows += batch.num_rows() as u64;
        let mut start = 0;
        for part in places_of(batch).chunk_by(|a, b| a == b) {
            let place = part[0];
            if self.current.0 != place {
                self.current = (place, Bounds::default());
            }
            let rows = start..start + part.len();
            start = rows.end;
            if let Some(positions) = &positions {
                self.extend_bounds(&positions.ra[rows.clone()], &positions.dec[rows]);
            }
            if self.by_sub_chunk {
                let bounds = self.current.1.to_box().filter(|_| self.bounds_in_directory);
                let sub_chunk = Place(place).sub_chunk();
                (surveyed.directory).push(sub_chunk, part.len() as u64, bounds);
            }
        }
        Ok(())
    }

    fn extend_bounds(&mut self, ra: &[f64], dec: &[f64]) {
        let mut bounds = Bounds::default();
        for (ra, dec) in ra.iter().zip(dec) {
            bounds.add(*ra, *dec);
        }
        self.current.1.merge(&bounds);
        if let Some((_, whole)) = self.chunks.last_mut() {
            whole.merge(&bounds);
        }
    }

    /// The bounds of each chunk, in their order.
    fn into_bounds(self) -> impl Iterator<Item = Option<[f64; 4]>> {
        self.chunks.into_iter().map(|(_, bounds)| bounds.to_box())
    }
}
