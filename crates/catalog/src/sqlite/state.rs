//! Noticing that something has changed without asking SQLite.
//!
//! In write-ahead mode every commit changes the header of the wal-index, the file `meridian.sqlite-shm`: readers of SQLite
//! itself look there whether what they have cached still holds (<https://www.sqlite.org/walformat.html>). The file lives as long
//! as some process has the catalog open; when the last one closes it, the log is copied into the database file, which changes
//! that file's time.
//!
//! SQLite guards that file with POSIX record locks, and a process loses all its record locks on a file as soon as it closes
//! *any* descriptor of it (<https://www.sqlite.org/howtocorrupt.html>, section 2.2). Without them another process takes the
//! wal-index for abandoned and truncates it under our memory map. So a descriptor opened here is never closed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Bytes of the wal-index's header, which is there twice.
const HEADER_LEN: usize = 96;

/// A state of the catalog: equal states show the same catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogState {
    header: [u8; HEADER_LEN],
    database: FileState,
}

/// What the system says of a file: its number, length and time of change in seconds and nanoseconds.
pub(super) type FileState = (u64, u64, i64, i64);

/// What the system says of the database file; `None` if it is gone.
pub(super) fn file_state(database: &Path) -> Option<FileState> {
    let file = database.metadata().ok()?;
    Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
}

/// The state of a catalog whose changes are all in its database file.
pub(super) fn state_at_rest(database: &Path) -> Option<CatalogState> {
    Some(CatalogState {
        header: [0; HEADER_LEN],
        database: file_state(database)?,
    })
}

/// The state now; `None` if it cannot be told, because no process has the catalog open.
pub(super) fn state(database: &Path, wal_index: &Path) -> Option<CatalogState> {
    let mut header = [0; HEADER_LEN];
    opened_for_good(wal_index)
        .and_then(|file| file.read_exact_at(&mut header, 0))
        .ok()?;
    let (first, second) = header.split_at(HEADER_LEN / 2);
    // Somebody is writing it just now.
    if first != second {
        return None;
    }
    Some(CatalogState {
        header,
        database: file_state(database)?,
    })
}

/// A file's device and number: two files that exist at the same time never share both.
type Identity = (u64, u64);

fn identity(metadata: &std::fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The wal-indexes that this process has ever looked at. None is closed before the process ends, so a number in here is not
/// given to another file. SQLite keeps the file while a process has the catalog open, so there is one for each time that this
/// process is the first to open a catalog.
static OPENED: LazyLock<Mutex<HashMap<Identity, Arc<File>>>> = LazyLock::new(Mutex::default);

/// The file at `path` through the one descriptor of it that this process opens itself.
fn opened_for_good(path: &Path) -> io::Result<Arc<File>> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = opened.get(&identity(&path.metadata()?)) {
        return Ok(Arc::clone(file));
    }
    let file = Arc::new(File::open(path)?);
    // Whatever happens below, this descriptor stays open: the file may have become another since its number was requested, one
    // that is here already.
    std::mem::forget(Arc::clone(&file));
    let found = identity(&file.metadata()?);
    Ok(Arc::clone(opened.entry(found).or_insert(file)))
}
