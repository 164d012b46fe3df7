//! Functions of text. Places are counted in characters from 1.

use super::numbers::{in_base, rounded_double, rounded_exactly, whole_in_base};
use super::row_function::{Arity, LONGEST_VALUE, ReturnType, RowFunction, longest, too_long};
use super::strings::{Strings, of_bytes};
use super::value::Value;
use crate::{ErrorCode, Interrupt, Warning};

const ONE: Arity = Arity(1, 1);
const TWO: Arity = Arity(2, 2);
const THREE: Arity = Arity(3, 3);
const ONE_OR_TWO: Arity = Arity(1, 2);
const TWO_OR_THREE: Arity = Arity(2, 3);
const SOME: Arity = Arity(1, usize::MAX);
/// Bytes of the longest text that a function makes of shorter ones; where it would be longer it is NULL, as in MySQL beyond its
/// `max_allowed_packet`.
pub(super) const LONGEST: usize = 1 << 16;

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::new("mysql_text", ONE_OR_TWO, ReturnType::TextAsGiven, as_text)
        .of_strings(Strings::AnyBytes),
    // What GROUP_CONCAT joins.
    RowFunction::new("mysql_group_text", ONE, ReturnType::TextAsGiven, as_text),
    // What GROUP_CONCAT gives, its first bytes alone.
    RowFunction::new("mysql_group_cut", TWO, ReturnType::TextAsGiven, group_cut),
    // What a pattern of LIKE is matched with where one of the two is bytes.
    RowFunction::new("mysql_byte_text", ONE, ReturnType::Text, |v| {
        Ok(of_bytes(&v[0].bytes()))
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_bytes", ONE_OR_TWO, ReturnType::Bytes, as_bytes)
        .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_length", ONE, ReturnType::Integer, |v| {
        integer(v[0].bytes().len())
    }),
    RowFunction::new("mysql_char_length", ONE, ReturnType::Integer, |v| {
        integer(v[0].text().chars().count())
    })
    .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_concat", SOME, ReturnType::Text, |v| {
        text(v.iter().map(Value::text).collect())
    })
    .of_strings(Strings::From(0)),
    RowFunction::new("mysql_concat_ws", SOME, ReturnType::Text, |v| match v {
        [Value::Null, ..] | [] => Ok(Value::Null),
        [separator, parts @ ..] => {
            let parts: Vec<String> = parts
                .iter()
                .filter(|part| !part.is_null())
                .map(Value::text)
                .collect();
            text(parts.join(&separator.text()))
        }
    })
    .of_strings(Strings::From(0))
    .seeing_nulls(),
    RowFunction::new("mysql_substr", TWO_OR_THREE, ReturnType::Text, substring)
        .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_substring", TWO_OR_THREE, ReturnType::Text, substring)
        .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_mid", TWO_OR_THREE, ReturnType::Text, substring)
        .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_left", TWO, ReturnType::Text, |v| {
        text(first(&v[0].text(), v[1].integer()))
    })
    .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_right", TWO, ReturnType::Text, |v| {
        let whole = v[0].text();
        let leave = whole.chars().count().saturating_sub(count(&v[1]));
        text(whole.chars().skip(leave).collect())
    })
    .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_lpad", TWO_OR_THREE, ReturnType::Text, |v| {
        pad(v, PadAt::Start)
    })
    .of_strings(Strings::At(&[0, 2])),
    RowFunction::new("mysql_rpad", TWO_OR_THREE, ReturnType::Text, |v| {
        pad(v, PadAt::End)
    })
    .of_strings(Strings::At(&[0, 2])),
    RowFunction::new("mysql_repeat", TWO, ReturnType::Text, |v| {
        repeated(&v[0].text(), count(&v[1]))
    })
    .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_space", ONE, ReturnType::Text, |v| {
        repeated(" ", count(&v[0]))
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_reverse", ONE, ReturnType::Text, |v| {
        text(v[0].text().chars().rev().collect())
    })
    .of_strings(Strings::At(&[0])),
    RowFunction::new("mysql_upper", ONE, ReturnType::Text, |v| {
        text(v[0].text().chars().map(upper).collect())
    })
    .of_strings(Strings::Letters),
    RowFunction::new("mysql_lower", ONE, ReturnType::Text, |v| {
        text(v[0].text().chars().map(lower).collect())
    })
    .of_strings(Strings::Letters),
    RowFunction::new("mysql_locate", TWO_OR_THREE, ReturnType::Integer, locate)
        .of_strings(Strings::At(&[0, 1])),
    RowFunction::new("mysql_replace", THREE, ReturnType::Text, replace)
        .of_strings(Strings::From(0)),
    RowFunction::new("mysql_trim", ONE_OR_TWO, ReturnType::Text, |v| {
        let what = trimmed_text(v);
        text(trim_end(trim_start(&v[0].text(), &what), &what).to_owned())
    })
    .of_strings(Strings::From(0)),
    RowFunction::new("mysql_ltrim", ONE_OR_TWO, ReturnType::Text, |v| {
        text(trim_start(&v[0].text(), &trimmed_text(v)).to_owned())
    })
    .of_strings(Strings::From(0)),
    RowFunction::new("mysql_rtrim", ONE_OR_TWO, ReturnType::Text, |v| {
        text(trim_end(&v[0].text(), &trimmed_text(v)).to_owned())
    })
    .of_strings(Strings::From(0)),
    RowFunction::new("mysql_hex", ONE, ReturnType::Text, |v| {
        text(match &v[0] {
            Value::Integer(integer) => in_base(*integer as u64, 16),
            Value::Double(number) => in_base(number.round() as i128 as u64, 16),
            decimal @ Value::Decimal(..) => in_base(decimal.integer() as u64, 16),
            other => in_hexadecimal(&other.bytes())?,
        })
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_unhex", ONE, ReturnType::Bytes, |v| {
        Ok(unhex(&v[0].text()).map_or(Value::Null, Value::Bytes))
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_bin", ONE, ReturnType::Text, |v| {
        Ok(whole_in_base(&v[0], 2))
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_oct", ONE, ReturnType::Text, |v| {
        Ok(whole_in_base(&v[0], 8))
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_ascii", ONE, ReturnType::Integer, |v| {
        integer(v[0].bytes().first().copied().unwrap_or(0).into())
    }),
    RowFunction::new("mysql_ord", ONE, ReturnType::Integer, |v| {
        let first = match &v[0] {
            Value::Bytes(bytes) => bytes.iter().copied().take(1).collect(),
            other => first(&other.text(), 1).into_bytes(),
        };
        let number = |number: usize, byte: u8| number << 8 | usize::from(byte);
        integer(first.into_iter().fold(0, number))
    }),
    RowFunction::new("mysql_char", SOME, ReturnType::Bytes, |v| {
        let numbers = v
            .iter()
            .filter(|value| !value.is_null())
            .map(|value| value.integer() as u32);
        Ok(Value::Bytes(numbers.flat_map(significant_bytes).collect()))
    })
    .of_strings(Strings::AnyBytes)
    .seeing_nulls(),
    RowFunction::new("mysql_elt", SOME, ReturnType::Text, |v| {
        let chosen = usize::try_from(v[0].integer())
            .ok()
            .filter(|n| *n > 0)
            .and_then(|n| v.get(n));
        Ok(chosen
            .filter(|value| !value.is_null())
            .map_or(Value::Null, |value| Value::Text(value.text())))
    })
    .of_strings(Strings::From(1))
    .seeing_nulls(),
    RowFunction::new("mysql_find_in_set", TWO, ReturnType::Integer, |v| {
        let wanted = v[0].text();
        let list = v[1].text();
        let place = if list.is_empty() {
            None
        } else {
            list.split(',').position(|item| item == wanted)
        };
        integer(place.map_or(0, |at| at + 1))
    })
    .of_strings(Strings::From(0)),
    RowFunction::new("mysql_strcmp", TWO, ReturnType::Integer, |v| {
        Ok(Value::Integer(v[0].text().cmp(&v[1].text()) as i128))
    })
    .of_strings(Strings::From(0)),
    RowFunction::new("mysql_like_pattern", TWO, ReturnType::Text, |v| {
        let escape = v[1].text();
        text(escaped_by_backslashes(&v[0].text(), escape.chars().next()))
    }),
    RowFunction::new("mysql_insert", Arity(4, 4), ReturnType::Text, insert)
        .of_strings(Strings::At(&[0, 3])),
    RowFunction::new(
        "mysql_substring_index",
        THREE,
        ReturnType::Text,
        substring_index,
    )
    .of_strings(Strings::At(&[0, 1])),
    RowFunction::new("mysql_format", TWO, ReturnType::Text, |v| {
        text(grouped(&v[0], count(&v[1]).min(30)))
    })
    .of_strings(Strings::AnyBytes),
];

