//! Columns and their types, as the catalog writes them down.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::CatalogError;

/// The type of a column's values. Written in lower case: `int32`, `decimal(10,2)`, `timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// Signed 8-bit integer.
    Int8,
    /// Signed 16-bit integer.
    Int16,
    /// Signed 32-bit integer.
    Int32,
    /// Signed 64-bit integer.
    Int64,
    /// Unsigned 8-bit integer.
    UInt8,
    /// Unsigned 16-bit integer.
    UInt16,
    /// Unsigned 32-bit integer.
    UInt32,
    /// Unsigned 64-bit integer.
    UInt64,
    /// 32-bit floating point; never NaN (NaN is NULL).
    Float32,
    /// 64-bit floating point; never NaN (NaN is NULL).
    Float64,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
    /// Decimal number: `precision` digits in all (1 to 38), `scale` of them after the point.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the decimal point, at most `precision`.
        scale: u8,
    },
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01 00:00:00, without a time zone.
    Timestamp,
}

/// The types that have no parameters, by name.
const PLAIN_TYPES: [(&str, ColumnType); 15] = [
    ("boolean", ColumnType::Boolean),
    ("int8", ColumnType::Int8),
    ("int16", ColumnType::Int16),
    ("int32", ColumnType::Int32),
    ("int64", ColumnType::Int64),
    ("uint8", ColumnType::UInt8),
    ("uint16", ColumnType::UInt16),
    ("uint32", ColumnType::UInt32),
    ("uint64", ColumnType::UInt64),
    ("float32", ColumnType::Float32),
    ("float64", ColumnType::Float64),
    ("text", ColumnType::Text),
    ("binary", ColumnType::Binary),
    ("date", ColumnType::Date),
    ("timestamp", ColumnType::Timestamp),
];

impl ColumnType {
    /// Whether it is one of the eight integer types.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Int8
                | Self::Int16
                | Self::Int32
                | Self::Int64
                | Self::UInt8
                | Self::UInt16
                | Self::UInt32
                | Self::UInt64
        )
    }

    /// Whether it is one of the two floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Decimal { precision, scale } = self {
            return write!(f, "decimal({precision},{scale})");
        }
        let name = PLAIN_TYPES.iter().find(|(_, ty)| ty == self);
        f.write_str(name.map_or("decimal", |(name, _)| name))
    }
}

impl FromStr for ColumnType {
    type Err = CatalogError;

    fn from_str(text: &str) -> Result<Self, CatalogError> {
        let unknown = || CatalogError::UnknownColumnType(text.to_owned());
        if let Some((_, ty)) = PLAIN_TYPES.iter().find(|(name, _)| *name == text) {
            return Ok(*ty);
        }
        let (precision, scale) = text
            .strip_prefix("decimal(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|numbers| numbers.split_once(','))
            .ok_or_else(unknown)?;
        let precision: u8 = precision.trim().parse().map_err(|_| unknown())?;
        let scale: u8 = scale.trim().parse().map_err(|_| unknown())?;
        if !(1..=38).contains(&precision) || scale > precision {
            return Err(unknown());
        }
        Ok(Self::Decimal { precision, scale })
    }
}

impl From<ColumnType> for String {
    fn from(ty: ColumnType) -> Self {
        ty.to_string()
    }
}

impl TryFrom<String> for ColumnType {
    type Error = CatalogError;

    fn try_from(text: String) -> Result<Self, CatalogError> {
        text.parse()
    }
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The name as it was declared; it compares without regard to case.
    pub name: String,
    /// The type of its values.
    pub ty: ColumnType,
    /// Whether it may hold NULL.
    pub nullable: bool,
    /// The MySQL type as it was declared in a schema, e.g. `double NOT NULL`, if there was one.
    pub declared: Option<String>,
}

impl Column {
    /// The expression behind DEFAULT in its declaration: `'a b'` of `varchar(9) DEFAULT 'a b' COMMENT 'it'`. `None` where there is none, or
    /// NULL.
    pub fn default_expression(&self) -> Option<&str> {
        const WORD: &str = "default";
        let declared = self.declared.as_deref()?;
        let words = stretches(declared);
        let at = words
            .iter()
            .position(|word| word.eq_ignore_ascii_case(WORD))?;
        let value = words.get(at + 1)?;
        (!value.eq_ignore_ascii_case("null")).then_some(*value)
    }
}

/// What stands between spaces that are neither in quotes nor in parentheses.
fn stretches(text: &str) -> Vec<&str> {
    let (mut found, mut begin) = (Vec::new(), None);
    let (mut quote, mut escaped, mut depth) = (None, false, 0_usize);
    for (at, character) in text.char_indices() {
        if character.is_whitespace() && quote.is_none() && depth == 0 {
            found.extend(begin.take().map(|begin: usize| &text[begin..at]));
            continue;
        }
        begin.get_or_insert(at);
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            // A doubled quote ends the text and begins it again.
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    found.extend(begin.map(|begin| &text[begin..]));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_back_as_written() {
        let decimal = ColumnType::Decimal {
            precision: 10,
            scale: 2,
        };
        for ty in PLAIN_TYPES.iter().map(|(_, ty)| *ty).chain([decimal]) {
            assert_eq!(ty.to_string().parse::<ColumnType>().unwrap(), ty);
        }
        assert_eq!(decimal.to_string(), "decimal(10,2)");
    }

    #[test]
    fn defaults_are_read_off_the_declaration() {
        for (declared, expected) in [
            ("int", None),
            ("int DEFAULT NULL", None),
            ("int(11) DEFAULT '9999'", Some("'9999'")),
            ("INT NOT NULL default -1", Some("-1")),
            (
                "varchar(40) DEFAULT 'it''s \\' default' COMMENT 'x'",
                Some("'it''s \\' default'"),
            ),
            (
                "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
                Some("CURRENT_TIMESTAMP"),
            ),
            ("double DEFAULT (1 + sqrt(2))", Some("(1 + sqrt(2))")),
            ("enum('default', 'x')", None),
            ("text COMMENT 'the default value'", None),
        ] {
            let column = Column {
                name: "c".to_owned(),
                ty: ColumnType::Text,
                nullable: true,
                declared: Some(declared.to_owned()),
            };
            assert_eq!(column.default_expression(), expected, "{declared}");
        }
    }

    #[test]
    fn other_words_are_no_types() {
        for text in [
            "",
            "INT8",
            "decimal",
            "decimal(39,1)",
            "decimal(3,4)",
            "decimal(1)",
            "float",
        ] {
            let error = text.parse::<ColumnType>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
