//! Limits the groups of an aggregate to those that a small LIMIT returns.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::drop_group_limits::without_limits;
use super::engine_rules::{Rules, place_of_rule};

/// The largest LIMIT for which the rule applies.
const MOST_GROUPS: usize = 10_000;

/// DataFusion's rule that lets an aggregate below a LIMIT keep only the groups that are returned, restricted to small limits.
///
/// DataFusion 55 makes room for ten times the limit at once: `ORDER BY max(x) LIMIT 1000000000000` requested 158 TB, and the process
/// ended.
#[derive(Debug)]
pub struct BoundTopGroups {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl BoundTopGroups {
    /// Replaces the rule.
    pub(super) fn guard(rules: &mut Rules) -> Result<()> {
        let at = place_of_rule(rules, "LimitAggregation")?;
        let rule = Arc::clone(&rules[at]);
        rules[at] = Arc::new(Self { rule });
        Ok(())
    }
}

impl PhysicalOptimizerRule for BoundTopGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_too_many = |aggregate: &AggregateExec| {
            let limit = aggregate.limit_options();
            limit.is_some_and(|options| options.limit > MOST_GROUPS)
        };
        without_limits(self.rule.optimize(plan, config)?, is_too_many)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}
