//! Sorting by chunk: rows are put down by chunk as they come, and each chunk is sorted when it is written.
//!
//! Batches are gathered until each of their chunks has a part's worth of rows, which for files that are written patch by
//! patch are few batches: they are still in the processor's cache when their rows are copied chunk by chunk, each chunk's in
//! the order of sub-chunks. Such parts of chunks stay in memory or, when the budget is used up, go to a spill file of
//! their thread. A chunk whose order fits into memory is sorted whole; the rows of a sub-chunk then lie together in each
//! part, so that memory is read in stretches. A chunk that holds too many rows for that is sorted in runs, which are merged.
//!
//! Invariant: the order depends on the rows alone (their place, key, order column, and where they stood in the input),
//! never on which thread read them or on the budget.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use sky::ChunkId;

use super::chunk_rows::{ChunkRows, SubChunks};
use super::gather::{RowAt, gather};
use super::key::SortColumns;
use super::lock;
use super::merge::Merge;
use super::packed::{Common, pack, packed_schema, unpack};
use super::run::{Run, SortedRows, rows_per_batch};
use super::spill::{SpillFile, SpillWriter};
use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::row_batch::{Place, batch_bytes, places_of};

/// Rows of a part, if its chunk has so many among the gathered rows. Larger parts have more rows of a sub-chunk together;
/// of smaller ones the rows are in the cache more often.
const PART_ROWS: usize = 16 << 10;

/// What sorting a chunk whole takes for each row, beside the row as it waits.
const BYTES_PER_ROW: u64 = 48;

/// Rows that several threads push, to be sorted chunk by chunk.
#[derive(Debug)]
pub(crate) struct ChunkSorter {
    schema: SchemaRef,
    /// That of rows that wait.
    packed_schema: SchemaRef,
    columns: SortColumns,
    budget: Arc<MemoryBudget>,
    /// The part of a thread's run buffer that this sorter may use.
    run_bytes: u64,
    spill_dir: PathBuf,
    name: &'static str,
    files: AtomicUsize,
    parts: Mutex<Vec<Part>>,
}

impl ChunkSorter {
    /// A sorter of rows of `schema` (placed: the last two columns hidden). `share` is its part of the run buffers.
    pub(crate) fn new(
        name: &'static str,
        schema: SchemaRef,
        columns: SortColumns,
        budget: Arc<MemoryBudget>,
        share: f64,
        spill_dir: PathBuf,
    ) -> Self {
        Self {
            packed_schema: packed_schema(&schema),
            schema,
            columns,
            run_bytes: budget.share_of_run(share),
            budget,
            spill_dir,
            name,
            files: AtomicUsize::new(0),
            parts: Mutex::default(),
        }
    }

    /// The schema of the rows: declared columns, place, row.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The end of one thread through which it pushes.
    pub(crate) fn input(&self) -> ChunkInput<'_> {
        ChunkInput {
            sorter: self,
            gathered: Vec::new(),
            bytes: 0,
            rows: 0,
            chunks: HashSet::new(),
            kept: Vec::new(),
            packed: Spill::default(),
            plain: Spill::default(),
        }
    }

    /// All that was pushed. Every input must have been finished.
    pub(crate) fn into_chunks(self) -> Chunks {
        let parts = mem::take(&mut *lock(&self.parts));
        let spilled = parts.iter().filter(|part| part.is_on_disk()).count();
        let mut by_chunk: BTreeMap<ChunkId, Vec<Part>> = BTreeMap::new();
        for part in parts {
            by_chunk.entry(part.chunk).or_default().push(part);
        }
        let size = |(chunk, parts): (&ChunkId, &Vec<Part>)| ChunkSize {
            chunk: *chunk,
            rows: parts.iter().map(|part| part.rows).sum(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
        };
        Chunks {
            sizes: by_chunk.iter().map(size).collect(),
            parts: Mutex::new(by_chunk),
            spilled,
            sorter: self,
        }
    }

    fn schema_of(&self, common: Option<Common>) -> &SchemaRef {
        match common {
            Some(_) => &self.packed_schema,
            None => &self.schema,
        }
    }

    fn spill_path(&self) -> PathBuf {
        let number = self.files.fetch_add(1, Relaxed);
        self.spill_dir.join(format!("{}-{number}.arrow", self.name))
    }
}

/// Some rows of one chunk.
#[derive(Debug)]
struct Part {
    chunk: ChunkId,
    rows: u64,
    bytes: u64,
    /// What was taken out of the rows; `None` where nothing could be.
    common: Option<Common>,
    at: BatchLocation,
}

#[derive(Debug)]
enum BatchLocation {
    Memory(BufferedBatch),
    /// The batch of this number in a file.
    Disk(Arc<SpillFile>, usize),
}

