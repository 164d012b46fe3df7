//! Places of backups that are directories.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::copy::{copy_part, files_below, make_dir, remove_all, remove_empty_above, sync};
use crate::part_files::PartFile;
use crate::snapshot::{DIRECTORY, FILE, Snapshot, SnapshotFile, SnapshotList, TABLES, is_name};
use crate::take::BackupProgress;
use crate::{BackupError, Result};

const LOCK_FILE: &str = "backup.lock";
/// What the directory of a snapshot is called before all its files are there.
const UNFINISHED: &str = "unfinished";

/// Where the snapshots of a place are.
pub(crate) fn directory(place: &Path) -> PathBuf {
    place.join(DIRECTORY)
}

/// Where a snapshot is put together.
pub(crate) fn unfinished(place: &Path) -> PathBuf {
    directory(place).join(UNFINISHED)
}

/// The snapshots of a place.
pub(crate) fn snapshots(place: &Path) -> Result<SnapshotList> {
    let directory = directory(place);
    let mut names = Vec::new();
    match fs::read_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(SnapshotList::default());
        }
        Err(error) => return Err(BackupError::io("read", &directory)(error)),
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(BackupError::io("read", &directory))?;
                names.extend(entry.file_name().into_string());
            }
        }
    }
    names.retain(|name| is_name(name));
    names.sort();
    let read = |name: &String| {
        let path = directory.join(name).join(FILE);
        let text = fs::read(&path).map_err(BackupError::io("read", &path))?;
        Snapshot::parse(&text, name, &path)
    };
    let mut list = SnapshotList::default();
    for name in &names {
        list.add(name, read(name));
    }
    Ok(list)
}

/// Makes a place, or takes one that is there, which nobody else changes as long as what this returns is held.
pub(crate) fn begin(data_dir: &Path, place: &Path) -> Result<File> {
    check_place(data_dir, place)?;
    make_dir(&directory(place))?;
    let lock = lock(place)?;
    let unfinished = unfinished(place);
    remove_all(&unfinished)?;
    make_dir(&unfinished)?;
    Ok(lock)
}

/// Makes a snapshot visible, whose own files are in the unfinished directory.
pub(crate) fn publish(place: &Path, snapshot: &Snapshot) -> Result<()> {
    let unfinished = unfinished(place);
    let path = unfinished.join(FILE);
    let text = snapshot.text(&path)?;
    let written = catalog::writable_file()
        .create(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| file.write_all(&text));
    written.map_err(BackupError::io("write", &path))?;
    sync(place)?;
    let finished = directory(place).join(snapshot.name());
    fs::rename(&unfinished, &finished).map_err(BackupError::io("write", &finished))?;
    sync(place)
}

/// Whether backups may go there.
fn check_place(data_dir: &Path, place: &Path) -> Result<()> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        fs::canonicalize(&path).unwrap_or(path)
    };
    let (dir, target) = (absolute(data_dir), absolute(place));
    if target.starts_with(&dir) || dir.starts_with(&target) {
        return Err(BackupError::Within {
            dir: data_dir.to_owned(),
            place: place.to_owned(),
        });
    }
    if directory(place).is_dir() {
        return Ok(());
    }
    let is_empty = match fs::read_dir(place) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(BackupError::io("read", place)(error)),
    };
    match is_empty {
        true => Ok(()),
        false => Err(BackupError::NotAPlace {
            place: place.to_owned(),
        }),
    }
}

fn lock(place: &Path) -> Result<File> {
    let path = place.join(LOCK_FILE);
    let lock = catalog::writable_file()
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(BackupError::io("write", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(BackupError::InUse {
            place: place.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(BackupError::io("lock", &path)(error)),
    }
}

/// Copies the files of parts that the place does not have.
pub(crate) async fn copy_parts(
    place: &Path,
    wanted: Vec<PartFile>,
    known: &HashMap<&PathBuf, &SnapshotFile>,
    files: &mut Vec<SnapshotFile>,
    tell: &mut impl FnMut(BackupProgress),
) -> Result<(u64, u64)> {
    let mut told = BackupProgress {
        files: 0,
        of: wanted.len() as u64,
        bytes: 0,
    };
    let mut copied = 0;
    for part_file in wanted {
        let to = place.join(&part_file.within);
        let there = fs::metadata(&to).ok().map(|metadata| metadata.len());
        // A file of an unfinished backup is in no list, and copied again; so is one that is not as long as it was.
        let file = match known.get(&part_file.within) {
            Some(&file) if there == Some(file.bytes) && file.bytes == part_file.bytes => {
                file.clone()
            }
            _ => {
                if let Some(dir) = to.parent() {
                    make_dir(dir)?;
                }
                let content = copy_part(&part_file, &to).await?;
                copied += 1;
                told.bytes += content.bytes;
                SnapshotFile::new(part_file.within, content)
            }
        };
        files.push(file);
        told.files += 1;
        tell(told);
    }
    Ok((copied, told.bytes))
}

/// Removes all but the newest snapshots, and the files of parts that only those had. A snapshot that cannot be read stays, and as long as there
/// is one, so do all files: it may have them.
pub(crate) fn remove_oldest(place: &Path, keep: usize) -> Result<Vec<String>> {
    let SnapshotList {
        readable: mut all,
        damaged,
    } = snapshots(place)?;
    let old: Vec<Snapshot> = all.drain(..all.len().saturating_sub(keep)).collect();
    for snapshot in &old {
        // It has no name before it has lost a file.
        let unfinished = unfinished(place);
        remove_all(&unfinished)?;
        let dir = directory(place).join(snapshot.name());
        fs::rename(&dir, &unfinished).map_err(BackupError::io("remove", &dir))?;
        remove_all(&unfinished)?;
    }
    sync(place)?;
    let wanted: BTreeSet<&PathBuf> = { all.iter() }
        .flat_map(|snapshot| &snapshot.parts)
        .map(|file| &file.path)
        .collect();
    let tables = place.join(TABLES);
    if tables.is_dir() && damaged.is_empty() {
        for name in files_below(&tables)? {
            let within = Path::new(TABLES).join(name);
            if !wanted.contains(&within) {
                let path = place.join(&within);
                fs::remove_file(&path).map_err(BackupError::io("remove", &path))?;
                remove_empty_above(&path, &tables);
            }
        }
    }
    Ok(old
        .iter()
        .map(|snapshot| snapshot.name().to_owned())
        .collect())
}
