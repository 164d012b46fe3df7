//! External sorting of placed rows within the memory budget.
//!
//! Every thread gathers rows until it has a run's worth, sorts them, and keeps the run in memory or, when the budget
//! is used up, writes it to a file of the load's spill directory. The sorted runs are then merged chunk by chunk, by
//! several threads at once. A chunk is never held whole unless it is small, so one that holds most of the sky's rows
//! is no special case.
//!
//! Invariant: the merged order depends on the rows alone (their place, key, order column, and where they stood in the
//! input), never on which thread read them or on the budget.

mod key;
mod merge;
mod run;
mod spill;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use sky::ChunkId;

pub(crate) use key::{SortColumns, is_sortable};
pub(crate) use merge::Merge;
use run::Run;

use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::row_batch::{Place, batch_bytes};

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
    runs: Mutex<Vec<Run>>,
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
        let run_bytes = ((budget.run_bytes() as f64 * share) as u64).max(8 << 10);
        Self {
            schema,
            columns,
            budget,
            run_bytes,
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
        }
    }

    /// All that was pushed, sorted. Every input must have been finished.
    pub(crate) fn into_runs(self) -> SortedRuns {
        let runs = self
            .runs
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        SortedRuns {
            schema: self.schema,
            columns: self.columns,
            runs,
        }
    }

    /// As [`Sorter::into_runs`], for what was pushed so far: the sorter is empty then.
    pub(crate) fn take_runs(&self) -> SortedRuns {
        SortedRuns {
            schema: self.schema.clone(),
            columns: self.columns,
            runs: std::mem::take(&mut *self.lock_runs()),
        }
    }

    fn add_run(&self, gathered: &[RecordBatch], bytes: u64) -> Result<(), IngestError> {
        let sorted = run::SortedRows::sort(&self.schema, &self.columns, gathered)?;
        let run = if self.budget.keep_run(bytes) {
            Run::in_memory(sorted, self.budget.clone(), bytes)?
        } else {
            let number = self.spilled.fetch_add(1, Relaxed);
            let path = self.spill_dir.join(format!("{}-{number}.arrow", self.name));
            Run::on_disk(sorted, &path)?
        };
        self.lock_runs().push(run);
        Ok(())
    }

    fn lock_runs(&self) -> std::sync::MutexGuard<'_, Vec<Run>> {
        self.runs
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// One thread's end of a [`Sorter`].
#[derive(Debug)]
pub(crate) struct SorterInput<'a> {
    sorter: &'a Sorter,
    gathered: Vec<RecordBatch>,
    bytes: u64,
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
            self.sorter.add_run(&self.gathered, self.bytes)?;
            self.gathered.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

/// How much of a chunk lies in the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkSize {
    pub chunk: ChunkId,
    pub rows: u64,
    /// An estimate: the rows' share of their runs.
    pub bytes: u64,
}

/// Sorted runs, ready to be merged. Dropping it frees their memory and removes their files.
#[derive(Debug)]
pub(crate) struct SortedRuns {
    schema: SchemaRef,
    columns: SortColumns,
    runs: Vec<Run>,
}

impl SortedRuns {
    /// The chunks that have rows, sorted by number.
    pub(crate) fn chunks(&self) -> Vec<ChunkSize> {
        let mut sizes = std::collections::BTreeMap::new();
        for run in &self.runs {
            for (chunk, rows) in run.chunk_rows() {
                let entry = sizes.entry(*chunk).or_insert((0, 0));
                entry.0 += rows;
                entry.1 += run.bytes_of(*rows);
            }
        }
        let sizes = sizes.into_iter();
        sizes
            .map(|(chunk, (rows, bytes))| ChunkSize { chunk, rows, bytes })
            .collect()
    }

    /// All rows, sorted.
    pub(crate) fn merge_all(&self) -> Result<Merge<'_>, IngestError> {
        Merge::new(&self.schema, &self.columns, &self.runs, 0..u64::MAX)
    }

    /// The rows of one chunk, sorted.
    pub(crate) fn merge_chunk(&self, chunk: ChunkId) -> Result<Merge<'_>, IngestError> {
        Merge::new(
            &self.schema,
            &self.columns,
            &self.runs,
            Place::range_of(chunk),
        )
    }

    /// The schema of the rows: declared columns, place, row.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many runs went to disk.
    pub(crate) fn spilled_runs(&self) -> usize {
        self.runs.iter().filter(|run| run.is_on_disk()).count()
    }

    /// Rows altogether.
    pub(crate) fn rows(&self) -> u64 {
        self.runs.iter().map(Run::rows).sum()
    }
}

#[cfg(test)]
mod tests;
