//! Functions that astronomers expect in SQL: photometry and sky geometry, as the LSST papers name them.
//!
//! Every function is known under its `scisql_` name and, where nothing else has it, under the plain name. Angles are in
//! degrees unless a function says otherwise; fluxes are in erg/s/cm²/Hz unless its name says nanojansky.

mod formula;
mod geometry;
mod math;
pub(crate) mod mysql;
mod photometry;
mod real;

use std::sync::Arc;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

pub use geometry::{RegionShape, SEPARATION};
pub use photometry::is_magnitude_of_flux;
pub use real::{FINITE, REAL, finite, real};

/// All functions that Meridian adds, ready to be registered with a session.
pub fn all() -> Vec<Arc<ScalarUDF>> {
    let mut functions = photometry::all();
    functions.extend(geometry::all());
    functions.extend(math::all());
    functions.extend(mysql::all());
    functions.extend([real(), finite()]);
    functions
}

/// All aggregates that Meridian adds.
pub fn all_aggregates() -> Vec<Arc<AggregateUDF>> {
    mysql::aggregates::all()
}

/// The names under which a function of the `scisql` family answers: `scisql_x`, `x`, and for geometry `qserv_x`.
fn aliases(plain: &str, prefixes: &[&str]) -> Vec<String> {
    std::iter::once(plain.to_owned())
        .chain(prefixes.iter().map(|prefix| format!("{prefix}{plain}")))
        .collect()
}
