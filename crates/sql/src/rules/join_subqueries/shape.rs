//! Which subqueries the engine makes joins of by itself, and rightly.
//!
//! It takes the conditions on the row outside out of the subquery's filters. That is right below projections and inner joins. Above an
//! aggregate, a LIMIT, a DISTINCT or a window it is another question: `EXISTS (SELECT COUNT(*) ... WHERE y = x)` is true of every row, but a
//! join finds no group where there is no row.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Distinct, Expr, Limit, LogicalPlan};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::references::{outer_columns, outer_columns_of, subquery_of};
use crate::rules::input_schema;

/// Whether the engine makes the right join of a subquery that is part of a condition or, with `is_item`, of an item.
pub(super) fn is_joined_by_engine(expr: &Expr, is_item: bool) -> Result<bool> {
    let Some(subquery) = subquery_of(expr) else {
        return Ok(true);
    };
    let plan = subquery.subquery.as_ref();
    if let Expr::ScalarSubquery(_) = expr {
        return Ok(outer_columns(plan)?.is_empty()
            || (is_plain_total(plan)?
                && may_pull_up(
                    plan,
                    PullUpCorrelatedExpr::new().with_need_handle_count_bug(true),
                )));
    }
    if is_item {
        return Ok(false);
    }
    if outer_columns(plan)?.is_empty() {
        return Ok(true);
    }
    let pull_up = match (expr, plan.head_output_expr()?) {
        (Expr::InSubquery(member), Some(column)) => {
            let equal = member.expr.as_ref().clone().eq(column);
            PullUpCorrelatedExpr::new().with_in_predicate_opt(Some(equal))
        }
        _ => PullUpCorrelatedExpr::new().with_exists_sub_query(true),
    };
    let plain = match expr {
        Expr::Exists(_) => below_limit(plan)?,
        _ => plan,
    };
    Ok(is_plain(plain)? && may_pull_up(plan, pull_up))
}

fn may_pull_up(plan: &LogicalPlan, mut pull_up: PullUpCorrelatedExpr) -> bool {
    plan.clone().rewrite(&mut pull_up).is_ok() && pull_up.can_pull_up
}

/// The plan below a LIMIT that leaves at least one row where there is one.
fn below_limit(plan: &LogicalPlan) -> Result<&LogicalPlan> {
    match plan {
        LogicalPlan::Limit(limit) if leaves_a_row(limit)? => Ok(&limit.input),
        plan => Ok(plan),
    }
}

fn leaves_a_row(limit: &Limit) -> Result<bool> {
    let skips_none = matches!(limit.get_skip_type()?, SkipType::Literal(0));
    let fetch = limit.get_fetch_type()?;
    Ok(skips_none && matches!(fetch, FetchType::Literal(None | Some(1..))))
}

/// Whether a subquery is an aggregate of all of its rows, of which conditions alone know the row outside.
fn is_plain_total(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(projection) => {
            Ok(has_plain_exprs(plan)? && is_plain_total(&projection.input)?)
        }
        LogicalPlan::SubqueryAlias(alias) => is_plain_total(&alias.input),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            Ok(has_plain_exprs(plan)? && is_plain(&aggregate.input)?)
        }
        _ => Ok(false),
    }
}

/// Whether there is nothing above the conditions on the row outside that the order of the two matters to.
fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    if outer_columns(plan)?.is_empty() {
        return Ok(true);
    }
    match plan {
        LogicalPlan::Filter(filter) => Ok(has_plain_subqueries(
            &filter.predicate,
            filter.input.schema(),
        )? && is_plain(&filter.input)?),
        LogicalPlan::Projection(projection) => {
            Ok(has_plain_exprs(plan)? && is_plain(&projection.input)?)
        }
        LogicalPlan::SubqueryAlias(alias) => is_plain(&alias.input),
        LogicalPlan::Distinct(Distinct::All(input)) => is_plain(input),
        LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.is_empty() => {
            Ok(has_plain_exprs(plan)? && is_plain(&aggregate.input)?)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            Ok(has_plain_exprs(plan)? && is_plain(&join.left)? && is_plain(&join.right)?)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Left => {
            let within = outer_columns(&join.right)?.is_empty();
            Ok(within && has_plain_exprs(plan)? && is_plain(&join.left)?)
        }
        _ => Ok(false),
    }
}

/// Whether the expressions of a node, apart from those below it, name no columns of queries around, and the engine joins their subqueries.
fn has_plain_exprs(node: &LogicalPlan) -> Result<bool> {
    let schema = input_schema(node);
    let mut are_plain = true;
    node.apply_expressions(|expr| {
        are_plain = outer_columns_of(expr, &schema)?.is_empty()
            && !expr.exists(|part| Ok(!is_joined_by_engine(part, true)?))?;
        Ok(match are_plain {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(are_plain)
}

/// Whether subqueries within a subquery's condition are joined by the engine, within the subquery alone.
fn has_plain_subqueries(condition: &Expr, schema: &DFSchema) -> Result<bool> {
    let is_strange = condition.exists(|part| {
        let Some(subquery) = subquery_of(part) else {
            return Ok(false);
        };
        let named = outer_columns(&subquery.subquery)?;
        let is_local = named
            .iter()
            .all(|column| schema.is_column_from_schema(column));
        Ok(!is_local || !is_joined_by_engine(part, false)?)
    })?;
    Ok(!is_strange && !asks_sets_of_rows_outside(condition, schema)?)
}

/// Whether something of a condition that the engine would take out of the subquery, for the columns of the row outside that it names, has
/// a set in it: the engine's joins ask none.
fn asks_sets_of_rows_outside(condition: &Expr, schema: &DFSchema) -> Result<bool> {
    for part in split_conjunction(condition) {
        let has_set = part.exists(|part| {
            let is_value = matches!(part, Expr::ScalarSubquery(_));
            Ok(!is_value && subquery_of(part).is_some())
        })?;
        if has_set && !outer_columns_of(part, schema)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
