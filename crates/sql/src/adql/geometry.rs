//! Constructors of geometry: their coordinate system, which is deprecated and from which they are turned to that of tables, and `REGION`, which
//! is another of them in a text.

use datafusion::sql::sqlparser::ast::{Expr, Function, Value};

use super::build::{about_call, call, literal_text, plain_arguments, signed_number};
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
    let (system, numbers) = split(name, arguments);
    let frame = match system {
        Some(text) => stcs::system(text).map_err(rejected)?.frame,
        None => stcs::ICRS,
    };
    check_count(name, numbers.len()).map_err(rejected)?;
    if is_of_points(name, numbers) {
        // Points are of systems of their own.
        let points = numbers.iter().map(|point| in_frame(point, frame));
        return Ok(Some(call(engines, points.collect())));
    }
    Ok(Some(turned(call(engines, numbers.to_vec()), frame)))
}

/// The coordinate system that a constructor's first argument may be, and the other arguments.
fn split<'a>(name: &str, arguments: &'a [Expr]) -> (Option<&'a str>, &'a [Expr]) {
    match arguments {
        [system, rest @ ..] if is_null(system) && takes_one_more(name, arguments.len()) => {
            (None, rest)
        }
        [system, rest @ ..] => match literal_text(system) {
            Some(text) => (Some(text), rest),
            None => (None, arguments),
        },
        [] => (None, arguments),
    }
}

/// Whether a constructor with these arguments, without a system, is made of points.
fn is_of_points(name: &str, arguments: &[Expr]) -> bool {
    match name {
        "circle" => arguments.len() == 2,
        "box" => arguments.len() == 3,
        "polygon" => {
            let is_point = |argument: &Expr| matches!(argument, Expr::Function(f) if f.name.to_string() == "point");
            !arguments.len().is_multiple_of(2) || arguments.iter().any(is_point)
        }
        _ => false,
    }
}

/// A geometry of a frame in that of tables.
fn turned(geometry: Expr, frame: &str) -> Expr {
    match frame {
        stcs::ICRS => geometry,
        _ => call(
            "ivo_geom_transform",
            vec![text(frame), text(stcs::ICRS), geometry],
        ),
    }
}

/// A point that has no system of its own, as one of a frame; everything else as it is.
fn in_frame(point: &Expr, frame: &str) -> Expr {
    let constructor = match point {
        Expr::Function(function) if function.name.to_string() == "point" => function,
        _ => return point.clone(),
    };
    match plain_arguments(constructor) {
        Some(numbers) if frame != stcs::ICRS && numbers.len() == 2 => call(
            "point",
            vec![text(frame), numbers[0].clone(), numbers[1].clone()],
        ),
        _ => point.clone(),
    }
}

fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

/// Two geometries that are made in the same frame as they would be made in that of tables: how two geometries lie to each other does not
/// change when both are turned.
pub(super) fn without_common_frame(arguments: &[Expr]) -> Option<Vec<Expr>> {
    let [first, second] = arguments else {
        return None;
    };
    let ((frame, first), (other, second)) = (plainly_made(first)?, plainly_made(second)?);
    (frame == other && frame != stcs::ICRS).then(|| vec![first, second])
}

/// The frame of a geometry that is made of numbers, and the call without it.
fn plainly_made(expr: &Expr) -> Option<(&'static str, Expr)> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let name = function.name.to_string();
    if !matches!(name.as_str(), "point" | "circle" | "box" | "polygon") {
        return None;
    }
    let arguments = plain_arguments(function)?;
    let (system, numbers) = split(&name, &arguments);
    if is_of_points(&name, numbers) {
        return None;
    }
    let frame = stcs::system(system?).ok()?.frame;
    Some((frame, call(&name, numbers.to_vec())))
}

/// The warnings about coordinate systems in a statement that are not known.
pub(super) fn unknown_systems(function: &Function) -> Vec<String> {
    let name = function.name.to_string();
    if !matches!(name.as_str(), "point" | "circle" | "box" | "polygon") {
        return vec![];
    }
    let arguments = plain_arguments(function).unwrap_or_default();
    let (Some(system), _) = split(&name, &arguments) else {
        return vec![];
    };
    let Ok(system) = stcs::system(system) else {
        return vec![];
    };
    let sentence = |word: &String| {
        format!(
            "the coordinate system {word:?} of {} is not known: its positions are taken as those of ICRS",
            name.to_ascii_uppercase()
        )
    };
    system.unknown.iter().map(sentence).collect()
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

/// A region of STC-S in the frame of tables.
pub(super) fn of_region(region: stcs::Region) -> Expr {
    let numbers = region.numbers.into_iter().map(signed_number).collect();
    turned(call(region.constructor, numbers), region.frame)
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
        Ok(region) => Ok(of_region(region)),
        Err(sentence) => Err(about_call(sql, function, sentence)),
    }
}
