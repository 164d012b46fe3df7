//! What MySQL's operators compute, chosen by the types of their operands.
//!
//! Integers are computed with in 64 bits, and a result that does not fit is an error; quotients are doubles; text in the
//! place of a number is the number with which it begins; operators on bits give unsigned numbers of 64 bits.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::comparison::{compared, is_zero};
use super::operand::{Kind, Operand, cast};
use crate::functions::mysql;

/// Plans the binary operators of a session that speaks MySQL.
#[derive(Debug, Default)]
pub struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Some(left), Some(right)) = (
            Operand::of(raw.left.clone(), schema),
            Operand::of(raw.right.clone(), schema),
        ) else {
            return Ok(PlannerResult::Original(raw));
        };
        let op = raw.op;
        Ok(match &op {
            BinaryOperator::Plus => planned(arithmetic(Operator::Plus, "mysql_add", left, right)),
            BinaryOperator::Minus => {
                planned(arithmetic(Operator::Minus, "mysql_subtract", left, right))
            }
            BinaryOperator::Multiply => planned(arithmetic(
                Operator::Multiply,
                "mysql_multiply",
                left,
                right,
            )),
            BinaryOperator::Modulo => {
                planned(arithmetic(Operator::Modulo, "mysql_modulo", left, right))
            }
            BinaryOperator::Divide => planned(quotient(left, right)),
            BinaryOperator::MyIntegerDivide => planned(of_numbers("mysql_div", left, right)),
            BinaryOperator::BitwiseAnd => planned(of_numbers("mysql_bit_and", left, right)),
            BinaryOperator::BitwiseOr => planned(of_numbers("mysql_bit_or", left, right)),
            BinaryOperator::BitwiseXor => planned(of_numbers("mysql_bit_xor", left, right)),
            BinaryOperator::PGBitwiseShiftLeft => {
                planned(of_numbers("mysql_shift_left", left, right))
            }
            BinaryOperator::PGBitwiseShiftRight => {
                planned(of_numbers("mysql_shift_right", left, right))
            }
            BinaryOperator::NotEq if right.kind == Kind::Json && is_zero(&left.expr) => {
                return plan_err!(
                    "JSON values are not supported as conditions: compare one, as in document -> '$.path' = TRUE or \
                     document ->> '$.path' <> 0"
                );
            }
            _ => match comparison(&op) {
                Some(operator) => planned(compared(operator, left, right)),
                None => PlannerResult::Original(RawBinaryExpr {
                    op,
                    left: left.expr,
                    right: right.expr,
                }),
            },
        })
    }
}

fn planned(expr: Expr) -> PlannerResult<RawBinaryExpr> {
    PlannerResult::Planned(expr)
}

fn comparison(op: &BinaryOperator) -> Option<Operator> {
    Some(match op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        BinaryOperator::Spaceship => Operator::IsNotDistinctFrom,
        _ => return None,
    })
}

/// A sum, difference, product or remainder. Large integers are computed with by a function of ours, which does not wrap.
fn arithmetic(operator: Operator, checked: &str, left: Operand, right: Operand) -> Expr {
    let (left, right) = (left.into_number(), right.into_number());
    if !(left.kind.is_integer() && right.kind.is_integer()) {
        return binary(left.expr, operator, right.expr);
    }
    let fits = |operand: &Operand| match operand.kind {
        Kind::Small => true,
        Kind::SmallUnsigned => operator != Operator::Multiply,
        _ => false,
    };
    if fits(&left) && fits(&right) {
        return binary(
            cast(left.expr, DataType::Int64),
            operator,
            cast(right.expr, DataType::Int64),
        );
    }
    mysql::call(checked, vec![left.expr, right.expr])
}

/// The functions that compute with integers, and what they check.
const CHECKED: [(&str, Operator); 4] = [
    ("mysql_add", Operator::Plus),
    ("mysql_subtract", Operator::Minus),
    ("mysql_multiply", Operator::Multiply),
    ("mysql_modulo", Operator::Modulo),
];

/// An expression that was planned for integers, as it is planned for its operands, of which more is known now.
pub(crate) fn with_settled_operands(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(function) = &expr else {
        return Transformed::no(expr);
    };
    let name = function.func.name();
    let checked = CHECKED.iter().find(|(checked, _)| *checked == name);
    let (Some((checked, operator)), [left, right]) = (checked, function.args.as_slice()) else {
        return Transformed::no(expr);
    };
    let operand = |expr: &Expr| Operand::of(expr.clone(), schema);
    match (operand(left), operand(right)) {
        (Some(left), Some(right)) if !(left.kind.is_integer() && right.kind.is_integer()) => {
            Transformed::yes(arithmetic(*operator, checked, left, right))
        }
        _ => Transformed::no(expr),
    }
}

fn quotient(left: Operand, right: Operand) -> Expr {
    let double = |operand: Operand| {
        let number = operand.into_number();
        if number.kind.is_number() {
            cast(number.expr, DataType::Float64)
        } else {
            number.expr
        }
    };
    binary(double(left), Operator::Divide, double(right))
}

fn of_numbers(function: &str, left: Operand, right: Operand) -> Expr {
    mysql::call(
        function,
        vec![left.into_number().expr, right.into_number().expr],
    )
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}
