//! Expressions of the syntax tree as ADQL's rewriting takes them apart and makes them.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, Spanned, UnaryOperator, Value,
};

use crate::SqlError;
pub(super) use crate::mysql::build::{call, choice, number, plain_arguments};

/// A mistake about a call: points at the function's name.
pub(super) fn about_call(sql: &str, function: &Function, sentence: impl Into<String>) -> SqlError {
    SqlError::at_word(sql, function.name.span().start, sentence)
}

pub(super) fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

/// Two operands and what is between them, in parentheses.
pub(super) fn operation(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |expr| Box::new(Expr::Nested(Box::new(expr)));
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: nested(left),
        op,
        right: nested(right),
    }))
}

/// A number that may be negative.
pub(super) fn signed_number(value: f64) -> Expr {
    let digits = number(&format!("{:?}", value.abs()));
    if value < 0.0 {
        return Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: Box::new(digits),
        };
    }
    digits
}

/// The text that an expression is, if it is a literal.
pub(super) fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => literal_text(inner),
        _ => None,
    }
}
