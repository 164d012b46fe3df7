//! Numbers as they are written in text. Blanks around them are ignored; an empty field is NULL.

use super::values::ParsedValue;
use crate::row_errors::ValueFault::{NotOfType, OutOfRange};

#[inline]
fn trimmed(text: &[u8]) -> &[u8] {
    match text {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => text.trim_ascii(),
        _ => text,
    }
}

/// A floating-point number. NaN is NULL, -0.0 becomes 0.0, a finite number too large is out of range.
#[inline]
pub(super) fn float64(text: &[u8]) -> ParsedValue<f64> {
    let text = trimmed(text);
    if text.is_empty() {
        return Ok(None);
    }
    let value: f64 = std::str::from_utf8(text)
        .ok()
        .and_then(|t| t.parse().ok())
        .ok_or(NotOfType)?;
    if value.is_finite() {
        // Adding zero turns -0.0 into 0.0 and leaves every other number as it is.
        return Ok(Some(value + 0.0));
    }
    not_finite(text, value.is_nan(), value)
}

/// As [`float64`], rounded once to 32 bits.
#[inline]
pub(super) fn float32(text: &[u8]) -> ParsedValue<f32> {
    let text = trimmed(text);
    if text.is_empty() {
        return Ok(None);
    }
    let value: f32 = std::str::from_utf8(text)
        .ok()
        .and_then(|t| t.parse().ok())
        .ok_or(NotOfType)?;
    if value.is_finite() {
        return Ok(Some(value + 0.0));
    }
    not_finite(text, value.is_nan(), value)
}

#[cold]
fn not_finite<T>(text: &[u8], is_nan: bool, value: T) -> ParsedValue<T> {
    if is_nan {
        Ok(None)
    } else if text.iter().any(u8::is_ascii_digit) {
        Err(OutOfRange)
    } else {
        Ok(Some(value))
    }
}

/// The sign and the digits of an integer; a fraction of zeros (`7.0`, as programs write that turned integers with
/// gaps into floats) is dropped.
#[inline]
fn sign_and_digits(text: &[u8]) -> Result<Option<(bool, &[u8])>, crate::row_errors::ValueFault> {
    let text = trimmed(text);
    let (negative, digits) = match text {
        [] => return Ok(None),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = match memchr::memchr(b'.', digits) {
        Some(dot) if digits[dot + 1..].iter().all(|b| *b == b'0') => &digits[..dot],
        _ => digits,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        if text.eq_ignore_ascii_case(b"nan") {
            return Ok(None);
        }
        return Err(NotOfType);
    }
    Ok(Some((negative, digits)))
}

#[inline]
fn magnitude(digits: &[u8]) -> Option<u64> {
    let digit = |b: &u8| u64::from(b - b'0');
    if digits.len() < 20 {
        return Some(digits.iter().fold(0, |value, b| value * 10 + digit(b)));
    }
    digits.iter().try_fold(0u64, |value, b| {
        value.checked_mul(10)?.checked_add(digit(b))
    })
}

/// An integer of 64 bits.
#[inline]
pub(super) fn signed(text: &[u8]) -> ParsedValue<i64> {
    let Some((negative, digits)) = sign_and_digits(text)? else {
        return Ok(None);
    };
    let magnitude = i128::from(magnitude(digits).ok_or(OutOfRange)?);
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).map(Some).map_err(|_| OutOfRange)
}

/// An integer of 64 bits that is not negative.
#[inline]
pub(super) fn unsigned(text: &[u8]) -> ParsedValue<u64> {
    match sign_and_digits(text)? {
        None => Ok(None),
        Some((negative, digits)) => match magnitude(digits) {
            Some(0) => Ok(Some(0)),
            Some(value) if !negative => Ok(Some(value)),
            _ => Err(OutOfRange),
        },
    }
}

