//! MySQL's dialect: how its texts are read, what its forms mean in the engine's, and how its operators compute.
//!
//! A statement takes three steps. [`MySqlGrammar`] reads it. [`rewrite`] turns forms that the engine does not have into
//! those that it has, by the tables of [`templates`], and says where a truth is meant and where a number. [`Operators`]
//! chooses, when the types of the operands are known, what an operator computes.
//!
//! Statements about the connection itself, as SET and USE, are [`Command`]s: they never come to the engine.

mod beginnings;
pub(crate) mod build;
mod change_check;
mod command;
mod compare_all;
pub(crate) mod comparison;
mod compound_units;
mod forms;
mod grammar;
mod having;
mod insert_command;
mod json_calls;
mod keywords;
mod load_command;
pub(crate) mod operand;
mod operators;
mod password;
mod pieces;
mod prepare_command;
mod qualify;
mod rewrite;
pub(crate) mod row_values;
mod select;
mod select_into;
mod show;
mod sql_cache;
mod table_changes;
mod table_command;
mod table_expiry;
mod table_lists;
mod table_partition;
mod table_statement;
mod templates;
mod truth;
mod user_command;
mod values_columns;
mod view_command;
mod whole_arguments;

pub(crate) use beginnings::known_beginnings;
pub use change_check::{ChangeCheck, with_position};
pub use command::{AssignedValue, Assignment, Command, Scope, TableCommand, TargetTable, command};
pub(crate) use forms::unusual_pattern;
pub(crate) use grammar::MySqlGrammar;
pub(crate) use having::{AGGREGATES, is_aggregate};
pub use insert_command::{InsertedRows, InsertedValue, default_value};
pub use keywords::keywords;
pub use load_command::{FileForm, LoadedField, LoadedFile};
pub use operators::Operators;
pub(crate) use operators::with_settled_operands;
pub use password::{NewPassword, PasswordPlugin, without_passwords};
pub use pieces::{executed, first_word, placeholders, received, split_statements};
pub use prepare_command::{PrepareCommand, PreparedText};
pub use qualify::with_database;
pub(crate) use rewrite::rewrite;
pub(crate) use select::{
    UNNAMED, name_repeated_by, name_results, store_constants, with_equal_constants,
};
pub use show::{ShowKind, ShowStatement, StaticList, TableName};
pub(crate) use show::{described, read_show};
pub use table_changes::{
    ColumnAssignment, ColumnChange, DeclaredColumn, may_mention, with_columns_of_variables,
    without_database,
};
pub use table_expiry::TableExpiry;
pub use table_partition::TablePartition;
pub use user_command::UserStatement;
pub use view_command::ViewStatement;
