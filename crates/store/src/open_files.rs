//! Open chunk files, shared by all queries of a process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sky::ChunkId;
use tokio::sync::OnceCell;

use crate::away::open_anywhere;
use crate::{ByteSource, ChunkFile, DecodedBlocks, OpenFile, StoreError};

/// A bounded cache of open chunk files, so that a query does not open what another has open.
///
/// Chunk files never change, so an open one never goes stale; but it keeps its disk space after it
/// was removed: whoever replaces a load calls [`OpenFiles::forget`]. A file from which reading has
/// failed is opened anew for the next who asks, so a restored file is found without a restart.
#[derive(Debug)]
pub struct OpenFiles {
    capacity: usize,
    decoded: Option<Arc<DecodedBlocks>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By their paths, which are compared byte for byte: a lookup requests one, and taking a path apart takes longer.
    files: HashMap<OsString, Slot>,
    /// Counts uses; the time of this cache.
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    /// Empty while the first to ask opens the file; the others wait for that.
    file: Arc<OnceCell<Arc<OpenFile>>>,
    last_used: u64,
}

impl OpenFiles {
    /// A cache that keeps up to `capacity` files open (at least one). Each takes a file descriptor
    /// and its metadata's memory: some 100 kB for a chunk of half a million rows.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            decoded: None,
            state: Mutex::default(),
        }
    }

    /// The same, whose files keep decoded blocks for each other's sake within one budget.
    pub fn keeping(self, decoded: DecodedBlocks) -> Self {
        Self {
            decoded: Some(Arc::new(decoded)),
            ..self
        }
    }

    /// The rows of a chunk in the file at this path, opened now if it is not open.
    ///
    /// # Errors
    ///
    /// Those of [`OpenFile::open`] and [`OpenFile::chunk`]; a file that could not be opened is tried again the next time.
    pub async fn get(&self, path: &Path, chunk: ChunkId) -> Result<Arc<ChunkFile>, StoreError> {
        self.get_from(path, chunk, open_anywhere(path)).await
    }

    /// The rows of a chunk in the file of this name, which is read from the source that `open` gives if it is not open.
    ///
    /// # Errors
    ///
    /// Those of `open`, [`OpenFile::open_source`] and [`OpenFile::chunk`]; a file that could not be opened is tried again the next time.
    pub async fn get_from(
        &self,
        path: &Path,
        chunk: ChunkId,
        open: impl Future<Output = Result<Arc<dyn ByteSource>, StoreError>>,
    ) -> Result<Arc<ChunkFile>, StoreError> {
        self.file_from(path, open).await?.chunk(chunk)
    }

    /// The file at this path with all its chunks, opened now if it is not open.
    ///
    /// # Errors
    ///
    /// Those of [`OpenFile::open`]; a file that could not be opened is tried again the next time.
    pub async fn file(&self, path: &Path) -> Result<Arc<OpenFile>, StoreError> {
        self.file_from(path, open_anywhere(path)).await
    }

    /// The file of this name with all its chunks, which is read from the source that `open` gives if it is not open.
    ///
    /// # Errors
    ///
    /// Those of `open` and [`OpenFile::open_source`]; a file that could not be opened is tried again the next time.
    pub async fn file_from(
        &self,
        path: &Path,
        open: impl Future<Output = Result<Arc<dyn ByteSource>, StoreError>>,
    ) -> Result<Arc<OpenFile>, StoreError> {
        let slot = self.slot(path);
        let opened = slot
            .get_or_try_init(|| async {
                let source = open.await?;
                OpenFile::open_source(source, self.decoded.clone()).await
            })
            .await
            .cloned();
        if opened.is_err() {
            let mut state = self.lock();
            if state
                .files
                .get(path.as_os_str())
                .is_some_and(|s| Arc::ptr_eq(&s.file, &slot) && !slot.initialized())
            {
                state.files.remove(path.as_os_str());
            }
        }
        opened
    }

    /// Closes the files below this directory, once their present users are done.
    pub fn forget(&self, dir: &Path) {
        let mut state = self.lock();
        let below = |path: &OsString| Path::new(path).starts_with(dir);
        state.files.retain(|path, _| !below(path));
    }

    /// Closes the files that are open here and have no name any more, once their present users are done: they keep their place on the
    /// disk until then. The next who asks finds them where they are now.
    pub fn close_removed(&self) {
        let open_here: Vec<(OsString, Arc<OpenFile>)> = {
            let state = self.lock();
            let opened = state.files.iter();
            let opened = opened.filter_map(|(path, slot)| Some((path, slot.file.get()?)));
            let here = opened.filter(|(_, file)| file.is_local());
            here.map(|(path, file)| (path.clone(), Arc::clone(file)))
                .collect()
        };
        // The system is asked while others open files.
        for (path, file) in open_here {
            if Path::new(&path).exists() {
                continue;
            }
            let mut state = self.lock();
            let is_it = |slot: &Slot| slot.file.get().is_some_and(|it| Arc::ptr_eq(it, &file));
            if state.files.get(&path).is_some_and(is_it) {
                state.files.remove(&path);
            }
        }
    }

    /// The decoded blocks that the files keep; `None` if they keep none.
    pub fn decoded(&self) -> Option<&Arc<DecodedBlocks>> {
        self.decoded.as_ref()
    }

    /// How many files are open (or being opened).
    pub fn len(&self) -> usize {
        self.lock().files.len()
    }

    /// Whether no file is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, path: &Path) -> Arc<OnceCell<Arc<OpenFile>>> {
        let mut state = self.lock();
        state.clock += 1;
        let now = state.clock;
        if let Some(slot) = state.files.get_mut(path.as_os_str())
            && !slot.file.get().is_some_and(|file| file.has_failed())
        {
            slot.last_used = now;
            return Arc::clone(&slot.file);
        }
        if state.files.len() >= self.capacity {
            state.close_oldest(self.capacity);
        }
        let file = Arc::new(OnceCell::new());
        let slot = Slot {
            file: Arc::clone(&file),
            last_used: now,
        };
        state.files.insert(path.into(), slot);
        file
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes room by closing the eighth (at least one) that was used least recently: many at a time,
    /// so that looking for them costs little for each file opened.
    fn close_oldest(&mut self, capacity: usize) {
        let mut uses: Vec<u64> = self.files.values().map(|slot| slot.last_used).collect();
        let closing = (capacity / 8).min(uses.len().saturating_sub(1));
        let (_, newest_closed, _) = uses.select_nth_unstable(closing);
        let newest_closed = *newest_closed;
        self.files.retain(|_, slot| slot.last_used > newest_closed);
    }
}
