//! STR_TO_DATE: reads a text by a format.
//!
//! A text may end before its format does, and may go on after it. Source: *MySQL 8.0 Reference Manual*, "Date and Time Functions",
//! DATE_FORMAT and STR_TO_DATE; what that leaves open is as in MariaDB.

use super::calendar::{
    LAST_YEAR, MICROS_OF_DAY, MONTHS, Moment, WEEKDAYS, century, civil, date_in_range, day_number,
};
use super::moment_text::is_whole;

/// What of a format tells of a time of day.
const OF_TIMES: &str = "HhIiklprSsTf";
/// What of a format is read and tells nothing.
const OF_NOTHING: &str = "@#.";

/// The parts of a time that a format has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormatParts {
    Date,
    Time,
    DateAndTime,
}

/// The parts of a time that a format has. One that has none is taken for that of a date.
pub(crate) fn parts_of(format: &str) -> FormatParts {
    let (mut date, mut time) = (false, false);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match chars.next_if_specifier(c) {
            Some(it) if OF_TIMES.contains(it) => time = true,
            Some(it) if !OF_NOTHING.contains(it) => date = true,
            _ => {}
        }
    }
    match (date, time) {
        (true, true) => FormatParts::DateAndTime,
        (false, true) => FormatParts::Time,
        _ => FormatParts::Date,
    }
}

trait Specifiers {
    /// What follows a percent sign.
    fn next_if_specifier(&mut self, sign: char) -> Option<char>;
}

impl Specifiers for std::str::Chars<'_> {
    fn next_if_specifier(&mut self, sign: char) -> Option<char> {
        (sign == '%').then(|| self.next()).flatten()
    }
}

/// How the weeks of a year are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weeks {
    /// From its first Sunday.
    FromSunday,
    /// From the Monday of the week with four days of the year.
    FromMonday,
}

/// What was read so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    /// The year of `%X` or `%x`.
    year_of_weeks: Option<(i64, Weeks)>,
    /// The number of a week, how weeks are counted, and whether it is one of `%V` or `%v`, which need the year of weeks.
    week: Option<(i64, Weeks, bool)>,
    /// From Monday, 1.
    weekday: Option<i64>,
    hour: i64,
    /// Whether the hour is one of twelve.
    is_of_twelve: bool,
    is_afternoon: bool,
    minute: i64,
    second: i64,
    micros: i64,
}

/// The time that a text is by a format; `None` if it does not match, or if its date is not whole or not of the calendar.
pub(super) fn parse(text: &str, format: &str) -> Option<Moment> {
    let parts = Parts::of(text, format)?;
    let (year, month, day) = parts.date()?;
    let moment = Moment {
        year,
        month,
        day,
        ..parts.time()?
    };
    is_whole(moment).then_some(moment)
}

/// The microseconds since midnight that a text is by a format without a date.
pub(super) fn parse_time(text: &str, format: &str) -> Option<i64> {
    let time = Parts::of(text, format)?.time()?;
    Some(time.to_micros().rem_euclid(MICROS_OF_DAY))
}

impl Parts {
    fn of(text: &str, format: &str) -> Option<Self> {
        let mut parts = Self::default();
        parts.read_all(text, format)?;
        Some(parts)
    }