/// The engine's functions whose results it does not bound, bounded.
pub(super) const BOUNDED: &[RowFunction] = &[
    RowFunction::new("repeat", TWO, ReturnType::Text, |v| {
        repeated(&v[0].text(), count(&v[1]))
    })
    .of_strings(Strings::At(&[0])),
    RowFunction::new("lpad", TWO_OR_THREE, ReturnType::Text, |v| {
        pad(v, PadAt::Start)
    })
    .of_strings(Strings::At(&[0, 2])),
    RowFunction::new("rpad", TWO_OR_THREE, ReturnType::Text, |v| {
        pad(v, PadAt::End)
    })
    .of_strings(Strings::At(&[0, 2])),
    RowFunction::new("replace", THREE, ReturnType::Text, replace).of_strings(Strings::From(0)),
];

fn text(text: String) -> Result<Value, String> {
    Ok(Value::Text(text))
}

fn integer(number: usize) -> Result<Value, String> {
    Ok(Value::Integer(number as i128))
}

/// An argument that counts; nothing if it is negative.
fn count(value: &Value) -> usize {
    usize::try_from(value.integer()).unwrap_or(0)
}

fn first(text: &str, characters: i128) -> String {
    text.chars()
        .take(usize::try_from(characters).unwrap_or(0))
        .collect()
}

