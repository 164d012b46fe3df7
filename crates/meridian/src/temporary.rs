//! The folder for the temporary files of this process: what sorts, groups and joins spill, rows on their way into tables, uploads.
//!
//! ```text
//!   DIR/lock              held while a folder is made or removed
//!   DIR/<process>-XXXX/   the files of a process; its file `lock` is locked as long as the process lives
//! ```
//! The kernel releases a lock however its process ends, so that the next process sees which folders nobody uses any more, and removes them.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use catalog::{catalog_place, make_directories, writable_file};
use tracing::warn;

use crate::failure::Failure;

/// The directory for temporary files in a data directory.
const TEMPORARY: &str = "tmp";
const LOCK_FILE: &str = "lock";

/// The folder, which is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    /// Where it is.
    directory: PathBuf,
    lock: Option<File>,
}

impl TemporaryFolder {
    /// Makes a folder in a directory, removes those that ended processes have left there, and has all temporary files of this process made
    /// in it.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn make(directory: &Path) -> Result<Self, Failure> {
        let made = Self::make_in(directory);
        let folder = made.map_err(|error| {
            Failure::new(format!(
                "temporary files cannot be written in {}: {error}; --temp-dir names another directory",
                directory.display()
            ))
        })?;
        if tempfile::env::override_temp_dir(&folder.path).is_err() {
            return Err(Failure::new(
                "this process has a folder for temporary files already",
            ));
        }
        Ok(folder)
    }

    /// The same in a data directory; `None`, and the system's folder is used, where this process may not write. What is no data directory
    /// stays as it is.
    pub fn of_data(data: &Path) -> Option<Self> {
        let is_one = catalog_place(data).is_ok();
        is_one.then(|| Self::make(&within(data)).ok()).flatten()
    }

    fn make_in(directory: &Path) -> io::Result<Self> {
        make_directories(directory)?;
        let directory = std::path::absolute(directory)?;
        let turn = open_lock(&directory)?;
        turn.lock()?;
        remove_abandoned(&directory)?;
        let prefix = format!("{}-", std::process::id());
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(&directory)?;
        let lock = open_lock(folder.path())?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Self {
            path: folder.keep(),
            directory,
            lock: Some(lock),
        })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let remove = || {
            let turn = open_lock(&self.directory)?;
            turn.lock()?;
            fs::remove_dir_all(&self.path)
        };
        // What is left is removed by the next process.
        if let Err(error) = remove() {
            warn!(folder = %self.path.display(), %error, "temporary files are not removed");
        }
        self.lock = None;
    }
}

/// The directory for temporary files in a data directory.
pub fn within(data: &Path) -> PathBuf {
    data.join(TEMPORARY)
}

/// Half of what the disk of a directory, or of the nearest one above it that is there, has free: what temporary files may take if nothing else
/// is said.
pub fn half_of_free(directory: &Path) -> Option<u64> {
    let absolute = std::path::absolute(directory).ok()?;
    let space = absolute
        .ancestors()
        .find_map(|it| rustix::fs::statvfs(it).ok())?;
    Some(space.f_bavail.saturating_mul(space.f_frsize) / 2)
}

fn open_lock(directory: &Path) -> io::Result<File> {
    let mut options = writable_file();
    options.create(true).truncate(false);
    options.open(directory.join(LOCK_FILE))
}

/// Removes the folders whose processes have ended. The directory is locked.
fn remove_abandoned(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || !is_ours(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let folder = entry.path();
        let is_abandoned = match open_lock(&folder).map(|lock| lock.try_lock()) {
            Ok(Ok(())) => true,
            Ok(Err(TryLockError::WouldBlock)) => false,
            Ok(Err(TryLockError::Error(error))) | Err(error) => {
                warn!(folder = %folder.display(), %error, "temporary files of another process are left");
                false
            }
        };
        if is_abandoned && let Err(error) = fs::remove_dir_all(&folder) {
            warn!(folder = %folder.display(), %error, "temporary files of a process that has ended are not removed");
        }
    }
    Ok(())
}

/// Whether a folder has a name as [`TemporaryFolder::make`] gives them: a directory that an operator names may hold others.
fn is_ours(name: &str) -> bool {
    let (process, rest) = name.split_once('-').unwrap_or_default();
    !rest.is_empty() && !process.is_empty() && process.bytes().all(|it| it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_ended_processes_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let living = TemporaryFolder::make_in(dir.path()).unwrap();
        fs::write(living.path.join("spilled"), "rows").unwrap();
        for (name, file) in [
            ("4711-left", "spilled"),
            ("99999-", "x"),
            ("mine", "kept"),
            ("a-b", "kept"),
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join(file), "rows").unwrap();
        }
        let second = TemporaryFolder::make_in(dir.path()).unwrap();
        assert!(living.path.join("spilled").exists() && second.path != living.path);
        assert!(!dir.path().join("4711-left").exists());
        for kept in ["99999-/x", "mine/kept", "a-b/kept"] {
            assert!(dir.path().join(kept).exists(), "{kept}");
        }
        let path = living.path.clone();
        drop(living);
        assert!(!path.exists() && second.path.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = TemporaryFolder::make(&dir.path().join("file")).unwrap_err();
        let told = error.sentence();
        assert!(
            told.contains("temporary files cannot be written in") && told.contains("--temp-dir"),
            "{told}"
        );
    }

    #[test]
    fn room_is_that_of_the_nearest_directory() {
        let dir = tempfile::tempdir().unwrap();
        let here = half_of_free(dir.path()).unwrap();
        assert!(here > 0 && half_of_free(&dir.path().join("not/there")).is_some());
    }
}
