//! Pushes expressions into a neighbour join as columns of its output, so that neither its condition nor the operators above it compute
//! them for each pair.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::condition::renumber;
use crate::exec::{JoinedColumn, NeighbourJoinExec};

/// A kind of expression that a neighbour join can compute as a column.
pub(super) trait PushedExpr {
    /// The name of its columns.
    const NAME: &'static str;

    /// The column that represents an expression over these columns of a join, and the join with that column, if the join can compute the
    /// expression.
    fn column(
        expr: &Arc<dyn PhysicalExpr>,
        join: &NeighbourJoinExec,
        columns: &[JoinedColumn],
    ) -> Result<Option<(JoinedColumn, Option<NeighbourJoinExec>)>>;

    /// Whether subexpressions of an expression may be pushed if it cannot be pushed itself.
    fn may_enter(_expr: &Arc<dyn PhysicalExpr>) -> bool {
        true
    }
}

/// Replaces expressions by columns of the join, in the residual condition of a neighbour join and in the projection or aggregate above it.
pub(super) fn push_exprs_into_join<What: PushedExpr>(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if let Some(join) = node.downcast_ref::<NeighbourJoinExec>() {
            return changed(node.clone(), in_condition::<What>(join)?);
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            return changed(node.clone(), in_projection::<What>(projection)?);
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return changed(node.clone(), in_aggregate::<What>(aggregate)?);
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

/// The residual condition of a join, such as a lower bound on the separation.
fn in_condition<What: PushedExpr>(
    join: &NeighbourJoinExec,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = join.filter() else {
        return Ok(None);
    };
    let columns = filter.column_indices().iter().map(Into::into).collect();
    let mut replacing = ExprReplacer::new(join, columns, filter.schema());
    let Some(condition) = replacing.replaced::<What>(filter.expression())? else {
        return Ok(None);
    };
    let (used, mut conditions) = only_used(&[condition])?;
    let indices = used.iter().filter_map(|at| replacing.columns[*at].index());
    let filter = JoinFilter::new(
        conditions.remove(0),
        indices.collect(),
        Arc::new(replacing.schema().project(&used)?),
    );
    Ok(Some(Arc::new(replacing.join.with_filter(filter))))
}

fn in_projection<What: PushedExpr>(
    projection: &ProjectionExec,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = projection.input().downcast_ref::<NeighbourJoinExec>() else {
        return Ok(None);
    };
    let exprs = projection.expr();
    let all: Vec<_> = exprs.iter().map(|projected| &projected.expr).collect();
    let Some((input, all)) = pushed_into::<What>(join, &all)? else {
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
    // A projection that only selects and renames columns becomes part of the join.
    Ok(match input.try_swapping_with_projection(&projection)? {
        Some(join) => Some(join),
        None => Some(Arc::new(projection)),
    })
}

fn in_aggregate<What: PushedExpr>(
    aggregate: &AggregateExec,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
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
    let Some((input, all)) = pushed_into::<What>(join, &all)? else {
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

/// A join, and expressions over its columns.
type JoinAndExprs = (Arc<dyn ExecutionPlan>, Vec<Arc<dyn PhysicalExpr>>);

/// Pushes expressions over a join's columns: returns the join that computes them, with only the columns that are needed, and the
/// expressions over these. `None` if none of them can be pushed.
fn pushed_into<What: PushedExpr>(
    join: &NeighbourJoinExec,
    exprs: &[&Arc<dyn PhysicalExpr>],
) -> Result<Option<JoinAndExprs>> {
    let mut any = false;
    let mut over_all = Vec::with_capacity(exprs.len());
    let mut replacing = ExprReplacer::new(join, join.columns().to_vec(), &join.schema());
    for expr in exprs {
        let replaced = replacing.replaced::<What>(expr)?;
        any |= replaced.is_some();
        over_all.push(replaced.unwrap_or_else(|| Arc::clone(expr)));
    }
    if !any {
        return Ok(None);
    }
    let (used, over_used) = only_used(&over_all)?;
    let schema = replacing.schema().project(&used)?;
    let columns = used.iter().map(|at| replacing.columns[*at]).collect();
    let join = replacing.join.with_columns(columns, Arc::new(schema));
    Ok(Some((Arc::new(join), over_used)))
}

pub(super) fn columns_of(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    collect_columns(expr).iter().map(Column::index).collect()
}

/// Indexes of columns, and expressions over these columns alone.
type ColumnsAndExprs = (Vec<usize>, Vec<Arc<dyn PhysicalExpr>>);

/// The columns that expressions use, and the expressions over these alone.
fn only_used(exprs: &[Arc<dyn PhysicalExpr>]) -> Result<ColumnsAndExprs> {
    let mut used: Vec<usize> = exprs.iter().flat_map(columns_of).collect();
    used.sort_unstable();
    used.dedup();
    let over_used = exprs.iter().map(|expr| renumber(expr, &used));
    let over_used = over_used.collect::<Result<_>>()?;
    Ok((used, over_used))
}

/// A join and its columns, to which those are added that replace expressions.
struct ExprReplacer {
    join: NeighbourJoinExec,
    columns: Vec<JoinedColumn>,
    fields: Vec<FieldRef>,
    metadata: HashMap<String, String>,
}

impl ExprReplacer {
    fn new(join: &NeighbourJoinExec, columns: Vec<JoinedColumn>, schema: &Schema) -> Self {
        Self {
            join: join.with_row_exprs(join.row_exprs().to_vec()),
            columns,
            fields: schema.fields().to_vec(),
            metadata: schema.metadata().clone(),
        }
    }

    /// An expression in which columns of the join replace what the join can compute; `None` if there is nothing to replace.
    fn replaced<What: PushedExpr>(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let schema = Arc::new(self.schema());
        let replaced = Arc::clone(expr).transform_down(|node| {
            let Some((column, join)) = What::column(&node, &self.join, &self.columns)? else {
                let next = if What::may_enter(&node) {
                    TreeNodeRecursion::Continue
                } else {
                    TreeNodeRecursion::Jump
                };
                return Ok(Transformed::new(node, false, next));
            };
            if let Some(join) = join {
                self.join = join;
            }
            let at = match self.columns.iter().position(|known| *known == column) {
                Some(at) => at,
                None => {
                    let field = node.return_field(&schema)?;
                    let nullable = field.is_nullable();
                    let field = Field::new(What::NAME, field.data_type().clone(), nullable);
                    self.fields.push(Arc::new(field));
                    self.columns.push(column);
                    self.columns.len() - 1
                }
            };
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(self.fields[at].name(), at));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(replaced.transformed.then_some(replaced.data))
    }

    fn schema(&self) -> Schema {
        Schema::new_with_metadata(self.fields.clone(), self.metadata.clone())
    }
}

/// An expression over other columns.
pub(super) fn renamed(
    expr: &Arc<dyn PhysicalExpr>,
    mut column: impl FnMut(usize) -> Column,
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|node| {
            let Some(before) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let column = column(before.index());
            Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
        })
        .data()
}
