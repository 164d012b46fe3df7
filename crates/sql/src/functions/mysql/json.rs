//! Functions that read JSON, which columns have as text. Documents are written as MySQL writes them: a space after each comma and colon,
//! the keys of an object by their length and then by their bytes.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::row_function::{Arity, ReturnType, RowFunction};
use super::strings::Strings;
use super::value::Value;

const ONE: Arity = Arity(1, 1);
const ONE_OR_TWO: Arity = Arity(1, 2);

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::new("mysql_json_valid", ONE, ReturnType::Integer, |v| {
        let is_valid = matches!(v[0], Value::Text(_)) && document(&v[0]).is_ok();
        Ok(Value::Integer(is_valid.into()))
    }),
    RowFunction::new(
        "mysql_json_extract",
        Arity(2, usize::MAX),
        ReturnType::Json,
        extract,
    ),
    RowFunction::new("mysql_json_value", Arity(2, 2), ReturnType::Text, |v| {
        let json = document(&v[0])?;
        Ok(match Path::read(&v[1])?.only(&json)? {
            None | Some(Json::Null) => Value::Null,
            Some(found) => Value::Text(unquoted(found)),
        })
    }),
    RowFunction::new("mysql_json_unquote", ONE, ReturnType::Text, |v| {
        let text = v[0].text();
        Ok(Value::Text(match serde_json::from_str(&text) {
            Ok(Json::String(inner)) => inner,
            _ => text,
        }))
    }),
    RowFunction::new("mysql_json_quote", ONE, ReturnType::Text, |v| {
        Ok(Value::Text(Json::String(v[0].text()).to_string()))
    }),
    RowFunction::new("mysql_json_type", ONE, ReturnType::Text, |v| {
        let name = match document(&v[0])? {
            Json::Null => "NULL",
            Json::Bool(_) => "BOOLEAN",
            Json::Number(number) if number.is_i64() => "INTEGER",
            Json::Number(number) if number.is_u64() => "UNSIGNED INTEGER",
            Json::Number(_) => "DOUBLE",
            Json::String(_) => "STRING",
            Json::Array(_) => "ARRAY",
            Json::Object(_) => "OBJECT",
        };
        Ok(Value::Text(name.to_owned()))
    }),
    RowFunction::new("mysql_json_length", ONE_OR_TWO, ReturnType::Integer, |v| {
        let json = document(&v[0])?;
        Ok(within(&json, v.get(1))?.map_or(Value::Null, |found| {
            Value::Integer(match found {
                Json::Array(items) => items.len() as i128,
                Json::Object(members) => members.len() as i128,
                _ => 1,
            })
        }))
    })
    .of_strings(Strings::Texts),
    RowFunction::new("mysql_json_depth", ONE, ReturnType::Integer, |v| {
        Ok(Value::Integer(depth(&document(&v[0])?)))
    })
    .of_strings(Strings::Texts),
    RowFunction::new("mysql_json_keys", ONE_OR_TWO, ReturnType::Json, |v| {
        let json = document(&v[0])?;
        Ok(match within(&json, v.get(1))? {
            Some(Json::Object(members)) => {
                let mut keys: Vec<&String> = members.keys().collect();
                keys.sort_by(|a, b| by_length(a, b));
                let keys = keys.into_iter().cloned().map(Json::String).collect();
                Value::Text(written(&Json::Array(keys)))
            }
            _ => Value::Null,
        })
    }),
    RowFunction::new(
        "mysql_json_contains",
        Arity(2, 3),
        ReturnType::Integer,
        |v| {
            let (json, wanted) = (document(&v[0])?, document(&v[1])?);
            Ok(within(&json, v.get(2))?.map_or(Value::Null, |found| {
                Value::Integer(contains(found, &wanted).into())
            }))
        },
    )
    .of_strings(Strings::Texts),
    RowFunction::new(
        "mysql_json_contains_path",
        Arity(3, usize::MAX),
        ReturnType::Integer,
        |v| {
            let json = document(&v[0])?;
            let mut there = Vec::with_capacity(v.len() - 2);
            for path in &v[2..] {
                there.push(!Path::read(path)?.all(&json).is_empty());
            }
            let contains = match v[1].text().to_ascii_lowercase().as_str() {
                "one" => there.contains(&true),
                "all" => !there.contains(&false),
                _ => {
                    return Err(
                        "the second argument of JSON_CONTAINS_PATH is 'one' or 'all'".to_owned(),
                    );
                }
            };
            Ok(Value::Integer(contains.into()))
        },
    )
    .of_strings(Strings::Texts),
];

