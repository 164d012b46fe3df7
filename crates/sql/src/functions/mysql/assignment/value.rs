//! What a column stores of one value.

use super::super::calendar::{self, MICROS_OF_DAY, Moment};
use super::super::value::{Value, decimal_text, double_text, number_prefix, without_exponent};
use super::exact::{as_written, rounded_digits};
use super::time::{rounded, written_moment};
use super::{GivenValue, Longest, StoredColumn, StoredType};
use crate::{ErrorCode, SqlError};

type StoredValue = Result<Value, SqlError>;

/// Characters of a value that a message shows.
const SHOWN: usize = 80;

impl StoredColumn {
    /// What the column stores of a value that is typed; [`GivenValue::Computed`] is for [`Self::value`].
    pub(super) fn typed_value(&self, given: GivenValue<'_>) -> StoredValue {
        match given {
            GivenValue::Text(text) => self.value(&Value::Text(text.to_owned())),
            GivenValue::Number(digits) => self.number(digits),
            GivenValue::Bits(bytes) => self.bits(bytes),
            GivenValue::Null | GivenValue::Computed(_) => self.value(&Value::Null),
        }
    }

    /// What the column stores of a value.
    pub(super) fn value(&self, value: &Value) -> StoredValue {
        if value.is_null() {
            return match self.nullable {
                true => Ok(Value::Null),
                false => Err(self.null()),
            };
        }
        if let (StoredType::Text(_), Value::Bytes(bytes)) = (self.ty, value) {
            return self.bits(bytes);
        }
        match self.ty {
            StoredType::Boolean => self.integer(value, 0, 1),
            StoredType::Integer { bits, unsigned } => {
                let (least, most) = range(bits, unsigned);
                self.integer(value, least, most)
            }
            StoredType::Real { single, unsigned } => self.real(value, single, unsigned),
            StoredType::Decimal { .. } => self.decimal(&self.exact(value)?, value),
            StoredType::Text(longest) => self.text(text_of(value), longest),
            StoredType::Binary { longest, fixed } => self.binary(value.bytes(), longest, fixed),
            StoredType::Date => Ok(Value::Date(self.moment(value)?.days() as i32)),
            StoredType::Time { digits } => {
                let micros = rounded(self.moment(value)?.to_micros(), digits);
                let in_range = calendar::time_in_range(micros.into());
                Ok(Value::Time(in_range.ok_or_else(|| self.no_time(value))?))
            }
        }
    }

    /// A number as it is typed, with all its digits.
    fn number(&self, digits: &str) -> StoredValue {
        if digits.contains(['e', 'E']) {
            let number: f64 = digits.parse().unwrap_or(f64::INFINITY);
            if number.is_infinite() {
                let sentence = format!("{} is too large for a number", shown(digits));
                return Err(SqlError::new(sentence).with_code(ErrorCode::ILLEGAL_NUMBER));
            }
            return self.value(&Value::Double(number + 0.0));
        }
        let text = as_written(digits);
        match self.ty {
            StoredType::Text(longest) => self.text(text, longest),
            StoredType::Binary { longest, fixed } => self.binary(text.into_bytes(), longest, fixed),
            StoredType::Date | StoredType::Time { .. } => match rounded_digits(&text, 0) {
                Some(integer) if !text.contains('.') => self.value(&Value::Integer(integer)),
                _ => Err(self.no_time(&Value::Text(text))),
            },
            // As a text of a number, which has all of its digits.
            _ => self.value(&Value::Text(text)),
        }
    }

    fn bits(&self, bytes: &[u8]) -> StoredValue {
        match self.ty {
            StoredType::Text(longest) => match std::str::from_utf8(bytes) {
                Ok(text) => self.text(text.to_owned(), longest),
                Err(_) => {
                    let sentence = format!(
                        "the bytes for the column {} are no text in UTF-8",
                        self.name
                    );
                    Err(SqlError::new(sentence).with_code(ErrorCode::WRONG_ROW))
                }
            },
            StoredType::Binary { longest, fixed } => self.binary(bytes.to_vec(), longest, fixed),
            _ if bytes.len() > size_of::<u64>() => {
                Err(self.beyond("a number of more than 64 bits"))
            }
            _ => {
                let number =
                    { bytes.iter() }.fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
                self.value(&Value::Integer(number))
            }
        }
    }

