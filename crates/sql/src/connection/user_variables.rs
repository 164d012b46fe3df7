//! Variables of users' own, `@x`: set by a connection, and read by its statements.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{DataType, Expr, UnaryOperator, Value as Constant};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::fold::Places;
use crate::functions::mysql::value::{Value, canonical_type, decimal_text, value_at};
use crate::mistakes::unclosed;
use crate::mysql::build::{number, plain_cast};
use crate::{Dialect, ErrorCode, SqlError};

/// The value of a variable. What is neither a number nor text is kept as text, as MySQL keeps it.
#[derive(Debug, Clone, PartialEq)]
pub enum UserValue {
    /// No value.
    Null,
    /// A whole number.
    Integer(i128),
    /// A double.
    Double(f64),
    /// A decimal, as it is written.
    Decimal(String),
    /// Text.
    Text(String),
    /// Bytes that need not be text.
    Bytes(Vec<u8>),
}

impl UserValue {
    /// The value of a column's row.
    ///
    /// # Errors
    /// A type without such values.
    pub fn at(column: &ArrayRef, row: usize) -> Result<Self> {
        let column = cast(column, &canonical_type(column.data_type()))?;
        Ok(match value_at(&column, row)? {
            Value::Null => Self::Null,
            Value::Integer(integer) => Self::Integer(integer),
            Value::Double(double) => Self::Double(double),
            Value::Decimal(digits, scale) => Self::Decimal(decimal_text(digits, scale)),
            Value::Bytes(bytes) => Self::Bytes(bytes),
            other => Self::Text(other.text()),
        })
    }

    /// The value as text, in which what is no UTF-8 has signs of its own; `None` for NULL.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Integer(integer) => Some(integer.to_string()),
            Self::Double(double) => Some(Value::Double(*double).text()),
            Self::Decimal(text) | Self::Text(text) => Some(text.clone()),
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        }
    }

    /// The constant that stands for the value in a statement.
    pub(super) fn constant(&self) -> Expr {
        match self {
            Self::Null => plain_cast(Expr::Value(Constant::Null.into()), DataType::Varchar(None)),
            Self::Integer(integer) => signed(&integer.to_string()),
            // With an exponent, which makes it a double and no decimal.
            Self::Double(double) => signed(&format!("{double:e}")),
            Self::Decimal(text) => signed(text),
            Self::Text(text) => Expr::Value(Constant::SingleQuotedString(text.clone()).into()),
            // A literal by itself may be a number too.
            Self::Bytes(bytes) => {
                let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let literal = Expr::Value(Constant::HexStringLiteral(digits).into());
                plain_cast(literal, DataType::Binary(None))
            }
        }
    }

    /// The same as it is written in a statement's text.
    pub fn literal(&self) -> String {
        match self {
            Self::Null => "NULL".to_owned(),
            Self::Text(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
            other => other.constant().to_string(),
        }
    }
}

/// A number with its sign, which is no part of a literal.
fn signed(digits: &str) -> Expr {
    match digits.strip_prefix('-') {
        None => number(digits),
        Some(positive) => Expr::Nested(Box::new(Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: Box::new(number(positive)),
        })),
    }
}

/// The name of the variable that a token is.
pub(crate) fn user_variable(token: &Token) -> Option<&str> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => {
            let name = word.value.strip_prefix('@')?;
            (!name.is_empty() && !name.starts_with('@')).then_some(name)
        }
        _ => None,
    }
}

/// The variables of a connection, by their names without `@`, which have no case. One that was never set is NULL.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserVariables {
    values: BTreeMap<String, UserValue>,
    bytes: usize,
}

/// Bytes that the variables of a connection may have together.
pub const MOST_BYTES: usize = 16 << 20;

