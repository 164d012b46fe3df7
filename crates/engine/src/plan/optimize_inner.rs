//! Finishing the plan that runs inside a chunk phase: DataFusion's own rules, for one partition.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_plan::ExecutionPlan;

use super::engine_rules::engine_rules;

/// Runs the ordinary physical optimizer on a single-partition plan.
pub(super) fn optimize_inner(
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let config = inner_config(config);
    engine_rules()?
        .iter()
        .try_fold(plan, |plan, rule| rule.optimize(plan, &config))
}

/// One partition, and nothing that ties one run of the plan to another: it runs once for each piece.
fn inner_config(config: &ConfigOptions) -> ConfigOptions {
    let mut inner = config.clone();
    inner.execution.target_partitions = 1;
    inner.optimizer.enable_dynamic_filter_pushdown = false;
    inner.optimizer.enable_topk_dynamic_filter_pushdown = false;
    inner.optimizer.enable_join_dynamic_filter_pushdown = false;
    inner.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    inner
}