/// The document that a text is.
fn document(value: &Value) -> Result<Json, String> {
    let text = value.text();
    serde_json::from_str(&text).map_err(|error| {
        let shown: String = text.chars().take(40).collect();
        let more = if shown.len() < text.len() { "..." } else { "" };
        format!("'{shown}{more}' is no JSON: {error}")
    })
}

/// What is at one or more paths: of one path without wildcards the value itself, else a list.
fn extract(v: &[Value]) -> Result<Value, String> {
    let json = document(&v[0])?;
    if let [path] = &v[1..] {
        let path = Path::read(path)?;
        if !path.has_wildcards() {
            let found = path.only(&json)?;
            return Ok(found.map_or(Value::Null, |found| Value::Text(written(found))));
        }
    }
    let mut found = Vec::new();
    for path in &v[1..] {
        found.extend(Path::read(path)?.all(&json).into_iter().cloned());
    }
    Ok(match found.is_empty() {
        true => Value::Null,
        false => Value::Text(written(&Json::Array(found))),
    })
}

/// The value at a path, or the document itself.
fn within<'j>(json: &'j Json, path: Option<&Value>) -> Result<Option<&'j Json>, String> {
    match path {
        None => Ok(Some(json)),
        Some(path) => Path::read(path)?.only(json),
    }
}

fn depth(json: &Json) -> i128 {
    let deepest = match json {
        Json::Array(items) => items.iter().map(depth).max(),
        Json::Object(members) => members.values().map(depth).max(),
        _ => None,
    };
    1 + deepest.unwrap_or(0)
}

/// Whether a document has another in it, as JSON_CONTAINS means it: an object has the members of another, a list the items.
fn contains(json: &Json, wanted: &Json) -> bool {
    match (json, wanted) {
        (Json::Array(items), Json::Array(wanted)) => wanted
            .iter()
            .all(|wanted| items.iter().any(|item| contains(item, wanted))),
        (Json::Array(items), wanted) => items.iter().any(|item| contains(item, wanted)),
        (Json::Object(members), Json::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let member = members.get(key);
            member.is_some_and(|member| contains(member, wanted))
        }),
        (Json::Number(number), Json::Number(wanted)) => {
            number == wanted || number.as_f64() == wanted.as_f64()
        }
        (json, wanted) => json == wanted,
    }
}

pub(super) fn by_length(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// A text without its quotes; any other value as it is written.
fn unquoted(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        other => written(other),
    }
}

fn written(json: &Json) -> String {
    let mut text = String::new();
    write(json, &mut text);
    text
}

fn write(json: &Json, to: &mut String) {
    match json {
        Json::Array(items) => {
            to.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    to.push_str(", ");
                }
                write(item, to);
            }
            to.push(']');
        }
        Json::Object(members) => {
            let mut members: Vec<(&String, &Json)> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| by_length(a, b));
            to.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                if at > 0 {
                    to.push_str(", ");
                }
                to.push_str(&Json::String(key.clone()).to_string());
                to.push_str(": ");
                write(member, to);
            }
            to.push('}');
        }
        other => to.push_str(&other.to_string()),
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    EachMember,
    Item(usize),
    /// Counted from the end: 0 is the last.
    ItemFromEnd(usize),
    EachItem,
    /// All that is at any depth, the value itself included.
    Anywhere,
}

/// A path such as `$.a[0]."b c"`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    text: String,
    steps: Vec<Step>,
}

impl Path {
    fn read(value: &Value) -> Result<Self, String> {
        let text = value.text();
        let steps = steps(&text).ok_or_else(|| {
            format!("'{text}' is no path in JSON: one begins with $, as in $.name, $[0] or $.list[*].name")
        })?;
        Ok(Self { text, steps })
    }

    fn has_wildcards(&self) -> bool {
        let is_wildcard =
            |step: &Step| matches!(step, Step::EachMember | Step::EachItem | Step::Anywhere);
        self.steps.iter().any(is_wildcard)
    }

