//! Subqueries that depend on the row outside where the engine has no join for them, or a wrong one.
//!
//! The engine joins a subquery by conditions on the row outside in its filters, and a scalar one only by equalities, beside which it groups:
//! [`shape`] says which of them are right. All others, and those that are items of a SELECT (`EXISTS` and `IN` too, as counts of rows), become
//! a left join of the rows outside, which are numbered unless a key tells them apart, with an aggregate for each of them:
//!
//! ```text
//!   Projection: id, (SELECT MAX(y) FROM u WHERE u.x < t.x)      Projection: id, __value
//!     t                                                           Aggregate: max(y) FILTER (matched) for each c0, c1, row
//!                                                     ──►           LEFT JOIN: x < c1
//!                                                                     Projection: id AS c0, x AS c1, row_number() AS row
//!                                                                       t
//!                                                                     Projection: *, true AS matched
//!                                                                       u
//! ```
//!
//! The rows outside are computed once: they may be others the next time. [`outer_rows`] does what a subquery has above its conditions.

mod outer_rows;
mod references;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, TableScan, lit, not,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use outer_rows::OuterRows;
use references::{has_subquery, outer_columns, outer_columns_of, subquery_of};
use shape::is_joined_by_engine;

/// Tells the column of a table that no two rows have the same value in, and none NULL.
pub type KeyOfTable = fn(&TableScan) -> Option<String>;

/// Makes joins of such subqueries. Runs before the engine makes joins of the others.
#[derive(Debug)]
pub struct JoinSubqueries {
    key_of: KeyOfTable,
}

impl JoinSubqueries {
    /// The rule, with what it asks of tables.
    pub fn new(key_of: KeyOfTable) -> Self {
        Self { key_of }
    }
}

impl OptimizerRule for JoinSubqueries {
    fn name(&self) -> &str {
        "join_subqueries"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|node| match node {
            LogicalPlan::Filter(filter) if is_wanted([&filter.predicate], false)? => {
                Ok(Transformed::yes(self.filter(filter, config)?))
            }
            LogicalPlan::Projection(projection) if is_wanted(&projection.expr, true)? => {
                Ok(Transformed::yes(self.projection(projection, config)?))
            }
            node => Ok(Transformed::no(node)),
        })
    }
}

