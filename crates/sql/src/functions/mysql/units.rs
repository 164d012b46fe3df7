//! Units of time: how long so many of one are, and what the parts of a time are by one.
//!
//! A unit may be made of several, as `hour_minute`: its amount is a text of so many numbers, whatever stands between them, of which the
//! first ones may be missing: `'1:30'`, `'2 1:30:00'`. Before such a unit `-` says that it is subtracted.
//!
//! Source: *MySQL 8.0 Reference Manual*, 9.5, "Temporal Intervals".

use super::calendar::{MICROS_OF_DAY, MICROS_OF_SECOND};
use super::clock::Clock;
use super::spans::Time;
use super::value::Value;

/// Units of time that are months, and how many.
const MONTHS_OF: [(&str, i64); 3] = [("month", 1), ("quarter", 3), ("year", 12)];
/// Units of time that always have the same length, in microseconds.
const MICROS_OF: [(&str, i64); 6] = [
    ("microsecond", 1),
    ("second", MICROS_OF_SECOND),
    ("minute", 60 * MICROS_OF_SECOND),
    ("hour", 3600 * MICROS_OF_SECOND),
    ("day", MICROS_OF_DAY),
    ("week", 7 * MICROS_OF_DAY),
];
/// Units that others are made of, from the longest: all from the first to the last one are meant.
const PARTS: [&str; 7] = [
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "microsecond",
];
/// Digits of a fraction of a second.
const DIGITS_OF_MICROS: usize = 6;

/// By how much a time is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Amount {
    Months(i128),
    Micros(i128),
}

/// So many of a unit; `None` for a text that is no amount of it.
///
/// # Errors
/// There is no such unit.
pub(super) fn amount(number: &Value, unit: &str) -> Result<Option<Amount>, String> {
    if let Some(months) = months_of_unit(unit) {
        let count = number.integer().saturating_mul(months.into());
        return Ok(Some(Amount::Months(count)));
    }
    if let Some(micros) = micros_of_unit(unit) {
        return Ok(Some(Amount::Micros(match unit {
            "second" => (number.double() * micros as f64).round() as i128,
            _ => number.integer().saturating_mul(micros.into()),
        })));
    }
    let (is_subtracted, name) = match unit.strip_prefix('-') {
        Some(name) => (true, name),
        None => (false, unit),
    };
    let parts = parts_of(name).ok_or_else(|| unknown_unit(unit))?;
    Ok(amount_of_parts(&number.text(), parts, is_subtracted))
}

/// The months of a unit that is some; `None` for another.
pub(super) fn months_of_unit(unit: &str) -> Option<i64> {
    size_of_unit(&MONTHS_OF, unit)
}

/// The microseconds of a unit that always has the same length; `None` for another.
pub(super) fn micros_of_unit(unit: &str) -> Option<i64> {
    size_of_unit(&MICROS_OF, unit)
}

fn size_of_unit(units: &[(&str, i64)], unit: &str) -> Option<i64> {
    let mut units = units.iter();
    units.find(|(name, _)| *name == unit).map(|(_, size)| *size)
}

/// The error for a unit that there is not.
pub(super) fn unknown_unit(unit: &str) -> String {
    format!(
        "there is no unit of time {unit}: units are MICROSECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR"
    )
}

/// The units of which one is made.
fn parts_of(unit: &str) -> Option<&'static [&'static str]> {
    let (first, last) = unit.split_once('_')?;
    let place = |name: &str| PARTS.iter().position(|part| *part == name);
    PARTS.get(place(first)?..=place(last)?)
}

/// The amount that a text is in units, each of which has a number in it.
fn amount_of_parts(text: &str, parts: &[&str], is_subtracted: bool) -> Option<Amount> {
    let text = text.trim_start();
    let is_negative = text.starts_with('-') != is_subtracted;
    let mut numbers = text
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let mut found: Vec<&str> = numbers.by_ref().take(parts.len()).collect();
    if numbers.next().is_some() {
        return None;
    }
    // The first ones are missing.
    let missing = parts.len() - found.len();
    let given = &parts[missing..];
    let (mut months, mut micros) = (0_i128, 0_i128);
    for (unit, digits) in given.iter().zip(found.drain(..)) {
        let number: i128 = digits.parse::<u64>().ok()?.into();
        let digits_missing = DIGITS_OF_MICROS.saturating_sub(digits.len()) as u32;
        match (months_of_unit(unit), micros_of_unit(unit)) {
            (Some(size), _) => months += number * i128::from(size),
            // Behind a second its fraction is meant: `1.5` is a second and 500,000 microseconds.
            (_, Some(1)) => micros += number * 10_i128.pow(digits_missing),
            (_, size) => micros += number * i128::from(size.unwrap_or_default()),
        }
    }
    let sign = if is_negative { -1 } else { 1 };
    Some(match parts.contains(&"month") {
        true => Amount::Months(sign * months),
        false => Amount::Micros(sign * micros),
    })
}

/// EXTRACT by a unit that is made of several: the parts of a time as one number, two digits each but the first, six of microseconds.
pub(super) fn extracted(v: &[Value]) -> Result<Value, String> {
    let unit = v[1].text();
    let parts = parts_of(&unit).ok_or_else(|| unknown_unit(&unit))?;
    let time = match parts.contains(&"month") {
        // A text that is a date alone is no time of day.
        true => v[0].moment().map(Time::Moment),
        false => Time::of(&v[0]),
    };
    let (sign, numbers) = match time {
        None => return Ok(Value::Null),
        Some(Time::Moment(m)) => (
            1,
            [m.year, m.month, m.day, m.hour, m.minute, m.second, m.micros],
        ),
        Some(Time::Span(micros)) => {
            let c = Clock::of_micros(micros);
            (c.sign(), [0, 0, 0, c.hours, c.minutes, c.seconds, c.micros])
        }
    };
    let mut extracted = 0;
    for (name, number) in PARTS.iter().zip(numbers) {
        if parts.contains(name) {
            let room = if *name == "microsecond" {
                1_000_000
            } else {
                100
            };
            extracted = extracted * room + number;
        }
    }
    Ok(Value::Integer((sign * extracted).into()))
}

