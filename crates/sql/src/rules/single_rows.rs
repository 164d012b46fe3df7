//! Subqueries that stand for a value, depend on the row outside, and are no aggregates.
//!
//! The engine takes aggregates alone, or what LIMIT leaves one row of. So the value is aggregated with the number of rows, of which there
//! may be one:
//!
//! ```text
//!   (SELECT o.mag FROM Object o WHERE o.id = s.id)
//!     ──►   single_row((SELECT counted_value(mag) FROM (SELECT o.mag FROM Object o WHERE o.id = s.id)))
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::{counted_value, single_row};

/// Has such subqueries give their value, or an error if there are several.
#[derive(Debug, Default)]
pub struct SingleRows;

impl AnalyzerRule for SingleRows {
    fn name(&self) -> &str {
        "single_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let names = NamePreserver::new(&plan);
            let rewritten = plan.map_expressions(|expr| {
                let saved = names.save(&expr);
                let rewritten = expr.transform_up(|expr| match expr {
                    Expr::ScalarSubquery(subquery) if may_have_several(&subquery)? => {
                        let counted = Expr::ScalarSubquery(counted(subquery)?);
                        Ok(Transformed::yes(single_row().call(vec![counted])))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(rewritten.update_data(|expr| saved.restore(expr)))
            })?;
            match rewritten.transformed {
                true => rewritten.map_data(LogicalPlan::recompute_schema),
                false => Ok(rewritten),
            }
        })
        .data()
    }
}

fn may_have_several(subquery: &Subquery) -> Result<bool> {
    Ok(!subquery.outer_ref_columns.is_empty() && !has_one_row(&subquery.subquery)?)
}

fn has_one_row(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(it) => has_one_row(&it.input),
        LogicalPlan::SubqueryAlias(it) => has_one_row(&it.input),
        LogicalPlan::Filter(it) => has_one_row(&it.input),
        LogicalPlan::Sort(it) => has_one_row(&it.input),
        LogicalPlan::Limit(it) => {
            let is_one = matches!(it.get_fetch_type()?, FetchType::Literal(Some(..=1)));
            Ok(is_one || has_one_row(&it.input)?)
        }
        LogicalPlan::Aggregate(it) => Ok(it.group_expr.is_empty()),
        LogicalPlan::EmptyRelation(_) => Ok(true),
        _ => Ok(false),
    }
}

fn counted(subquery: Subquery) -> Result<Subquery> {
    let schema = subquery.subquery.schema();
    let value = Expr::Column(Column::from(schema.qualified_field(0)));
    let counted = counted_value().call(vec![value]);
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery))
        .aggregate(Vec::<Expr>::new(), [counted])?
        .build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}