/// A value as text, the first characters of it alone where a length is given; NULL for bytes that are no text.
fn as_text(v: &[Value]) -> Result<Value, String> {
    let whole = match &v[0] {
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Ok(Value::Null),
        },
        other => other.text(),
    };
    text(match v.get(1) {
        Some(length) => first(&whole, length.integer()),
        None => whole,
    })
}

/// A text of a group without what is beyond so many bytes, of which it is warned.
fn group_cut(v: &[Value]) -> Result<Value, String> {
    let whole = v[0].text();
    let most = count(&v[1]);
    if whole.len() <= most {
        return text(whole);
    }
    if let Some(statement) = Interrupt::current()
        && !statement.warnings().is_full()
    {
        statement.warnings().add(Warning {
            code: ErrorCode::GROUP_CONCAT_CUT,
            sentence: format!(
                "a text was cut by GROUP_CONCAT(): it has {} bytes, and group_concat_max_len is {most}",
                whole.len()
            ),
        });
    }
    text(whole[..whole.floor_char_boundary(most)].to_owned())
}

/// A value as bytes, as many as a length says where there is one: what is missing is zero bytes.
fn as_bytes(v: &[Value]) -> Result<Value, String> {
    let mut bytes = v[0].bytes();
    if let Some(length) = v.get(1) {
        let length = count(length);
        if length > LONGEST.max(bytes.len()) {
            return Ok(Value::Null);
        }
        bytes.resize(length, 0);
    }
    Ok(Value::Bytes(bytes))
}

/// From a place on, counted from the end if it is negative, so many characters.
fn substring(v: &[Value]) -> Result<Value, String> {
    let whole = v[0].text();
    let from = v[1].integer();
    let length = whole.chars().count() as i128;
    let start = if from < 0 { length + from } else { from - 1 };
    let taken = v.get(2).map_or(length, Value::integer);
    if from == 0 || start < 0 || taken <= 0 {
        return text(String::new());
    }
    let characters = |number: i128| usize::try_from(number).unwrap_or(usize::MAX);
    text(
        whole
            .chars()
            .skip(characters(start))
            .take(characters(taken))
            .collect(),
    )
}

fn repeated(part: &str, times: usize) -> Result<Value, String> {
    if part.len().saturating_mul(times) > LONGEST {
        Ok(Value::Null)
    } else {
        text(part.repeat(times))
    }
}

