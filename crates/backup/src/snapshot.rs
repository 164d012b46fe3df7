//! Snapshots: what each has, and which there are.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::copy::Content;
use crate::{BackupError, Result};

/// The version of the form of `snapshot.json`.
const FORMAT: u32 = 1;
const FILE: &str = "snapshot.json";
const DIRECTORY: &str = "snapshots";
/// What the directory of a snapshot is called before all its files are there.
const UNFINISHED: &str = "unfinished";

/// What a place of backups has of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    format: u32,
    /// When it was taken: UTC, ISO 8601.
    pub taken_at: String,
    /// The version of the program that took it.
    pub program: String,
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
}

impl SnapshotFile {
    pub(crate) fn new(path: PathBuf, content: Content) -> Self {
        Self {
            path,
            bytes: content.bytes,
            checksum: format!("{:016x}", content.checksum),
        }
    }

    /// Whether a file has what this one had.
    pub(crate) fn has(&self, content: Content) -> bool {
        self.bytes == content.bytes && self.checksum == format!("{:016x}", content.checksum)
    }
}

impl Snapshot {
    pub(crate) fn new(taken_at: String) -> Self {
        Self {
            format: FORMAT,
            name: name_of(&taken_at),
            taken_at,
            program: env!("CARGO_PKG_VERSION").to_owned(),
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

    /// Where the files are that the snapshot has alone.
    pub(crate) fn dir(&self, place: &Path) -> PathBuf {
        directory(place).join(&self.name)
    }

    /// Writes what it has into its directory, which is still the unfinished one.
    pub(crate) fn write(&self, place: &Path) -> Result<()> {
        let path = unfinished(place).join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(|error| BackupError::BadSnapshot {
            path: path.clone(),
            why: error.to_string(),
        })?;
        let written = catalog::writable_file()
            .create(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &text));
        written.map_err(BackupError::io("write", &path))
    }

    fn read(place: &Path, name: &str) -> Result<Self> {
        let path = directory(place).join(name).join(FILE);
        let text = fs::read(&path).map_err(BackupError::io("read", &path))?;
        let read: std::result::Result<Self, _> = serde_json::from_slice(&text);
        let bad = |why: String| BackupError::BadSnapshot {
            path: path.clone(),
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

fn name_of(taken_at: &str) -> String {
    taken_at.replace(['-', ':'], "")
}

pub(crate) fn directory(place: &Path) -> PathBuf {
    place.join(DIRECTORY)
}

/// Where a snapshot is put together.
pub(crate) fn unfinished(place: &Path) -> PathBuf {
    directory(place).join(UNFINISHED)
}

/// The snapshots of a place, the oldest first.
///
/// # Errors
/// The place cannot be read, or one of them is damaged.
pub fn snapshots(place: &Path) -> Result<Vec<Snapshot>> {
    let directory = directory(place);
    let mut names = Vec::new();
    match fs::read_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(BackupError::io("read", &directory)(error)),
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(BackupError::io("read", &directory))?;
                names.extend(entry.file_name().into_string());
            }
        }
    }
    // The names are times.
    names.retain(|name| name.starts_with(|first: char| first.is_ascii_digit()));
    names.sort();
    names
        .iter()
        .map(|name| Snapshot::read(place, name))
        .collect()
}
