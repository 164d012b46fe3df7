//! Strings of characters and strings of bytes: whether a function computes with the ones or the others.
//!
//! A string function gives bytes where one of its strings is bytes, and computes with bytes then: LENGTH and CHAR_LENGTH are one, places are
//! those of bytes. Each byte is made the character of its number (as ISO 8859-1 has it), so that there is one function for both. A function that
//! takes texts alone rejects bytes that are none: nothing is lost silently.

use arrow::datatypes::DataType;

use super::row_function::OfRow;
use super::value::Value;

/// Which arguments of a function are strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::functions) enum Strings {
    /// It takes its arguments for numbers or times, which end where they are no text, or takes bytes as they are.
    AnyBytes,
    /// All are texts; bytes that are none are rejected.
    Texts,
    /// Those at these places, from 0.
    At(&'static [usize]),
    /// All from this place on.
    From(usize),
    /// The only argument; bytes have no letters, and stay as they are.
    Letters,
}

impl Strings {
    fn has(self, at: usize) -> bool {
        match self {
            Self::AnyBytes | Self::Texts => false,
            Self::At(places) => places.contains(&at),
            Self::From(first) => at >= first,
            Self::Letters => true,
        }
    }

    /// Whether one of the strings is of a type of bytes.
    pub(super) fn any_binary(self, types: &[DataType]) -> bool {
        let mut types = types.iter().enumerate();
        types.any(|(at, given)| *given == DataType::Binary && self.has(at))
    }

    /// What a function gives for these values. The error is a sentence about them.
    pub(super) fn compute(self, name: &str, of: OfRow, values: &[Value]) -> Result<Value, String> {
        let is_bytes = |value: &Value| matches!(value, Value::Bytes(_));
        if !values.iter().any(is_bytes) {
            return of(values);
        }
        match self {
            Self::AnyBytes => of(values),
            Self::Texts => match values.iter().all(is_readable) {
                true => of(values),
                false => Err(unreadable(name)),
            },
            Self::Letters => Ok(values[0].clone()),
            Self::At(_) | Self::From(_) => {
                let strings = values.iter().enumerate();
                let mut strings = strings.filter(|(at, _)| self.has(*at));
                if !strings.any(|(_, value)| is_bytes(value)) {
                    return of(values);
                }
                let made = values.iter().enumerate().map(|(at, value)| match value {
                    value if self.has(at) && !value.is_null() => of_bytes(&value.bytes()),
                    other => other.clone(),
                });
                let made: Vec<Value> = made.collect();
                Ok(match of(&made)? {
                    Value::Text(text) => Value::Bytes(to_bytes(&text)),
                    other => other,
                })
            }
        }
    }
}

fn is_readable(value: &Value) -> bool {
    match value {
        Value::Bytes(bytes) => std::str::from_utf8(bytes).is_ok(),
        _ => true,
    }
}

fn unreadable(name: &str) -> String {
    let name = match name {
        "GROUP_TEXT" => "GROUP_CONCAT",
        other => other,
    };
    format!(
        "{name} is not supported of bytes that are no text in UTF-8; HEX(value) gives a text of any bytes"
    )
}

/// A text with a character for each byte.
pub(super) fn of_bytes(bytes: &[u8]) -> Value {
    Value::Text(bytes.iter().copied().map(char::from).collect())
}

