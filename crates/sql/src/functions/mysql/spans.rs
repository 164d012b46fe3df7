//! Functions that give times of day and spans of time, from -838:59:59 to 838:59:59. What is no time gives NULL.
//!
//! Source: *MySQL 8.0 Reference Manual*, 14.7, "Date and Time Functions".

use super::calendar::{MICROS_OF_SECOND, Moment, time_in_range};
use super::clock::Clock;
use super::formatted::formatted_clock;
use super::row_function::{Arity, ReturnType, RowFunction, TIME_TEXT};
use super::times::{too_precise, unit_of_digits};
use super::value::Value;

const ONE: Arity = Arity(1, 1);
const TWO: Arity = Arity(2, 2);

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::new("mysql_time", ONE, ReturnType::TimeOfDay, |v| {
        Ok(Clock::of(&v[0]).map_or(Value::Null, span))
    }),
    // What CAST makes of a value: rounded to so many digits of a second.
    RowFunction::new("mysql_time_cast", TWO, ReturnType::TimeOfDay, |v| {
        let digits = v[1].integer();
        let Some(unit) = unit_of_digits(digits) else {
            return Err(too_precise("CAST", digits));
        };
        Ok(Clock::of(&v[0]).map_or(Value::Null, |clock| {
            let micros = clock.to_micros();
            let rounded = (micros.abs() + unit / 2) / unit * unit;
            span(Clock::of_micros(micros.signum() * rounded))
        }))
    }),
    // Of times of day alone.
    RowFunction::new(TIME_TEXT, ONE, ReturnType::Text, |v| {
        Ok(Value::Text(v[0].text()))
    }),
    RowFunction::new("mysql_timediff", TWO, ReturnType::TimeOfDay, timediff),
    RowFunction::new("mysql_addtime", TWO, ReturnType::SpanAsGiven, |v| {
        shifted(v, 1)
    }),
    RowFunction::new("mysql_subtime", TWO, ReturnType::SpanAsGiven, |v| {
        shifted(v, -1)
    }),
    RowFunction::new("mysql_sec_to_time", ONE, ReturnType::TimeOfDay, |v| {
        Ok(span(Clock::of_sum(micros_of_seconds(&v[0]))))
    }),
    RowFunction::new(
        "mysql_maketime",
        Arity(3, 3),
        ReturnType::TimeOfDay,
        maketime,
    ),
    RowFunction::new("mysql_time_format", TWO, ReturnType::Text, |v| {
        Ok(match Clock::of(&v[0]) {
            Some(clock) => Value::Text(formatted_clock(clock, &v[1].text())),
            None => Value::Null,
        })
    }),
];

fn span(clock: Clock) -> Value {
    Value::TimeOfDay(clock.to_micros())
}

/// A time of day or a span, or a date with a time of day.
pub(super) enum Time {
    Span(i64),
    Moment(Moment),
}

impl Time {
    /// What a value is; a text and a number are dates where they are long enough for one with a time of day.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let has_date = match value {
            Value::Date(_) | Value::Time(_) => true,
            Value::Text(text) => Clock::has_date(text),
            Value::Bytes(bytes) => std::str::from_utf8(bytes).is_ok_and(Clock::has_date),
            Value::Integer(_) | Value::Double(_) | Value::Decimal(..) => {
                Clock::is_number_with_date(value)
            }
            Value::Null | Value::TimeOfDay(_) => false,
        };
        match has_date {
            true => value.moment().map(Self::Moment),
            false => Clock::of(value).map(|clock| Self::Span(clock.to_micros())),
        }
    }
}

/// TIMEDIFF of two spans, or of two dates with times of day; NULL of one of each.
fn timediff(v: &[Value]) -> Result<Value, String> {
    let difference = match (Time::of(&v[0]), Time::of(&v[1])) {
        (Some(Time::Span(from)), Some(Time::Span(less))) => i128::from(from) - i128::from(less),
        (Some(Time::Moment(from)), Some(Time::Moment(less))) => {
            i128::from(from.to_micros()) - i128::from(less.to_micros())
        }
        _ => return Ok(Value::Null),
    };
    Ok(span(Clock::of_sum(difference)))
}

/// ADDTIME and SUBTIME: a time or a span moved by a span. Texts and numbers become texts.
fn shifted(v: &[Value], sign: i128) -> Result<Value, String> {
    let (Some(time), Some(Time::Span(by))) = (Time::of(&v[0]), Time::of(&v[1])) else {
        return Ok(Value::Null);
    };
    let by = sign * i128::from(by);
    let moved = match time {
        Time::Span(micros) => Some(span(Clock::of_sum(i128::from(micros) + by))),
        Time::Moment(moment) => time_in_range(i128::from(moment.to_micros()) + by).map(Value::Time),
    };
    Ok(match (moved, &v[0]) {
        (None, _) => Value::Null,
        (Some(moved), Value::Date(_) | Value::Time(_) | Value::TimeOfDay(_)) => moved,
        (Some(moved), _) => Value::Text(moved.text()),
    })
}

