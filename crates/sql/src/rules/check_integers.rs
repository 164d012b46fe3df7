//! Integers are computed with in 64 bits, and a result that does not fit is an error: the engine's own operators and sums wrap.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator,
    WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use crate::functions::{checked_sum, mysql};

/// Digits of the largest unsigned integer of 64 bits.
const UNSIGNED_DIGITS: u8 = 20;

/// Puts operators and sums that check in the places of those that wrap. Runs before type coercion, which would give a sum of
/// integers of 32 bits these 32 bits.
#[derive(Debug, Default)]
pub struct CheckIntegers;

impl AnalyzerRule for CheckIntegers {
    fn name(&self) -> &str {
        "check_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| {
            expr.transform_up(|expr| check(expr, schema))
        })
    }
}

fn check(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            match checked_operator(op, &left, &right, schema) {
                Some(OverflowCheck::Widened) => {
                    Transformed::yes(binary(widened(*left), op, widened(*right)))
                }
                Some(OverflowCheck::By(function)) => {
                    Transformed::yes(mysql::call(function, vec![*left, *right]))
                }
                None => Transformed::no(binary(*left, op, *right)),
            }
        }
        Expr::AggregateFunction(AggregateFunction { func, params }) if func.name() == "sum" => {
            let mut params = params;
            let checked = check_sum(&mut params.args, schema);
            let func = checked.unwrap_or(func);
            Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        Expr::WindowFunction(mut window) if window.fun.name() == "sum" => {
            if let Some(sum) = check_sum(&mut window.params.args, schema) {
                window.fun = WindowFunctionDefinition::AggregateUDF(sum);
            }
            Transformed::yes(Expr::WindowFunction(window))
        }
        other => Transformed::no(other),
    })
}

/// How an operator is kept from wrapping.
enum OverflowCheck {
    /// Its result fits into 64 bits whatever the operands are.
    Widened,
    /// By a function that checks.
    By(&'static str),
}

/// How an operator of two integers is kept from wrapping; `None` where it is none or does not wrap: signed and unsigned integers
/// of 64 bits meet as decimals.
fn checked_operator(
    op: Operator,
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> Option<OverflowCheck> {
    let function = match op {
        Operator::Plus => "mysql_add",
        Operator::Minus => "mysql_subtract",
        Operator::Multiply => "mysql_multiply",
        _ => return None,
    };
    let sizes = (Size::of(left, schema)?, Size::of(right, schema)?);
    let fits = |size| match size {
        Size::Small => true,
        Size::SmallUnsigned => op != Operator::Multiply,
        Size::Signed | Size::Unsigned => false,
    };
    match sizes {
        (left, right) if fits(left) && fits(right) => Some(OverflowCheck::Widened),
        (Size::Unsigned, Size::Unsigned) => Some(OverflowCheck::By(function)),
        (Size::Unsigned, _) | (_, Size::Unsigned) => None,
        _ => Some(OverflowCheck::By(function)),
    }
}

/// What is known of how large an integer may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Sums and products of two fit into 64 bits.
    Small,
    /// Sums and differences of two do.
    SmallUnsigned,
    Signed,
    Unsigned,
}

impl Size {
    fn of(expr: &Expr, schema: &DFSchema) -> Option<Self> {
        match expr {
            // What was widened already.
            Expr::Cast(cast) if *cast.field.data_type() == DataType::Int64 => {
                return Some(match Self::of(&cast.expr, schema) {
                    Some(small @ (Self::Small | Self::SmallUnsigned)) => small,
                    _ => Self::Signed,
                });
            }
            Expr::Literal(ScalarValue::Int64(Some(number)), _)
                if i32::try_from(*number).is_ok() =>
            {
                return Some(Self::Small);
            }
            _ => {}
        }
        Some(match expr.get_type(schema).ok()? {
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16 => Self::Small,
            DataType::UInt32 => Self::SmallUnsigned,
            DataType::Int64 => Self::Signed,
            DataType::UInt64 => Self::Unsigned,
            _ => return None,
        })
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// As an integer of 64 bits; one that is written out, or made one already, as it is.
fn widened(expr: Expr) -> Expr {
    match &expr {
        Expr::Literal(ScalarValue::Int64(_), _) => expr,
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Int64 => expr,
        _ => Expr::Cast(Cast::new(Box::new(expr), DataType::Int64)),
    }
}

/// The function that gives the sum of these arguments where the engine's would wrap. A sum of unsigned integers of 64 bits is a
/// decimal.
fn check_sum(args: &mut [Expr], schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
    let [only] = args else {
        return None;
    };
    match only.get_type(schema).ok()? {
        DataType::UInt64 => {
            let digits = DataType::Decimal128(UNSIGNED_DIGITS, 0);
            let given = std::mem::replace(only, Expr::Literal(ScalarValue::Null, None));
            *only = Expr::Cast(Cast::new(Box::new(given), digits));
            None
        }
        given => given.is_integer().then(checked_sum),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::expr::Placeholder;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn checked(expr: Expr) -> String {
        let fields = [("a", DataType::Int32), ("big", DataType::Int64)];
        let fields = fields.map(|(name, ty)| Field::new(name, ty, true));
        let schema = DFSchema::try_from(Schema::new(fields.to_vec())).unwrap();
        let checked = expr.transform_up(|expr| check(expr, &schema));
        checked.unwrap().data.to_string()
    }

    #[test]
    fn a_placeholder_may_be_any_integer_of_its_type() {
        let placeholder = |ty| {
            let field = Arc::new(Field::new("$1", ty, true));
            Expr::Placeholder(Placeholder::new_with_field("$1".to_owned(), Some(field)))
        };
        let sum = col("a") + placeholder(DataType::Int64);
        assert_eq!(checked(sum.gt(lit(0_i64))), "mysql_add(a, $1) > Int64(0)");
        let product = placeholder(DataType::Int64) * col("big");
        assert_eq!(checked(product), "mysql_multiply($1, big)");
        // Of 32 bits it is never too large.
        let sum = col("a") + placeholder(DataType::Int32);
        assert_eq!(checked(sum), "CAST(a AS Int64) + CAST($1 AS Int64)");
    }

    #[test]
    fn small_constants_do_not_overflow() {
        let sum = col("a") + lit(1_i64);
        assert_eq!(checked(sum), "CAST(a AS Int64) + Int64(1)");
    }
}
