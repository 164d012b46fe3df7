//! One sorted run: rows in order, in memory or in a spill file, with what is needed to find a chunk's part.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use sky::ChunkId;

use super::key::{SortColumns, SortKey};
use super::spill::{SpillFile, SpillWriter};
use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::row_batch::{Place, batch_bytes};

/// A batch of a run ends here at the latest.
const BATCH_ROWS: usize = 8192;
/// A batch holds no more than about this many bytes (or one row): offsets of text have 31 bits.
const BATCH_BYTES: u64 = 32 << 20;
/// A batch of a run ends at the end of a chunk once it has this many rows, so that reading one chunk of a run reads
/// little of its neighbours.
const BATCH_ROWS_AT_CHUNK_END: usize = 1024;

/// Gathered rows with the order in which they are to be read.
pub(crate) struct SortedRows<'a> {
    schema: &'a SchemaRef,
    gathered: Vec<&'a RecordBatch>,
    order: Vec<(SortKey, u32, u32)>,
    batch_rows: usize,
}

/// How many rows of this mean size a batch may have, `most` if they are small.
pub(super) fn rows_per_batch(bytes: u64, rows: u64, most: usize) -> usize {
    let fitting = BATCH_BYTES * rows.max(1) / bytes.max(1);
    fitting.clamp(1, most as u64) as usize
}

impl<'a> SortedRows<'a> {
    pub(crate) fn sort(
        schema: &'a SchemaRef,
        columns: &SortColumns,
        gathered: &'a [RecordBatch],
    ) -> Result<Self, IngestError> {
        let rows = gathered.iter().map(RecordBatch::num_rows).sum();
        let mut order = Vec::with_capacity(rows);
        for (number, batch) in gathered.iter().enumerate() {
            let keys = columns.keys(batch)?.into_iter().enumerate();
            order.extend(keys.map(|(row, key)| (key, number as u32, row as u32)));
        }
        order.sort_unstable_by_key(|(key, _, _)| *key);
        let bytes = gathered.iter().map(batch_bytes).sum();
        Ok(Self {
            schema,
            gathered: gathered.iter().collect(),
            order,
            batch_rows: rows_per_batch(bytes, rows as u64, BATCH_ROWS),
        })
    }

    /// The sorted rows batch by batch, each with the range of places that it covers.
    fn batches(&self) -> impl Iterator<Item = Result<(RecordBatch, Span), IngestError>> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            let end = self.batch_end(start)?;
            let part = &self.order[start..end];
            start = end;
            let indices: Vec<(usize, usize)> = part
                .iter()
                .map(|(_, batch, row)| (*batch as usize, *row as usize))
                .collect();
            let span = Span {
                first: part.first().map_or(0, |(key, _, _)| key.place),
                last: part.last().map_or(0, |(key, _, _)| key.place),
            };
            let batch = interleave_record_batch(&self.gathered, &indices);
            Some(batch.map(|batch| (batch, span)).map_err(IngestError::from))
        })
    }

    fn batch_end(&self, start: usize) -> Option<usize> {
        let rest = self.order.get(start..).filter(|rest| !rest.is_empty())?;
        let longest = rest.len().min(self.batch_rows);
        let chunk_of = |i: usize| rest[i].0.place >> 32;
        let chunk_end =
            (BATCH_ROWS_AT_CHUNK_END..longest).find(|&i| chunk_of(i) != chunk_of(i - 1));
        Some(start + chunk_end.unwrap_or(longest))
    }

    fn chunk_rows(&self) -> Vec<(ChunkId, u64)> {
        let mut counts: Vec<(ChunkId, u64)> = Vec::new();
        for part in self
            .order
            .chunk_by(|a, b| a.0.place >> 32 == b.0.place >> 32)
        {
            counts.push((Place(part[0].0.place).chunk(), part.len() as u64));
        }
        counts
    }
}

/// The first and the last place in a batch of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub first: u64,
    pub last: u64,
}

#[derive(Debug)]
enum Batches {
    Memory {
        batches: Vec<RecordBatch>,
        budget: Arc<MemoryBudget>,
        taken: u64,
    },
    Disk(SpillFile),
}

impl Drop for Batches {
    fn drop(&mut self) {
        if let Self::Memory { budget, taken, .. } = self {
            budget.release_run(*taken);
        }
    }
}

/// Sorted rows in batches.
#[derive(Debug)]
pub(crate) struct Run {
    batches: Batches,
    spans: Vec<Span>,
    chunk_rows: Vec<(ChunkId, u64)>,
    rows: u64,
    bytes: u64,
}

impl Run {
    /// A run kept in memory; `taken` was taken from the budget and is given back when the run is dropped.
    pub(crate) fn in_memory(
        rows: SortedRows<'_>,
        budget: Arc<MemoryBudget>,
        taken: u64,
    ) -> Result<Self, IngestError> {
        let mut spans = Vec::new();
        let mut batches = Batches::Memory {
            batches: Vec::new(),
            budget,
            taken,
        };
        let mut bytes = 0;
        for batch in rows.batches() {
            let (batch, span) = batch?;
            bytes += batch_bytes(&batch);
            if let Batches::Memory { batches, .. } = &mut batches {
                batches.push(batch);
            }
            spans.push(span);
        }
        Ok(Self::new(batches, spans, &rows, bytes))
    }

    /// A run written to a new file at `path`, which is removed when the run is dropped.
    pub(crate) fn on_disk(rows: SortedRows<'_>, path: &Path) -> Result<Self, IngestError> {
        let mut spans = Vec::new();
        let mut writer = SpillWriter::create(path, rows.schema)?;
        let mut bytes = 0;
        for batch in rows.batches() {
            let (batch, span) = batch?;
            bytes += batch_bytes(&batch);
            writer.write(&batch)?;
            spans.push(span);
        }
        Ok(Self::new(
            Batches::Disk(writer.finish()?),
            spans,
            &rows,
            bytes,
        ))
    }

    fn new(batches: Batches, spans: Vec<Span>, rows: &SortedRows<'_>, bytes: u64) -> Self {
        Self {
            batches,
            spans,
            chunk_rows: rows.chunk_rows(),
            rows: rows.order.len() as u64,
            bytes,
        }
    }

    pub(crate) fn chunk_rows(&self) -> &[(ChunkId, u64)] {
        &self.chunk_rows
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// What `rows` rows of this run take on average.
    pub(crate) fn bytes_of(&self, rows: u64) -> u64 {
        (u128::from(self.bytes) * u128::from(rows) / u128::from(self.rows.max(1))) as u64
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.batches, Batches::Disk(_))
    }

    /// The batches that may hold places of the range.
    pub(crate) fn batches_in(&self, places: &std::ops::Range<u64>) -> std::ops::Range<usize> {
        let first = self.spans.partition_point(|span| span.last < places.start);
        let end = self.spans.partition_point(|span| span.first < places.end);
        first..end.max(first)
    }

    /// One batch of the run.
    pub(crate) fn batch(&self, number: usize) -> Result<RecordBatch, IngestError> {
        match &self.batches {
            Batches::Memory { batches, .. } => Ok(batches[number].clone()),
            Batches::Disk(file) => file.read(number),
        }
    }
}
