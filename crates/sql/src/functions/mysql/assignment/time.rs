//! Dates and times that a column stores of texts: those that are written as such from the first letter to the last.

use super::super::calendar::{MICROS_OF_SECOND, Moment};
use super::super::moment_text;

/// Digits of the fractions of seconds that are kept.
const MOST_DIGITS: u32 = 6;

/// Reads a text that is a date, or a date and a time, and nothing else: `2010-06-15 01:02:03.5`, `2010-6-15T01:02:03Z`, `20100615`.
pub(super) fn written_moment(text: &str) -> Option<Moment> {
    let text = text.trim();
    let text = match text.strip_suffix(['Z', 'z']) {
        Some(rest) if rest.contains(['T', 't']) => rest,
        _ => text,
    };
    // Between a date and a time the sign of the standard is a large letter.
    let parsed = || moment_text::parse(&text.replace('t', "T"));
    is_written(text).then(parsed).flatten()
}

/// Whether a text has the form of a date and perhaps a time.
fn is_written(text: &str) -> bool {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let mut rest = text;
    // Year, month and day; hour, minute and second.
    for part in 0..6 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let most = if part == 0 { 4 } else { 2 };
        if digits == 0 || digits > most {
            return false;
        }
        rest = &rest[digits..];
        if rest.is_empty() {
            // A date, or a time with its minutes.
            return part == 2 || part >= 4;
        }
        let Some(behind) = separated(rest, part) else {
            return false;
        };
        rest = behind;
    }
    rest.bytes().all(|byte| byte.is_ascii_digit())
}

/// What follows a sign behind this part of a date and time.
fn separated(text: &str, part: usize) -> Option<&str> {
    if part == 2 {
        let behind = text.strip_prefix(['T', 't']);
        return behind.or_else(|| text.starts_with(' ').then(|| text.trim_start_matches(' ')));
    }
    if part == 5 {
        return text.strip_prefix('.');
    }
    text.strip_prefix(|sign: char| sign.is_ascii_punctuation())
}

/// Microseconds rounded to so many digits of a second, halves up.
pub(super) fn rounded(micros: i64, digits: u8) -> i64 {
    let kept = MOST_DIGITS.min(digits.into());
    let unit = MICROS_OF_SECOND / 10_i64.pow(kept);
    (micros + unit / 2).div_euclid(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_texts_are_times() {
        for (text, moment) in [
            ("2010-06-15", "2010-06-15 00:00:00"),
            ("2010-6-5 1:2:3", "2010-06-05 01:02:03"),
            (" 2010-06-15 01:02:03.25 ", "2010-06-15 01:02:03.250000"),
            ("2010-06-15T01:02:03Z", "2010-06-15 01:02:03"),
            ("2010-06-15t01:02:03z", "2010-06-15 01:02:03"),
            ("2010-06-15 01:02", "2010-06-15 01:02:00"),
            ("20100615", "2010-06-15 00:00:00"),
            ("20100615010203", "2010-06-15 01:02:03"),
            ("10/06/15", "2010-06-15 00:00:00"),
        ] {
            let read = written_moment(text).map(Moment::text);
            assert_eq!(read.as_deref(), Some(moment), "{text}");
        }
        for text in [
            "",
            "today",
            "2010-06-15abc",
            "2010-06-31",
            "2010-06-15 25:00:00",
            "2010-06-15 01:02:03+05:30",
            "2010-06-15Z",
            "2010-06",
            "0000-00-00",
            "2010-06-15 01",
            "2010-06-15 01:02:03.5x",
        ] {
            assert_eq!(written_moment(text), None, "{text}");
        }
    }

    #[test]
    fn fractions_of_seconds_are_rounded() {
        assert_eq!(rounded(1_500_000, 0), 2_000_000);
        assert_eq!(rounded(1_499_999, 0), 1_000_000);
        assert_eq!(rounded(1_234_567, 3), 1_235_000);
        assert_eq!(rounded(1_234_567, 6), 1_234_567);
        assert_eq!(rounded(-1_500_000, 0), -1_000_000);
    }
}
