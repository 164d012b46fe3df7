//! Functions that astronomers expect in SQL: photometry and sky geometry, as the LSST papers name them.
//!
//! Every function is known under its `scisql_` name and, where nothing else has it, under the plain name. Angles are in
//! degrees unless a function says otherwise; fluxes are in erg/s/cm²/Hz unless its name says nanojansky.

pub(crate) mod adql;
mod apart;
pub(crate) mod arguments;
mod checked_sum;
mod documented;
mod elsewhere;
mod formula;
mod geometry;
mod guarded;
mod math;
pub(crate) mod mysql;
mod photometry;
mod real;
mod row;
mod row_key;
mod scalar;
mod single_row;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

pub use adql::{GeometryKind, IN_UNIT, MOC_TEXT, POLYGON, is_moc, unit_of_function};
pub use apart::APART;
pub(crate) use apart::{apart, apart_from};
pub(crate) use checked_sum::checked_sum;
pub use documented::documented;
pub(crate) use documented::{is_of_adql_alone, is_of_mysql_alone};
pub(crate) use elsewhere::same_as;
pub(crate) use geometry::{POLYGON_TEXT, vertices_of};
pub use geometry::{RegionShape, SEPARATION};
pub(crate) use guarded::of_unknown_growth;
pub use mysql::{FRACTION_DIGITS, TIME};
pub use photometry::is_magnitude_of_flux;
pub use real::{REAL, real, real_constant};
pub(crate) use row::{ROW, row, values_of_row};
pub(crate) use row_key::ROW_KEY;
use row_key::row_key;
pub(crate) use scalar::is_scalar;
pub(crate) use single_row::{counted_value, single_row};

/// DataFusion's functions of few arguments and any amount of memory. Neither dialect has them.
pub const UNBOUNDED: [&str; 5] = [
    "array_repeat",
    "array_resize",
    "generate_series",
    "range",
    "regexp_replace",
];

/// All functions that Meridian adds, ready to be registered with a session.
pub fn all() -> Vec<Arc<ScalarUDF>> {
    let mut functions = photometry::all();
    functions.extend(geometry::all());
    functions.extend(math::all());
    functions.extend(mysql::all());
    functions.extend(adql::all());
    functions.push(real());
    functions.push(apart());
    functions.push(row());
    functions.push(row_key());
    functions.push(single_row());
    functions
}

/// All aggregates that Meridian adds.
pub fn all_aggregates() -> Vec<Arc<AggregateUDF>> {
    let mut aggregates = guarded::all();
    aggregates.extend(mysql::aggregates::all());
    aggregates.push(adql::histogram());
    aggregates.push(checked_sum());
    aggregates.push(counted_value());
    aggregates
}

/// The function of this name that Meridian adds, if there is one.
pub(crate) fn by_name(name: &str) -> Option<Arc<ScalarUDF>> {
    static BY_NAME: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
        let named = all().into_iter().map(|f| (f.name().to_owned(), f));
        named.collect()
    });
    BY_NAME.get(name).cloned()
}

/// The names of a function of the `scisql` family: `scisql_x`, `x`, and for geometry `qserv_x`.
fn aliases(plain: &str, prefixes: &[&str]) -> Vec<String> {
    std::iter::once(plain.to_owned())
        .chain(prefixes.iter().map(|prefix| format!("{prefix}{plain}")))
        .collect()
}