/// Months since the year 0 of a period, `YYYYMM` or `YYMM`; `None` where it is none.
fn months_of_period(period: i128) -> Option<i128> {
    let (year, month) = (period / 100, period % 100);
    let year = match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        _ => year,
    };
    let is_period = period > 0 && (1..=12).contains(&month);
    is_period.then(|| year * 12 + month - 1)
}

fn no_period(function: &str, value: &Value) -> String {
    let shown = value.text();
    format!("{function} takes periods as 201006, a year and a month, and not {shown}")
}

/// PERIOD_ADD(period, months).
pub(super) fn period_add(v: &[Value]) -> Result<Value, String> {
    /// The last month that is a period.
    const LAST: i128 = 9999 * 12 + 11;
    let months = months_of_period(v[0].integer()).ok_or_else(|| no_period("PERIOD_ADD", &v[0]))?;
    let moved = months.saturating_add(v[1].integer());
    Ok(match (0..=LAST).contains(&moved) {
        true => Value::Integer(moved / 12 * 100 + moved % 12 + 1),
        false => Value::Null,
    })
}

/// PERIOD_DIFF(period, period): the months between two.
pub(super) fn period_diff(v: &[Value]) -> Result<Value, String> {
    let months = |value: &Value| {
        months_of_period(value.integer()).ok_or_else(|| no_period("PERIOD_DIFF", value))
    };
    Ok(Value::Integer(months(&v[0])? - months(&v[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn amounts_of_several_units_are_read() {
        let minute = 60 * i128::from(MICROS_OF_SECOND);
        for (given, unit, expected) in [
            ("1:30", "hour_minute", Some(Amount::Micros(90 * minute))),
            ("1:30", "-hour_minute", Some(Amount::Micros(-90 * minute))),
            ("-1:30", "hour_minute", Some(Amount::Micros(-90 * minute))),
            ("30", "hour_minute", Some(Amount::Micros(30 * minute))),
            ("1 1:1", "day_minute", Some(Amount::Micros(1501 * minute))),
            ("1-2", "year_month", Some(Amount::Months(14))),
            ("1.5", "second_microsecond", Some(Amount::Micros(1_500_000))),
            (
                "1.000005",
                "second_microsecond",
                Some(Amount::Micros(1_000_005)),
            ),
            ("1:2:3", "hour_minute", None),
            ("", "hour_minute", Some(Amount::Micros(0))),
            ("99999999999999999999", "hour_minute", None),
        ] {
            assert_eq!(
                amount(&text(given), unit).unwrap(),
                expected,
                "{given} {unit}"
            );
        }
        let typed = Value::Decimal(130, 2);
        let expected = Some(Amount::Micros(90 * minute));
        assert_eq!(amount(&typed, "hour_minute").unwrap(), expected);
        assert!(amount(&text("1"), "hour_year").is_err());
        assert!(amount(&text("1"), "fortnight").is_err());
    }

    /// The examples of the manual, and a half that is rounded away from zero.
    #[test]
    fn single_units_take_whole_numbers() {
        let minute = 60 * i128::from(MICROS_OF_SECOND);
        let of = |value: Value, unit: &str| amount(&value, unit).unwrap();
        assert_eq!(
            of(Value::Decimal(25, 1), "minute"),
            Some(Amount::Micros(3 * minute))
        );
        assert_eq!(
            of(Value::Decimal(25, 1), "second"),
            Some(Amount::Micros(2_500_000))
        );
        assert_eq!(of(Value::Integer(2), "year"), Some(Amount::Months(24)));
    }

    #[test]
    fn parts_are_extracted_as_one_number() {
        let of = |given: &str, unit: &str| extracted(&[text(given), text(unit)]).unwrap();
        for (given, unit, expected) in [
            ("2019-07-02 01:02:03", "year_month", 201_907),
            ("2019-07-02 01:02:03", "day_minute", 20_102),
            ("2019-07-02 01:02:03", "day_second", 2_010_203),
            ("2019-07-02 01:02:03.25", "second_microsecond", 3_250_000),
            ("11:07:15", "hour_second", 110_715),
            ("-11:07:15", "hour_minute", -1107),
        ] {
            assert_eq!(of(given, unit), Value::Integer(expected), "{given} {unit}");
        }
        assert_eq!(
            of("2019-07-02", "year_month"),
            Value::Integer(201_907),
            "a date alone"
        );
        assert_eq!(of("x", "hour_minute"), Value::Null);
    }

    #[test]
    fn periods_are_moved_by_months() {
        let of = |one: i128, other: i128, function: fn(&[Value]) -> Result<Value, String>| {
            function(&[Value::Integer(one), Value::Integer(other)])
        };
        assert_eq!(of(200_801, 2, period_add), Ok(Value::Integer(200_803)));
        assert_eq!(of(9_912, 1, period_add), Ok(Value::Integer(200_001)));
        assert_eq!(of(200_801, -1, period_add), Ok(Value::Integer(200_712)));
        assert_eq!(of(200_802, 200_703, period_diff), Ok(Value::Integer(11)));
        assert_eq!(of(200_801, i128::MAX, period_add), Ok(Value::Null));
        assert!(of(13, 1, period_add).is_err());
        assert!(of(0, 1, period_add).is_err());
    }
}
