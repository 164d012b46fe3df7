//! Keeps the LIMIT of a recursion where it is, since it ends the recursion.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;

use crate::exec::BarrierExec;

/// Puts a barrier above each limit of a recursion.
///
/// ```text
///   SortExec                           SortExec
///     GlobalLimitExec: fetch=5   ──►     BarrierExec
///       RecursiveQueryExec                 GlobalLimitExec: fetch=5
///                                            RecursiveQueryExec
/// ```
///
/// DataFusion makes one sort of a sort above a limit, that of the first few rows: which rows a limit without an order gives is up to it. The
/// sort then waits for all rows, and a recursion that only its limit ends has no last one.
#[derive(Debug, Default)]
pub(crate) struct KeepRecursionLimits;

impl PhysicalOptimizerRule for KeepRecursionLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !has_recursion(&plan)? {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            if !node.is::<GlobalLimitExec>() || !has_recursion(&node)? {
                return Ok(Transformed::no(node));
            }
            let columns = (0..node.schema().fields().len()).collect();
            let barrier = BarrierExec::try_new(node, None, columns)?;
            Ok(Transformed::yes(Arc::new(barrier) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "keep_recursion_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn has_recursion(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<RecursiveQueryExec>()))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use datafusion::sql::parser::DFParser;
    use sql::{Dialect, RecursionLimit};

    use super::*;
    use crate::exec::bound_recursions;
    use crate::plan::engine_rules;

    fn context() -> SessionContext {
        let mut rules = engine_rules().unwrap();
        rules.insert(0, Arc::new(KeepRecursionLimits));
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2))
            .with_physical_optimizer_rules(rules);
        SessionContext::new_with_state(state.build())
    }

    async fn plan_of(context: &SessionContext, text: &str) -> Arc<dyn ExecutionPlan> {
        let plan = context.sql(text).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        // A recursion that goes on is an error.
        let any = DFParser::parse_sql("SELECT 1").unwrap().pop_front();
        let limit = RecursionLimit::of(Dialect::MySql, &any.unwrap());
        bound_recursions(plan, limit).unwrap()
    }

    /// `ORDER BY` outside made one sort with the limit, which waited for the end of a recursion that had none: error 3636.
    #[tokio::test]
    async fn a_limit_ends_a_recursion_whatever_is_above() {
        let context = context();
        let all = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n)";
        for (above, rows) in [
            (
                "SELECT x FROM (SELECT x FROM n LIMIT 5) t ORDER BY x DESC",
                5,
            ),
            (
                "SELECT x FROM (SELECT x FROM n LIMIT 5 OFFSET 2) t ORDER BY x LIMIT 3",
                3,
            ),
            (
                "SELECT x, row_number() OVER (ORDER BY x) FROM (SELECT x FROM n LIMIT 5) t",
                5,
            ),
            (
                "SELECT DISTINCT x % 2 FROM (SELECT x FROM n LIMIT 5) t ORDER BY 1",
                2,
            ),
            (
                "SELECT a.x FROM (SELECT x FROM n LIMIT 5) a JOIN (SELECT x FROM n LIMIT 3) b ON a.x = b.x ORDER BY a.x",
                3,
            ),
        ] {
            let plan = plan_of(&context, &format!("{all} {above}")).await;
            let batches = collect(plan, context.task_ctx()).await.unwrap();
            let given: usize = batches.iter().map(|batch| batch.num_rows()).sum();
            assert_eq!(given, rows, "{above}");
        }
    }

    #[tokio::test]
    async fn other_limits_have_no_barrier() {
        let context = context();
        let text = "SELECT x FROM (SELECT value AS x FROM range(0, 9) LIMIT 5) t ORDER BY x";
        let plan = plan_of(&context, text).await;
        let shown = displayable(plan.as_ref()).indent(true).to_string();
        assert!(!shown.contains("BarrierExec"), "{shown}");
    }
}
