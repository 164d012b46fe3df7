//! Dates and times as MySQL reads them off texts and numbers.
//!
//! A text is read as far as it is one: what follows is ignored, as the zone in `2010-06-15T01:02:03Z`. Its date has a sign between its
//! numbers, or it is nothing but digits, of which four are the year's where there are 8, or 14 and more.

use super::calendar::{LAST_YEAR, Moment, century, days_of_month};

/// Reads a date, or a date and a time, off a text.
pub(super) fn parse(text: &str) -> Option<Moment> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = leading_digits(text);
    let rest = &text[digits.len()..];
    let fields = match rest.chars().next() {
        _ if digits.is_empty() => return None,
        // A fraction follows a whole time.
        Some('.') if matches!(digits.len(), 12 | 14..) => compact(text),
        Some(sign) if sign.is_ascii_punctuation() => delimited(text),
        Some(space) if space.is_whitespace() && starts_with_digit(rest.trim_start()) => None,
        _ => compact(text),
    };
    let [year, month, day, hour, minute, second, micros] = fields?;
    let moment = Moment {
        year,
        month,
        day,
        hour,
        minute,
        second,
        micros,
    };
    is_whole(moment).then_some(moment)
}

/// Whether a text that is a date has a time of day too.
pub(super) fn has_time(text: &str) -> bool {
    let text = text.trim();
    let digits = leading_digits(text);
    match text[digits.len()..].chars().next() {
        Some(sign) if sign.is_ascii_punctuation() && digits.len() < 12 => {
            // Year, month and day have two signs, and what follows a third number is a time.
            let mut numbers = text.split(|c: char| !c.is_ascii_digit());
            numbers.nth(3).is_some_and(|hour| !hour.is_empty())
        }
        _ => {
            digits.len() > 8
                || text[digits.len()..]
                    .strip_prefix('T')
                    .is_some_and(starts_with_digit)
        }
    }
}

/// Whether a date is one of the calendar, and its time one of a day.
pub(super) fn is_whole(moment: Moment) -> bool {
    (0..=LAST_YEAR).contains(&moment.year)
        && (1..=12).contains(&moment.month)
        && (1..=days_of_month(moment.year, moment.month)).contains(&moment.day)
        && moment.hour < 24
        && moment.minute < 60
        && moment.second < 60
}

/// Year, month, day, hour, minute, second and microseconds.
type Fields = [i64; 7];

/// `2010-06-15 01:02:03.5`, with any signs.
fn delimited(text: &str) -> Option<Fields> {
    let (year, rest) = field(text, 4)?;
    let of_two_digits = text.len() - rest.len() == 2;
    let year = if of_two_digits { century(year) } else { year };
    let (month, rest) = field(after_sign(rest)?, 2)?;
    let (day, rest) = field(after_sign(rest)?, 2)?;
    let mut fields = [year, month, day, 0, 0, 0, 0];
    let before_time = match rest.strip_prefix('T') {
        Some(time) => time,
        None if rest.starts_with(char::is_whitespace) => rest.trim_start(),
        None => after_sign(rest).unwrap_or(""),
    };
    let mut next = Some(before_time).filter(|time| starts_with_digit(time));
    for at in 3..6 {
        let Some(time) = next else {
            return Some(fields);
        };
        let (number, rest) = field(time, 2)?;
        fields[at] = number;
        next = match (at, rest.strip_prefix('.')) {
            (5, Some(fraction)) => {
                fields[6] = fraction_micros(leading_digits(fraction));
                None
            }
            _ => after_sign(rest).filter(|time| starts_with_digit(time)),
        };
    }
    Some(fields)
}

/// `20100615010203.5`; a `T` may stand before the time.
fn compact(text: &str) -> Option<Fields> {
    let of_time = |c: char| c.is_ascii_digit() || c == 'T';
    let length = text.find(|c| !of_time(c)).unwrap_or(text.len());
    let (mut rest, after) = text.split_at(length);
    let digits_of_year = if length == 4 || length == 8 || length >= 14 {
        4
    } else {
        2
    };
    let mut fields = [0; 7];
    for at in 0..6 {
        if at == 3 {
            rest = rest.strip_prefix('T').unwrap_or(rest);
        }
        let digits = leading_digits(rest);
        let most = if at == 0 { digits_of_year } else { 2 };
        let digits = &digits[..digits.len().min(most)];
        if digits.is_empty() {
            // A date is whole, a time need not be.
            return (at > 2).then_some(fields);
        }
        fields[at] = digits.parse().ok()?;
        rest = &rest[digits.len()..];
        if at == 0 && digits_of_year == 2 {
            fields[0] = century(fields[0]);
        }
    }
    if let Some(fraction) = after.strip_prefix('.') {
        fields[6] = fraction_micros(leading_digits(fraction));
    }
    Some(fields)
}

/// A number of so many digits at most, besides zeros before it, and what follows.
fn field(text: &str, most: usize) -> Option<(i64, &str)> {
    let digits = leading_digits(text);
    if digits.is_empty() || digits.trim_start_matches('0').len() > most {
        return None;
    }
    Some((digits.parse().ok()?, &text[digits.len()..]))
}

/// What follows the sign that a text begins with.
fn after_sign(text: &str) -> Option<&str> {
    text.strip_prefix(|c: char| c.is_ascii_punctuation())
}