/// The bytes of such a text.
fn to_bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|character| character as u32 as u8)
        .collect()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use proptest::prelude::*;

    use super::super::row_function::{Arity, ReturnType, RowFunction};
    use super::super::{
        encodings, json, json_documents, json_order, numbers, patterns, spans, text, times,
    };
    use super::*;

    fn tables() -> impl Iterator<Item = &'static RowFunction> {
        [
            text::FUNCTIONS,
            text::BOUNDED,
            encodings::FUNCTIONS,
            json::FUNCTIONS,
            json_documents::FUNCTIONS,
            json_order::FUNCTIONS,
            patterns::FUNCTIONS,
            numbers::FUNCTIONS,
            spans::FUNCTIONS,
            times::FUNCTIONS,
        ]
        .into_iter()
        .flatten()
    }

    fn has_strings(function: &RowFunction) -> bool {
        matches!(function.strings, Strings::At(_) | Strings::From(_))
    }

    /// Arguments for a function: strings where it has some, else small numbers.
    fn arguments(function: &RowFunction, strings: &[Vec<u8>], numbers: &[i128]) -> Vec<Vec<u8>> {
        let Arity(_, most) = function.arity;
        let count = most.min(strings.len());
        let number = |at: usize| numbers[at].to_string().into_bytes();
        (0..count)
            .map(|at| match function.strings.has(at) {
                true => strings[at].clone(),
                false => number(at),
            })
            .collect()
    }

    fn high(bytes: &[u8]) -> Vec<u8> {
        bytes.iter().map(|byte| byte | 0x80).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        /// A function of strings does not look at what the bytes are, but for whether they are equal: what it does to letters of ASCII
        /// it does to other bytes too.
        #[test]
        fn bytes_are_computed_with_as_letters_are(
            strings in prop::collection::vec(prop::collection::vec(b'a'..b'd', 0..7), 5),
            numbers in prop::collection::vec(-3_i128..9, 5),
        ) {
            for function in tables().filter(|it| has_strings(it)) {
                let given = arguments(function, &strings, &numbers);
                let value = |at: usize, of: &dyn Fn(&[u8]) -> Value| match function.strings.has(at) {
                    true => of(&given[at]),
                    false => Value::Integer(numbers[at]),
                };
                let values = |of: &dyn Fn(&[u8]) -> Value| -> Vec<Value> {
                    (0..given.len()).map(|at| value(at, of)).collect()
                };
                let letters = values(&|bytes| Value::Text(String::from_utf8_lossy(bytes).into_owned()));
                let bytes = values(&|bytes| Value::Bytes(high(bytes)));
                let of_letters = function.row(&letters).unwrap();
                let of_bytes = function.row(&bytes).unwrap();
                let expected = match of_letters {
                    Value::Text(text) => Value::Bytes(high(text.as_bytes())),
                    other => other,
                };
                prop_assert_eq!(of_bytes, expected, "{} {:?}", function.name, letters);
            }
        }

        /// No function makes of bytes a text that has lost some.
        #[test]
        fn no_byte_is_replaced(
            strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..7), 6),
            wholly in any::<bool>(),
        ) {
            for function in tables() {
                let Arity(least, most) = function.arity;
                for count in least..=most.min(strings.len()) {
                    let values: Vec<Value> = strings[..count].iter().enumerate().map(|(at, bytes)| {
                        match wholly || at == 0 {
                            true => Value::Bytes(bytes.clone()),
                            false => Value::Integer(at as i128),
                        }
                    }).collect();
                    let Ok(Value::Text(text)) = function.row(&values) else {
                        continue;
                    };
                    prop_assert!(!text.contains(char::REPLACEMENT_CHARACTER), "{} {:?}", function.name, values);
                }
            }
        }
    }

    #[test]
    fn bytes_are_given_where_a_string_is_bytes() {
        for function in tables().filter(|it| it.return_type == ReturnType::Text && has_strings(it))
        {
            let Arity(least, most) = function.arity;
            for count in least..=most.min(5) {
                for at in 0..count {
                    let mut types = vec![DataType::Utf8; count];
                    types[at] = DataType::Binary;
                    let expected = match function.strings.has(at) {
                        true => DataType::Binary,
                        false => DataType::Utf8,
                    };
                    assert_eq!(
                        function.data_type(&types),
                        expected,
                        "{} {at}",
                        function.name
                    );
                }
            }
        }
    }

    /// A new function of texts says what it makes of bytes.
    #[test]
    fn functions_of_texts_say_what_bytes_are() {
        const EXACT: &[&str] = &[
            "mysql_ascii",
            "mysql_bin",
            "mysql_bytes",
            "mysql_byte_text",
            "mysql_char",
            "mysql_format",
            "mysql_from_base64",
            "mysql_hex",
            "mysql_inet_aton",
            "mysql_inet_ntoa",
            "mysql_json_key_of",
            "mysql_json_valid",
            "mysql_length",
            "mysql_oct",
            "mysql_ord",
            "mysql_sha1",
            "mysql_sha2",
            "mysql_space",
            "mysql_text",
            "mysql_to_base64",
            "mysql_unhex",
        ];
        let of_texts = [
            text::FUNCTIONS,
            text::BOUNDED,
            encodings::FUNCTIONS,
            json::FUNCTIONS,
            json_documents::FUNCTIONS,
            json_order::FUNCTIONS,
            patterns::FUNCTIONS,
        ];
        for function in of_texts.into_iter().flatten() {
            let exact = EXACT.contains(&function.name);
            assert_eq!(
                function.strings == Strings::AnyBytes,
                exact,
                "{}",
                function.name
            );
        }
    }
}
