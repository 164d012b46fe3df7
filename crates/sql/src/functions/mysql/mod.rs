//! MySQL's functions and operators, where they do not compute what the engine's of the same name do.
//!
//! Each is a row of a table: its name, what its arguments are taken for, what it gives, and how. Their names begin with
//! `mysql_`; statements in MySQL's dialect reach them by their own. A few take the place of the engine's functions of the
//! same name in any dialect, because the engine's make texts of any length.

pub(crate) mod aggregates;
mod assignment;
mod bounded_aggregate;
mod calendar;
pub(crate) mod choice;
mod columns;
mod joined;
mod json;
mod json_documents;
mod numbers;
mod patterns;
pub(in crate::functions) mod row_function;
mod sleep;
mod str_to_date;
mod text;
mod times;
pub(crate) mod value;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::logical_expr::{Expr, ScalarUDF};

pub(crate) use assignment::STORE;
pub use assignment::{GivenValue, Longest, RowFault, StoredColumn, StoredType};
pub use calendar::Moment;
pub(crate) use str_to_date::has_time;
pub(crate) use times::{days_of_number, is_moment, is_number_of_moment};
pub(crate) use value::{is_number, number_prefix};

static FUNCTIONS: LazyLock<HashMap<&'static str, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let tables = [
        numbers::FUNCTIONS,
        text::FUNCTIONS,
        text::BOUNDED,
        times::FUNCTIONS,
        json::FUNCTIONS,
        json_documents::FUNCTIONS,
        patterns::FUNCTIONS,
    ];
    tables
        .into_iter()
        .flatten()
        .map(|function| (function.name, function.udf()))
        .chain([
            (joined::JOINED, joined::joined()),
            (sleep::SLEEP, sleep::sleep()),
            (STORE, assignment::store()),
        ])
        .chain(choice::all())
        .collect()
});

/// All of them, ready to be registered.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    FUNCTIONS.values().cloned().collect()
}

/// A call of one of them. A name that is not in the tables is a mistake of this crate's; it gives NULL.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    match FUNCTIONS.get(name) {
        Some(function) => function.call(arguments),
        None => Expr::Literal(datafusion::common::ScalarValue::Null, None),
    }
}
