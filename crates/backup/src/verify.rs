//! Reading backups through, to see whether they are as they were written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use crate::copy::content_of;
use crate::directory::directory;
use crate::place::{Place, Source};
use crate::restore::find;
use crate::snapshot::{DamagedSnapshot, Snapshot, SnapshotFile, SnapshotList};
use crate::take::BackupProgress;
use crate::{BackupError, Result};

/// Files that are read side by side, from where that is waited for.
const FILES_AHEAD: usize = 8;

/// What was found of backups.
#[derive(Debug)]
pub struct VerifyReport {
    /// The names of the backups that were read, the oldest first.
    pub backups: Vec<String>,
    /// Their files.
    pub files: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// The backups of which it cannot be read which files they have.
    pub unreadable: Vec<DamagedSnapshot>,
    /// The files that are not what was backed up, by their names.
    pub damaged: Vec<DamagedFile>,
}

/// A file of a place that is not what was backed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedFile {
    /// Where it is.
    pub path: PathBuf,
    /// The names of the backups that have it.
    pub backups: Vec<String>,
}

/// A file as one or several backups have it.
#[derive(Clone)]
struct BackedUpFile {
    file: SnapshotFile,
    /// The backup that has it alone.
    owner: Option<String>,
}

/// Reads all files of a backup, or of all in the place, and compares them with their checksums.
///
/// # Errors
/// There is no such backup, or the place cannot be read. What is wrong with files is in the report.
pub async fn verify(
    place: &Place,
    name: Option<&str>,
    mut tell: impl FnMut(BackupProgress),
) -> Result<VerifyReport> {
    let list = match name {
        Some(_) => SnapshotList {
            readable: vec![find(place, name).await?],
            damaged: vec![],
        },
        None => place.snapshots().await?,
    };
    if list.is_empty() {
        return Err(BackupError::Empty {
            place: place.name().to_owned(),
        });
    }
    let SnapshotList {
        readable: snapshots,
        damaged: unreadable,
    } = list;
    let source = place.source(&snapshots).await?;
    let wanted = files_of(&snapshots);
    let mut told = BackupProgress {
        files: 0,
        of: wanted.len() as u64,
        bytes: 0,
    };
    let mut report = VerifyReport {
        backups: snapshots.iter().map(|it| it.name().to_owned()).collect(),
        files: told.of,
        bytes: wanted.iter().map(|(wanted, _)| wanted.file.bytes).sum(),
        unreadable,
        damaged: Vec::new(),
    };
    let mut wanted = wanted.into_iter();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < FILES_AHEAD
            && let Some((file, backups)) = wanted.next()
        {
            let source = source.clone();
            under_way.spawn(async move {
                let path = source.name_of(&file);
                let is_whole = source.is_whole(&file).await;
                (file.file.bytes, path, is_whole, backups)
            });
        }
        let Some(read) = under_way.join_next().await else {
            break;
        };
        let read = read.map_err(std::io::Error::other);
        let (bytes, path, is_whole, backups) =
            read.map_err(BackupError::io("read", place.name()))?;
        if !is_whole? {
            report.damaged.push(DamagedFile { path, backups });
        }
        told.files += 1;
        told.bytes += bytes;
        tell(told);
    }
    report
        .damaged
        .sort_by(|one, other| one.path.cmp(&other.path));
    Ok(report)
}

/// By what files are the same: whose they are, their paths and checksums.
type FileKey<'a> = (Option<&'a str>, &'a Path, &'a str);

/// The files of snapshots, each once, with the names of those that have it.
fn files_of(snapshots: &[Snapshot]) -> Vec<(BackedUpFile, Vec<String>)> {
    let mut files: BTreeMap<FileKey<'_>, (BackedUpFile, Vec<String>)> = BTreeMap::new();
    for snapshot in snapshots {
        let name = snapshot.name();
        let parts = snapshot.parts.iter().map(|file| (file, None));
        let own = snapshot.own.iter().map(|file| (file, Some(name)));
        for (file, owner) in parts.chain(own) {
            let key = (owner, file.path.as_path(), file.checksum.as_str());
            let new = || {
                let file = BackedUpFile {
                    file: file.clone(),
                    owner: owner.map(str::to_owned),
                };
                (file, Vec::new())
            };
            files.entry(key).or_insert_with(new).1.push(name.to_owned());
        }
    }
    files.into_values().collect()
}

impl Source {
    fn name_of(&self, wanted: &BackedUpFile) -> PathBuf {
        let BackedUpFile { file, owner } = wanted;
        match self {
            Self::Directory(place) => match owner {
                Some(name) => directory(place).join(name).join(&file.path),
                None => place.join(&file.path),
            },
            Self::Bucket(bucket) => bucket.name_of(file, owner.as_deref()),
        }
    }

    /// Whether a file is there and what was backed up.
    async fn is_whole(&self, wanted: &BackedUpFile) -> Result<bool> {
        let BackedUpFile { file, owner } = wanted;
        match self {
            Self::Directory(_) => {
                let path = self.name_of(wanted);
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || {
                    content_of(&path).is_ok_and(|content| file.has(content))
                });
                let read = read.await.map_err(std::io::Error::other);
                read.map_err(BackupError::io("read", &self.name_of(wanted)))
            }
            Self::Bucket(bucket) => {
                let mut leave = |_: &[u8]| Ok(());
                let read = bucket.read(file, owner.as_deref(), &mut leave);
                match read.await {
                    Ok(()) => Ok(true),
                    Err(BackupError::Damaged { .. } | BackupError::MissingObject { .. }) => {
                        Ok(false)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}
