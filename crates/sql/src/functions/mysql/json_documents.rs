//! Functions that make JSON documents of values. `mysql/json_calls.rs` writes MySQL's calls as calls of these.
//!
//! A value that becomes part of a document is an item: the text of a document itself.

use serde_json::Value as Json;

use super::calendar::Moment;
use super::json::by_length;
use super::row_function::{Arity, ReturnType, RowFunction};
use super::value::Value;

const ANY: Arity = Arity(0, usize::MAX);
const ONE: Arity = Arity(1, 1);

pub(super) const FUNCTIONS: &[RowFunction] = &[
    // The document of one value.
    RowFunction::new("mysql_json_item", ONE, ReturnType::Text, |v| item(&v[0])).seeing_nulls(),
    // Of items.
    RowFunction::new("mysql_json_array", ANY, ReturnType::Json, |v| {
        let items: Vec<String> = v.iter().map(Value::text).collect();
        Ok(Value::Text(format!("[{}]", items.join(", "))))
    }),
    // Of names and items in turns.
    RowFunction::new("mysql_json_object", ANY, ReturnType::Json, |v| {
        let members = v.chunks_exact(2);
        let members = members.map(|pair| Ok((name(&pair[0])?, pair[1].text())));
        object(members.collect::<Result<_, String>>()?)
    })
    .seeing_nulls(),
    // Of items that are joined already.
    RowFunction::new("mysql_json_array_of", ONE, ReturnType::Json, |v| {
        Ok(Value::Text(format!("[{}]", v[0].text())))
    }),
    // Of members that are joined already, each of which is one of these.
    RowFunction::new("mysql_json_object_of", ONE, ReturnType::Json, |v| {
        object(members(&v[0].text())?)
    }),
    RowFunction::new("mysql_json_member", Arity(2, 2), ReturnType::Text, |v| {
        let name = Json::String(name(&v[0])?);
        Ok(Value::Text(format!("{name}: {}", v[1].text())))
    })
    .seeing_nulls(),
];

/// The document of a value that is no document.
fn item(value: &Value) -> Result<Value, String> {
    Ok(Value::Text(match value {
        Value::Null => "null".to_owned(),
        Value::Integer(_) | Value::Decimal(..) => value.text(),
        // JSON has no infinities.
        Value::Double(number) => Json::from(*number).to_string(),
        Value::Text(text) => Json::String(text.clone()).to_string(),
        Value::Date(_) => format!("\"{}\"", value.text()),
        Value::Time(micros) => format!("\"{}\"", long_text(*micros)),
        Value::TimeOfDay(_) => format!("\"{}\"", value.text()),
        Value::Bytes(_) => {
            return Err("bytes that are no text cannot be part of a JSON document".to_owned());
        }
    }))
}

/// A time with all digits of its fraction, as it has them in a document.
fn long_text(micros: i64) -> String {
    let moment = Moment::of_micros(micros);
    match moment.micros {
        0 => format!("{}.000000", moment.text()),
        _ => moment.text(),
    }
}

fn name(value: &Value) -> Result<String, String> {
    match value {
        Value::Null => Err("a member of a JSON object has a name: it is NULL here".to_owned()),
        other => Ok(other.text()),
    }
}

/// An object of names and items. The last of several members of one name counts.
fn object(mut members: Vec<(String, String)>) -> Result<Value, String> {
    // Stable: members of one name stay in their order.
    members.sort_by(|(a, _), (b, _)| by_length(a, b));
    let mut text = String::from("{");
    for (at, (name, item)) in members.iter().enumerate() {
        if members.get(at + 1).is_some_and(|(next, _)| next == name) {
            continue;
        }
        if text.len() > 1 {
            text.push_str(", ");
        }
        text.push_str(&Json::String(name.clone()).to_string());
        text.push_str(": ");
        text.push_str(item);
    }
    text.push('}');
    Ok(Value::Text(text))
}

/// The names and items of joined members.
fn members(mut text: &str) -> Result<Vec<(String, String)>, String> {
    let broken = || "the members of a JSON object cannot be read again".to_owned();
    let mut members = Vec::new();
    while !text.is_empty() {
        let mut names = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = names.next().and_then(Result::ok).ok_or_else(broken)?;
        let rest = text[names.byte_offset()..].strip_prefix(": ");
        let rest = rest.ok_or_else(broken)?;
        let mut items = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
        items.next().and_then(Result::ok).ok_or_else(broken)?;
        let (item, after) = rest.split_at(items.byte_offset());
        members.push((name, item.to_owned()));
        text = after.strip_prefix(", ").unwrap_or(after);
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        (function.unwrap().of)(arguments)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn values_become_items() {
        for (value, expected) in [
            (Value::Null, "null"),
            (Value::Integer(-3), "-3"),
            (Value::Double(0.5), "0.5"),
            (Value::Double(f64::INFINITY), "null"),
            (Value::Decimal(150, 2), "1.50"),
            (text("a\"é\n"), r#""a\"é\n""#),
            (Value::Date(0), r#""1970-01-01""#),
            (Value::Time(1_500_000), r#""1970-01-01 00:00:01.500000""#),
        ] {
            assert_eq!(call("mysql_json_item", &[value]), Ok(text(expected)));
        }
        assert!(call("mysql_json_item", &[Value::Bytes(vec![255])]).is_err());
    }

    #[test]
    fn members_are_in_mysqls_order_and_the_last_of_a_name_counts() {
        let members = ["bb", "1", "a", "[2]", "bb", "{\"x\": 3}"].map(text);
        let expected = text(r#"{"a": [2], "bb": {"x": 3}}"#);
        assert_eq!(call("mysql_json_object", &members).as_ref(), Ok(&expected));
        let pairs = members.chunks(2);
        let pairs = pairs.map(|pair| call("mysql_json_member", pair).unwrap().text());
        let joined = pairs.collect::<Vec<_>>().join(", ");
        assert_eq!(call("mysql_json_object_of", &[text(&joined)]), Ok(expected));
        assert!(call("mysql_json_object", &[Value::Null, text("1")]).is_err());
        assert_eq!(call("mysql_json_object", &[]), Ok(text("{}")));
        assert_eq!(call("mysql_json_array", &[]), Ok(text("[]")));
    }
}
