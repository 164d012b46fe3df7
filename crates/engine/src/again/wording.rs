//! A text with its numbers taken out.

use std::ops::Range;

/// Bytes of the longest text that is looked at.
const LONGEST: usize = 4096;
/// Numbers of a text beyond which it is not looked at.
const MOST_NUMBERS: usize = 32;
/// What stands in the place of a whole number.
const WHOLE: char = '\u{1}';
/// The same of another number.
const REAL: char = '\u{2}';

/// A text and its numbers, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wording {
    /// The text with marks in the places of the numbers.
    pub text: String,
    pub numbers: Vec<Number>,
    /// The numbers as they are typed: a column may be headed by one.
    pub typed: Vec<String>,
}

/// A number as it is typed, without a sign.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    /// One of digits alone.
    Whole(i64),
    /// One with a point or an exponent.
    Real(f64),
}

impl Number {
    fn read(text: &str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Self::Whole);
        }
        let real: f64 = text.parse().ok()?;
        real.is_finite().then_some(Self::Real(real))
    }

    /// Its value; whole numbers beyond 2^53 are rounded, as a cast to double does.
    pub fn value(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Real(real) => real,
        }
    }
}

/// The same number, typed as the same kind.
impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl Wording {
    /// The wording of the only statement of a text; `None` if there are several, no numbers that can be told, or too many.
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches(';').trim_end();
        if text.len() > LONGEST || text.contains([';', WHOLE, REAL]) {
            return None;
        }
        let (mut wording, mut numbers, mut after) = (String::with_capacity(text.len()), vec![], 0);
        let mut typed = Vec::new();
        for at in places(text) {
            let number = Number::read(&text[at.clone()])?;
            wording.push_str(&text[after..at.start]);
            wording.push(match number {
                Number::Whole(_) => WHOLE,
                Number::Real(_) => REAL,
            });
            after = at.end;
            numbers.push(number);
            typed.push(text[at].to_owned());
        }
        wording.push_str(&text[after..]);
        (numbers.len() <= MOST_NUMBERS).then_some(Self {
            text: wording,
            numbers,
            typed,
        })
    }
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

    fn marked(text: &str) -> (String, Vec<Number>) {
        let wording = Wording::of(text).unwrap();
        let text = wording.text.replace(WHOLE, "?").replace(REAL, "#");
        (text, wording.numbers)
    }

    #[test]
    fn numbers_are_taken_out() {
        use Number::{Real, Whole};
        for (text, wording, numbers) in [
            ("SELECT 1;", "SELECT ?", vec![Whole(1)]),
            (
                "f(1.5,-2,.5e-3)=1",
                "f(#,-?,#)=?",
                vec![Real(1.5), Whole(2), Real(0.5e-3), Whole(1)],
            ),
            ("a1 b_2 t3.c4 5", "a1 b_2 t3.c4 ?", vec![Whole(5)]),
            (
                "1e5 1E+5 2e 0x1F 1.2.3",
                "# # 2e 0x1F 1.2.3",
                vec![Real(1e5), Real(1e5)],
            ),
            ("1e-5-3", "#-?", vec![Real(1e-5), Whole(3)]),
            ("1e+", "1e+", vec![]),
            ("10.", "#", vec![Real(10.0)]),
            ("'it is 7'", "'it is ?'", vec![Whole(7)]),
            ("é5 5é $1", "é5 5é $1", vec![]),
        ] {
            assert_eq!(marked(text), (wording.to_owned(), numbers), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_kept_apart_is_left_alone() {
        let long = format!("SELECT {}", "1 + ".repeat(2000));
        let many = "1,".repeat(MOST_NUMBERS + 1);
        for text in [
            "SELECT 1; SELECT 2",
            "a\u{1}b",
            "99999999999999999999",
            "1e999",
            &long,
            &many,
        ] {
            assert_eq!(Wording::of(text), None, "{text}");
        }
    }
}
