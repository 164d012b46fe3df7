//! ADQL's functions that the engine has under other names, with other arguments, or as other expressions.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CharacterLength, DataType, Expr, Function, Ident, ObjectName, TimezoneInfo,
    Value,
};

use super::build::{about_call, call, cast, choice, number, operation, plain_arguments};
use super::{geometry, units};
use crate::SqlError;
use crate::functions::adql::COALESCE;

/// A function of ADQL's: its name, how few and how many arguments it takes, the engine's name for it, and what its arguments are.
const RENAMED: &[(&str, usize, usize, &str, &str)] = &[
    ("log", 1, 1, "ln", "a number; it is the natural logarithm"),
    ("log10", 1, 1, "log10", "a number"),
    ("ceiling", 1, 1, "ceil", "a number"),
    (
        "truncate",
        1,
        2,
        "trunc",
        "a number, and perhaps how many decimals to keep",
    ),
    (
        "round",
        1,
        2,
        "round",
        "a number, and perhaps how many decimals to keep",
    ),
    ("atan2", 2, 2, "atan2", "two numbers: y, x"),
    ("power", 2, 2, "power", "two numbers: base, exponent"),
    ("pi", 0, 0, "pi", "no argument"),
    ("distance", 2, 2, "adql_distance", ""),
    (
        "contains",
        2,
        2,
        "adql_contains",
        "two geometries: CONTAINS(inner, outer)",
    ),
    ("intersects", 2, 2, "adql_intersects", "two geometries"),
    ("area", 1, 1, "adql_area", "a geometry"),
    (
        "moc",
        1,
        2,
        "adql_moc",
        "the text of a MOC, or an order and a geometry",
    ),
    ("centroid", 1, 1, "adql_centroid", "a geometry"),
    ("coord1", 1, 1, "adql_coord1", "a point"),
    ("coord2", 1, 1, "adql_coord2", "a point"),
    ("coordsys", 1, 1, "adql_coordsys", "a geometry"),
];

/// What the functions take that [`of_catalogue`] makes expressions of.
const CATALOGUE: [(&str, &str); 5] = [
    ("ivo_string_agg", "a text and what stands between the texts"),
    ("ivo_nocasematch", "a text and a pattern"),
    (
        "ivo_interval_overlaps",
        "four values: the ends of two intervals",
    ),
    ("ivo_to_jd", "a time"),
    ("ivo_to_mjd", "a time"),
];

/// Functions that calls of another name become, and that name, where they are no rows of [`RENAMED`].
const EXPRESSED: [(&str, &str); 3] = [
    ("random", "rand"),
    ("string_agg", "ivo_string_agg"),
    ("scisql_angsep", "distance"),
];

/// Under which names statements may have called a function of the engine's.
pub(crate) fn typed_names(engines: &str) -> Vec<&'static str> {
    let renamed = RENAMED.iter().map(|row| (row.3, row.0));
    let all = renamed.chain(EXPRESSED);
    let of_it = all.filter(|(known, _)| *known == engines);
    of_it.map(|(_, typed)| typed).collect()
}