/// A decimal number as an integer of the last digit kept. Digits beyond `scale` are rounded, half away from zero.
pub(super) fn decimal(text: &[u8], precision: u8, scale: u8) -> ParsedValue<i128> {
    let text = trimmed(text);
    let (negative, number) = match text {
        [] => return Ok(None),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (whole, fraction) = match memchr::memchr(b'.', number) {
        Some(dot) => (&number[..dot], &number[dot + 1..]),
        None => (number, &number[..0]),
    };
    let digits = || whole.iter().chain(fraction);
    if digits().count() == 0 || !digits().all(u8::is_ascii_digit) {
        return if text.eq_ignore_ascii_case(b"nan") {
            Ok(None)
        } else {
            Err(NotOfType)
        };
    }
    let kept = fraction.len().min(usize::from(scale));
    let padding = usize::from(scale) - kept;
    let all = whole
        .iter()
        .chain(&fraction[..kept])
        .chain(std::iter::repeat_n(&b'0', padding));
    let add = |value: i128, b: &u8| value.checked_mul(10)?.checked_add(i128::from(b - b'0'));
    let mut value = all.into_iter().try_fold(0i128, add).ok_or(OutOfRange)?;
    if fraction.get(kept).is_some_and(|next| *next >= b'5') {
        value += 1;
    }
    if value >= 10i128.pow(u32::from(precision)) {
        return Err(OutOfRange);
    }
    Ok(Some(if negative { -value } else { value }))
}

/// True or false: 1/0, t/f, true/false, y/n, yes/no in any case, or the single byte of a MySQL BIT(1).
pub(super) fn boolean(text: &[u8]) -> ParsedValue<bool> {
    match trimmed(text) {
        [] => Ok(None),
        [1] => Ok(Some(true)),
        [0] => Ok(Some(false)),
        word => match word.to_ascii_lowercase().as_slice() {
            b"1" | b"t" | b"true" | b"y" | b"yes" => Ok(Some(true)),
            b"0" | b"f" | b"false" | b"n" | b"no" => Ok(Some(false)),
            _ => Err(NotOfType),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn floats() {
        assert_eq!(float64(b" 1.5 "), Ok(Some(1.5)));
        assert_eq!(float64(b""), Ok(None));
        assert_eq!(float64(b"NaN"), Ok(None));
        assert_eq!(float64(b"-nan"), Ok(None));
        assert_eq!(float64(b"1e400"), Err(OutOfRange));
        assert_eq!(float64(b"-inf"), Ok(Some(f64::NEG_INFINITY)));
        assert_eq!(float64(b"1.5x"), Err(NotOfType));
        assert_eq!(float32(b"1e39"), Err(OutOfRange));
        assert!(float64(b"-0.0").unwrap().unwrap().is_sign_positive());
        assert!(float32(b"-0").unwrap().unwrap().is_sign_positive());
    }

    #[test]
    fn integers() {
        assert_eq!(signed(b"-9223372036854775808"), Ok(Some(i64::MIN)));
        assert_eq!(signed(b"9223372036854775808"), Err(OutOfRange));
        assert_eq!(signed(b"99999999999999999999999"), Err(OutOfRange));
        assert_eq!(signed(b"+7.00"), Ok(Some(7)));
        assert_eq!(signed(b"7.5"), Err(NotOfType));
        assert_eq!(signed(b"-"), Err(NotOfType));
        assert_eq!(signed(b"nan"), Ok(None));
        assert_eq!(unsigned(b"18446744073709551615"), Ok(Some(u64::MAX)));
        assert_eq!(unsigned(b"-1"), Err(OutOfRange));
        assert_eq!(unsigned(b"-0"), Ok(Some(0)));
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(b"12.345", 10, 2), Ok(Some(1235)));
        assert_eq!(decimal(b"-12.344", 10, 2), Ok(Some(-1234)));
        assert_eq!(decimal(b".5", 3, 1), Ok(Some(5)));
        assert_eq!(decimal(b"99.99", 3, 1), Err(OutOfRange));
        assert_eq!(decimal(b"1e3", 10, 0), Err(NotOfType));
        assert_eq!(decimal(b".", 10, 0), Err(NotOfType));
    }

    proptest! {
        #[test]
        fn every_integer_is_read_back(value: i64, other: u64) {
            prop_assert_eq!(signed(value.to_string().as_bytes()), Ok(Some(value)));
            prop_assert_eq!(unsigned(other.to_string().as_bytes()), Ok(Some(other)));
        }

        #[test]
        fn no_bytes_are_too_strange(text in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = (float64(&text), float32(&text), signed(&text), unsigned(&text), boolean(&text));
            let _ = decimal(&text, 38, 10);
        }
    }
}
