//! What a column stores of a value that it cannot hold, where a statement is to go on nevertheless, as LOAD DATA LOCAL is: the nearest that
//! it can hold, with a warning.
//!
//! Source: *MySQL 8.0 Reference Manual*, 15.2.9, "LOAD DATA Statement", and 7.1.11, "Server SQL Modes". There is no zero date here: what is no
//! date becomes NULL.

use arrow::array::ArrayRef;

use super::super::value::{Value, number_prefix, value_at, without_exponent};
use super::column::{canonical, told};
use super::exact::rounded_digits;
use super::value::range;
use super::{GivenValue, Longest, RowFault, StoredColumn, StoredType};
use crate::{ErrorCode, Warning};

impl StoredColumn {
    /// What the column stores of texts and NULLs, or what is nearest to it, with a warning; `before` rows came before them.
    ///
    /// # Errors
    /// The first row for whose value there is nothing near: the column holds dates, and no NULL.
    pub fn of_texts<'a>(
        &self,
        values: impl Iterator<Item = GivenValue<'a>>,
        before: usize,
        mut warn: impl FnMut(Warning),
    ) -> Result<ArrayRef, RowFault> {
        let stored = values.enumerate().map(|(row, given)| {
            let text = match given {
                GivenValue::Text(text) => Some(text),
                GivenValue::Computed(_) => {
                    return self.given_value(given).map_err(|error| (row, error));
                }
                _ => None,
            };
            self.typed_value(given).or_else(|error| {
                let Some(value) = self.nearest(text) else {
                    return Err((row, error));
                };
                warn(self.warning(text, error.code(), before + row + 1));
                Ok(value)
            })
        });
        self.collected(stored)
    }

    /// What the column stores of each value of a column of any type, or what is nearest to it, with a warning; `row_of` tells the number of
    /// a row, which warnings and errors have.
    ///
    /// # Errors
    /// The first row for whose value there is nothing near, by its number: the column holds dates, and no NULL.
    pub fn of_column_adjusted(
        &self,
        values: &ArrayRef,
        row_of: impl Fn(usize) -> usize,
        mut warn: impl FnMut(Warning),
    ) -> Result<ArrayRef, RowFault> {
        if let Ok(stored) = self.of_column(values) {
            return Ok(stored);
        }
        let values = canonical(values, self.ty).map_err(|error| (row_of(0), error))?;
        let stored = (0..values.len()).map(|row| {
            let value = value_at(&values, row).map_err(|error| (row_of(row), told(&error)))?;
            self.value(&value).or_else(|error| {
                let text = (!value.is_null()).then(|| value.text());
                let Some(nearest) = self.nearest(text.as_deref()) else {
                    return Err((row_of(row), error));
                };
                warn(self.warning(text.as_deref(), error.code(), row_of(row)));
                Ok(nearest)
            })
        });
        self.collected(stored)
    }

    /// What is nearest to a text, or to NULL in a column that has none.
    fn nearest(&self, text: Option<&str>) -> Option<Value> {
        match self.ty {
            StoredType::Boolean => Some(Value::Integer(whole(text, 0, 1))),
            StoredType::Integer { bits, unsigned } => {
                let (least, most) = range(bits, unsigned);
                Some(Value::Integer(whole(text, least, most)))
            }
            StoredType::Real { single, unsigned } => {
                Some(Value::Double(real(text, single, unsigned)))
            }
            StoredType::Decimal {
                precision,
                scale,
                unsigned,
            } => {
                let most = 10_i128.pow(precision.into()) - 1;
                let least = if unsigned { 0 } else { -most };
                Some(Value::Decimal(digits(text, scale, least, most), scale))
            }
            StoredType::Text(longest) => Some(Value::Text(beginning(text.unwrap_or(""), longest))),
            StoredType::Binary { longest, fixed } => {
                let mut bytes = text.unwrap_or("").as_bytes().to_vec();
                let most = longest.map_or(bytes.len(), |longest| longest as usize);
                bytes.truncate(most);
                if fixed {
                    bytes.resize(most, 0);
                }
                Some(Value::Bytes(bytes))
            }
            StoredType::Date | StoredType::Time { .. } => self.nullable.then_some(Value::Null),
        }
    }

    fn warning(&self, text: Option<&str>, code: ErrorCode, row: usize) -> Warning {
        let name = &self.name;
        let kind = match self.ty {
            StoredType::Real { single: true, .. } => "float",
            StoredType::Real { .. } => "double",
            StoredType::Decimal { .. } => "decimal",
            _ => "integer",
        };
        let (code, sentence) = match (text, code) {
            (None, _) => (
                ErrorCode::NULL_TO_NOT_NULL,
                format!(
                    "Column set to default value; NULL supplied to NOT NULL column '{name}' at row {row}"
                ),
            ),
            (Some(text), ErrorCode::WRONG_ROW) => {
                let text: String = text.chars().take(SHOWN).collect();
                let sentence =
                    format!("Incorrect {kind} value: '{text}' for column '{name}' at row {row}");
                (code, sentence)
            }
            (_, ErrorCode::VALUE_OUT_OF_RANGE) => (
                code,
                format!("Out of range value for column '{name}' at row {row}"),
            ),
            _ => (
                ErrorCode::DATA_TRUNCATED,
                format!("Data truncated for column '{name}' at row {row}"),
            ),
        };
        Warning { code, sentence }
    }
}

