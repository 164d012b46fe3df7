//! `388 = refId` is written `refId = 388`.
//!
//! DataFusion's optimizer does so everywhere but in the conditions of joins, and it takes `refId = 388` and `388 = refId`, which its
//! filter pushdown derives from such a condition, for two conditions of which one row cannot meet both; of `5 < x` and `x >= 5` it keeps
//! the second alone.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;

/// Puts the constant of every comparison on the right. Runs when everything else has been rewritten.
#[derive(Debug, Default)]
pub struct OrderComparisons;

impl AnalyzerRule for OrderComparisons {
    fn name(&self) -> &str {
        "order_comparisons"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, |expr, _| expr.transform_up(|expr| Ok(ordered(expr))))
    }
}

fn ordered(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_constant(&left) && !is_constant(&right) =>
        {
            match op.swap() {
                Some(swapped) => {
                    Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(right, swapped, left)))
                }
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        _ => Transformed::no(expr),
    }
}

/// Whether an expression is a literal, or one that type coercion has given another type: the optimizer makes a literal of it.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Cast(cast) => is_constant(&cast.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use datafusion::logical_expr::{Cast, Operator, col, lit};

    use super::*;

    #[test]
    fn constants_are_on_the_right() {
        let binary = |left: Expr, op, right: Expr| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
        };
        for (op, swapped) in [
            (Operator::Eq, Operator::Eq),
            (Operator::NotEq, Operator::NotEq),
            (Operator::Lt, Operator::Gt),
            (Operator::LtEq, Operator::GtEq),
            (Operator::Gt, Operator::Lt),
            (Operator::GtEq, Operator::LtEq),
        ] {
            let cast = Expr::Cast(Cast::new(Box::new(lit(388)), DataType::Int64));
            for constant in [lit(388), cast] {
                let found = ordered(binary(constant.clone(), op, col("a")));
                assert_eq!(found.data, binary(col("a"), swapped, constant));
            }
            for kept in [
                binary(col("a"), op, lit(388)),
                binary(lit(1), op, lit(2)),
                binary(col("a"), op, col("b")),
            ] {
                assert_eq!(ordered(kept.clone()).data, kept);
            }
        }
        let minus = binary(lit(388), Operator::Minus, col("a"));
        assert_eq!(ordered(minus.clone()).data, minus);
    }
}
