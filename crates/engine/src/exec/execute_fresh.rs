//! Plans that are executed more than once: inputs that one partition gathers for all of them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;

/// Executes the first partition of a plan, whatever was executed of it before.
///
/// An input that is gathered once is gathered anew by another partition where the one that had begun failed or was dropped, as below
/// a LIMIT that is met. Operators that hand out each of their partitions once, such as `RepartitionExec`, panic at the second time.
pub(super) fn execute_fresh(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    reset_plan_states(Arc::clone(plan))?.execute(0, Arc::clone(context))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, RecordBatch};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_plan::Partitioning;
    use datafusion::physical_plan::repartition::RepartitionExec;
    use futures::{FutureExt, StreamExt, TryStreamExt};

    use super::*;

    /// A crossmatch of a subquery with groups, below a join that needed no rows of it, panicked in the background.
    #[tokio::test]
    async fn a_plan_of_which_some_was_executed_is_executed_whole() {
        let column = Arc::new(Int32Array::from(vec![1, 2, 3])) as _;
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let source = MemorySourceConfig::try_new_exec(&[vec![batch.clone()]], batch.schema(), None);
        let plan = RepartitionExec::try_new(source.unwrap(), Partitioning::RoundRobinBatch(1));
        let plan: Arc<dyn ExecutionPlan> = Arc::new(plan.unwrap());
        let context = Arc::new(TaskContext::default());
        for _ in 0..2 {
            let mut dropped = execute_fresh(&plan, &context).unwrap();
            assert!(
                dropped.next().now_or_never().is_none(),
                "nothing is waited for"
            );
        }
        let rows: Vec<RecordBatch> =
            (execute_fresh(&plan, &context).unwrap().try_collect().await).unwrap();
        assert_eq!(rows, [batch]);
    }
}
