//! The result cache: results that answer equal statements as long as the tables have the same parts.
//!
//! ```text
//!   statement ──► planned, with the rights of whoever asks ──► key: its text as it was read, the parts of its tables, its plan
//!      │ a result of that key is there: its rows, under the headings of this statement
//!      ▼ none: it runs, and its rows are kept if it took long, came to its end and is not large
//! ```
//!
//! Invariant: statements with equal keys have equal results. A statement has a key only if its plan consists of what [`is_repeatable`]
//! lists: tables of the catalog, and functions that are declared to depend on nothing but their arguments. Everything else, whatever its
//! name, has none. What a statement reads of its connection excludes it too ([`sql::Parsed::may_be_cached`]).
//!
//! A statement is always planned first, so rights, headings, warnings and the state of its tables are those of now. To tell whether it
//! is worth asking costs a look at its text; keys are made only of statements that took long before, or are expected to.

mod keeping;
mod key;
mod repeatable;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::stream::{self, StreamExt};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use xxhash_rust::xxh3::xxh3_128;

use crate::StoredRows;
pub(crate) use keeping::{Keeping, keep};
pub use key::ResultKey;
pub(crate) use repeatable::is_repeatable;

/// Bytes of a result that is kept in memory, at most.
pub(crate) const MOST_BYTES: usize = 4 << 20;
/// Bytes of all results that are kept in memory.
const ALL_BYTES: u64 = 32 << 20;
/// How much of the memory of statements they may take.
const SHARE_OF_MEMORY: u64 = 16;
/// Bytes that a result on the disk is taken to need in memory.
const BYTES_OF_STORED: u64 = 4096;
/// About how many results there are.
const ITEMS: usize = 1024;
/// Texts of statements that are known to take long.
const TEXTS: usize = 8192;

/// The results of a server's statements, for all of its sessions.
pub struct ResultCache {
    /// Statements that took less time are not worth it.
    least: Duration,
    results: Cache<Arc<ResultKey>, CachedRows, Bytes>,
    /// Digests of the texts of statements that took long: as they were typed, and as they were read.
    texts: Cache<u128, ()>,
    hits: AtomicU64,
}

/// A result that was computed before.
#[derive(Clone)]
pub struct CachedRows {
    /// The number of the query that computed it.
    pub query: u64,
    bytes: u64,
    open: Arc<dyn Fn() -> Option<StoredRows> + Send + Sync>,
}

impl CachedRows {
    /// A result that is stored elsewhere: `open` gives its rows, or `None` when it is there no more.
    pub fn stored(
        query: u64,
        open: impl Fn() -> Option<StoredRows> + Send + Sync + 'static,
    ) -> Self {
        Self {
            query,
            bytes: BYTES_OF_STORED,
            open: Arc::new(open),
        }
    }

    /// Rows in memory.
    fn in_memory(query: u64, batches: Vec<RecordBatch>, rows: StoredRowsOf) -> Self {
        let batches: Arc<[RecordBatch]> = batches.into();
        let stored = StoredRows {
            schema: rows.schema,
            // Statements that it answers are planned, and have their own.
            warnings: Arc::default(),
            open: Arc::new(move || {
                let batches = Arc::clone(&batches);
                let at = 0..batches.len();
                stream::iter(at.map(move |at| Ok(batches[at].clone()))).boxed()
            }),
        };
        Self {
            query,
            bytes: rows.bytes as u64 + BYTES_OF_STORED,
            open: Arc::new(move || Some(stored.clone())),
        }
    }

    /// Its rows; `None` if they are there no more.
    pub fn open(&self) -> Option<StoredRows> {
        (self.open)()
    }
}

/// The columns of rows in memory, and their bytes.
struct StoredRowsOf {
    schema: arrow::datatypes::SchemaRef,
    bytes: usize,
}

impl fmt::Debug for CachedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CachedRows(of query {}, {} bytes)",
            self.query, self.bytes
        )
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Arc<ResultKey>, CachedRows> for Bytes {
    fn weight(&self, key: &Arc<ResultKey>, rows: &CachedRows) -> u64 {
        key.num_bytes() + rows.bytes
    }
}

impl fmt::Debug for ResultCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultCache({} results)", self.results.len())
    }
}

impl ResultCache {
    /// A cache of the results of statements that took at least so long, for a process whose statements have so much memory.
    pub fn new(least: Duration, memory: u64) -> Arc<Self> {
        let bytes = ALL_BYTES.min(memory / SHARE_OF_MEMORY);
        Arc::new(Self {
            least,
            results: one_shard(bytes),
            texts: Cache::new(TEXTS),
            hits: AtomicU64::new(0),
        })
    }

    /// What a statement has to take at least.
    pub fn least(&self) -> Duration {
        self.least
    }

    /// Statements that were answered from here.
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    /// Bytes of memory of the results.
    pub fn num_bytes(&self) -> u64 {
        self.results.weight()
    }

    /// Whether a statement of this text took long before. It may be another statement, in another database.
    pub(crate) fn knows(&self, text: &str) -> bool {
        !self.texts.is_empty() && self.texts.get(&digest(text)).is_some()
    }

    /// Notes that a statement of this text takes long.
    pub(crate) fn note(&self, text: &str) {
        self.texts.insert(digest(text), ());
    }

    /// Keeps a result.
    pub fn insert(&self, key: ResultKey, rows: CachedRows) {
        self.note(key.statement());
        self.results.insert(Arc::new(key), rows);
    }

    /// The result of this key and its rows.
    pub(crate) fn find(&self, key: &ResultKey) -> Option<(u64, StoredRows)> {
        let found = self.results.get(key)?;
        let Some(rows) = found.open() else {
            self.results.remove(key);
            return None;
        };
        self.hits.fetch_add(1, Relaxed);
        Some((found.query, rows))
    }
}

/// Shards would each have a part of the room, less than a large result needs.
fn one_shard(bytes: u64) -> Cache<Arc<ResultKey>, CachedRows, Bytes> {
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(ITEMS)
        .weight_capacity(bytes)
        .build();
    match options {
        Ok(options) => Cache::with_options(
            options,
            Bytes,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ),
        Err(_) => Cache::with_weighter(ITEMS, bytes, Bytes),
    }
}

fn digest(text: &str) -> u128 {
    xxh3_128(text.trim().as_bytes())
}
