//! Chunk files whose home is an object store.
//!
//! ```text
//!   DIR/tables/db.table/PART/chunk_N.mrd            the file; where there is a mark, too, a copy that the cache keeps
//!   DIR/tables/db.table/PART/chunk_N.home           the object that has it: written once that is there, whole and verified
//!   DIR/tables/db.table/PART/chunk_N.mrd.in.tmp     a copy that is on its way here; whoever makes it holds a lock on it
//! ```
//!
//! The file goes only while the mark is there, and the mark only while the file is: at any moment one of them is there. When the mark was
//! changed last is when the file was read last, to about a minute.
//!
//! This crate knows of no object store: what reads one is registered by whoever can ([`FileHome`]).

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::away::{chunk_of, data_dir_of};
use crate::durable::{TemporaryFile, parent, sync_dir};
use crate::load_dir::same_file;
use crate::{ByteSource, LocalFile, StoreError};

/// How the name of a mark ends.
const MARK: &str = "home";
/// How the name of a copy ends that is on its way here.
const INCOMING: &str = "mrd.in.tmp";
/// How often it is noted that a file is read.
const NOTED_EVERY: Duration = Duration::from_secs(30);

static HOME: OnceLock<Arc<dyn FileHome>> = OnceLock::new();

/// The object that has a chunk file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeObject {
    /// Where it is.
    pub url: String,
    /// Its length, which is the file's.
    pub bytes: u64,
    /// What changes with its content.
    pub etag: String,
    /// The checksum of the chunk file, as the catalog has it.
    pub checksum: u64,
}

/// What reads chunk files from object stores.
pub trait FileHome: fmt::Debug + Send + Sync {
    /// What a file is read from that is not at `path` now.
    ///
    /// # Errors
    /// [`StoreError::AtHome`].
    fn open(&self, path: &Path, object: HomeObject) -> Result<Arc<dyn ByteSource>, StoreError>;
}

/// Has all files of this process that are at home read by it. The first one that is given counts.
pub fn read_homes_by(home: Arc<dyn FileHome>) {
    // Every command does so once, when it begins.
    let _ = HOME.set(home);
}

/// The mark of a file.
fn mark(path: &Path) -> PathBuf {
    path.with_extension(MARK)
}

/// Whether an object has the file.
pub fn has_home(path: &Path) -> bool {
    mark(path).exists()
}

/// Whether an object has the file, which is not here.
pub fn is_at_home(path: &Path) -> bool {
    !path.exists() && has_home(path)
}

/// A chunk file that an object has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileWithHome {
    /// Where the file is, or would be.
    pub path: PathBuf,
    /// Its bytes, if it is here.
    pub bytes_here: Option<u64>,
    /// When it was read last.
    pub read_at: SystemTime,
}

/// The chunk files of a part that objects have.
///
/// # Errors
/// The directory cannot be read. One that is not there has none.
pub fn files_with_home(part: &Path) -> Result<Vec<FileWithHome>, StoreError> {
    let entries = match fs::read_dir(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(StoreError::io("read", part))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::io("read", part))?;
        let mark = entry.path();
        let path = mark.with_extension("mrd");
        if mark.extension().is_none_or(|it| it != MARK) || chunk_of(&path).is_none() {
            continue;
        }
        let read_at = entry.metadata().and_then(|it| it.modified());
        found.push(FileWithHome {
            bytes_here: fs::metadata(&path).ok().map(|it| it.len()),
            path,
            // The part may be removed meanwhile.
            read_at: read_at.unwrap_or(SystemTime::UNIX_EPOCH),
        });
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

impl HomeObject {
    /// The object that has a file; `None` if there is none.
    ///
    /// # Errors
    /// The mark cannot be read, or makes no sense.
    pub fn of(path: &Path) -> Result<Option<Self>, StoreError> {
        let mark = mark(path);
        let json = match fs::read(&mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            json => json.map_err(StoreError::io("read", &mark))?,
        };
        let object = serde_json::from_slice(&json);
        object.map(Some).map_err(|error| {
            StoreError::damaged(
                &mark,
                format!("it does not say which object has the file: {error}"),
            )
        })
    }

    /// Notes that the object has a file, which it does.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note(&self, path: &Path) -> Result<(), StoreError> {
        let mark = mark(path);
        let json = serde_json::to_vec(self).map_err(io::Error::from);
        let json = json.map_err(StoreError::io("write", &mark))?;
        let (temporary, mut file) = TemporaryFile::create(&mark)?;
        file.write_all(&json)
            .map_err(StoreError::io("write", &mark))?;
        temporary.publish(&file)
    }
}

/// Notes that no object has a file any more, which is here.
///
/// # Errors
/// The file is not here, or the mark cannot be removed.
pub fn forget_home(path: &Path) -> Result<(), StoreError> {
    if !path.exists() {
        return Err(StoreError::Missing {
            path: path.to_owned(),
        });
    }
    unless_gone(fs::remove_file(mark(path))).map_err(StoreError::io("remove", &mark(path)))
}

