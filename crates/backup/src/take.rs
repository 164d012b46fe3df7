//! Taking a backup.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::{CATALOG_FILE, Catalog, LoadId, copy_catalog, copy_database, utc_text};
use store::{LoadDir, MANIFEST_FILE};

use crate::copy::{content_of, copy_file, copy_from_workers, files_below, make_dir, sync};
use crate::snapshot::{Snapshot, SnapshotFile, directory, snapshots, unfinished};
use crate::{BackupError, Result};

const LOCK_FILE: &str = "backup.lock";
const TABLES: &str = "tables";
/// The file on which readers of a part hold a lock, which has no content.
const READERS_LOCK: &str = "in_use.lock";
/// How often parts are looked up anew that were replaced between being listed and being held.
const TRIES: usize = 20;

/// A file of the data directory that belongs to a backup besides the catalog and the parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extra {
    /// Its path in the data directory.
    pub path: PathBuf,
    /// Whether it is a database of SQLite's, which others may be writing.
    pub is_database: bool,
}

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Files that are there.
    pub files: u64,
    /// All files.
    pub of: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// What a backup did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What there is now.
    pub snapshot: Snapshot,
    /// Files of parts that were copied.
    pub copied_files: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Older snapshots that were removed.
    pub removed: Vec<String>,
}

/// A part whose files stay as long as this is held.
struct HeldPart {
    dir: LoadDir,
    /// Its directory from the data directory.
    within: PathBuf,
}