    /// Reads what a specifier describes off the beginning of a text, and gives the rest of it.
    fn read<'a>(&mut self, text: &'a str, specifier: char) -> Option<&'a str> {
        let (number, rest) = match specifier {
            'Y' => {
                let (year, rest) = number(text, 4)?;
                let digits = text.len() - rest.len();
                self.year = Some(if digits <= 2 { century(year) } else { year });
                return Some(rest);
            }
            'X' | 'x' => number(text, 4)?,
            'j' => number(text, 3)?,
            'w' => number(text, 1)?,
            'f' => {
                let digits = digits(text, 6);
                self.micros = format!("{digits:0<6}").parse().ok()?;
                return Some(&text[digits.len()..]);
            }
            'T' => return self.read_all(text, "%H:%i:%S"),
            'r' => return self.read_all(text, "%I:%i:%S %p"),
            'p' if self.is_of_twelve => {
                let word = text.get(..2)?;
                self.is_afternoon = word.eq_ignore_ascii_case("PM");
                let is_half = self.is_afternoon || word.eq_ignore_ascii_case("AM");
                return is_half.then(|| &text[2..]);
            }
            'M' => named(text, &MONTHS, usize::MAX)?,
            'b' => named(text, &MONTHS, 3)?,
            'W' => named(text, &WEEKDAYS, usize::MAX)?,
            'a' => named(text, &WEEKDAYS, 3)?,
            '#' => return Some(text.trim_start_matches(|c: char| c.is_ascii_digit())),
            '@' => return Some(text.trim_start_matches(char::is_alphabetic)),
            '.' => return Some(text.trim_start_matches(|c: char| c.is_ascii_punctuation())),
            _ => number(text, 2)?,
        };
        match specifier {
            'y' => self.year = Some(century(number)),
            'm' | 'c' | 'M' | 'b' => self.month = Some(number),
            'd' | 'e' => self.day = Some(number),
            'D' => {
                self.day = Some(number);
                // Two letters, whatever they are.
                let mut letters = rest.chars();
                letters.next()?;
                letters.next()?;
                return Some(letters.as_str());
            }
            'j' => self.day_of_year = Some(number),
            'H' | 'k' => self.hour = number,
            'h' | 'I' | 'l' => {
                self.hour = number;
                self.is_of_twelve = true;
            }
            'i' => self.minute = number,
            's' | 'S' => self.second = number,
            'W' | 'a' => self.weekday = Some(number),
            'w' if number < 7 => self.weekday = Some(if number == 0 { 7 } else { number }),
            'U' => self.week = Some((number, Weeks::FromSunday, false)),
            'u' => self.week = Some((number, Weeks::FromMonday, false)),
            'V' => self.week = Some((number, Weeks::FromSunday, true)),
            'v' => self.week = Some((number, Weeks::FromMonday, true)),
            'X' => self.year_of_weeks = Some((number, Weeks::FromSunday)),
            'x' => self.year_of_weeks = Some((number, Weeks::FromMonday)),
            _ => return None,
        }
        Some(rest)
    }

    /// Reads specifiers with the letters between them, as far as the text goes.
    fn read_all<'a>(&mut self, text: &'a str, format: &str) -> Option<&'a str> {
        let mut rest = text;
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            rest = rest.trim_start();
            if rest.is_empty() {
                break;
            }
            rest = match chars.next_if_specifier(c) {
                Some(specifier) => self.read(rest, specifier)?,
                None if c.is_whitespace() => rest,
                None => rest.strip_prefix(c)?,
            };
        }
        Some(rest)
    }

    /// Year, month and day.
    fn date(&self) -> Option<(i64, i64, i64)> {
        if let (Some((week, weeks, is_strict)), Some(weekday)) = (self.week, self.weekday) {
            return self.date_of_week(week, weeks, is_strict, weekday);
        }
        let year = self.year.filter(|year| (0..=LAST_YEAR).contains(year))?;
        match self.day_of_year {
            // A day beyond the year's is one of the next.
            Some(of_year @ 1..) => date_of_days(day_number(year, 1, 1) + of_year - 1),
            Some(_) => None,
            None => Some((year, self.month?, self.day?)),
        }
    }

    fn date_of_week(
        &self,
        week: i64,
        weeks: Weeks,
        is_strict: bool,
        weekday: i64,
    ) -> Option<(i64, i64, i64)> {
        let year = match (is_strict, self.year_of_weeks) {
            (true, Some((year, of_year))) if of_year == weeks && week > 0 => year,
            (false, None) => self.year?,
            _ => return None,
        };
        if week > 53 {
            return None;
        }
        let new_year = day_number(year, 1, 1);
        // From Monday, 0.
        let first_weekday = (new_year + 3).rem_euclid(7);
        let days = match weeks {
            Weeks::FromSunday => {
                let first_sunday = new_year + 6 - first_weekday;
                first_sunday + (week - 1) * 7 + weekday % 7
            }
            Weeks::FromMonday => {
                let first_monday = match first_weekday {
                    0..=3 => new_year - first_weekday,
                    _ => new_year + 7 - first_weekday,
                };
                first_monday + (week - 1) * 7 + weekday - 1
            }
        };
        date_of_days(days)
    }

    /// The time of day, of the day 1970-01-01.
    fn time(&self) -> Option<Moment> {
        let hour = match (self.is_of_twelve, self.hour) {
            (true, 1..=12) => self.hour % 12 + 12 * i64::from(self.is_afternoon),
            (true, _) => return None,
            (false, hour) => hour,
        };
        let time = Moment {
            year: 1970,
            month: 1,
            day: 1,
            hour,
            minute: self.minute,
            second: self.second,
            micros: self.micros,
        };
        is_whole(time).then_some(time)
    }
}