    fn integer(&self, value: &Value, least: i128, most: i128) -> StoredValue {
        let integer = match value {
            Value::Integer(integer) => Some(*integer),
            // To the nearest, halves to the even one.
            Value::Double(number) if number.is_finite() => Some(number.round_ties_even() as i128),
            Value::Double(_) => None,
            other => rounded_digits(&self.exact(other)?, 0),
        };
        match integer {
            Some(integer) if (least..=most).contains(&integer) => Ok(Value::Integer(integer)),
            _ => Err(self.beyond(&text_of(value))),
        }
    }

    fn real(&self, value: &Value, single: bool, unsigned: bool) -> StoredValue {
        let number = match value {
            Value::Text(text) => self.number_of_text(text)?.parse().unwrap_or(f64::INFINITY),
            Value::Bytes(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                self.number_of_text(&text)?.parse().unwrap_or(f64::INFINITY)
            }
            other => other.double(),
        };
        let stored = match single {
            true => f64::from(number as f32),
            false => number,
        };
        if !stored.is_finite() || (unsigned && stored < 0.0) {
            return Err(self.beyond(&text_of(value)));
        }
        Ok(Value::Double(stored + 0.0))
    }

    fn decimal(&self, exact: &str, value: &Value) -> StoredValue {
        let StoredType::Decimal {
            precision,
            scale,
            unsigned,
        } = self.ty
        else {
            return Ok(Value::Null);
        };
        let most = 10_i128.pow(precision.into()) - 1;
        match rounded_digits(exact, scale) {
            Some(digits) if digits.abs() <= most && !(unsigned && digits < 0) => {
                Ok(Value::Decimal(digits, scale))
            }
            _ => Err(self.beyond(&text_of(value))),
        }
    }

    /// All digits of a number, without an exponent.
    fn exact(&self, value: &Value) -> Result<String, SqlError> {
        Ok(match value {
            Value::Decimal(digits, scale) => decimal_text(*digits, *scale),
            // The fewest digits that read back to the double, as in MySQL.
            Value::Double(number) => format!("{number}"),
            Value::Text(text) => without_exponent(self.number_of_text(text)?),
            Value::Bytes(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                without_exponent(self.number_of_text(&text)?)
            }
            Value::Time(micros) => {
                let moment = Moment::of_micros(*micros);
                format!("{}{}", moment.date_digits(), time_digits(moment))
            }
            Value::TimeOfDay(_) => format!("{:.6}", value.double()),
            Value::Date(_) => format!("{}", value.double()),
            other => other.text(),
        })
    }

    /// The number that a text is, from its first letter to its last.
    fn number_of_text<'a>(&self, text: &'a str) -> Result<&'a str, SqlError> {
        let begun = text.trim_start();
        let number = number_prefix(begun);
        let rest = begun.strip_prefix(number);
        match rest.map(str::trim_end) {
            Some("" | ".") => Ok(number),
            // What begins with no number is taken for 0.
            None => Err(self.wrong(text, ErrorCode::WRONG_ROW)),
            // Beyond the range it is, whatever follows.
            Some(_) => match self.value(&Value::Text(number.to_owned())) {
                Err(error) if error.code() == ErrorCode::VALUE_OUT_OF_RANGE => Err(error),
                _ => Err(self.wrong(text, ErrorCode::DATA_TRUNCATED)),
            },
        }
    }

    fn text(&self, mut text: String, longest: Longest) -> StoredValue {
        let fits = match longest {
            Longest::Unbounded => true,
            Longest::Bytes(most) => text.len() <= most as usize,
            Longest::Characters(most) | Longest::Trimmed(most) => {
                if let Some((end, _)) = text.char_indices().nth(most as usize) {
                    let is_space = text[end..].bytes().all(|byte| byte == b' ');
                    if !is_space {
                        return Err(self.too_long(text.chars().count(), most, "characters"));
                    }
                    text.truncate(end);
                }
                true
            }
        };
        if let (false, Longest::Bytes(most)) = (fits, longest) {
            return Err(self.too_long(text.len(), most, "bytes"));
        }
        if let Longest::Trimmed(_) = longest {
            text.truncate(text.trim_end_matches(' ').len());
        }
        Ok(Value::Text(text))
    }

    fn binary(&self, mut bytes: Vec<u8>, longest: Option<u32>, fixed: bool) -> StoredValue {
        if let Some(most) = longest {
            if bytes.len() > most as usize {
                return Err(self.too_long(bytes.len(), most, "bytes"));
            }
            if fixed {
                bytes.resize(most as usize, 0);
            }
        }
        Ok(Value::Bytes(bytes))
    }

    fn moment(&self, value: &Value) -> Result<Moment, SqlError> {
        let moment = match value {
            Value::Text(text) => written_moment(text),
            Value::Bytes(bytes) => written_moment(&String::from_utf8_lossy(bytes)),
            Value::TimeOfDay(_) => None,
            other => other.moment(),
        };
        let moment = moment.filter(|moment| {
            calendar::date_in_range(moment.to_micros().div_euclid(MICROS_OF_DAY).into()).is_some()
        });
        moment.ok_or_else(|| self.no_time(value))
    }

    /// The error for NULL in a column that has none.
    fn null(&self) -> SqlError {
        let sentence = format!("the column {} cannot be NULL", self.name);
        SqlError::new(sentence).with_code(ErrorCode::NULL_VALUE)
    }

    fn wrong(&self, text: &str, code: ErrorCode) -> SqlError {
        let sentence = format!(
            "{:?} is not a valid {} for the column {}",
            shown(text),
            self.ty,
            self.name
        );
        SqlError::new(sentence).with_code(code)
    }

    fn no_time(&self, value: &Value) -> SqlError {
        let sentence = format!(
            "{:?} is no date or time for the column {}, a {}",
            shown(&text_of(value)),
            self.name,
            self.ty
        );
        SqlError::new(sentence).with_code(ErrorCode::TRUNCATED_VALUE)
    }

    fn beyond(&self, value: &str) -> SqlError {
        let sentence = format!(
            "{} is out of range for the column {}, a {}",
            shown(value),
            self.name,
            self.ty
        );
        SqlError::new(sentence).with_code(ErrorCode::VALUE_OUT_OF_RANGE)
    }

    fn too_long(&self, length: usize, most: u32, units: &str) -> SqlError {
        let sentence = format!(
            "{length} {units} are too long for the column {}, which takes {most}",
            self.name
        );
        SqlError::new(sentence).with_code(ErrorCode::DATA_TOO_LONG)
    }
}