/// Characters of a value that a warning shows.
const SHOWN: usize = 80;

/// The number with which a text begins, in digits with so many behind the point; the last in its direction if it is beyond them.
fn digits(text: Option<&str>, scale: u8, least: i128, most: i128) -> i128 {
    let number = without_exponent(number_prefix(text.unwrap_or("0")));
    let beyond = if number.starts_with('-') { least } else { most };
    rounded_digits(&number, scale).map_or(beyond, |digits| digits.clamp(least, most))
}

fn whole(text: Option<&str>, least: i128, most: i128) -> i128 {
    digits(text, 0, least, most)
}

fn real(text: Option<&str>, single: bool, unsigned: bool) -> f64 {
    let number: f64 = number_prefix(text.unwrap_or("0")).parse().unwrap_or(0.0);
    let most = if single {
        f64::from(f32::MAX)
    } else {
        f64::MAX
    };
    let least = if unsigned { 0.0 } else { -most };
    number.clamp(least, most) + 0.0
}

/// As much of a text as a column has room for.
fn beginning(text: &str, longest: Longest) -> String {
    match longest {
        Longest::Unbounded => text.to_owned(),
        Longest::Bytes(most) => text[..text.floor_char_boundary(most as usize)].to_owned(),
        Longest::Characters(most) => text.chars().take(most as usize).collect(),
        Longest::Trimmed(most) => {
            let kept: String = text.chars().take(most as usize).collect();
            kept.trim_end_matches(' ').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Float64Array;
    use arrow::util::display::array_value_to_string;

    use super::*;

    /// Values and numbers of warnings from MariaDB 10.11, but for what is no date, which is a zero date there.
    #[test]
    fn what_a_column_cannot_hold_becomes_the_nearest() {
        for (ty, text, expected, code) in [
            ("INT", "12abc", "12", 1265),
            ("INT", "abc", "0", 1366),
            ("INT", "", "0", 1366),
            ("INT", "1e30", "2147483647", 1264),
            ("TINYINT UNSIGNED", "-5", "0", 1264),
            ("TINYINT", "-129.7", "-128", 1264),
            ("DECIMAL(5,2)", "1234.5", "999.99", 1264),
            ("DECIMAL(5,2)", "1.255x", "1.26", 1265),
            ("DECIMAL(5,2) UNSIGNED", "-1", "0.00", 1264),
            ("DOUBLE", "1e400", "1.7976931348623157e308", 1264),
            ("DOUBLE UNSIGNED", "-1.5", "0.0", 1264),
            ("VARCHAR(3)", "äöüß", "äöü", 1265),
            ("CHAR(3)", "a  bc", "a", 1265),
            ("TEXT(3)", "äö", "ä", 1265),
            ("VARBINARY(2)", "abc", "6162", 1265),
            ("DATE", "2010-02-30", "", 1265),
            ("DATETIME", "soon", "", 1265),
        ] {
            let column = StoredColumn {
                name: "c".to_owned(),
                ty: StoredType::read(ty).unwrap(),
                nullable: true,
            };
            let mut told = vec![];
            let stored = column
                .of_texts([GivenValue::Text(text)].into_iter(), 6, |warning| {
                    told.push((warning.code.number, warning.sentence.ends_with("at row 7")));
                })
                .unwrap();
            assert_eq!(
                array_value_to_string(&stored, 0).unwrap(),
                expected,
                "{text} as {ty}"
            );
            assert_eq!(told, [(code, true)], "{text} as {ty}");
        }
    }

    #[test]
    fn computed_values_become_the_nearest() {
        let column = StoredColumn {
            name: "c".to_owned(),
            ty: StoredType::read("TINYINT").unwrap(),
            nullable: false,
        };
        let values = [Some(1.5), Some(300.0), None, Some(-7.0)];
        let values: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        let mut told = vec![];
        let stored = column.of_column_adjusted(
            &values,
            |row| row + 3,
            |warning| told.push((warning.code.number, warning.sentence)),
        );
        let stored = stored.unwrap();
        let shown = |row| array_value_to_string(&stored, row).unwrap();
        assert_eq!([0, 1, 2, 3].map(shown), ["2", "127", "0", "-7"]);
        let numbers: Vec<u16> = told.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1264, 1263]);
        assert!(told[0].1.ends_with("at row 4") && told[1].1.ends_with("at row 5"));
    }

    #[test]
    fn null_becomes_the_default_of_the_type() {
        for (ty, expected) in [("INT", Some("0")), ("VARCHAR(3)", Some("")), ("DATE", None)] {
            let column = StoredColumn {
                name: "c".to_owned(),
                ty: StoredType::read(ty).unwrap(),
                nullable: false,
            };
            let mut told = vec![];
            let stored = column.of_texts([GivenValue::Null].into_iter(), 0, |warning| {
                told.push(warning.code.number);
            });
            match expected {
                Some(text) => {
                    let stored = stored.unwrap();
                    assert_eq!(array_value_to_string(&stored, 0).unwrap(), text);
                    assert_eq!(told, [1263], "{ty}");
                }
                None => assert_eq!(stored.unwrap_err().1.code().number, 1048),
            }
        }
    }
}
