//! What MySQL's operators compute, chosen by the types of their operands.
//!
//! Integers are computed with in 64 bits, and a result that does not fit is an error; quotients are doubles; text in the
//! place of a number is the number with which it begins; operators on bits give unsigned numbers of 64 bits.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::mysql;

/// Plans the binary operators of a session that speaks MySQL.
#[derive(Debug, Default)]
pub struct Operators;

/// What kind of value an operand is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Truth,
    /// An integer of at most 32 bits: sums and products of two of them fit into 64.
    Small,
    /// An unsigned one of 32 bits: so do sums, but not products.
    SmallUnsigned,
    Signed,
    Unsigned,
    Real,
    Text,
    Bytes,
    Date,
    Time,
    Other,
}

impl Kind {
    fn of(expr: &Expr, schema: &DFSchema) -> Option<Self> {
        let data_type = expr.get_type(schema).ok()?;
        Some(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Truth,
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16 => Self::Small,
            DataType::UInt32 => Self::SmallUnsigned,
            DataType::Int64 if is_small_literal(expr) => Self::Small,
            DataType::Int64 => Self::Signed,
            DataType::UInt64 => Self::Unsigned,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytes,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Timestamp(..) => Self::Time,
            other if other.is_numeric() => Self::Real,
            _ => Self::Other,
        })
    }

    fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Small | Self::SmallUnsigned | Self::Signed | Self::Unsigned
        )
    }

    fn is_number(self) -> bool {
        self.is_integer() || matches!(self, Self::Real | Self::Truth | Self::Null)
    }
}

fn is_small_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok())
}

/// An operand that is known.
struct Operand {
    expr: Expr,
    kind: Kind,
}

impl Operand {
    /// The operand as a number; one that is a number already stays as it is.
    fn into_number(self) -> Self {
        match self.kind {
            Kind::Truth => Self {
                expr: cast(self.expr, DataType::Int64),
                kind: Kind::Small,
            },
            Kind::Null => Self {
                expr: cast(self.expr, DataType::Float64),
                kind: Kind::Real,
            },
            Kind::Text => match text_number(&self.expr) {
                Some(number) => Self {
                    kind: Kind::Real,
                    expr: cast(lit(number), DataType::Float64),
                },
                None => Self {
                    expr: mysql::call("mysql_double", vec![self.expr]),
                    kind: Kind::Real,
                },
            },
            Kind::Bytes => match bytes_number(&self.expr) {
                Some(number) => Self {
                    expr: lit(number),
                    kind: Kind::Unsigned,
                },
                None => Self {
                    expr: mysql::call("mysql_double", vec![self.expr]),
                    kind: Kind::Real,
                },
            },
            _ => self,
        }
    }
}

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Some(left), Some(right)) = (Kind::of(&raw.left, schema), Kind::of(&raw.right, schema))
        else {
            return Ok(PlannerResult::Original(raw));
        };
        let RawBinaryExpr {
            op,
            left: left_expr,
            right: right_expr,
        } = raw;
        let left = Operand {
            expr: left_expr,
            kind: left,
        };
        let right = Operand {
            expr: right_expr,
            kind: right,
        };
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

fn compared(operator: Operator, left: Operand, right: Operand) -> Expr {
    match (left.kind, right.kind) {
        (Kind::Truth, Kind::Truth) => binary(left.expr, operator, right.expr),
        // What is a condition already, though not by its form.
        (Kind::Truth, _) if operator == Operator::NotEq && is_zero(&right.expr) => left.expr,
        (Kind::Bytes, Kind::Text) => binary(left.expr, operator, text_bytes(right.expr)),
        (Kind::Text, Kind::Bytes) => binary(text_bytes(left.expr), operator, right.expr),
        (Kind::Date | Kind::Time, Kind::Text | Kind::Date | Kind::Time)
        | (Kind::Text, Kind::Date | Kind::Time)
            if left.kind != right.kind =>
        {
            binary(moment(left), operator, moment(right))
        }
        (one, other)
            if one.is_number() != other.is_number()
                || one == Kind::Truth
                || other == Kind::Truth =>
        {
            let (left, right) = as_numbers(left, right);
            binary(left, operator, right)
        }
        _ => binary(left.expr, operator, right.expr),
    }
}

/// An operand as a time of day; NULL for a text that is none.
fn moment(operand: Operand) -> Expr {
    match operand.kind {
        Kind::Text => mysql::call("mysql_timestamp", vec![operand.expr]),
        _ => cast(
            operand.expr,
            DataType::Timestamp(TimeUnit::Microsecond, None),
        ),
    }
}

/// Both sides of a comparison as numbers. A whole number that is typed as text is compared exactly with integers.
fn as_numbers(left: Operand, right: Operand) -> (Expr, Expr) {
    let exactly = |operand: &Operand, other: Kind| match text_number(&operand.expr) {
        Some(number) if other.is_integer() && !number.contains(['.', 'e', 'E']) => {
            number.parse::<i64>().ok().map(lit)
        }
        _ => None,
    };
    let (left_exact, right_exact) = (exactly(&left, right.kind), exactly(&right, left.kind));
    (
        left_exact.unwrap_or_else(|| left.into_number().expr),
        right_exact.unwrap_or_else(|| right.into_number().expr),
    )
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// A cast; a literal is cast at once, so that what restricts a scan is seen.
fn cast(expr: Expr, to: DataType) -> Expr {
    if let Expr::Literal(value, metadata) = &expr
        && let Ok(value) = value.cast_to(&to)
    {
        return Expr::Literal(value, metadata.clone());
    }
    Expr::Cast(Cast::new(Box::new(expr), to))
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(0)), _))
}

/// The number with which a text literal begins, as it is typed.
fn text_number(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            Some(mysql::number_prefix(text).to_owned())
        }
        _ => None,
    }
}

/// The number that a literal of bytes is, the first byte the highest.
fn bytes_number(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Literal(ScalarValue::Binary(Some(bytes)), _) if bytes.len() <= size_of::<u64>() => {
            Some(
                bytes
                    .iter()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte)),
            )
        }
        _ => None,
    }
}

fn text_bytes(expr: Expr) -> Expr {
    cast(expr, DataType::Binary)
}