    /// The value at a path that has no wildcards.
    fn only<'j>(&self, json: &'j Json) -> Result<Option<&'j Json>, String> {
        if self.has_wildcards() {
            return Err(format!("the path {} may not have * here", self.text));
        }
        Ok(self.all(json).first().copied())
    }

    /// The values at the path, each once, in their order.
    fn all<'j>(&self, json: &'j Json) -> Vec<&'j Json> {
        let mut found = vec![json];
        for step in &self.steps {
            let mut known = HashSet::new();
            found = found.into_iter().flat_map(|json| step.of(json)).collect();
            found.retain(|&json| known.insert(std::ptr::from_ref(json)));
        }
        found
    }
}

impl Step {
    fn of<'j>(&self, json: &'j Json) -> Vec<&'j Json> {
        match (self, json) {
            (Self::Member(name), Json::Object(members)) => members.get(name).into_iter().collect(),
            (Self::EachMember, Json::Object(members)) => {
                let mut members: Vec<(&String, &Json)> = members.iter().collect();
                members.sort_by(|(a, _), (b, _)| by_length(a, b));
                members.into_iter().map(|(_, member)| member).collect()
            }
            (Self::Item(at), Json::Array(items)) => items.get(*at).into_iter().collect(),
            (Self::ItemFromEnd(at), Json::Array(items)) => {
                items.iter().rev().nth(*at).into_iter().collect()
            }
            (Self::EachItem, Json::Array(items)) => items.iter().collect(),
            // What is no list is taken for one of one item.
            (Self::Item(0) | Self::ItemFromEnd(0), other) => vec![other],
            (Self::Anywhere, json) => {
                let mut found = vec![json];
                let inner: Vec<&Json> = match json {
                    Json::Array(items) => items.iter().collect(),
                    Json::Object(_) => Self::EachMember.of(json),
                    _ => vec![],
                };
                for inner in inner {
                    found.extend(self.of(inner));
                }
                found
            }
            _ => vec![],
        }
    }
}

/// The steps of a path; `None` where it is none.
fn steps(text: &str) -> Option<Vec<Step>> {
    let mut rest = text.trim().strip_prefix('$')?;
    let mut steps = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            // What is anywhere needs a name or a place.
            return (steps.last() != Some(&Step::Anywhere)).then_some(steps);
        }
        if let Some(after) = rest.strip_prefix("**") {
            steps.push(Step::Anywhere);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            let (step, after) = member(after.trim_start())?;
            steps.push(step);
            rest = after;
        } else {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(item(inside.trim())?);
            rest = after;
        }
    }
}

fn member(text: &str) -> Option<(Step, &str)> {
    if let Some(after) = text.strip_prefix('*') {
        return Some((Step::EachMember, after));
    }
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = values.next()?.ok()?;
        return Some((Step::Member(name), &text[values.byte_offset()..]));
    }
    let is_of_name = |character: char| character.is_alphanumeric() || "_$".contains(character);
    let end = text.find(|character| !is_of_name(character));
    let (name, after) = text.split_at(end.unwrap_or(text.len()));
    let is_name = !name.is_empty() && !name.starts_with(|first: char| first.is_numeric());
    is_name.then(|| (Step::Member(name.to_owned()), after))
}

