//! JSON_ARRAY, JSON_OBJECT and their aggregates as calls of the functions that make documents.
//!
//! A value that is a document becomes part of another as it is; any other value becomes one first. Documents have no type of their own
//! here: what is one is known by the function that gives it.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Function, Value};

use super::build::{call, plain_arguments};
use super::templates::expansion;
use super::truth::is_condition;
use crate::{ErrorCode, SqlError};

/// MySQL's functions that give documents.
const DOCUMENTS: [&str; 6] = [
    "json_array",
    "json_arrayagg",
    "json_extract",
    "json_keys",
    "json_object",
    "json_objectagg",
];

/// What a call of one of these functions is, whose arguments have not been rewritten; `None` for other functions.
pub(super) fn expanded(
    sql: &str,
    name: &str,
    function: &Function,
) -> Result<Option<Expr>, SqlError> {
    let is_one = [
        "json_array",
        "json_object",
        "json_arrayagg",
        "json_objectagg",
    ]
    .contains(&name);
    if !is_one || function.over.is_some() || function.filter.is_some() {
        return Ok(None);
    }
    let Some(arguments) = plain_arguments(function) else {
        return Ok(None);
    };
    let wrong = |wanted: &str| {
        let name = name.to_ascii_uppercase();
        SqlError::about(sql, &name.to_lowercase(), format!("{name} takes {wanted}"))
            .with_code(ErrorCode::WRONG_ARGUMENTS)
    };
    Ok(Some(match (name, arguments.as_slice()) {
        ("json_array", values) => {
            let items = values.iter().cloned().map(item);
            call("mysql_json_array", items.collect())
        }
        ("json_object", pairs) if pairs.len().is_multiple_of(2) => {
            let values = pairs.iter().cloned().enumerate();
            let values = values.map(|(at, value)| match at % 2 {
                0 => value,
                _ => item(value),
            });
            call("mysql_json_object", values.collect())
        }
        ("json_object", _) => return Err(wrong("names and values in turns")),
        ("json_arrayagg", [value]) => {
            call("mysql_json_array_of", vec![joined(item(value.clone()))])
        }
        ("json_objectagg", [name, value]) => {
            let member = vec![name.clone(), item(value.clone())];
            let joined = joined(call("mysql_json_member", member));
            call("mysql_json_object_of", vec![joined])
        }
        ("json_arrayagg", _) => return Err(wrong("one value")),
        _ => return Err(wrong("a name and a value")),
    }))
}

/// The texts of a group's rows.
fn joined(text: Expr) -> Expr {
    expansion("$joined", std::slice::from_ref(&text)).unwrap_or(text)
}

/// The text of the document that a value becomes.
fn item(value: Expr) -> Expr {
    if is_document(&value) {
        let null = Value::SingleQuotedString("null".to_owned());
        return call("mysql_coalesce", vec![value, Expr::Value(null.into())]);
    }
    // MySQL writes what is true or false as such.
    if is_condition(&value) {
        let written = expansion("$truth", std::slice::from_ref(&value));
        return Expr::Nested(Box::new(written.unwrap_or(value)));
    }
    call("mysql_json_item", vec![value])
}

fn is_document(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_document(inner),
        Expr::Function(function) => DOCUMENTS.contains(&function.name.to_string().as_str()),
        Expr::BinaryOp { op, .. } => *op == BinaryOperator::Arrow,
        _ => false,
    }
}
