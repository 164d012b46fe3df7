//! Columns by which ROLLUP and grouping sets group.
//!
//! Two columns that a join has found equal are not equal any more where a grouping set leaves one of them out: it is NULL there.
//! DataFusion takes them for equal all the same, and sorts by the one what is to be sorted by the other. A projection below the
//! aggregate makes each a value of its own:
//!
//! ```text
//! Aggregate: ROLLUP (a.k, b.k)            Aggregate: ROLLUP (a.k, b.k)
//!   Join: a.k = b.k               ──►       Projection: meridian_apart(a.k, 1) AS a.k, meridian_apart(b.k, 2) AS b.k
//!                                             Join: a.k = b.k
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::apart_from;

/// Keeps columns of grouping sets from being taken for equal.
#[derive(Debug, Default)]
pub struct ApartGroups;

impl AnalyzerRule for ApartGroups {
    fn name(&self) -> &str {
        "apart_groups"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if has_sets(&aggregate) => {
                Ok(Transformed::yes(with_groups_apart(aggregate)?))
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn has_sets(aggregate: &Aggregate) -> bool {
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    aggregate.group_expr.iter().any(is_set)
}

fn with_groups_apart(aggregate: Aggregate) -> Result<LogicalPlan> {
    let groups = aggregate.group_expr.iter();
    let grouped: Vec<&Column> = groups.flat_map(Expr::column_refs).collect();
    let columns = aggregate.input.schema().iter().map(Column::from);
    let columns = columns.enumerate().map(|(at, column)| {
        if !grouped.contains(&&column) {
            return Expr::Column(column);
        }
        let (relation, name) = (column.relation.clone(), column.name.clone());
        apart_from(Expr::Column(column), at as i64 + 1).alias_qualified(relation, name)
    });
    let below = Projection::try_new(columns.collect(), Arc::clone(&aggregate.input))?;
    let below = Arc::new(LogicalPlan::Projection(below));
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(
        below,
        aggregate.group_expr.clone(),
        aggregate.aggr_expr,
    )?))
}
