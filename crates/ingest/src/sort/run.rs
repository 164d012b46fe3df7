//! One sorted run: rows in order, in memory or in a spill file.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::gather::{RowAt, gather};
use super::key::{SortColumns, SortKey};
use super::spill::{SpillFile, SpillWriter};
use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::row_batch::batch_bytes;

/// A batch of a run ends here at the latest.
const BATCH_ROWS: usize = 8192;
/// A batch holds no more than about this many bytes (or one row): offsets of text have 31 bits.
const BATCH_BYTES: u64 = 32 << 20;

/// A gathered row: its rank, its batch, its number there.
pub(super) type RankedRow = (SortKey, u32, u32);

/// Gathered rows with the order in which they are to be read.
pub(crate) struct SortedRows<'a> {
    schema: &'a SchemaRef,
    gathered: &'a [RecordBatch],
    order: &'a mut Vec<RankedRow>,
    batch_rows: usize,
}

/// How many rows of this mean size a batch may have, `most` if they are small.
pub(super) fn rows_per_batch(bytes: u64, rows: u64, most: usize) -> usize {
    let fitting = BATCH_BYTES * rows.max(1) / bytes.max(1);
    fitting.clamp(1, most as u64) as usize
}

impl<'a> SortedRows<'a> {
    /// Sorts in `order`, whatever was there before: it is large, so who sorts again uses its memory again.
    pub(crate) fn sort(
        schema: &'a SchemaRef,
        columns: &SortColumns,
        gathered: &'a [RecordBatch],
        order: &'a mut Vec<RankedRow>,
    ) -> Result<Self, IngestError> {
        let rows = gathered.iter().map(RecordBatch::num_rows).sum();
        order.clear();
        order.reserve_exact(rows);
        for (number, batch) in gathered.iter().enumerate() {
            let keys = columns.keys(batch)?.into_iter().enumerate();
            order.extend(keys.map(|(row, key)| (key, number as u32, row as u32)));
        }
        order.sort_unstable_by_key(|(key, _, _)| *key);
        let bytes = gathered.iter().map(batch_bytes).sum();
        Ok(Self {
            schema,
            gathered,
            order,
            batch_rows: rows_per_batch(bytes, rows as u64, BATCH_ROWS),
        })
    }

    /// The sorted rows batch by batch.
    fn batches(&self) -> impl Iterator<Item = Result<RecordBatch, IngestError>> + '_ {
        self.order.chunks(self.batch_rows).map(|part| {
            let rows: Vec<RowAt> = part.iter().map(|(_, batch, row)| (*batch, *row)).collect();
            gather(self.schema, self.gathered, &rows)
        })
    }
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
    number_of_batches: usize,
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
        let batches: Result<Vec<RecordBatch>, IngestError> = rows.batches().collect();
        let batches = Batches::Memory {
            batches: batches?,
            budget,
            taken,
        };
        Ok(Self::new(batches, &rows, taken))
    }

    /// A run written to a new file at `path`, which is removed when the run is dropped.
    pub(crate) fn on_disk(rows: SortedRows<'_>, path: &Path) -> Result<Self, IngestError> {
        let mut writer = SpillWriter::create(path, rows.schema)?;
        let mut bytes = 0;
        for batch in rows.batches() {
            let batch = batch?;
            bytes += batch_bytes(&batch);
            writer.write(&batch)?;
        }
        Ok(Self::new(Batches::Disk(writer.finish()?), &rows, bytes))
    }

    fn new(batches: Batches, rows: &SortedRows<'_>, bytes: u64) -> Self {
        Self {
            batches,
            number_of_batches: rows.order.len().div_ceil(rows.batch_rows),
            rows: rows.order.len() as u64,
            bytes,
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// What all rows of this run take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn number_of_batches(&self) -> usize {
        self.number_of_batches
    }

    /// One batch of the run.
    pub(crate) fn batch(&self, number: usize) -> Result<RecordBatch, IngestError> {
        match &self.batches {
            Batches::Memory { batches, .. } => Ok(batches[number].clone()),
            Batches::Disk(file) => file.read(number),
        }
    }
}
