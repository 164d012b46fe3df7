//! Noticing that something has changed without asking SQLite.
//!
//! In write-ahead mode every commit changes the header of the wal-index, the file `meridian.sqlite-shm`: readers of SQLite
//! itself look there whether what they have cached still holds (<https://www.sqlite.org/walformat.html>). The file lives as long
//! as some process has the catalog open; when the last one closes it, the log is copied into the database file, which changes
//! that file's time.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of the wal-index's header, which is there twice.
const HEADER_LEN: usize = 96;

/// A state of the catalog: equal states show the same catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogState {
    header: [u8; HEADER_LEN],
    /// The database file's number, length and time of change in seconds and nanoseconds.
    database: (u64, u64, i64, i64),
}

/// The state now; `None` if it cannot be told, because no process has the catalog open.
pub(super) fn state(database: &Path, wal_index: &Path) -> Option<CatalogState> {
    let mut header = [0; HEADER_LEN];
    File::open(wal_index)
        .and_then(|file| file.read_exact_at(&mut header, 0))
        .ok()?;
    let (first, second) = header.split_at(HEADER_LEN / 2);
    // Somebody is writing it just now.
    if first != second {
        return None;
    }
    let file = database.metadata().ok()?;
    Some(CatalogState {
        header,
        database: (file.ino(), file.len(), file.mtime(), file.mtime_nsec()),
    })
}
