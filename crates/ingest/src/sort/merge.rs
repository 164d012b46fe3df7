//! The merge of sorted runs into one sorted stream of batches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::gather::{RowAt, gather};
use super::key::{SortColumns, SortKey};
use super::run::{Run, rows_per_batch};
use crate::error::IngestError;

/// Rows of one batch of the merged stream, the last one perhaps fewer.
pub(super) const MERGED_ROWS: usize = 16 << 10;

/// Where the merge stands in one run.
struct Cursor {
    run: Arc<Run>,
    /// The run's batches still to be read.
    ahead: Range<usize>,
    keys: Vec<SortKey>,
    /// The next row of the current batch.
    row: usize,
    /// The current batch's number among the merge's held batches.
    held: usize,
}

/// An iterator over batches of rows in order.
pub(crate) struct Merge {
    columns: SortColumns,
    schema: SchemaRef,
    cursors: Vec<Cursor>,
    /// The next row of each run that is not at its end.
    heap: BinaryHeap<Reverse<(SortKey, usize)>>,
    /// Batches that rows of the next output are taken from.
    held: Vec<RecordBatch>,
    /// Rows of an output batch.
    output_rows: usize,
}

impl Merge {
    pub(crate) fn new(
        schema: &SchemaRef,
        columns: SortColumns,
        runs: Vec<Arc<Run>>,
    ) -> Result<Self, IngestError> {
        let mut merge = Self {
            columns,
            schema: schema.clone(),
            cursors: Vec::with_capacity(runs.len()),
            heap: BinaryHeap::with_capacity(runs.len()),
            held: Vec::new(),
            output_rows: output_rows(&runs),
        };
        for (number, run) in runs.into_iter().enumerate() {
            merge.cursors.push(Cursor {
                ahead: 0..run.number_of_batches(),
                run,
                keys: Vec::new(),
                row: 0,
                held: 0,
            });
            if let Some(key) = merge.next_batch(number)? {
                merge.heap.push(Reverse((key, number)));
            }
        }
        Ok(merge)
    }

    /// Moves a cursor to its run's next batch; gives the first row's rank.
    fn next_batch(&mut self, number: usize) -> Result<Option<SortKey>, IngestError> {
        let cursor = &mut self.cursors[number];
        let Some(next) = cursor.ahead.next() else {
            cursor.keys.clear();
            return Ok(None);
        };
        let batch = cursor.run.batch(next)?;
        cursor.keys = self.columns.keys(&batch)?;
        cursor.row = 0;
        cursor.held = self.held.len();
        self.held.push(batch);
        Ok(cursor.keys.first().copied())
    }

    /// Takes rows from the run with the smallest next row as long as it stays the smallest.
    fn take_rows(&mut self, taken: &mut Vec<RowAt>) -> Result<bool, IngestError> {
        let Some(Reverse((_, number))) = self.heap.pop() else {
            return Ok(false);
        };
        let limit = self.heap.peek().map(|Reverse((key, _))| *key);
        let cursor = &mut self.cursors[number];
        let room = cursor.row + (self.output_rows - taken.len());
        let last = cursor.keys.len().min(room);
        let mut row = cursor.row;
        while row < last && limit.is_none_or(|limit| cursor.keys[row] < limit) {
            taken.push((cursor.held as u32, row as u32));
            row += 1;
        }
        cursor.row = row;
        let next = match cursor.keys.get(row) {
            Some(key) => Some(*key),
            None => self.next_batch(number)?,
        };
        if let Some(key) = next {
            self.heap.push(Reverse((key, number)));
        }
        Ok(true)
    }

    fn next_output(&mut self) -> Result<Option<RecordBatch>, IngestError> {
        let mut taken = Vec::with_capacity(self.output_rows);
        while taken.len() < self.output_rows && self.take_rows(&mut taken)? {}
        if taken.is_empty() {
            return Ok(None);
        }
        let merged = gather(&self.schema, &self.held, &taken)?;
        self.let_go();
        Ok(Some(merged))
    }

    /// Drops the batches that no cursor stands in any more.
    fn let_go(&mut self) {
        let held = std::mem::take(&mut self.held);
        for cursor in &mut self.cursors {
            if cursor.row < cursor.keys.len() {
                self.held.push(held[cursor.held].clone());
                cursor.held = self.held.len() - 1;
            }
        }
    }
}

/// Fewer rows where those of some run are large.
fn output_rows(runs: &[Arc<Run>]) -> usize {
    let of_run = |run: &Arc<Run>| rows_per_batch(run.bytes(), run.rows(), MERGED_ROWS);
    runs.iter().map(of_run).min().unwrap_or(MERGED_ROWS)
}

impl Iterator for Merge {
    type Item = Result<RecordBatch, IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_output().transpose()
    }
}
