//! The columns of the query around it that a subquery names.
//!
//! A subquery within a subquery may name columns of either query around it. A name is that of the nearest query that has it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

use crate::rules::input_schema;

/// Columns of the query around, by their names there, and what they are called instead.
pub(super) type RenamedColumns = HashMap<Column, Column>;

/// The subquery that an expression is, if it is one.
pub(super) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. })
        | Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// Whether an expression has a subquery.
pub(super) fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(subquery_of(part).is_some()))
}

/// The columns that a subquery's plan names of queries around it.
pub(super) fn outer_columns(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        let schema = input_schema(node);
        node.apply_expressions(|expr| {
            collect(expr, &schema, &mut found)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// The columns of queries around it that an expression of a subquery names; `schema` is of the rows that it is computed of.
pub(super) fn outer_columns_of(expr: &Expr, schema: &DFSchema) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    collect(expr, schema, &mut found)?;
    Ok(found)
}

fn collect(expr: &Expr, schema: &DFSchema, found: &mut Vec<Column>) -> Result<()> {
    let mut add = |column: Column| {
        if !found.contains(&column) {
            found.push(column);
        }
    };
    expr.apply(|part| {
        if let Expr::OuterReferenceColumn(_, column) = part {
            add(column.clone());
        }
        if let Some(subquery) = subquery_of(part) {
            let within = outer_columns(&subquery.subquery)?;
            let further = within.into_iter();
            further
                .filter(|column| !schema.is_column_from_schema(column))
                .for_each(&mut add);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// An expression of a subquery with columns of the query around it as columns like others.
pub(super) fn with_columns(
    expr: Expr,
    schema: &DFSchema,
    renamed: &RenamedColumns,
) -> Result<Expr> {
    expr.transform_up(|part| match part {
        Expr::OuterReferenceColumn(_, column) if renamed.contains_key(&column) => {
            Ok(Transformed::yes(Expr::Column(renamed[&column].clone())))
        }
        part => with_subquery(part, schema, renamed),
    })
    .data()
}

/// The expression with what its subquery, if it is one, names of the query around.
fn with_subquery(
    mut expr: Expr,
    schema: &DFSchema,
    renamed: &RenamedColumns,
) -> Result<Transformed<Expr>> {
    let subquery = match &mut expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. })
        | Expr::ScalarSubquery(subquery) => subquery,
        _ => return Ok(Transformed::no(expr)),
    };
    let mut renamed = renamed.clone();
    renamed.retain(|column, _| !schema.is_column_from_schema(column));
    if renamed.is_empty() {
        return Ok(Transformed::no(expr));
    }
    let plan = within(subquery.subquery.as_ref().clone(), &renamed)?;
    let outer = std::mem::take(&mut subquery.outer_ref_columns);
    let outer = outer
        .into_iter()
        .map(|expr| outer_reference(expr, &renamed));
    *subquery = Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns: outer.collect(),
        spans: subquery.spans.clone(),
    };
    Ok(Transformed::yes(expr))
}

fn outer_reference(expr: Expr, renamed: &RenamedColumns) -> Expr {
    match expr {
        Expr::OuterReferenceColumn(field, column) => {
            let column = renamed.get(&column).cloned().unwrap_or(column);
            Expr::OuterReferenceColumn(field, column)
        }
        other => other,
    }
}

/// The plan of a subquery's subquery, which goes on naming the same columns from within.
fn within(plan: LogicalPlan, renamed: &RenamedColumns) -> Result<LogicalPlan> {
    plan.transform_up(|node| {
        let schema = input_schema(&node);
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let saved = names.save(&expr);
            let changed = expr.transform_up(|part| match part {
                Expr::OuterReferenceColumn(..) => {
                    Ok(Transformed::yes(outer_reference(part, renamed)))
                }
                part => with_subquery(part, &schema, renamed),
            })?;
            Ok(changed.update_data(|expr| saved.restore(expr)))
        })?
        .map_data(|node| node.recompute_schema())
    })
    .data()
}
