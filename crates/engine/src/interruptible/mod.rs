//! Interruptible plans: whatever an operator does, its thread passes a check every few milliseconds.
//!
//! ```text
//!   rows of any operator ──► InterruptibleStream: has the statement ended? is the time slice over? ──► the operator above
//!   pairs of a join      ──► CheckExpr, the join's condition: has it ended? does it take long?    ──► the pairs that pass
//! ```
//!
//! An operator may take any number of batches from its input before it returns one: an aggregate above a join does. So all rows between
//! two operators pass a stream that returns an error once the statement has ended, and makes the whole task yield after some
//! milliseconds. Two loops within an operator neither take nor return batches: hash joins and nested loops iterate over pairs that their
//! condition rejects. The check is wrapped around that condition. It cannot yield, but it moves the thread's other tasks to a new
//! thread.
//!
//! What remains are single steps over what an operator has gathered: the hash table of a join, the groups of an aggregate, the rows of a
//! window. Their length is bounded only by memory.

mod check_expr;
mod exec;
mod stream;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use sql::Interrupt;
use sql::interrupt::relieve_with;

use check_expr::{relieve_where_it_takes_long, with_checked_condition};
use exec::InterruptibleExec;
use stream::InterruptibleStream;
pub(crate) use stream::yield_if_due;

/// Runs a plan as part of the statement that this thread works on. Dropping the rows ends the statement.
pub(crate) fn execute(
    plan: &Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    relieve_with(relieve_where_it_takes_long);
    let interrupt = Interrupt::current_or_new();
    let plan = interruptible(Arc::clone(plan), &interrupt)?;
    let _guard = interrupt.enter();
    let rows = execute_stream(plan, context)?;
    Ok(Box::pin(
        InterruptibleStream::new(rows, &interrupt).ending_statement(),
    ))
}

