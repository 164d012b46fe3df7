//! Restoring a backup.

use std::fs;
use std::path::Path;

use catalog::CATALOG_FILE;

use crate::copy::{content_of, copy_file, make_dir, sync};
use crate::snapshot::{Snapshot, SnapshotFile, snapshots};
use crate::take::Copied;
use crate::{BackupError, Result};

/// What a directory has in it as long as it is being restored: the name of the snapshot.
const MARKER: &str = "restore.unfinished";

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Files that were there from an attempt before.
    pub kept: u64,
}

/// Makes a data directory as it was: by default that of the newest snapshot. Every file is compared with its checksum.
///
/// # Errors
/// There is no such snapshot, one of its files is damaged, or the directory has something in it. What an attempt that was ended has left
/// is completed by the next one.
pub fn restore(
    place: &Path,
    name: Option<&str>,
    data_dir: &Path,
    mut tell: impl FnMut(Copied),
) -> Result<Restored> {
    let snapshot = find(place, name)?;
    begin(data_dir, snapshot.name())?;
    let mut told = Copied {
        files: 0,
        of: (snapshot.parts.len() + snapshot.own.len()) as u64,
        bytes: 0,
    };
    let mut kept = 0;
    let own = snapshot.dir(place);
    let files = { snapshot.parts.iter() }.map(|file| (place.join(&file.path), file));
    // The catalog is the first of the snapshot's own files, and comes last.
    let own = { snapshot.own.iter().rev() }.map(|file| (own.join(&file.path), file));
    for (from, file) in files.chain(own) {
        let to = data_dir.join(&file.path);
        if file.path == Path::new(CATALOG_FILE) {
            // Whoever finds a catalog finds all that it lists.
            sync(data_dir)?;
        }
        match is_there(&to, file)? {
            true => kept += 1,
            false => {
                told.bytes += file.bytes;
                copy(&from, &to, file)?;
            }
        }
        told.files += 1;
        tell(told);
    }
    sync(data_dir)?;
    let marker = data_dir.join(MARKER);
    fs::remove_file(&marker).map_err(BackupError::io("remove", &marker))?;
    Ok(Restored { snapshot, kept })
}

fn find(place: &Path, name: Option<&str>) -> Result<Snapshot> {
    let mut all = snapshots(place)?;
    let names: Vec<String> = all.iter().map(|it| it.name().to_owned()).collect();
    let newest = all.pop().ok_or_else(|| BackupError::Empty {
        place: place.to_owned(),
    })?;
    let Some(name) = name else {
        return Ok(newest);
    };
    all.push(newest);
    let is_meant = |snapshot: &Snapshot| [snapshot.name(), &snapshot.taken_at].contains(&name);
    let found = all.into_iter().find(is_meant);
    found.ok_or_else(|| BackupError::NoSnapshot {
        place: place.to_owned(),
        name: name.to_owned(),
        names,
    })
}

/// Makes the directory, which must be new or one in which the same snapshot was being restored.
fn begin(data_dir: &Path, name: &str) -> Result<()> {
    let marker = data_dir.join(MARKER);
    if fs::read_to_string(&marker).is_ok_and(|begun| begun == name) {
        return Ok(());
    }
    let is_empty = match fs::read_dir(data_dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_empty {
        return Err(BackupError::NotEmpty {
            dir: data_dir.to_owned(),
        });
    }
    make_dir(data_dir)?;
    fs::write(&marker, name).map_err(BackupError::io("write", &marker))
}

/// Whether a file is there already, whole.
fn is_there(path: &Path, file: &SnapshotFile) -> Result<bool> {
    Ok(path.is_file() && file.has(content_of(path)?))
}

fn copy(from: &Path, to: &Path, file: &SnapshotFile) -> Result<()> {
    if let Some(dir) = to.parent() {
        make_dir(dir)?;
        let readers_lock = dir.join("in_use.lock");
        let is_part = file
            .path
            .file_name()
            .is_some_and(|it| it == store::MANIFEST_FILE);
        if is_part {
            let made = catalog::writable_file()
                .create(true)
                .truncate(false)
                .open(&readers_lock);
            made.map_err(BackupError::io("write", &readers_lock))?;
        }
    }
    copy_file(from, to, |content| match file.has(content) {
        true => Ok(()),
        false => Err(BackupError::Damaged {
            path: from.to_owned(),
        }),
    })?;
    let mode = fs::metadata(from).map_err(BackupError::io("read", from))?;
    fs::set_permissions(to, mode.permissions()).map_err(BackupError::io("write", to))
}
