//! Dates and times as they are written in text: MySQL's and ISO 8601's.

use super::values::ParsedValue;
use crate::normalise::TIMES;
use crate::row_errors::ValueFault::{self, NotOfType, OutOfRange};

const MICROS: i64 = 1_000_000;
const DAY: i64 = 86_400;

/// `YYYY-MM-DD` as days since 1970-01-01. MySQL's zero date is NULL.
pub(super) fn date(text: &[u8]) -> ParsedValue<i32> {
    let text = text.trim_ascii();
    if text.is_empty() || text == b"0000-00-00" {
        return Ok(None);
    }
    let days = days_of(text)?;
    i32::try_from(days).map(Some).map_err(|_| OutOfRange)
}

/// `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]][Z|+HH:MM]` (a `T` may stand for the blank) as microseconds since 1970; with an
/// offset it is turned into UTC, without one taken as it is. Digits beyond microseconds are cut.
pub(crate) fn timestamp(text: &[u8]) -> ParsedValue<i64> {
    let text = text.trim_ascii();
    if text.is_empty() || text.starts_with(b"0000-00-00") {
        return Ok(None);
    }
    let (day, rest) = text.split_at_checked(10).ok_or(NotOfType)?;
    let days = days_of(day)?;
    let micros = match rest {
        [] => 0,
        [b' ' | b'T' | b't', clock @ ..] => micros_of_clock(clock)?,
        _ => return Err(NotOfType),
    };
    let time = days * DAY * MICROS + micros;
    if TIMES.contains(&time) {
        Ok(Some(time))
    } else {
        Err(OutOfRange)
    }
}

fn digits(text: &[u8]) -> Result<i64, ValueFault> {
    if text.is_empty() || text.len() > 9 || !text.iter().all(u8::is_ascii_digit) {
        return Err(NotOfType);
    }
    Ok(text
        .iter()
        .fold(0, |value, b| value * 10 + i64::from(b - b'0')))
}

fn days_of(text: &[u8]) -> Result<i64, ValueFault> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = text else {
        return Err(NotOfType);
    };
    let (year, month, day) = (
        digits(&[*y0, *y1, *y2, *y3])?,
        digits(&[*m0, *m1])?,
        digits(&[*d0, *d1])?,
    );
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return Err(OutOfRange),
    };
    if !(1..=longest).contains(&day) {
        return Err(OutOfRange);
    }
    Ok(civil_days(year, month, day))
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counted in eras of 400 years that begin on 1 March.
fn civil_days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn micros_of_clock(clock: &[u8]) -> Result<i64, ValueFault> {
    let zone_at = clock
        .iter()
        .position(|b| matches!(b, b'Z' | b'z' | b'+' | b'-'))
        .unwrap_or(clock.len());
    let (time, zone) = clock.split_at(zone_at);
    let (whole, fraction) = match memchr::memchr(b'.', time) {
        Some(dot) => (&time[..dot], &time[dot + 1..]),
        None => (time, &time[..0]),
    };
    let mut parts = whole.split(|b| *b == b':');
    let mut part = |largest: i64| match parts.next().map(digits) {
        None => Ok(0),
        Some(Ok(value)) if value <= largest => Ok(value),
        Some(Ok(_)) => Err(OutOfRange),
        Some(Err(fault)) => Err(fault),
    };
    let (hours, minutes, seconds) = (part(23)?, part(59)?, part(60)?);
    if parts.next().is_some() || whole.is_empty() {
        return Err(NotOfType);
    }
    let seconds = (hours * 60 + minutes) * 60 + seconds - offset_seconds(zone)?;
    Ok(seconds * MICROS + micros_of_fraction(fraction)?)
}

fn micros_of_fraction(fraction: &[u8]) -> Result<i64, ValueFault> {
    if fraction.is_empty() {
        return Ok(0);
    }
    let kept = &fraction[..fraction.len().min(6)];
    let micros = digits(kept)? * 10i64.pow(6 - kept.len() as u32);
    if fraction.iter().all(u8::is_ascii_digit) {
        Ok(micros)
    } else {
        Err(NotOfType)
    }
}

fn offset_seconds(zone: &[u8]) -> Result<i64, ValueFault> {
    let (sign, rest) = match zone {
        [] | [b'Z' | b'z'] => return Ok(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(NotOfType),
    };
    let (hours, minutes) = match rest {
        [h0, h1] => (digits(&[*h0, *h1])?, 0),
        [h0, h1, b':', m0, m1] | [h0, h1, m0, m1] => (digits(&[*h0, *h1])?, digits(&[*m0, *m1])?),
        _ => return Err(NotOfType),
    };
    Ok(sign * (hours * 60 + minutes) * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(b"1970-01-01"), Ok(Some(0)));
        assert_eq!(date(b"2000-02-29"), Ok(Some(11016)));
        assert_eq!(date(b"1969-12-31"), Ok(Some(-1)));
        assert_eq!(date(b"0000-00-00"), Ok(None));
        assert_eq!(date(b"2001-02-29"), Err(OutOfRange));
        assert_eq!(date(b"2001-13-01"), Err(OutOfRange));
        assert_eq!(date(b"20010101"), Err(NotOfType));
    }

    #[test]
    fn timestamps() {
        assert_eq!(timestamp(b"1970-01-01 00:00:01"), Ok(Some(MICROS)));
        assert_eq!(timestamp(b"1970-01-01T00:00:00.5Z"), Ok(Some(MICROS / 2)));
        assert_eq!(timestamp(b"1970-01-01 02:00:00+02:00"), Ok(Some(0)));
        assert_eq!(timestamp(b"1970-01-02"), Ok(Some(DAY * MICROS)));
        assert_eq!(
            timestamp(b"2012-03-06T05:02:47.319906123"),
            Ok(Some(1_331_010_167_319_906))
        );
        assert_eq!(timestamp(b"0000-00-00 00:00:00"), Ok(None));
        assert!(matches!(timestamp(b"9999-12-30 22:00:00"), Ok(Some(_))));
        assert_eq!(timestamp(b"9999-12-31 23:59:59"), Err(OutOfRange));
        for bad in [
            "1970-01-01 25:00:00",
            "1970-01-01 1:2:3:4",
            "yesterday",
            "1970-01-01 ",
            "1970-01-01x",
            "é-é-é-é-",
        ] {
            assert!(
                timestamp(bad.as_bytes()).is_err() || bad.ends_with(' '),
                "{bad}"
            );
        }
    }
}
