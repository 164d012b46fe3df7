//! Expressions of geometry taken apart into expressions of their numbers.

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, lit};

use super::value::{Geometries, Kind};

/// A call of one of the functions of geometry or of the sky.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    match crate::functions::by_name(name) {
        Some(function) => function.call(arguments),
        // A name that is not there is a mistake of this crate's.
        None => lit(ScalarValue::Null),
    }
}

/// The arguments of a call of a function that is not constant. What is constant has been computed before; if it could not be, it
/// makes no sense, and is to say so when it is evaluated.
fn arguments<'e>(expr: &'e Expr, name: &str) -> Option<&'e [Expr]> {
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(..));
    match expr {
        Expr::ScalarFunction(function) if function.func.name() == name => {
            (!function.args.iter().all(is_literal)).then_some(function.args.as_slice())
        }
        Expr::Alias(alias) => arguments(&alias.expr, name),
        _ => None,
    }
}

/// Kind and numbers of a constant geometry.
pub(crate) fn constant(expr: &Expr) -> Option<(Kind, Vec<f64>)> {
    let list: ArrayRef = match expr {
        Expr::Literal(ScalarValue::FixedSizeList(list), _) => list.clone(),
        Expr::Literal(ScalarValue::List(list), _) => list.clone(),
        Expr::Alias(alias) => return constant(&alias.expr),
        _ => return None,
    };
    let geometries = Geometries::of(&list).ok()?;
    Some((geometries.kind(), geometries.numbers(0)?.to_vec()))
}

/// Right ascension and declination of a point that is constant or made in this expression.
pub(crate) fn of_point(expr: &Expr) -> Option<[Expr; 2]> {
    if let Some([ra, dec]) = arguments(expr, "adql_point") {
        return Some([ra.clone(), dec.clone()]);
    }
    match constant(expr)? {
        (Kind::Point, numbers) => Some([lit(*numbers.first()?), lit(*numbers.get(1)?)]),
        _ => None,
    }
}

/// Right ascension and declination of any point.
pub(crate) fn of_any_point(expr: &Expr) -> [Expr; 2] {
    of_point(expr).unwrap_or_else(|| {
        ["adql_coord1", "adql_coord2"].map(|coordinate| call(coordinate, vec![expr.clone()]))
    })
}

/// The centre and the radius of a circle that is constant or made in this expression.
pub(crate) fn of_circle(expr: &Expr) -> Option<[Expr; 3]> {
    match arguments(expr, "adql_circle") {
        Some([ra, dec, radius]) => return Some([ra.clone(), dec.clone(), radius.clone()]),
        Some([centre, radius]) => {
            let [ra, dec] = of_any_point(centre);
            return Some([ra, dec, radius.clone()]);
        }
        _ => {}
    }
    match constant(expr)? {
        (Kind::Circle, numbers) => {
            let [ra, dec, radius] = numbers.try_into().ok()?;
            Some([lit(ra), lit(dec), lit(radius)])
        }
        _ => None,
    }
}
