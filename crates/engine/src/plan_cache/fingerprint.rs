//! What statements have in common that differ in nothing but numbers.

use std::borrow::Cow;
use std::ops::Range;

use datafusion::common::ScalarValue;
use sql::Parameter;

/// Bytes of the longest text that is looked at.
const LONGEST: usize = 4096;
/// Numbers of a text beyond which it is not looked at.
const MOST_NUMBERS: usize = 32;
/// Digits of the longest number with a point that a double tells from every other of as many, and from every integer of 64 bits.
const EXACT_DIGITS: usize = 15;
/// Numbers with a point are below this, where they have no more digits.
const EXACT_BELOW: f64 = 1e15;
/// Digits with which every double can be written so that it is read back, the most that programs write.
const DIGITS_OF_DOUBLE: usize = 17;
/// A number of so many digits is below this: between two integers, and where moments by their digits are not.
const LONG_BELOW: f64 = 1e12;
/// What stands in the place of a whole number.
const WHOLE: char = '\u{1}';
/// The same of another number.
const REAL: char = '\u{2}';
/// What stands before each number that is no parameter, at the end of the name of a plan.
const FIXED: char = '\u{3}';
/// What ends the name of a plan whose parameters may have more digits than [`EXACT_DIGITS`].
const LONG: char = '\u{4}';

/// The only statement of a text, and where its numbers are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueryFingerprint<'a> {
    text: &'a str,
    /// The text with marks in the places of the numbers.
    marked: String,
    numbers: Vec<Range<usize>>,
}

/// A statement as its plan is known: the parameters that may have other values, and the values that they have here.
pub(super) struct ParameterizedQuery<'a> {
    /// The name of the plan: the text with marks in the places of the parameters, and all other numbers.
    pub name: Cow<'a, str>,
    pub parameters: Vec<&'a Parameter>,
    pub values: Vec<ScalarValue>,
    /// Whether some of them have more digits than a double tells apart: beside decimals these count.
    pub is_long: bool,
}

impl<'a> QueryFingerprint<'a> {
    /// The fingerprint of the only statement of a text; `None` if there are several, numbers that cannot be told, or too many.
    pub fn of(text: &'a str) -> Option<Self> {
        let text = text.trim().trim_end_matches(';').trim_end();
        // A placeholder of the client's would be taken for one of ours.
        if text.len() > LONGEST || text.contains([';', '?', WHOLE, REAL, FIXED, LONG]) {
            return None;
        }
        let (mut marked, mut after) = (String::with_capacity(text.len()), 0);
        let numbers: Vec<_> = places(text).collect();
        for at in &numbers {
            let digits = &text[at.clone()];
            marked.push_str(&text[after..at.start]);
            marked.push(if is_whole(digits) { WHOLE } else { REAL });
            after = at.end;
        }
        marked.push_str(&text[after..]);
        (numbers.len() <= MOST_NUMBERS).then_some(Self {
            text,
            marked,
            numbers,
        })
    }

    /// The statement.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// What all statements have in common that differ from this one in their numbers alone.
    pub fn marked(&self) -> &str {
        &self.marked
    }

    /// Where its numbers are.
    pub fn numbers(&self) -> &[Range<usize>] {
        &self.numbers
    }

    /// The statement with parameters in the places of these numbers, as far as their values can be any.
    pub(super) fn parameterized<'b>(
        &'b self,
        parameters: &'b [Parameter],
    ) -> ParameterizedQuery<'b> {
        let mut found = ParameterizedQuery {
            name: Cow::Borrowed(&self.marked),
            parameters: Vec::with_capacity(parameters.len()),
            values: Vec::with_capacity(parameters.len()),
            is_long: false,
        };
        let mut of_statement = parameters.iter().peekable();
        for (number, at) in self.numbers.iter().enumerate() {
            let digits = &self.text[at.clone()];
            let parameter = of_statement.next_if(|parameter| parameter.number == number);
            let value = parameter.and_then(|parameter| value(digits, parameter));
            if let (Some(parameter), Some((value, is_long))) = (parameter, value) {
                found.parameters.push(parameter);
                found.values.push(value);
                found.is_long |= is_long;
            } else {
                let name = found.name.to_mut();
                name.push(FIXED);
                name.push_str(&number.to_string());
                name.push('=');
                name.push_str(digits);
            }
        }
        if found.is_long {
            found.name.to_mut().push(LONG);
        }
        found
    }

    /// The text with `?1`, `?2`, ... in the places of these parameters; `None` if one of them is not there.
    pub fn with_placeholders(&self, parameters: &[&Parameter]) -> Option<String> {
        let (mut text, mut after) = (String::with_capacity(self.text.len()), 0);
        for (index, parameter) in parameters.iter().enumerate() {
            let at = parameter.place(self.text, &self.numbers)?;
            text.push_str(self.text.get(after..at.start)?);
            text.push('?');
            text.push_str(&(index + 1).to_string());
            after = at.end;
        }
        text.push_str(&self.text[after..]);
        Some(text)
    }
}