/// Microseconds of a number of seconds, which may be far beyond all spans.
fn micros_of_seconds(value: &Value) -> i128 {
    const FAR: f64 = 1e12;
    let number = match value {
        Value::Integer(_) | Value::Decimal(..) => value.clone(),
        other => Value::Double(other.double().clamp(-FAR, FAR)),
    };
    match number.whole_and_micros() {
        Some((seconds, micros)) => {
            let bounded = seconds.clamp(-(FAR as i128), FAR as i128);
            bounded * i128::from(MICROS_OF_SECOND) + i128::from(micros)
        }
        None => 0,
    }
}

/// MAKETIME(hour, minute, second): NULL where minute or second are none.
fn maketime(v: &[Value]) -> Result<Value, String> {
    let (hours, minutes) = (v[0].integer(), v[1].integer());
    let seconds = micros_of_seconds(&v[2]);
    let minute = i128::from(60 * MICROS_OF_SECOND);
    if !(0..60).contains(&minutes) || !(0..minute).contains(&seconds) {
        return Ok(Value::Null);
    }
    let size = hours.abs().saturating_mul(60).saturating_add(minutes);
    let size = size.saturating_mul(minute).saturating_add(seconds);
    Ok(span(Clock::of_sum(if hours < 0 { -size } else { size })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, values: &[Value]) -> String {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        function.unwrap().row(values).unwrap().text()
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    /// The examples of MySQL's manual, and the ends of the range.
    #[test]
    fn spans_are_computed_with() {
        for (name, left, right, expected) in [
            (
                "mysql_timediff",
                "2000-01-01 00:00:00",
                "2000-01-01 00:00:00.000001",
                "-00:00:00.000001",
            ),
            (
                "mysql_timediff",
                "2008-12-31 23:59:59.000001",
                "2008-12-30 01:01:01.000002",
                "46:58:57.999999",
            ),
            ("mysql_timediff", "10:00:00", "2008-12-30 01:01:01", ""),
            (
                "mysql_timediff",
                "9999-12-31 00:00:00",
                "0001-01-01 00:00:00",
                "838:59:59",
            ),
            ("mysql_timediff", "-838:59:59", "01:00:00", "-838:59:59"),
            (
                "mysql_addtime",
                "2007-12-31 23:59:59.999999",
                "1 1:1:1.000002",
                "2008-01-02 01:01:01.000001",
            ),
            (
                "mysql_addtime",
                "01:00:00.999999",
                "02:00:00.999998",
                "03:00:01.999997",
            ),
            (
                "mysql_subtime",
                "01:00:00.999999",
                "02:00:00.999998",
                "-00:59:59.999999",
            ),
            (
                "mysql_subtime",
                "2007-12-31 23:59:59.999999",
                "1 1:1:1.000002",
                "2007-12-30 22:58:58.999997",
            ),
            ("mysql_addtime", "01:00:00", "2007-12-31 23:59:59", ""),
            (
                "mysql_time_format",
                "100:00:00",
                "%H %k %h %I %l",
                "100 100 04 04 4",
            ),
        ] {
            assert_eq!(
                given(name, &[text(left), text(right)]),
                expected,
                "{name} {left} {right}"
            );
        }
        for (seconds, expected) in [
            (Value::Integer(2378), "00:39:38"),
            (Value::Integer(-4_000_000), "-838:59:59"),
            (Value::Decimal(-15, 1), "-00:00:01.500000"),
            (Value::Double(1e300), "838:59:59"),
        ] {
            assert_eq!(given("mysql_sec_to_time", &[seconds]), expected);
        }
        let make = |hour, minute, second| {
            given(
                "mysql_maketime",
                &[Value::Integer(hour), Value::Integer(minute), second],
            )
        };
        assert_eq!(make(12, 15, Value::Integer(30)), "12:15:30");
        assert_eq!(make(-12, 15, Value::Decimal(305, 1)), "-12:15:30.500000");
        assert_eq!(make(12, 60, Value::Integer(0)), "");
        assert_eq!(make(i128::MAX, 0, Value::Integer(0)), "838:59:59");
        let cast = |digits| {
            given(
                "mysql_time_cast",
                &[text("-11:07:15.56"), Value::Integer(digits)],
            )
        };
        assert_eq!(
            (cast(0), cast(1)),
            ("-11:07:16".to_owned(), "-11:07:15.600000".to_owned())
        );
    }
}
