//! Where MySQL means a truth and where a number: in its language they are the same, in the engine's they are not.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, DataType, Expr, UnaryOperator, Value,
};

use super::build::{call, each_argument, is_number, negated, number, plain_cast, take};
use super::forms::long_constant;

/// What the parts of an expression have to be.
pub(super) fn normalise_truth(expr: &mut Expr) {
    match expr {
        Expr::UnaryOp {
            op: op @ (UnaryOperator::Not | UnaryOperator::BangNot),
            expr: inner,
        } => {
            *op = UnaryOperator::Not;
            make_truth(inner);
        }
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: inner,
        } if !is_number(inner) => {
            *expr = negated(take(inner));
        }
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr: inner,
        } => *expr = take(inner),
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr: inner,
        } => {
            make_number(inner);
            *expr = call("mysql_bit_not", vec![take(inner)]);
        }
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => {
            make_truth(left);
            make_truth(right);
        }
        Expr::BinaryOp {
            left,
            op: op @ BinaryOperator::Xor,
            right,
        } => {
            *op = BinaryOperator::NotEq;
            make_truth(left);
            make_truth(right);
        }
        Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner) => make_truth(inner),
        Expr::Case {
            operand,
            conditions,
            else_result,
            ..
        } => settle_case(
            operand.as_deref_mut(),
            conditions,
            else_result.as_deref_mut(),
        ),
        Expr::Function(function) => each_argument(function, make_number),
        Expr::Cast { expr: inner, .. } => make_number(inner),
        Expr::InList {
            expr: inner, list, ..
        } => {
            make_number(inner);
            list.iter_mut().for_each(make_number);
        }
        Expr::Between {
            expr: inner,
            low,
            high,
            ..
        } => [inner, low, high]
            .into_iter()
            .for_each(|part| make_number(part)),
        _ => {}
    }
}

pub(super) fn settle_case(
    operand: Option<&mut Expr>,
    conditions: &mut [CaseWhen],
    otherwise: Option<&mut Expr>,
) {
    let compared = operand.is_some();
    operand.into_iter().for_each(make_number);
    for CaseWhen { condition, result } in conditions {
        if compared {
            *condition = long_constant(take(condition));
            make_number(condition)
        } else {
            make_truth(condition)
        }
        make_number(result);
    }
    otherwise.into_iter().for_each(make_number);
}

/// Whether an operator compares.
pub(super) fn is_comparison(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
            | BinaryOperator::Spaceship
    )
}

/// Whether an expression is a condition by its form.
pub(super) fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_condition(inner),
        Expr::BinaryOp { op, .. } => {
            is_comparison(op) || matches!(op, BinaryOperator::And | BinaryOperator::Or)
        }
        Expr::UnaryOp { op, .. } => *op == UnaryOperator::Not,
        Expr::Value(value) => matches!(value.value, Value::Boolean(_)),
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::Between { .. }
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. }
        | Expr::Exists { .. } => true,
        _ => false,
    }
}

/// Makes a condition of a number: it holds where that is not 0.
pub(super) fn make_truth(expr: &mut Expr) {
    if !is_condition(expr) {
        let inner = Expr::Nested(Box::new(take(expr)));
        // The other way round than people write it: of a JSON document it is told from a comparison with 0.
        *expr = Expr::BinaryOp {
            left: Box::new(number("0")),
            op: BinaryOperator::NotEq,
            right: Box::new(inner),
        };
    }
}

/// Makes a number of a condition: 1, 0 or NULL.
pub(super) fn make_number(expr: &mut Expr) {
    if is_condition(expr) {
        *expr = plain_cast(take(expr), DataType::Int(None));
    }
}