/// Removes the copy of a file that an object has. Whoever has it open reads on.
///
/// # Errors
/// There is no mark, or the file cannot be removed.
pub fn remove_copy(path: &Path) -> Result<(), StoreError> {
    if !has_home(path) {
        return Err(StoreError::Missing { path: mark(path) });
    }
    unless_gone(fs::remove_file(path)).map_err(StoreError::io("remove", path))
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What a file is read from whose mark is there; `None` if there is no mark any more, because the file is here.
pub(crate) fn open_at_home(path: &Path) -> Result<Option<Arc<dyn ByteSource>>, StoreError> {
    let Some(object) = HomeObject::of(path)? else {
        return Ok(None);
    };
    match HOME.get() {
        Some(home) => home.open(path, object).map(Some),
        None => Err(StoreError::AtHome {
            path: path.to_owned(),
            why: "this program reads no object stores".to_owned(),
        }),
    }
}

/// Notes that a file is read now, if an object has it.
pub fn note_reading(path: &Path) {
    let now = SystemTime::now();
    // Without a mark nobody wants to know; who may not write leaves it to others.
    let noted = File::open(mark(path)).and_then(|mark| mark.set_modified(now));
    if let Err(error) = noted
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%error, path = %path.display(), "it cannot be noted that a file is read");
    }
}

/// A chunk file that is here, which notes now and then that it is read.
#[derive(Debug)]
pub(crate) struct NotedFile {
    file: LocalFile,
    opened: Instant,
    /// When it was noted last, in milliseconds since it was opened.
    noted: AtomicU64,
}

impl NotedFile {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = LocalFile::open(path)?;
        note_reading(path);
        Ok(Self {
            file,
            opened: Instant::now(),
            noted: AtomicU64::new(0),
        })
    }

    fn note(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let noted = self.noted.load(Relaxed);
        let is_due = u128::from(now - noted.min(now)) >= NOTED_EVERY.as_millis();
        if is_due && self.noted.compare_exchange(noted, now, Relaxed, Relaxed) == Ok(noted) {
            note_reading(self.file.name());
        }
    }
}

#[async_trait]
impl ByteSource for NotedFile {
    fn name(&self) -> &Arc<Path> {
        self.file.name()
    }

    fn num_bytes(&self) -> u64 {
        self.file.num_bytes()
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.note();
        self.file.fill(offset, buffer)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn read_ahead(&self, range: &Range<u64>) {
        self.file.read_ahead(range);
    }
}

/// A copy of a file that is on its way here. One process at a time makes it; what a killed one left, the next takes or removes.
#[derive(Debug)]
pub struct IncomingCopy {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl IncomingCopy {
    /// Begins a copy; `None` if somebody else makes one now, or the file has come.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(path: &Path) -> Result<Option<Self>, StoreError> {
        let temporary = path.with_extension(INCOMING);
        let opened = catalog::writable_file()
            .read(true)
            .create(true)
            .truncate(false)
            .open(&temporary);
        let file = opened.map_err(StoreError::io("create", &temporary))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::io("lock", &temporary)(error));
            }
        }
        // It may have got its final name between opening and locking: then it is not for anybody to change.
        if !same_file(&file, &temporary) {
            return Ok(None);
        }
        let incoming = Self {
            path: path.to_owned(),
            temporary,
            file,
        };
        if path.exists() {
            return Ok(None);
        }
        incoming
            .file
            .set_len(0)
            .map_err(StoreError::io("write", &incoming.temporary))?;
        Ok(Some(incoming))
    }

    /// Where it is until it is published.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Io`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all(bytes)
            .map_err(StoreError::io("write", &self.temporary))
    }

    /// Gives the copy, which is whole and was verified, the file's name, durably.
    ///
    /// # Errors
    /// It cannot be synced or renamed.
    pub fn publish(self) -> Result<(), StoreError> {
        self.file
            .sync_all()
            .map_err(StoreError::io("sync", &self.temporary))?;
        fs::rename(&self.temporary, &self.path).map_err(StoreError::io("rename", &self.path))?;
        sync_dir(parent(&self.path))
    }
}

