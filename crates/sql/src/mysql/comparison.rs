//! How values of different kinds are compared, and of what kind the results of a choice among them are.
//!
//! | left | right | compared as |
//! |---|---|---|
//! | number | number | numbers; a truth is 1 or 0; a decimal beside a double is the double nearest to it |
//! | number | text, bytes | doubles; integers exactly where the text is a whole number |
//! | date or time | text | times; NULL where the text is none |
//! | date or time | number | times: 20100615 is the day, 20100615123000 the moment; other numbers are before all times |
//! | date | time | times, the date at midnight |
//! | time of day | number | numbers: 123000 is half past twelve |
//! | time of day | text | times of day; NULL where the text is none |
//! | text | text | texts, byte by byte |
//! | bytes | text | bytes |
//! | JSON document | anything | JSON values |
//!
//! Source: MySQL 8.0 Reference Manual, 12.3, "Type Conversion in Expression Evaluation"; numbers beside times as MariaDB has them.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::operand::{Kind, Operand, cast};
use crate::functions::mysql;

/// A comparison of two values, whatever their kinds are.
pub(crate) fn compared(operator: Operator, left: Operand, right: Operand) -> Expr {
    // What is a condition already, though not by its form.
    if operator == Operator::NotEq {
        match (left.kind, right.kind) {
            (Kind::Truth, _) if is_zero(&right.expr) => return left.expr,
            (_, Kind::Truth) if is_zero(&left.expr) => return right.expr,
            _ => {}
        }
    }
    let (left, right) = comparable(left, right);
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// Two values as the engine can compare them, so that the outcome is MySQL's.
pub(crate) fn comparable(left: Operand, right: Operand) -> (Expr, Expr) {
    match (left.kind, right.kind) {
        (Kind::Null, _) | (_, Kind::Null) => (left.expr, right.expr),
        (Kind::Json, _) | (_, Kind::Json) => (left.into_json_key(), right.into_json_key()),
        (Kind::Bytes, Kind::Text) => (left.expr, bytes(right.expr)),
        (Kind::Text, Kind::Bytes) => (bytes(left.expr), right.expr),
        (one, other) if one == other => (left.expr, right.expr),
        (one, other) if one.is_temporal() || other.is_temporal() => times(left, right),
        (Kind::TimeOfDay, Kind::Text | Kind::Bytes)
        | (Kind::Text | Kind::Bytes, Kind::TimeOfDay) => (left.into_span(), right.into_span()),
        (Kind::Decimal, Kind::Real) => (left.into_double(), right.expr),
        (Kind::Real, Kind::Decimal) => (left.expr, right.into_double()),
        (one, other) if one.is_number() && other.is_number() => {
            if one == Kind::Truth || other == Kind::Truth {
                (left.into_number().expr, right.into_number().expr)
            } else {
                (left.expr, right.expr)
            }
        }
        (one, other) if one.is_number() || other.is_number() => numbers(left, right),
        _ => (left.expr, right.expr),
    }
}

/// Both sides as times, or as dates where both are some.
fn times(left: Operand, right: Operand) -> (Expr, Expr) {
    match (left.kind, right.kind) {
        (Kind::Date, kind) if kind.is_number() => match written_date(&right.expr) {
            Some(date) => (left.expr, date),
            None => (left.into_moment(), right.into_moment()),
        },
        (kind, Kind::Date) if kind.is_number() => match written_date(&left.expr) {
            Some(date) => (date, right.expr),
            None => (left.into_moment(), right.into_moment()),
        },
        (Kind::Other, _) | (_, Kind::Other) => (left.expr, right.expr),
        _ => (left.into_moment(), right.into_moment()),
    }
}

/// The date that an integer is by its digits, if it is one.
fn written_date(number: &Expr) -> Option<Expr> {
    match number {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => {
            let days = mysql::days_of_number(*number)?;
            let date = ScalarValue::Date32(Some(days));
            Some(Expr::Literal(date, None))
        }
        _ => None,
    }
}

/// Both sides as numbers. A whole number that is typed as text is compared exactly with integers.
fn numbers(left: Operand, right: Operand) -> (Expr, Expr) {
    let exactly = |text: &Operand, other: Kind| {
        let exact = other.is_integer() || other == Kind::Truth;
        text.typed_integer().filter(|_| exact)
    };
    let (left_exact, right_exact) = (exactly(&left, right.kind), exactly(&right, left.kind));
    // A text may be a number that no decimal holds.
    let number = |operand: Operand| match operand.kind {
        Kind::Decimal => operand.into_double(),
        _ => operand.into_number().expr,
    };
    (
        left_exact.unwrap_or_else(|| number(left)),
        right_exact.unwrap_or_else(|| number(right)),
    )
}

fn bytes(text: Expr) -> Expr {
    cast(text, DataType::Binary)
}

/// Whether an expression is the constant 0.
pub(super) fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(0)), _))
}

