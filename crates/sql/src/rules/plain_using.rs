//! Joins USING columns whose values are converted.
//!
//! Once types are coerced, such a join compares expressions. The engine takes the keys of a join USING for columns, and fails where it
//! looks for those that two tables have in common: it is made a join ON.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{JoinConstraint, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Makes joins USING columns of different types joins ON. Runs after type coercion.
#[derive(Debug, Default)]
pub struct PlainUsing;

impl AnalyzerRule for PlainUsing {
    fn name(&self) -> &str {
        "plain_using"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let is_column = |key: &Expr| matches!(key, Expr::Column(_));
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(mut join)
                if join.join_constraint == JoinConstraint::Using
                    && !(join.on.iter())
                        .all(|(left, right)| is_column(left) && is_column(right)) =>
            {
                join.join_constraint = JoinConstraint::On;
                Ok(Transformed::yes(LogicalPlan::Join(join)))
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}
