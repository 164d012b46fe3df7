//! The count of changes that SQLite keeps in a file, by which other processes see that it has changed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Where SQLite counts the changes of a file (its file format, section 1.3.7), 4 bytes.
const CHANGES_AT: u64 = 24;

/// Reads the count of changes of a file that is not in write-ahead mode.
#[derive(Debug)]
pub(crate) struct ChangeCount {
    path: PathBuf,
    /// The file, once it was there.
    file: Mutex<Option<File>>,
}

impl ChangeCount {
    /// Of a file, which need not be there.
    pub(crate) fn of(path: PathBuf) -> Self {
        Self {
            path,
            file: Mutex::default(),
        }
    }

    /// The count as it is now; `None` if there is no file. It takes a microsecond.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub(crate) fn read(&self) -> io::Result<Option<[u8; 4]>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            match File::open(&self.path) {
                Ok(opened) => *file = Some(opened),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let mut changes = [0; 4];
        if let Some(file) = file.as_ref() {
            match file.read_exact_at(&mut changes, CHANGES_AT) {
                // Somebody is making it.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                other => other?,
            }
        }
        Ok(Some(changes))
    }
}