/// Takes a backup of a data directory into a place, and keeps so many, the oldest of which go.
///
/// # Errors
/// Something cannot be read or written. What was copied until then is of use to the next backup.
pub async fn take(
    data_dir: &Path,
    place: &Path,
    extras: &[Extra],
    keep: Option<usize>,
    mut tell: impl FnMut(Copied),
) -> Result<Taken> {
    let source = Catalog::open(data_dir).await?;
    source.close().await;
    check_place(data_dir, place)?;
    make_dir(&directory(place))?;
    let _lock = lock(place)?;
    let before = snapshots(place)?;
    let unfinished = unfinished(place);
    remove_all(&unfinished)?;
    make_dir(&unfinished)?;
    let mut snapshot = Snapshot::new(next_time(&before));
    let parts = hold_parts(data_dir, &unfinished, &mut snapshot).await?;
    let known: HashMap<&PathBuf, &SnapshotFile> = { before.iter() }
        .flat_map(|snapshot| &snapshot.parts)
        .map(|file| (&file.path, file))
        .collect();
    for part in &parts {
        check_history(data_dir, place, part, &known)?;
    }
    let copying = copy_parts(place, &parts, &known, &mut snapshot, &mut tell);
    let (copied_files, copied_bytes) = copying.await?;
    drop(parts);
    let catalog = unfinished.join(CATALOG_FILE);
    let content = content_of(&catalog)?;
    let mut own = vec![SnapshotFile::new(CATALOG_FILE.into(), content)];
    for extra in extras {
        own.push(copy_extra(data_dir, &unfinished, extra).await?);
    }
    snapshot.own = own;
    snapshot.write(place)?;
    sync(place)?;
    let finished = snapshot.dir(place);
    fs::rename(&unfinished, &finished).map_err(BackupError::io("write", &finished))?;
    sync(place)?;
    let removed = match keep {
        Some(keep) => remove_oldest(place, keep)?,
        None => vec![],
    };
    Ok(Taken {
        snapshot,
        copied_files,
        copied_bytes,
        removed,
    })
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

fn lock(place: &Path) -> Result<fs::File> {
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

/// Now, or the second after the last snapshot: their names are in order.
fn next_time(before: &[Snapshot]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut seconds = now.unwrap_or(Duration::ZERO).as_secs();
    let last = before.last().map(|snapshot| snapshot.taken_at.as_str());
    while last.is_some_and(|last| last >= utc_text(seconds).as_str()) {
        seconds += 1;
    }
    utc_text(seconds)
}

/// Copies the catalog, and holds the parts that the copy lists.
async fn hold_parts(
    data_dir: &Path,
    unfinished: &Path,
    snapshot: &mut Snapshot,
) -> Result<Vec<HeldPart>> {
    let mut tried = 0;
    loop {
        remove_all(unfinished)?;
        make_dir(unfinished)?;
        let copy = unfinished.join(CATALOG_FILE);
        copy_catalog(data_dir, &copy).await?;
        let listed = Catalog::open(unfinished).await?;
        let held = hold_listed(data_dir, &listed, snapshot).await;
        listed.close().await;
        leave_alone(unfinished, &copy)?;
        tried += 1;
        match held {
            // It was replaced meanwhile.
            Err(error) if error.is_missing() && tried < TRIES => {}
            other => return other,
        }
    }
}

async fn hold_listed(
    data_dir: &Path,
    listed: &Catalog,
    snapshot: &mut Snapshot,
) -> Result<Vec<HeldPart>> {
    (snapshot.tables, snapshot.rows) = (0, 0);
    let mut held = Vec::new();
    for database in listed.databases().await? {
        for table in listed.tables(&database.name).await? {
            snapshot.tables += 1;
            for part in &table.parts {
                snapshot.rows += part.rows;
                held.push(hold(data_dir, &database.name, &table.spec.name, part.load)?);
            }
        }
    }
    Ok(held)
}

fn hold(data_dir: &Path, database: &str, table: &str, load: LoadId) -> Result<HeldPart> {
    let dir = LoadDir::open(data_dir, database, table, load)?;
    let within = dir.path().strip_prefix(data_dir);
    let within = within.unwrap_or(dir.path()).to_owned();
    Ok(HeldPart { dir, within })
}

/// Removes what opening the copy of a catalog has made beside it.
fn leave_alone(dir: &Path, copy: &Path) -> Result<()> {
    for name in files_below(dir)? {
        let path = dir.join(name);
        if path != copy {
            fs::remove_file(&path).map_err(BackupError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Checks that a part that the place has is this one. Parts are numbered, and a restored directory goes on with numbers that another one
/// has given, too.
fn check_history(
    data_dir: &Path,
    place: &Path,
    part: &HeldPart,
    known: &HashMap<&PathBuf, &SnapshotFile>,
) -> Result<()> {
    let is_other = || BackupError::OtherHistory {
        within: part.within.clone(),
        place: place.to_owned(),
        dir: data_dir.to_owned(),
    };
    for name in files_below(part.dir.path())? {
        // The manifest has the checksums of the others. Parts of old versions have none.
        let has_manifest = part.dir.path().join(MANIFEST_FILE).is_file();
        if name.ends_with(READERS_LOCK) || has_manifest && !name.ends_with(MANIFEST_FILE) {
            continue;
        }
        if let Some(file) = known.get(&part.within.join(&name))
            && !file.has(content_of(&part.dir.path().join(&name))?)
        {
            return Err(is_other());
        }
    }
    Ok(())
}

/// Copies the files of parts that the place does not have.
async fn copy_parts(
    place: &Path,
    parts: &[HeldPart],
    known: &HashMap<&PathBuf, &SnapshotFile>,
    snapshot: &mut Snapshot,
    tell: &mut impl FnMut(Copied),
) -> Result<(u64, u64)> {
    let mut wanted = Vec::new();
    for part in parts {
        let names = names_of(part)?.into_iter();
        wanted.extend(names.map(|name| (part.dir.path().join(&name), part.within.join(&name))));
    }
    let mut told = Copied {
        files: 0,
        of: wanted.len() as u64,
        bytes: 0,
    };
    let mut copied = 0;
    for (from, within) in wanted {
        let to = place.join(&within);
        let there = fs::metadata(&to).ok().map(|metadata| metadata.len());
        // A file of an unfinished backup is in no list, and copied again.
        let file = match known.get(&within) {
            Some(&file) if there == Some(file.bytes) => file.clone(),
            _ => {
                if let Some(dir) = to.parent() {
                    make_dir(dir)?;
                }
                let content = match copy_file(&from, &to, |_| Ok(())) {
                    Err(BackupError::Io { source, .. })
                        if source.kind() == std::io::ErrorKind::NotFound =>
                    {
                        copy_from_workers(&from, &to).await?
                    }
                    copied => copied?,
                };
                copied += 1;
                told.bytes += content.bytes;
                SnapshotFile::new(within, content)
            }
        };
        snapshot.parts.push(file);
        told.files += 1;
        tell(told);
    }
    Ok((copied, told.bytes))
}

/// The files of a part, wherever they are.
fn names_of(part: &HeldPart) -> Result<BTreeSet<PathBuf>> {
    let name = |file| Some(part.dir.chunk_path(file).file_name()?.into());
    // Files may be given up and brought back meanwhile: each is in one of the three lists.
    let before = store::files_away(part.dir.path())?;
    let mut names: BTreeSet<PathBuf> = files_below(part.dir.path())?.into_iter().collect();
    let after = store::files_away(part.dir.path())?;
    names.extend(before.into_iter().chain(after).filter_map(name));
    names.retain(|name| !name.ends_with(READERS_LOCK));
    Ok(names)
}

async fn copy_extra(data_dir: &Path, unfinished: &Path, extra: &Extra) -> Result<SnapshotFile> {
    let (from, to) = (data_dir.join(&extra.path), unfinished.join(&extra.path));
    if let Some(dir) = to.parent() {
        make_dir(dir)?;
    }
    let content = match extra.is_database {
        true => {
            copy_database(&from, &to).await?;
            content_of(&to)?
        }
        false => copy_file(&from, &to, |_| Ok(()))?,
    };
    let mode = fs::metadata(&from).map_err(BackupError::io("read", &from))?;
    fs::set_permissions(&to, mode.permissions()).map_err(BackupError::io("write", &to))?;
    Ok(SnapshotFile::new(extra.path.clone(), content))
}

/// Removes all but the newest snapshots, and the files of parts that only those had.
fn remove_oldest(place: &Path, keep: usize) -> Result<Vec<String>> {
    let mut all = snapshots(place)?;
    let old: Vec<Snapshot> = all.drain(..all.len().saturating_sub(keep)).collect();
    for snapshot in &old {
        // It has no name before it has lost a file.
        let unfinished = unfinished(place);
        remove_all(&unfinished)?;
        let dir = snapshot.dir(place);
        fs::rename(&dir, &unfinished).map_err(BackupError::io("remove", &dir))?;
        remove_all(&unfinished)?;
    }
    sync(place)?;
    let wanted: BTreeSet<&PathBuf> = { all.iter() }
        .flat_map(|snapshot| &snapshot.parts)
        .map(|file| &file.path)
        .collect();
    let tables = place.join(TABLES);
    if tables.is_dir() {
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

/// Removes the directories above a file that have nothing in them any more.
fn remove_empty_above(path: &Path, until: &Path) {
    for dir in path.ancestors().skip(1) {
        // One that has something in it stays.
        if dir == until || fs::remove_dir(dir).is_err() {
            return;
        }
    }
}

fn remove_all(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BackupError::io("remove", dir)(error))
        }
        _ => Ok(()),
    }
}
