//! Restoring a backup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use catalog::CATALOG_FILE;
use tokio::task::JoinSet;

use crate::copy::{content_of, copy_file, make_dir, sync};
use crate::directory::directory;
use crate::place::{Place, Source};
use crate::snapshot::{Snapshot, SnapshotFile, name_of};
use crate::take::BackupProgress;
use crate::{BackupError, Result};

/// What a directory has in it as long as it is being restored: the name of the snapshot.
const MARKER: &str = "restore.unfinished";

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Files that were there from an attempt before.
    pub kept: u64,
}

/// Files that are fetched side by side, from where that is waited for.
const FILES_AHEAD: usize = 8;

/// Makes a data directory as it was: by default that of the newest snapshot. Every file is compared with its checksum.
///
/// # Errors
/// There is no such snapshot, one of its files is damaged, or the directory has something in it. What an attempt that was ended has left
/// is completed by the next one.
pub async fn restore(
    place: &Place,
    name: Option<&str>,
    data_dir: &Path,
    mut tell: impl FnMut(BackupProgress),
) -> Result<RestoreReport> {
    let snapshot = find(place, name).await?;
    let source = place.source(std::slice::from_ref(&snapshot)).await?;
    if let Source::Bucket(bucket) = &source {
        bucket.check(&snapshot)?;
    }
    begin(data_dir, snapshot.name())?;
    let mut restoring = Restoration {
        source: &source,
        snapshot: &snapshot,
        data_dir,
        told: BackupProgress {
            files: 0,
            of: (snapshot.parts.len() + snapshot.own.len()) as u64,
            bytes: 0,
        },
        kept: 0,
        tell: &mut tell,
    };
    restoring.parts().await?;
    // The catalog is the first of the snapshot's own files, and comes last.
    for file in snapshot.own.iter().rev() {
        if file.path == Path::new(CATALOG_FILE) {
            // Whoever finds a catalog finds all that it lists.
            sync(data_dir)?;
        }
        restoring.own(file).await?;
    }
    let kept = restoring.kept;
    sync(data_dir)?;
    let marker = data_dir.join(MARKER);
    fs::remove_file(&marker).map_err(BackupError::io("remove", &marker))?;
    Ok(RestoreReport { snapshot, kept })
}

/// A restoration that is under way.
struct Restoration<'a, F> {
    source: &'a Source,
    snapshot: &'a Snapshot,
    data_dir: &'a Path,
    told: BackupProgress,
    /// Files that were there.
    kept: u64,
    tell: &'a mut F,
}

impl<F: FnMut(BackupProgress)> Restoration<'_, F> {
    /// Restores the files of parts.
    async fn parts(&mut self) -> Result<()> {
        let mut under_way = JoinSet::new();
        for file in &self.snapshot.parts {
            let to = self.data_dir.join(&file.path);
            if is_there(&to, file)? {
                self.kept += 1;
                self.count(None);
                continue;
            }
            make_room(&to, file)?;
            match self.source {
                Source::Directory(place) => {
                    copy(&place.join(&file.path), &to, file)?;
                    self.count(Some(file.bytes));
                }
                Source::Bucket(bucket) => {
                    if under_way.len() >= FILES_AHEAD {
                        self.fetched(&mut under_way).await?;
                    }
                    let (bucket, file) = (bucket.clone(), file.clone());
                    under_way.spawn(async move {
                        bucket.fetch(&file, None, &to).await?;
                        Ok(file.bytes)
                    });
                }
            }
        }
        while !under_way.is_empty() {
            self.fetched(&mut under_way).await?;
        }
        Ok(())
    }

    async fn fetched(&mut self, under_way: &mut JoinSet<Result<u64>>) -> Result<()> {
        if let Some(fetched) = under_way.join_next().await {
            let fetched = fetched.map_err(std::io::Error::other);
            let bytes = fetched.map_err(BackupError::io("restore", self.data_dir))??;
            self.count(Some(bytes));
        }
        Ok(())
    }

    /// Restores a file that the snapshot has alone.
    async fn own(&mut self, file: &SnapshotFile) -> Result<()> {
        let to = self.data_dir.join(&file.path);
        if is_there(&to, file)? {
            self.kept += 1;
            self.count(None);
            return Ok(());
        }
        make_room(&to, file)?;
        match self.source {
            Source::Directory(place) => {
                let own = directory(place).join(self.snapshot.name());
                copy(&own.join(&file.path), &to, file)?;
            }
            Source::Bucket(bucket) => {
                bucket.fetch(file, Some(self.snapshot.name()), &to).await?;
                if let Some(mode) = file.mode {
                    let permissions = fs::Permissions::from_mode(mode);
                    fs::set_permissions(&to, permissions).map_err(BackupError::io("write", &to))?;
                }
            }
        }
        self.count(Some(file.bytes));
        Ok(())
    }

    fn count(&mut self, copied: Option<u64>) {
        self.told.files += 1;
        self.told.bytes += copied.unwrap_or_default();
        (self.tell)(self.told);
    }
}

/// The snapshot of a name, or the newest one.
pub(crate) async fn find(place: &Place, name: Option<&str>) -> Result<Snapshot> {
    let all = place.snapshots().await?;
    let names: Vec<String> = { all.names().into_iter() }.map(str::to_owned).collect();
    let name = match (name, names.last()) {
        (Some(name), _) => name,
        // That the newest one cannot be read is told; an older one has to be named.
        (None, Some(newest)) => newest,
        (None, None) => {
            return Err(BackupError::Empty {
                place: place.name().to_owned(),
            });
        }
    };
    let is_meant = |snapshot: &Snapshot| [snapshot.name(), &snapshot.taken_at].contains(&name);
    if let Some(found) = all.readable.into_iter().find(is_meant) {
        return Ok(found);
    }
    let is_meant = |name_of_damaged: &str| [name, &name_of(name)].contains(&name_of_damaged);
    match { all.damaged.into_iter() }.find(|it| is_meant(&it.name)) {
        Some(damaged) => Err(damaged.error),
        None if names.is_empty() => Err(BackupError::Empty {
            place: place.name().to_owned(),
        }),
        None => Err(BackupError::NoSnapshot {
            place: place.name().to_owned(),
            name: name.to_owned(),
            names,
        }),
    }
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

/// Makes the directory of a file, and what a part has besides its files.
fn make_room(to: &Path, file: &SnapshotFile) -> Result<()> {
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
    Ok(())
}

fn copy(from: &Path, to: &Path, file: &SnapshotFile) -> Result<()> {
    copy_file(from, to, |content| match file.has(content) {
        true => Ok(()),
        false => Err(BackupError::Damaged {
            path: from.to_owned(),
        }),
    })?;
    let mode = fs::metadata(from).map_err(BackupError::io("read", from))?;
    fs::set_permissions(to, mode.permissions()).map_err(BackupError::io("write", to))
}
