//! Aggregates of pairs that are computed without making pairs.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::push_exprs_into_join::columns_of;
use crate::condition::renumber;
use crate::exec::{JoinedColumn, NeighbourJoinExec, PartnerAggregate};

/// Turns an aggregate of a neighbour join's pairs into one of its probe rows, each with the aggregates of its own pairs.
///
/// ```text
///   aggregate, groups: of the probe side         aggregate of partial results, the same groups
///     └─ neighbour join: pairs            ──►      └─ groups and partial results of each probe row
///                                                       └─ neighbour join: one row for each probe row, with what is
///                                                          known of its partners
/// ```
///
/// Applies if the join can compute every function: a count, and sum, mean and minimum of the separation.
pub(super) fn aggregate_partners(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
            return Ok(Transformed::no(node));
        };
        Ok(match without_pairs(aggregate)? {
            Some(aggregate) => Transformed::yes(Arc::new(aggregate)),
            None => Transformed::no(node),
        })
    })
    .data()
}

fn without_pairs(aggregate: &AggregateExec) -> Result<Option<AggregateExec>> {
    let of_partial_results = match aggregate.mode() {
        AggregateMode::Partial => AggregateMode::PartialReduce,
        AggregateMode::Single => AggregateMode::Final,
        AggregateMode::SinglePartitioned => AggregateMode::FinalPartitioned,
        _ => return Ok(None),
    };
    let Some(join) = aggregate.input().downcast_ref::<NeighbourJoinExec>() else {
        return Ok(None);
    };
    let groups = aggregate.group_expr();
    let simple_groups = groups.is_single() || groups.expr().is_empty();
    let filtered = aggregate.filter_expr().iter().any(Option::is_some);
    if !gives_pairs(join) || !simple_groups || filtered {
        return Ok(None);
    }
    let mut made = PartialResults::default();
    for (group, name) in groups.expr() {
        if !made.add_group(group, name, join) {
            return Ok(None);
        }
    }
    for function in aggregate.aggr_expr() {
        if !made.add_function(function, join)? {
            return Ok(None);
        }
    }
    let input = made.over(join)?;
    let columns = input.schema();
    let groups = groups.expr().iter().enumerate().map(|(at, (_, name))| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(columns.field(at).name(), at));
        (column, name.clone())
    });
    let aggregate = AggregateExec::try_new(
        of_partial_results,
        PhysicalGroupBy::new_single(groups.collect()),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        input,
        aggregate.input_schema(),
    )?
    .with_limit_options(aggregate.limit_options());
    Ok(Some(aggregate))
}

/// Whether the output of a join is determined by the two rows of a pair, with or without unmatched rows.
fn gives_pairs(join: &NeighbourJoinExec) -> bool {
    let kinds = [JoinType::Inner, JoinType::Left, JoinType::Right];
    kinds.contains(&join.join_type()) && join.filter().is_none()
}

/// The columns that the join below has to output, and what is computed from them: groups, then the partial results of the functions.
#[derive(Default)]
struct PartialResults {
    columns: Vec<JoinedColumn>,
    fields: Vec<FieldRef>,
    /// Over `columns`.
    exprs: Vec<ProjectionExpr>,
}

impl PartialResults {
    /// Adds a group if it depends on the probe side alone.
    fn add_group(
        &mut self,
        group: &Arc<dyn PhysicalExpr>,
        name: &str,
        join: &NeighbourJoinExec,
    ) -> bool {
        let used = columns_of(group);
        let first = self.columns.len();
        for at in &used {
            let column = join.columns()[*at];
            if column.of(join.probe_side()).is_none() {
                return false;
            }
            self.columns.push(column);
            self.fields.push(Arc::clone(&join.schema().fields()[*at]));
        }
        let Ok(group) = renumber(group, &used).and_then(|group| shifted(&group, first)) else {
            return false;
        };
        let alias = name.to_owned();
        self.exprs.push(ProjectionExpr { expr: group, alias });
        true
    }