fn date_of_days(days: i64) -> Option<(i64, i64, i64)> {
    date_in_range(days.into()).map(|days| civil(days.into()))
}

/// The number that a text begins with, of so many digits at most, and the rest of the text.
fn number(text: &str, most_digits: usize) -> Option<(i64, &str)> {
    let digits = digits(text, most_digits);
    Some((digits.parse().ok()?, &text[digits.len()..]))
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

/// The number, from 1, of the name whose word a text begins with, and the rest of the text. Of the names so many letters count; as
/// many of them as tell a name from the others are enough.
fn named<'a>(text: &'a str, names: &[&str], letters: usize) -> Option<(i64, &'a str)> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic());
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    let begins = |name: &&str| {
        let name = &name[..name.len().min(letters)];
        let start = name.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    if word.is_empty() {
        return None;
    }
    let mut found = names.iter().enumerate().filter(|(_, name)| begins(name));
    let (at, name) = found.next()?;
    let is_whole_name = word.len() == name.len().min(letters);
    (is_whole_name || found.next().is_none()).then_some((at as i64 + 1, rest))
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
            // MariaDB does not read a percent sign either.
            ("100% 2013-1-5", "100%% %Y-%c-%e", None),
            (
                "2010-06-15 01:02",
                "%Y-%m-%d %T",
                Some("2010-06-15 01:02:00"),
            ),
            ("2010-06-15", "%Y-%m-%d %H:%i", Some("2010-06-15 00:00:00")),
            ("5-06-15", "%Y-%m-%d", Some("2005-06-15 00:00:00")),
            ("105-06-15", "%Y-%m-%d", Some("0105-06-15 00:00:00")),
            ("200442 Monday", "%X%V %W", Some("2004-10-18 00:00:00")),
            ("200442 Monday", "%x%v %W", Some("2004-10-11 00:00:00")),
            ("2004421", "%X%V%w", Some("2004-10-18 00:00:00")),
            ("2004 42 0", "%x %v %w", Some("2004-10-17 00:00:00")),
            ("2004 00 Monday", "%Y %U %W", Some("2003-12-29 00:00:00")),
            ("2009 53 Fri", "%x %v %a", Some("2010-01-01 00:00:00")),
            ("2004 42 Monday", "%X %v %W", None),
            ("2004 42 Monday", "%Y %V %W", None),
            ("2004 54 Monday", "%X %V %W", None),
            ("2004 42 7", "%X %V %w", None),
            ("200442", "%X%V", None),
            ("2010-06-15 11 PM", "%Y-%m-%d %H %p", None),
            ("2010-06-15 PM 11", "%Y-%m-%d %p %I", None),
            ("2010-06-15 12", "%Y-%m-%d %h", Some("2010-06-15 00:00:00")),
            ("2010-06-15 0 AM", "%Y-%m-%d %h %p", None),
            ("Jun 15 2010", "%M %d %Y", Some("2010-06-15 00:00:00")),
            ("F 15 2010", "%b %d %Y", Some("2010-02-15 00:00:00")),
            ("Ju 15 2010", "%M %d %Y", None),
            ("June 15 2010", "%b %d %Y", None),
            ("15xx June 2010", "%D %M %Y", Some("2010-06-15 00:00:00")),
            ("15 June 2010", "%D %M %Y", None),
            ("2010 0", "%Y %j", None),
            ("166", "%j", None),
            (
                "abc12;;2013-1-5",
                "%@%#%.%Y-%m-%d",
                Some("2013-01-05 00:00:00"),
            ),
            ("2013-02-30", "%Y-%m-%d", None),
            ("2013-366", "%Y-%j", Some("2014-01-01 00:00:00")),
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
    fn parts_of_formats_are_told() {
        for (format, parts) in [
            ("%d.%m.%Y %T", FormatParts::DateAndTime),
            ("%H:%i", FormatParts::Time),
            ("%d.%m.%Y %%H", FormatParts::Date),
            ("H", FormatParts::Date),
            ("%", FormatParts::Date),
        ] {
            assert_eq!(parts_of(format), parts, "{format}");
        }
    }

    #[test]
    fn times_of_day_are_read_without_a_date() {
        assert_eq!(parse_time("01:02:03.5", "%H:%i:%s.%f"), Some(3_723_500_000));
        assert_eq!(parse_time("11:02:03 PM", "%r"), Some(82_923_000_000));
        assert_eq!(parse_time("25:02:03", "%T"), None);
        assert_eq!(parse_time("x", "%T"), None);
    }
}
