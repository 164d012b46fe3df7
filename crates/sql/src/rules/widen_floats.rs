//! Numbers of different types meet as doubles: single precision that is computed with, and decimals that are compared with
//! floating point.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::{is_comparison, rewrite_expressions};
use crate::functions::adql::COALESCE;
use crate::functions::mysql::STORE;

/// Casts single-precision operands of arithmetic and arguments of scalar functions to double, and decimals where they are
/// compared with floating point: made a decimal, a double would lose its digits or not fit.
///
/// Runs before type coercion, which then sees doubles.
#[derive(Debug, Default)]
pub struct WidenFloats;

/// Functions that hand a value through and must keep its type.
const KEEP_TYPE: &[&str] = &[
    "mysql_coalesce",
    "mysql_greatest",
    "mysql_least",
    COALESCE,
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
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            Ok(together(vec![*left, *right], schema).update_data(|sides| {
                let [left, right] = two(sides);
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
            }))
        }
        Expr::Between(Between {
            expr,
            negated,
            low,
            high,
        }) => Ok(
            together(vec![*expr, *low, *high], schema).update_data(|mut parts| {
                let [low, high] = two(parts.split_off(1));
                Expr::Between(Between::new(
                    Box::new(only(parts)),
                    negated,
                    Box::new(low),
                    Box::new(high),
                ))
            }),
        ),
        Expr::InList(InList {
            expr,
            list,
            negated,
        }) => {
            let parts = std::iter::once(*expr).chain(list).collect();
            Ok(together(parts, schema).update_data(|mut parts| {
                let list = parts.split_off(1);
                Expr::InList(InList::new(Box::new(only(parts)), list, negated))
            }))
        }
        Expr::ScalarFunction(mut function) if KEEP_TYPE.contains(&function.func.name()) => {
            let args = together(std::mem::take(&mut function.args), schema);
            Ok(args.update_data(|args| {
                function.args = args;
                Expr::ScalarFunction(function)
            }))
        }
        Expr::Negative(inner) => {
            Ok(cast(*inner, schema).update_data(|inner| Expr::Negative(Box::new(inner))))
        }
        // Of a float it stores the digits that a float has.
        Expr::ScalarFunction(function) if function.func.name() == STORE => {
            Ok(Transformed::no(Expr::ScalarFunction(function)))
        }
        Expr::ScalarFunction(mut function) => {
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

/// Expressions whose values meet: the decimals among them as doubles, if there is floating point too.
fn together(parts: Vec<Expr>, schema: &DFSchema) -> Transformed<Vec<Expr>> {
    let types: Vec<Option<DataType>> = parts.iter().map(|it| it.get_type(schema).ok()).collect();
    let some = |test: fn(&DataType) -> bool| types.iter().flatten().any(test);
    if !some(DataType::is_floating) || !some(DataType::is_decimal) {
        return Transformed::no(parts);
    }
    let pairs = parts.into_iter().zip(types);
    let cast = |(expr, data_type): (Expr, Option<DataType>)| match data_type {
        Some(data_type) if data_type.is_decimal() => {
            Expr::Cast(Cast::new(Box::new(expr), DataType::Float64))
        }
        _ => expr,
    };
    Transformed::yes(pairs.map(cast).collect())
}

/// The two expressions of a list of two.
fn two(parts: Vec<Expr>) -> [Expr; 2] {
    let mut parts = parts.into_iter();
    [(); 2].map(|()| parts.next().unwrap_or_else(|| lit(ScalarValue::Null)))
}

fn only(parts: Vec<Expr>) -> Expr {
    let [only, _] = two(parts);
    only
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
