//! The distinguished encoding (DER, X.690) of the values that a certificate consists of.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// A value: its tag, its length, and its content.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = content.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => {
            let all = length.to_be_bytes();
            let digits = &all[all.iter().take_while(|byte| **byte == 0).count()..];
            // A length has eight digits at most.
            bytes.push(0x80 | digits.len() as u8);
            bytes.extend_from_slice(digits);
        }
    }
    bytes.extend_from_slice(content);
    bytes
}

/// Several values as one.
pub(super) fn sequence(values: &[Vec<u8>]) -> Vec<u8> {
    value(SEQUENCE, &values.concat())
}

/// A truth.
pub(super) fn truth() -> Vec<u8> {
    value(BOOLEAN, &[0xff])
}

/// A number of 0 or more, by its digits to the base 256.
pub(super) fn integer(digits: &[u8]) -> Vec<u8> {
    let zeros = digits.iter().take_while(|byte| **byte == 0).count();
    let mut content = digits[zeros..].to_vec();
    // The first bit is the sign.
    if content.first().is_none_or(|first| *first >= 0x80) {
        content.insert(0, 0);
    }
    value(INTEGER, &content)
}

/// An identifier of an object, by its encoded arcs.
pub(super) fn object(arcs: &[u8]) -> Vec<u8> {
    value(OBJECT_IDENTIFIER, arcs)
}

/// Whole bytes as bits.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    bits_but(0, bytes)
}

/// Bits of which the last ones are not used.
pub(super) fn bits_but(unused: u8, bytes: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[unused], bytes].concat())
}

/// A distinguished name that consists of a common name.
pub(super) fn common_name(name: &str) -> Vec<u8> {
    let pair = sequence(&[object(COMMON_NAME), value(UTF8_STRING, name.as_bytes())]);
    sequence(&[value(SET, &pair)])
}

/// A time, to the second: with two digits of the year before 2050, as RFC 5280 has it (4.1.2.5).
pub(super) fn time(at: SystemTime) -> Vec<u8> {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (seconds.as_secs() / 86_400, seconds.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let clock = format!(
        "{month:02}{day:02}{:02}{:02}{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    match year < 2050 {
        true => value(UTC_TIME, format!("{:02}{clock}", year % 100).as_bytes()),
        false => value(GENERALIZED_TIME, format!("{year:04}{clock}").as_bytes()),
    }
}

/// Year, month and day of so many days after 1970-01-01, in the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_in_the_standard() {
        assert_eq!(value(OCTET_STRING, &[7]), [4, 1, 7]);
        assert_eq!(value(OCTET_STRING, &[0; 127])[..2], [4, 127]);
        assert_eq!(value(OCTET_STRING, &[0; 128])[..3], [4, 0x81, 128]);
        assert_eq!(value(OCTET_STRING, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(integer(&[]), [2, 1, 0]);
        assert_eq!(integer(&[0, 0, 127]), [2, 1, 127]);
        assert_eq!(integer(&[128]), [2, 2, 0, 128]);
        assert_eq!(bits_but(7, &[0x80]), [3, 2, 7, 0x80]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| {
            let bytes = time(UNIX_EPOCH + Duration::from_secs(seconds));
            String::from_utf8(bytes[2..].to_vec()).unwrap()
        };
        // By `date -u -d @N +%Y%m%d%H%M%SZ`.
        assert_eq!(at(0), "700101000000Z");
        assert_eq!(at(951_782_399), "000228235959Z");
        assert_eq!(at(951_782_400), "000229000000Z");
        assert_eq!(at(1_795_694_400), "261126120000Z");
        assert_eq!(at(2_524_607_999), "491231235959Z");
        assert_eq!(at(2_524_608_000), "20500101000000Z");
        assert_eq!(at(4_107_542_400), "21000301000000Z");
    }
}
