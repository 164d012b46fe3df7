//! Who has the catalog of a data directory open, so that it is not taken to another database under their feet.
//!
//! Each handle holds a shared lock on `locks/open.lock`. A process that may not write the directory and finds no such file has none.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::lock::open_lock_file;
use crate::{CatalogError, postgres, sqlite};

const FILE_NAME: &str = "open.lock";

/// Held by a handle.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    /// `None` where it cannot be had.
    _lock: Option<File>,
}

/// Held by whoever takes the catalog to another database.
#[derive(Debug)]
pub(crate) struct Alone {
    _lock: File,
}

impl DirectoryLock {
    /// The same where there is a catalog; elsewhere nothing is made.
    pub(crate) fn where_there_is_one(data_dir: &Path) -> Result<Self, CatalogError> {
        let names = [sqlite::FILE_NAME, postgres::FILE_NAME];
        match names.iter().any(|name| data_dir.join(name).exists()) {
            true => Self::in_dir(data_dir),
            false => Ok(Self { _lock: None }),
        }
    }

    /// Says that the catalog of a data directory is open.
    ///
    /// # Errors
    /// It is being copied.
    pub(crate) fn in_dir(data_dir: &Path) -> Result<Self, CatalogError> {
        let path = data_dir.join("locks").join(FILE_NAME);
        let file = match open_lock_file(&path) {
            Ok(file) => Some(file),
            Err(_) => File::open(&path).ok(),
        };
        let Some(file) = file else {
            return Ok(Self { _lock: None });
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { _lock: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(CatalogError::BeingCopied {
                dir: data_dir.to_owned(),
            }),
            // A file system without locks.
            Err(TryLockError::Error(_)) => Ok(Self { _lock: None }),
        }
    }
}

impl Alone {
    /// Sees that nobody has the catalog open, and keeps it so.
    ///
    /// # Errors
    /// Somebody has it open.
    pub(crate) fn in_dir(data_dir: &Path) -> Result<Self, CatalogError> {
        let path = data_dir.join("locks").join(FILE_NAME);
        let file = open_lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _lock: file }),
            Err(TryLockError::WouldBlock) => Err(CatalogError::StillOpen {
                dir: data_dir.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(CatalogError::io("lock", path)(source)),
        }
    }
}
