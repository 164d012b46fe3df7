//! One value of a row as MySQL's functions take it: whatever it is, it can be taken for a number, a text or a time.

use std::num::{IntErrorKind, ParseIntError};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, Float64Type, Int64Type,
    TimeUnit, TimestampMicrosecondType, UInt64Type,
};
use datafusion::common::Result;
use datafusion::common::exec_err;

use super::calendar::{self, Moment};
use super::clock::Clock;
use super::moment_text;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    /// An integer of at most 64 bits, signed or not.
    Integer(i128),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A decimal: its digits without the point, and how many of them are after it.
    Decimal(i128, u8),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 00:00:00.
    Time(i64),
    /// Microseconds since midnight, or those of a span of time, which may be negative.
    TimeOfDay(i64),
}

/// The type in which a column comes to a function: one for each kind of value.
pub(crate) fn canonical_type(given: &DataType) -> DataType {
    match given {
        DataType::UInt64 => DataType::UInt64,
        text @ (DataType::Utf8View | DataType::LargeUtf8) => text.clone(),
        decimal @ DataType::Decimal128(..) => decimal.clone(),
        DataType::Boolean => DataType::Int64,
        integer if integer.is_integer() => DataType::Int64,
        number if number.is_numeric() => DataType::Float64,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date32 | DataType::Date64 => DataType::Date32,
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Duration(_) => DataType::Duration(TimeUnit::Microsecond),
        _ => DataType::Utf8,
    }
}

/// The value of a column of a canonical type in a row.
pub(crate) fn value_at(column: &ArrayRef, row: usize) -> Result<Value> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        DataType::Int64 => Value::Integer(column.as_primitive::<Int64Type>().value(row).into()),
        DataType::UInt64 => Value::Integer(column.as_primitive::<UInt64Type>().value(row).into()),
        DataType::Float64 => Value::Double(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Value::Text(column.as_string::<i32>().value(row).to_owned()),
        DataType::Utf8View => Value::Text(column.as_string_view().value(row).to_owned()),
        DataType::LargeUtf8 => Value::Text(column.as_string::<i64>().value(row).to_owned()),
        DataType::Decimal128(_, scale) => Value::Decimal(
            column.as_primitive::<Decimal128Type>().value(row),
            (*scale).max(0).unsigned_abs(),
        ),
        DataType::Binary => Value::Bytes(column.as_binary::<i32>().value(row).to_owned()),
        DataType::Date32 => Value::Date(column.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            Value::Time(column.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            Value::TimeOfDay(column.as_primitive::<DurationMicrosecondType>().value(row))
        }
        other => return exec_err!("a value of the type {other} cannot be taken here"),
    })
}

impl Value {
    pub(crate) fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// The nearest integer, halves of doubles to the even one and of decimals away from zero; 0 for NULL. What is far beyond
    /// 64 bits is bounded there, so that sums and negatives have room.
    pub(in crate::functions) fn integer(&self) -> i128 {
        match self {
            Self::Integer(integer) => *integer,
            Self::Double(number) => bounded(number.round_ties_even() as i128),
            Self::Decimal(digits, scale) => {
                let unit = power_of_ten(*scale);
                bounded(digits.saturating_add(digits.signum() * (unit / 2)) / unit)
            }
            // A time is rounded as one, not as a number: its seconds end at 59.
            Self::Time(micros) => Self::Time(whole_seconds(*micros)).double() as i128,
            Self::TimeOfDay(micros) => {
                let rounded = micros.signum() * whole_seconds(micros.abs());
                Clock::of_micros(rounded).digits() as i128
            }
            // A text is cut at its point, not rounded.
            Self::Text(text) => bounded(whole_prefix(text)),
            other => bounded(other.double().round() as i128),
        }
    }

    /// The digits of a decimal, without its point.
    pub(super) fn digits(&self) -> i128 {
        match self {
            Self::Decimal(digits, _) => *digits,
            other => other.integer(),
        }
    }

    /// The value as a double; 0 for NULL.
    pub(in crate::functions) fn double(&self) -> f64 {
        match self {
            Self::Null => 0.0,
            Self::Integer(integer) => *integer as f64,
            Self::Double(number) => *number,
            Self::Decimal(digits, scale) => decimal_double(*digits, *scale),
            Self::Text(text) => text_double(text),
            Self::Bytes(bytes) => text_double(&String::from_utf8_lossy(bytes)),
            Self::Date(_) => self.moment().map_or(0.0, |day| day.date_digits() as f64),
            Self::Time(_) => self.moment().map_or(0.0, |moment| moment.digits()),
            Self::TimeOfDay(micros) => Clock::of_micros(*micros).digits(),
        }
    }

