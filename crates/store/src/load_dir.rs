//! The directory of one load of one table, kept from removal while somebody reads it.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use catalog::{LoadId, PartLease, PartRemoval, make_directories, path_name, writable_file};
use sky::ChunkId;

use crate::StoreError;
use crate::durable::{parent, sync_dir, sync_together};

/// The file on which readers hold a shared lock.
const LOCK_FILE: &str = "in_use.lock";

/// The directory of all loads of a table: `DIR/tables/<db>.<table>`, names lower-cased and escaped
/// by [`catalog::path_name`], so the dot between them is the only one.
pub fn table_dir(data_dir: &Path, database: &str, table: &str) -> PathBuf {
    data_dir
        .join("tables")
        .join(format!("{}.{}", path_name(database), path_name(table)))
}

/// What became of a request to remove a load's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The files are gone (or were never there).
    Removed,
    /// Somebody, in this process or another, still reads them. Nothing was removed.
    InUse,
}

/// The files of one load: `DIR/tables/<db>.<table>/<load id>/`.
///
/// While it lives it holds a shared lock of the operating system, so that a replaced load's files
/// stay as long as a query needs them. The lock ends with the process, however that ends. Where the catalog is in PostgreSQL it
/// holds a lease, too, for those who remove files on other machines.
#[derive(Debug)]
pub struct LoadDir {
    data_dir: PathBuf,
    load: LoadId,
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
    /// Given up after the lock.
    _lease: PartLease,
}

impl LoadDir {
    /// Makes the directory (and its parents) durably and locks it for use.
    pub fn create(
        data_dir: &Path,
        database: &str,
        table: &str,
        load: LoadId,
    ) -> Result<Self, StoreError> {
        let made = Self::create_unsynced(data_dir, database, table, load)?;
        let dirs: Vec<PathBuf> = made.path.ancestors().take(4).map(Path::to_owned).collect();
        sync_together(&dirs)?;
        Ok(made)
    }

