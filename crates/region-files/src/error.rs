//! What can go wrong with region files.

use std::io;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use sky::SkyError;

/// Why region files could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RegionFilesError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The directory has no region files, or others than this program knows.
    #[error("{}: {reason}", .path.display())]
    Unknown {
        /// The directory or its index.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file has another size than it was written with.
    #[error(
        "{} has {found} bytes where the index says {expected}: the file is cut off or was replaced, copy it anew", .path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// Those that were written.
        expected: u64,
    },
    /// A file has other contents than were written.
    #[error("{} is damaged: {reason}; copy it anew", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that was found.
        reason: String,
    },
    /// A column is not in the files.
    #[error("the region files have no column {name}; they have {}", .known.join(", "))]
    NoColumn {
        /// As it was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A column is asked for twice.
    #[error("the column {0} is asked for twice")]
    ColumnTwice(String),
    /// The padding is no angle.
    #[error("a padding of {0} degrees makes no sense: give 0 to 180")]
    Padding(f64),
    /// The region cannot be padded.
    #[error("an ellipse cannot be padded: give a larger one")]
    PaddedEllipse,
    /// A region, a position or a cut of the sky makes no sense.
    #[error(transparent)]
    Sky(#[from] SkyError),
    /// A column has values that the files cannot hold.
    #[error(
        "the column {column} has values of the type {data_type}, which region files do not hold: leave it out"
    )]
    Type {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// A row without a position was given to be written.
    #[error("a row without a position cannot be written")]
    NoPosition,
    /// Rows were given in another order than that of their chunks and sub-chunks.
    #[error("a row of chunk {chunk}, sub-chunk {sub_chunk} comes too late to be written")]
    Order {
        /// Its chunk.
        chunk: i32,
        /// Its sub-chunk.
        sub_chunk: i32,
    },
    /// There are no rows.
    #[error("there are no rows to be written")]
    Empty,
    /// Rows could not be put together.
    #[error("rows cannot be written as Arrow: {0}")]
    Arrow(#[from] ArrowError),
    /// The index could not be written.
    #[error("the index cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

impl RegionFilesError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn unknown(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unknown {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }

    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }
}
