//! STR_TO_DATE: reads a text by a format.
//!
//! Source: *MySQL 8.0 Reference Manual*, "Date and Time Functions", DATE_FORMAT and STR_TO_DATE.

use super::calendar::{LAST_YEAR, MONTHS, Moment, WEEKDAYS, century, days_of_month};

/// What of a format tells of a time of day.
const OF_TIMES: &str = "HhIiklprSsTf";

/// Whether a format has a time of day.
pub(crate) fn has_time(format: &str) -> bool {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c == '%' && chars.next().is_some_and(|it| OF_TIMES.contains(it)) {
            return true;
        }
    }
    false
}

/// What was read so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    /// Whether the hour is one of twelve.
    is_of_twelve: bool,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
}

/// The time that a text is by a format; `None` if it does not match, or if its date is not whole or not of the calendar. What follows in the text
/// is ignored.
pub(super) fn parse(text: &str, format: &str) -> Option<Moment> {
    let mut rest = text;
    let mut parts = Parts::default();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match c {
            _ if c.is_whitespace() => rest = rest.trim_start(),
            '%' => rest = parts.read(rest.trim_start(), chars.next()?)?,
            _ => rest = rest.trim_start().strip_prefix(c)?,
        }
    }
    parts.moment()
}

impl Parts {
    /// Reads what a specifier describes off the beginning of a text, and gives the rest of it.
    fn read<'a>(&mut self, text: &'a str, specifier: char) -> Option<&'a str> {
        let (value, rest) = match specifier {
            'Y' => return self.set(text, 4, |parts, year| parts.year = Some(year)),
            'y' => return self.set(text, 2, |parts, year| parts.year = Some(century(year))),
            'm' | 'c' => return self.set(text, 2, |parts, month| parts.month = Some(month)),
            'd' | 'e' => return self.set(text, 2, |parts, day| parts.day = Some(day)),
            'j' => return self.set(text, 3, |parts, day| parts.day_of_year = Some(day)),
            'H' | 'k' => return self.set(text, 2, |parts, hour| parts.hour = hour),
            'h' | 'I' | 'l' => return self.set(text, 2, Self::set_hour_of_twelve),
            'i' => return self.set(text, 2, |parts, minute| parts.minute = minute),
            's' | 'S' => return self.set(text, 2, |parts, second| parts.second = second),
            'f' => {
                let digits = digits(text, 6);
                self.micros = format!("{digits:0<6}").parse().ok()?;
                return Some(&text[digits.len()..]);
            }
            'D' => {
                let rest = self.set(text, 2, |parts, day| parts.day = Some(day))?;
                let suffix = rest.get(..2)?.to_ascii_lowercase();
                return ["st", "nd", "rd", "th"]
                    .contains(&suffix.as_str())
                    .then(|| &rest[2..]);
            }
            'T' => return self.read_all(text, "H:i:S"),
            'r' => return self.read_all(text, "I:i:S p"),
            'p' => {
                let word = text.get(..2)?.to_ascii_uppercase();
                self.is_afternoon = Some(match word.as_str() {
                    "AM" => false,
                    "PM" => true,
                    _ => return None,
                });
                return Some(&text[2..]);
            }
            'M' => named(text, &MONTHS, usize::MAX)?,
            'b' => named(text, &MONTHS, 3)?,
            'W' => return named(text, &WEEKDAYS, usize::MAX).map(|(_, rest)| rest),
            'a' => return named(text, &WEEKDAYS, 3).map(|(_, rest)| rest),
            '#' => return Some(text.trim_start_matches(|c: char| c.is_ascii_digit())),
            '@' => return Some(text.trim_start_matches(char::is_alphabetic)),
            '.' => return Some(text.trim_start_matches(|c: char| c.is_ascii_punctuation())),
            '%' => return text.strip_prefix('%'),
            // Weeks (%U, %u, %V, %v, %X, %x, %w) do not tell a day by themselves.
            _ => return None,
        };
        self.month = Some(value);
        Some(rest)
    }

    /// Reads specifiers with the letters between them.
    fn read_all<'a>(&mut self, text: &'a str, specifiers: &str) -> Option<&'a str> {
        let mut rest = text;
        for specifier in specifiers.chars() {
            rest = rest.trim_start();
            rest = match specifier {
                ' ' => rest,
                ':' => rest.strip_prefix(':')?,
                _ => self.read(rest, specifier)?,
            };
        }
        Some(rest)
    }

    fn set<'a>(
        &mut self,
        text: &'a str,
        most_digits: usize,
        set: impl FnOnce(&mut Self, i64),
    ) -> Option<&'a str> {
        let digits = digits(text, most_digits);
        set(self, digits.parse().ok()?);
        Some(&text[digits.len()..])
    }

    fn set_hour_of_twelve(&mut self, hour: i64) {
        self.hour = hour;
        self.is_of_twelve = true;
    }

    fn moment(self) -> Option<Moment> {
        let hour = match self.is_of_twelve || self.is_afternoon.is_some() {
            true if (1..=12).contains(&self.hour) => {
                self.hour % 12 + 12 * i64::from(self.is_afternoon.unwrap_or(false))
            }
            true => return None,
            false => self.hour,
        };
        let year = self.year.filter(|year| (0..=LAST_YEAR).contains(year))?;
        let (month, day) = match (self.day_of_year, self.month, self.day) {
            (Some(of_year), _, _) => month_and_day(year, of_year)?,
            (None, Some(month), Some(day)) => (month, day),
            _ => return None,
        };
        let is_whole = (1..=12).contains(&month)
            && (1..=days_of_month(year, month)).contains(&day)
            && hour < 24
            && self.minute < 60
            && self.second < 60;
        is_whole.then_some(Moment {
            year,
            month,
            day,
            hour,
            minute: self.minute,
            second: self.second,
            micros: self.micros,
        })
    }
}

