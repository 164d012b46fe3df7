//! The writing phase: sorted rows become chunk files and overlap files, several at a time.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use catalog::{Chunk, OverlapFile, REPLICATED_CHUNK};
use sky::ChunkId;
use store::{Directory, DirectoryBuilder, FileSummary, LoadDir, StoreError, write_chunk_file_with};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::error::IngestError;
use crate::pipeline::chunk_of;
use crate::place::Placed;
use crate::position::{Bounds, PositionColumns, Positions};
use crate::progress::Progress;
use crate::row_batch::{Place, places_of, rows_of, to_file_batch};
use crate::sort::{ChunkRows, ChunkSize, Chunks};

/// Batches that wait between the sort and the compression of a file.
const WAITING_BATCHES: usize = 2;

/// Writes the files of one load.
pub(crate) struct ChunkWriter<'a> {
    pub placed: &'a Placed,
    pub load_dir: &'a LoadDir,
    /// The columns of the files: those of the table, then hidden ones.
    pub schema: SchemaRef,
    pub runtime: Handle,
    pub progress: &'a Progress,
    /// Files written at a time.
    pub writers: usize,
}

/// What became of one file's rows.
struct Written {
    file: FileSummary,
    bounds: Option<[f64; 4]>,
}

impl ChunkWriter<'_> {
    /// Writes all chunk files. Chunks of which no row is left are left out.
    pub(crate) fn write_chunks(&self) -> Result<Vec<Chunk>, IngestError> {
        let rows = &self.placed.rows;
        let write = |size: &ChunkSize| {
            let path = self.load_dir.chunk_path(size.chunk);
            let written = self.write_file(&path, rows, size.chunk, true)?;
            let strays = self.placed.strays.get(&size.chunk).copied();
            Ok(written.map(|written| Chunk {
                strays: strays.unwrap_or(0),
                ..chunk_of(size.chunk, written.file, written.bounds)
            }))
        };
        let mut chunks: Vec<Chunk> = self.for_each_chunk(rows.sizes().to_vec(), write)?;
        chunks.sort_by_key(|chunk| chunk.chunk);
        Ok(chunks)
    }

    /// Writes the one file of a replicated table without rows.
    pub(crate) fn write_empty(&self) -> Result<Chunk, IngestError> {
        let path = self.load_dir.chunk_path(REPLICATED_CHUNK);
        let empty = RecordBatch::new_empty(self.placed.rows.schema().clone());
        let written = self.write_batches(&path, empty, std::iter::empty(), true)?;
        Ok(chunk_of(REPLICATED_CHUNK, written.file, None))
    }

    /// Writes the overlap files of these chunks and notes them in the chunks.
    pub(crate) fn write_overlaps(&self, chunks: &mut [Chunk]) -> Result<(), IngestError> {
        let Some(rows) = &self.placed.overlap else {
            return Ok(());
        };
        let has_rows: HashSet<ChunkId> = chunks.iter().map(|chunk| chunk.chunk).collect();
        let sizes = rows
            .sizes()
            .iter()
            .filter(|size| has_rows.contains(&size.chunk))
            .copied()
            .collect();
        let write = |size: &ChunkSize| {
            let path = self.load_dir.overlap_path(size.chunk);
            let written = self.write_file(&path, rows, size.chunk, false)?;
            Ok(written.map(|written| (size.chunk, written.file)))
        };
        let files: Vec<(ChunkId, FileSummary)> = self.for_each_chunk(sizes, write)?;
        for (
            id,
            FileSummary {
                rows,
                bytes,
                checksum,
            },
        ) in files
        {
            if let Ok(at) = chunks.binary_search_by_key(&id, |chunk| chunk.chunk) {
                chunks[at].overlap = Some(OverlapFile {
                    rows,
                    bytes,
                    checksum,
                });
            }
        }
        Ok(())
    }

    /// Runs `write` for every chunk on several threads, the largest chunks first so that none is left for the end.
    fn for_each_chunk<T: Send>(
        &self,
        mut sizes: Vec<ChunkSize>,
        write: impl Fn(&ChunkSize) -> Result<Option<T>, IngestError> + Sync,
    ) -> Result<Vec<T>, IngestError> {
        sizes.sort_by_key(|size| std::cmp::Reverse(size.bytes));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut written = Vec::new();
            while let Some(size) = sizes.get(next.fetch_add(1, Relaxed)) {
                let outcome = write(size);
                if outcome.is_err() {
                    next.store(sizes.len(), Relaxed);
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

    /// Writes one chunk's rows to a file; nothing if no row is left.
    fn write_file(
        &self,
        path: &Path,
        rows: &Chunks,
        chunk: ChunkId,
        own: bool,
    ) -> Result<Option<Written>, IngestError> {
        let mut batches = KeptRows {
            sorted: rows.take(chunk)?,
            dropped: &self.placed.dropped,
        };
        let Some(first) = batches.next().transpose()? else {
            return Ok(None);
        };
        self.write_batches(path, first, batches, own).map(Some)
    }

    /// Sorts on this thread while the runtime compresses and writes.
    fn write_batches(
        &self,
        path: &Path,
        first: RecordBatch,
        rest: impl Iterator<Item = Result<RecordBatch, IngestError>>,
        own: bool,
    ) -> Result<Written, IngestError> {
        let survey = Arc::new(Mutex::new(DirectoryBuilder::default()));
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
        let writing = self.start_writing(path, receiver, survey.clone());
        let mut surveyor = Surveyor::new(self.placed, own);
        let produced = std::iter::once(Ok(first))
            .chain(rest)
            .try_for_each(|batch| {
                let batch = batch?;
                surveyor.look_at(&batch, &survey)?;
                self.progress.advance(batch.num_rows() as u64);
                if self.progress.is_cancelled() {
                    return Err(IngestError::Cancelled);
                }
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
        Ok(Written {
            file: written?,
            bounds: surveyor.bounds(),
        })
    }

    fn start_writing(
        &self,
        path: &Path,
        receiver: mpsc::Receiver<Result<RecordBatch, std::io::Error>>,
        survey: Arc<Mutex<DirectoryBuilder>>,
    ) -> tokio::task::JoinHandle<Result<FileSummary, StoreError>> {
        let (path, schema) = (path.to_path_buf(), self.schema.clone());
        let batches = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|batch| (batch, receiver))
        });
        self.runtime.spawn(async move {
            write_chunk_file_with(&path, schema, batches, || finish_directory(&survey)).await
        })
    }
}

fn finish_directory(survey: &Mutex<DirectoryBuilder>) -> Result<Directory, StoreError> {
    std::mem::take(&mut *survey.lock().unwrap_or_else(PoisonError::into_inner)).finish()
}

/// Sorted rows without those that were refused after they were placed.
struct KeptRows<'a> {
    sorted: ChunkRows,
    dropped: &'a HashSet<u64>,
}