/// The least and the most of integers of so many bits.
pub(super) fn range(bits: u8, unsigned: bool) -> (i128, i128) {
    match unsigned {
        true => (0, (1 << bits) - 1),
        false => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

/// The digits of a time of day, with its fraction.
fn time_digits(moment: Moment) -> String {
    let Moment {
        hour,
        minute,
        second,
        micros,
        ..
    } = moment;
    format!("{hour:02}{minute:02}{second:02}.{micros:06}")
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Double(number) => double_text(*number),
        other => other.text(),
    }
}

/// The beginning of a text that may be long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(ty: &str) -> StoredColumn {
        StoredColumn {
            name: "c".to_owned(),
            ty: StoredType::read(ty).unwrap(),
            nullable: true,
        }
    }

    fn stored(ty: &str, given: GivenValue<'_>) -> Result<String, u16> {
        let stored = column(ty).typed_value(given);
        stored
            .map(|value| value.text())
            .map_err(|error| error.code().number)
    }

    /// Values and numbers of errors from MariaDB 10.11 in strict mode.
    #[test]
    fn typed_values_are_stored_exactly() {
        use GivenValue::{Bits, Number, Text};
        for (ty, given, expected) in [
            (
                "VARCHAR(40)",
                Number("9007199254740993"),
                Ok("9007199254740993"),
            ),
            ("VARCHAR(40)", Number("1.50"), Ok("1.50")),
            ("VARCHAR(40)", Number("-.5"), Ok("-0.5")),
            ("VARCHAR(40)", Number("1e3"), Ok("1000")),
            ("DECIMAL(8,2)", Number("1.005"), Ok("1.01")),
            ("DECIMAL(8,2)", Number("-1.005"), Ok("-1.01")),
            ("DECIMAL(8,2)", Number("1.005e0"), Ok("1.01")),
            ("DECIMAL(8,2)", Number("999999.995"), Err(1264)),
            ("DECIMAL(8,2) UNSIGNED", Number("-1"), Err(1264)),
            (
                "DECIMAL(30,10)",
                Number("12345678901234567890.0123456789"),
                Ok("12345678901234567890.0123456789"),
            ),
            ("DECIMAL(8,2)", Text("1.5e1"), Ok("15.00")),
            ("DECIMAL(8,2)", Text("1.5x"), Err(1265)),
            ("DECIMAL(8,2)", Text("x"), Err(1366)),
            (
                "BIGINT",
                Number("9223372036854775807"),
                Ok("9223372036854775807"),
            ),
            ("BIGINT", Number("9223372036854775808"), Err(1264)),
            (
                "BIGINT UNSIGNED",
                Number("18446744073709551615"),
                Ok("18446744073709551615"),
            ),
            ("BIGINT UNSIGNED", Number("-1"), Err(1264)),
            ("INT", Number("0.5"), Ok("1")),
            ("INT", Number("-2.5"), Ok("-3")),
            ("INT", Number("2.5e0"), Ok("2")),
            ("INT", Text("12.7"), Ok("13")),
            ("INT", Text(" 12 "), Ok("12")),
            ("INT", Text("12abc"), Err(1265)),
            ("INT", Text("0x1F"), Err(1265)),
            ("INT", Text(""), Err(1366)),
            ("TINYINT", Number("128"), Err(1264)),
            ("INT", Bits(b"A"), Ok("65")),
            ("VARCHAR(4)", Bits(b"A"), Ok("A")),
            ("VARCHAR(4)", Bits(b"\xff"), Err(1366)),
            ("VARCHAR(4)", Text("abcde"), Err(1406)),
            ("VARCHAR(4)", Text("äöüß"), Ok("äöüß")),
            ("VARCHAR(4)", Text("abcd  "), Ok("abcd")),
            ("VARCHAR(4)", Text("ab  "), Ok("ab  ")),
            ("CHAR(4)", Text("ab  "), Ok("ab")),
            ("CHAR(4)", Text("abcde"), Err(1406)),
            ("TEXT(3)", Text("äö"), Err(1406)),
            ("BINARY(3)", Text("a"), Ok("a\0\0")),
            ("VARBINARY(3)", Text("abcd"), Err(1406)),
            ("FLOAT", Number("0.1"), Ok("0.10000000149011612")),
            ("FLOAT", Number("1e39"), Err(1264)),
            ("DOUBLE", Number("1e400"), Err(1367)),
            ("DOUBLE", Text("1e400"), Err(1264)),
            (
                "DOUBLE",
                Number("0.1000000000000000055511151231257827021181583404541015625"),
                Ok("0.1"),
            ),
            ("DATE", Number("20100103"), Ok("2010-01-03")),
            ("DATE", Number("20101399"), Err(1292)),
            ("DATE", Text("2010-1-3"), Ok("2010-01-03")),
            ("DATE", Text("2010-01-03 23:59:59"), Ok("2010-01-03")),
            ("DATE", Text("2010-02-30"), Err(1292)),
            (
                "DATETIME",
                Text("2010-01-03 01:02:03.5"),
                Ok("2010-01-03 01:02:04"),
            ),
            (
                "DATETIME(3)",
                Text("2010-01-03 01:02:03.4567"),
                Ok("2010-01-03 01:02:03.457000"),
            ),
            ("DATETIME", Text("9999-12-31 23:59:59.5"), Err(1292)),
            ("BOOLEAN", Number("1"), Ok("1")),
            ("BOOLEAN", Number("5"), Err(1264)),
        ] {
            let stored = stored(ty, given);
            let stored = stored.as_deref().map_err(|number| *number);
            assert_eq!(stored, expected, "{given:?} as {ty}");
        }
    }

    #[test]
    fn computed_values_are_stored_by_their_types() {
        for (ty, value, expected) in [
            ("VARCHAR(20)", Value::Double(123.0), Ok("123")),
            (
                "VARCHAR(20)",
                Value::Time(1_276_563_723_000_000),
                Ok("2010-06-15 01:02:03"),
            ),
            (
                "BIGINT",
                Value::Time(1_276_563_723_000_000),
                Ok("20100615010203"),
            ),
            ("DOUBLE", Value::Date(14_775), Ok("20100615")),
            ("DATE", Value::Time(1_276_563_723_000_000), Ok("2010-06-15")),
            (
                "DECIMAL(32,4)",
                Value::Time(1_276_563_723_456_700),
                Ok("20100615010203.4567"),
            ),
            ("DATE", Value::TimeOfDay(5), Err(1292)),
            ("DECIMAL(5,1)", Value::Decimal(-1_250, 3), Ok("-1.3")),
            ("INT", Value::Double(1e300), Err(1264)),
            ("BIGINT", Value::Double(9.3e18), Err(1264)),
        ] {
            let stored = column(ty).value(&value);
            let stored = stored.map(|it| it.text()).map_err(|it| it.code().number);
            assert_eq!(stored.as_deref().map_err(|it| *it), expected, "{value:?}");
        }
        let strict = StoredColumn {
            nullable: false,
            ..column("INT")
        };
        assert_eq!(strict.value(&Value::Null).unwrap_err().code().number, 1048);
        assert_eq!(column("INT").value(&Value::Null), Ok(Value::Null));
    }
}
