//! Window functions of which the engine takes the results for sorted.
//!
//! A count, a minimum or a maximum grows or falls with every row that is added to it, and the engine concludes that what a window function
//! computes of them is sorted. With a partition, which begins anew, with a frame whose beginning moves, and with NULLs it is not. So the
//! aggregate is one of which the engine does not know that it grows.
//!
//! ```text
//! SELECT COUNT(x) OVER (PARTITION BY x ORDER BY id ROWS 2 PRECEDING) AS n FROM t ORDER BY n    was not sorted at all
//! SELECT MIN(x) OVER (ORDER BY x ROWS UNBOUNDED PRECEDING) AS m FROM t ORDER BY m DESC         nor was this, if x is NULL somewhere
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use crate::functions::of_unknown_growth;

/// The aggregates that grow or fall with their rows; those of ours are not known to.
const GROWING: [&str; 3] = ["count", "max", "min"];

/// Keeps results of window functions from being taken for sorted.
#[derive(Debug, Default)]
pub struct WindowOrders;

impl AnalyzerRule for WindowOrders {
    fn name(&self) -> &str {
        "window_orders"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, |expr, _| {
            expr.transform_up(|expr| Ok(rewritten(expr)))
        })
    }
}

fn rewritten(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::WindowFunction(mut window) => match &window.fun {
            WindowFunctionDefinition::AggregateUDF(function)
                if GROWING.contains(&function.name()) =>
            {
                let unknown = of_unknown_growth(Arc::clone(function));
                window.fun = WindowFunctionDefinition::AggregateUDF(unknown);
                Transformed::yes(Expr::WindowFunction(window))
            }
            _ => Transformed::no(Expr::WindowFunction(window)),
        },
        other => Transformed::no(other),
    }
}
