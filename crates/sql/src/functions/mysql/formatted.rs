//! Times as texts by a format: what `%Y` and its like stand for; and the weeks of a year.

use super::calendar::{MONTHS, Moment, WEEKDAYS, day_number};
use super::clock::Clock;

/// Year and number of the week of a day. Of the mode's bits the lowest says that weeks begin on Monday, the next that
/// the days before week 1 are in the last week of the year before, the third, with weeks from Monday, that week 1 is the
/// first that begins in the year (with weeks from Sunday the reverse of that: MySQL 8.0 Reference Manual, WEEK).
pub(super) fn week(moment: Moment, mode: u8) -> (i64, i64) {
    let monday_first = mode & 1 == 1;
    let of_year_before = mode & 2 == 2;
    let begins_in_year = (mode & 4 == 4) == monday_first;
    let days = moment.days();
    let new_year = |year: i64| day_number(year, 1, 1);
    let weekday = |days: i64| (days + if monday_first { 3 } else { 4 }).rem_euclid(7);
    let first_week = |year: i64| {
        let first = weekday(new_year(year));
        let begins = new_year(year) - first;
        // Week 1 begins with the year's first full week, or is the one that has four days of the year.
        let later = if begins_in_year {
            first != 0
        } else {
            first >= 4
        };
        if later { begins + 7 } else { begins }
    };
    let year = moment.year;
    if days < first_week(year) {
        if !of_year_before {
            return (year, 0);
        }
        return (year - 1, (days - first_week(year - 1)) / 7 + 1);
    }
    let number = (days - first_week(year)) / 7 + 1;
    if of_year_before && days >= first_week(year + 1) {
        return (year + 1, 1);
    }
    (year, number)
}

/// A time in the form that MySQL's letters after `%` say.
pub(super) fn formatted(m: Moment, format: &str) -> String {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some(letter) => text.push_str(&formatted_part(m, letter)),
            None => text.push('%'),
        }
    }
    text
}

/// A span in the form that MySQL's letters of times of day say; letters of dates give zeros.
pub(super) fn formatted_clock(clock: Clock, format: &str) -> String {
    let hour = clock.hours % 24;
    let moment = Moment {
        year: 0,
        month: 0,
        day: 0,
        hour,
        minute: clock.minutes,
        second: clock.seconds,
        micros: clock.micros,
    };
    let mut text = if clock.is_negative { "-" } else { "" }.to_owned();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        let letter = match character {
            '%' => characters.next(),
            other => {
                text.push(other);
                continue;
            }
        };
        match letter {
            Some('H') => text.push_str(&format!("{:02}", clock.hours)),
            Some('k') => text.push_str(&clock.hours.to_string()),
            Some('T') => text.push_str(&format!(
                "{:02}:{:02}:{:02}",
                clock.hours, clock.minutes, clock.seconds
            )),
            Some('Y' | 'X' | 'x') => text.push_str("0000"),
            Some('y' | 'm' | 'd') => text.push_str("00"),
            Some('c' | 'e') => text.push('0'),
            Some(letter @ ('h' | 'I' | 'l' | 'i' | 's' | 'S' | 'f' | 'p' | 'r')) => {
                text.push_str(&formatted_part(moment, letter));
            }
            Some('D' | 'M' | 'b' | 'W' | 'a' | 'w' | 'j' | 'U' | 'u' | 'V' | 'v') => {}
            Some(other) => text.push(other),
            None => text.push('%'),
        }
    }
    text
}

/// What follows the number of a day in words: 1st, 2nd, 3rd, 4th, 11th.
fn ordinal_suffix(number: i64) -> &'static str {
    match (number % 10, number / 10 % 10) {
        (_, 1) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    }
}

fn formatted_part(m: Moment, letter: char) -> String {
    let twelve = (m.hour + 11) % 12 + 1;
    let half = if m.hour < 12 { "AM" } else { "PM" };
    match letter {
        'Y' => format!("{:04}", m.year),
        'y' => format!("{:02}", m.year % 100),
        'm' => format!("{:02}", m.month),
        'c' => m.month.to_string(),
        'M' => MONTHS[m.month as usize - 1].to_owned(),
        'b' => MONTHS[m.month as usize - 1][..3].to_owned(),
        'D' => format!("{}{}", m.day, ordinal_suffix(m.day)),
        'd' => format!("{:02}", m.day),
        'e' => m.day.to_string(),
        'j' => format!("{:03}", m.day_of_year()),
        'H' => format!("{:02}", m.hour),
        'k' => m.hour.to_string(),
        'h' | 'I' => format!("{twelve:02}"),
        'l' => twelve.to_string(),
        'i' => format!("{:02}", m.minute),
        's' | 'S' => format!("{:02}", m.second),
        'f' => format!("{:06}", m.micros),
        'p' => half.to_owned(),
        'T' => format!("{:02}:{:02}:{:02}", m.hour, m.minute, m.second),
        'r' => format!("{twelve:02}:{:02}:{:02} {half}", m.minute, m.second),
        'W' => WEEKDAYS[m.weekday() as usize].to_owned(),
        'a' => WEEKDAYS[m.weekday() as usize][..3].to_owned(),
        'w' => ((m.weekday() + 1) % 7).to_string(),
        'U' => format!("{:02}", week(m, 0).1),
        'u' => format!("{:02}", week(m, 1).1),
        'V' => format!("{:02}", week(m, 2).1),
        'v' => format!("{:02}", week(m, 3).1),
        'X' => format!("{:04}", week(m, 2).0),
        'x' => format!("{:04}", week(m, 3).0),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::calendar::MICROS_OF_DAY;
    use super::*;

    #[test]
    fn weeks_are_those_of_the_standard() {
        // ISO 8601: 2008-12-29 is in week 1 of 2009, 2010-01-03 in week 53 of 2009.
        let day =
            |year, month, day| Moment::of_micros(day_number(year, month, day) * MICROS_OF_DAY);
        assert_eq!(week(day(2008, 12, 29), 3), (2009, 1));
        assert_eq!(week(day(2010, 1, 3), 3), (2009, 53));
        assert_eq!(week(day(2008, 2, 20), 0).1, 7);
        assert_eq!(week(day(2000, 1, 1), 0).1, 0);
        assert_eq!(week(day(2000, 1, 1), 2), (1999, 52));
    }
}