    /// Bytes of memory that the value takes beside itself.
    pub(super) fn bytes_beyond(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// The value as text; empty for NULL.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Integer(integer) => integer.to_string(),
            Self::Double(number) => double_text(*number),
            Self::Decimal(digits, scale) => decimal_text(*digits, *scale),
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Date(days) => calendar::date_text(*days),
            Self::Time(micros) => Moment::of_micros(*micros).text(),
            Self::TimeOfDay(micros) => Clock::of_micros(*micros).text(),
        }
    }

    /// The value as bytes.
    pub(in crate::functions) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            other => other.text().into_bytes(),
        }
    }

    /// The value as a time, if it is one of the years 0 to 9999.
    pub(super) fn moment(&self) -> Option<Moment> {
        match self {
            // A span has no date; functions of dates reject it by its type.
            Self::Null | Self::TimeOfDay(_) => None,
            Self::Date(days) => calendar::date_in_range((*days).into())
                .map(|days| Moment::of_micros(i64::from(days) * calendar::MICROS_OF_DAY)),
            Self::Time(micros) => calendar::time_in_range((*micros).into()).map(Moment::of_micros),
            Self::Integer(digits) => moment_text::of_number(*digits),
            Self::Double(_) | Self::Decimal(..) => {
                let (whole, micros) = self.whole_and_micros()?;
                moment_text::of_number_with_micros(whole, micros)
            }
            Self::Text(text) => moment_text::parse(text),
            Self::Bytes(bytes) => moment_text::parse(std::str::from_utf8(bytes).ok()?),
        }
    }

    /// A number as a whole one and millionths, both of its sign; what is beyond millionths is left out. `None` for what is no number, or
    /// far beyond 64 bits.
    pub(super) fn whole_and_micros(&self) -> Option<(i128, i64)> {
        const MICROS: f64 = 1e6;
        Some(match self {
            Self::Integer(integer) => (*integer, 0),
            Self::Double(number) if number.abs() < i64::MAX as f64 => {
                let micros = (number.fract() * MICROS).round();
                // What rounds up to a whole one stays below it.
                (
                    number.trunc() as i128,
                    micros.clamp(1.0 - MICROS, MICROS - 1.0) as i64,
                )
            }
            Self::Decimal(digits, scale) => {
                let unit = power_of_ten(*scale);
                let fraction = digits % unit;
                let micros = match scale {
                    0..=6 => fraction * power_of_ten(6 - scale),
                    _ => fraction / power_of_ten(scale - 6),
                };
                (digits / unit, micros as i64)
            }
            _ => return None,
        })
    }
}

/// The number with which a text begins: a sign, digits, a point, an exponent. `0` if there is none.
pub(crate) fn number_prefix(text: &str) -> &str {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from.min(bytes.len())..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let whole = digits(sign);
    let mut end = sign + whole;
    let fraction = if bytes.get(end) == Some(&b'.') {
        digits(end + 1)
    } else {
        0
    };
    if whole + fraction == 0 {
        return "0";
    }
    if fraction > 0 {
        end += 1 + fraction;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    &text[..end]
}

/// Whether a text is a number and nothing else, but for space around it.
pub(crate) fn is_number(text: &str) -> bool {
    let text = text.trim();
    let prefix = number_prefix(text);
    // What begins with no number is taken for 0.
    text.strip_prefix(prefix)
        .is_some_and(|rest| matches!(rest, "" | "."))
}

/// The largest power of ten that is written out: beyond what any decimal holds.
const LARGEST_EXPONENT: i32 = 100;

/// A number as [`number_prefix`] gives it, its power of ten written out: `15` of `1.5e1`.
pub(crate) fn without_exponent(number: &str) -> String {
    let Some((mantissa, exponent)) = number.split_once(['e', 'E']) else {
        return number.to_owned();
    };
    let beyond = if exponent.starts_with('-') {
        i32::MIN
    } else {
        i32::MAX
    };
    let exponent = exponent.parse().unwrap_or(beyond);
    let exponent = exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa.trim_start_matches('+')),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    // Where the point is among the digits, or before or after them.
    let point = whole.len() as i32 + exponent;
    if point <= 0 {
        let zeros = "0".repeat(point.unsigned_abs() as usize);
        return format!("{sign}0.{zeros}{digits}");
    }
    let point = point as usize;
    match digits.split_at_checked(point) {
        Some((whole, "")) => format!("{sign}{whole}"),
        Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{digits}{}", "0".repeat(point - digits.len())),
    }
}