/// What values of several kinds are made, one of which is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonKind {
    /// As they are: the engine finds a type that holds them all.
    AsTheyAre,
    /// Truths are integers, numbers as they are.
    Numbers,
    Doubles,
    Texts,
    Bytes,
    Dates,
    Times,
    /// Times of day.
    Spans,
}

impl ComparisonKind {
    /// Where one is given as the result: COALESCE, IF, CASE.
    pub(crate) fn of_results(kinds: impl Iterator<Item = Kind> + Clone) -> Self {
        let mut kinds = kinds.filter(|kind| *kind != Kind::Null);
        let Some(first) = kinds.next() else {
            return Self::AsTheyAre;
        };
        let all = |test: fn(Kind) -> bool| test(first) && kinds.clone().all(test);
        if kinds.clone().all(|kind| kind == first) || all(|kind| kind == Kind::Other) {
            Self::AsTheyAre
        } else if all(Kind::is_number) {
            Self::of_numbers(std::iter::once(first).chain(kinds))
        } else if all(Kind::is_temporal) {
            Self::Times
        } else if first == Kind::Bytes || kinds.clone().any(|kind| kind == Kind::Bytes) {
            Self::Bytes
        } else {
            Self::Texts
        }
    }

    /// Where all are numbers. The engine would make decimals of doubles that meet one, which hold no large ones, and floats of 32 bits of integers.
    fn of_numbers(mut kinds: impl Iterator<Item = Kind> + Clone) -> Self {
        let all_real = kinds.clone().all(|kind| kind == Kind::Real);
        match !all_real && kinds.any(|kind| kind == Kind::Real) {
            true => Self::Doubles,
            false => Self::Numbers,
        }
    }

    /// Where the least or the greatest of them is given.
    pub(crate) fn of_ranked(kinds: impl Iterator<Item = Kind> + Clone) -> Self {
        let kinds = kinds.filter(|kind| *kind != Kind::Null);
        let any = |test: fn(Kind) -> bool| kinds.clone().any(test);
        let all = |test: fn(Kind) -> bool| kinds.clone().all(test);
        if any(|kind| kind == Kind::Time) {
            Self::Times
        } else if any(|kind| kind == Kind::Date) {
            Self::Dates
        } else if all(|kind| kind == Kind::Truth) {
            Self::AsTheyAre
        } else if all(Kind::is_number) {
            Self::of_numbers(kinds)
        } else if any(Kind::is_number) {
            Self::Doubles
        } else if any(|kind| kind == Kind::Bytes) && !all(|kind| kind == Kind::Bytes) {
            Self::Bytes
        } else if any(|kind| kind == Kind::TimeOfDay) && !all(|kind| kind == Kind::TimeOfDay) {
            Self::Spans
        } else {
            Self::AsTheyAre
        }
    }

    /// One of the values.
    pub(crate) fn meet(self, operand: Operand) -> Expr {
        match self {
            _ if operand.kind == Kind::Null => operand.expr,
            Self::AsTheyAre => operand.expr,
            Self::Numbers if operand.kind == Kind::Truth => operand.into_number().expr,
            Self::Numbers => operand.expr,
            Self::Doubles if matches!(operand.kind, Kind::Text | Kind::Bytes | Kind::TimeOfDay) => {
                mysql::call("mysql_double", vec![operand.expr])
            }
            Self::Doubles => operand.into_double(),
            Self::Texts => operand.into_text(),
            Self::Bytes => operand.into_bytes(),
            Self::Spans => operand.into_span(),
            Self::Dates => operand.into_date(),
            Self::Times if operand.kind.is_temporal() => operand.into_moment(),
            Self::Times => mysql::call("mysql_timestamp", vec![operand.expr]),
        }
    }

    /// The type that one of this type is made.
    pub(crate) fn type_of(self, given: &DataType) -> DataType {
        match self {
            _ if *given == DataType::Null => DataType::Null,
            Self::Numbers if *given == DataType::Boolean => DataType::Int64,
            Self::AsTheyAre | Self::Numbers => given.clone(),
            Self::Doubles => DataType::Float64,
            Self::Texts => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Spans => DataType::Duration(TimeUnit::Microsecond),
            Self::Dates => DataType::Date32,
            Self::Times => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}
