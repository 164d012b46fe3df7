//! The order of JSON values: bytes that compare as the values do.
//!
//! Source: *MySQL 8.0 Reference Manual*, 11.5, "The JSON Data Type", "Comparison and Ordering of JSON Values". Values of different types
//! have the order of their types: NULL, numbers, strings, objects, arrays, booleans, and of values of SQL dates, times of day, times and
//! bytes. Integers, decimals and doubles are compared exactly, a double by the shortest decimal that reads back to it.

use serde_json::Value as Json;

use super::json::by_length;
use super::row_function::{Arity, ReturnType, RowFunction};
use super::strings::Strings;
use super::value::{Value, decimal_text};

const ONE: Arity = Arity(1, 1);

pub(super) const FUNCTIONS: &[RowFunction] = &[
    // Of the text of a document.
    RowFunction::new("mysql_json_key", ONE, ReturnType::Bytes, |v| {
        let text = v[0].text();
        let json = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Value::Bytes(key_of(&json)))
    }),
    // Of a value of SQL.
    RowFunction::new("mysql_json_key_of", ONE, ReturnType::Bytes, |v| {
        Ok(Value::Bytes(key_of_value(&v[0])))
    })
    .of_strings(Strings::AnyBytes),
    // Of a condition.
    RowFunction::new("mysql_json_key_of_truth", ONE, ReturnType::Bytes, |v| {
        Ok(Value::Bytes(vec![BOOLEAN, u8::from(v[0].integer() != 0)]))
    }),
    // The text by which a document is a number or a time.
    RowFunction::new("mysql_json_scalar", ONE, ReturnType::Text, |v| {
        Ok(Value::Text(scalar(v[0].text(), |double| {
            double.to_string()
        })))
    }),
    // The same where it is a whole number: texts are cut at their point, doubles rounded and bounded.
    RowFunction::new("mysql_json_signed", ONE, ReturnType::Text, |v| {
        Ok(Value::Text(scalar(v[0].text(), |double| {
            (double.round_ties_even() as i64).to_string()
        })))
    }),
    RowFunction::new("mysql_json_unsigned", ONE, ReturnType::Text, |v| {
        Ok(Value::Text(scalar(v[0].text(), |double| {
            (double.round_ties_even() as i128).to_string()
        })))
    }),
];

// The first byte of a key. 0 ends what is in an array or an object.
const NULL: u8 = 1;
const NUMBER: u8 = 2;
const STRING: u8 = 3;
const OBJECT: u8 = 4;
const ARRAY: u8 = 5;
const BOOLEAN: u8 = 6;
const DATE: u8 = 7;
const TIME_OF_DAY: u8 = 8;
const TIME: u8 = 9;
const BYTES: u8 = 10;

/// The text by which a document is a number, without a power of ten, or a time.
fn scalar(text: String, of_double: fn(f64) -> String) -> String {
    match serde_json::from_str(&text) {
        Ok(Json::String(inner)) => inner,
        Ok(Json::Bool(truth)) => u8::from(truth).to_string(),
        Ok(Json::Number(number)) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(double) => of_double(double),
            None => text,
        },
        _ => text,
    }
}

fn key_of(json: &Json) -> Vec<u8> {
    let mut key = Vec::new();
    put(json, &mut key);
    key
}

fn put(json: &Json, to: &mut Vec<u8>) {
    match json {
        Json::Null => to.push(NULL),
        Json::Bool(truth) => to.extend([BOOLEAN, u8::from(*truth)]),
        Json::Number(number) => {
            let text = match number.as_f64().filter(|_| number.is_f64()) {
                Some(double) => format!("{double:e}"),
                None => number.to_string(),
            };
            put_number(&text, to);
        }
        Json::String(text) => put_text(text, to),
        Json::Array(items) => {
            to.push(ARRAY);
            items.iter().for_each(|item| put(item, to));
            to.push(0);
        }
        // Of objects that are not equal the order is not specified.
        Json::Object(members) => {
            let mut members: Vec<(&String, &Json)> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| by_length(a, b));
            to.push(OBJECT);
            to.extend((members.len() as u64).to_be_bytes());
            for (name, member) in members {
                put_text(name, to);
                put(member, to);
            }
        }
    }
}

fn key_of_value(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    match value {
        Value::Null => key.push(NULL),
        Value::Integer(integer) => put_number(&integer.to_string(), &mut key),
        Value::Double(number) => put_number(&format!("{number:e}"), &mut key),
        Value::Decimal(digits, scale) => put_number(&decimal_text(*digits, *scale), &mut key),
        Value::Text(text) => put_text(text, &mut key),
        Value::Bytes(bytes) => {
            key.push(BYTES);
            put_bytes(bytes, &mut key);
        }
        Value::Date(days) => put_signed(DATE, (*days).into(), &mut key),
        Value::TimeOfDay(micros) => put_signed(TIME_OF_DAY, *micros, &mut key),
        Value::Time(micros) => put_signed(TIME, *micros, &mut key),
    }
    key
}

