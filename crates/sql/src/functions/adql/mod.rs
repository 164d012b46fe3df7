//! ADQL's functions, where the engine has none that compute the same: geometry, and those of the IVOA's catalogue.
//!
//! Each is a row of a table. Those of geometry have names that begin with `adql_`; statements in ADQL's dialect reach them by
//! their own. Angles are in degrees, areas in square degrees.

mod catalogue;
mod coalesce;
pub(crate) mod constructors;
mod geometry_function;
mod histogram;
mod in_unit;
pub(crate) mod moc;
pub(crate) mod parts;
mod predicates;
mod sky_functions;
pub(crate) mod value;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

pub(crate) use coalesce::COALESCE;
pub(crate) use histogram::histogram;
pub use in_unit::{IN_UNIT, unit_of_function};
pub use moc::{MOC_TEXT, is_moc};
pub use value::Kind as GeometryKind;

/// The constructor of polygons. What a polygon's numbers say of its form is found out when a statement is planned.
pub const POLYGON: &str = "adql_polygon";

/// All of them but the aggregate, ready to be registered.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    let geometry = constructors::FUNCTIONS
        .iter()
        .chain(&predicates::FUNCTIONS)
        .chain(&sky_functions::FUNCTIONS)
        .chain(&in_unit::FUNCTIONS)
        .chain(&moc::FUNCTIONS);
    let mut all: Vec<Arc<ScalarUDF>> = geometry.map(|function| function.udf()).collect();
    all.extend(catalogue::FUNCTIONS.iter().map(|function| function.udf()));
    all.push(coalesce::coalesce());
    all
}

#[cfg(test)]
mod tests;
