//! What a column of a table stores of values of any type, by the rules of MySQL's strict mode: each value by itself, whatever the others
//! are. What a column cannot hold is an error with MySQL's number.
//!
//! Source: *MySQL Reference Manual*, "Numeric Type Syntax", "Out-of-Range and Overflow Handling", "Rounding Behavior", "The CHAR and
//! VARCHAR Types", "Fractional Seconds in Time Values".

mod adjusted;
mod column;
mod exact;
mod function;
mod time;
mod value;

pub use column::RowFault;
pub(crate) use function::STORE;
pub(super) use function::store;

use std::fmt;

use arrow::datatypes::{DataType, TimeUnit};

/// A column that stores values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredColumn {
    /// Its name, for messages.
    pub name: String,
    /// What it stores.
    pub ty: StoredType,
    /// Whether it may hold NULL.
    pub nullable: bool,
}

/// What a column stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredType {
    /// 0 or 1.
    Boolean,
    /// Integers of so many bits.
    Integer {
        /// 8, 16, 24, 32 or 64.
        bits: u8,
        /// Whether there are none below 0.
        unsigned: bool,
    },
    /// Floating point.
    Real {
        /// Whether it has 32 bits.
        single: bool,
        /// Whether there are none below 0.
        unsigned: bool,
    },
    /// Decimals.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
        /// Whether there are none below 0.
        unsigned: bool,
    },
    /// Text.
    Text(Longest),
    /// Bytes: so many at most, and filled up with zeros to as many if it is a BINARY.
    Binary {
        /// How many.
        longest: Option<u32>,
        /// Whether all have this length.
        fixed: bool,
    },
    /// Dates.
    Date,
    /// Dates with times of day.
    Time {
        /// Digits of fractions of seconds.
        digits: u8,
    },
}

/// How long a text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Longest {
    /// As long as a value may be.
    Unbounded,
    /// So many characters; spaces beyond do not count.
    Characters(u32),
    /// So many characters, and spaces at the end are not kept: a CHAR.
    Trimmed(u32),
    /// So many bytes.
    Bytes(u32),
}

