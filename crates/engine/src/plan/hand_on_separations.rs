//! Separations that a neighbour join hands on, so that nobody above it computes them again.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use sql::functions::SEPARATION;

use crate::condition::renumber;
use crate::exec::{JoinedColumn, NeighbourJoinExec};

/// The name of the column in which separations are handed on.
const HANDED_ON: &str = "separation";

/// Puts the column of separations in the places of the separation function, in the rest of a neighbour join's condition and
/// in the projection or aggregate above it.
pub(super) fn hand_on_separations(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if let Some(join) = node.downcast_ref::<NeighbourJoinExec>() {
            return changed(node.clone(), in_condition(join)?);
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            return changed(node.clone(), in_projection(projection)?);
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return changed(node.clone(), in_aggregate(aggregate)?);
        }
        Ok(Transformed::no(node))
    })
    .data()
}

fn changed(
    before: Arc<dyn ExecutionPlan>,
    after: Option<Arc<dyn ExecutionPlan>>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    Ok(match after {
        Some(after) => Transformed::yes(after),
        None => Transformed::no(before),
    })
}

/// The rest of a join's condition, such as a lower bound on the separation.
fn in_condition(join: &NeighbourJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = join.filter() else {
        return Ok(None);
    };
    let columns: Vec<JoinedColumn> = filter.column_indices().iter().map(Into::into).collect();
    let Some(condition) = replaced(filter.expression(), join, &columns)? else {
        return Ok(None);
    };
    let mut indices = filter.column_indices().to_vec();
    indices.extend(JoinedColumn::Separation.index());
    let (condition, used) = only_used(&condition)?;
    let schema = with_separation(filter.schema()).project(&used)?;
    let indices: Vec<ColumnIndex> = used.iter().map(|at| indices[*at].clone()).collect();
    let filter = JoinFilter::new(condition, indices, Arc::new(schema));
    Ok(Some(Arc::new(join.with_filter(filter))))
}

fn in_projection(projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = projection.input().downcast_ref::<NeighbourJoinExec>() else {
        return Ok(None);
    };
    let exprs = projection.expr();
    let all: Vec<_> = exprs.iter().map(|projected| &projected.expr).collect();
    let Some((input, all)) = handed_on(join, &all)? else {
        return Ok(None);
    };
    let exprs = all
        .into_iter()
        .zip(exprs)
        .map(|(expr, projected)| ProjectionExpr {
            expr,
            alias: projected.alias.clone(),
        });
    let projection = ProjectionExec::try_new(exprs.collect::<Vec<_>>(), Arc::clone(&input))?;
    // What only chooses and names columns now is for the join itself to do.
    Ok(match input.try_swapping_with_projection(&projection)? {
        Some(join) => Some(join),
        None => Some(Arc::new(projection)),
    })
}

fn in_aggregate(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let of_rows = matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
    );
    let Some(join) = aggregate.input().downcast_ref::<NeighbourJoinExec>() else {
        return Ok(None);
    };
    let groups = aggregate.group_expr();
    let filtered = aggregate.filter_expr().iter().any(Option::is_some);
    let ordered = aggregate
        .aggr_expr()
        .iter()
        .any(|a| !a.order_bys().is_empty());
    let simple_groups = groups.is_single() || groups.expr().is_empty();
    if !of_rows || filtered || ordered || !simple_groups {
        return Ok(None);
    }
    let arguments: Vec<_> = (aggregate.aggr_expr().iter())
        .map(|aggregate| aggregate.expressions())
        .collect();
    let all: Vec<_> = (groups.expr().iter().map(|(expr, _)| expr))
        .chain(arguments.iter().flatten())
        .collect();
    let Some((input, all)) = handed_on(join, &all)? else {
        return Ok(None);
    };
    let mut all = all.into_iter();
    let groups = groups
        .expr()
        .iter()
        .zip(all.by_ref())
        .map(|((_, name), expr)| (expr, name.clone()));
    let groups = PhysicalGroupBy::new_single(groups.collect());
    let mut aggregates = Vec::with_capacity(arguments.len());
    for (function, arguments) in aggregate.aggr_expr().iter().zip(&arguments) {
        let arguments = all.by_ref().take(arguments.len()).collect();
        let Some(function) = function.with_new_expressions(arguments, Vec::new()) else {
            return Ok(None);
        };
        aggregates.push(Arc::new(function));
    }
    let schema = input.schema();
    let aggregate = AggregateExec::try_new(
        *aggregate.mode(),
        groups,
        aggregates,
        aggregate.filter_expr().to_vec(),
        input,
        schema,
    )?
    .with_limit_options(aggregate.limit_options());
    Ok(Some(Arc::new(aggregate)))
}