fn item(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::EachItem);
    }
    match text.strip_prefix("last") {
        None => text.parse().ok().map(Step::Item),
        Some("") => Some(Step::ItemFromEnd(0)),
        Some(rest) => {
            let back = rest.trim_start().strip_prefix('-')?.trim_start();
            back.parse().ok().map(Step::ItemFromEnd)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str =
        r#"{"name":"M 31","mags":[3.44,4.36,null],"b c":{"x":1,"id":2},"ok":true}"#;

    fn call(name: &str, arguments: &[&str]) -> Result<Value, String> {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|text| Value::Text((*text).to_owned()))
            .collect();
        (function.unwrap().of)(&arguments)
    }

    /// One in forty was the number beside it, in documents and in requests: a time that a client sent back was another one.
    #[test]
    fn numbers_are_read_to_the_last_bit() {
        let mut state = 7_u64;
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = 59_000.0 + (state >> 11) as f64 / (1_u64 << 53) as f64 * 10_000.0;
            let read: f64 = serde_json::from_str(&number.to_string()).unwrap();
            assert_eq!(read.to_bits(), number.to_bits(), "{number}");
            let document: Json = serde_json::from_str(&number.to_string()).unwrap();
            assert_eq!(document.as_f64().map(f64::to_bits), Some(number.to_bits()));
        }
    }

    #[test]
    fn paths_lead_to_values() {
        for (path, expected) in [
            (
                "$",
                Some(
                    r#"{"ok": true, "b c": {"x": 1, "id": 2}, "mags": [3.44, 4.36, null], "name": "M 31"}"#,
                ),
            ),
            ("$.name", Some(r#""M 31""#)),
            ("$.mags[1]", Some("4.36")),
            ("$.mags[last]", Some("null")),
            ("$.mags[last - 2]", Some("3.44")),
            ("$.mags[3]", None),
            ("$.name[0]", Some(r#""M 31""#)),
            ("$.\"b c\".id", Some("2")),
            ("$.mags[*]", Some("[3.44, 4.36, null]")),
            ("$.*.x", Some("[1]")),
            ("$**.id", Some("[2]")),
            ("$.nothing", None),
            ("$.nothing.*", None),
        ] {
            let found = call("mysql_json_extract", &[DOCUMENT, path]).unwrap();
            let expected = expected.map_or(Value::Null, |text| Value::Text(text.to_owned()));
            assert_eq!(found, expected, "{path}");
        }
        let two = call("mysql_json_extract", &[DOCUMENT, "$.ok", "$.mags[0]"]);
        assert_eq!(two.unwrap(), Value::Text("[true, 3.44]".to_owned()));
        for path in [
            "", "name", "$.", "$.1a", "$[", "$[x]", "$**", "$.a b", "$[-1]",
        ] {
            assert!(
                call("mysql_json_extract", &[DOCUMENT, path]).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn documents_are_described() {
        for (name, arguments, expected) in [
            ("mysql_json_valid", &["{]"][..], Value::Integer(0)),
            ("mysql_json_valid", &["[1, 2]"], Value::Integer(1)),
            (
                "mysql_json_value",
                &[DOCUMENT, "$.name"],
                Value::Text("M 31".to_owned()),
            ),
            ("mysql_json_value", &[DOCUMENT, "$.mags[2]"], Value::Null),
            (
                "mysql_json_unquote",
                &["\"a\\tb\""],
                Value::Text("a\tb".to_owned()),
            ),
            ("mysql_json_unquote", &["a"], Value::Text("a".to_owned())),
            (
                "mysql_json_quote",
                &["a\"b"],
                Value::Text("\"a\\\"b\"".to_owned()),
            ),
            (
                "mysql_json_type",
                &["1.5"],
                Value::Text("DOUBLE".to_owned()),
            ),
            ("mysql_json_length", &[DOCUMENT], Value::Integer(4)),
            (
                "mysql_json_length",
                &[DOCUMENT, "$.mags"],
                Value::Integer(3),
            ),
            ("mysql_json_length", &[DOCUMENT, "$.none"], Value::Null),
            ("mysql_json_depth", &[DOCUMENT], Value::Integer(3)),
            (
                "mysql_json_keys",
                &[DOCUMENT, "$.\"b c\""],
                Value::Text("[\"x\", \"id\"]".to_owned()),
            ),
            (
                "mysql_json_contains",
                &[DOCUMENT, "{\"b c\":{\"x\":1.0}}"],
                Value::Integer(1),
            ),
            (
                "mysql_json_contains",
                &[DOCUMENT, "4.36", "$.mags"],
                Value::Integer(1),
            ),
            (
                "mysql_json_contains",
                &[DOCUMENT, "[3.44, 5]", "$.mags"],
                Value::Integer(0),
            ),
            (
                "mysql_json_contains_path",
                &[DOCUMENT, "one", "$.a", "$.ok"],
                Value::Integer(1),
            ),
            (
                "mysql_json_contains_path",
                &[DOCUMENT, "all", "$.a", "$.ok"],
                Value::Integer(0),
            ),
        ] {
            assert_eq!(
                call(name, arguments).unwrap(),
                expected,
                "{name} {arguments:?}"
            );
        }
        assert!(call("mysql_json_contains_path", &[DOCUMENT, "two", "$.a"]).is_err());
        assert!(call("mysql_json_length", &[DOCUMENT, "$.*"]).is_err());
        let error = call("mysql_json_type", &["{oops"]).unwrap_err();
        assert!(error.starts_with("'{oops' is no JSON: "), "{error}");
    }
}