/// The same plan with all operators wrapped. It must not be optimised further.
pub(crate) fn interruptible(
    plan: Arc<dyn ExecutionPlan>,
    interrupt: &Arc<Interrupt>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = plan.children().into_iter().cloned();
    let children = children.map(|child| interruptible(child, interrupt));
    let mut children = children.collect::<Result<Vec<_>>>()?;
    // A nested loop that has no room for its left side executes it once more, to spill it. Operators that hand out their rows once panic then;
    // and of an outer join each partition of the right side gives the left side's rows without a partner. So it fails for want of memory.
    let spills = plan.is::<NestedLoopJoinExec>();
    if let Some(left) = children.first_mut().filter(|_| spills) {
        *left = Arc::new(InterruptibleExec::once(Arc::clone(left), interrupt));
    }
    let node = match children.is_empty() {
        true => plan,
        // A wrapped operator has the properties of the operator itself. To compute those anew for each piece would take longer than many
        // a piece does.
        false => {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
            plan.replace_children(children, options)?
        }
    };
    let node = with_checked_condition(node)?;
    Ok(Arc::new(InterruptibleExec::new(node, interrupt)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::RecordBatch;
    use datafusion::common::DataFusionError;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use futures::{StreamExt, TryStreamExt};

    use super::*;

    /// Statements that compute for hours without returning a row: one for each kind of operator that can.
    const ENDLESS: [(&str, &str); 8] = [
        ("a cross join", "SELECT sum(a.v * c.v) FROM t a, t b, t c"),
        (
            "a nested loop",
            "SELECT count(*) FROM t a JOIN t b ON a.v + b.v < -1 JOIN t c ON a.v + c.v < -1",
        ),
        (
            "a nested loop of which nothing remains",
            "SELECT count(*) FROM (SELECT a.v FROM t a, t b) a JOIN t c ON a.v * c.v < -1",
        ),
        (
            "a hash join with many partners",
            "SELECT count(*) FROM t a JOIN t b ON a.one = b.one JOIN t c ON b.one = c.one",
        ),
        (
            "a hash join whose condition lets nothing pass",
            "SELECT count(*) FROM (SELECT a.one, a.v FROM t a, t b) a JOIN t c ON a.one = c.one AND a.v + c.v < -1",
        ),
        (
            "a semi join with many partners",
            "SELECT count(*) FROM t a WHERE EXISTS (SELECT 1 FROM (SELECT b.one FROM t b, t c) d WHERE a.one = d.one)",
        ),
        (
            "a recursion",
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 1000000000) SELECT count(*) FROM r",
        ),
        (
            "a sort above a join",
            "SELECT a.v FROM t a, t b, t c ORDER BY a.v * b.v * c.v LIMIT 3",
        ),
    ];

    async fn context() -> SessionContext {
        let context =
            SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
        let table = "CREATE TABLE t AS SELECT value AS v, 1 AS one FROM range(0, 20000)";
        context.sql(table).await.unwrap().collect().await.unwrap();
        context
    }

    /// A cross join under an aggregate ran on for hours after KILL, and so did a hash join with millions of partners for each row: neither
    /// passed a point at which the task could yield, and hash joins not even after their rows were dropped.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn endless_statements_end_when_they_are_interrupted() {
        let context = context().await;
        for (kind, text) in ENDLESS {
            let plan = context.sql(text).await.unwrap();
            let plan = plan.create_physical_plan().await.unwrap();
            let interrupt = Interrupt::new();
            let task = context.task_ctx();
            let running = tokio::spawn(interrupt.scope(async move {
                let mut rows = execute(&plan, task).unwrap();
                rows.next().await.unwrap()
            }));
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(!running.is_finished(), "{kind} was done at once");
            interrupt.end();
            let ended = tokio::time::timeout(Duration::from_secs(2), running).await;
            let error = ended.unwrap_or_else(|_| panic!("{kind} went on"));
            assert!(error.unwrap().is_err(), "{kind} has an answer");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_have_their_turn_meanwhile() {
        let context = context().await;
        for (kind, text) in ENDLESS {
            let plan = context.sql(text).await.unwrap();
            let plan = plan.create_physical_plan().await.unwrap();
            let (task, interrupt) = (context.task_ctx(), Interrupt::new());
            let running = tokio::spawn(interrupt.scope(async move {
                let mut rows = execute(&plan, task).unwrap();
                rows.next().await.unwrap().is_ok()
            }));
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let other = tokio::spawn(async { 7 });
                let done = tokio::time::timeout(Duration::from_secs(2), other).await;
                assert_eq!(
                    done.map(Result::unwrap),
                    Ok(7),
                    "{kind} lets nobody else work"
                );
            }
            assert!(!running.is_finished(), "{kind} was done at once");
            interrupt.end();
            assert!(!running.await.unwrap(), "{kind} has an answer");
        }
    }

    /// The library's join read the side for which there was no room once more, and gave each of its rows once for each partition of the other.
    #[tokio::test]
    async fn a_nested_loop_without_room_gives_its_rows_once_or_fails() {
        let whole = context().await;
        let text = "SELECT a.v, b.v FROM (SELECT v FROM t LIMIT 20000) a LEFT JOIN (SELECT v FROM t WHERE v < 9) b ON a.v + b.v < -1";
        for kib in [40, 80, 120, 160, 240, 320, 640, 10_000] {
            let pool = Arc::new(GreedyMemoryPool::new(kib << 10));
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
            let task = TaskContext::default()
                .with_session_config(whole.copied_config())
                .with_runtime(runtime.unwrap());
            let plan = whole.sql(text).await.unwrap();
            let plan = plan.create_physical_plan().await.unwrap();
            let shown = displayable(plan.as_ref()).indent(true).to_string();
            assert!(shown.contains("NestedLoopJoinExec"), "{shown}");
            let rows = execute(&plan, Arc::new(task)).unwrap();
            let rows: Result<Vec<RecordBatch>> = rows.try_collect().await;
            match rows {
                Ok(rows) => {
                    assert_eq!(
                        rows.iter().map(RecordBatch::num_rows).sum::<usize>(),
                        20_000
                    );
                }
                Err(error) => {
                    let root = error.find_root();
                    assert!(
                        matches!(root, DataFusionError::ResourcesExhausted(_)),
                        "{error}"
                    );
                    assert!(kib < 10_000, "there is room");
                }
            }
        }
    }

    #[tokio::test]
    async fn plans_look_and_answer_as_before() {
        let context = context().await;
        let text = "SELECT a.one, count(*), max(a.v + b.v) FROM t a JOIN t b ON a.v = b.v AND a.v + b.v < 500 \
                    WHERE NOT EXISTS (SELECT 1 FROM t c WHERE c.v = a.v + 100) OR a.v < 7 GROUP BY a.one";
        let plan = context.sql(text).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let shown =
            |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
        let same = interruptible(Arc::clone(&plan), &Interrupt::new()).unwrap();
        let added = ", filter=true";
        assert_eq!(shown(&same).replace(added, ""), shown(&plan));
        let rows = |plan| datafusion::physical_plan::collect(plan, context.task_ctx());
        let (before, after) = (rows(Arc::clone(&plan)).await, rows(same).await);
        assert_eq!(before.unwrap(), after.unwrap());
    }
}