/// What stands for a call.
pub(super) fn expanded(sql: &str, mut function: Function) -> Result<Expr, SqlError> {
    let name = function.name.to_string();
    let plain = function.over.is_none() && function.filter.is_none();
    let arguments = plain_arguments(&function).filter(|_| plain);
    let Some(arguments) = arguments else {
        if name == "ivo_string_agg" {
            function.name = ObjectName::from(vec![Ident::new("string_agg")]);
        }
        return Ok(Expr::Function(function));
    };
    if let Some(geometry) = geometry::made(sql, &function, &name, &arguments)? {
        return Ok(geometry);
    }
    let takes = |wanted: &str| {
        let given = arguments.len();
        let name = name.to_ascii_uppercase();
        about_call(
            sql,
            &function,
            format!("{name} takes {wanted}; the number of arguments given is {given}"),
        )
    };
    if matches!(name.as_str(), "contains" | "intersects" | "distance")
        && let Some(plain) = geometry::without_common_frame(&arguments)
    {
        return expanded(sql, function_of(call(&name, plain), function));
    }
    match (name.as_str(), arguments.as_slice()) {
        ("distance", [ra1, dec1, ra2, dec2]) => {
            let numbers = [ra1, dec1, ra2, dec2].map(Clone::clone);
            return Ok(call("scisql_angsep", numbers.into()));
        }
        ("distance", arguments) if arguments.len() != 2 => {
            return Err(takes(
                "two points, or four numbers: ra, dec, ra, dec (degrees)",
            ));
        }
        ("mod", [x, y]) => return Ok(operation(x.clone(), BinaryOperator::Modulo, y.clone())),
        ("mod", _) => return Err(takes("two numbers")),
        // What a seed means is left open.
        ("rand", [] | [_]) => return Ok(call("random", vec![])),
        ("rand", _) => return Err(takes("no argument or a seed, which changes nothing")),
        ("coalesce", [_, _, ..]) => return Ok(call(COALESCE, arguments)),
        // The engine has no sum of nothing but NULL, whose type is none.
        ("sum" | "avg", [Expr::Value(value)]) if value.value == Value::Null => {
            let null = cast(Expr::Value(value.clone()), DataType::DoublePrecision);
            return Ok(call(&name, vec![null]));
        }
        ("timestamp", [text]) => return Ok(cast(text.clone(), timestamp())),
        ("in_unit", [value, unit]) => {
            return units::converted(value, unit)
                .map_err(|sentence| about_call(sql, &function, sentence));
        }
        ("in_unit", _) => return Err(takes("a value and the text of a unit")),
        _ => {}
    }
    if let Some(expr) = of_catalogue(&name, &arguments) {
        return Ok(expr);
    }
    if let Some((_, wanted)) = CATALOGUE.iter().find(|(known, _)| *known == name) {
        return Err(takes(wanted));
    }
    if let Some((_, least, most, engines, wanted)) = RENAMED.iter().find(|row| row.0 == name) {
        // The engine's logarithm of two arguments is to a base.
        if !(*least..=*most).contains(&arguments.len()) {
            return Err(takes(wanted));
        }
        return Ok(call(engines, arguments));
    }
    Ok(Expr::Function(function))
}

/// The call that an expression is.
fn function_of(expr: Expr, otherwise: Function) -> Function {
    match expr {
        Expr::Function(function) => function,
        _ => otherwise,
    }
}

/// Functions of the IVOA's catalogue that are expressions of the engine's.
fn of_catalogue(name: &str, arguments: &[Expr]) -> Option<Expr> {
    Some(match (name, arguments) {
        ("ivo_string_agg", [text, delimiter]) => call(
            "string_agg",
            vec![
                cast(text.clone(), DataType::Varchar(None)),
                delimiter.clone(),
            ],
        ),
        ("ivo_nocasematch", [text, pattern]) => truth(Expr::ILike {
            negated: false,
            any: false,
            expr: Box::new(text.clone()),
            pattern: Box::new(pattern.clone()),
            escape_char: None,
        }),
        ("ivo_interval_overlaps", [a1, b1, a2, b2]) => {
            let orders = [(a1, b1), (a2, b2), (a1, b2), (a2, b1)]
                .map(|(low, high)| operation(low.clone(), BinaryOperator::LtEq, high.clone()));
            let all = orders
                .into_iter()
                .reduce(|a, b| operation(a, BinaryOperator::And, b))?;
            truth(all)
        }
        // Times that are texts are read here.
        ("ivo_to_jd" | "ivo_to_mjd", [time]) => {
            // By its text: the engine would take numbers for times, too.
            let text = cast(time.clone(), DataType::Varchar(None));
            call(name, vec![cast(text, timestamp())])
        }
        _ => return None,
    })
}

/// 1 where a condition holds, else 0.
fn truth(condition: Expr) -> Expr {
    choice(condition, number("1"), number("0"))
}

/// Times have microseconds, as in tables.
fn timestamp() -> DataType {
    DataType::Timestamp(Some(6), TimezoneInfo::None)
}

/// A CAST to one of ADQL's types. A text is cut to the length of its type.
pub(super) fn cast_to(expr: Expr, data_type: DataType) -> Expr {
    let length = match &data_type {
        DataType::Char(length)
        | DataType::Character(length)
        | DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length)
        | DataType::Nvarchar(length) => length,
        DataType::Timestamp(None, TimezoneInfo::None) => return cast(expr, timestamp()),
        _ => return cast(expr, data_type),
    };
    let text = cast(expr, DataType::Varchar(None));
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => {
            call("left", vec![text, number(&length.to_string())])
        }
        _ => text,
    }
}
