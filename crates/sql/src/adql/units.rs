//! `IN_UNIT`: a value in another unit.
//!
//! What functions of angles give is known here: separations and coordinates are in degrees, areas in square degrees, arcs in radians. The units of
//! columns are in the catalog, so that the engine finds them, when it plans the call that is left for it.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::build::{call, literal_text, operation, signed_number};
use crate::functions::{IN_UNIT, unit_of_function};

/// The value in the unit of this text.
pub(super) fn converted(value: &Expr, unit: &Expr) -> Result<Expr, String> {
    let Some(wanted) = literal_text(unit) else {
        return Err(
            "IN_UNIT takes a unit that is written out, as in IN_UNIT(value, 'arcsec')".to_owned(),
        );
    };
    let wanted = wanted.trim();
    let Some(has) = unit_of(value) else {
        return Ok(call(IN_UNIT, vec![value.clone(), unit.clone()]));
    };
    match metadata::conversion(has, wanted) {
        Ok(factor) => Ok(operation(
            value.clone(),
            BinaryOperator::Multiply,
            signed_number(factor),
        )),
        Err(sentence) => Err(format!("IN_UNIT cannot convert this: {sentence}")),
    }
}

fn unit_of(value: &Expr) -> Option<&'static str> {
    match value {
        Expr::Nested(inner) => unit_of(inner),
        Expr::UnaryOp { expr, .. } => unit_of(expr),
        Expr::Function(function) => unit_of_function(&function.name.to_string()),
        _ => None,
    }
}
