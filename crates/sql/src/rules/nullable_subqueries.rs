//! Scalar subqueries without rows: their value is NULL, whatever their column may be.
//!
//! The engine takes the column's word for it: of `(SELECT id FROM t WHERE id = -5) IS NULL`, where `id` is NOT NULL, it made false, and such a value
//! in a result was an error. What may have no rows is therefore handed through a function of which nothing is known but its type. Subqueries
//! that depend on the row outside become joins, whose columns may be NULL.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Subquery, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::apart_from;

/// Lets values of scalar subqueries be NULL where these may have no rows.
///
/// Runs after the rules that look for subqueries.
#[derive(Debug, Default)]
pub struct NullableSubqueries;

impl AnalyzerRule for NullableSubqueries {
    fn name(&self) -> &str {
        "nullable_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            let is_filter = matches!(plan, LogicalPlan::Filter(_));
            let names = NamePreserver::new(&plan);
            let rewritten = plan.map_expressions(|expr| {
                let saved = names.save(&expr);
                let rewritten = match is_filter {
                    true => of_condition(expr)?,
                    false => nullable(expr)?,
                };
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

/// The same of the condition of a filter. A comparison that is all of one of its parts keeps no row whether it is false or unknown.
fn of_condition(condition: Expr) -> Result<Transformed<Expr>> {
    if !condition.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))? {
        return Ok(Transformed::no(condition));
    }
    let mut is_changed = false;
    let parts = split_conjunction_owned(condition).into_iter().map(|part| {
        if is_comparison_with_subquery(&part) {
            return Ok(part);
        }
        let part = nullable(part)?;
        is_changed |= part.transformed;
        Ok(part.data)
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let condition = conjunction(parts).unwrap_or_else(|| lit(true));
    Ok(Transformed::new_transformed(condition, is_changed))
}

fn is_comparison_with_subquery(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return false;
    };
    let is_plain = |side: &Expr| matches!(side, Expr::Column(_) | Expr::ScalarSubquery(_));
    op.supports_propagation() && is_plain(left) && is_plain(right)
}

fn nullable(expr: Expr) -> Result<Transformed<Expr>> {
    let mut number = 0;
    expr.transform_up(|expr| match &expr {
        Expr::ScalarSubquery(subquery) if may_have_no_rows(subquery) => {
            number += 1;
            Ok(Transformed::yes(apart_from(expr, number)))
        }
        _ => Ok(Transformed::no(expr)),
    })
}

/// Whether a subquery may have no rows. Whether its column may be NULL does not count: an expression that may be is simplified to one that may not.
fn may_have_no_rows(subquery: &Subquery) -> bool {
    subquery.outer_ref_columns.is_empty() && !has_one_row(&subquery.subquery)
}

fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        _ => false,
    }
}
