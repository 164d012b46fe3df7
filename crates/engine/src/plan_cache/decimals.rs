//! Whether a plan computes with decimals.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, TryCast};

/// Whether a column or a value anywhere in a plan, in its subqueries too, is a decimal.
pub(super) fn occur_in(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= (node.schema().fields().iter()).any(|field| field.data_type().is_decimal());
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(is_decimal(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn is_decimal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.data_type().is_decimal(),
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            field.data_type().is_decimal()
        }
        _ => false,
    }
}
