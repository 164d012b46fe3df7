//! Functions of dates and times. What is no date gives NULL.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

use super::calendar::{
    DAYS_BEFORE_EPOCH, LAST_YEAR, MICROS_OF_DAY, MICROS_OF_SECOND, MONTHS, Moment, WEEKDAYS,
    century, date_in_range, date_text, day_number, days_of_month, time_in_range,
};
use super::clock::Clock;
use super::formatted::{formatted, week};
use super::moment_text::{self, of_number};
use super::row_function::{Arity, ReturnType, RowFunction};
use super::str_to_date;
use super::strings::Strings;
use super::units::{self, Amount};
use super::value::Value;

const ONE: Arity = Arity(1, 1);
const TWO: Arity = Arity(2, 2);
const THREE: Arity = Arity(3, 3);

/// A microsecond before the year 0.
const BEFORE_ALL_TIMES: i64 = -DAYS_BEFORE_EPOCH * MICROS_OF_DAY - 1;

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::new("mysql_year", ONE, ReturnType::Integer, |v| {
        part(v, |m| m.year)
    }),
    RowFunction::new("mysql_month", ONE, ReturnType::Integer, |v| {
        part(v, |m| m.month)
    }),
    RowFunction::new("mysql_day", ONE, ReturnType::Integer, |v| {
        part(v, |m| m.day)
    }),
    RowFunction::new("mysql_hour", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.hours)
    }),
    RowFunction::new("mysql_minute", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.minutes)
    }),
    RowFunction::new("mysql_second", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.seconds)
    }),
    RowFunction::new("mysql_microsecond", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.micros)
    }),
    // EXTRACT's have the sign of the span.
    RowFunction::new("mysql_extract_hour", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.sign() * c.hours)
    }),
    RowFunction::new("mysql_extract_minute", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.sign() * c.minutes)
    }),
    RowFunction::new("mysql_extract_second", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.sign() * c.seconds)
    }),
    RowFunction::new("mysql_extract_microsecond", ONE, ReturnType::Integer, |v| {
        clock(v, |c| c.sign() * c.micros)
    }),
    RowFunction::new("mysql_quarter", ONE, ReturnType::Integer, |v| {
        part(v, |m| (m.month + 2) / 3)
    }),
    RowFunction::new("mysql_weekday", ONE, ReturnType::Integer, |v| {
        part(v, Moment::weekday)
    }),
    RowFunction::new("mysql_dayofweek", ONE, ReturnType::Integer, |v| {
        part(v, |m| (m.weekday() + 1) % 7 + 1)
    }),
    RowFunction::new("mysql_dayofyear", ONE, ReturnType::Integer, |v| {
        part(v, Moment::day_of_year)
    }),
    // A mode that is NULL is 0.
    RowFunction::new("mysql_week", Arity(1, 2), ReturnType::Integer, |v| {
        let mode = v.get(1).map_or(0, Value::integer);
        part(v, |m| week(m, mode as u8).1)
    })
    .seeing_nulls(),
    RowFunction::new("mysql_yearweek", Arity(1, 2), ReturnType::Integer, |v| {
        // Weeks of a year are counted from 1 here.
        let mode = v.get(1).map_or(0, Value::integer) as u8 | 2;
        part(v, |m| {
            let (year, week) = week(m, mode);
            year * 100 + week
        })
    })
    .seeing_nulls(),
    RowFunction::new("mysql_to_days", ONE, ReturnType::Integer, |v| {
        part(v, |m| m.days() + DAYS_BEFORE_EPOCH)
    }),
    RowFunction::new("mysql_to_seconds", ONE, ReturnType::Integer, |v| {
        part(v, |m| {
            let since_epoch = m.to_micros().div_euclid(MICROS_OF_SECOND);
            since_epoch + DAYS_BEFORE_EPOCH * (MICROS_OF_DAY / MICROS_OF_SECOND)
        })
    }),
    RowFunction::new(
        "mysql_period_add",
        TWO,
        ReturnType::Integer,
        units::period_add,
    ),
    RowFunction::new(
        "mysql_period_diff",
        TWO,
        ReturnType::Integer,
        units::period_diff,
    ),
    // Of a unit that is made of several.
    RowFunction::new(
        "mysql_extract_parts",
        TWO,
        ReturnType::Integer,
        units::extracted,
    ),
    RowFunction::new("mysql_from_days", ONE, ReturnType::Date, |v| {
        date(v[0].integer() - i128::from(DAYS_BEFORE_EPOCH))
    }),
    RowFunction::new("mysql_last_day", ONE, ReturnType::Date, |v| {
        match v[0].moment() {
            Some(m) => date((m.days() - m.day + days_of_month(m.year, m.month)).into()),
            None => Ok(Value::Null),
        }
    }),
    RowFunction::new("mysql_makedate", TWO, ReturnType::Date, |v| {
        match (v[0].integer(), v[1].integer()) {
            (year @ 0..=9999, day @ 1..) => {
                let year = if year < 100 {
                    century(year as i64)
                } else {
                    year as i64
                };
                date(i128::from(day_number(year, 1, 1)) + day - 1)
            }
            _ => Ok(Value::Null),
        }
    }),
    RowFunction::new("mysql_date", ONE, ReturnType::Date, |v| {
        v[0].moment()
            .map_or(Ok(Value::Null), |m| date(m.days().into()))
    }),
    RowFunction::new("mysql_timestamp", ONE, ReturnType::Time, |v| {
        Ok(v[0]
            .moment()
            .map_or(Value::Null, |m| Value::Time(m.to_micros())))
    }),
    RowFunction::new("mysql_timestamp_plus", TWO, ReturnType::Time, |v| {
        match (v[0].moment(), Clock::of(&v[1])) {
            (Some(m), Some(span)) => time(i128::from(m.to_micros()) + i128::from(span.to_micros())),
            _ => Ok(Value::Null),
        }
    }),
    // What a number is where it is compared with a time: one that is none is before all of them, as MariaDB's zero date.
    RowFunction::new("mysql_number_moment", ONE, ReturnType::Time, |v| {
        let micros = v[0].moment().map_or(BEFORE_ALL_TIMES, Moment::to_micros);
        Ok(Value::Time(micros))
    }),
    // The present time, cut off behind so many digits of a second.
    RowFunction::new("mysql_now", Arity(1, 2), ReturnType::Time, |v| {
        let digits = v.get(1).map_or(0, Value::integer);
        let Some(unit) = unit_of_digits(digits) else {
            return Err(too_precise("NOW", digits));
        };
        match v[0].moment() {
            Some(m) => Ok(Value::Time(m.to_micros().div_euclid(unit) * unit)),
            None => Ok(Value::Null),
        }
    }),
    // What CAST makes of a value: rounded to so many digits of a second.
    RowFunction::new("mysql_timestamp_cast", TWO, ReturnType::Time, |v| {
        let digits = v[1].integer();
        let Some(unit) = unit_of_digits(digits) else {
            return Err(too_precise("CAST", digits));
        };
        let rounded = |m: Moment| (m.to_micros() + unit / 2).div_euclid(unit) * unit;
        match v[0].moment() {
            Some(m) => time(rounded(m).into()),
            None => Ok(Value::Null),
        }
    }),
    RowFunction::new("mysql_dayname", ONE, ReturnType::Text, |v| {
        named(v, |m| WEEKDAYS[m.weekday() as usize])
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_monthname", ONE, ReturnType::Text, |v| {
        named(v, |m| MONTHS[m.month as usize - 1])
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_time_to_sec", ONE, ReturnType::Integer, |v| {
        clock(v, Clock::whole_seconds)
    }),
    RowFunction::new(
        "mysql_unix_timestamp",
        ONE,
        ReturnType::SecondsAsGiven,
        |v| Ok(v[0].moment().map_or(Value::Null, unix_timestamp)),
    ),
    // Of what is known to have no fraction.
    RowFunction::new("mysql_unix_seconds", ONE, ReturnType::Integer, |v| {
        Ok(v[0].moment().map_or(Value::Null, unix_timestamp))
    }),
    RowFunction::new("mysql_from_unixtime", ONE, ReturnType::Time, from_unixtime),
    RowFunction::new("mysql_date_format", TWO, ReturnType::Text, |v| {
        match v[0].moment() {
            Some(moment) => Ok(Value::Text(formatted(moment, &v[1].text()))),
            None => Ok(Value::Null),
        }
    }),
    RowFunction::new("mysql_str_to_date", TWO, ReturnType::Time, |v| {
        let read = str_to_date::parse(&v[0].text(), &v[1].text());
        Ok(read.map_or(Value::Null, |m| Value::Time(m.to_micros())))
    }),
    RowFunction::new("mysql_str_to_time", TWO, ReturnType::TimeOfDay, |v| {
        let read = str_to_date::parse_time(&v[0].text(), &v[1].text());
        Ok(read.map_or(Value::Null, Value::TimeOfDay))
    }),
    RowFunction::new("mysql_convert_tz", THREE, ReturnType::Time, convert_tz),
    RowFunction::new("mysql_date_add", THREE, ReturnType::DateAsGiven, |v| {
        moved(v, TimeOfDay::AsGiven)
    }),
    RowFunction::new("mysql_time_add", THREE, ReturnType::TimeAsGiven, |v| {
        moved(v, TimeOfDay::Always)
    }),
    RowFunction::new(
        "mysql_timestampdiff",
        THREE,
        ReturnType::Integer,
        timestampdiff,
    ),
];

