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
mod clock;
mod columns;
mod encodings;
mod formatted;
mod joined;
mod json;
mod json_documents;
mod json_order;
mod moment_text;
mod numbers;
mod patterns;
pub(in crate::functions) mod row_function;
mod sleep;
mod spans;
mod str_to_date;
pub(in crate::functions) mod strings;
mod text;
mod times;
mod units;
pub(crate) mod value;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::logical_expr::{Expr, ScalarUDF};

pub(crate) use assignment::STORE;
pub use assignment::{GivenValue, Longest, RowFault, StoredColumn, StoredType};
pub use calendar::Moment;
pub use row_function::{FRACTION_DIGITS, TIME};
pub(crate) use row_function::{TIME_TEXT, is_document};
pub(crate) use str_to_date::{FormatParts, parts_of};
pub(crate) use times::{
    days_of_number, is_clock, is_moment, is_number_of_moment, is_read_by_format,
};
pub(crate) use value::{is_number, number_prefix};

static FUNCTIONS: LazyLock<HashMap<&'static str, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let tables = [
        numbers::FUNCTIONS,
        text::FUNCTIONS,
        text::BOUNDED,
        encodings::FUNCTIONS,
        times::FUNCTIONS,
        spans::FUNCTIONS,
        json::FUNCTIONS,
        json_documents::FUNCTIONS,
        json_order::FUNCTIONS,
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

/// Whether the function of this name gives JSON documents.
pub(crate) fn gives_document(name: &str) -> bool {
    let mut functions = json::FUNCTIONS.iter().chain(json_documents::FUNCTIONS);
    functions.any(|function| {
        function.name == name && function.return_type == row_function::ReturnType::Json
    })
}

/// Whether the function of this name takes its arguments for numbers or times.
pub(crate) fn takes_numbers_or_times(name: &str) -> bool {
    let tables = [numbers::FUNCTIONS, times::FUNCTIONS, spans::FUNCTIONS];
    let mut functions = tables.into_iter().flatten();
    functions.any(|function| function.name == name)
}
