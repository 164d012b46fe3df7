//! Of which data directory a backup is, so that one place has backups of one.
//!
//! ```text
//! DIR/backup.history    {"archive":"16 random bytes in hexadecimal digits","restored_from":{"archive":"...","backup":"20261126T100000Z"}}
//! ```
//!
//! The first backup of a directory writes the file, and each snapshot has the digits. No snapshot has the file: a directory that is restored
//! gets one of its own, with the snapshot that it comes from. A backup may follow one of the same directory, or the one from which its
//! directory was restored; so as soon as one of two directories goes on in a place, the other one may not.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::snapshot::Snapshot;
use crate::{BackupError, Result};

/// The file, in a data directory.
pub(crate) const HISTORY_FILE: &str = "backup.history";

/// Which data directory this is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct History {
    pub archive: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restored_from: Option<Origin>,
}

/// The snapshot from which a directory was restored.
#[derive(Debug, Serialize, Deserialize)]
struct Origin {
    /// The directory that it is of; none if an older program took it.
    archive: Option<String>,
    backup: String,
}

impl History {
    /// That of a data directory, which begins now if there is none.
    pub fn of(data_dir: &Path) -> Result<Self> {
        let path = data_dir.join(HISTORY_FILE);
        if !path.exists() {
            let temporary = write(data_dir, None)?;
            // Another backup may have begun one meanwhile: the first one counts.
            let linked = fs::hard_link(&temporary, &path);
            let removed = fs::remove_file(&temporary);
            match linked {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(BackupError::io("write", &path)(error));
                }
                _ => removed.map_err(BackupError::io("remove", &temporary))?,
            }
        }
        let text = fs::read(&path).map_err(BackupError::io("read", &path))?;
        let read = serde_json::from_slice(&text).map_err(std::io::Error::from);
        read.map_err(BackupError::io("read", &path))
    }

    /// Begins that of a directory that is restored.
    pub fn begin_restored(data_dir: &Path, snapshot: &Snapshot) -> Result<()> {
        let origin = Origin {
            archive: snapshot.archive.clone(),
            backup: snapshot.name().to_owned(),
        };
        let temporary = write(data_dir, Some(origin))?;
        let path = data_dir.join(HISTORY_FILE);
        fs::rename(&temporary, &path).map_err(BackupError::io("write", &path))
    }

    /// Whether a backup of the directory may be the next one in a place whose newest one this is.
    pub fn may_follow(&self, newest: &Snapshot) -> bool {
        let Some(archive) = &newest.archive else {
            // An older program took it, which did not tell directories apart.
            return true;
        };
        let comes_from = |origin: &Origin| {
            origin.archive.as_ref() == Some(archive) && origin.backup == newest.name()
        };
        self.archive == *archive || self.restored_from.as_ref().is_some_and(comes_from)
    }
}

/// Writes a new one under a name of its own, on the disk.
fn write(data_dir: &Path, restored_from: Option<Origin>) -> Result<PathBuf> {
    let mut random = [0; 16];
    let path = data_dir.join(HISTORY_FILE);
    let failed = |error| BackupError::io("write", &path)(error);
    getrandom::fill(&mut random).map_err(|error| failed(std::io::Error::other(error)))?;
    let history = History {
        archive: format!("{:032x}", u128::from_le_bytes(random)),
        restored_from,
    };
    let text = serde_json::to_vec(&history).map_err(|error| failed(error.into()))?;
    let temporary = data_dir.join(format!("{HISTORY_FILE}.{}.tmp", history.archive));
    let written = catalog::writable_file()
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
    written.map_err(BackupError::io("write", &temporary))?;
    Ok(temporary)
}
