//! Files of catalogues that were made, kept for the next request as long as there is room.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hats::Tiling;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{FileName, Problem, failed};

/// Bytes of all files together. One that is larger than that goes when it has been sent.
const ROOM: u64 = 4 << 30;
/// Tables whose tilings are known.
const MOST_TILINGS: usize = 64;

/// Which file: of which state of which table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    pub table: Arc<str>,
    pub name: FileName,
}

/// A file, which is there until nobody needs it.
#[derive(Debug)]
pub(super) struct MadeFile {
    path: PathBuf,
    bytes: u64,
}

impl MadeFile {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a file if it is there: of one that could not be made there may be a part.
fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(%error, "{} cannot be removed", path.display());
        }
        _ => {}
    }
}

/// A file that is made once, whoever asks.
#[derive(Debug, Default)]
struct Slot {
    made: OnceCell<Arc<MadeFile>>,
    /// When it was last asked for, as a number that grows.
    used: AtomicU64,
}

/// A tiling that is made once, whoever asks.
type TilingSlot = Arc<OnceCell<Arc<Tiling>>>;

/// The files of all catalogues.
#[derive(Debug, Default)]
pub(crate) struct HatsFiles {
    /// Made when the first file is.
    dir: OnceCell<TempDir>,
    files: Mutex<HashMap<FileKey, Arc<Slot>>>,
    tilings: Mutex<HashMap<Arc<str>, TilingSlot>>,
    clock: AtomicU64,
}

impl HatsFiles {
    /// The tiling of a table, made if it is not known.
    pub(super) async fn tiling<F>(
        &self,
        table: &Arc<str>,
        make: impl FnOnce() -> F,
    ) -> Result<Arc<Tiling>, Problem>
    where
        F: Future<Output = Result<Tiling, Problem>>,
    {
        let slot = {
            let mut tilings = lock(&self.tilings);
            if tilings.len() >= MOST_TILINGS && !tilings.contains_key(table) {
                tilings.clear();
            }
            Arc::clone(tilings.entry(Arc::clone(table)).or_default())
        };
        let make = || async { Ok::<_, Problem>(Arc::new(make().await?)) };
        slot.get_or_try_init(make).await.cloned()
    }

    /// A file, made if it is not there: `make` writes it to a path and says how many bytes it has.
    pub(super) async fn file<F>(
        &self,
        key: FileKey,
        make: impl FnOnce(Arc<Path>) -> F,
    ) -> Result<Arc<MadeFile>, Problem>
    where
        F: Future<Output = Result<u64, Problem>>,
    {
        let slot = Arc::clone(lock(&self.files).entry(key).or_default());
        let number = self.clock.fetch_add(1, Ordering::Relaxed);
        slot.used.store(number, Ordering::Relaxed);
        let new = || async {
            let path: Arc<Path> = self.dir().await?.join(number.to_string()).into();
            // Whatever happens to the request: a part of a file goes with this.
            let mut file = MadeFile {
                path: path.to_path_buf(),
                bytes: 0,
            };
            file.bytes = make(path).await?;
            Ok::<_, Problem>(Arc::new(file))
        };
        let made = Arc::clone(slot.made.get_or_try_init(new).await?);
        self.make_room();
        Ok(made)
    }

    async fn dir(&self) -> Result<&Path, Problem> {
        let make = || async {
            let dir = tempfile::Builder::new().prefix("meridian-hats-").tempdir();
            dir.map_err(|error| {
                let sentence = format!("no temporary directory can be made: {error}");
                Problem::from(failed(&sentence))
            })
        };
        Ok(self.dir.get_or_try_init(make).await?.path())
    }

    /// Lets go of the files that were asked for longest ago, as long as there are too many bytes.
    fn make_room(&self) {
        let mut files = lock(&self.files);
        let bytes = |slot: &Slot| slot.made.get().map_or(0, |made| made.bytes);
        let mut all: u64 = files.values().map(|slot| bytes(slot)).sum();
        if all <= ROOM {
            return;
        }
        let made = files.iter().filter(|(_, slot)| slot.made.initialized());
        let mut by_use: Vec<(u64, FileKey)> = made
            .map(|(key, slot)| (slot.used.load(Ordering::Relaxed), key.clone()))
            .collect();
        by_use.sort_by_key(|(used, _)| *used);
        for (_, key) in by_use {
            if all <= ROOM {
                break;
            }
            all -= files.remove(&key).map_or(0, |slot| bytes(&slot));
        }
    }
}

/// A panic elsewhere leaves the maps whole: every change is a single one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
