//! What can go wrong with the files of a table, in sentences that say what to do.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::CatalogError;
use thiserror::Error;
use vortex::error::VortexError;

/// An error of the store. Cheap to clone, so that every reader of a shared file can have it.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system rejected an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `read`, `create`, `rename`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// There is no room for what was being written. Nothing of it remains.
    #[error("the disk is full: cannot {action} {}; free some space or choose another directory, then try again", path.display())]
    DiskFull {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file that was being written.
        path: PathBuf,
    },
    /// A file that the catalog speaks of is not there.
    #[error("{} is missing: run `meridian check` to see what else is, then load the table again or restore the file from a backup", path.display())]
    Missing {
        /// The file or directory.
        path: PathBuf,
    },
    /// The catalog does not say whether the files of a part may be read or removed.
    #[error("{0}")]
    Lease(Arc<CatalogError>),
    /// A file was given up because workers of a cluster hold it, and they cannot be asked now.
    #[error("{} is at workers of the cluster, and cannot be read now: {why}", path.display())]
    AtWorkers {
        /// Where the file was.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A file is in the object store that is its home, and cannot be read from there now.
    #[error("{} is in the object store that is its home, and cannot be read now: {why}", path.display())]
    AtHome {
        /// Where the file would be here.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// A checksum or an invariant of a file does not hold.
    #[error("{} is damaged ({what}): run `meridian check` to see what else is, then load the table again or restore the file from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which block at which offset, or which invariant.
        what: String,
    },
    /// The file was written by a later version of this program.
    #[error("{} has format version {found}, but this Meridian reads versions up to {supported}: use a newer Meridian", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The highest version that can be read.
        supported: u32,
    },
    /// A chunk file could not be decoded although its checksums are right.
    #[error("cannot {action} {}: {message}", path.display())]
    Decode {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        message: String,
    },
    /// The batches to be written could not be made.
    #[error(transparent)]
    Input(Arc<dyn Error + Send + Sync>),
    /// The condition of a scan could not be evaluated.
    #[error(transparent)]
    Condition(Arc<dyn Error + Send + Sync>),
    /// The batches to be written do not have the columns that were announced.
    #[error("rows for {} do not fit its columns: {message}", path.display())]
    WrongBatch {
        /// The file that was being written.
        path: PathBuf,
        /// What does not fit.
        message: String,
    },
    /// A directory of sub-chunks breaks its own rules or does not cover the rows of its file.
    #[error("wrong directory of sub-chunks: {0}")]
    WrongDirectory(String),
    /// A scan requests columns or rows that the file does not have.
    #[error("cannot scan {}: {message}", path.display())]
    WrongScan {
        /// The file.
        path: PathBuf,
        /// What it does not have.
        message: String,
    },
    /// A director index was given a key that is not greater than the one before.
    #[error(
        "key {key} came after {last}: a director index is written in ascending order, each key once"
    )]
    KeyOutOfOrder {
        /// The key.
        key: i64,
        /// The one before.
        last: i64,
    },
    /// A location that the director index cannot hold.
    #[error(
        "sub-chunk {0} cannot be put into a director index: sub-chunk numbers are never negative"
    )]
    WrongLocation(i32),
}

impl From<CatalogError> for StoreError {
    fn from(error: CatalogError) -> Self {
        Self::Lease(Arc::new(error))
    }
}

impl StoreError {
    /// For `map_err` after an operation on `path`: a full disk and a missing file get their own
    /// sentences.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { action, path }
            }
            io::ErrorKind::NotFound if action == "open" => Self::Missing { path },
            _ => Self::Io {
                action,
                path,
                source: Arc::new(source),
            },
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// Turns what Vortex reports while working on `path` into what happened: our own errors travel
    /// through Vortex as its error's source, and so do those of the operating system.
    pub(crate) fn vortex(action: &'static str, path: &Path, error: &VortexError) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = error.source();
        while let Some(inner) = cause {
            if let Some(ours) = inner.downcast_ref::<Self>() {
                return ours.clone();
            }
            if let Some(io_error) = inner.downcast_ref::<io::Error>() {
                if let Some(ours) = io_error.get_ref().and_then(|e| e.downcast_ref::<Self>()) {
                    return ours.clone();
                }
                let copy = io_error.raw_os_error().map_or_else(
                    || io::Error::new(io_error.kind(), io_error.to_string()),
                    io::Error::from_raw_os_error,
                );
                return Self::io(action, path)(copy);
            }
            cause = inner.source();
        }
        Self::Decode {
            action,
            path: path.to_owned(),
            message: error.to_string(),
        }
    }
}
