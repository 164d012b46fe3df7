//! The reading of chunk files that are at home.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use remote_files::{Client, ObjectFile};
use store::{ByteSource, FileHome, HomeObject, ReadPlace, StoreError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::cache::{Incoming, bring_back};
use super::error::unreadable;
use super::windows::{Windows, bytes_of, windows_of};
use super::{Result, address_of, client};

/// Threads that wait for stores: statements compute on others, which may be busy.
const THREADS: usize = 2;
/// How often bytes are read again that are damaged: on the way, or in the store.
pub(super) const MOST_TRIES: usize = 3;
/// Windows that are fetched before they are wanted, for one range.
const MOST_AHEAD: usize = 8;

/// Has chunk files that are at home read from there, by every command of this process. With `keeps_copies` those that are read for the most
/// part are brought back into the cache.
pub fn read_from_stores(keeps_copies: bool) {
    store::read_homes_by(Arc::new(Stores {
        keeps_copies,
        runtime: OnceLock::new(),
        client: Mutex::new(None),
        windows: Arc::default(),
    }));
}

/// What reads objects, for all statements of a process.
#[derive(Debug)]
struct Stores {
    keeps_copies: bool,
    /// It is never dropped, as the process that reads by it.
    runtime: OnceLock<Runtime>,
    /// Made when it is needed first.
    client: Mutex<Option<Client>>,
    windows: Arc<Windows>,
}

impl Stores {
    fn handle(&self) -> io::Result<Handle> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime.handle().clone());
        }
        let made = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("meridian-home")
            .enable_all()
            .build()?;
        if let Err(second) = self.runtime.set(made) {
            // Another thread was faster, and may be in a runtime, where none is dropped that waits.
            second.shutdown_background();
        }
        let runtime = self
            .runtime
            .get()
            .ok_or_else(|| io::Error::other("it is gone"))?;
        Ok(runtime.handle().clone())
    }

    fn client(&self) -> Result<Client> {
        let mut known = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref() {
            Some(client) => Ok(client.clone()),
            None => Ok(known.insert(client()?).clone()),
        }
    }
}

impl FileHome for Stores {
    fn open(
        &self,
        path: &Path,
        object: HomeObject,
    ) -> std::result::Result<Arc<dyn ByteSource>, StoreError> {
        let failed = |why: String| StoreError::AtHome {
            path: path.to_owned(),
            why,
        };
        let client = self.client().map_err(|error| failed(error.to_string()))?;
        let handle = self.handle().map_err(|error| failed(error.to_string()))?;
        let file = object_file(&object).map_err(|error| failed(error.to_string()))?;
        Ok(Arc::new(HomeFile(Arc::new(Inner {
            path: Some(path.to_owned()),
            name: Arc::from(Path::new(&object.url)),
            keeps_copies: self.keeps_copies,
            number: self.windows.new_file(),
            windows: Arc::clone(&self.windows),
            fetched: Mutex::default(),
            is_coming: AtomicBool::new(false),
            here: OnceLock::new(),
            place: ReadPlace::default(),
            object,
            file,
            client,
            handle,
        }))))
    }
}

/// What of an object is known before it is read.
pub(super) fn object_file(object: &HomeObject) -> Result<ObjectFile> {
    Ok(ObjectFile {
        address: address_of(&object.url)?,
        bytes: object.bytes,
        etag: object.etag.clone(),
    })
}

/// An object by itself, to see what it is: read on the thread that asks, and kept nowhere.
pub(super) fn bare_object(client: &Client, object: &HomeObject) -> Result<Arc<dyn ByteSource>> {
    Ok(Arc::new(HomeFile(Arc::new(Inner {
        path: None,
        name: Arc::from(Path::new(&object.url)),
        keeps_copies: false,
        number: 0,
        windows: Arc::default(),
        fetched: Mutex::default(),
        is_coming: AtomicBool::new(false),
        here: OnceLock::new(),
        place: ReadPlace::default(),
        file: object_file(object)?,
        object: object.clone(),
        client: client.clone(),
        handle: Handle::current(),
    }))))
}

/// A chunk file that is at home.
#[derive(Debug)]
struct HomeFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Where the file is when it is here.
    path: Option<PathBuf>,
    /// The object's URL, for messages.
    name: Arc<Path>,
    object: HomeObject,
    file: ObjectFile,
    client: Client,
    handle: Handle,
    windows: Arc<Windows>,
    /// What it is called among the windows.
    number: u64,
    keeps_copies: bool,
    /// Which windows were fetched, each once.
    fetched: Mutex<Vec<u64>>,
    /// Whether it is being brought back, or that was tried.
    is_coming: AtomicBool,
    /// The file, since it came back.
    here: OnceLock<Arc<dyn ByteSource>>,
    place: ReadPlace,
}

