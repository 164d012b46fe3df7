//! Snapshots: what each has, and which there are.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::copy::Content;
use crate::{BackupError, Result};

/// The version of the form of `snapshot.json`.
const FORMAT: u32 = 1;
/// What a snapshot says of itself.
pub(crate) const FILE: &str = "snapshot.json";
/// Where snapshots are in a place.
pub(crate) const DIRECTORY: &str = "snapshots";
/// Where files of parts are in a place, and in a data directory.
pub(crate) const TABLES: &str = "tables";

/// What a place of backups has of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    format: u32,
    /// When it was taken: UTC, ISO 8601.
    pub taken_at: String,
    /// The version of the program that took it.
    pub program: String,
    /// The data directory that it is of: random digits; none if an older program took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Its tables.
    pub tables: u64,
    /// Their rows.
    pub rows: u64,
    /// Files of parts, by their paths in the data directory.
    pub parts: Vec<SnapshotFile>,
    /// Files that the snapshot has alone: the catalog, and what changes.
    pub own: Vec<SnapshotFile>,
    #[serde(skip)]
    name: String,
}

/// A file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// Its path in the data directory.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its checksum: XXH3, 64 bits, in hexadecimal digits.
    pub checksum: String,
    /// Who may read and write it, where that is not as of other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

impl SnapshotFile {
    pub(crate) fn new(path: PathBuf, content: Content) -> Self {
        Self {
            path,
            bytes: content.bytes,
            checksum: checksum_text(content),
            mode: None,
        }
    }

    /// Whether a file has what this one had.
    pub(crate) fn has(&self, content: Content) -> bool {
        self.bytes == content.bytes && self.checksum == checksum_text(content)
    }
}

/// The snapshots of a place.
#[derive(Debug, Default)]
pub struct SnapshotList {
    /// Those that can be read, the oldest first.
    pub readable: Vec<Snapshot>,
    /// Those whose `snapshot.json` cannot be read, the oldest first. Nothing is known of which files they have.
    pub damaged: Vec<DamagedSnapshot>,
}

/// A snapshot of which nothing but the name is known.
#[derive(Debug)]
pub struct DamagedSnapshot {
    /// Its name.
    pub name: String,
    /// Why it cannot be read.
    pub error: BackupError,
}

impl SnapshotList {
    pub(crate) fn add(&mut self, name: &str, read: Result<Snapshot>) {
        match read {
            Ok(snapshot) => self.readable.push(snapshot),
            Err(error) => self.damaged.push(DamagedSnapshot {
                name: name.to_owned(),
                error,
            }),
        }
    }

    /// The names of all, the oldest first.
    pub(crate) fn names(&self) -> Vec<&str> {
        let readable = self.readable.iter().map(Snapshot::name);
        let damaged = self.damaged.iter().map(|it| it.name.as_str());
        let mut names: Vec<&str> = readable.chain(damaged).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.damaged.is_empty()
    }
}

/// A checksum as it is written.
pub(crate) fn checksum_text(content: Content) -> String {
    format!("{:016x}", content.checksum)
}

impl Snapshot {
    pub(crate) fn new(taken_at: String) -> Self {
        Self {
            format: FORMAT,
            name: name_of(&taken_at),
            taken_at,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            archive: None,
            tables: 0,
            rows: 0,
            parts: Vec::new(),
            own: Vec::new(),
        }
    }

    /// Its name, by which it is restored: the time at which it was taken, as `20261126T100000Z`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        let files = self.parts.iter().chain(&self.own);
        files.map(|file| file.bytes).sum()
    }

    /// What it has, as a text. `path` is where that goes.
    pub(crate) fn text(&self, path: &Path) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|error| BackupError::BadSnapshot {
            path: path.to_owned(),
            why: error.to_string(),
        })
    }

    /// Reads the text of a snapshot of the name, which is at `path`.
    pub(crate) fn parse(text: &[u8], name: &str, path: &Path) -> Result<Self> {
        let read: std::result::Result<Self, _> = serde_json::from_slice(text);
        let bad = |why: String| BackupError::BadSnapshot {
            path: path.to_owned(),
            why,
        };
        let snapshot = read.map_err(|error| bad(error.to_string()))?;
        if snapshot.format != FORMAT {
            let why = format!("its form has version {}", snapshot.format);
            return Err(bad(why));
        }
        let stays_within = |file: &SnapshotFile| {
            let mut parts = file.path.components();
            parts.all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let mut files = snapshot.parts.iter().chain(&snapshot.own);
        if let Some(file) = files.find(|file| !stays_within(file)) {
            return Err(bad(format!("{} is no path in it", file.path.display())));
        }
        Ok(Self {
            name: name.to_owned(),
            ..snapshot
        })
    }
}

/// Whether a name is one of a snapshot: a time.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_digit())
}

/// The name of a snapshot that is taken at a time.
pub(crate) fn name_of(taken_at: &str) -> String {
    taken_at.replace(['-', ':'], "")
}