/// A batch that counts against the budget as long as it is held.
#[derive(Debug)]
struct BufferedBatch {
    batch: RecordBatch,
    budget: Arc<MemoryBudget>,
    taken: u64,
}

impl Drop for BufferedBatch {
    fn drop(&mut self) {
        self.budget.release_run(self.taken);
    }
}

impl Part {
    fn is_on_disk(&self) -> bool {
        matches!(self.at, BatchLocation::Disk(..))
    }

    /// Its rows, placed, in this schema.
    fn batch(&self, schema: &SchemaRef) -> Result<RecordBatch, IngestError> {
        let batch = match &self.at {
            BatchLocation::Memory(kept) => kept.batch.clone(),
            BatchLocation::Disk(file, number) => file.read(*number)?,
        };
        match self.common {
            Some(common) => unpack(schema, &batch, common),
            None => Ok(batch),
        }
    }
}

/// One thread's end of a [`ChunkSorter`].
pub(crate) struct ChunkInput<'a> {
    sorter: &'a ChunkSorter,
    /// Batches whose rows are still to be put down.
    gathered: Vec<RecordBatch>,
    bytes: u64,
    rows: usize,
    /// The chunks of the gathered rows.
    chunks: HashSet<u32>,
    kept: Vec<Part>,
    /// Parts on disk, those that are packed and those that cannot be.
    packed: Spill,
    plain: Spill,
}

/// Parts of chunks in a spill file.
#[derive(Default)]
struct Spill {
    file: Option<SpillWriter>,
    /// What each batch of the file is.
    parts: Vec<SpilledBatch>,
}

/// A part without its rows.
struct SpilledBatch {
    chunk: ChunkId,
    rows: u64,
    bytes: u64,
    common: Option<Common>,
}

impl Spill {
    fn finish(self) -> Result<Vec<Part>, IngestError> {
        let Some(file) = self.file else {
            return Ok(Vec::new());
        };
        let file = Arc::new(file.finish()?);
        let part = |(number, part): (usize, SpilledBatch)| Part {
            chunk: part.chunk,
            rows: part.rows,
            bytes: part.bytes,
            common: part.common,
            at: BatchLocation::Disk(file.clone(), number),
        };
        Ok(self.parts.into_iter().enumerate().map(part).collect())
    }
}

impl ChunkInput<'_> {
    /// Takes a batch of placed rows.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<(), IngestError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.bytes += batch_bytes(&batch);
        self.rows += batch.num_rows();
        let stretches = places_of(&batch).chunk_by(|a, b| chunk_at(*a) == chunk_at(*b));
        self.chunks
            .extend(stretches.map(|places| chunk_at(places[0])));
        self.gathered.push(batch);
        if self.rows >= self.chunks.len() * PART_ROWS || self.bytes >= self.sorter.run_bytes {
            self.partition_gathered()?;
        }
        Ok(())
    }

    /// Hands over what is left.
    pub(crate) fn finish(mut self) -> Result<(), IngestError> {
        self.partition_gathered()?;
        for spill in [self.packed, self.plain] {
            self.kept.extend(spill.finish()?);
        }
        lock(&self.sorter.parts).append(&mut self.kept);
        Ok(())
    }

    /// Copies the gathered rows chunk by chunk.
    fn partition_gathered(&mut self) -> Result<(), IngestError> {
        let gathered = mem::take(&mut self.gathered);
        let (bytes, rows) = (mem::take(&mut self.bytes), mem::take(&mut self.rows));
        self.chunks.clear();
        let most = rows_per_batch(bytes, rows as u64, 2 * PART_ROWS);
        for (chunk, rows) in rows_by_chunk(&gathered) {
            for rows in by_sub_chunk(&gathered, &rows).chunks(most) {
                let part = gather(&self.sorter.schema, &gathered, rows)?;
                match pack(&self.sorter.packed_schema, &part)? {
                    Some((packed, common)) => self.partition_batch(chunk, packed, Some(common))?,
                    None => self.partition_batch(chunk, part, None)?,
                }
            }
        }
        Ok(())
    }

    fn partition_batch(
        &mut self,
        chunk: ChunkId,
        batch: RecordBatch,
        common: Option<Common>,
    ) -> Result<(), IngestError> {
        let (sorter, rows) = (self.sorter, batch.num_rows() as u64);
        let bytes = batch_bytes(&batch);
        if sorter.budget.keep_run(bytes) {
            let kept = BufferedBatch {
                batch,
                budget: sorter.budget.clone(),
                taken: bytes,
            };
            self.kept.push(Part {
                chunk,
                rows,
                bytes,
                common,
                at: BatchLocation::Memory(kept),
            });
            return Ok(());
        }
        let spill = match common {
            Some(_) => &mut self.packed,
            None => &mut self.plain,
        };
        let file = match &mut spill.file {
            Some(file) => file,
            none => {
                let path = sorter.spill_path();
                none.insert(SpillWriter::create(&path, sorter.schema_of(common))?)
            }
        };
        file.write(&batch)?;
        spill.parts.push(SpilledBatch {
            chunk,
            rows,
            bytes,
            common,
        });
        Ok(())
    }
}