    /// The same for a table that has other parts, and for few files: neither the directory nor what is written into it is on the disk
    /// for certain until [`Self::sync`] has returned.
    pub fn create_unsynced(
        data_dir: &Path,
        database: &str,
        table: &str,
        load: LoadId,
    ) -> Result<Self, StoreError> {
        let path = load_path(data_dir, database, table, load);
        make_directories(&path.join("index")).map_err(StoreError::io("create", &path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = writable_file()
            .read(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(StoreError::io("create", &lock_path))?;
        lock.lock_shared()
            .map_err(StoreError::io("lock", &lock_path))?;
        let lease = PartLease::take(data_dir, load)?;
        Ok(Self {
            data_dir: data_dir.to_owned(),
            load,
            _lease: lease.ok_or_else(|| StoreError::Missing { path: path.clone() })?,
            path,
            _lock: lock,
        })
    }

    /// Locks the directory of an existing load for use. [`StoreError::Missing`] if it is not there,
    /// which for a load that the catalog has just replaced means: ask the catalog again.
    pub fn open(
        data_dir: &Path,
        database: &str,
        table: &str,
        load: LoadId,
    ) -> Result<Self, StoreError> {
        let path = load_path(data_dir, database, table, load);
        let Some(lease) = PartLease::take(data_dir, load)? else {
            return Err(StoreError::Missing { path });
        };
        let lock_path = path.join(LOCK_FILE);
        let lock = File::open(&lock_path).map_err(StoreError::io("open", &path))?;
        lock.lock_shared()
            .map_err(StoreError::io("lock", &lock_path))?;
        // Between opening and locking, the load may have been removed: then the lock is on a file
        // that has no name any more.
        if !same_file(&lock, &lock_path) {
            return Err(StoreError::Missing { path });
        }
        Ok(Self {
            data_dir: data_dir.to_owned(),
            load,
            path,
            _lock: lock,
            _lease: lease,
        })
    }

    /// Syncs the files that are in the directory, those of the index, the directories and their names.
    pub fn sync(&self) -> Result<(), StoreError> {
        let mut synced = vec![parent(&self.path).to_owned(), self.path.clone()];
        for dir in [&self.path, &self.index_dir()] {
            let read = |error: io::Error| StoreError::io("read", dir)(error);
            for entry in fs::read_dir(dir).map_err(read)? {
                let entry = entry.map_err(read)?;
                // The lock has nothing in it.
                if entry.file_name() != LOCK_FILE {
                    synced.push(entry.path());
                }
            }
        }
        sync_together(&synced)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a chunk's own rows.
    pub fn chunk_path(&self, chunk: ChunkId) -> PathBuf {
        self.path.join(chunk_file_name(chunk))
    }

    /// The file of the rows of other chunks near this one.
    pub fn overlap_path(&self, chunk: ChunkId) -> PathBuf {
        self.path.join(overlap_file_name(chunk))
    }

    /// The directory of the load's director index (for a child: of its orphans).
    pub fn index_dir(&self) -> PathBuf {
        self.path.join("index")
    }

    /// Gives up this use of the load and removes its files if nobody else uses them.
    pub fn try_remove(self) -> Result<Removal, StoreError> {
        let (data_dir, load, path) = (self.data_dir.clone(), self.load, self.path.clone());
        drop(self);
        remove_unleased(&data_dir, load, &path)
    }

    /// Removes the files of a load if nobody uses them: those of a load that was replaced, or of
    /// one that died. What a killed removal leaves is removed by the next.
    pub fn remove(
        data_dir: &Path,
        database: &str,
        table: &str,
        load: LoadId,
    ) -> Result<Removal, StoreError> {
        let path = load_path(data_dir, database, table, load);
        remove_unleased(data_dir, load, &path)
    }

    /// The same for several loads, each with the names of its database and table. What became of each is in their order.
    ///
    /// # Errors
    /// Files cannot be removed; those of some loads may be gone then.
    pub fn remove_all(
        data_dir: &Path,
        loads: &[(&str, &str, LoadId)],
    ) -> Result<Vec<Removal>, StoreError> {
        let mut removals = Vec::with_capacity(loads.len());
        let (mut begun, mut tables) = (Vec::new(), BTreeSet::new());
        for (database, table, load) in loads {
            let path = load_path(data_dir, database, table, *load);
            if !path.exists() {
                removals.push(Removal::Removed);
                continue;
            }
            let Some(removal) = PartRemoval::begin(data_dir, *load)? else {
                removals.push(Removal::InUse);
                continue;
            };
            let removed = remove_unused(&path)?;
            removals.push(removed);
            if removed == Removal::Removed {
                begun.push(removal);
                tables.insert(parent(&path).to_owned());
            }
        }
        sync_together(&Vec::from_iter(tables))?;
        begun.into_iter().for_each(PartRemoval::finish);
        Ok(removals)
    }

    /// Bytes of a load's files that are there, whoever uses them; none if it was removed.
    pub fn bytes_on_disk(
        data_dir: &Path,
        database: &str,
        table: &str,
        load: LoadId,
    ) -> Result<u64, StoreError> {
        bytes_below(&load_path(data_dir, database, table, load))
    }
}

/// Bytes of the files in a directory and those in it. They may be removed meanwhile.
fn bytes_below(dir: &Path) -> Result<u64, StoreError> {
    let read = |error: io::Error| StoreError::io("read", dir)(error);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(read)?,
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry.map_err(read)?;
        bytes += match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path())?,
            Ok(found) => found.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(read(error)),
        };
    }
    Ok(bytes)
}

/// The name of the file of a chunk's own rows.
pub(crate) fn chunk_file_name(chunk: ChunkId) -> String {
    format!("chunk_{}.mrd", chunk.0)
}

/// The name of the file of a chunk's overlap.
pub(crate) fn overlap_file_name(chunk: ChunkId) -> String {
    format!("overlap_{}.mrd", chunk.0)
}

fn load_path(data_dir: &Path, database: &str, table: &str, load: LoadId) -> PathBuf {
    table_dir(data_dir, database, table).join(load.0.to_string())
}

/// Whether `path` still names the file that is open as `handle`.
pub(crate) fn same_file(handle: &File, path: &Path) -> bool {
    match (handle.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.ino() == named.ino() && open.dev() == named.dev(),
        _ => false,
    }
}

/// Removes a load's files if nobody has a lease of it, nor uses it here.
fn remove_unleased(data_dir: &Path, load: LoadId, path: &Path) -> Result<Removal, StoreError> {
    if !path.exists() {
        return Ok(Removal::Removed);
    }
    let Some(removal) = PartRemoval::begin(data_dir, load)? else {
        return Ok(Removal::InUse);
    };
    let removed = remove_unused(path)?;
    if removed == Removal::Removed {
        sync_dir(parent(path))?;
        removal.finish();
    }
    Ok(removed)
}

/// Removes a load's files if nobody uses them. The directory that it was in is for the caller to sync.
fn remove_unused(path: &Path) -> Result<Removal, StoreError> {
    let lock_path = path.join(LOCK_FILE);
    let opened = writable_file()
        .create(true)
        .truncate(false)
        .open(&lock_path);
    let lock = match opened {
        // Somebody else has removed it meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Removal::Removed),
        opened => opened.map_err(StoreError::io("lock", &lock_path))?,
    };
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Removal::InUse),
        Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &lock_path)(error)),
    }
    // The lock file's name goes first: whoever opens the load from now on finds it missing, and
    // whoever waits for the lock finds out that its file has no name.
    unless_gone(fs::remove_file(&lock_path)).map_err(StoreError::io("remove", &lock_path))?;
    match unless_gone(fs::remove_dir_all(path)) {
        // Somebody else has begun to remove it, too, and does the rest.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(Removal::InUse),
        removed => removed.map_err(StoreError::io("remove", path))?,
    }
    Ok(Removal::Removed)
}

