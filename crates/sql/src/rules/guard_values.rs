//! What would be NaN, or an infinity out of a function's pole, is NULL; -0.0 is 0.0; division by zero is NULL.
//!
//! Arithmetic passes NULL and NaN on alike, so one guard around the whole of an arithmetic expression is enough; what a
//! function is given is guarded before, because functions may turn NaN into something else.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use super::widen_floats::is_arithmetic;
use crate::functions::{FINITE, REAL, finite, real};

/// Puts guards around everything that could compute NaN, -0.0 or a division by zero. Runs after type coercion.
#[derive(Debug, Default)]
pub struct GuardValues;

/// Scalar functions that cannot make a NaN or -0.0 out of proper numbers.
const HARMLESS: &[&str] = &[
    "abs",
    "mysql_abs",
    "mysql_floor",
    "coalesce",
    "nullif",
    "nvl",
    "nvl2",
    "greatest",
    "least",
    "pi",
    "random",
    "degrees",
    "radians",
    "isnan",
    "iszero",
    REAL,
    FINITE,
];

impl AnalyzerRule for GuardValues {
    fn name(&self) -> &str {
        "guard_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, guard_tree)
    }
}

/// Walks down; where arithmetic begins, guards it as a whole and goes on below it with its operands.
fn guard_tree(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        if is_guard(&expr) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        if starts_arithmetic(&expr) {
            let guarded = guard_arithmetic(expr, schema)?;
            return Ok(Transformed::new(guarded, true, TreeNodeRecursion::Jump));
        }
        match guard_of(&expr, schema) {
            // The arguments are guarded first, then the whole, so that the walk need not go on below the new guard.
            Some(guard) => {
                let inner = expr.map_children(|child| guard_tree(child, schema))?.data;
                Ok(Transformed::new(
                    guard.call(vec![inner]),
                    true,
                    TreeNodeRecursion::Jump,
                ))
            }
            None => Ok(Transformed::no(expr)),
        }
    })
}

fn is_guard(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(f) if [REAL, FINITE].contains(&f.func.name()))
}

fn starts_arithmetic(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => is_arithmetic(binary.op),
        Expr::Negative(_) => true,
        _ => false,
    }
}

/// Guards the root of an arithmetic expression where it is a double, and its divisors inside.
fn guard_arithmetic(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let inner = inside_arithmetic(expr, schema)?;
    match inner.get_type(schema) {
        Ok(DataType::Float64) if !is_plain_number(&inner) => Ok(real().call(vec![inner])),
        _ => Ok(inner),
    }
}

fn inside_arithmetic(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(op) => {
            let left = inside_arithmetic(*left, schema)?;
            let mut right = inside_arithmetic(*right, schema)?;
            if matches!(op, Operator::Divide | Operator::Modulo) && !is_plain_number(&right) {
                right = not_zero(right, schema)?;
            }
            Ok(Expr::BinaryExpr(BinaryExpr::new(
                Box::new(left),
                op,
                Box::new(right),
            )))
        }
        Expr::Negative(inner) => Ok(Expr::Negative(Box::new(inside_arithmetic(*inner, schema)?))),
        other => Ok(guard_tree(other, schema)?.data),
    }
}

/// A divisor that is NULL where it would be zero.
fn not_zero(divisor: Expr, schema: &DFSchema) -> Result<Expr> {
    let data_type = divisor.get_type(schema)?;
    if !data_type.is_numeric() {
        return Ok(divisor);
    }
    let zero = ScalarValue::new_zero(&data_type)?;
    if data_type == DataType::Float64 {
        // -0.0 is not equal to 0.0 in Arrow; the guard makes them one.
        return Ok(nullif(real().call(vec![divisor]), lit(zero)));
    }
    Ok(nullif(divisor, lit(zero)))
}

/// A literal number other than zero.
fn is_plain_number(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => {
            !value.is_null()
                && ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero != *value)
        }
        Expr::Cast(Cast { expr, .. }) => is_plain_number(expr),
        _ => false,
    }
}

/// The guard that a function's or cast's result needs, if any.
fn guard_of(
    expr: &Expr,
    schema: &DFSchema,
) -> Option<std::sync::Arc<datafusion::logical_expr::ScalarUDF>> {
    if !matches!(expr.get_type(schema), Ok(DataType::Float64)) {
        return None;
    }
    match expr {
        Expr::ScalarFunction(function) => {
            let name = function.func.name();
            let ours = ["scisql_", "adql_", "ivo_"]
                .iter()
                .any(|family| name.starts_with(family));
            (!ours && !HARMLESS.contains(&name)).then(finite)
        }
        Expr::Cast(Cast { expr, .. }) => {
            let from_text = matches!(
                expr.get_type(schema),
                Ok(DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
            );
            from_text.then(real)
        }
        _ => None,
    }
}