/// A pattern of LIKE whose escape is the backslash, of one that has another escape, or none.
fn escaped_by_backslashes(pattern: &str, escape: Option<char>) -> String {
    let mut escaped = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(sign) = rest.next() {
        let is_escape = Some(sign) == escape;
        // An escape at the end stands for itself.
        let meant = match is_escape {
            true => rest.next().unwrap_or(sign),
            false => sign,
        };
        if meant == '\\' || (is_escape && matches!(meant, '%' | '_')) {
            escaped.push('\\');
        }
        escaped.push(meant);
    }
    escaped
}

fn replace(v: &[Value]) -> Result<Value, String> {
    let (whole, from, to) = (v[0].text(), v[1].text(), v[2].text());
    if from.is_empty() {
        return text(whole);
    }
    let places = whole.matches(&from).count();
    let kept = whole.len() - places * from.len();
    if places.saturating_mul(to.len()).saturating_add(kept) > longest(v) {
        Ok(Value::Null)
    } else {
        text(whole.replace(&from, &to))
    }
}

#[derive(Clone, Copy)]
enum PadAt {
    Start,
    End,
}

fn pad(v: &[Value], at: PadAt) -> Result<Value, String> {
    let (whole, length) = (v[0].text(), v[1].integer());
    let Some(length) = usize::try_from(length)
        .ok()
        .filter(|length| *length <= LONGEST)
    else {
        return Ok(Value::Null);
    };
    let has = whole.chars().count();
    if has >= length {
        return text(first(&whole, length as i128));
    }
    let with = v.get(2).map_or_else(|| " ".to_owned(), Value::text);
    if with.is_empty() {
        return text(String::new());
    }
    let padding: String = with.chars().cycle().take(length - has).collect();
    text(match at {
        PadAt::Start => padding + &whole,
        PadAt::End => whole + &padding,
    })
}

/// The place of the first text in the second, from the place of the third argument on.
fn locate(v: &[Value]) -> Result<Value, String> {
    let (part, whole) = (v[0].text(), v[1].text());
    let from = v.get(2).map_or(1, Value::integer);
    let length = whole.chars().count() as i128;
    if from < 1 || from > length + 1 {
        return integer(0);
    }
    let skipped: usize = whole
        .chars()
        .take(from as usize - 1)
        .map(char::len_utf8)
        .sum();
    let found = whole[skipped..].find(&part);
    integer(found.map_or(0, |at| whole[..skipped + at].chars().count() + 1))
}

fn trimmed_text(v: &[Value]) -> String {
    v.get(1).map_or_else(|| " ".to_owned(), Value::text)
}

fn trim_start<'a>(text: &'a str, what: &str) -> &'a str {
    if what.is_empty() {
        text
    } else {
        text.trim_start_matches(what)
    }
}

fn trim_end<'a>(text: &'a str, what: &str) -> &'a str {
    if what.is_empty() {
        text
    } else {
        text.trim_end_matches(what)
    }
}

/// The letter in upper case: of a letter there is always one, as in Unicode's simple mapping, which MySQL's collations have, so that
/// `ß` stays what it is.
fn upper(letter: char) -> char {
    let mut several = letter.to_uppercase();
    match (several.next(), several.next()) {
        (Some(only), None) => only,
        // Greek letters with an iota below, whose upper case has one letter too.
        _ => match letter {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
                letter_after(letter, 8)
            }
            '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => letter_after(letter, 9),
            _ => letter,
        },
    }
}

/// The same in lower case: of `İ` it is `i`, without the point that it has got besides.
fn lower(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

fn letter_after(letter: char, places: u32) -> char {
    char::from_u32(u32::from(letter) + places).unwrap_or(letter)
}

fn in_hexadecimal(bytes: &[u8]) -> Result<String, String> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if 2 * bytes.len() > LONGEST_VALUE {
        return Err(too_long("HEX"));
    }
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    Ok(digits
        .map(|digit| DIGITS[usize::from(digit)] as char)
        .collect())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let padded = if text.len() % 2 == 1 {
        format!("0{text}")
    } else {
        text.to_owned()
    };
    let digits: Option<Vec<u8>> = padded
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    Some(
        digits?
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
}

/// The bytes of a number without the zeros before them; one zero byte for 0.
fn significant_bytes(number: u32) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let first = bytes
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(bytes.len() - 1);
    bytes[first..].to_vec()
}