/// What is gone was removed by somebody else.
fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: LoadId = LoadId(7);

    #[test]
    fn names_become_safe_paths() {
        let dir = table_dir(Path::new("/d"), "LSST", "Object");
        assert_eq!(dir, Path::new("/d/tables/lsst.object"));
        let dir = table_dir(Path::new("/d"), "../x", "a.b c");
        assert_eq!(dir, Path::new("/d/tables/%2e%2e%2fx.a%2eb%20c"));
    }

    #[test]
    fn files_stay_while_somebody_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let writer = LoadDir::create(dir.path(), "db", "t", LOAD).unwrap();
        fs::write(writer.chunk_path(ChunkId(3)), b"rows").unwrap();
        let reader = LoadDir::open(dir.path(), "DB", "T", LOAD).unwrap();
        assert_eq!(writer.try_remove().unwrap(), Removal::InUse);
        assert_eq!(
            LoadDir::remove(dir.path(), "db", "t", LOAD).unwrap(),
            Removal::InUse
        );
        assert!(reader.chunk_path(ChunkId(3)).exists());
        fs::write(reader.index_dir().join("keys"), b"some keys").unwrap();
        let bytes = || LoadDir::bytes_on_disk(dir.path(), "db", "t", LOAD).unwrap();
        assert_eq!(bytes(), 4 + 9);
        let path = reader.path().to_owned();
        drop(reader);
        assert_eq!(
            LoadDir::remove(dir.path(), "db", "t", LOAD).unwrap(),
            Removal::Removed
        );
        assert!(!path.exists());
        assert_eq!(bytes(), 0);
        assert_eq!(
            LoadDir::remove(dir.path(), "db", "t", LOAD).unwrap(),
            Removal::Removed
        );
        let gone = LoadDir::open(dir.path(), "db", "t", LOAD).unwrap_err();
        assert!(matches!(gone, StoreError::Missing { .. }), "{gone}");
    }

    #[test]
    fn loads_are_removed_together_but_for_those_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let loads = [
            ("db", "t", LoadId(1)),
            ("db", "t", LoadId(2)),
            ("db", "u", LoadId(3)),
        ];
        let open =
            |(database, table, load)| LoadDir::create_unsynced(dir.path(), database, table, load);
        let mut dirs: Vec<LoadDir> = loads.iter().map(|it| open(*it).unwrap()).collect();
        for made in &dirs {
            fs::write(made.chunk_path(ChunkId(3)), b"rows").unwrap();
            made.sync().unwrap();
        }
        let used = dirs.remove(1);
        drop(dirs);
        let mut asked = loads.to_vec();
        asked.push(("db", "never", LoadId(4)));
        let removals = LoadDir::remove_all(dir.path(), &asked).unwrap();
        let expected = [
            Removal::Removed,
            Removal::InUse,
            Removal::Removed,
            Removal::Removed,
        ];
        assert_eq!(removals, expected);
        assert!(used.chunk_path(ChunkId(3)).exists());
        assert_eq!(
            LoadDir::bytes_on_disk(dir.path(), "db", "t", LoadId(1)).unwrap(),
            0
        );
    }

    #[test]
    fn several_may_remove_a_load_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..200 {
            let writer = LoadDir::create(dir.path(), "db", "t", LOAD).unwrap();
            fs::write(writer.chunk_path(ChunkId(3)), b"rows").unwrap();
            let path = writer.path().to_owned();
            drop(writer);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| LoadDir::remove(dir.path(), "db", "t", LOAD).unwrap());
                }
            });
            LoadDir::remove(dir.path(), "db", "t", LOAD).unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_killed_removal_is_finished_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let load = LoadDir::create(dir.path(), "db", "t", LOAD).unwrap();
        fs::write(load.overlap_path(ChunkId(3)), b"rows").unwrap();
        fs::remove_file(load.path().join(LOCK_FILE)).unwrap();
        assert!(LoadDir::open(dir.path(), "db", "t", LOAD).is_err());
        assert_eq!(
            LoadDir::remove(dir.path(), "db", "t", LOAD).unwrap(),
            Removal::Removed
        );
        assert!(!load.path().exists());
    }

    #[test]
    fn the_lock_of_a_removed_load_is_not_taken_for_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let first = LoadDir::create(dir.path(), "db", "t", LOAD).unwrap();
        let lock_path = first.path().join(LOCK_FILE);
        let handle = File::open(&lock_path).unwrap();
        assert!(same_file(&handle, &lock_path));
        assert_eq!(first.try_remove().unwrap(), Removal::Removed);
        let _second = LoadDir::create(dir.path(), "db", "t", LOAD).unwrap();
        assert!(!same_file(&handle, &lock_path));
    }
}
