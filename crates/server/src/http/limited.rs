//! Rows of a response, cut off at the number that the client wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use bytes::Bytes;
use engine::EngineError;
use futures::stream::{BoxStream, StreamExt};
use prometheus::IntCounter;

use crate::ClientError;
use crate::formats::{RowWriter, TableEnd};
use crate::http::streaming::BLOCK_BYTES;
use crate::query_runtime::ResultSender;

/// Batches cut off at the number of rows that the client requested.
pub(crate) struct LimitedBatches {
    batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
    left: Option<u64>,
    /// Whether more rows exist.
    overflow: Arc<AtomicBool>,
    sent: u64,
    /// The counter of the rows.
    counter: IntCounter,
}

impl LimitedBatches {
    pub(crate) fn new(
        batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
        max_rows: Option<u64>,
        counter: IntCounter,
    ) -> Self {
        Self {
            batches,
            left: max_rows,
            overflow: Arc::default(),
            sent: 0,
            counter,
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch, EngineError>> {
        let next = self.next_limited().await;
        if let Some(Ok(batch)) = &next {
            self.sent += batch.num_rows() as u64;
            self.counter.inc_by(batch.num_rows() as u64);
        }
        next
    }

    async fn next_limited(&mut self) -> Option<Result<RecordBatch, EngineError>> {
        if self.overflow.load(Ordering::Acquire) {
            return None;
        }
        let batch = match self.batches.next().await? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let Some(left) = &mut self.left else {
            return Some(Ok(batch));
        };
        let rows = batch.num_rows() as u64;
        if rows > *left {
            self.overflow.store(true, Ordering::Release);
            // It is less than the batch's number of rows, which is a `usize`.
            let some = batch.slice(0, *left as usize);
            return (some.num_rows() > 0).then_some(Ok(some));
        }
        *left -= rows;
        Some(Ok(batch))
    }

    /// The same, noting in `overflow` that more rows exist as soon as that is known.
    pub(crate) fn noting(mut self, overflow: &Arc<AtomicBool>) -> Self {
        self.overflow = Arc::clone(overflow);
        self
    }

    /// Rows that were given.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) fn ending(&self) -> TableEnd<'static> {
        match self.overflow.load(Ordering::Acquire) {
            true => TableEnd::Overflow,
            false => TableEnd::Whole,
        }
    }
}

/// Writes rows as they arrive. An error after the first block is written at the end where the format can express it, and else breaks
/// off the response, so that the client does not take it for complete.
pub(crate) async fn write(
    writer: &mut dyn RowWriter,
    wanted: &mut LimitedBatches,
    sender: &ResultSender<Bytes>,
) -> Result<(), ClientError> {
    let mut out = Vec::with_capacity(BLOCK_BYTES);
    let mut next = wanted.next().await.transpose()?;
    writer.begin(&mut out);
    while let Some(batch) = next {
        writer.rows(&batch, &mut out)?;
        if out.len() >= BLOCK_BYTES {
            let part = std::mem::replace(&mut out, Vec::with_capacity(BLOCK_BYTES));
            sender.send(part.into()).await?;
        }
        next = match wanted.next().await.transpose() {
            Ok(next) => next,
            Err(error) => {
                let sentence = error.to_string();
                if writer.end(TableEnd::Failed(&sentence), &mut out) {
                    return sender.send(out.into()).await;
                }
                return Err(error.into());
            }
        };
    }
    while writer.more(wanted.ending(), &mut out)? {
        if out.len() >= BLOCK_BYTES {
            let part = std::mem::replace(&mut out, Vec::with_capacity(BLOCK_BYTES));
            sender.send(part.into()).await?;
        }
    }
    writer.end(wanted.ending(), &mut out);
    sender.send(out.into()).await
}
