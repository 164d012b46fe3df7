//! Times of day and spans of time as MySQL reads them off any value: `11:07:15.5`, `-100:00:01`, `1 02:03:04`, 110715.
//!
//! Source: *MySQL 8.0 Reference Manual*, 11.2.3, "The TIME Type".

use super::calendar::{MICROS_OF_SECOND, Moment};
use super::moment_text::{self, fraction_micros, leading_digits, starts_with_digit};
use super::value::Value;

/// The longest span, and what is longer: 838:59:59.
const LONGEST_HOURS: i64 = 838;
const LONGEST_MICROS: i64 = (LONGEST_HOURS * 3600 + 3599) * MICROS_OF_SECOND;
/// Characters of the shortest text that may be a date with a time.
const SHORTEST_MOMENT: usize = 12;
/// The largest number that is a span by its digits.
const LARGEST_SPAN: i128 = 8_385_959;
/// The first number that is a date and a time.
const FIRST_MOMENT: i128 = 10_000_000_000;

/// A time of day, or a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) is_negative: bool,
    pub(super) hours: i64,
    pub(super) minutes: i64,
    pub(super) seconds: i64,
    pub(super) micros: i64,
}

impl Clock {
    /// The time that a value is; `None` for what is none.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Date(_) | Value::Time(_) => value.moment().map(Self::of_moment),
            Value::TimeOfDay(micros) => Some(Self::of_micros(*micros)),
            Value::Integer(number) => Self::of_number(*number, 0),
            Value::Double(_) | Value::Decimal(..) => {
                let (whole, micros) = value.whole_and_micros()?;
                Self::of_number(whole, micros)
            }
            Value::Text(text) => Self::of_text(text),
            Value::Bytes(bytes) => Self::of_text(std::str::from_utf8(bytes).ok()?),
        }
    }

    /// The span of so many microseconds; a longer one than there may be is the longest.
    pub(super) fn of_micros(micros: i64) -> Self {
        let size = micros.saturating_abs().min(LONGEST_MICROS);
        let seconds = size / MICROS_OF_SECOND;
        Self {
            is_negative: micros < 0,
            hours: seconds / 3600,
            minutes: seconds / 60 % 60,
            seconds: seconds % 60,
            micros: size % MICROS_OF_SECOND,
        }
    }

    /// The same of a sum, which may be far beyond 64 bits.
    pub(super) fn of_sum(micros: i128) -> Self {
        let most = i128::from(LONGEST_MICROS);
        Self::of_micros(micros.clamp(-most, most) as i64)
    }

    /// Microseconds, below 0 where the span is.
    pub(super) fn to_micros(self) -> i64 {
        self.whole_seconds() * MICROS_OF_SECOND + self.sign() * self.micros
    }

    /// As MySQL writes it: `-100:00:01`, with a fraction where there is one.
    pub(super) fn text(self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let fraction = match self.micros {
            0 => String::new(),
            micros => format!(".{micros:06}"),
        };
        let Self {
            hours,
            minutes,
            seconds,
            ..
        } = self;
        format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}")
    }

    /// The number whose digits are those of the text.
    pub(super) fn digits(self) -> f64 {
        let whole = (self.hours * 100 + self.minutes) * 100 + self.seconds;
        let size = whole as f64 + self.micros as f64 / MICROS_OF_SECOND as f64;
        self.sign() as f64 * size + 0.0
    }

    /// Seconds, without the fraction of one.
    pub(super) fn whole_seconds(self) -> i64 {
        self.sign() * ((self.hours * 60 + self.minutes) * 60 + self.seconds)
    }

    pub(super) fn sign(self) -> i64 {
        if self.is_negative { -1 } else { 1 }
    }

    /// Whether a text is a date with a time of day rather than a time of day alone.
    pub(super) fn has_date(text: &str) -> bool {
        let text = text.trim_start();
        let digits = leading_digits(text);
        time_of_moment(text).is_some()
            || (digits.len() >= SHORTEST_MOMENT && !text[digits.len()..].starts_with(':'))
    }

    /// The same of a number.
    pub(super) fn is_number_with_date(number: &Value) -> bool {
        let whole = number.whole_and_micros().map_or(0, |(whole, _)| whole);
        whole >= FIRST_MOMENT
    }

    fn of_moment(moment: Moment) -> Self {
        Self {
            is_negative: false,
            hours: moment.hour,
            minutes: moment.minute,
            seconds: moment.second,
            micros: moment.micros,
        }
    }

    fn of_number(number: i128, micros: i64) -> Option<Self> {
        let size = number.abs();
        let as_moment = || {
            let moment = moment_text::of_number_with_micros(number, micros);
            moment.map(Self::of_moment)
        };
        if size >= FIRST_MOMENT {
            return as_moment();
        }
        if size > LARGEST_SPAN
            && let Some(midnight) = as_moment()
        {
            return Some(midnight);
        }
        let is_negative = number < 0 || micros < 0;
        Self::of_digits(is_negative, size, micros.abs())
    }

    /// Of the digits `HHMMSS`.
    fn of_digits(is_negative: bool, digits: i128, micros: i64) -> Option<Self> {
        let digits = i64::try_from(digits).ok()?;
        let (hours, minutes, seconds) = (digits / 10_000, digits / 100 % 100, digits % 100);
        Self::bounded(is_negative, hours, minutes, seconds, micros)
    }

    fn bounded(
        is_negative: bool,
        hours: i64,
        minutes: i64,
        seconds: i64,
        micros: i64,
    ) -> Option<Self> {
        if minutes >= 60 || seconds >= 60 {
            return None;
        }
        let longest = Self {
            is_negative,
            hours: LONGEST_HOURS,
            minutes: 59,
            seconds: 59,
            micros: 0,
        };
        Some(match hours {
            0..=LONGEST_HOURS => Self {
                is_negative,
                hours,
                minutes,
                seconds,
                micros: micros.clamp(0, MICROS_OF_SECOND - 1),
            },
            _ => longest,
        })
    }

    fn of_text(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if let Some(time) = time_of_moment(text) {
            return moment_text::parse(&format!("2000-01-01 {time}")).map(Self::of_moment);
        }
        let digits = leading_digits(text);
        if digits.is_empty() {
            return None;
        }
        let rest = &text[digits.len()..];
        // Behind a space are hours, and before it days.
        let hours = rest.trim_start();
        if rest.len() > hours.len() && starts_with_digit(hours) {
            let days: i64 = digits.parse().unwrap_or(LONGEST_HOURS);
            return Self::with_colons(is_negative, days.min(LONGEST_HOURS) * 24, hours);
        }
        if rest.strip_prefix(':').is_some_and(starts_with_digit) {
            return Self::with_colons(is_negative, 0, text);
        }
        let micros = fraction_of(rest);
        if digits.len() >= SHORTEST_MOMENT {
            return moment_text::parse(text).map(Self::of_moment);
        }
        Self::of_digits(is_negative, digits.parse().ok()?, micros)
    }

    /// Hours, and perhaps minutes, seconds and a fraction, with colons between them.
    fn with_colons(is_negative: bool, hours_before: i64, text: &str) -> Option<Self> {
        let mut numbers = [0_i64; 3];
        let mut rest = text;
        for (at, number) in numbers.iter_mut().enumerate() {
            let next = match at {
                0 => Some(rest),
                _ => rest.strip_prefix(':'),
            };
            let Some(next) = next.filter(|next| starts_with_digit(next)) else {
                break;
            };
            let digits = leading_digits(next);
            *number = digits.parse().unwrap_or(i64::from(i32::MAX));
            rest = &next[digits.len()..];
        }
        let [hours, minutes, seconds] = numbers;
        let hours = hours.saturating_add(hours_before);
        Self::bounded(is_negative, hours, minutes, seconds, fraction_of(rest))
    }
}

