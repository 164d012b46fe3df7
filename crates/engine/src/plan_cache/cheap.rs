//! Whether a plan takes a short time for each row that it looks at.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::TreeNode;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::exec::PieceScanExec;

/// Bytes of a constant up to which a copy of it for each row takes a short time.
const LONGEST_CONSTANT: usize = 1024;

/// Whether a plan reads rows of a piece, or none, computes numbers of them and does nothing else: a text that is made may be of any
/// length, and other operators may do anything.
pub(super) fn is_cheap(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<PieceScanExec>() {
        let columns = &scan.stored().files_schema;
        return (scan.predicates().iter()).all(|predicate| makes_numbers(predicate, columns));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = projection.input().schema();
        let cheap = |expr| makes_numbers(expr, &below);
        return projection.expr().iter().all(|it| cheap(&it.expr)) && is_cheap(projection.input());
    }
    if plan.is::<PlaceholderRowExec>() {
        return true;
    }
    let passes_on =
        plan.is::<CooperativeExec>() || plan.is::<LocalLimitExec>() || plan.is::<GlobalLimitExec>();
    passes_on && plan.children().into_iter().all(is_cheap)
}

/// Whether all that an expression computes, on the way too, has a fixed length.
fn makes_numbers(expr: &Arc<dyn PhysicalExpr>, columns: &Schema) -> bool {
    let makes_text = |expr: &Arc<dyn PhysicalExpr>| {
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            // One that planning has computed may be long.
            return Ok(literal.value().size() > LONGEST_CONSTANT);
        }
        if expr.is::<Column>() {
            return Ok(false);
        }
        let made = expr.data_type(columns)?;
        let fixed = made.is_primitive() || matches!(made, DataType::Boolean | DataType::Null);
        Ok(!fixed)
    };
    !expr.exists(makes_text).unwrap_or(true)
}