/// What is not published goes. The lock is held until then.
impl Drop for IncomingCopy {
    fn drop(&mut self) {
        if same_file(&self.file, &self.temporary) {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Removes the copies in a part that killed processes have left on their way here.
///
/// # Errors
/// The directory cannot be read.
pub fn remove_abandoned_copies(part: &Path) -> Result<(), StoreError> {
    let entries = match fs::read_dir(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(StoreError::io("read", part))?,
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let ending = format!(".{INCOMING}");
        if let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(&ending)) {
            // It goes when it is dropped.
            IncomingCopy::begin(&part.join(format!("{stem}.mrd")))?;
        }
    }
    Ok(())
}

/// The name of a chunk file within its data directory, with slashes: `tables/db.table/PART/chunk_N.mrd`; and that directory.
///
/// `None` for a path of another form.
pub fn name_in_data_dir(path: &Path) -> Option<(&Path, String)> {
    let data_dir = data_dir_of(path)?;
    let names: Vec<&str> = { path.iter().rev().take(4) }
        .map(|name| name.to_str())
        .collect::<Option<_>>()?;
    let [file, part, table, tables] = names.as_slice() else {
        return None;
    };
    Some((data_dir, format!("{tables}/{table}/{part}/{file}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(bytes: u64) -> HomeObject {
        HomeObject {
            url: "s3://bucket/a/tables/db.t/7/chunk_3.mrd".to_owned(),
            bytes,
            etag: "\"e\"".to_owned(),
            checksum: u64::MAX - 1,
        }
    }

    #[test]
    fn a_file_goes_only_with_a_mark_and_a_mark_only_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chunk_3.mrd");
        fs::write(&path, b"rows").unwrap();
        remove_copy(&path).unwrap_err();
        assert!(path.exists() && !has_home(&path));
        object(4).note(&path).unwrap();
        assert_eq!(HomeObject::of(&path).unwrap(), Some(object(4)));
        assert!(has_home(&path) && !is_at_home(&path));
        remove_copy(&path).unwrap();
        assert!(is_at_home(&path));
        forget_home(&path).unwrap_err();
        let found = files_with_home(dir.path()).unwrap();
        assert_eq!((found.len(), found[0].bytes_here), (1, None));
        let mut copy = IncomingCopy::begin(&path).unwrap().unwrap();
        copy.write(b"rows").unwrap();
        copy.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rows");
        assert_eq!(files_with_home(dir.path()).unwrap()[0].bytes_here, Some(4));
        forget_home(&path).unwrap();
        assert!(!has_home(&path) && path.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_copy_at_a_time_is_on_its_way_and_what_is_abandoned_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chunk_3.mrd");
        let temporary = dir.path().join("chunk_3.mrd.in.tmp");
        let mut copy = IncomingCopy::begin(&path).unwrap().unwrap();
        copy.write(b"ro").unwrap();
        assert!(IncomingCopy::begin(&path).unwrap().is_none());
        remove_abandoned_copies(dir.path()).unwrap();
        assert!(temporary.exists());
        drop(copy);
        assert!(!temporary.exists());
        // A killed process has left it.
        fs::write(&temporary, b"half").unwrap();
        let mut copy = IncomingCopy::begin(&path).unwrap().unwrap();
        copy.write(b"rows").unwrap();
        copy.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rows");
        // Nothing is written over a file that has come.
        assert!(IncomingCopy::begin(&path).unwrap().is_none());
        fs::write(&temporary, b"half").unwrap();
        remove_abandoned_copies(dir.path()).unwrap();
        assert!(!temporary.exists());
        assert_eq!(fs::read(&path).unwrap(), b"rows");
    }

    #[test]
    fn a_mark_that_makes_no_sense_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chunk_3.mrd");
        fs::write(mark(&path), b"{").unwrap();
        let error = HomeObject::of(&path).unwrap_err().to_string();
        assert!(error.contains("chunk_3.home is damaged"), "{error}");
    }

    #[test]
    fn names_are_those_within_the_data_directory() {
        let (dir, name) = name_in_data_dir(Path::new("/d/x/tables/db.t/7/chunk_-3.mrd")).unwrap();
        assert_eq!(dir, Path::new("/d/x"));
        assert_eq!(name, "tables/db.t/7/chunk_-3.mrd");
        let (dir, _) = name_in_data_dir(Path::new("tables/db.t/7/chunk_3.mrd")).unwrap();
        assert_eq!(dir, Path::new("."));
        assert!(name_in_data_dir(Path::new("chunk_3.mrd")).is_none());
    }

    #[tokio::test]
    async fn reading_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chunk_3.mrd");
        fs::write(&path, b"rows").unwrap();
        object(4).note(&path).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let age = || files_with_home(dir.path()).unwrap()[0].read_at;
        let reset = || {
            let mark = File::open(mark(&path)).unwrap();
            mark.set_modified(long_ago).unwrap();
        };
        reset();
        let file = NotedFile::open(&path).unwrap();
        assert!(age() > long_ago);
        reset();
        file.read_at(0, &mut [0; 4]).await.unwrap();
        assert_eq!(age(), long_ago);
        let later = NotedFile {
            opened: file.opened.checked_sub(NOTED_EVERY).unwrap(),
            ..file
        };
        later.read_at(0, &mut [0; 4]).await.unwrap();
        assert!(age() > long_ago);
    }
}
