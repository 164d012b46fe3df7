//! What would be NaN or an infinity is NULL; -0.0 is 0.0; division by zero is NULL.
//!
//! Constants are made so at once. Arithmetic passes NULL and NaN on alike, so one guard around the whole of an arithmetic expression is enough; what a
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
use crate::functions::{REAL, real, real_constant};

/// Puts guards around everything that could compute NaN, an infinity, -0.0 or a division by zero. Runs after type coercion.
#[derive(Debug, Default)]
pub struct GuardValues;

/// Scalar functions that cannot make a NaN, an infinity or -0.0 out of proper numbers.
const HARMLESS: &[&str] = &[
    "abs", "coalesce", "nullif", "nvl", "nvl2", "greatest", "least", "pi", "random", "isnan",
    "iszero", REAL,
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
        if let Expr::Literal(value, metadata) = expr {
            let proper = Expr::Literal(real_constant(value), metadata);
            return Ok(Transformed::yes(proper));
        }
        if starts_arithmetic(&expr) {
            let guarded = guard_arithmetic(expr, schema)?;
            return Ok(Transformed::new(guarded, true, TreeNodeRecursion::Jump));
        }
        if !needs_guard(&expr, schema) {
            return Ok(Transformed::no(expr));
        }
        // The arguments are guarded first, then the whole, so that the walk need not go on below the new guard.
        let inner = expr.map_children(|child| guard_tree(child, schema))?.data;
        Ok(Transformed::new(
            real().call(vec![inner]),
            true,
            TreeNodeRecursion::Jump,
        ))
    })
}

fn is_guard(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(f) if f.func.name() == REAL)
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

/// A constant number other than zero. What a placeholder stands for is not known: it is none.
fn is_plain_number(expr: &Expr) -> bool {
    let number = constant(expr).filter(|value| value.data_type().is_numeric());
    let double = number.and_then(|value| value.cast_to(&DataType::Float64).ok());
    matches!(double, Some(ScalarValue::Float64(Some(number))) if number != 0.0 && number.is_finite())
}

/// The value of a literal, and of one that is cast.
fn constant(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(Cast { expr, field }) => constant(expr)?.cast_to(field.data_type()).ok(),
        _ => None,
    }
}

/// Whether a function or a cast may give what is no proper number.
fn needs_guard(expr: &Expr, schema: &DFSchema) -> bool {
    let Ok(given) = expr.get_type(schema) else {
        return false;
    };
    match expr {
        Expr::ScalarFunction(function) if given == DataType::Float64 => {
            let name = function.func.name();
            // These guard their own results.
            let ours = ["scisql_", "adql_", "ivo_", "mysql_"]
                .iter()
                .any(|family| name.starts_with(family));
            !ours && !HARMLESS.contains(&name)
        }
        // Doubles may be too large for single precision, or so small that they become zero.
        Expr::Cast(Cast { expr, .. }) if given == DataType::Float32 => {
            expr.get_type(schema).is_ok_and(|from| from != given)
        }
        Expr::Cast(Cast { expr, .. }) if given == DataType::Float64 => {
            expr.get_type(schema).is_ok_and(|from| from.is_string())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::expr::Placeholder;
    use datafusion::logical_expr::{cast, col};

    use super::*;

    fn guarded(expr: Expr) -> String {
        let fields = [("f", DataType::Float64), ("a", DataType::Int64)];
        let fields = fields.map(|(name, ty)| Field::new(name, ty, true));
        let schema = DFSchema::try_from(Schema::new(fields.to_vec())).unwrap();
        guard_tree(expr, &schema).unwrap().data.to_string()
    }

    fn placeholder(ty: DataType) -> Expr {
        let field = Arc::new(Field::new("$1", ty, true));
        Expr::Placeholder(Placeholder::new_with_field("$1".to_owned(), Some(field)))
    }

    #[test]
    fn what_a_placeholder_stands_for_may_be_zero() {
        let quotient = col("f") / placeholder(DataType::Float64);
        assert_eq!(
            guarded(quotient.gt(lit(1.0))),
            "meridian_real(f / nullif(meridian_real($1), Float64(0))) > Float64(1)"
        );
        assert_eq!(
            guarded((col("a") % placeholder(DataType::Int64)).eq(lit(0_i64))),
            "a % nullif($1, Int64(0)) = Int64(0)"
        );
        let made_double = cast(placeholder(DataType::Int64), DataType::Float64);
        assert_eq!(
            guarded(col("f") / made_double),
            "meridian_real(f / nullif(meridian_real(CAST($1 AS Float64)), Float64(0)))"
        );
    }

    #[test]
    fn only_constants_that_are_not_zero_divide_without_a_guard() {
        assert_eq!(guarded(col("a") % lit(2_i64)), "a % Int64(2)");
        for zero in [
            lit(0_i64),
            cast(lit(0.4), DataType::Int64),
            cast(lit(-0.0), DataType::Int64),
        ] {
            assert!(
                guarded(col("a") % zero.clone()).contains("nullif"),
                "{zero}"
            );
        }
        for zero in [lit(0.0), lit(-0.0), cast(lit(0_i64), DataType::Float64)] {
            assert!(
                guarded(col("f") / zero.clone()).contains("nullif"),
                "{zero}"
            );
        }
    }

    #[test]
    fn constants_are_proper_numbers() {
        assert_eq!(guarded(col("f").eq(lit(-0.0))), "f = Float64(0)");
        assert_eq!(
            guarded(col("f").in_list(vec![lit(-0.0), lit(f64::NAN)], false)),
            "f IN ([Float64(0), Float64(NULL)])"
        );
    }

    #[test]
    fn single_precision_may_be_too_small_for_a_double() {
        assert_eq!(
            guarded(cast(col("f"), DataType::Float32)),
            "meridian_real(CAST(f AS Float32))"
        );
    }
}
