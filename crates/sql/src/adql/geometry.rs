//! Constructors of geometry: their coordinate system, which is deprecated, and `REGION`, which is another of them in a text.

use datafusion::sql::sqlparser::ast::{Expr, Function, Value};

use super::build::{about_call, call, literal_text, signed_number};
use super::stcs;
use crate::SqlError;
use crate::functions::adql::constructors;

/// The geometry that a call makes, if it is a constructor's.
pub(super) fn made(
    sql: &str,
    function: &Function,
    name: &str,
    arguments: &[Expr],
) -> Result<Option<Expr>, SqlError> {
    let engines = match name {
        "point" => "adql_point",
        "circle" => "adql_circle",
        "box" => "adql_box",
        "polygon" => "adql_polygon",
        "region" => return region(sql, function, arguments).map(Some),
        _ => return Ok(None),
    };
    let rejected = |sentence: String| about_call(sql, function, sentence);
    let numbers = match arguments {
        [system, rest @ ..] if is_null(system) && takes_one_more(name, arguments.len()) => rest,
        [system, rest @ ..] => match literal_text(system) {
            Some(system) => {
                stcs::check_system(system).map_err(rejected)?;
                rest
            }
            None => arguments,
        },
        [] => arguments,
    };
    check_count(name, numbers.len()).map_err(rejected)?;
    Ok(Some(call(engines, numbers.to_vec())))
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

/// Whether so many arguments are one more than a constructor by numbers takes: the first is its coordinate system.
fn takes_one_more(name: &str, count: usize) -> bool {
    match name {
        "point" => count == 3,
        "circle" => count == 4,
        "box" => count == 5,
        _ => count > 6 && !count.is_multiple_of(2),
    }
}

fn check_count(name: &str, count: usize) -> Result<(), String> {
    let (fits, wanted) = match name {
        "point" => (count == 2, constructors::POINT),
        "circle" => ((2..=3).contains(&count), constructors::CIRCLE),
        "box" => ((3..=4).contains(&count), constructors::BOX),
        _ => (count >= 3, constructors::POLYGON),
    };
    if fits {
        return Ok(());
    }
    let name = name.to_ascii_uppercase();
    Err(format!(
        "{name} takes {wanted}; the number of arguments given is {count}"
    ))
}

fn region(sql: &str, function: &Function, arguments: &[Expr]) -> Result<Expr, SqlError> {
    let text = match arguments {
        [only] => literal_text(only),
        _ => None,
    };
    let made = match text {
        Some(text) => stcs::region(text),
        None => Err(
            "REGION takes the text of a region in STC-S, as in REGION('CIRCLE ICRS 10.5 -3 0.1')"
                .to_owned(),
        ),
    };
    match made {
        Ok((engines, numbers)) => Ok(call(
            engines,
            numbers.into_iter().map(signed_number).collect(),
        )),
        Err(sentence) => Err(about_call(sql, function, sentence)),
    }
}