/// Never -0.0: adding 0.0 makes it positive.
/// Integers below this, and powers of ten up to the second, are doubles exactly, so that their quotient is the nearest double.
const EXACT_INTEGERS: u128 = 1 << 53;
const EXACT_POWERS: u8 = 22;

/// The double that is nearest to a decimal.
fn decimal_double(digits: i128, scale: u8) -> f64 {
    if digits.unsigned_abs() < EXACT_INTEGERS && scale <= EXACT_POWERS {
        return digits as f64 / power_of_ten(scale) as f64;
    }
    // Its form is that of a number.
    format!("{digits}e-{scale}").parse().unwrap_or_default()
}

fn text_double(text: &str) -> f64 {
    number_prefix(text).parse().unwrap_or(0.0) + 0.0
}

fn whole_prefix(text: &str) -> i128 {
    let prefix = number_prefix(text);
    let whole = prefix.split(['.', 'e', 'E']).next().unwrap_or("0");
    let beyond = if whole.starts_with('-') {
        i128::MIN
    } else {
        i128::MAX
    };
    whole.parse().unwrap_or_else(|error: ParseIntError| {
        match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => beyond,
            // Only a fraction: `.5`.
            _ => 0,
        }
    })
}

/// Microseconds rounded to seconds.
fn whole_seconds(micros: i64) -> i64 {
    let half = calendar::MICROS_OF_SECOND / 2;
    (micros + half).div_euclid(calendar::MICROS_OF_SECOND) * calendar::MICROS_OF_SECOND
}

fn bounded(integer: i128) -> i128 {
    const FAR: i128 = 1 << 100;
    integer.clamp(-FAR, FAR)
}

fn power_of_ten(power: u8) -> i128 {
    10_i128.pow(power.into())
}

pub(crate) fn decimal_text(digits: i128, scale: u8) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let digits = digits.unsigned_abs();
    let unit = power_of_ten(scale).unsigned_abs();
    match scale {
        0 => format!("{sign}{digits}"),
        _ => format!(
            "{sign}{}.{:0width$}",
            digits / unit,
            digits % unit,
            width = scale.into()
        ),
    }
}

/// From this power of ten on a double is written with an exponent.
const FIRST_WITH_EXPONENT: i32 = 15;

/// A double as MySQL writes it: the fewest digits that read back to it.
pub(in crate::functions) fn double_text(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-FIRST_WITH_EXPONENT..FIRST_WITH_EXPONENT).contains(&power) {
        format!("{number}")
    } else {
        format!("{digits}e{exponent}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_number_with_which_it_begins() {
        for (text, number) in [
            ("12abc", "12"),
            (" -3.5e1 ", "-3.5e1"),
            ("1e", "1"),
            (".5x", ".5"),
            ("7.", "7"),
            ("abc", "0"),
            ("", "0"),
            ("+", "0"),
        ] {
            assert_eq!(number_prefix(text), number, "{text}");
        }
    }

    #[test]
    fn a_number_is_told_from_what_begins_with_one() {
        for text in ["12", " -3.5e1 ", ".5", "7.", "+1", "0"] {
            assert!(is_number(text), "{text}");
        }
        for text in ["12abc", "abc", "", "1e", "10h", "0x1F", "1 2", "-"] {
            assert!(!is_number(text), "{text}");
        }
    }

    #[test]
    fn times_are_rounded_as_times() {
        // 2000-02-29 23:59:59.999999
        assert_eq!(
            Value::Time(951_868_799_999_999).integer(),
            20_000_301_000_000
        );
        assert_eq!(Value::TimeOfDay(45_296_500_000).integer(), 123_457);
        assert_eq!(Value::TimeOfDay(45_296_499_999).integer(), 123_456);
        assert_eq!(Value::TimeOfDay(-45_296_500_000).integer(), -123_457);
    }

    #[test]
    fn powers_of_ten_are_written_out() {
        for (number, written) in [
            ("12", "12"),
            ("1.5e1", "15"),
            ("1.5e0", "1.5"),
            ("-1.25e-3", "-0.00125"),
            ("+2E3", "2000"),
            (".5e2", "50"),
            ("12.5e1", "125"),
            ("1e-99999999999", &format!("0.{}1", "0".repeat(99))),
        ] {
            assert_eq!(without_exponent(number), written, "{number}");
        }
    }

    #[test]
    fn doubles_are_written_as_mysql_writes_them() {
        for (number, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (1e22, "1e22"),
            (-2.5, "-2.5"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }
}