/// The month and its day that are the day of a year with this number, from 1.
fn month_and_day(year: i64, mut day: i64) -> Option<(i64, i64)> {
    for month in 1..=12 {
        let days = days_of_month(year, month);
        if day <= days {
            return (day > 0).then_some((month, day));
        }
        day -= days;
    }
    None
}

/// The digits that a text begins with, so many at most.
fn digits(text: &str, most: usize) -> &str {
    let count = text
        .bytes()
        .take(most)
        .take_while(u8::is_ascii_digit)
        .count();
    &text[..count]
}

/// The number, from 1, of the name that a text begins with, of which so many letters are written; and the rest of the text.
fn named<'a>(text: &'a str, names: &[&str], letters: usize) -> Option<(i64, &'a str)> {
    let found = names.iter().enumerate().find_map(|(number, name)| {
        let length = name.len().min(letters);
        let begins = text.get(..length)?.eq_ignore_ascii_case(&name[..length]);
        begins.then_some((number as i64 + 1, length))
    });
    let (number, length) = found?;
    Some((number, &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_by_their_formats() {
        for (text, format, expected) in [
            ("01,5,2013", "%d,%m,%Y", Some("2013-05-01 00:00:00")),
            ("May 1, 2013", "%M %d,%Y", Some("2013-05-01 00:00:00")),
            (
                "a2013-05-01 09:30:17",
                "a%Y-%m-%d %h:%i:%s",
                Some("2013-05-01 09:30:17"),
            ),
            (
                "15/Jun/10 11:59:58.25 pm",
                "%d/%b/%y %h:%i:%s.%f %p",
                Some("2010-06-15 23:59:58.250000"),
            ),
            (
                "12:00:00 AM 2010-06-15",
                "%r %Y-%m-%d",
                Some("2010-06-15 00:00:00"),
            ),
            (
                "20100615T233959",
                "%Y%m%dT%H%i%S",
                Some("2010-06-15 23:39:59"),
            ),
            (
                "Tuesday 15th June 2010",
                "%W %D %M %Y",
                Some("2010-06-15 00:00:00"),
            ),
            ("2012-366", "%Y-%j", Some("2012-12-31 00:00:00")),
            (
                "2013-01-05 and more",
                "%Y-%m-%d",
                Some("2013-01-05 00:00:00"),
            ),
            (
                "100% 2013-1-5",
                "100%% %Y-%c-%e",
                Some("2013-01-05 00:00:00"),
            ),
            (
                "abc12;;2013-1-5",
                "%@%#%.%Y-%m-%d",
                Some("2013-01-05 00:00:00"),
            ),
            ("2013-02-30", "%Y-%m-%d", None),
            ("2013-366", "%Y-%j", None),
            ("13:00:00 PM 2010-06-15", "%r %Y-%m-%d", None),
            ("2013", "%Y", None),
            ("a09:30:17", "a%h:%i:%s", None),
            ("01/05/2013", "%d,%m,%Y", None),
            ("2013-05-01", "%Y-%m-%", None),
            ("", "%Y-%m-%d", None),
            ("é", "%D", None),
        ] {
            let found = parse(text, format).map(Moment::text);
            assert_eq!(found.as_deref(), expected, "{text} as {format}");
        }
    }

    #[test]
    fn formats_with_a_time_of_day_are_told() {
        assert!(has_time("%d.%m.%Y %T") && has_time("%H"));
        assert!(!has_time("%d.%m.%Y %%H") && !has_time("H") && !has_time("%"));
    }
}
