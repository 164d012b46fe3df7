//! What can go wrong with making a catalogue, each as a sentence that says what to do.

use std::io;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use sky::{ChunkId, SkyError};

/// A catalogue that could not be made. Files that had their final names before are whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthesizeError {
    /// A band that is not one of the six.
    #[error("{0:?} is not a band: give some of the letters ugrizy, for example --bands gri")]
    UnknownBand(String),
    /// A band given twice.
    #[error("the band {0} is given twice: give each band once")]
    BandTwice(char),
    /// Numbers and region that contradict each other, or a number out of range.
    #[error("{0}")]
    Options(String),
    /// Chunks that have no rows in this catalogue.
    #[error("{}", no_such_chunk(.wanted, .there))]
    NoSuchChunk {
        /// The chunk requested.
        wanted: ChunkId,
        /// The chunks that have rows.
        there: Vec<ChunkId>,
    },
    /// A table that is not made.
    #[error("there is no table {wanted:?} to make: there are {there}")]
    NoSuchTable {
        /// The name requested.
        wanted: String,
        /// The names there are, joined by commas.
        there: String,
    },
    /// A column that the table does not have.
    #[error("{table} has no column {wanted:?}: it has {there}")]
    NoSuchColumn {
        /// The table.
        table: String,
        /// The name requested.
        wanted: String,
        /// The names there are, joined by commas.
        there: String,
    },
    /// Files of an earlier catalogue are in the way.
    #[error("{} has files already, such as {}: give --replace to remove them, or another directory", .dir.display(), .example.display())]
    FilesInTheWay {
        /// The directory.
        dir: PathBuf,
        /// One of the files.
        example: PathBuf,
    },
    /// The disk has no room left.
    #[error("the disk is full: cannot write {}; the files that are finished stay: free some space, then give --replace, or --chunk for what is missing", .0.display())]
    DiskFull(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A Parquet file could not be read or written.
    #[error("cannot {action} {}: {reason}", .path.display())]
    Parquet {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the library said.
        reason: String,
    },
    /// The patch to be duplicated cannot be used.
    #[error("{}: {reason}", .path.display())]
    Patch {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Somebody asked to stop.
    #[error("stopped as asked; the files that are finished stay, and none is half written")]
    Cancelled,
    /// A computation on columns failed.
    #[error("the columns could not be put together: {0}")]
    Arrow(#[from] ArrowError),
    /// The sky rejected a region or a partitioning.
    #[error(transparent)]
    Sky(#[from] SkyError),
    /// A thread ended by a panic: a defect of Meridian.
    #[error("a thread failed unexpectedly: please report this")]
    Internal,
}

impl SynthesizeError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(path),
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }

    /// What Parquet's library says, a full disk told apart.
    pub(crate) fn parquet(action: &'static str, path: &Path, error: ParquetError) -> Self {
        let reason = match error {
            ParquetError::External(source) => match source.downcast::<io::Error>() {
                Ok(source) => return Self::io(action, path, *source),
                Err(other) => other.to_string(),
            },
            other => other.to_string(),
        };
        Self::Parquet {
            action,
            path: path.to_path_buf(),
            reason,
        }
    }
}

/// Chunks named in a sentence before the rest is only counted.
const CHUNKS_NAMED: usize = 20;

fn no_such_chunk(wanted: &ChunkId, there: &[ChunkId]) -> String {
    let named: Vec<String> = (there.iter().take(CHUNKS_NAMED))
        .map(ToString::to_string)
        .collect();
    let more = match there.len().saturating_sub(CHUNKS_NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more up to {}", there[there.len() - 1]),
    };
    format!(
        "the catalogue has no rows in chunk {wanted}: its chunks are {}{more}",
        named.join(", ")
    )
}