/// A part of a text, by its place and length, with another in its place.
fn insert(v: &[Value]) -> Result<Value, String> {
    let whole: Vec<char> = v[0].text().chars().collect();
    let (at, length) = (v[1].integer(), v[2].integer());
    if at < 1 || at > whole.len() as i128 {
        return text(v[0].text());
    }
    let start = at as usize - 1;
    let end = match usize::try_from(length) {
        Ok(length) => start.saturating_add(length).min(whole.len()),
        Err(_) => whole.len(),
    };
    let head = whole[..start].iter().collect::<String>();
    text(head + &v[3].text() + &whole[end..].iter().collect::<String>())
}

/// What stands before so many delimiters, or after them if they are counted from the end.
fn substring_index(v: &[Value]) -> Result<Value, String> {
    let (whole, delimiter, number) = (v[0].text(), v[1].text(), v[2].integer());
    if delimiter.is_empty() || number == 0 {
        return text(String::new());
    }
    let parts: Vec<&str> = whole.split(&delimiter).collect();
    let taken = usize::try_from(number.unsigned_abs())
        .unwrap_or(usize::MAX)
        .min(parts.len());
    let chosen = if number > 0 {
        &parts[..taken]
    } else {
        &parts[parts.len() - taken..]
    };
    text(chosen.join(&delimiter))
}

/// A number with commas between thousands and so many digits after the point.
fn grouped(number: &Value, digits: usize) -> String {
    let rounded = match rounded_exactly(number, digits) {
        Some(exact) => exact,
        None => format!("{:.digits$}", rounded_double(number.double(), digits)),
    };
    let plain = rounded.trim_start_matches('-');
    let is_negative =
        rounded.starts_with('-') && plain.contains(|digit| "123456789".contains(digit));
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if is_negative { "-" } else { "" };
    let point = if digits > 0 { "." } else { "" };
    format!("{sign}{grouped}{point}{fraction:0<digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: Value) -> String {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        function.unwrap().row(&[value]).unwrap().text()
    }

    /// UPPER made two letters of one, and LOWER a final sigma of the last one of a word.
    #[test]
    fn each_letter_has_one_of_the_other_case() {
        let of = |name: &str, text: &str| of(name, Value::Text(text.to_owned()));
        assert_eq!(
            of("mysql_upper", "straße é ŉ ﬁ ᾳ ᾀ ǰ"),
            "STRAßE É ŉ ﬁ ᾼ ᾈ ǰ"
        );
        assert_eq!(of("mysql_lower", "İ ΣΑΣ ÄẞᾈK"), "i σασ äßᾀk");
    }

    #[test]
    fn halves_of_decimals_are_rounded_away_from_zero() {
        let left = |length: Value| {
            let function = FUNCTIONS.iter().find(|it| it.name == "mysql_left").unwrap();
            let values = [Value::Text("abcd".to_owned()), length];
            function.row(&values).unwrap().text()
        };
        assert_eq!(left(Value::Decimal(25, 1)), "abc");
        assert_eq!(left(Value::Double(2.5)), "ab");
        assert_eq!(grouped(&Value::Decimal(25, 1), 0), "3");
        assert_eq!(grouped(&Value::Double(2.5), 0), "2");
        // As ROUND rounds it, not by the digits that the double has beyond its fifteen.
        assert_eq!(grouped(&Value::Double(1.115), 2), "1.12");
        assert_eq!(of("mysql_hex", Value::Decimal(25, 1)), "3");
    }

    /// BIN and OCT are CONV, which reads a number's text up to its point.
    #[test]
    fn digits_in_other_bases_are_those_of_the_whole_part() {
        assert_eq!(of("mysql_bin", Value::Decimal(25, 1)), "10");
        assert_eq!(of("mysql_bin", Value::Double(3.5)), "11");
        assert_eq!(of("mysql_oct", Value::Integer(12)), "14");
        assert_eq!(
            of("mysql_oct", Value::Integer(-1)),
            "1777777777777777777777"
        );
        assert_eq!(of("mysql_bin", Value::Text("5x".to_owned())), "101");
    }
}
