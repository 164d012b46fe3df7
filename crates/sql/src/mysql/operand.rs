//! An operand whose type is known: what kind of value it is, and the same value as a number, a text or a time.

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, lit};

use crate::functions::mysql;
use crate::rules::is_json;

/// What kind of value an operand is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Truth,
    /// An integer of at most 32 bits: sums and products of two of them fit into 64.
    Small,
    /// An unsigned one of 32 bits: so do sums, but not products.
    SmallUnsigned,
    Signed,
    Unsigned,
    Decimal,
    Real,
    Text,
    /// A JSON document.
    Json,
    Bytes,
    Date,
    /// A date with a time of day.
    Time,
    /// A time of day alone.
    TimeOfDay,
    Other,
}

impl Kind {
    /// The kind of values of a type.
    pub(crate) fn of_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Truth,
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16 => Self::Small,
            DataType::UInt32 => Self::SmallUnsigned,
            DataType::Int64 => Self::Signed,
            DataType::UInt64 => Self::Unsigned,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytes,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Timestamp(..) => Self::Time,
            DataType::Duration(_) => Self::TimeOfDay,
            decimal if decimal.is_decimal() => Self::Decimal,
            number if number.is_numeric() => Self::Real,
            _ => Self::Other,
        }
    }

    /// The kind of values of a column.
    pub(crate) fn of_field(field: &Field) -> Self {
        match mysql::is_document(field) {
            true => Self::Json,
            false => Self::of_type(field.data_type()),
        }
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Small | Self::SmallUnsigned | Self::Signed | Self::Unsigned
        )
    }

    /// Whether values of the kind are numbers; a truth is 1 or 0.
    pub(crate) fn is_number(self) -> bool {
        self.is_integer() || matches!(self, Self::Decimal | Self::Real | Self::Truth)
    }

    /// Whether values of the kind are dates, with a time of day or without.
    pub(crate) fn is_temporal(self) -> bool {
        matches!(self, Self::Date | Self::Time)
    }
}

/// An operand that is known.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub(crate) expr: Expr,
    pub(crate) kind: Kind,
}

impl Operand {
    /// `None` where the type cannot be told: the planner's own message says why.
    pub(crate) fn of(expr: Expr, schema: &DFSchema) -> Option<Self> {
        let kind = match expr.get_type(schema).map(|it| Kind::of_type(&it)).ok()? {
            Kind::Signed if is_small_literal(&expr) => Kind::Small,
            Kind::Text if is_json(&expr, schema) => Kind::Json,
            kind => kind,
        };
        Some(Self { expr, kind })
    }

    /// The operand as a number; one that is a number already stays as it is.
    pub(crate) fn into_number(self) -> Self {
        match self.kind {
            Kind::Truth => Self {
                expr: cast(self.expr, DataType::Int64),
                kind: Kind::Small,
            },
            Kind::Null => Self {
                expr: cast(self.expr, DataType::Float64),
                kind: Kind::Real,
            },
            // A text that is not wholly a number is taken for one where it is evaluated, with a warning.
            Kind::Text => match whole_number(&self.expr) {
                Some(number) => Self {
                    kind: Kind::Real,
                    expr: cast(lit(number), DataType::Float64),
                },
                None => Self {
                    expr: mysql::call("mysql_double", vec![self.expr]),
                    kind: Kind::Real,
                },
            },
            Kind::Json => Self {
                expr: mysql::call(
                    "mysql_double",
                    vec![mysql::call("mysql_json_scalar", vec![self.expr])],
                ),
                kind: Kind::Real,
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
            Kind::Date => Self {
                expr: mysql::call("mysql_number", vec![self.expr]),
                kind: Kind::Signed,
            },
            Kind::Time | Kind::TimeOfDay => Self {
                expr: mysql::call("mysql_number", vec![self.expr]),
                kind: Kind::Real,
            },
            _ => self,
        }
    }

    /// A number as a double: the one that is nearest to it, which the engine's cast of a long decimal may miss.
    pub(crate) fn into_double(self) -> Expr {
        if self.kind != Kind::Decimal {
            return cast(self.expr, DataType::Float64);
        }
        match typed_decimal(&self.expr) {
            Some(number) => lit(number),
            None => mysql::call("mysql_double", vec![self.expr]),
        }
    }

    /// The operand as a date with a time of day; NULL for a text that is none.
    pub(crate) fn into_moment(self) -> Expr {
        match self.kind {
            Kind::Date | Kind::Time => cast(self.expr, timestamp()),
            kind if kind.is_number() => mysql::call("mysql_number_moment", vec![self.expr]),
            _ => mysql::call("mysql_timestamp", vec![self.expr]),
        }
    }

    /// The operand as a time of day or a span; NULL for a text that is none.
    pub(crate) fn into_span(self) -> Expr {
        match self.kind {
            Kind::TimeOfDay => self.expr,
            _ => mysql::call("mysql_time", vec![self.expr]),
        }
    }

    /// The operand as bytes.
    pub(crate) fn into_bytes(self) -> Expr {
        match self.kind {
            Kind::Text | Kind::Bytes => cast(self.expr, DataType::Binary),
            _ => mysql::call("mysql_bytes", vec![self.expr]),
        }
    }

    /// The operand as a date; NULL for what is none.
    pub(crate) fn into_date(self) -> Expr {
        match self.kind {
            Kind::Date => self.expr,
            _ => mysql::call("mysql_date", vec![self.expr]),
        }
    }

    /// Bytes that are in the order of JSON values, among documents.
    pub(crate) fn into_json_key(self) -> Expr {
        let function = match self.kind {
            Kind::Json => "mysql_json_key",
            Kind::Truth => "mysql_json_key_of_truth",
            _ => "mysql_json_key_of",
        };
        mysql::call(function, vec![self.expr])
    }

    pub(crate) fn into_text(self) -> Expr {
        match self.kind {
            Kind::Text | Kind::Null => self.expr,
            _ => mysql::call("mysql_text", vec![self.expr]),
        }
    }

    /// The text of a literal that is wholly a whole number of 64 bits, as that.
    pub(crate) fn typed_integer(&self) -> Option<Expr> {
        let number = whole_number(&self.expr)?;
        if number.contains(['.', 'e', 'E']) {
            return None;
        }
        number.parse::<i64>().ok().map(lit)
    }
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn is_small_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok())
}

/// A cast; a literal is cast at once, so that what restricts a scan is seen.
pub(crate) fn cast(expr: Expr, to: DataType) -> Expr {
    if let Expr::Literal(value, metadata) = &expr
        && let Ok(value) = value.cast_to(&to)
    {
        return Expr::Literal(value, metadata.clone());
    }
    Expr::Cast(Cast::new(Box::new(expr), to))
}

/// The double that is nearest to a decimal as it was typed.
fn typed_decimal(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Cast(Cast { expr, .. }) => whole_number(expr)?.parse().ok(),
        Expr::Negative(inner) => typed_decimal(inner).map(|number| -number),
        _ => None,
    }
}

/// The text of a literal that is a number and nothing else, as it is typed.
fn whole_number(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            mysql::is_number(text).then(|| mysql::number_prefix(text))
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