fn put_text(text: &str, to: &mut Vec<u8>) {
    to.push(STRING);
    put_bytes(text.as_bytes(), to);
}

/// Bytes and an end that is before all bytes.
fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    for byte in bytes {
        to.push(*byte);
        if *byte == 0 {
            to.push(u8::MAX);
        }
    }
    to.extend([0, 0]);
}

fn put_signed(first: u8, number: i64, to: &mut Vec<u8>) {
    to.push(first);
    to.extend((number ^ i64::MIN).to_be_bytes());
}

/// A decimal, perhaps with a power of ten: its sign, the place of its point and its digits. All that follows the sign is inverted below 0.
fn put_number(text: &str, to: &mut Vec<u8>) {
    const BELOW_ZERO: u8 = 0;
    const ZERO: u8 = 1;
    const ABOVE_ZERO: u8 = 2;
    /// No power of ten is beyond it.
    const MIDDLE: i32 = 1 << 15;
    let (is_negative, number) = match text.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, text),
    };
    let (mantissa, power) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let zeros = (all.len() - digits.len()) as i32;
    let point = power.parse::<i32>().unwrap_or(0) + whole.len() as i32 - zeros;
    let digits = digits.trim_end_matches('0');
    to.push(NUMBER);
    if digits.is_empty() {
        to.push(ZERO);
        return;
    }
    let size = (point.clamp(1 - MIDDLE, MIDDLE - 1) + MIDDLE) as u16;
    let size = size.to_be_bytes();
    let parts = size.iter().chain(digits.as_bytes()).chain(&[0]);
    to.push(if is_negative { BELOW_ZERO } else { ABOVE_ZERO });
    to.extend(parts.map(|byte| if is_negative { !byte } else { *byte }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        key_of(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn documents_have_the_order_of_the_manual() {
        let ordered = [
            "null",
            "-1e300",
            "-12",
            "-1.5",
            "-1",
            "-1e-300",
            "0",
            "1e-300",
            "0.09",
            "0.1",
            "1",
            "1.5",
            "9",
            "10",
            "9223372036854775805",
            "9223372036854775806",
            "9223372036854775807",
            "9.223372036854776e18",
            "18446744073709551615",
            "1e300",
            r#""""#,
            r#""10""#,
            r#""9""#,
            r#""B""#,
            r#""a""#,
            r#""a\u0000""#,
            r#""ab""#,
            r#""b""#,
            "{}",
            r#"{"a": 1}"#,
            "[]",
            "[null]",
            "[1]",
            "[1, 2]",
            "[2]",
            r#"["a"]"#,
            r#"["ab"]"#,
            r#"["ab", "cd", "ef"]"#,
            r#"["ab", "ef"]"#,
            "[[]]",
            "false",
            "true",
        ];
        for pair in ordered.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for [one, other] in [
            ["1", "1.0"],
            ["100", "1e2"],
            ["0", "-0.0"],
            [r#"{"a": 1, "b": 2}"#, r#"{"b": 2.0, "a": 1}"#],
            [r#""\u0061""#, r#""a""#],
        ] {
            assert_eq!(key(one), key(other), "{one} {other}");
        }
    }

    #[test]
    fn numbers_of_documents_are_read_as_numbers() {
        for (document, number, whole) in [
            ("1.5", "1.5", "2"),
            (
                "9.223372036854776e18",
                "9223372036854775807",
                "9223372036854775807",
            ),
            ("\"1.5e1x\"", "1.5e1x", "1.5e1x"),
            ("true", "1", "1"),
            ("7", "7", "7"),
        ] {
            let number_of = scalar(document.to_owned(), |double| double.to_string());
            let whole_of = scalar(document.to_owned(), |it| it.round_ties_even().to_string());
            // A double has not all digits of the largest integer.
            let double = |text: &str| text.parse::<f64>().ok();
            assert_eq!(double(&number_of), double(number), "{document}");
            assert_eq!(double(&whole_of), double(whole), "{document}");
        }
    }

    #[test]
    fn values_of_sql_are_among_documents() {
        let decimal = |digits, scale| key_of_value(&Value::Decimal(digits, scale));
        assert_eq!(key_of_value(&Value::Integer(9)), key("9.0"));
        assert_eq!(key_of_value(&Value::Double(0.1)), key("0.1"));
        assert_eq!(decimal(10, 2), key("0.1"));
        assert!(decimal(11, 2) > key("0.1"));
        assert_eq!(key_of_value(&Value::Text("a".into())), key(r#""a""#));
        assert!(key("true") < key_of_value(&Value::Date(0)));
        assert!(key_of_value(&Value::Date(-1)) < key_of_value(&Value::Date(0)));
        assert!(key_of_value(&Value::Date(9)) < key_of_value(&Value::TimeOfDay(0)));
        assert!(key_of_value(&Value::TimeOfDay(1)) < key_of_value(&Value::Time(0)));
    }
}
