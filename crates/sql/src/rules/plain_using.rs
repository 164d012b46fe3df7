//! Joins USING columns whose values are converted.
//!
//! Once values are made comparable, such a join compares expressions. The engine takes the keys of a join USING for columns, and fails
//! wherever it looks for those that two tables have in common: it is made a join ON before.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{JoinConstraint, Result};
use datafusion::logical_expr::{ExprSchemable, Join, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Makes joins USING columns of different types joins ON. Runs before anything converts values.
#[derive(Debug, Default)]
pub struct PlainUsing;

impl AnalyzerRule for PlainUsing {
    fn name(&self) -> &str {
        "plain_using"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(mut join)
                if join.join_constraint == JoinConstraint::Using && !has_equal_types(&join) =>
            {
                join.join_constraint = JoinConstraint::On;
                Ok(Transformed::yes(LogicalPlan::Join(join)))
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn has_equal_types(join: &Join) -> bool {
    join.on.iter().all(|(left, right)| {
        let left = left.get_type(join.left.schema()).ok();
        left.is_some() && left == right.get_type(join.right.schema()).ok()
    })
}
