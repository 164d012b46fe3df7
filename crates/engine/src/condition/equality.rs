//! Conditions that a column equals something.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};

/// What a condition says that the column with this number equals, in either order.
pub(crate) fn equal_to_column(
    condition: &Arc<dyn PhysicalExpr>,
    column: usize,
) -> Option<&Arc<dyn PhysicalExpr>> {
    let equality = condition.downcast_ref::<BinaryExpr>();
    let equality = equality.filter(|binary| *binary.op() == Operator::Eq)?;
    let is_column = |expr: &Arc<dyn PhysicalExpr>| {
        let found = expr.downcast_ref::<Column>();
        found.is_some_and(|found| found.index() == column)
    };
    match (equality.left(), equality.right()) {
        (left, other) if is_column(left) => Some(other),
        (other, right) if is_column(right) => Some(other),
        _ => None,
    }
}
