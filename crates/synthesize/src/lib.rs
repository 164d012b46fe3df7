//! Catalogues of any size that are made, not observed: from nothing ([`GeneratedCatalogue`]), or of copies of a real patch of sky
//! ([`PatchCopies`]).
//!
//! A [`Catalogue`] is made chunk by chunk of the sky's partitioning. Each chunk has random streams of its own, so any
//! chunk can be made alone, on any machine, and has the rows that it has in the whole. [`write_parquet`] writes one file a
//! chunk.
//!
//! The crate depends on `sky` alone of ours. It knows nothing of databases: whoever loads a catalogue takes its batches.
//!
//! Invariants:
//! - The rows of a chunk depend on the options, the seed and the chunk's number: not on threads, nor on which other
//!   chunks are made.
//! - Keys are unique over all chunks; a chunk's first key follows from the areas of the chunks before it.
//! - Memory is bounded by blocks of rows, whatever a chunk holds.
//! - A file with its final name is whole.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::float_cmp,
        reason = "a failure is the test's own message"
    )
)]

mod catalogue;
mod duplicate;
mod error;
mod footprint;
mod generate;
mod light_curve;
mod objects;
mod observations;
mod photometry;
mod progress;
mod random;
mod write;

pub use catalogue::{Batches, Catalogue, Role, Table, find_chunks};
pub use duplicate::{ChildFiles, DirectorFiles, DuplicateOptions, Patch, PatchCopies};
pub use error::SynthesizeError;
pub use footprint::{DEFAULT_DENSITY, Extent, WHOLE_SKY_SQUARE_DEGREES};
pub use generate::{GenerateOptions, GeneratedCatalogue};
pub use light_curve::{PERIODIC_FLAG, TRANSIENT_FLAG};
pub use photometry::Band;
pub use progress::{Progress, ProgressSnapshot};
pub use write::{Compression, TableSummary, WriteOptions, write_parquet};