/// A time of one time zone in another. Zones are offsets such as `+05:30`, or UTC; those with names are not known, and give NULL, as
/// in a MySQL server without tables of time zones.
fn convert_tz(v: &[Value]) -> Result<Value, String> {
    let offsets = (offset(&v[1].text()), offset(&v[2].text()));
    match (v[0].moment(), offsets) {
        (Some(moment), (Some(from), Some(to))) => {
            let minute = 60 * i128::from(MICROS_OF_SECOND);
            let given = i128::from(moment.to_micros());
            let micros_of_utc = given - i128::from(from) * minute;
            // What Unix time does not have stays as it is.
            match is_of_unix(micros_of_utc) && micros_of_utc >= i128::from(MICROS_OF_SECOND) {
                true => time(micros_of_utc + i128::from(to) * minute),
                false => time(given),
            }
        }
        _ => Ok(Value::Null),
    }
}

/// The minutes by which a time zone is ahead of UTC, from -13:59 to +14:00.
fn offset(zone: &str) -> Option<i64> {
    if ["UTC", "GMT", "SYSTEM"]
        .iter()
        .any(|it| zone.eq_ignore_ascii_case(it))
    {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('+') {
        Some(rest) => (1, rest),
        None => (-1, zone.strip_prefix('-')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |digits: &str| {
        let is_number =
            (1..=2).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
        is_number.then(|| digits.parse::<i64>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let ahead = sign * (hours * 60 + minutes);
    (minutes < 60 && (-13 * 60 - 59..=14 * 60).contains(&ahead)).then_some(ahead)
}

/// Days since 1970-01-01 of the day that a number is by its digits; nothing where it has a time of day too.
pub(crate) fn days_of_number(number: i64) -> Option<i32> {
    let moment = of_number(number.into())?;
    let at_midnight = moment.to_micros().rem_euclid(MICROS_OF_DAY) == 0;
    at_midnight.then(|| moment.days() as i32)
}

/// Whether a text is a date, with a time of day or without.
pub(crate) fn is_moment(text: &str) -> bool {
    Value::Text(text.to_owned()).moment().is_some()
}

/// Whether a text is a time of day or a span of time.
pub(crate) fn is_clock(text: &str) -> bool {
    Clock::of(&Value::Text(text.to_owned())).is_some()
}

/// Whether a text can be read by a format, as a date or as a time of day alone.
pub(crate) fn is_read_by_format(as_clock: bool, text: &str, format: &str) -> bool {
    match as_clock {
        true => str_to_date::parse_time(text, format).is_some(),
        false => str_to_date::parse(text, format).is_some(),
    }
}

/// Whether a number is one by its digits, or the zero that MySQL has for no date; `None` for what is no number.
pub(crate) fn is_number_of_moment(number: &ScalarValue) -> Option<bool> {
    let number = number.cast_to(&DataType::Float64).ok()?;
    let ScalarValue::Float64(Some(number)) = number else {
        return None;
    };
    Some(number == 0.0 || Value::Double(number).moment().is_some())
}

/// Of the time of day, or the span of time, that a value is.
fn clock(v: &[Value], of: impl Fn(Clock) -> i64) -> Result<Value, String> {
    Ok(Clock::of(&v[0]).map_or(Value::Null, |clock| Value::Integer(of(clock).into())))
}

/// The last second that Unix time has in MySQL: 3001-01-18 23:59:59.
const LAST_UNIX_SECOND: i128 = 32_536_771_199;
/// Decimals of a second.
const PLACES_OF_MICROS: u8 = 6;

/// Microseconds since 1970 as a decimal of seconds; 0 for times that Unix time does not have.
fn unix_timestamp(moment: Moment) -> Value {
    let micros = i128::from(moment.to_micros());
    Value::Decimal(
        if is_of_unix(micros) { micros } else { 0 },
        PLACES_OF_MICROS,
    )
}

/// Whether Unix time has a number of microseconds.
fn is_of_unix(micros: i128) -> bool {
    (0..(LAST_UNIX_SECOND + 1) * i128::from(MICROS_OF_SECOND)).contains(&micros)
}

/// The time at so many seconds since 1970.
fn from_unixtime(v: &[Value]) -> Result<Value, String> {
    let number = match &v[0] {
        Value::Integer(_) | Value::Double(_) | Value::Decimal(..) => v[0].clone(),
        other => Value::Double(other.double()),
    };
    match number.whole_and_micros() {
        Some((seconds @ 0..=LAST_UNIX_SECOND, micros @ 0..)) => {
            time(seconds * i128::from(MICROS_OF_SECOND) + i128::from(micros))
        }
        _ => Ok(Value::Null),
    }
}

fn part(v: &[Value], of: impl Fn(Moment) -> i64) -> Result<Value, String> {
    Ok(v[0]
        .moment()
        .map_or(Value::Null, |moment| Value::Integer(of(moment).into())))
}

fn named(v: &[Value], of: fn(Moment) -> &'static str) -> Result<Value, String> {
    Ok(v[0]
        .moment()
        .map_or(Value::Null, |moment| Value::Text(of(moment).to_owned())))
}

/// A date, or NULL where there is none: beyond the years 0 to 9999.
fn date(days: i128) -> Result<Value, String> {
    Ok(date_in_range(days).map_or(Value::Null, Value::Date))
}

/// A time, or NULL where there is none.
fn time(micros: i128) -> Result<Value, String> {
    Ok(time_in_range(micros).map_or(Value::Null, Value::Time))
}

/// Where a text that is moved has its time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeOfDay {
    /// Where it was typed with one, or has come to one.
    AsGiven,
    Always,
}

/// A date or a time that is moved: dates stay dates by whole days, and texts and numbers become texts.
fn moved(v: &[Value], time_of_day: TimeOfDay) -> Result<Value, String> {
    if let Value::TimeOfDay(micros) = &v[0] {
        return moved_span(*micros, v);
    }
    let moved = date_add(v)?;
    let Value::Time(micros) = moved else {
        return Ok(moved);
    };
    let days = micros.div_euclid(MICROS_OF_DAY) as i32;
    Ok(match (&v[0], time_of_day) {
        (Value::Date(_), TimeOfDay::AsGiven) => Value::Date(days),
        (Value::Date(_) | Value::Time(_), _) => moved,
        (given, TimeOfDay::AsGiven) if !has_time_of_day(given) => Value::Text(date_text(days)),
        _ if v[2].text().ends_with("microsecond") => {
            let moment = Moment::of_micros(micros);
            let seconds = Moment {
                micros: 0,
                ..moment
            };
            Value::Text(format!("{}.{:06}", seconds.text(), moment.micros))
        }
        _ => Value::Text(moved.text()),
    })
}

/// A span that is moved: it has no months. What is longer than a span may be is NULL.
fn moved_span(micros: i64, v: &[Value]) -> Result<Value, String> {
    let unit = v[2].text();
    let by = match units::amount(&v[1], &unit)? {
        Some(Amount::Micros(by)) => by,
        Some(Amount::Months(_)) => {
            let unit = unit.trim_start_matches('-');
            return Err(format!(
                "a TIME is not supported beside INTERVAL n {unit}: it has no date"
            ));
        }
        None => return Ok(Value::Null),
    };
    let sum = i128::from(micros).saturating_add(by);
    let longest = Clock::of_sum(sum).to_micros();
    Ok(match sum == i128::from(longest) {
        true => Value::TimeOfDay(longest),
        false => Value::Null,
    })
}

/// Microseconds of the last of so many digits of a second; `None` if there are more than six.
pub(super) fn unit_of_digits(digits: i128) -> Option<i64> {
    let digits = u32::try_from(digits).ok().filter(|it| *it <= 6)?;
    Some(MICROS_OF_SECOND / 10_i64.pow(digits))
}

/// The error for more digits of a second than there are.
pub(super) fn too_precise(function: &str, digits: i128) -> String {
    format!("{function} has at most 6 digits of a second, not {digits}")
}

/// Functions of dates, which a time of day alone does not have.
pub(super) fn takes_dates(function: &str) -> bool {
    const OF_DATES: [&str; 25] = [
        "mysql_year",
        "mysql_month",
        "mysql_day",
        "mysql_quarter",
        "mysql_week",
        "mysql_yearweek",
        "mysql_weekday",
        "mysql_dayofweek",
        "mysql_dayofyear",
        "mysql_dayname",
        "mysql_monthname",
        "mysql_to_days",
        "mysql_to_seconds",
        "mysql_last_day",
        "mysql_date",
        "mysql_timestamp",
        "mysql_timestamp_cast",
        "mysql_date_format",
        "mysql_unix_timestamp",
        "mysql_unix_seconds",
        "mysql_convert_tz",
        "mysql_timestampdiff",
        "mysql_now",
        "mysql_number_moment",
        "mysql_from_days",
    ];
    OF_DATES.contains(&function)
}

/// Whether a text or a number is a date with a time of day.
fn has_time_of_day(given: &Value) -> bool {
    match given {
        Value::Text(_) | Value::Bytes(_) => moment_text::has_time(&given.text()),
        _ => given.integer() >= moment_text::FIRST_WITH_TIME,
    }
}

fn date_add(v: &[Value]) -> Result<Value, String> {
    let Some(moment) = v[0].moment() else {
        return Ok(Value::Null);
    };
    match units::amount(&v[1], &v[2].text())? {
        None => Ok(Value::Null),
        Some(Amount::Months(months)) => {
            // More than all months there are is as good as any number of them.
            let most = i128::from(12 * (LAST_YEAR + 1));
            let months = months.clamp(-most, most);
            time(moment.plus_months(months as i64).to_micros().into())
        }
        Some(Amount::Micros(micros)) => time(micros.saturating_add(moment.to_micros().into())),
    }
}

/// How many whole units lie between two times.
fn timestampdiff(v: &[Value]) -> Result<Value, String> {
    let unit = v[0].text();
    let (Some(from), Some(to)) = (v[1].moment(), v[2].moment()) else {
        return Ok(Value::Null);
    };
    if let Some(micros) = units::micros_of_unit(&unit) {
        return Ok(Value::Integer(
            ((to.to_micros() - from.to_micros()) / micros).into(),
        ));
    }
    let Some(size) = units::months_of_unit(&unit) else {
        return Err(units::unknown_unit(&unit));
    };
    let (early, late, sign) = if from.to_micros() <= to.to_micros() {
        (from, to, 1)
    } else {
        (to, from, -1)
    };
    let within_month = |m: Moment| (m.day, m.to_micros().rem_euclid(MICROS_OF_DAY));
    let months = (late.year - early.year) * 12 + late.month
        - early.month
        - i64::from(within_month(late) < within_month(early));
    Ok(Value::Integer((sign * (months / size)).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_as_long_as_its_seconds() {
        assert_eq!(MICROS_OF_DAY, 86_400 * MICROS_OF_SECOND);
        assert_eq!(units::micros_of_unit("day"), Some(MICROS_OF_DAY));
    }
}