/// A value as a statement gives it.
#[derive(Debug, Clone, Copy)]
pub enum GivenValue<'a> {
    /// NULL.
    Null,
    /// A text.
    Text(&'a str),
    /// A number as it is typed.
    Number(&'a str),
    /// The bytes of a hexadecimal literal: a number where one is needed, else text.
    Bits(&'a [u8]),
    /// The first row of a column.
    Computed(&'a arrow::array::ArrayRef),
}

impl StoredType {
    /// The type of its values.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer { bits, unsigned } => match (bits, unsigned) {
                (8, false) => DataType::Int8,
                (16, false) => DataType::Int16,
                (24 | 32, false) => DataType::Int32,
                (_, false) => DataType::Int64,
                (8, true) => DataType::UInt8,
                (16, true) => DataType::UInt16,
                (24 | 32, true) => DataType::UInt32,
                (_, true) => DataType::UInt64,
            },
            Self::Real { single: true, .. } => DataType::Float32,
            Self::Real { single: false, .. } => DataType::Float64,
            Self::Decimal {
                precision, scale, ..
            } => DataType::Decimal128(precision, scale.cast_signed()),
            Self::Text(_) => DataType::Utf8,
            Self::Binary { .. } => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time { .. } => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

impl fmt::Display for StoredType {
    /// As MySQL writes the type; [`StoredType::read`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |unsigned: bool| if unsigned { " UNSIGNED" } else { "" };
        match *self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::Integer { bits, unsigned } => {
                let name = match bits {
                    8 => "TINYINT",
                    16 => "SMALLINT",
                    24 => "MEDIUMINT",
                    32 => "INT",
                    _ => "BIGINT",
                };
                write!(f, "{name}{}", sign(unsigned))
            }
            Self::Real { single, unsigned } => {
                let name = if single { "FLOAT" } else { "DOUBLE" };
                write!(f, "{name}{}", sign(unsigned))
            }
            Self::Decimal {
                precision,
                scale,
                unsigned,
            } => write!(f, "DECIMAL({precision},{scale}){}", sign(unsigned)),
            Self::Text(Longest::Unbounded) => f.write_str("LONGTEXT"),
            Self::Text(Longest::Characters(length)) => write!(f, "VARCHAR({length})"),
            Self::Text(Longest::Trimmed(length)) => write!(f, "CHAR({length})"),
            Self::Text(Longest::Bytes(length)) => write!(f, "TEXT({length})"),
            Self::Binary { longest: None, .. } => f.write_str("LONGBLOB"),
            Self::Binary {
                longest: Some(length),
                fixed,
            } => {
                let name = if fixed { "BINARY" } else { "VARBINARY" };
                write!(f, "{name}({length})")
            }
            Self::Date => f.write_str("DATE"),
            Self::Time { digits: 0 } => f.write_str("DATETIME"),
            Self::Time { digits } => write!(f, "DATETIME({digits})"),
        }
    }
}

impl StoredType {
    /// Reads what [`fmt::Display`] writes.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (text, unsigned) = match text.strip_suffix(" UNSIGNED") {
            Some(signed) => (signed, true),
            None => (text, false),
        };
        let (name, arguments) = match text.strip_suffix(')') {
            Some(text) => text.split_once('(')?,
            None => (text, ""),
        };
        let mut numbers = arguments
            .split(',')
            .map(|number| number.parse::<u32>().ok());
        let first = numbers.next().flatten();
        let second = numbers.next().flatten();
        let small = |number: Option<u32>| u8::try_from(number?).ok();
        Some(match name {
            "BOOLEAN" => Self::Boolean,
            "TINYINT" => Self::Integer { bits: 8, unsigned },
            "SMALLINT" => Self::Integer { bits: 16, unsigned },
            "MEDIUMINT" => Self::Integer { bits: 24, unsigned },
            "INT" => Self::Integer { bits: 32, unsigned },
            "BIGINT" => Self::Integer { bits: 64, unsigned },
            "FLOAT" | "DOUBLE" => Self::Real {
                single: name == "FLOAT",
                unsigned,
            },
            "DECIMAL" => Self::Decimal {
                precision: small(first)?,
                scale: small(second)?,
                unsigned,
            },
            "LONGTEXT" => Self::Text(Longest::Unbounded),
            "VARCHAR" => Self::Text(Longest::Characters(first?)),
            "CHAR" => Self::Text(Longest::Trimmed(first?)),
            "TEXT" => Self::Text(Longest::Bytes(first?)),
            "LONGBLOB" => Self::Binary {
                longest: None,
                fixed: false,
            },
            "BINARY" | "VARBINARY" => Self::Binary {
                longest: Some(first?),
                fixed: name == "BINARY",
            },
            "DATE" => Self::Date,
            "DATETIME" => Self::Time {
                digits: small(first).unwrap_or(0),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_they_are_written() {
        for text in [
            "BOOLEAN",
            "TINYINT",
            "SMALLINT UNSIGNED",
            "MEDIUMINT",
            "INT",
            "BIGINT UNSIGNED",
            "FLOAT",
            "DOUBLE UNSIGNED",
            "DECIMAL(30,10)",
            "DECIMAL(8,2) UNSIGNED",
            "LONGTEXT",
            "VARCHAR(4)",
            "CHAR(0)",
            "TEXT(255)",
            "LONGBLOB",
            "BINARY(3)",
            "VARBINARY(3)",
            "DATE",
            "DATETIME",
            "DATETIME(6)",
        ] {
            let ty = StoredType::read(text).unwrap();
            assert_eq!(ty.to_string(), text);
        }
        for text in ["", "VARCHAR", "DECIMAL(8)", "POINT", "VARCHAR(x)"] {
            assert_eq!(StoredType::read(text), None, "{text}");
        }
    }
}