fn chunk_at(place: u64) -> u32 {
    (place >> 32) as u32
}

/// The rows of each chunk, in the order in which they lie in the batches.
fn rows_by_chunk(batches: &[RecordBatch]) -> Vec<(ChunkId, Vec<RowAt>)> {
    let mut slots: HashMap<u32, usize> = HashMap::new();
    let mut chunks: Vec<(ChunkId, Vec<RowAt>)> = Vec::new();
    let mut last = None;
    for (number, batch) in batches.iter().enumerate() {
        for (row, place) in places_of(batch).iter().enumerate() {
            let chunk = chunk_at(*place);
            let slot = match last {
                Some((previous, slot)) if previous == chunk => slot,
                _ => *slots.entry(chunk).or_insert_with(|| {
                    chunks.push((Place(*place).chunk(), Vec::new()));
                    chunks.len() - 1
                }),
            };
            last = Some((chunk, slot));
            chunks[slot].1.push((number as u32, row as u32));
        }
    }
    chunks
}

/// Rows of one chunk in the order of sub-chunks (roughly, if the numbers of these lie far apart).
fn by_sub_chunk(batches: &[RecordBatch], rows: &[RowAt]) -> Vec<RowAt> {
    let places: Vec<&[u64]> = batches.iter().map(places_of).collect();
    let place = |(batch, row): &RowAt| places[*batch as usize][*row as usize];
    let table = SubChunks::count(|| rows.iter().map(place));
    let mut next = table.starts.clone();
    let mut ordered = vec![(0, 0); rows.len()];
    for row in rows {
        let next = &mut next[table.of(place(row))];
        ordered[*next] = *row;
        *next += 1;
    }
    ordered
}

/// How much of a chunk there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkSize {
    pub chunk: ChunkId,
    pub rows: u64,
    pub bytes: u64,
}

/// All rows by chunk, ready to be sorted. Dropping it frees their memory and removes their files.
#[derive(Debug)]
pub(crate) struct Chunks {
    sorter: ChunkSorter,
    sizes: Vec<ChunkSize>,
    parts: Mutex<BTreeMap<ChunkId, Vec<Part>>>,
    spilled: usize,
}

impl Chunks {
    /// The chunks that have rows, sorted by number.
    pub(crate) fn sizes(&self) -> &[ChunkSize] {
        &self.sizes
    }

    /// Rows altogether.
    pub(crate) fn rows(&self) -> u64 {
        self.sizes.iter().map(|size| size.rows).sum()
    }

    /// The schema of the rows: declared columns, place, row.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.sorter.schema
    }

    /// How many parts of chunks went to disk.
    pub(crate) fn spilled_parts(&self) -> usize {
        self.spilled
    }

    /// The rows of one chunk, sorted. They are given once: the memory is freed with what is returned.
    pub(crate) fn take(&self, chunk: ChunkId) -> Result<ChunkRows, IngestError> {
        let parts = lock(&self.parts).remove(&chunk).unwrap_or_default();
        let rows: u64 = parts.iter().map(|part| part.rows).sum();
        let on_disk = parts.iter().filter(|part| part.is_on_disk());
        let needed = rows * BYTES_PER_ROW + on_disk.map(|part| part.bytes).sum::<u64>();
        let Self { sorter, .. } = self;
        if needed > sorter.budget.chunk_bytes() {
            return Ok(ChunkRows::merged(self.merge(parts)?));
        }
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let batches = parts
            .iter()
            .map(|part| part.batch(&sorter.schema))
            .collect::<Result<Vec<_>, _>>()?;
        ChunkRows::sorted(&sorter.schema, &sorter.columns, batches, bytes)
    }

    /// Sorts parts of a chunk in runs and merges these.
    fn merge(&self, parts: Vec<Part>) -> Result<Merge, IngestError> {
        let sorter = &self.sorter;
        let (mut runs, mut gathered, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut order = Vec::new();
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            gathered.push(part.batch(&sorter.schema)?);
            bytes += part.bytes;
            if bytes >= sorter.run_bytes || parts.peek().is_none() {
                let rows =
                    SortedRows::sort(&sorter.schema, &sorter.columns, &gathered, &mut order)?;
                runs.push(Arc::new(Run::on_disk(rows, &sorter.spill_path())?));
                gathered.clear();
                bytes = 0;
            }
        }
        Merge::new(&sorter.schema, sorter.columns, runs)
    }
}
