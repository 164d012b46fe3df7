//! Restoring a backup.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use catalog::{CATALOG_FILE, RESTORE_MARKER as MARKER};
use tokio::task::JoinSet;

use crate::copy::{
    all_files_below, content_of, copy_file, make_dir, remove_empty_above, sync, temporary,
};
use crate::directory::directory;
use crate::history::{HISTORY_FILE, History};
use crate::part_files::READERS_LOCK;
use crate::place::{Place, Source};
use crate::snapshot::{Snapshot, SnapshotFile, TABLES, name_of};
use crate::take::BackupProgress;
use crate::{BackupError, Result};

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
/// There is no such snapshot, one of its files is damaged, or the directory has something in it. Of a damaged one nothing is left; what an
/// attempt that ended otherwise has left is completed by the next one, or removed by that of another snapshot.
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
    let is_made = begin(place, &snapshot, data_dir).await?;
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
    if let Err(error) = restoring.run().await {
        // Nothing that a second attempt could complete: it is for another backup.
        if error.is_of_file_in(place.name()) {
            remove_restored(data_dir, &snapshot, is_made);
        }
        return Err(error);
    }
    let kept = restoring.kept;
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
    async fn run(&mut self) -> Result<()> {
        let mut under_way = JoinSet::new();
        let restored = self.parts(&mut under_way).await;
        // Where it failed, nothing is written any more.
        under_way.shutdown().await;
        restored?;
        History::begin_restored(self.data_dir, self.snapshot)?;
        // The catalog is the first of the snapshot's own files, and comes last.
        for file in self.snapshot.own.iter().rev() {
            if file.path == Path::new(CATALOG_FILE) {
                // Whoever finds a catalog finds all that it lists.
                sync(self.data_dir)?;
            }
            self.own(file).await?;
        }
        sync(self.data_dir)
    }

    /// Restores the files of parts.
    async fn parts(&mut self, under_way: &mut JoinSet<Result<u64>>) -> Result<()> {
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
                        self.fetched(under_way).await?;
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
            self.fetched(under_way).await?;
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

/// Makes the directory, which must be new or empty, or have nothing but what a restoration that was ended has left. Whether it is new.
async fn begin(place: &Place, snapshot: &Snapshot, data_dir: &Path) -> Result<bool> {
    let marker = data_dir.join(MARKER);
    let is_new = !data_dir.exists();
    match fs::read_to_string(&marker) {
        Ok(begun) if begun == snapshot.name() => return Ok(false),
        Ok(_) => remove_left(place, snapshot, data_dir).await?,
        Err(_) if is_new || is_empty(data_dir) => {}
        Err(_) => return Err(not_empty(data_dir)),
    }
    make_dir(data_dir)?;
    fs::write(&marker, snapshot.name()).map_err(BackupError::io("write", &marker))?;
    Ok(is_new)
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

fn not_empty(dir: &Path) -> BackupError {
    BackupError::NotEmpty {
        dir: dir.to_owned(),
    }
}

/// Removes what the restoration of another backup has left and this one does not have.
///
/// # Errors
/// Something else is there, and nothing is removed.
async fn remove_left(place: &Place, snapshot: &Snapshot, data_dir: &Path) -> Result<()> {
    let list = place.snapshots().await?;
    let known: HashSet<&Path> = list.readable.iter().flat_map(paths_of).collect();
    let wanted: HashSet<&Path> = paths_of(snapshot).collect();
    let parts: HashSet<&Path> = wanted.iter().filter_map(|path| path.parent()).collect();
    let mut unwanted = Vec::new();
    for path in all_files_below(data_dir)? {
        let is_temporary = path.extension().is_some_and(|it| it == "tmp");
        let stem = path.with_extension("");
        let is_lock = path.starts_with(TABLES) && path.ends_with(READERS_LOCK);
        let is_known = known.contains(if is_temporary { &*stem } else { &*path });
        let is_marker = path == Path::new(MARKER);
        let is_history = path.parent() == Some(Path::new(""))
            && path.to_string_lossy().starts_with(HISTORY_FILE);
        if !is_known && !is_lock && !is_marker && !is_history {
            return Err(not_empty(data_dir));
        }
        let stays = match is_lock {
            true => path.parent().is_some_and(|part| parts.contains(part)),
            // As long as it is being restored it has no catalog.
            false => wanted.contains(&*path) && path != Path::new(CATALOG_FILE),
        };
        if !stays && !is_marker {
            unwanted.push(path);
        }
    }
    unwanted.sort_by_key(|path| path != Path::new(CATALOG_FILE));
    for path in unwanted {
        let path = data_dir.join(path);
        fs::remove_file(&path).map_err(BackupError::io("remove", &path))?;
        remove_empty_above(&path, data_dir);
    }
    Ok(())
}

/// Removes what was restored of a backup that is damaged, as far as that is possible. What stays has the marker.
fn remove_restored(data_dir: &Path, snapshot: &Snapshot, is_made: bool) {
    for within in paths_of(snapshot) {
        let path = data_dir.join(within);
        let lock = path.with_file_name(READERS_LOCK);
        for path in [&temporary(&path), &lock, &path] {
            let _ = fs::remove_file(path);
        }
        remove_empty_above(&path, data_dir);
    }
    let _ = fs::remove_file(data_dir.join(HISTORY_FILE));
    let left = fs::read_dir(data_dir).map_or(usize::MAX, Iterator::count);
    if left == 1 && fs::remove_file(data_dir.join(MARKER)).is_ok() && is_made {
        let _ = fs::remove_dir(data_dir);
    }
}

fn paths_of(snapshot: &Snapshot) -> impl Iterator<Item = &Path> {
    let files = snapshot.parts.iter().chain(&snapshot.own);
    files.map(|file| file.path.as_path())
}

/// Whether a file is there already, whole.
fn is_there(path: &Path, file: &SnapshotFile) -> Result<bool> {
    Ok(path.is_file() && file.has(content_of(path)?))
}

/// Makes the directory of a file, and what a part has besides its files.
fn make_room(to: &Path, file: &SnapshotFile) -> Result<()> {
    if let Some(dir) = to.parent() {
        make_dir(dir)?;
        let readers_lock = dir.join(READERS_LOCK);
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
