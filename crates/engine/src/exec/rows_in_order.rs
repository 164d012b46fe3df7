//! Rows that come in streams which are not done in their order.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

/// Streams of rows, each with a number of its own, whose rows are given in the order of the numbers.
#[derive(Default)]
pub(super) struct RowsInOrder {
    waiting: BTreeMap<usize, SendableRecordBatchStream>,
    current: Option<SendableRecordBatchStream>,
    /// The number of the stream whose rows are given next.
    next: usize,
}

impl RowsInOrder {
    /// Adds the stream with this number.
    pub fn add(&mut self, number: usize, rows: SendableRecordBatchStream) {
        self.waiting.insert(number, rows);
    }

    /// How many streams were given to their end.
    pub fn num_given(&self) -> usize {
        self.next
    }

    /// The next rows; `None` as long as the stream that they are in was not added.
    ///
    /// # Errors
    /// That of the stream.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(batch) = current.next().await {
                    return batch.map(Some);
                }
                self.current = None;
                self.next += 1;
            }
            match self.waiting.remove(&self.next) {
                Some(rows) => self.current = Some(rows),
                None => return Ok(None),
            }
        }
    }
}
