//! How catalogues are described: schema files in Felis's language, units (VOUnits), and what columns are physically (UCD1+).
//!
//! Invariants:
//! - What a file says beyond what is read here is ignored, so that files of later versions of Felis are read.
//! - Units and UCDs are checked and never changed: a word that is not known gives a sentence, and stays what it is.
//!
//! It knows nothing of databases, files of rows or queries, and depends on no other crate of ours.

mod conversion;
mod description;
mod felis;
mod resources;
mod ucd;
mod units;

pub use conversion::conversion;
pub use description::{
    ColumnWords, DatabaseWords, FileValue, TableWords, read_edit, read_edit_toml, read_felis,
    to_json, to_yaml,
};
pub use felis::{SchemaFile, SchemaFileError, TableEntry, YamlValue};
pub use ucd::check_ucd;
pub use units::check_unit;
