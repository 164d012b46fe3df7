//! Groups by the number of the chunk, which are aggregated chunk by chunk.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::exec::ChunkNumberExec;

/// Aggregates the rows of each chunk of a piece without groups where the only group column is the number of the chunk.
///
/// ```text
///   partial aggregate, groups: chunkid       ChunkNumberExec
///     │                                        └─ only if there were rows
///     └─ rows of a piece            ──►              └─ partial aggregate, no groups, and count of rows
///                                                          └─ rows of a chunk
/// ```
///
/// What stands below the number runs for each chunk of the piece by itself ([`ChunkNumberExec`]).
/// A hash table with one entry for each chunk would be looked into for every row. Applies to the plan that runs for each piece; one
/// that is anything else is given back as it is.
pub(super) fn group_by_chunk(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
        return Ok(plan);
    };
    if !groups_by_chunk_alone(aggregate) {
        return Ok(plan);
    }
    let input = Arc::clone(aggregate.input());
    let input_schema = aggregate.input_schema();
    let mut aggregates = aggregate.aggr_expr().to_vec();
    let mut filters = aggregate.filter_expr().to_vec();
    let one: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::Int64(Some(1))));
    let rows = AggregateExprBuilder::new(count_udaf(), vec![one])
        .schema(Arc::clone(&input_schema))
        .alias("rows of the chunk")
        .build()?;
    aggregates.push(Arc::new(rows));
    filters.push(None);
    let ungrouped: Arc<dyn ExecutionPlan> = Arc::new(AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(vec![]),
        aggregates,
        filters,
        input,
        input_schema,
    )?);
    // The state of a count is the count. Without any row there is no group.
    let schema = ungrouped.schema();
    let rows = schema.fields().len() - 1;
    let some = BinaryExpr::new(
        Arc::new(Column::new(schema.field(rows).name(), rows)),
        Operator::Gt,
        Arc::new(Literal::new(ScalarValue::Int64(Some(0)))),
    );
    let with_rows = Arc::new(FilterExec::try_new(Arc::new(some), ungrouped)?);
    let states = ProjectionExec::try_new(columns(&schema, rows), with_rows)?;
    let numbered = ChunkNumberExec::try_new(Arc::new(states), 0)?;
    Ok(if numbered.schema().fields() == plan.schema().fields() {
        Arc::new(numbered)
    } else {
        plan
    })
}

/// The first columns, as they are.
fn columns(schema: &Schema, first: usize) -> Vec<ProjectionExpr> {
    schema.fields()[..first]
        .iter()
        .enumerate()
        .map(|(at, field)| ProjectionExpr {
            expr: Arc::new(Column::new(field.name(), at)),
            alias: field.name().clone(),
        })
        .collect()
}

fn groups_by_chunk_alone(aggregate: &AggregateExec) -> bool {
    let groups = aggregate.group_expr();
    let [(group, _)] = groups.expr() else {
        return false;
    };
    *aggregate.mode() == AggregateMode::Partial
        && groups.is_single()
        && aggregate.limit_options().is_none()
        && is_chunk_number(group, aggregate.input())
}

/// Whether an expression over what a plan gives is the number of the chunk.
fn is_chunk_number(expr: &Arc<dyn PhysicalExpr>, plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(column) = expr.downcast_ref::<Column>() else {
        return false;
    };
    if let Some(number) = plan.downcast_ref::<ChunkNumberExec>() {
        return number.at() == column.index();
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return projection
            .expr()
            .get(column.index())
            .is_some_and(|below| is_chunk_number(&below.expr, projection.input()));
    }
    let Some(filter) = plan.downcast_ref::<FilterExec>() else {
        return false;
    };
    let below = match filter.projection().as_deref() {
        Some(projection) => projection.get(column.index()).copied(),
        None => Some(column.index()),
    };
    below.is_some_and(|at| {
        let below: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), at));
        is_chunk_number(&below, filter.input())
    })
}
