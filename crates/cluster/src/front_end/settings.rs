//! What a cluster remembers beyond the lives of its processes: `cluster.json` in the data directory of the archive.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::lock;
use crate::ClusterError;

const FILE: &str = "cluster.json";
/// The file that is locked by the front end of a cluster whose catalog is in SQLite.
const LOCK_FILE: &str = "cluster.lock";

/// The settings of a cluster.
#[derive(Debug)]
pub(crate) struct Settings {
    path: PathBuf,
    archive: String,
    draining: Mutex<HashSet<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// A number that no other archive has, in hexadecimal digits.
    archive: String,
    /// The workers that shall give everything up.
    #[serde(default)]
    draining: HashSet<String>,
}

impl Settings {
    /// Reads the settings, or makes them.
    ///
    /// # Errors
    /// They can be neither read nor written.
    pub fn open(data_dir: &Path) -> Result<Self, ClusterError> {
        let path = data_dir.join(FILE);
        let content = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| failed(&path, format!("it cannot be read: {error}")))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let content = Content {
                    archive: format!("{:016x}{:016x}", crate::random()?, crate::random()?),
                    draining: HashSet::new(),
                };
                write(&path, &content)?;
                content
            }
            Err(error) => return Err(failed(&path, error.to_string())),
        };
        Ok(Self {
            path,
            archive: content.archive,
            draining: Mutex::new(content.draining),
        })
    }

    /// Takes the archive for the one that all front ends of the directory know, with what drains there.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn join(&mut self, archive: &str, draining: HashSet<String>) -> Result<(), ClusterError> {
        archive.clone_into(&mut self.archive);
        self.set_draining(draining);
        self.write_down()
    }

    /// The archive, by a number that no other has.
    pub fn archive(&self) -> &str {
        &self.archive
    }

    /// The workers that shall give everything up.
    pub fn draining(&self) -> HashSet<String> {
        lock(&self.draining).clone()
    }

    /// Has a worker give everything up, or take its share again.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn drain(&self, worker: &str, drains: bool) -> Result<(), ClusterError> {
        let mut draining = lock(&self.draining);
        let mut next = draining.clone();
        match drains {
            true => next.insert(worker.to_owned()),
            false => next.remove(worker),
        };
        let content = self.content(next);
        write(&self.path, &content)?;
        *draining = content.draining;
        Ok(())
    }

    /// Takes over what drains as all front ends of the directory know it.
    pub fn set_draining(&self, draining: HashSet<String>) {
        *lock(&self.draining) = draining;
    }

    /// Writes down what is known, unless the file says so already.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn write_down(&self) -> Result<(), ClusterError> {
        let content = self.content(self.draining());
        let there = fs::read(&self.path).ok();
        let there = there.and_then(|bytes| serde_json::from_slice::<Content>(&bytes).ok());
        match there == Some(content.clone()) {
            true => Ok(()),
            false => write(&self.path, &content),
        }
    }

    fn content(&self, draining: HashSet<String>) -> Content {
        Content {
            archive: self.archive.clone(),
            draining,
        }
    }
}

fn write(path: &Path, content: &Content) -> Result<(), ClusterError> {
    let written = || -> std::io::Result<()> {
        // Front ends on other machines may write it, too.
        let temporary = path.with_extension(format!("json.{:x}.new", std::process::id()));
        let mut file = catalog::writable_file()
            .create(true)
            .truncate(true)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(content)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    written().map_err(|error| failed(path, format!("it cannot be written: {error}")))
}

/// Sees that no other front end tells workers what to hold, as long as the file is open.
///
/// # Errors
/// There is one, or the file cannot be made.
pub(super) fn lock_alone(data_dir: &Path) -> Result<File, ClusterError> {
    let path = data_dir.join(LOCK_FILE);
    let made = catalog::writable_file().create(true).open(&path);
    let file = made.map_err(|error| failed(&path, format!("it cannot be made: {error}")))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(ClusterError::Shared(format!(
            "another server is the front end of the cluster of {}: several share the workers if the catalog is in PostgreSQL (`meridian catalog copy`)",
            data_dir.display()
        ))),
        // A file system without locks has one machine's processes alone.
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "it is not seen to that there is one front end alone");
            Ok(file)
        }
        Ok(()) => Ok(file),
    }
}

fn failed(path: &Path, why: String) -> ClusterError {
    ClusterError::Directory {
        path: path.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let first = Settings::open(dir.path()).unwrap();
        first.drain("w1", true).unwrap();
        first.drain("w2", true).unwrap();
        first.drain("w1", false).unwrap();
        let second = Settings::open(dir.path()).unwrap();
        assert_eq!(second.archive(), first.archive());
        assert_eq!(second.draining(), HashSet::from(["w2".to_owned()]));
        second.set_draining(HashSet::from(["w3".to_owned()]));
        second.write_down().unwrap();
        let third = Settings::open(dir.path()).unwrap();
        assert_eq!(third.draining(), HashSet::from(["w3".to_owned()]));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Settings::open(dir.path()).is_err());
    }
    #[test]
    fn one_front_end_alone_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock_alone(dir.path()).unwrap();
        let second = lock_alone(dir.path()).unwrap_err().to_string();
        assert!(
            second.contains("another server is the front end"),
            "{second}"
        );
        drop(first);
        lock_alone(dir.path()).unwrap();
    }
}
