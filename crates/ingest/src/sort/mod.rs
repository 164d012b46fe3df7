//! External sorting of placed rows within the memory budget.
//!
//! [`chunks`] sorts the rows of a table chunk by chunk. The [`Sorter`] here brings all rows into one order: every thread
//! gathers rows until it has a run's worth, sorts them, and keeps the run in memory or, when the budget is used up,
//! writes it to a file of the load's spill directory; the runs are then merged.
//!
//! Invariant: the merged order depends on the rows alone (their place, key, order column, and where they stood in the
//! input), never on which thread read them or on the budget.

mod chunk_rows;
mod chunks;
mod gather;
mod key;
mod merge;
mod packed;
mod run;
mod spill;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

pub(crate) use chunk_rows::ChunkRows;
pub(crate) use chunks::{ChunkInput, ChunkSize, ChunkSorter, Chunks};
pub(crate) use key::{SortColumns, is_sortable};
pub(crate) use merge::Merge;
use run::{RankedRow, Run, SortedRows};

use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::row_batch::batch_bytes;

/// Rows that several threads push, to be sorted.
#[derive(Debug)]
pub(crate) struct Sorter {
    schema: SchemaRef,
    columns: SortColumns,
    budget: Arc<MemoryBudget>,
    /// The part of a thread's run buffer that this sorter may use.
    run_bytes: u64,
    spill_dir: PathBuf,
    name: &'static str,
    runs: Mutex<Vec<Arc<Run>>>,
    spilled: AtomicUsize,
}

impl Sorter {
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
            schema,
            columns,
            run_bytes: budget.share_of_run(share),
            budget,
            spill_dir,
            name,
            runs: Mutex::default(),
            spilled: AtomicUsize::new(0),
        }
    }

    /// The schema of the rows: declared columns, place, row.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The end of one thread through which it pushes.
    pub(crate) fn input(&self) -> SorterInput<'_> {
        SorterInput {
            sorter: self,
            gathered: Vec::new(),
            bytes: 0,
            order: Vec::new(),
        }
    }

    /// All that was pushed so far, sorted. Every input must have been finished. The sorter is empty then.
    pub(crate) fn take_sorted(&self) -> Result<Merge, IngestError> {
        let runs = std::mem::take(&mut *lock(&self.runs));
        Merge::new(&self.schema, self.columns, runs)
    }

    fn add_run(
        &self,
        gathered: &[RecordBatch],
        bytes: u64,
        order: &mut Vec<RankedRow>,
    ) -> Result<(), IngestError> {
        let sorted = SortedRows::sort(&self.schema, &self.columns, gathered, order)?;
        let run = if self.budget.keep_run(bytes) {
            Run::in_memory(sorted, self.budget.clone(), bytes)?
        } else {
            let number = self.spilled.fetch_add(1, Relaxed);
            let path = self.spill_dir.join(format!("{}-{number}.arrow", self.name));
            Run::on_disk(sorted, &path)?
        };
        lock(&self.runs).push(Arc::new(run));
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's end of a [`Sorter`].
#[derive(Debug)]
pub(crate) struct SorterInput<'a> {
    sorter: &'a Sorter,
    gathered: Vec<RecordBatch>,
    bytes: u64,
    order: Vec<RankedRow>,
}

impl SorterInput<'_> {
    /// Takes a batch of placed rows.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<(), IngestError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.bytes += batch_bytes(&batch);
        self.gathered.push(batch);
        if self.bytes >= self.sorter.run_bytes {
            self.seal()?;
        }
        Ok(())
    }

    /// Hands over what is left.
    pub(crate) fn finish(mut self) -> Result<(), IngestError> {
        self.seal()
    }

    fn seal(&mut self) -> Result<(), IngestError> {
        if !self.gathered.is_empty() {
            self.sorter
                .add_run(&self.gathered, self.bytes, &mut self.order)?;
            self.gathered.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