fn fraction_of(rest: &str) -> i64 {
    rest.strip_prefix('.')
        .map_or(0, |fraction| fraction_micros(leading_digits(fraction)))
}

/// The time of day of a text that is a date and a time, whatever the date is.
fn time_of_moment(text: &str) -> Option<&str> {
    if text.len() < SHORTEST_MOMENT {
        return None;
    }
    let mut rest = text;
    for at in 0..3 {
        let digits = leading_digits(rest);
        if digits.is_empty() {
            return None;
        }
        rest = &rest[digits.len()..];
        if at < 2 {
            rest = rest.strip_prefix(|c: char| c.is_ascii_punctuation() && !":.".contains(c))?;
        }
    }
    let time = match rest.strip_prefix('T') {
        Some(time) => time,
        None => rest.strip_prefix(char::is_whitespace)?.trim_start(),
    };
    starts_with_digit(time).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &Value) -> Option<String> {
        let Clock {
            hours,
            minutes,
            seconds,
            micros,
            ..
        } = Clock::of(value)?;
        let sign = if Clock::of(value)?.is_negative {
            "-"
        } else {
            ""
        };
        Some(format!("{sign}{hours}:{minutes}:{seconds}.{micros}"))
    }

    /// What MariaDB 10.11 reads; `1 2` and what is longer than 838 hours as the manual of MySQL 8 has them.
    #[test]
    fn times_of_day_are_read() {
        for (text, expected) in [
            ("11:07:15", Some("11:7:15.0")),
            ("11:07", Some("11:7:0.0")),
            ("11", Some("0:0:11.0")),
            ("1107", Some("0:11:7.0")),
            ("110715", Some("11:7:15.0")),
            ("1107150", None),
            ("20100615", Some("838:59:59.0")),
            ("2010-06-15", Some("0:20:10.0")),
            ("2010-06-15 01:02:03.5", Some("1:2:3.500000")),
            ("2010-06-15T01:02:03", Some("1:2:3.0")),
            ("2010-02-30 01:02:03", Some("1:2:3.0")),
            ("10-06-15 01:02:03", Some("1:2:3.0")),
            ("2010-06-15 25:02:03", None),
            ("20100615010203", Some("1:2:3.0")),
            ("-11:07:15.25", Some("-11:7:15.250000")),
            ("- 11:07:15", Some("-11:7:15.0")),
            ("100:07:15", Some("100:7:15.0")),
            ("839:00:00", Some("838:59:59.0")),
            ("1 11:07:15", Some("35:7:15.0")),
            ("35 00:00:00", Some("838:59:59.0")),
            ("1 2:3", Some("26:3:0.0")),
            ("1 2", Some("26:0:0.0")),
            (" 11:7:5 ", Some("11:7:5.0")),
            ("11:67:15", None),
            ("11:07:65", None),
            ("11:07:15abc", Some("11:7:15.0")),
            ("11.5", Some("0:0:11.500000")),
            ("11:07.5", Some("11:7:0.500000")),
            ("11::15", Some("0:0:11.0")),
            ("11:07:15.1234567", Some("11:7:15.123456")),
            (":07:15", None),
            ("abc", None),
            ("", None),
            ("--1", None),
        ] {
            let found = shown(&Value::Text(text.to_owned()));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_times_by_their_digits() {
        for (value, expected) in [
            (Value::Integer(110_715), Some("11:7:15.0")),
            (Value::Integer(-110_715), Some("-11:7:15.0")),
            (Value::Integer(61), None),
            (Value::Integer(8_390_000), Some("838:59:59.0")),
            (Value::Integer(20_100_615), Some("0:0:0.0")),
            (Value::Integer(20_100_615_010_203), Some("1:2:3.0")),
            (Value::Double(110_715.5), Some("11:7:15.500000")),
            (Value::Decimal(125, 2), Some("0:0:1.250000")),
            (Value::Decimal(-125, 2), Some("-0:0:1.250000")),
            (Value::Date(1), Some("0:0:0.0")),
            (Value::Time(3_661_000_001), Some("1:1:1.1")),
            (Value::Null, None),
        ] {
            assert_eq!(shown(&value).as_deref(), expected, "{value:?}");
        }
    }
}
