//! Single-precision columns are stored as such, but computed with in double precision.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;

/// Casts single-precision operands of arithmetic and arguments of scalar functions to double.
///
/// Runs before type coercion, which then sees doubles.
#[derive(Debug, Default)]
pub struct WidenFloats;

/// Functions that hand a value through and must keep its type.
const KEEP_TYPE: &[&str] = &[
    "coalesce",
    "nullif",
    "nvl",
    "nvl2",
    "greatest",
    "least",
    "arrow_typeof",
    "arrow_cast",
    "make_array",
];

impl AnalyzerRule for WidenFloats {
    fn name(&self) -> &str {
        "widen_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| {
            expr.transform_up(|expr| widen(expr, schema))
        })
    }
}

fn widen(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(op) => {
            let (left, right) = (cast(*left, schema), cast(*right, schema));
            let transformed = left.transformed || right.transformed;
            let binary = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(Transformed::new_transformed(
                Expr::BinaryExpr(binary),
                transformed,
            ))
        }
        Expr::Negative(inner) => {
            Ok(cast(*inner, schema).update_data(|inner| Expr::Negative(Box::new(inner))))
        }
        Expr::ScalarFunction(mut function) if !KEEP_TYPE.contains(&function.func.name()) => {
            let mut transformed = false;
            function.args = std::mem::take(&mut function.args)
                .into_iter()
                .map(|arg| {
                    let cast = cast(arg, schema);
                    transformed |= cast.transformed;
                    cast.data
                })
                .collect();
            Ok(Transformed::new_transformed(
                Expr::ScalarFunction(function),
                transformed,
            ))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether an operator computes a number.
pub(super) fn is_arithmetic(op: Operator) -> bool {
    matches!(
        op,
        Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
    )
}

fn cast(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    // A type that cannot be told yet is left to the planner's own message.
    if matches!(expr.get_type(schema), Ok(DataType::Float32)) {
        Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), DataType::Float64)))
    } else {
        Transformed::no(expr)
    }
}
