//! The folder `queries` of a data directory, and the lock that one server holds on it.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use sql::ErrorCode;

use crate::QueryError;

/// Where queries are stored.
#[derive(Debug)]
pub(crate) struct Storage {
    pub directory: PathBuf,
    /// Held as long as the service lives.
    _lock: File,
}

impl Storage {
    /// Makes the folder and locks it.
    ///
    /// # Errors
    /// It cannot be written, or another server holds it.
    pub fn open(data_dir: &Path) -> Result<Self, QueryError> {
        let directory = data_dir.join("queries");
        let refused = |error: &dyn std::fmt::Display| {
            let sentence = format!(
                "queries cannot be submitted: {} cannot be written: {error}",
                directory.display()
            );
            QueryError::new(ErrorCode::READ_ONLY, sentence)
        };
        catalog::make_directories(&directory).map_err(|error| refused(&error))?;
        let path = directory.join("lock");
        let mut options = catalog::writable_file();
        let lock = options.read(true).create(true).truncate(false).open(path);
        let lock = lock.map_err(|error| refused(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                directory,
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => {
                let sentence = "another server runs the queries of this data directory: submit the query there";
                Err(QueryError::new(ErrorCode::READ_ONLY, sentence))
            }
            Err(TryLockError::Error(error)) => Err(refused(&error)),
        }
    }

    /// The files of a query.
    pub fn of(&self, id: u64) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// The stored result of a query.
    pub fn result(&self, id: u64) -> PathBuf {
        self.of(id).join("result")
    }
}

/// Removes a query's files, if it has any.
pub(crate) fn remove_directory(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %directory.display(), %error, "a query's files could not be removed");
    }
}
