//! Window functions that DataFusion takes for one.
//!
//! It looks for common subexpressions in all the window nodes that stand on each other, and puts what it finds into a projection, where no
//! window function can be computed. Functions that are equal are computed once here. Functions that only look alike to it get a projection
//! between them:
//!
//! - Folding constants makes equal functions of different ones, as of `MAX(1) OVER w` and `MAX(0 + 1) OVER w`.
//! - It does not compare how many expressions PARTITION BY and ORDER BY have: `MAX(x) OVER (PARTITION BY n, n)` and
//!   `MAX(x) OVER (PARTITION BY n ORDER BY n)` look alike.
//!
//! ```text
//! Window: max(1) OVER w, max(1) OVER w AS "max(0 + 1) OVER w"
//! becomes
//! Projection: *, max(1) OVER w, max(1) OVER w AS "max(0 + 1) OVER w"
//!   Window: max(1) OVER w
//! ```

use std::sync::Arc;

use datafusion::common::cse::NormalizeEq as _;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::logical_plan::{Projection, Window};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Computes each window function of a node once. Runs before common subexpressions are looked for.
#[derive(Debug, Default)]
pub struct DistinctWindows;

impl OptimizerRule for DistinctWindows {
    fn name(&self) -> &str {
        "distinct_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Window(window) if has_alike(&window.window_expr) => {
                Ok(Transformed::yes(distinct(window)?))
            }
            LogicalPlan::Window(window) if is_like_one_below(&window) => {
                let input = Arc::new(projected(Arc::clone(&window.input))?);
                let window = Window::try_new(window.window_expr, input)?;
                Ok(Transformed::yes(LogicalPlan::Window(window)))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn has_alike(functions: &[Expr]) -> bool {
    let again = |(at, one): (usize, &Expr)| functions[..at].iter().any(|it| are_alike(it, one));
    functions.iter().enumerate().any(again)
}

/// Whether a function is like one of the nodes on which its node stands.
fn is_like_one_below(window: &Window) -> bool {
    let mut below = &window.input;
    while let LogicalPlan::Window(lower) = below.as_ref() {
        let mut functions = window.window_expr.iter();
        if functions.any(|one| lower.window_expr.iter().any(|it| are_alike(it, one))) {
            return true;
        }
        below = &lower.input;
    }
    false
}

/// Whether DataFusion takes two functions for one. What is volatile is never that.
fn are_alike(one: &Expr, other: &Expr) -> bool {
    computed(one).normalize_eq(computed(other)) && !one.is_volatile()
}

/// An expression without the name that it is given.
fn computed(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => computed(&alias.expr),
        expr => expr,
    }
}

/// Computes each function once, and those that are like another above it.
fn distinct(window: Window) -> Result<LogicalPlan> {
    let inputs = window.input.schema().fields().len();
    let mut columns = columns_of(&window.input);
    let mut kept: Vec<(&Expr, Column)> = Vec::new();
    let mut above = Vec::new();
    for (at, expr) in window.window_expr.iter().enumerate() {
        let own = Column::from(window.schema.qualified_field(inputs + at));
        match kept.iter().find(|(it, _)| are_alike(it, expr)) {
            Some((first, column)) if computed(first) == computed(expr) => {
                let first = Expr::Column(column.clone());
                columns.push(first.alias_qualified(own.relation, own.name));
                continue;
            }
            Some(_) => above.push(expr.clone()),
            None => kept.push((expr, own.clone())),
        }
        columns.push(Expr::Column(own));
    }
    let kept = kept.into_iter().map(|(expr, _)| expr.clone()).collect();
    let mut plan = LogicalPlan::Window(Window::try_new(kept, Arc::clone(&window.input))?);
    if !above.is_empty() {
        let below = projected(Arc::new(plan))?;
        plan = LogicalPlan::Window(Window::try_new(above, Arc::new(below))?);
    }
    let plan = Projection::try_new(columns, Arc::new(plan))?;
    Ok(LogicalPlan::Projection(plan))
}

/// A plan with a projection above it that changes nothing.
fn projected(plan: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let projection = Projection::try_new(columns_of(&plan), plan)?;
    Ok(LogicalPlan::Projection(projection))
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns().into_iter();
    columns.map(Expr::Column).collect()
}
