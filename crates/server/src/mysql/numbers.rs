//! Floating-point numbers as MySQL writes them: the fewest digits that are read as the same number, with an exponent only where
//! the point would be more than 15 places away.
//!
//! Source: `my_gcvt` of MySQL's `dtoa.cc`; as there, 1e15 has an exponent and 100000000000000 has none. FLOAT columns too are
//! written with all digits that they need; MySQL leaves off what follows the sixth.

use std::io::Write;

/// Places of the point from which on a number has an exponent.
const MOST_PLACES: i32 = 15;

/// Appends a finite number.
pub(crate) fn put_double(bytes: &mut Vec<u8>, value: f64) {
    let mut digits = Digits::default();
    // There is room for the longest of them.
    let _ = write!(digits, "{value:e}");
    digits.put(bytes);
}

/// Appends a finite number of 32 bits.
pub(crate) fn put_float(bytes: &mut Vec<u8>, value: f32) {
    let mut digits = Digits::default();
    let _ = write!(digits, "{value:e}");
    digits.put(bytes);
}

/// A number as `-1.2345e-7`.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    length: usize,
}

impl Write for Digits {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text[..taken]);
        self.length += taken;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Digits {
    fn put(&self, bytes: &mut Vec<u8>) {
        let text = std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default();
        let (sign, text) = match text.strip_prefix('-') {
            Some(text) => ("-", text),
            None => ("", text),
        };
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let mut put = |text: &str| bytes.extend_from_slice(text.as_bytes());
        put(sign);
        // The point is so many places behind the first digit's front.
        let point = exponent + 1;
        if first == "0" {
            put("0");
        } else if point > MOST_PLACES || point <= -MOST_PLACES {
            put(first);
            if !rest.is_empty() {
                put(".");
                put(rest);
            }
            put("e");
            put(itoa::Buffer::new().format(exponent));
        } else if point <= 0 {
            put("0.");
            put(&ZEROS[..point.unsigned_abs() as usize]);
            put(first);
            put(rest);
        } else {
            put(first);
            let whole = (point as usize - 1).min(rest.len());
            put(&rest[..whole]);
            put(&ZEROS[..point as usize - 1 - whole]);
            if whole < rest.len() {
                put(".");
                put(&rest[whole..]);
            }
        }
    }
}

const ZEROS: &str = "000000000000000";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: f64) -> String {
        let mut bytes = vec![];
        put_double(&mut bytes, value);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn numbers_are_written_as_mysql_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (100.0, "100"),
            (1234.5678, "1234.5678"),
            (1e14, "100000000000000"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1e15"),
            (1.5e20, "1.5e20"),
            (-2.5e-16, "-2.5e-16"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        ] {
            assert_eq!(written(value), text);
        }
    }

    #[test]
    fn floats_keep_their_own_digits() {
        let mut bytes = vec![];
        put_float(&mut bytes, 0.1);
        bytes.push(b' ');
        put_float(&mut bytes, 16_777_216.0);
        bytes.push(b' ');
        put_float(&mut bytes, 3.4e38);
        assert_eq!(bytes, b"0.1 16777216 3.4e38");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_number(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(written(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
        }

        #[test]
        fn and_so_are_floats(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let mut bytes = vec![];
            put_float(&mut bytes, value);
            let text = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), value.to_bits());
        }
    }
}
