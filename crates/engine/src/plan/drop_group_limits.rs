//! Takes limits of groups away from aggregates that cannot have them any more.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// Runs after all other rules.
///
/// DataFusion 55 has a `DISTINCT` below a LIMIT stop at as many groups, if its rows come in no order. Rules that run later may put rows in order
/// below it, as those of a window function, and then it fails for want of a direction. The LIMIT above it is there in any case.
#[derive(Debug)]
pub struct DropGroupLimits;

impl PhysicalOptimizerRule for DropGroupLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        without_limits(plan, |aggregate| !may_have_limit(aggregate))
    }

    fn name(&self) -> &str {
        "drop_group_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan whose aggregates have no limit of their groups where that holds of them.
pub(super) fn without_limits(
    plan: Arc<dyn ExecutionPlan>,
    drops: impl Fn(&AggregateExec) -> bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let aggregate = node.downcast_ref::<AggregateExec>();
        Ok(match aggregate.filter(|it| drops(it)) {
            Some(aggregate) => {
                let unbounded = aggregate.with_new_limit_options(None);
                Transformed::yes(Arc::new(unbounded) as Arc<dyn ExecutionPlan>)
            }
            None => Transformed::no(node),
        })
    })
    .data()
}

/// Whether an aggregate runs with the limit that it has, if it has one.
fn may_have_limit(aggregate: &AggregateExec) -> bool {
    aggregate.limit_options().is_none_or(|options| {
        options.descending.is_some()
            || aggregate.get_minmax_desc().is_some()
            || aggregate.is_unordered_unfiltered_group_by_distinct()
    })
}
