//! Why a catalogue could not be made.

use std::io;
use std::path::{Path, PathBuf};

use engine::EngineError;
use parquet::errors::ParquetError;

/// A catalogue that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HatsError {
    /// There is no such table.
    #[error("there is no table {0}")]
    NoTable(String),
    /// It is a view.
    #[error("{0} is a view, and a HATS catalogue is made of a table: export what the view reads")]
    IsView(String),
    /// Its rows have no position.
    #[error(
        "{table} is a {kind} table, whose rows have no position; a HATS catalogue is made of a director or of a child: export it in another format"
    )]
    NoPosition {
        /// The table.
        table: String,
        /// What kind of table it is.
        kind: String,
    },
    /// It has no rows.
    #[error("{0} has no rows with a position: there is nothing to export")]
    Empty(String),
    /// Some rows have no position.
    #[error(
        "{rows} rows of {table} have no position and so no place in a HATS catalogue: give --skip-unplaced to leave them out"
    )]
    Unplaced {
        /// The table.
        table: String,
        /// How many.
        rows: u64,
    },
    /// The table has changed meanwhile.
    #[error("{0} has changed meanwhile: repeat the export")]
    Changed(String),
    /// A row has too much of one column to be written.
    #[error("{0}")]
    Unfit(String),
    /// A file could not be written.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The output cannot be used.
    #[error("{}: {reason}", .path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Rows could not be written as Parquet.
    #[error("the rows cannot be written as Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// The rows could not be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl HatsError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