/// The value of a number as it is typed, and whether it has more digits than a double tells apart; `None` if it is to stay what it is.
///
/// What compares with 0 and 1 asks whether something is so, and planning may know what. An angle and a number with an exponent are
/// doubles. Another number with a point that has many digits is a decimal: between two integers it compares with every integer and every
/// double as the nearest double does, but not with decimals.
fn value(digits: &str, parameter: &Parameter) -> Option<(ScalarValue, bool)> {
    if is_whole(digits) {
        let number: i64 = digits.parse().ok()?;
        let signed = if parameter.negated { -number } else { number };
        return (number > 1).then_some((ScalarValue::Int64(Some(signed)), false));
    }
    let number: f64 = digits.parse().ok()?;
    let mantissa = digits.split(['e', 'E']).next().unwrap_or(digits);
    let significant = mantissa.trim_start_matches(['0', '.']).bytes();
    let significant = significant.filter(u8::is_ascii_digit).count();
    let is_double = parameter.is_angle || mantissa.len() < digits.len();
    let is_long = significant > EXACT_DIGITS && !is_double;
    let is_between_integers = number.fract() != 0.0 && number < LONG_BELOW;
    if is_long && !(is_between_integers && significant <= DIGITS_OF_DOUBLE) {
        return None;
    }
    let signed = if parameter.negated { -number } else { number };
    let is_kept = number > 0.0 && number < EXACT_BELOW;
    is_kept.then_some((ScalarValue::Float64(Some(signed)), is_long))
}

fn is_whole(digits: &str) -> bool {
    digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where numbers stand: runs of digits with a point and an exponent, perhaps, that are no part of a word. In a string or in a
/// comment as well, which does no harm: what a number means is learnt from plans, not from here.
fn places(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            if !in_word(bytes[at]) {
                at += 1;
                continue;
            }
            let end = number_end(&bytes[start..]).map(|length| start + length);
            while at < bytes.len() && in_word(bytes[at]) {
                at += 1;
            }
            match end {
                // The sign of an exponent is no part of a word.
                Some(end) if end >= at => {
                    at = end;
                    if bytes.get(at).is_none_or(|byte| !in_word(*byte)) {
                        return Some(start..end);
                    }
                }
                _ => {}
            }
        }
        None
    })
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | 128..)
}

