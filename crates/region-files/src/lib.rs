//! Region files: the rows of a table in a directory of Arrow files, one for each chunk of the sky, which a pipeline reads without a server.
//!
//! `docs/region-files.md` describes the format for other readers. Depends on Arrow and the sky alone: a pipeline in Rust needs nothing else of
//! Meridian.
//!
//! Invariants:
//! * Each row is in the file of the chunk of its position, and in the rows of its sub-chunk there; the writer refuses rows in another order.
//! * A region gives exactly the rows whose positions [`Search::contains`] holds for: bounds of chunks and sub-chunks only save work.
//! * A file that is shorter or longer than the index says is an error whenever it is read, and so is one whose footer or messages have changed, by
//!   their checksum: no byte of a file makes a reader panic. Checksums of all bytes are compared where that is wanted.
//! * The index is written last. (That a directory gets its name when it is whole is up to whoever makes it.)
//!
//! ```no_run
//! use region_files::{RegionFiles, Search, Verification};
//! use sky::Angle;
//!
//! let files = RegionFiles::open("positions-dr1".as_ref(), Verification::Sizes)?;
//! let search = Search::new("circle 150.1 2.2 0.15".parse()?, Angle::from_arcsec(52.0))?;
//! for batch in files.rows(&search, Some(&["diaObjectId"]))? {
//!     println!("{} rows", batch?.num_rows());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a failure is the test's own message")
)]

mod directory;
mod error;
mod index;
mod metadata;
mod read;
mod search;
mod summed;
mod write;

pub use directory::SubChunkRows;
pub use error::RegionFilesError;
pub use index::{Bounds, ChunkFile, ColumnDescription, DirectoryFile, Index, Partitioning, Source};
pub use read::{RegionFiles, Rows, Verification};
pub use search::Search;
pub use write::{ROWS_PER_BATCH, RegionWriter, RegionsReport, TableDescription};
