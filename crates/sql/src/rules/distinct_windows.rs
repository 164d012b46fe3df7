//! Window functions that a node computes twice.
//!
//! Folding constants makes equal expressions of different ones: `MAX(1) OVER w` and `MAX(0 + 1) OVER w` under the name that it had.
//! DataFusion then takes the window function for a common subexpression and puts it into a projection, where none can be computed. Each
//! is computed once here, and a projection gives it its names:
//!
//! ```text
//! Window: max(1) OVER w, max(1) OVER w AS "max(0 + 1) OVER w"
//! becomes
//! Projection: *, max(1) OVER w, max(1) OVER w AS "max(0 + 1) OVER w"
//!   Window: max(1) OVER w
//! ```

use std::collections::HashMap;
use std::sync::Arc;

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
            LogicalPlan::Window(window) if repeats(&window) => Ok(Transformed::yes(once(window)?)),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn repeats(window: &Window) -> bool {
    let exprs = &window.window_expr;
    let again = |(at, expr): (usize, &Expr)| {
        let before = &exprs[..at];
        !expr.is_volatile() && before.iter().any(|it| computed(it) == computed(expr))
    };
    exprs.iter().enumerate().any(again)
}

/// An expression without the name that it is given.
fn computed(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => computed(&alias.expr),
        expr => expr,
    }
}

fn once(window: Window) -> Result<LogicalPlan> {
    let inputs = window.input.schema().fields().len();
    let mut columns: Vec<Expr> = window
        .input
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    let mut kept = Vec::new();
    let mut found: HashMap<&Expr, Column> = HashMap::new();
    for (at, expr) in window.window_expr.iter().enumerate() {
        let own = Column::from(window.schema.qualified_field(inputs + at));
        columns.push(match found.get(computed(expr)) {
            Some(first) if !expr.is_volatile() => {
                Expr::Column(first.clone()).alias_qualified(own.relation, own.name)
            }
            _ => {
                found.insert(computed(expr), own.clone());
                kept.push(expr.clone());
                Expr::Column(own)
            }
        });
    }
    let below = LogicalPlan::Window(Window::try_new(kept, Arc::clone(&window.input))?);
    Ok(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(below),
    )?))
}