impl Inner {
    /// The file, if it has come back: by whichever process.
    fn here(&self) -> Option<&Arc<dyn ByteSource>> {
        if let Some(here) = self.here.get() {
            return Some(here);
        }
        let path = self.path.as_ref()?;
        let found = store::open_here(path).ok().flatten()?;
        Some(self.here.get_or_init(|| found))
    }

    /// A window, fetched by whoever asks for it first.
    async fn window(self: Arc<Self>, number: u64) -> io::Result<Bytes> {
        let cell = self.windows.window(self.number, number);
        let fetched = cell.get_or_try_init(|| async {
            let _turn = self.windows.fetching.acquire().await;
            let range = bytes_of(number, self.file.bytes);
            let bytes = self.client.range(&self.file, range).await;
            let bytes = bytes.map_err(|error| io::Error::other(unreadable(&error)))?;
            self.count(number);
            Ok::<_, io::Error>(bytes)
        });
        fetched.await.cloned()
    }

    /// Counts a window that was fetched, and has the file brought back once most of them were.
    fn count(self: &Arc<Self>, number: u64) {
        let all = windows_of(&(0..self.file.bytes));
        let most = {
            let mut fetched = self.lock_fetched();
            if !fetched.contains(&number) {
                fetched.push(number);
            }
            2 * fetched.len() as u64 >= all.end
        };
        if most && self.keeps_copies && !self.is_coming.swap(true, Relaxed) {
            self.handle.spawn(Arc::clone(self).come_back());
        }
    }

    fn lock_fetched(&self) -> MutexGuard<'_, Vec<u64>> {
        // Every change leaves it whole.
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn come_back(self: Arc<Self>) {
        let Some(path) = &self.path else {
            return;
        };
        match bring_back(&self.client, path, &self.object).await {
            Ok(Incoming::Came) => return,
            Ok(Incoming::NoRoom | Incoming::Busy) => {}
            Err(error) => {
                tracing::warn!(%error, file = %path.display(), "a copy of a file could not be made");
            }
        }
        // It is tried again when as much was read once more.
        self.lock_fetched().clear();
        self.is_coming.store(false, Relaxed);
    }

    async fn read(self: &Arc<Self>, range: Range<u64>, buffer: &mut [u8]) -> io::Result<()> {
        let fetches = windows_of(&range).map(|number| {
            let fetch = self.handle.spawn(Arc::clone(self).window(number));
            (number, Fetch(fetch))
        });
        // All begin at once.
        let fetches: Vec<(u64, Fetch)> = fetches.collect();
        for (number, fetch) in fetches {
            let bytes = fetch.await?;
            let window = bytes_of(number, self.file.bytes);
            let (start, end) = (range.start.max(window.start), range.end.min(window.end));
            let from = place_in(start, window.start)..place_in(end, window.start);
            let to = place_in(start, range.start)..place_in(end, range.start);
            let (Some(from), Some(to)) = (bytes.get(from), buffer.get_mut(to)) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

fn place_in(offset: u64, start: u64) -> usize {
    usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX)
}

/// A fetch that ends when nobody waits for it any more.
struct Fetch(JoinHandle<io::Result<Bytes>>);

impl Future for Fetch {
    type Output = io::Result<Bytes>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(context);
        polled.map(|joined| joined.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[async_trait]
impl ByteSource for HomeFile {
    fn name(&self) -> &Arc<Path> {
        &self.0.name
    }

    fn num_bytes(&self) -> u64 {
        self.0.file.bytes
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if let Some(here) = self.0.here() {
            return here.read_at(offset, buffer).await;
        }
        let range = offset..offset + buffer.len() as u64;
        if range.end > self.0.file.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match (self.0.read(range, buffer).await, self.0.here()) {
            // The object may have been removed because the file came back.
            (Err(_), Some(here)) => here.read_at(offset, buffer).await,
            (read, _) => read,
        }
    }

    fn is_local(&self) -> bool {
        self.0.here.get().is_some()
    }

    fn place(&self) -> usize {
        self.0.place.number()
    }

    fn distrust(&self, place: usize) -> bool {
        if place + 1 >= MOST_TRIES {
            return false;
        }
        tracing::warn!(object = %self.0.name.display(), "a store has given damaged bytes: they are read again");
        self.0.windows.forget(self.0.number);
        self.0.place.leave(place)
    }

    fn read_ahead(&self, range: &Range<u64>) {
        if let Some(here) = self.0.here.get() {
            return here.read_ahead(range);
        }
        let end = range.end.min(self.0.file.bytes);
        let wanted = windows_of(&(range.start.min(end)..end));
        let new = wanted.filter(|number| !self.0.windows.has(self.0.number, *number));
        for number in new.take(MOST_AHEAD) {
            self.0.handle.spawn(Arc::clone(&self.0).window(number));
        }
    }
}
