//! From the SQL that people type to what the planner understands: names without regard to case, sky and photometry
//! functions, value rules, and messages that point at the mistake.
//!
//! May depend on `sky`, Arrow and DataFusion. Invariant: knows nothing of chunks, files or the catalog; what it must
//! know about tables (which columns are the position) comes through [`TableShapes`].

mod adql;
mod all_rows;
mod areaspec;
mod as_of;
mod cast_names;
mod column_mistakes;
mod common_columns;
pub mod connection;
mod convex_polygons;
mod crossmatch;
mod dialect;
mod distinct_order;
mod engine_words;
mod error;
mod error_code;
mod error_place;
mod fold;
pub mod functions;
mod headings;
mod hidden;
pub mod interrupt;
mod join_conditions;
mod limits;
mod mistakes;
pub mod mysql;
mod nested_joins;
mod no_cache;
mod parameters;
mod parse;
mod planner_calls;
mod planner_mistakes;
mod recursion;
mod repeated_columns;
pub mod rules;
mod scopes;
mod statement_text;
mod stored_result;
mod subquery_names;
mod table_states;
mod temporary_files;
mod time_account;
mod unsupported;
mod visiting;
mod warnings;
mod windows;

pub use adql::{AdqlOperators, UPLOAD_SCHEMA, UploadedName, adql_warnings, with_uploads};
pub use areaspec::{TableShape, TableShapes};
pub use as_of::{AS_OF_FUNCTION, AS_OF_VARIABLE, replace_as_of, time_as_text, time_of_variable};
pub use connection::Connection;
pub use crossmatch::{
    Find, MatchCall, MatchFunction, MatchJoin, MatchNames, SEPARATION_COLUMN, SIDE_SUFFIXES,
};
pub use dialect::Dialect;
pub use error::{NotFound, SqlError, denied_database, denied_table, is_own_mistake};
pub use error_code::ErrorCode;
pub use fold::{fold_case, fold_word};
pub use functions::mysql::{GivenValue, Longest, Moment, RowFault, StoredColumn, StoredType};
pub use headings::Headings;
pub use interrupt::Interrupt;
pub use parameters::{Parameter, parameters};
pub use parse::{ParsedStatement, check_one_expression, ends_statement, headings, parse};
pub use recursion::RecursionLimit;
pub use repeated_columns::RepeatedColumns;
pub use stored_result::RESULT_FUNCTION;
pub use table_states::state_catalog;
pub use time_account::TimeAccount;
pub use warnings::{MOST_WARNINGS, RowWarnings, Warning, warnings};
