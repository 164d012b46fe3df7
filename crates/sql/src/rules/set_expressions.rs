//! Expressions by which ROLLUP and grouping sets group.
//!
//! Rules that change an expression keep the name of its column by an alias around it. Around a grouping set that would name one column
//! after all of the sets, and hide the sets. With the expressions computed below, a set has columns alone, which no rule changes:
//!
//! ```text
//! Aggregate: ROLLUP (floor(a.ra))        Aggregate: ROLLUP ("floor(a.ra)")
//!   TableScan: a                   ──►     Projection: a.*, floor(a.ra) AS "floor(a.ra)"
//!                                            TableScan: a
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

/// Has expressions of grouping sets computed below the aggregate.
#[derive(Debug, Default)]
pub struct ProjectSetExpressions;

impl AnalyzerRule for ProjectSetExpressions {
    fn name(&self) -> &str {
        "project_set_expressions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if groups_by_expressions(&aggregate) => {
                Ok(Transformed::yes(over_columns(aggregate)?))
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

/// The expressions of a grouping set, in all of its sets.
fn members(set: &GroupingSet) -> Vec<&Expr> {
    match set {
        GroupingSet::Rollup(members) | GroupingSet::Cube(members) => members.iter().collect(),
        GroupingSet::GroupingSets(sets) => sets.iter().flatten().collect(),
    }
}

fn groups_by_expressions(aggregate: &Aggregate) -> bool {
    let is_computed = |expr: &&Expr| !matches!(expr, Expr::Column(_));
    aggregate.group_expr.iter().any(|group| match group {
        Expr::GroupingSet(set) => members(set).iter().any(is_computed),
        _ => false,
    })
}

fn over_columns(aggregate: Aggregate) -> Result<LogicalPlan> {
    let mut below: Vec<Expr> = (aggregate.input.schema().iter().map(Column::from))
        .map(Expr::Column)
        .collect();
    let mut column_of = |expr: Expr| match expr {
        column @ Expr::Column(_) => column,
        computed => {
            let name = computed.schema_name().to_string();
            let column = Expr::Column(Column::new_unqualified(&name));
            let named = computed.alias(name);
            if !below.contains(&named) {
                below.push(named);
            }
            column
        }
    };
    let mut columns_of = |exprs: Vec<Expr>| exprs.into_iter().map(&mut column_of).collect();
    let groups = { aggregate.group_expr.into_iter() }
        .map(|group| match group {
            Expr::GroupingSet(GroupingSet::Rollup(members)) => {
                Expr::GroupingSet(GroupingSet::Rollup(columns_of(members)))
            }
            Expr::GroupingSet(GroupingSet::Cube(members)) => {
                Expr::GroupingSet(GroupingSet::Cube(columns_of(members)))
            }
            Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
                let sets = sets.into_iter().map(&mut columns_of).collect();
                Expr::GroupingSet(GroupingSet::GroupingSets(sets))
            }
            plain => plain,
        })
        .collect();
    let below = Arc::new(LogicalPlan::Projection(Projection::try_new(
        below,
        aggregate.input,
    )?));
    let totals = aggregate.aggr_expr;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(
        below, groups, totals,
    )?))
}
