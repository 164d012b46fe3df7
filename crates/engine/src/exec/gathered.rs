//! Rows of pieces that wait for the rows of earlier pieces: in memory while they are few, in temporary files otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;

/// Bytes of waiting rows of a phase that are held in memory. A count or a mean of a piece has some hundred bytes.
const MEMORY: usize = 8 << 20;

/// Where the rows of a phase's pieces wait.
pub(super) struct WaitingRows {
    spill: SpillManager,
    schema: SchemaRef,
    /// Bytes in memory.
    bytes: Arc<AtomicUsize>,
}

impl WaitingRows {
    pub fn new(context: &TaskContext, schema: &SchemaRef) -> Self {
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        Self {
            spill: SpillManager::new(context.runtime_env(), metrics, Arc::clone(schema)),
            schema: Arc::clone(schema),
            bytes: Arc::default(),
        }
    }

    /// Takes the rows of a piece; gives them back as a stream.
    pub fn keep(&self, batches: Vec<RecordBatch>) -> Result<SendableRecordBatchStream> {
        let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let held = Held::new(&self.bytes, bytes);
        if self.bytes.load(Relaxed) > MEMORY {
            let spilled = self
                .spill
                .spill_record_batch_and_finish(&batches, "rows of a piece")?;
            if let Some(file) = spilled {
                return self.spill.read_spill_as_stream(file, None);
            }
        }
        let rows = batches.into_iter().map(move |batch| {
            let _held = &held;
            Ok(batch)
        });
        let schema = Arc::clone(&self.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            stream::iter(rows),
        )))
    }
}

/// Counts bytes as held until it is dropped.
struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Held {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Relaxed);
        Self {
            all: Arc::clone(all),
            bytes,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn rows_come_back_from_memory_and_from_files() {
        let context = TaskContext::default();
        let batch = |n: i64| {
            let column = Int64Array::from_iter_values(n..n + 100_000);
            RecordBatch::try_from_iter([("n", Arc::new(column) as _)]).unwrap()
        };
        let waiting_rows = WaitingRows::new(&context, &batch(0).schema());
        let waiting: Vec<_> = (0..20)
            .map(|n| waiting_rows.keep(vec![batch(n), batch(-n)]).unwrap())
            .collect();
        let held = waiting_rows.bytes.load(Relaxed);
        assert!((MEMORY / 2..2 * MEMORY).contains(&held), "{held} bytes");
        for (n, rows) in waiting.into_iter().enumerate() {
            let read: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            let read = arrow::compute::concat_batches(&batch(0).schema(), &read).unwrap();
            let both = [batch(n as i64), batch(-(n as i64))];
            let wanted = arrow::compute::concat_batches(&batch(0).schema(), &both).unwrap();
            assert_eq!(read, wanted);
        }
        assert_eq!(waiting_rows.bytes.load(Relaxed), 0);
        let empty: Vec<RecordBatch> = waiting_rows
            .keep(vec![])
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert!(empty.is_empty());
    }
}
