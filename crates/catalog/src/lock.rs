//! The load lock: at most one load of a table at a time, over all processes of a data directory.
//!
//! It is a lock of the operating system on a file, so the kernel releases it when the holder dies,
//! however it dies. The file's content only tells others who holds it; the lock does not depend on it.
//!
//! Where the catalog is in PostgreSQL it is an advisory lock there, which reaches further than one file system.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access::{make_directories, writable_file};
use crate::clock::utc_now;
use crate::postgres::{Attempt, PostgresLock};
use crate::process::host_name;
use crate::{CatalogError, path_name};

/// Who holds a load lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// The machine on which it runs.
    pub host: String,
    /// Since when: UTC, ISO 8601.
    pub since: String,
    /// What it is doing, in its own words.
    pub what: String,
}

impl Holder {
    fn ourselves(what: &str) -> Self {
        Self {
            pid: std::process::id(),
            host: host_name(),
            since: utc_now(),
            what: what.to_owned(),
        }
    }

    /// Stands in for a holder that has the lock but has not yet written who it is.
    fn nameless() -> Self {
        Self {
            pid: 0,
            host: String::new(),
            since: String::new(),
            what: String::new(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == 0 {
            return f.write_str("another process that has only just begun");
        }
        let Self {
            pid,
            host,
            since,
            what,
        } = self;
        write!(f, "process {pid} on {host} ({what}, since {since})")
    }
}

/// Held by the process that loads a table, from before it begins until its leftovers are removed.
#[derive(Debug)]
pub struct LoadLock {
    _held: Held,
}

#[derive(Debug)]
enum Held {
    File(#[expect(dead_code, reason = "it is held")] FileLock),
    Postgres(#[expect(dead_code, reason = "it is held")] PostgresLock),
}

#[derive(Debug)]
struct FileLock(File);

impl LoadLock {
    /// Takes the lock of one table without waiting; `what` is shown to those who come second.
    ///
    /// Two handles exclude each other within one process as well.
    ///
    /// # Errors
    /// [`CatalogError::Locked`] tells who holds it; anything else means that the lock file cannot be
    /// made or locked.
    pub fn acquire(
        data_dir: &Path,
        database: &str,
        table: &str,
        what: &str,
    ) -> Result<Self, CatalogError> {
        let locked = |holder: Holder| CatalogError::Locked {
            database: database.to_owned(),
            table: table.to_owned(),
            holder: Box::new(holder),
        };
        match Self::attempt(data_dir, database, table, what)? {
            Ok(lock) => Ok(lock),
            Err(Some(holder)) => Err(locked(holder)),
            Err(None) => {
                let path = lock_path(data_dir, &lock_name(database, table));
                Err(locked(read_holder(&path)))
            }
        }
    }

    /// The same for those who try again: `None` if somebody else has the lock, whoever that is.
    ///
    /// # Errors
    /// The lock file cannot be made or locked.
    pub fn try_acquire(
        data_dir: &Path,
        database: &str,
        table: &str,
        what: &str,
    ) -> Result<Option<Self>, CatalogError> {
        Ok(Self::attempt(data_dir, database, table, what)?.ok())
    }

    /// The lock, or who has it, if that is known already.
    fn attempt(
        data_dir: &Path,
        database: &str,
        table: &str,
        what: &str,
    ) -> Result<Result<Self, Option<Holder>>, CatalogError> {
        let (name, holder) = (lock_name(database, table), Holder::ourselves(what));
        let held = match PostgresLock::acquire(data_dir, &name, &holder)? {
            None => FileLock::try_acquire(data_dir, &name, &holder)?.map(Held::File),
            Some(Attempt::Taken(lock)) => Some(Held::Postgres(lock)),
            Some(Attempt::Held(holder)) => {
                return Ok(Err(Some(holder.unwrap_or_else(Holder::nameless))));
            }
        };
        Ok(held.map(|held| Self { _held: held }).ok_or(None))
    }
}

impl FileLock {
    /// `None` if somebody else has it.
    fn try_acquire(
        data_dir: &Path,
        name: &str,
        holder: &Holder,
    ) -> Result<Option<Self>, CatalogError> {
        let path = lock_path(data_dir, name);
        let mut file = open_lock_file(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => {
                return Err(CatalogError::io("lock", path)(source));
            }
        }
        // A full disk must not prevent a lock that the kernel has granted.
        if let Err(error) = write_holder(&mut file, holder) {
            tracing::warn!(path = %path.display(), %error, "cannot write who holds the load lock");
        }
        Ok(Some(Self(file)))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The name goes before the lock does, so that no process reads of a holder that has ended. Failing
        // is harmless: the next holder overwrites it. The file itself stays: were it removed, two
        // processes could hold locks on two files of one name.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

fn lock_name(database: &str, table: &str) -> String {
    format!("{}.{}", path_name(database), path_name(table))
}

fn lock_path(data_dir: &Path, name: &str) -> PathBuf {
    data_dir.join("locks").join(format!("{name}.lock"))
}

/// Opens a lock file for reading and writing, and makes it and its directory if need be.
pub(crate) fn open_lock_file(path: &Path) -> Result<File, CatalogError> {
    if let Some(directory) = path.parent() {
        make_directories(directory).map_err(CatalogError::io("make directory", directory))?;
    }
    writable_file()
        .read(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(CatalogError::io("open lock file", path))
}

fn write_holder(file: &mut File, holder: &Holder) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(serde_json::to_string(holder)?.as_bytes())
}

/// Who holds a lock that we could not take. The holder writes its name just after it gets the lock,
/// so a file that is still empty is worth a few short looks.
fn read_holder(path: &Path) -> Holder {
    for _ in 0..5 {
        let written = fs::read_to_string(path).ok();
        if let Some(holder) = written.and_then(|text| serde_json::from_str(&text).ok()) {
            return holder;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Holder::nameless()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = LoadLock::acquire(dir.path(), "Demo", "Object", "loading a.csv").unwrap();
        let error = LoadLock::acquire(dir.path(), "demo", "OBJECT", "loading b.csv").unwrap_err();
        let sentence = error.to_string();
        let pid = std::process::id();
        assert!(
            sentence.contains(&format!("process {pid} on ")),
            "{sentence}"
        );
        assert!(sentence.contains("(loading a.csv, since "), "{sentence}");
        drop(first);
        LoadLock::acquire(dir.path(), "demo", "Object", "loading b.csv").unwrap();
    }

    #[test]
    fn other_tables_are_free() {
        let dir = tempfile::tempdir().unwrap();
        let _object = LoadLock::acquire(dir.path(), "demo", "Object", "x").unwrap();
        LoadLock::acquire(dir.path(), "demo", "Source", "x").unwrap();
        LoadLock::acquire(dir.path(), "demo.Object", "", "x").unwrap();
    }

    #[test]
    fn a_holder_without_a_name_is_still_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = lock_path(dir.path(), &lock_name("demo", "Object"));
        let file = open_lock_file(&path).unwrap();
        file.try_lock().unwrap();
        let error = LoadLock::acquire(dir.path(), "demo", "Object", "x").unwrap_err();
        assert_eq!(
            error.to_string(),
            "table demo.Object is being loaded by another process that has only just begun: \
             wait until that load has ended, or stop it"
        );
    }
}
