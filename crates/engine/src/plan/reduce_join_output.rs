//! The optimizer rule that reduces what neighbour joins output.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::aggregate_partners::aggregate_partners;
use super::push_exprs_into_join::push_exprs_into_join;
use super::push_row_exprs_into_join::RowExprs;
use super::push_separations_into_join::Separations;

/// Pushes separations and expressions over one side into neighbour joins, and computes aggregates without pairs where possible. Runs
/// last, on
/// finished plans; `plan::phase` applies it to the plans inside chunk phases.
#[derive(Debug, Default)]
pub struct ReduceJoinOutput;

impl PhysicalOptimizerRule for ReduceJoinOutput {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        reduce_join_output(plan)
    }

    fn name(&self) -> &str {
        "reduce_join_output"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

pub(super) fn reduce_join_output(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = aggregate_partners(push_exprs_into_join::<Separations>(plan)?)?;
    push_exprs_into_join::<RowExprs>(plan)
}
