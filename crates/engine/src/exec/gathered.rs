//! Rows of pieces that wait for the rows of earlier pieces: in memory while they are few, in temporary files otherwise.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;

/// Bytes of waiting rows of a phase that are held in memory at most, if the statements' memory has room for them. A count or a mean of a piece has some hundred bytes.
const MEMORY: usize = 8 << 20;

/// Where the rows of a phase's pieces wait.
pub(super) struct WaitingRows {
    spill: SpillManager,
    schema: SchemaRef,
    /// Counts the bytes in memory.
    memory: Arc<MemoryReservation>,
}

impl WaitingRows {
    pub fn new(context: &TaskContext, schema: &SchemaRef) -> Self {
        let consumer = MemoryConsumer::new("rows of pieces").with_can_spill(true);
        let memory = consumer.register(context.memory_pool());
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        Self {
            spill: SpillManager::new(context.runtime_env(), metrics, Arc::clone(schema)),
            schema: Arc::clone(schema),
            memory: Arc::new(memory),
        }
    }

    /// Takes the rows of a piece; gives them back as a stream.
    pub fn keep(&self, batches: Vec<RecordBatch>) -> Result<SendableRecordBatchStream> {
        let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let held = Held::try_new(&self.memory, bytes);
        if held.is_none() {
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

/// Bytes that are counted as held until it is dropped.
struct Held {
    memory: Arc<MemoryReservation>,
    bytes: usize,
}

impl Held {
    /// Counts so many bytes more; `None` if there is no room for them.
    fn try_new(memory: &Arc<MemoryReservation>, bytes: usize) -> Option<Self> {
        if memory.size().saturating_add(bytes) > MEMORY {
            return None;
        }
        memory.try_grow(bytes).ok()?;
        Some(Self {
            memory: Arc::clone(memory),
            bytes,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn rows_that_the_memory_of_statements_has_no_room_for_go_to_files() {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(1 << 20, 1.0);
        let runtime = Arc::new(runtime.build().unwrap());
        let context = TaskContext::default().with_runtime(runtime);
        let column = Int64Array::from_iter_values(0..100_000);
        let batch = RecordBatch::try_from_iter([("n", Arc::new(column) as _)]).unwrap();
        let waiting_rows = WaitingRows::new(&context, &batch.schema());
        let waiting: Vec<_> = (0..4)
            .map(|_| waiting_rows.keep(vec![batch.clone()]).unwrap())
            .collect();
        assert!((1..1 << 20).contains(&waiting_rows.memory.size()));
        for rows in waiting {
            let read: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            let read = arrow::compute::concat_batches(&batch.schema(), &read).unwrap();
            assert_eq!(read, batch);
        }
    }

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
        let held = waiting_rows.memory.size();
        assert!((MEMORY / 2..=MEMORY).contains(&held), "{held} bytes");
        for (n, rows) in waiting.into_iter().enumerate() {
            let read: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            let read = arrow::compute::concat_batches(&batch(0).schema(), &read).unwrap();
            let both = [batch(n as i64), batch(-(n as i64))];
            let wanted = arrow::compute::concat_batches(&batch(0).schema(), &both).unwrap();
            assert_eq!(read, wanted);
        }
        assert_eq!(waiting_rows.memory.size(), 0);
        let empty: Vec<RecordBatch> = waiting_rows
            .keep(vec![])
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert!(empty.is_empty());
    }
}
