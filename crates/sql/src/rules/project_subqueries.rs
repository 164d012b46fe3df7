//! Subqueries in what a SELECT groups, aggregates and sorts by.
//!
//! The engine has no joins for them there, and gives two of them one name. A projection below has them as columns:
//!
//! ```text
//!   Aggregate: max(EXISTS (S))          Aggregate: max(__subquery_1) AS max(EXISTS (S))
//!     t                           ──►     Projection: t.*, EXISTS (S) AS __subquery_1
//!                                           t
//! ```
//!
//! A window function and a sort give all columns of their input, so that a projection above them leaves these out again.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, Sort, Window};
use datafusion::optimizer::AnalyzerRule;

/// Begins the names of the columns.
const COLUMN: &str = "__subquery_";

/// Computes subqueries in aggregates, groups, window functions and sort keys below these.
///
/// Runs before [`WriteOutMemberships`](super::WriteOutMemberships), which writes out those of a projection.
#[derive(Debug, Default)]
pub struct ProjectSubqueries;

impl AnalyzerRule for ProjectSubqueries {
    fn name(&self) -> &str {
        "project_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if asks(groups_and_aggregates(&aggregate))? => {
                below_aggregate(aggregate)
            }
            LogicalPlan::Window(window) if asks(&window.window_expr)? => below_window(window),
            LogicalPlan::Sort(sort) if asks(sort.expr.iter().map(|key| &key.expr))? => {
                below_sort(sort)
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn groups_and_aggregates(aggregate: &Aggregate) -> impl Iterator<Item = &Expr> {
    aggregate.group_expr.iter().chain(&aggregate.aggr_expr)
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::ScalarSubquery(_)
    )
}

/// Whether any of the expressions has a subquery.
fn asks<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Result<bool> {
    for expr in exprs {
        if expr.exists(|part| Ok(is_subquery(part)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn below_aggregate(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    if aggregate.group_expr.iter().any(is_set) && asks(&aggregate.group_expr)? {
        // The columns of grouping sets cannot be given the names that they had.
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let mut below = Below::new(aggregate.input.schema());
    let groups = below.replace_all(aggregate.group_expr)?;
    let aggregates = below.replace_all(aggregate.aggr_expr)?;
    let input = below.over(aggregate.input)?;
    let aggregate = Aggregate::try_new(input, groups, aggregates)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

fn below_window(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut below = Below::new(window.input.schema());
    let exprs = below.replace_all(window.window_expr)?;
    let input = below.over(window.input)?;
    let computed = LogicalPlan::Window(Window::try_new(exprs, input)?);
    only_columns_of(&window.schema, computed)
}

fn below_sort(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(sort.input.schema());
    let mut below = Below::new(&schema);
    for key in &mut sort.expr {
        key.expr = below.replace(std::mem::take(&mut key.expr))?;
    }
    sort.input = below.over(sort.input)?;
    only_columns_of(&schema, LogicalPlan::Sort(sort))
}

fn only_columns_of(schema: &DFSchema, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let projection = Projection::try_new(columns_of(schema), Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn columns_of(schema: &DFSchema) -> Vec<Expr> {
    let columns = schema.iter().map(Column::from);
    columns.map(Expr::Column).collect()
}

/// The projection below an operator.
struct Below {
    exprs: Vec<Expr>,
    /// The subqueries among them, with their columns.
    subqueries: Vec<(Expr, Expr)>,
    taken: HashSet<String>,
}

impl Below {
    fn new(input: &DFSchema) -> Self {
        Self {
            exprs: columns_of(input),
            subqueries: Vec::new(),
            taken: input.field_names().into_iter().collect(),
        }
    }

    /// Expressions with columns in the places of their subqueries, which have the names that they had.
    fn replace_all(&mut self, exprs: Vec<Expr>) -> Result<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let replaced = exprs.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(self.replace(expr)?))
        });
        replaced.collect()
    }

    fn replace(&mut self, expr: Expr) -> Result<Expr> {
        expr.transform_down(|part| {
            if !is_subquery(&part) {
                return Ok(Transformed::no(part));
            }
            let column = self.column(part);
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn column(&mut self, subquery: Expr) -> Expr {
        let known = self.subqueries.iter().find(|(known, _)| *known == subquery);
        if let Some((_, column)) = known {
            return column.clone();
        }
        let mut names = (1..).map(|number| format!("{COLUMN}{number}"));
        let name = names.find(|name| !self.taken.contains(name));
        let name = name.unwrap_or_default();
        let column = Expr::Column(Column::new_unqualified(name.clone()));
        self.taken.insert(name.clone());
        self.exprs.push(subquery.clone().alias(name));
        self.subqueries.push((subquery, column.clone()));
        column
    }

    fn over(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let projection = Projection::try_new(self.exprs, input)?;
        Ok(Arc::new(LogicalPlan::Projection(projection)))
    }
}
