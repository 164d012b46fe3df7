//! Reading rows of several files as one stream of batches.

use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::scan::Scan;
use crate::untested_rows::{UntestedRows, read_tested};
use crate::{OpenFile, ScanRequest, StoreError};

/// Rows from which on those of a block are tested and given by themselves. Fewer are put together with those of the next files: testing
/// a condition costs microseconds however few rows there are, and so does every batch in every operator above.
const ENOUGH_ROWS: usize = 1024;

/// Reads files one after another as [`OpenFile::scan`] reads each; a file is taken from the stream when what is before it was read.
/// All requests have the same condition, columns and schema. Where there are few rows in each file, those of several are read
/// together. An error is the last item; `of_store` makes one of the
/// caller's of an error here.
pub fn scan_files<E: Send + 'static>(
    requests: BoxStream<'static, Result<(Arc<OpenFile>, ScanRequest), E>>,
    of_store: fn(StoreError) -> E,
) -> BoxStream<'static, Result<RecordBatch, E>> {
    let scan = JointScan {
        requests,
        of_store,
        current: None,
        large: None,
    };
    let next = |mut scan: JointScan<E>| async move {
        let batch = scan.next_batch().await?;
        Ok(batch.map(|batch| (batch, scan)))
    };
    stream::try_unfold(scan, next).boxed()
}

struct JointScan<E> {
    requests: BoxStream<'static, Result<(Arc<OpenFile>, ScanRequest), E>>,
    of_store: fn(StoreError) -> E,
    current: Option<Scan>,
    /// Enough rows, which came after fewer.
    large: Option<UntestedRows>,
}

impl<E> JointScan<E> {
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>, E> {
        loop {
            let parts = self.next_parts().await?;
            if parts.is_empty() {
                return Ok(None);
            }
            if let Some(batch) = read_tested(parts).await.map_err(self.of_store)? {
                return Ok(Some(batch));
            }
        }
    }

    /// Rows that are tested together, in their order.
    async fn next_parts(&mut self) -> Result<Vec<UntestedRows>, E> {
        if let Some(large) = self.large.take() {
            return Ok(vec![large]);
        }
        let (mut parts, mut rows) = (Vec::new(), 0);
        while rows < ENOUGH_ROWS
            && let Some(part) = self.next_part().await?
        {
            if part.len() >= ENOUGH_ROWS && !parts.is_empty() {
                self.large = Some(part);
                break;
            }
            rows += part.len();
            parts.push(part);
        }
        Ok(parts)
    }

    async fn next_part(&mut self) -> Result<Option<UntestedRows>, E> {
        loop {
            if let Some(scan) = &mut self.current {
                if let Some(part) = scan.next_rows().await.map_err(self.of_store)? {
                    return Ok(Some(part));
                }
                self.current = None;
            }
            let Some((file, request)) = self.requests.try_next().await? else {
                return Ok(None);
            };
            let mut scan = file.plan(request).map_err(self.of_store)?;
            scan.begin().await.map_err(self.of_store)?;
            self.current = Some(scan);
        }
    }
}
