//! Recursive WITH with a limit: the engine's own operator repeats until there are no more rows, which may be never.
//!
//! ```text
//!   RecursiveQueryExec            BoundedRecursionExec      begins to count
//!     first SELECT          ──►     RecursiveQueryExec
//!     recursive SELECT                first SELECT
//!                                     IterationExec         counts each time that it is executed, and says no
//!                                       recursive SELECT
//! ```
//!
//! Both stand above all chunk phases, as the operator does, and so need no codec.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use sql::RecursionLimit;

use super::plan_node::{no_expressions, no_statistics, plan_node};

/// A plan whose recursions repeat as often as the limit says.
pub(crate) fn bound_recursions(
    plan: Arc<dyn ExecutionPlan>,
    limit: RecursionLimit,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if !node.is::<RecursiveQueryExec>() {
            return Ok(Transformed::no(node));
        }
        let bounded = BoundedRecursionExec::over(&node, limit)?;
        Ok(Transformed::yes(Arc::new(bounded) as Arc<dyn ExecutionPlan>))
    })
    .data()
}

/// A recursion that repeats its recursive term a limited number of times.
#[derive(Debug)]
struct BoundedRecursionExec {
    /// The operator, whose recursive term counts.
    recursion: Arc<dyn ExecutionPlan>,
    limit: RecursionLimit,
    /// How often the recursive term was executed.
    iterations: Arc<AtomicU64>,
    properties: Arc<PlanProperties>,
}

impl BoundedRecursionExec {
    /// Counts anew, so that a copy of the plan can run beside it.
    fn over(recursion: &Arc<dyn ExecutionPlan>, limit: RecursionLimit) -> Result<Self> {
        let iterations = Arc::new(AtomicU64::new(0));
        let children = recursion.children();
        let [first, repeated] = children.as_slice() else {
            return internal_err!("a recursion of {} terms", children.len());
        };
        let counting = IterationExec::new(uncounted(repeated)?, limit, Arc::clone(&iterations));
        let children = vec![Arc::clone(first), Arc::new(counting) as _];
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let recursion = Arc::clone(recursion).replace_children(children, options)?;
        Ok(Self {
            properties: Arc::clone(recursion.properties()),
            recursion,
            limit,
            iterations,
        })
    }
}

/// A recursive term without the operator that counts for another plan. Its inner recursions count for themselves.
fn uncounted(term: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    Arc::clone(term)
        .transform_down(|node| {
            if node.is::<BoundedRecursionExec>() {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            Ok(match node.downcast_ref::<IterationExec>() {
                Some(counting) => {
                    let input = Arc::clone(&counting.input);
                    Transformed::new(input, true, TreeNodeRecursion::Stop)
                }
                None => Transformed::no(node),
            })
        })
        .data()
}

impl DisplayAs for BoundedRecursionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundedRecursionExec")
    }
}

impl ExecutionPlan for BoundedRecursionExec {
    plan_node!("BoundedRecursionExec");
    no_expressions!();
    no_statistics!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.recursion]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [recursion] = children.as_slice() else {
            return internal_err!("a limit over {} recursions", children.len());
        };
        Ok(Arc::new(Self::over(recursion, self.limit)?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.iterations.store(0, Relaxed);
        self.recursion.execute(partition, context)
    }
}

/// The recursive term of a recursion, whose executions are counted.
#[derive(Debug)]
struct IterationExec {
    input: Arc<dyn ExecutionPlan>,
    limit: RecursionLimit,
    iterations: Arc<AtomicU64>,
    /// Those of the term.
    properties: Arc<PlanProperties>,
}

impl IterationExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        limit: RecursionLimit,
        iterations: Arc<AtomicU64>,
    ) -> Self {
        let properties = Arc::clone(input.properties());
        Self {
            input,
            limit,
            iterations,
            properties,
        }
    }
}

impl DisplayAs for IterationExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IterationExec")
    }
}

impl ExecutionPlan for IterationExec {
    plan_node!("IterationExec");
    no_expressions!();
    no_statistics!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    /// The recursion makes its term anew for each repetition: all count together.
    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return internal_err!("a repeated term of {} inputs", children.len());
        };
        let iterations = Arc::clone(&self.iterations);
        Ok(Arc::new(Self::new(
            Arc::clone(input),
            self.limit,
            iterations,
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let iteration = self.iterations.fetch_add(1, Relaxed) + 1;
        self.limit
            .check(iteration)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        self.input.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;
    use datafusion::sql::parser::DFParser;
    use sql::Dialect;

    use super::*;
    use crate::interruptible;

    async fn bounded(text: &str) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
        let context = SessionContext::new();
        let plan = context.sql(text).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let any = DFParser::parse_sql("SELECT 1").unwrap().pop_front();
        let limit = RecursionLimit::of(Dialect::MySql, &any.unwrap());
        (bound_recursions(plan, limit).unwrap(), context.task_ctx())
    }

    async fn rows(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<usize> {
        let batches = collect(Arc::clone(plan), Arc::clone(context)).await?;
        Ok(batches.iter().map(|batch| batch.num_rows()).sum())
    }

    fn counting_to(last: u64) -> String {
        format!(
            "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < {last}) SELECT x FROM n"
        )
    }

    /// Without a condition a recursion ran until somebody ended it.
    #[tokio::test]
    async fn a_recursion_ends_at_its_limit() {
        let (plan, context) = bounded(&counting_to(1000)).await;
        assert_eq!(rows(&plan, &context).await.unwrap(), 1000);
        let (plan, context) = bounded(&counting_to(1001)).await;
        let error = rows(&plan, &context).await.unwrap_err().to_string();
        assert!(error.contains("aborted after 1001 iterations"), "{error}");
    }

    /// A plan of the cache is executed again and again, each time as a copy that is interruptible.
    #[tokio::test]
    async fn each_execution_counts_for_itself() {
        let (plan, context) = bounded(&counting_to(700)).await;
        for _ in 0..3 {
            let copy =
                interruptible::interruptible(Arc::clone(&plan), &sql::Interrupt::current_or_new());
            assert_eq!(rows(&copy.unwrap(), &context).await.unwrap(), 700);
        }
    }

    #[tokio::test]
    async fn a_recursion_in_another_counts_for_itself() {
        let text = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT n.x + 1 FROM n, (WITH RECURSIVE m AS \
                    (SELECT 1 AS y UNION ALL SELECT y + 1 FROM m WHERE y < 40) SELECT max(y) AS y FROM m) AS k \
                    WHERE n.x < k.y) SELECT x FROM n";
        let (plan, context) = bounded(text).await;
        assert_eq!(rows(&plan, &context).await.unwrap(), 40);
    }
}