/// The length of the number with which the bytes begin.
fn number_end(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let whole = digits(0);
    let mut end = whole;
    let mut fraction = 0;
    if bytes.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> (String, Vec<&str>) {
        let fingerprint = QueryFingerprint::of(text).unwrap();
        let marked = fingerprint.marked().replace(WHOLE, "?").replace(REAL, "#");
        let digits = fingerprint.numbers().iter().map(|at| &text[at.clone()]);
        (marked, digits.collect())
    }

    #[test]
    fn numbers_are_taken_out() {
        for (text, expected, numbers) in [
            ("SELECT 1;", "SELECT ?", vec!["1"]),
            (
                "f(1.5,-2,.5e-3)=1",
                "f(#,-?,#)=?",
                vec!["1.5", "2", ".5e-3", "1"],
            ),
            ("a1 b_2 t3.c4 5", "a1 b_2 t3.c4 ?", vec!["5"]),
            (
                "1e5 1E+5 2e 0x1F 1.2.3",
                "# # 2e 0x1F 1.2.3",
                vec!["1e5", "1E+5"],
            ),
            ("1e-5-3", "#-?", vec!["1e-5", "3"]),
            ("1e+", "1e+", vec![]),
            ("10.", "#", vec!["10."]),
            ("'it is 7'", "'it is ?'", vec!["7"]),
            ("é5 5é $1", "é5 5é $1", vec![]),
        ] {
            assert_eq!(marked(text), (expected.to_owned(), numbers), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_kept_apart_is_left_alone() {
        let long = format!("SELECT {}", "1 + ".repeat(2000));
        let many = "1,".repeat(MOST_NUMBERS + 1);
        for text in [
            "SELECT 1; SELECT 2",
            "a\u{1}b",
            "SELECT ? + 1",
            &long,
            &many,
        ] {
            assert_eq!(QueryFingerprint::of(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_whose_digits_may_matter_have_no_value_apart_from_them() {
        let parameter = |negated, is_angle| Parameter {
            number: 0,
            negated,
            is_angle,
        };
        let long = Some((ScalarValue::Float64(Some(0.123_456_789_012_345_68)), true));
        let double = |number| Some((ScalarValue::Float64(Some(number)), false));
        let whole = |number| Some((ScalarValue::Int64(Some(number)), false));
        for (digits, expected) in [
            ("17", whole(17)),
            ("9223372036854775807", whole(i64::MAX)),
            ("9223372036854775808", None),
            ("0", None),
            ("1", None),
            ("2.5", double(2.5)),
            ("25e-1", double(2.5)),
            ("2.0", double(2.0)),
            ("1e5", double(1e5)),
            ("1e15", None),
            ("0.0", None),
            ("0.12345678901234568", long.clone()),
            ("0.123456789012345678", None),
            (
                "1.2345678901234567e-30",
                double(1.234_567_890_123_456_7e-30),
            ),
            // It is 4 as a double.
            ("3.9999999999999999", None),
            ("20100615123000.123", None),
            ("1e999", None),
        ] {
            assert_eq!(
                value(digits, &parameter(false, false)),
                expected,
                "{digits}"
            );
        }
        assert_eq!(value("17", &parameter(true, false)), whole(-17));
        assert_eq!(value("2.5", &parameter(true, false)), double(-2.5));
        let angle = parameter(false, true);
        assert_eq!(
            value("0.123456789012345678", &angle),
            double(0.123_456_789_012_345_68)
        );
    }

    #[test]
    fn long_numbers_have_plans_of_their_own() {
        let parameters = [Parameter {
            number: 0,
            negated: false,
            is_angle: false,
        }];
        let name = |text: &'static str| {
            let fingerprint = QueryFingerprint::of(text).unwrap();
            let found = fingerprint.parameterized(&parameters);
            (found.name.into_owned(), found.is_long)
        };
        let (short, is_long) = name("SELECT a WHERE a > 2.5");
        assert!(!is_long);
        let (long, is_long) = name("SELECT a WHERE a > 2.3456789012345678");
        assert!(is_long);
        assert_ne!(short, long);
        assert_eq!(name("SELECT a WHERE a > 7.3456789012345678").0, long);
    }

    #[test]
    fn a_plan_is_named_by_all_that_is_no_parameter() {
        let parameter = |number| Parameter {
            number,
            negated: false,
            is_angle: false,
        };
        let name = |text: &'static str| {
            let fingerprint = QueryFingerprint::of(text).unwrap();
            let parameters = [1, 2].map(parameter);
            let found = fingerprint.parameterized(&parameters);
            let text = fingerprint.with_placeholders(&found.parameters).unwrap();
            (found.name.into_owned(), text, found.values.len())
        };
        let (first, text, values) = name("SELECT 5 WHERE a = 7 AND b < 2.5");
        assert_eq!(
            (text.as_str(), values),
            ("SELECT 5 WHERE a = ?1 AND b < ?2", 2)
        );
        assert_eq!(name("SELECT 5 WHERE a = 70 AND b < 0.125").0, first);
        for other in [
            "SELECT 6 WHERE a = 7 AND b < 2.5",
            "SELECT 5 WHERE a = 1 AND b < 2.5",
            "SELECT 5 WHERE a = 7 AND b < 0.0",
            "SELECT 5 WHERE a = 7.5 AND b < 2.5",
        ] {
            assert_ne!(name(other).0, first, "{other}");
        }
    }
}
