//! MySQL's dialect: how its texts are read, what its forms mean in the engine's, and how its operators compute.
//!
//! A statement takes three steps. [`MySqlGrammar`] reads it. [`rewrite`] turns forms that the engine does not have into
//! those that it has, by the tables of [`templates`], and says where a truth is meant and where a number. [`Operators`]
//! chooses, when the types of the operands are known, what an operator computes.

pub(crate) mod build;
mod compare_all;
mod forms;
mod grammar;
mod operators;
mod rewrite;
mod select;
mod show;
mod templates;
mod truth;

pub(crate) use grammar::MySqlGrammar;
pub use operators::Operators;
pub(crate) use rewrite::rewrite;
pub(crate) use select::name_repeated_by;
pub(crate) use show::listing;
pub use show::{Listed, Listing, TableName};
