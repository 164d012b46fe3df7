//! Pushing filters into scans, where columns can be told apart by their names.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;

use super::engine_rules::{Rules, place_of_rule};

/// DataFusion's filter pushdown, kept to subtrees in which no operator gives two columns of one name.
///
/// DataFusion 55 takes a filter through an operator by the names of its columns: above a join of two tables that both have
/// a `k`, a filter on the right one's `k` became one on the left one's.
#[derive(Debug)]
pub struct PushFilters {
    rule: FilterPushdown,
}

impl PushFilters {
    /// Puts this in the place of every filter pushdown among `rules`.
    pub(super) fn guard(rules: &mut Rules) -> Result<()> {
        for rule in [
            FilterPushdown::new(),
            FilterPushdown::new_post_optimization(),
        ] {
            let at = place_of_rule(rules, rule.name())?;
            rules[at] = Arc::new(Self { rule });
        }
        Ok(())
    }
}

impl PhysicalOptimizerRule for PushFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !names_repeat(&plan)? {
            return self.rule.optimize(plan, config);
        }
        let children = plan
            .children()
            .into_iter()
            .map(|child| self.optimize(Arc::clone(child), config))
            .collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, children)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// Whether some operator of the subtree gives two columns of one name.
fn names_repeat(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut repeat = false;
    plan.apply(|node| {
        let schema = node.schema();
        let mut names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        names.sort_unstable();
        repeat = names.windows(2).any(|pair| pair[0] == pair[1]);
        Ok(if repeat {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    Ok(repeat)
}