    /// Adds the partial results of a function if the join computes them.
    fn add_function(
        &mut self,
        function: &AggregateFunctionExpr,
        join: &NeighbourJoinExec,
    ) -> Result<bool> {
        let Some(known) = known(function, join) else {
            return Ok(false);
        };
        let states = function.state_fields()?;
        if states.len() != known.len() {
            return Ok(false);
        }
        for (state, known) in states.iter().zip(known) {
            let numbers = [DataType::Int64, DataType::UInt64, DataType::Float64];
            if !numbers.contains(state.data_type()) {
                return Ok(false);
            }
            let column = Column::new(state.name(), self.columns.len());
            self.exprs.push(ProjectionExpr {
                expr: Arc::new(column),
                alias: state.name().clone(),
            });
            self.columns.push(JoinedColumn::OfPartners(known));
            self.fields.push(Arc::clone(state));
        }
        Ok(true)
    }

    /// The input of the aggregate.
    fn over(self, join: &NeighbourJoinExec) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Schema::new(self.fields);
        let join: Arc<dyn ExecutionPlan> =
            Arc::new(join.with_columns(self.columns, Arc::new(schema)));
        let as_they_are = self.exprs.iter().enumerate().all(|(at, projected)| {
            let column = projected.expr.downcast_ref::<Column>();
            column.is_some_and(|column| column.index() == at)
        });
        if as_they_are && self.exprs.len() == join.schema().fields().len() {
            return Ok(join);
        }
        Ok(Arc::new(ProjectionExec::try_new(self.exprs, join)?))
    }
}

/// The partial results of a function, if the join computes them for each probe row.
fn known(
    function: &AggregateFunctionExpr,
    join: &NeighbourJoinExec,
) -> Option<Vec<PartnerAggregate>> {
    if function.is_distinct() || !function.order_bys().is_empty() {
        return None;
    }
    let arguments = function.expressions();
    let [argument] = arguments.as_slice() else {
        return None;
    };
    match function.fun().name() {
        "count" => counted(argument, join).map(|counted| vec![counted]),
        "sum" | "mysql_sum" if is_separation(argument, join) => {
            Some(vec![PartnerAggregate::SumOfSeparations])
        }
        "min" if is_separation(argument, join) => Some(vec![PartnerAggregate::LeastSeparation]),
        "avg" | "mysql_avg" if is_separation(argument, join) => Some(vec![
            PartnerAggregate::Count,
            PartnerAggregate::SumOfSeparations,
        ]),
        _ => None,
    }
}

/// What a count of an expression counts.
fn counted(argument: &Arc<dyn PhysicalExpr>, join: &NeighbourJoinExec) -> Option<PartnerAggregate> {
    if let Some(literal) = argument.downcast_ref::<Literal>() {
        return (!literal.value().is_null()).then_some(PartnerAggregate::Rows);
    }
    let column = argument.downcast_ref::<Column>()?;
    match join.columns()[column.index()] {
        JoinedColumn::Separation => Some(PartnerAggregate::Count),
        JoinedColumn::OfSide(side, at) => {
            let of_probe = side == join.probe_side();
            let input = if of_probe { join.probe() } else { join.build() };
            let never_null = !input.schema().field(at).is_nullable();
            never_null.then_some(if of_probe {
                PartnerAggregate::Rows
            } else {
                PartnerAggregate::Count
            })
        }
        JoinedColumn::OfRow(_) | JoinedColumn::OfPartners(_) => None,
    }
}

fn is_separation(argument: &Arc<dyn PhysicalExpr>, join: &NeighbourJoinExec) -> bool {
    let column = argument.downcast_ref::<Column>();
    column.is_some_and(|column| join.columns()[column.index()] == JoinedColumn::Separation)
}

/// The same expression over columns that are further to the right.
fn shifted(expr: &Arc<dyn PhysicalExpr>, by: usize) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let shifted = Column::new(column.name(), column.index() + by);
            Ok(Transformed::yes(Arc::new(shifted) as Arc<dyn PhysicalExpr>))
        })
        .data()
}
