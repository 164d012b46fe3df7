//! The optimizer rule that spares neighbour joins work whose results nobody sees.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::aggregate_partners::aggregate_partners;
use super::hand_on::hand_on;
use super::hand_on_row_exprs::RowExprs;
use super::hand_on_separations::Separations;

/// Lets neighbour joins hand on their separations and what one row of a pair decides, and aggregates do without pairs. Runs last, on plans that are finished; the
/// plans inside chunk phases were given to it when the phases were made.
#[derive(Debug, Default)]
pub struct SparePairs;

impl PhysicalOptimizerRule for SparePairs {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        spare_pairs(plan)
    }

    fn name(&self) -> &str {
        "spare_pairs"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

pub(super) fn spare_pairs(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = aggregate_partners(hand_on::<Separations>(plan)?)?;
    hand_on::<RowExprs>(plan)
}
