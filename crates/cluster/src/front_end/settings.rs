//! What a cluster remembers beyond the lives of its processes: `cluster.json` in the data directory of the archive.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::ClusterError;

const FILE: &str = "cluster.json";

/// The settings of a cluster.
#[derive(Debug)]
pub(crate) struct Settings {
    path: PathBuf,
    archive: String,
    draining: Mutex<HashSet<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
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

    /// The archive, by a number that no other has.
    pub fn archive(&self) -> &str {
        &self.archive
    }

    /// The workers that shall give everything up.
    pub fn draining(&self) -> HashSet<String> {
        self.lock().clone()
    }

    /// Has a worker give everything up, or take its share again.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn drain(&self, worker: &str, drains: bool) -> Result<(), ClusterError> {
        let mut draining = self.lock();
        let mut next = draining.clone();
        match drains {
            true => next.insert(worker.to_owned()),
            false => next.remove(worker),
        };
        let content = Content {
            archive: self.archive.clone(),
            draining: next,
        };
        write(&self.path, &content)?;
        *draining = content.draining;
        Ok(())
    }

    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.draining.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(path: &Path, content: &Content) -> Result<(), ClusterError> {
    let written = || -> std::io::Result<()> {
        let temporary = path.with_extension("json.new");
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
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Settings::open(dir.path()).is_err());
    }
}