/// A join, and expressions over what it gives.
type HandedOn = (Arc<dyn ExecutionPlan>, Vec<Arc<dyn PhysicalExpr>>);

/// Expressions over what a join gives, where some of them compute its separation: the join that hands it on, and them over
/// that. The join gives what they need.
fn handed_on(
    join: &NeighbourJoinExec,
    exprs: &[&Arc<dyn PhysicalExpr>],
) -> Result<Option<HandedOn>> {
    let mut any = false;
    let mut over_all = Vec::with_capacity(exprs.len());
    for expr in exprs {
        let with_column = replaced(expr, join, join.columns())?;
        any |= with_column.is_some();
        over_all.push(with_column.unwrap_or_else(|| Arc::clone(expr)));
    }
    if !any {
        return Ok(None);
    }
    let mut used: Vec<usize> = over_all.iter().flat_map(columns_of).collect();
    used.sort_unstable();
    used.dedup();
    let mut columns = join.columns().to_vec();
    columns.push(JoinedColumn::Separation);
    let schema = with_separation(&join.schema()).project(&used)?;
    let columns = used.iter().map(|at| columns[*at]).collect();
    let join = join.with_columns(columns, Arc::new(schema));
    let over_used = over_all.iter().map(|expr| renumber(expr, &used));
    Ok(Some((Arc::new(join), over_used.collect::<Result<_>>()?)))
}

pub(super) fn columns_of(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    collect_columns(expr).iter().map(Column::index).collect()
}

/// An expression over the columns that it names alone, and which these are.
fn only_used(expr: &Arc<dyn PhysicalExpr>) -> Result<(Arc<dyn PhysicalExpr>, Vec<usize>)> {
    let mut used = columns_of(expr);
    used.sort_unstable();
    used.dedup();
    Ok((renumber(expr, &used)?, used))
}

fn with_separation(schema: &Schema) -> Schema {
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(HANDED_ON, DataType::Float64, true)));
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// An expression over `columns` with one more column, the last, where it computes the join's separation. `None`: it does not.
fn replaced(
    expr: &Arc<dyn PhysicalExpr>,
    join: &NeighbourJoinExec,
    columns: &[JoinedColumn],
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let replaced = Arc::clone(expr).transform_down(|node| {
        if !is_separation(&node, join, columns)? {
            return Ok(Transformed::no(node));
        }
        let column = Column::new(HANDED_ON, columns.len());
        Ok(Transformed::new(
            Arc::new(column) as Arc<dyn PhysicalExpr>,
            true,
            TreeNodeRecursion::Jump,
        ))
    })?;
    Ok(replaced.transformed.then_some(replaced.data))
}

/// Whether an expression over these columns of a join computes the separation that the join is about. The order of the two
/// positions does not matter, to the last bit.
fn is_separation(
    expr: &Arc<dyn PhysicalExpr>,
    join: &NeighbourJoinExec,
    columns: &[JoinedColumn],
) -> Result<bool> {
    let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
        return Ok(false);
    };
    let ([ra, dec, other_ra, other_dec], SEPARATION) = (function.args(), function.name()) else {
        return Ok(false);
    };
    let (near, probe) = (join.near(), join.probe_side());
    let build = super::recognise_neighbours::other(probe);
    let is = |position: [&Arc<dyn PhysicalExpr>; 2], side, of: &[Arc<dyn PhysicalExpr>; 2]| {
        let same = |expr, of| is_same(expr, columns, side, of);
        Ok::<_, datafusion::common::DataFusionError>(
            same(position[0], &of[0])? && same(position[1], &of[1])?,
        )
    };
    let (one, another) = ([ra, dec], [other_ra, other_dec]);
    Ok(
        (is(one, probe, &near.probe)? && is(another, build, &near.build)?)
            || (is(another, probe, &near.probe)? && is(one, build, &near.build)?),
    )
}

/// Whether an expression over these columns is the same as another over those of a side. The names of columns do not count.
fn is_same(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[JoinedColumn],
    side: JoinSide,
    of_side: &Arc<dyn PhysicalExpr>,
) -> Result<bool> {
    let mut elsewhere = false;
    let expr = numbered(expr, |at| {
        let of_side = columns.get(at).and_then(|column| column.of(side));
        elsewhere |= of_side.is_none();
        of_side.unwrap_or(at)
    })?;
    Ok(!elsewhere && expr == numbered(of_side, |at| at)?)
}

/// An expression with its columns numbered anew and without names.
fn numbered(
    expr: &Arc<dyn PhysicalExpr>,
    mut number: impl FnMut(usize) -> usize,
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let column = Column::new("", number(column.index()));
            Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
        })
        .data()
}
