//! `IN_UNIT(value, unit)` of values whose units are in the catalog: a call that stands for a product until the unit is found.

use arrow::datatypes::DataType;
use datafusion::common::exec_err;

use super::constructors::{is_number, unfit};
use super::geometry_function::{GeometryFunction, as_it_is};

/// The function.
pub const IN_UNIT: &str = "adql_in_unit";

/// The unit of what a function gives, by its name in statements or in the engine.
pub fn unit_of_function(name: &str) -> Option<&'static str> {
    match name {
        "distance" | "coord1" | "coord2" | "degrees" | "scisql_angsep" | "angsep"
        | "qserv_angsep" | "adql_distance" | "adql_coord1" | "adql_coord2" => Some("deg"),
        "radians" | "asin" | "acos" | "atan" | "atan2" => Some("rad"),
        "area" | "adql_area" => Some("deg**2"),
        _ => None,
    }
}

pub(super) static FUNCTIONS: [GeometryFunction; 1] = [GeometryFunction {
    name: IN_UNIT,
    takes: |types| match types {
        [
            value,
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8,
        ] if is_number(value) => Ok(vec![DataType::Float64, DataType::Utf8]),
        _ => Err(unfit("IN_UNIT", "a number and the text of a unit", types)),
    },
    gives: |_| DataType::Float64,
    nullable: true,
    // What is left of the plan's calls has no unit.
    of: |_| exec_err!("IN_UNIT cannot tell the unit of its first argument"),
    simplified: as_it_is,
}];