/// Whether expressions have a subquery that the engine does not join.
fn is_wanted<'a>(exprs: impl IntoIterator<Item = &'a Expr>, is_item: bool) -> Result<bool> {
    for expr in exprs {
        if expr.exists(|part| Ok(!is_joined_by_engine(part, is_item)?))? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl JoinSubqueries {
    fn filter(&self, filter: Filter, config: &dyn OptimizerConfig) -> Result<LogicalPlan> {
        let schema = Arc::clone(filter.input.schema());
        let columns = schema.columns();
        let (mut below, mut above) = (Vec::new(), Vec::new());
        for part in split_conjunction_owned(filter.predicate) {
            // What names a row further outside is left where the query around it looks for it.
            let is_own = !has_subquery(&part)? && outer_columns_of(&part, &schema)?.is_empty();
            let list = if is_own { &mut below } else { &mut above };
            list.push(part);
        }
        let mut input = Arc::unwrap_or_clone(filter.input);
        if let Some(below) = conjunction(below) {
            input = LogicalPlan::Filter(Filter::try_new(below, Arc::new(input))?);
        }
        let mut rows = Rows::new(input, columns.clone(), self.key_of, config);
        let above = above.into_iter().map(|part| rows.joined(part, false));
        let above = above.collect::<Result<Vec<_>>>()?;
        let above = conjunction(above).unwrap_or_else(|| lit(true));
        let filter = LogicalPlan::Filter(Filter::try_new(above, Arc::new(rows.plan))?);
        let columns = columns.into_iter().map(Expr::Column).collect();
        let projection = Projection::try_new(columns, Arc::new(filter))?;
        Ok(LogicalPlan::Projection(projection))
    }

    fn projection(
        &self,
        projection: Projection,
        config: &dyn OptimizerConfig,
    ) -> Result<LogicalPlan> {
        let schema = Arc::clone(projection.input.schema());
        let mut named = HashSet::new();
        for expr in &projection.expr {
            let mut add = |column: &Column| named.extend(schema.maybe_index_of_column(column));
            expr.column_refs().into_iter().for_each(&mut add);
            expr.apply(|part| {
                if let Some(subquery) = subquery_of(part) {
                    outer_columns(&subquery.subquery)?.iter().for_each(&mut add);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let columns = schema.columns().into_iter().enumerate();
        let columns = columns.filter_map(|(at, column)| named.contains(&at).then_some(column));
        let columns = columns.collect();
        let input = Arc::unwrap_or_clone(projection.input);
        let mut rows = Rows::new(input, columns, self.key_of, config);
        let names = NamePreserver::new_for_projection();
        let exprs = projection.expr.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(rows.joined(expr, true)?))
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let projection = Projection::try_new(exprs, Arc::new(rows.plan))?;
        Ok(LogicalPlan::Projection(projection))
    }
}

/// The rows that a condition or an item is computed of, with values of subqueries beside them.
struct Rows<'a> {
    plan: LogicalPlan,
    /// The columns that are wanted of them.
    columns: Vec<Column>,
    key_of: KeyOfTable,
    config: &'a dyn OptimizerConfig,
}

impl<'a> Rows<'a> {
    fn new(
        plan: LogicalPlan,
        mut columns: Vec<Column>,
        key_of: KeyOfTable,
        config: &'a dyn OptimizerConfig,
    ) -> Self {
        for column in unique_columns(&plan, key_of).unwrap_or_default() {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        if columns.is_empty() {
            columns.extend(plan.schema().columns().into_iter().take(1));
        }
        Self {
            plan,
            columns,
            key_of,
            config,
        }
    }

    /// An expression with columns in the places of subqueries that the engine does not join.
    ///
    /// An `IN` among items is one that stood in a subquery's condition, for which unknown is false: `NOT IN` and `NOT` of `IN` are alike.
    fn joined(&mut self, expr: Expr, is_item: bool) -> Result<Expr> {
        let expr = expr.transform_up(|part| match part {
            Expr::Not(inner) if is_item => Ok(match *inner {
                Expr::InSubquery(mut member) => {
                    member.negated = !member.negated;
                    Transformed::yes(Expr::InSubquery(member))
                }
                inner => Transformed::no(Expr::Not(Box::new(inner))),
            }),
            part => Ok(Transformed::no(part)),
        })?;
        expr.data
            .transform_up(|part| match is_joined_by_engine(&part, is_item)? {
                true => Ok(Transformed::no(part)),
                false => Ok(Transformed::yes(self.value(part)?)),
            })
            .data()
    }

    fn value(&mut self, subquery: Expr) -> Result<Expr> {
        match subquery {
            Expr::ScalarSubquery(subquery) => self.scalar(subquery, None),
            Expr::Exists(exists) => {
                let any = self.scalar(counted(exists.subquery)?, None)?.gt(lit(0_i64));
                Ok(if exists.negated { not(any) } else { any })
            }
            Expr::InSubquery(member) if member.negated => {
                // Where it is left, it is a condition by itself: it holds if nothing in the set may be the value.
                let any = self.scalar(member.subquery, Some((*member.expr, may_equal)))?;
                Ok(any.eq(lit(0_i64)))
            }
            Expr::InSubquery(member) => {
                let any = self.scalar(member.subquery, Some((*member.expr, equals)))?;
                Ok(any.gt(lit(0_i64)))
            }
            other => Ok(other),
        }
    }

    /// The value of a subquery, or the number of its rows that are so beside a value of the row outside.
    fn scalar(&mut self, subquery: Subquery, member: Option<(Expr, Comparison)>) -> Result<Expr> {
        if member.is_none() && outer_columns(&subquery.subquery)?.is_empty() {
            return Ok(Expr::ScalarSubquery(Subquery {
                outer_ref_columns: vec![],
                ..subquery
            }));
        }
        let is_unique = unique_columns(&self.plan, self.key_of)
            .is_some_and(|key| key.iter().all(|column| self.columns.contains(column)));
        let table = self.config.alias_generator().next("__outer");
        let mut rows = OuterRows::new(self.plan.clone(), self.columns.clone(), is_unique, table)?;
        let value = match member {
            None => {
                rows.add(&subquery.subquery, vec![])?;
                Column::from(subquery.subquery.schema().qualified_field(0))
            }
            Some((value, is_so)) => {
                let column = Column::from(subquery.subquery.schema().qualified_field(0));
                let condition = is_so(Expr::Column(column), rows.inside(value)?);
                rows.add_count(&subquery.subquery, condition)?
            }
        };
        let (plan, column) = rows.with_value(&value)?;
        self.plan = plan;
        self.columns.push(column.clone());
        Ok(Expr::Column(column))
    }
}

/// Whether a row of a set and the value outside are alike.
type Comparison = fn(Expr, Expr) -> Expr;

fn equals(column: Expr, value: Expr) -> Expr {
    column.eq(value)
}

fn may_equal(column: Expr, value: Expr) -> Expr {
    column.eq(value).is_not_false()
}

/// The number of a subquery's rows.
fn counted(subquery: Subquery) -> Result<Subquery> {
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery))
        .aggregate(Vec::<Expr>::new(), [count(lit(1))])?
        .build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}

/// Columns that together tell all rows of a plan apart, if some do.
fn unique_columns(plan: &LogicalPlan, key_of: KeyOfTable) -> Option<Vec<Column>> {
    let renamed = |input: &LogicalPlan, outputs: &[Option<Column>]| {
        let key = unique_columns(input, key_of)?;
        let schema = plan.schema();
        let found = key.into_iter().map(|column| {
            let at = outputs.iter().position(|it| it.as_ref() == Some(&column))?;
            Some(Column::from(schema.qualified_field(at)))
        });
        found.collect()
    };
    match plan {
        LogicalPlan::TableScan(scan) => {
            let key = Column::new(Some(scan.table_name.clone()), key_of(scan)?);
            plan.schema().is_column_from_schema(&key).then(|| vec![key])
        }
        LogicalPlan::Filter(filter) => unique_columns(&filter.input, key_of),
        LogicalPlan::Sort(sort) => unique_columns(&sort.input, key_of),
        LogicalPlan::Limit(limit) => unique_columns(&limit.input, key_of),
        LogicalPlan::Window(window) => unique_columns(&window.input, key_of),
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns().into_iter().map(Some);
            renamed(&alias.input, &columns.collect::<Vec<_>>())
        }
        LogicalPlan::Projection(projection) => {
            let columns = projection.expr.iter().map(|expr| match expr {
                Expr::Alias(alias) => alias.expr.try_as_col().cloned(),
                expr => expr.try_as_col().cloned(),
            });
            renamed(&projection.input, &columns.collect::<Vec<_>>())
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                unique_columns(&join.left, key_of)
            }
            _ => None,
        },
        LogicalPlan::Aggregate(aggregate) => {
            let groups = &aggregate.group_expr;
            let is_set = |group: &Expr| matches!(group, Expr::GroupingSet(_));
            if groups.is_empty() || groups.iter().any(is_set) {
                return None;
            }
            let groups = (0..groups.len()).map(|at| aggregate.schema.qualified_field(at));
            Some(groups.map(Column::from).collect())
        }
        _ => None,
    }
}
