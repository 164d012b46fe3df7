//! Taking a backup.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::{CATALOG_FILE, Catalog, copy_catalog, copy_database, utc_text};
use store::{LoadDir, MANIFEST_FILE};

use crate::copy::{content_of, copy_file, files_below, make_dir, remove_all};
use crate::history::History;
use crate::part_files::{HeldPart, PartFile};
use crate::place::{Place, Target};
use crate::snapshot::{DamagedSnapshot, Snapshot, SnapshotFile, SnapshotList, name_of};
use crate::{BackupError, Result};

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
pub struct BackupProgress {
    /// Files that are there.
    pub files: u64,
    /// All files.
    pub of: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// What a backup did.
#[derive(Debug)]
pub struct BackupReport {
    /// What there is now.
    pub snapshot: Snapshot,
    /// Files of parts that were copied.
    pub copied_files: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Older snapshots that were removed.
    pub removed: Vec<String>,
    /// Older snapshots that cannot be read, and stay, with all files.
    pub damaged: Vec<DamagedSnapshot>,
}

/// Takes a backup of a data directory into a place, and keeps so many, the oldest of which go.
///
/// # Errors
/// Something cannot be read or written. What was copied until then is of use to the next backup.
pub async fn take(
    data_dir: &Path,
    place: &Place,
    extras: &[Extra],
    keep: Option<usize>,
    mut tell: impl FnMut(BackupProgress),
) -> Result<BackupReport> {
    let source = Catalog::open(data_dir).await?;
    source.close().await;
    let target = place.begin(data_dir).await?;
    let taking = Box::pin(take_into(&target, data_dir, extras, keep, &mut tell));
    let taken = tokio::select! {
        taken = taking => taken,
        () = target.cancelled() => Err(BackupError::Cancelled),
    };
    target.end().await;
    taken
}

async fn take_into(
    target: &Target<'_>,
    data_dir: &Path,
    extras: &[Extra],
    keep: Option<usize>,
    tell: &mut impl FnMut(BackupProgress),
) -> Result<BackupReport> {
    let before = target.place().snapshots().await?;
    let unfinished = target.unfinished();
    let mut snapshot = Snapshot::new(next_time(&before));
    let parts = hold_parts(data_dir, &unfinished, &mut snapshot).await?;
    let known: HashMap<&PathBuf, &SnapshotFile> = { before.readable.iter() }
        .flat_map(|snapshot| &snapshot.parts)
        .map(|file| (&file.path, file))
        .collect();
    let first_manifest = { parts.iter() }
        .filter(|part| part.has_manifest())
        .map(|part| part.load)
        .min();
    let mut wanted = Vec::new();
    for part in &parts {
        // Parts of old versions have none: where a part or an earlier backup of it has one, so have the later parts.
        let needs_manifest = first_manifest.is_some_and(|first| first < part.load)
            || known.contains_key(&part.within.join(MANIFEST_FILE));
        let files = part.files(needs_manifest)?;
        check_history(data_dir, target.place().name(), part, &files, &known)?;
        wanted.extend(files);
    }
    let history = History::of(data_dir)?;
    if let Some(newest) = before.readable.last()
        && !history.may_follow(newest)
    {
        return Err(BackupError::OtherDirectory {
            backup: newest.name().to_owned(),
            place: target.place().name().to_owned(),
            dir: data_dir.to_owned(),
        });
    }
    snapshot.archive = Some(history.archive);
    let copying = target.copy_parts(wanted, &known, &mut snapshot.parts, tell);
    let (copied_files, copied_bytes) = Box::pin(copying).await?;
    drop(parts);
    let catalog = unfinished.join(CATALOG_FILE);
    let content = content_of(&catalog)?;
    let mut own = vec![SnapshotFile::new(CATALOG_FILE.into(), content)];
    for extra in extras {
        own.push(copy_extra(data_dir, &unfinished, extra).await?);
    }
    snapshot.own = own;
    target.publish(&snapshot).await?;
    let removed = match keep {
        Some(keep) => target.remove_oldest(keep).await?,
        None => vec![],
    };
    Ok(BackupReport {
        snapshot,
        copied_files,
        copied_bytes,
        removed,
        damaged: before.damaged,
    })
}

/// Now, or the second after the last snapshot: their names are in order. One that cannot be read keeps its name.
fn next_time(before: &SnapshotList) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut seconds = now.unwrap_or(Duration::ZERO).as_secs();
    let last = { before.readable.last() }.map(|snapshot| snapshot.taken_at.as_str());
    let is_taken = |time: &str| {
        last.is_some_and(|last| last >= time)
            || before.damaged.iter().any(|it| it.name == name_of(time))
    };
    while is_taken(&utc_text(seconds)) {
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
                let dir = LoadDir::open(data_dir, &database.name, &table.spec.name, part.load)?;
                let within = dir.path().strip_prefix(data_dir);
                held.push(HeldPart {
                    within: within.unwrap_or(dir.path()).to_owned(),
                    dir,
                    load: part.load,
                    kind: table.spec.kind,
                    chunks: listed.chunks(part.load).await?,
                });
            }
        }
    }
    Ok(held)
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
    files: &[PartFile],
    known: &HashMap<&PathBuf, &SnapshotFile>,
) -> Result<()> {
    let is_other = || BackupError::OtherHistory {
        within: part.within.clone(),
        place: place.to_owned(),
        dir: data_dir.to_owned(),
    };
    for file in files {
        // The manifest has the checksums of the others. Parts of old versions have none.
        let is_compared = !part.has_manifest() || file.within.ends_with(MANIFEST_FILE);
        if !is_compared || !file.from.is_file() {
            continue;
        }
        if let Some(there) = known.get(&file.within)
            && !there.has(content_of(&file.from)?)
        {
            return Err(is_other());
        }
    }
    Ok(())
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
    let permissions = mode.permissions();
    let mode = permissions.mode() & 0o777;
    fs::set_permissions(&to, permissions).map_err(BackupError::io("write", &to))?;
    Ok(SnapshotFile {
        mode: Some(mode),
        ..SnapshotFile::new(extra.path.clone(), content)
    })
}