impl UserVariables {
    /// Gives a variable a value; false if there is no room for it, where [`MOST_BYTES`] is the limit.
    #[must_use]
    pub fn set(&mut self, name: &str, value: UserValue) -> bool {
        let name = name.to_ascii_lowercase();
        let size = |name: &str, value: &UserValue| {
            let beyond = match value {
                UserValue::Decimal(text) | UserValue::Text(text) => text.len(),
                UserValue::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            name.len() + size_of::<UserValue>() + beyond
        };
        let before = self.values.get(&name).map_or(0, |value| size(&name, value));
        let bytes = self.bytes - before + size(&name, &value);
        if bytes > MOST_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.values.insert(name, value);
        true
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> &UserValue {
        let name = name.to_ascii_lowercase();
        self.values.get(&name).unwrap_or(&UserValue::Null)
    }

    /// The text of a statement with values in the places of variables, so that it means the same without this connection.
    ///
    /// # Errors
    /// A text or name without an end.
    pub fn written_out(&self, text: &str) -> Result<String, SqlError> {
        if !text.contains('@') {
            return Ok(text.to_owned());
        }
        let tokens = Dialect::MySql.tokenizer(text).tokenize_with_location();
        let tokens = tokens.map_err(|error| {
            SqlError::at(text, error.location, unclosed(&error.message))
                .with_code(ErrorCode::SYNTAX)
        })?;
        let places = Places::new(text);
        let (mut written, mut from) = (String::with_capacity(text.len()), 0);
        for token in &tokens {
            let Some(name) = user_variable(&token.token) else {
                continue;
            };
            written.push_str(&text[from..places.byte(token.span.start)]);
            written.push_str(&self.get(name).literal());
            from = places.byte(token.span.end);
        }
        written.push_str(&text[from..]);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, Date32Array, Decimal128Array, Float32Array, Int16Array, StringArray,
    };

    use super::*;

    #[test]
    fn values_keep_their_types() {
        let decimal = Decimal128Array::from(vec![-1250]).with_precision_and_scale(10, 2);
        let columns: [(ArrayRef, &str, &str); 6] = [
            (
                Arc::new(BinaryArray::from(vec![&b"\xff\0A"[..]])),
                "\u{fffd}\0A",
                "CAST(X'ff0041' AS BINARY)",
            ),
            (Arc::new(Int16Array::from(vec![-7])), "-7", "(-7)"),
            (
                Arc::new(Float32Array::from(vec![1500.5])),
                "1500.5",
                "1.5005e3",
            ),
            (Arc::new(decimal.unwrap()), "-12.50", "(-12.50)"),
            (
                Arc::new(StringArray::from(vec!["it's \\"])),
                "it's \\",
                "'it''s \\\\'",
            ),
            (
                Arc::new(Date32Array::from(vec![1])),
                "1970-01-02",
                "'1970-01-02'",
            ),
        ];
        for (column, text, literal) in columns {
            let value = UserValue::at(&column, 0).unwrap();
            assert_eq!(value.text().as_deref(), Some(text));
            assert_eq!(value.literal(), literal);
        }
    }

    #[test]
    fn variables_are_written_out() {
        let mut variables = UserVariables::default();
        let _ = variables.set("ra", UserValue::Double(-56.75));
        let _ = variables.set("name", UserValue::Text("a'b".to_owned()));
        let typed = "SELECT '@ra', `@ra`, @ra+1, @NAME, @none, @@sql_mode -- @ra\nFROM t";
        let written = "SELECT '@ra', `@ra`, (-5.675e1)+1, 'a''b', NULL, @@sql_mode -- @ra\nFROM t";
        assert_eq!(variables.written_out(typed).unwrap(), written);
        assert!(variables.written_out("SELECT @ra, 'open").is_err());
    }

    #[test]
    fn a_connection_has_room_for_so_much() {
        let mut variables = UserVariables::default();
        let half = UserValue::Text("a".repeat(MOST_BYTES / 2));
        assert!(variables.set("A", half.clone()));
        assert!(!variables.set("b", half.clone()));
        assert!(variables.set("a", UserValue::Integer(1)));
        assert!(variables.set("b", half));
        assert_eq!(variables.get("A"), &UserValue::Integer(1));
        assert_eq!(variables.get("c"), &UserValue::Null);
    }
}
