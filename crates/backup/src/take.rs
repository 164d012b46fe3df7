//! Taking a backup.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::{CATALOG_FILE, Catalog, LoadId, copy_catalog, copy_database, utc_text};
use store::{LoadDir, MANIFEST_FILE};

use crate::copy::{content_of, copy_file, files_below, make_dir, remove_all};
use crate::place::{Place, Target};
use crate::snapshot::{Snapshot, SnapshotFile};
use crate::{BackupError, Result};

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
pub struct BackupProgress {
    /// Files that are there.
    pub files: u64,
    /// All files.
    pub of: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// What a backup did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
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
    let known: HashMap<&PathBuf, &SnapshotFile> = { before.iter() }
        .flat_map(|snapshot| &snapshot.parts)
        .map(|file| (&file.path, file))
        .collect();
    for part in &parts {
        check_history(data_dir, target.place().name(), part, &known)?;
    }
    let mut wanted = Vec::new();
    for part in &parts {
        let names = names_of(part)?.into_iter();
        wanted.extend(names.map(|name| (part.dir.path().join(&name), part.within.join(&name))));
    }
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
    })
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

/// The files of a part, wherever they are.
fn names_of(part: &HeldPart) -> Result<BTreeSet<PathBuf>> {
    let name = |file| Some(part.dir.chunk_path(file).file_name()?.into());
    // Files may be given up and brought back meanwhile: each is in one of the lists.
    let before = store::files_away(part.dir.path())?;
    let at_home = store::files_with_home(part.dir.path())?;
    let mut names: BTreeSet<PathBuf> = files_below(part.dir.path())?.into_iter().collect();
    let after = store::files_away(part.dir.path())?;
    let at_home_since = store::files_with_home(part.dir.path())?;
    let at_home = at_home.iter().chain(&at_home_since);
    names.extend(at_home.filter_map(|file| Some(file.path.file_name()?.into())));
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
    let permissions = mode.permissions();
    let mode = permissions.mode() & 0o777;
    fs::set_permissions(&to, permissions).map_err(BackupError::io("write", &to))?;
    Ok(SnapshotFile {
        mode: Some(mode),
        ..SnapshotFile::new(extra.path.clone(), content)
    })
}