impl Iterator for KeptRows<'_> {
    type Item = Result<RecordBatch, IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let batch = match self.sorted.next()? {
                Ok(batch) if self.dropped.is_empty() => return Some(Ok(batch)),
                Ok(batch) => batch,
                Err(error) => return Some(Err(error)),
            };
            let keep: BooleanArray = rows_of(&batch)
                .iter()
                .map(|row| Some(!self.dropped.contains(row)))
                .collect();
            match arrow::compute::filter_record_batch(&batch, &keep) {
                Ok(kept) if kept.num_rows() == 0 => {}
                kept => return Some(kept.map_err(IngestError::from)),
            }
        }
    }
}

/// Notes where sub-chunks begin and what positions there are.
struct Surveyor {
    positions: Option<PositionColumns>,
    bounds_in_directory: bool,
    by_sub_chunk: bool,
    whole: Bounds,
    /// The bounds of the current sub-chunk, which may go on in the next batch.
    current: (u64, Bounds),
}

impl Surveyor {
    /// For a chunk's own rows or those of its overlap, which belong to no sub-chunk of it.
    fn new(placed: &Placed, own: bool) -> Self {
        Self {
            positions: placed.positions,
            bounds_in_directory: placed.bounds_in_directory,
            by_sub_chunk: own && placed.by_sub_chunk,
            whole: Bounds::default(),
            current: (u64::MAX, Bounds::default()),
        }
    }

    fn look_at(
        &mut self,
        batch: &RecordBatch,
        survey: &Mutex<DirectoryBuilder>,
    ) -> Result<(), IngestError> {
        let positions = self
            .positions
            .map(|columns| Positions::read(batch.columns(), columns))
            .transpose()?;
        let mut directory = survey.lock().unwrap_or_else(PoisonError::into_inner);
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
                directory.push(Place(place).sub_chunk(), part.len() as u64, bounds);
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
        self.whole.merge(&bounds);
    }

    fn bounds(&self) -> Option<[f64; 4]> {
        self.whole.to_box()
    }
}
