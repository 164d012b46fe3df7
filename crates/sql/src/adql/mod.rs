//! ADQL, the Virtual Observatory's dialect: how its texts are read, and what its forms are in the engine's.
//!
//! [`AdqlGrammar`] reads a statement; [`rewrite`] turns TOP into the engine's LIMIT and ADQL's functions into those of
//! [`crate::functions`] that compute them. What a geometry says about where rows are is found out later, when expressions have
//! been simplified: see [`crate::rules::RecogniseGeometry`].

mod build;
mod compound;
mod functions;
mod geometry;
mod grammar;
pub(crate) mod meeting;
mod repeated_names;
mod rewrite;
mod stcs;
mod top;
mod units;
mod uploads;
mod warnings;

pub(crate) use functions::typed_names;
pub(crate) use grammar::AdqlGrammar;
pub use meeting::AdqlOperators;
pub(crate) use rewrite::rewrite;
pub(crate) use uploads::as_typed;
pub use uploads::{UPLOAD_SCHEMA, UploadedName, with_uploads};
pub use warnings::adql_warnings;
