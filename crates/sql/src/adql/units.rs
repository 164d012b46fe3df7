//! `IN_UNIT`: a value in another unit, where the expression says in which one it is.
//!
//! Columns carry no units here. What is known are the units of functions: separations and coordinates are in degrees, areas in
//! square degrees, arcs in radians.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::build::{operation, signed_number};

/// Units of angles, in degrees; of areas on the sky, in square degrees (VOUnits 1.0).
const ANGLES: &[(&str, f64)] = &[
    ("deg", 1.0),
    ("arcmin", 1.0 / 60.0),
    ("arcsec", 1.0 / 3600.0),
    ("mas", 1.0 / 3.6e6),
    ("uas", 1.0 / 3.6e9),
    ("rad", 180.0 / std::f64::consts::PI),
    ("mrad", 0.18 / std::f64::consts::PI),
];
const AREAS: &[(&str, f64)] = &[
    ("deg**2", 1.0),
    ("arcmin**2", 1.0 / 3600.0),
    ("arcsec**2", 1.0 / 12_960_000.0),
    (
        "sr",
        180.0 * 180.0 / (std::f64::consts::PI * std::f64::consts::PI),
    ),
];

/// What is known of a value's unit: its family, and how many of the family's first unit it is.
type Unit = (&'static [(&'static str, f64)], f64);

/// The value in the unit of this text.
pub(super) fn converted(value: &Expr, unit: Option<&str>) -> Result<Expr, String> {
    let Some(wanted) = unit else {
        return Err(
            "IN_UNIT takes a unit that is written out, as in IN_UNIT(value, 'arcsec')".to_owned(),
        );
    };
    let wanted = wanted.trim();
    let known = |family: &'static [(&str, f64)]| family.iter().find(|(name, _)| *name == wanted);
    let Some((family, has)) = unit_of(value) else {
        return Err(
            "IN_UNIT cannot tell the unit of its first argument: columns carry no units here; \
             it converts DISTANCE, AREA, COORD1, COORD2, DEGREES, RADIANS and the arc functions"
                .to_owned(),
        );
    };
    match known(family) {
        Some((_, wanted)) => Ok(operation(
            value.clone(),
            BinaryOperator::Multiply,
            signed_number(has / wanted),
        )),
        None => {
            let names: Vec<&str> = family.iter().map(|(name, _)| *name).collect();
            Err(format!(
                "IN_UNIT cannot make '{wanted}' of it; give one of {}",
                names.join(", ")
            ))
        }
    }
}

fn unit_of(value: &Expr) -> Option<Unit> {
    match value {
        Expr::Nested(inner) => unit_of(inner),
        Expr::UnaryOp { expr, .. } => unit_of(expr),
        Expr::Function(function) => match function.name.to_string().as_str() {
            "distance" | "coord1" | "coord2" | "degrees" | "scisql_angsep" | "angsep" => {
                Some((ANGLES, 1.0))
            }
            "radians" | "asin" | "acos" | "atan" | "atan2" => {
                Some((ANGLES, 180.0 / std::f64::consts::PI))
            }
            "area" => Some((AREAS, 1.0)),
            _ => None,
        },
        _ => None,
    }
}
