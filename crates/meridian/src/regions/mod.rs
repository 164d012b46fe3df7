//! `meridian alerts regions` and `meridian alerts region`: positions in files by chunks of the sky, and the rows of a region in them.

mod place;
mod progress;
mod read;
mod table;
mod write;

pub use read::{RegionArguments, read};
pub use write::{RegionsArguments, write};
