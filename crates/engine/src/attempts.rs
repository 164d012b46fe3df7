//! Running a plan once more, alone, that ran short of memory beside others.
//!
//! A query is admitted with its least share of memory, which lets it spill. What it needs beyond that it finds only where others do not
//! need theirs: the inner side of a join, or values of which each counts once, may have no room, and may have had it an hour ago. So a plan
//! that fails for want of memory beside others, before its first row, gives back all that it has, waits until it may have all the memory, and
//! runs once more. It fails only where it fails alone. While it waits it holds nothing, so nobody waits for it in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{self, StreamExt, TryStreamExt};
use sql::Interrupt;

use crate::error::external;
use crate::{QueryExecution, interruptible};

/// How often it is looked whether the first attempt has gone.
const LOOK: Duration = Duration::from_millis(2);
/// How long the first attempt may take to end: a single step of an operator at most.
const LONGEST_END: Duration = Duration::from_secs(60);

/// Runs a plan as the work of the statement of this thread. Dropping the rows ends the work.
///
/// # Errors
/// The plan cannot start.
pub(crate) fn execute(
    plan: &Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let statement = Interrupt::current_or_new();
    let execution = QueryExecution::current();
    let Some(execution) = execution.filter(|it| it.may_run_alone()) else {
        return interruptible::execute(plan, context);
    };
    let run = Run {
        plan: Arc::clone(plan),
        context,
        statement: Arc::clone(statement.statement()),
        execution,
    };
    let (first, attempt) = run.attempt(plan)?;
    let rows = run.rows(first, attempt);
    Ok(Box::pin(RecordBatchStreamAdapter::new(plan.schema(), rows)))
}

/// A plan that may be run twice.
struct Run {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    statement: Arc<Interrupt>,
    execution: Arc<QueryExecution>,
}

impl Run {
    fn attempt(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<(SendableRecordBatchStream, Arc<Interrupt>)> {
        let attempt = self.statement.attempt();
        let _entered = attempt.enter();
        let rows = interruptible::execute(plan, Arc::clone(&self.context))?;
        Ok((rows, Arc::clone(&attempt)))
    }

    /// The rows of the first attempt, or of the second if the first ran short of memory before its first row.
    fn rows(
        self,
        mut rows: SendableRecordBatchStream,
        attempt: Arc<Interrupt>,
    ) -> impl stream::Stream<Item = Result<RecordBatch>> + Send {
        stream::once(async move {
            let first = loop {
                match rows.next().await {
                    Some(Ok(batch)) if batch.num_rows() == 0 => {}
                    Some(Err(error)) if is_for_memory(&error, &attempt) => break Err(error),
                    next => break Ok(next),
                }
            };
            let first = match first {
                Ok(first) => first,
                Err(error) => {
                    drop(rows);
                    rows = self.alone(attempt, error).await?;
                    None
                }
            };
            Ok::<_, DataFusionError>(stream::iter(first).chain(rows))
        })
        .try_flatten()
    }

    /// The rows of the plan, which runs alone, unless it did already: then the error of the first attempt.
    async fn alone(
        &self,
        first: Arc<Interrupt>,
        error: DataFusionError,
    ) -> Result<SendableRecordBatchStream> {
        if self.statement.is_ended() || was_changed_by_rows(&self.plan) {
            return Err(error);
        }
        let begun = Instant::now();
        // What works on it may hold much of the memory, and could still change what both attempts share.
        while Arc::strong_count(&first) > 1 {
            if begun.elapsed() > LONGEST_END {
                return Err(error);
            }
            self.statement.check()?;
            tokio::time::sleep(LOOK).await;
        }
        let Some(admission) = self.execution.admission() else {
            return Err(error);
        };
        if !admission.reserve_all().await.map_err(external)? {
            return Err(error);
        }
        tracing::info!(%error, "a statement runs once more, alone, since it ran short of memory beside others");
        self.execution.begin_again();
        self.statement.warnings().clear();
        let plan = reset_plan_states(Arc::clone(&self.plan))?;
        let (rows, _) = self.attempt(&plan)?;
        Ok(rows)
    }
}

/// Whether an attempt failed because an operator was rejected, or because it was ended itself, which may be told in other words.
fn is_for_memory(error: &DataFusionError, attempt: &Interrupt) -> bool {
    attempt.is_ended_for_memory()
        || matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Whether conditions that came of the rows so far have become part of the plan. The first rows of a sort may be equal to the last of those that
/// were found in the first attempt, which such a condition leaves out. The operators from which such conditions come begin anew.
fn was_changed_by_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut changed = false;
    let walked = plan.apply(|node| {
        let begins_anew =
            node.is::<SortExec>() || node.is::<HashJoinExec>() || node.is::<AggregateExec>();
        if !begins_anew {
            node.apply_expressions(&mut |expression: &Arc<dyn PhysicalExpr>| {
                expression.apply(|part| {
                    changed |= part.is::<DynamicFilterPhysicalExpr>();
                    Ok(TreeNodeRecursion::Continue)
                })
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    changed || walked.is_err()
}
