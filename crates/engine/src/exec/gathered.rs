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
use futures::stream::{self, StreamExt, TryStreamExt};

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

    /// Begins to take the rows of a piece.
    pub fn gather(self: &Arc<Self>) -> GatheredPiece {
        GatheredPiece {
            waiting: Arc::clone(self),
            batches: Vec::new(),
            held: Vec::new(),
            files: Vec::new(),
        }
    }
}

/// Opens a temporary file. Once open, some of its rows are read ahead, so it is opened when they are wanted.
type OpenFile = Box<dyn FnOnce() -> Result<SendableRecordBatchStream> + Send>;

/// The rows of a piece while they come.
pub(super) struct GatheredPiece {
    waiting: Arc<WaitingRows>,
    batches: Vec<RecordBatch>,
    held: Vec<Held>,
    /// The rows before these, where there was no room for them.
    files: Vec<OpenFile>,
}

impl GatheredPiece {
    /// Takes some rows.
    ///
    /// # Errors
    /// A temporary file cannot be written.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let waiting = Arc::clone(&self.waiting);
        let held = Held::try_new(&waiting.memory, batch.get_array_memory_size());
        let has_room = held.is_some();
        self.held.extend(held);
        self.batches.push(batch);
        if has_room {
            return Ok(());
        }
        let spill = &waiting.spill;
        let file = spill.spill_record_batch_and_finish(&self.batches, "rows of a piece")?;
        if let Some(file) = file {
            let spill = spill.clone();
            let open = move || spill.read_spill_as_stream(file, None);
            self.files.push(Box::new(open));
        }
        self.batches.clear();
        self.held.clear();
        Ok(())
    }

    /// Gives the rows back as a stream, in their order.
    pub fn finish(self) -> SendableRecordBatchStream {
        let (batches, held) = (self.batches, self.held);
        let in_memory = batches.into_iter().map(move |batch| {
            let _held = &held;
            Ok(batch)
        });
        let in_files = stream::iter(self.files.into_iter().map(|open| open()));
        let rows = in_files.try_flatten().chain(stream::iter(in_memory));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.waiting.schema),
            rows,
        ))
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
    use super::*;
    use arrow::array::Int64Array;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    fn keep(waiting: &Arc<WaitingRows>, batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
        let mut piece = waiting.gather();
        for batch in batches {
            piece.push(batch).unwrap();
        }
        piece.finish()
    }

    #[tokio::test]
    async fn rows_that_the_memory_of_statements_has_no_room_for_go_to_files() {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(1 << 20, 1.0);
        let runtime = Arc::new(runtime.build().unwrap());
        let context = TaskContext::default().with_runtime(runtime);
        let column = Int64Array::from_iter_values(0..100_000);
        let batch = RecordBatch::try_from_iter([("n", Arc::new(column) as _)]).unwrap();
        let waiting_rows = Arc::new(WaitingRows::new(&context, &batch.schema()));
        let waiting: Vec<_> = (0..4)
            .map(|_| keep(&waiting_rows, vec![batch.clone()]))
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
        let waiting_rows = Arc::new(WaitingRows::new(&context, &batch(0).schema()));
        let waiting: Vec<_> = (0..20)
            .map(|n| keep(&waiting_rows, vec![batch(n), batch(-n)]))
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
        let empty = keep(&waiting_rows, vec![]).try_collect::<Vec<_>>().await;
        assert!(empty.unwrap().is_empty());
    }
}