pub(super) fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// The digits that a text begins with.
pub(super) fn leading_digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

/// Microseconds of the digits of a fraction; those beyond six are left out.
pub(super) fn fraction_micros(digits: &str) -> i64 {
    format!("{digits:0<6}")[..6].parse().unwrap_or(0)
}

/// The numbers that are dates and times by their digits, the first and the last of each form, and what completes the year's.
const WRITTEN: [(i128, i128, i128); 6] = [
    (101, 691_231, 20_000_000),
    (700_101, 991_231, 19_000_000),
    (10_000_101, 99_991_231, 0),
    (101_000_000, 691_231_235_959, 20_000_000_000_000),
    (700_101_000_000, 991_231_235_959, 19_000_000_000_000),
    (10_000_101_000_000, 99_991_231_235_959, 0),
];
/// From this on a number has a time of day.
pub(super) const FIRST_WITH_TIME: i128 = 100_000_000;

/// Reads a date, or a date and a time, off the digits of a number: 20100615, 100615, 20100615123000.
pub(super) fn of_number(number: i128) -> Option<Moment> {
    of_number_with_micros(number, 0)
}

/// The same of a number with a fraction, which counts where it follows a time of day.
pub(super) fn of_number_with_micros(number: i128, micros: i64) -> Option<Moment> {
    let form = WRITTEN
        .iter()
        .find(|(first, last, _)| (first..=last).contains(&&number));
    let (_, _, century) = form?;
    let moment = parse(&format!("{:08}", number + century))?;
    let micros = if number < FIRST_WITH_TIME { 0 } else { micros };
    Some(Moment { micros, ..moment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dates_by_their_digits() {
        let text = |number| of_number(number).map(Moment::text);
        for number in [20_100_615, 100_615, 20_100_615_000_000, 100_615_000_000] {
            assert_eq!(
                text(number).as_deref(),
                Some("2010-06-15 00:00:00"),
                "{number}"
            );
        }
        let moment = text(19_991_231_235_958);
        assert_eq!(moment.as_deref(), Some("1999-12-31 23:59:58"));
        assert_eq!(text(101).as_deref(), Some("2000-01-01 00:00:00"));
        for number in [-1, 0, 5, 20_100_635, 992_345, i128::MAX, 20_100_615_250_000] {
            assert_eq!(text(number), None, "{number}");
        }
        let half = of_number_with_micros(20_100_615_010_203, 500_000).map(Moment::text);
        assert_eq!(half.as_deref(), Some("2010-06-15 01:02:03.500000"));
        assert_eq!(
            of_number_with_micros(20_100_615, 500_000),
            of_number(20_100_615)
        );
    }

    /// What MariaDB 10.11 reads.
    #[test]
    fn times_are_read_in_several_forms() {
        for (text, expected) in [
            ("2010-06-05 01:02:03", "2010-06-05 01:02:03"),
            ("2010-6-5 1:2:3", "2010-06-05 01:02:03"),
            ("20100605010203", "2010-06-05 01:02:03"),
            ("20100605T010203.5", "2010-06-05 01:02:03.500000"),
            ("100605010203", "2010-06-05 01:02:03"),
            ("2010/06/05T01:02:03Z", "2010-06-05 01:02:03"),
            ("10-06-05 01:02:03", "2010-06-05 01:02:03"),
            ("70-1-1", "1970-01-01 00:00:00"),
            ("1-1-1", "0001-01-01 00:00:00"),
            ("0-1-1", "0000-01-01 00:00:00"),
            ("00-1-1", "2000-01-01 00:00:00"),
            ("201-06-15", "0201-06-15 00:00:00"),
            ("100615", "2010-06-15 00:00:00"),
            ("201006", "2020-10-06 00:00:00"),
            ("2010061", "2020-10-06 01:00:00"),
            ("00101", "2000-10-01 00:00:00"),
            ("20100615abc", "2010-06-15 00:00:00"),
            ("2010-06-15abc", "2010-06-15 00:00:00"),
            ("2010-06-15 1", "2010-06-15 01:00:00"),
            ("2010-06-15 01.5", "2010-06-15 01:05:00"),
            ("2010-06-15.01", "2010-06-15 01:00:00"),
            ("2010-06-15-01-02-03", "2010-06-15 01:02:03"),
            ("2010-06-15\t01:02", "2010-06-15 01:02:00"),
            ("2010-06-15 01: 02:03", "2010-06-15 01:00:00"),
            ("2010-006-015 0001:02", "2010-06-15 01:02:00"),
            ("2010-06-15 01:02:03.1234567", "2010-06-15 01:02:03.123456"),
            (" +2010-06-15 ", "2010-06-15 00:00:00"),
            ("11:07:15", "2011-07-15 00:00:00"),
        ] {
            let found = parse(text).map(Moment::text);
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "abc",
            "2010",
            "0101",
            "2010-13-01",
            "2010-02-30",
            "2010-00-01",
            "2010-06",
            "2010--06--15",
            "2010 06 15",
            "2010-06-1512",
            "2010a06b15",
            "12345-1-1",
            "201006-15",
            "20100615 010203",
            "20100615.25",
            "2010-06-15 010203",
            "-2010-06-15",
            "2010-06-05 25:00:00",
            "2010-06-15 01:02:60",
            "15.06.2010",
            "2010–06–15",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
