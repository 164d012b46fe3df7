//! How much may be decoded of bytes that strangers have sent.
//!
//! A few kilobytes can stand for gigabytes: a dictionary whose only value is repeated, a gzip stream of zeros, a header of a million
//! columns. So every reader of foreign bytes takes a [`DecodeBudget`] and counts what comes out, before it comes out or in small
//! steps. A load of the operator's own files has the budget without limits.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::IngestError;

/// How many times its length a gzip stream of a stranger may unpack to. Catalogues shrink to a third, columns that never change to
/// a hundredth; what deflate can do at most is 1,032 (RFC 1951: 258 bytes in 2 bits).
const MOST_UNPACKED: u64 = 250;
/// Unpacked bytes from which on that is looked at.
const UNPACKED_ANYWAY: u64 = 8 << 20;

/// What is wrong with a gzip stream that [unpacks to too much](unpacks_to_too_much), as the end of a sentence.
pub const UNPACKS_TO_TOO_MUCH: &str =
    "unpacks to more than 250 times its length, as no table does: send it without gzip";

/// Whether so many bytes of a gzip stream unpack to as much as those of no table do.
pub fn unpacks_to_too_much(packed: u64, unpacked: u64) -> bool {
    unpacked > UNPACKED_ANYWAY && unpacked / packed.max(1) > MOST_UNPACKED
}

/// Bytes that several holders share.
#[derive(Debug)]
pub struct BytePool {
    limit: u64,
    used: AtomicU64,
}

/// There is no room in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolExhausted;

impl BytePool {
    /// A pool of so many bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
        })
    }

    /// How many bytes its holders may have together.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many they have.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), PoolExhausted> {
        let fits = |used: u64| used.checked_add(bytes).filter(|total| *total <= self.limit);
        let taken = self.used.fetch_update(Relaxed, Relaxed, fits);
        taken.map(drop).map_err(|_| PoolExhausted)
    }
}

/// Reserved bytes of a pool, which are released when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<BytePool>,
    bytes: u64,
}

impl Reservation {
    /// Nothing yet.
    pub fn of(pool: &Arc<BytePool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            bytes: 0,
        }
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pool.
    pub fn pool(&self) -> &BytePool {
        &self.pool
    }

    /// Holds so many bytes from now on, more or fewer than before.
    ///
    /// # Errors
    /// The pool has no room for more; what is held stays as it was.
    pub fn resize(&mut self, bytes: u64) -> Result<(), PoolExhausted> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.pool.take(more)?,
            None => drop(self.pool.used.fetch_sub(self.bytes - bytes, Relaxed)),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// What a file may decode to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Bytes of all of its rows.
    pub bytes: u64,
    /// Bytes of one row as it is written, and of what stands before the rows.
    pub row_bytes: usize,
    /// Columns.
    pub columns: usize,
}

/// How much a reader may decode of one file. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct DecodeBudget(Option<Arc<LimitedPool>>);

#[derive(Debug)]
struct LimitedPool {
    limits: DecodeLimits,
    /// The most bytes that a pass over the file has given so far.
    reserved: Mutex<Reservation>,
    cancelled: AtomicBool,
}

impl DecodeBudget {
    /// No limits: for files of the user who runs the program.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Limits of a file's own, and a pool that it shares with others.
    pub fn new(limits: DecodeLimits, pool: &Arc<BytePool>) -> Self {
        Self(Some(Arc::new(LimitedPool {
            limits,
            reserved: Mutex::new(Reservation::of(pool)),
            cancelled: AtomicBool::new(false),
        })))
    }

    /// Nobody waits for the rows any more: whoever reads ends soon.
    pub fn cancel(&self) {
        if let Some(limited) = &self.0 {
            limited.cancelled.store(true, Relaxed);
        }
    }

    /// Whether there are limits.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn limits(&self) -> Option<DecodeLimits> {
        self.0.as_ref().map(|limited| limited.limits)
    }

    /// The most bytes that a row may have, of those that a reader allows anyway.
    pub(crate) fn row_bytes(&self, usual: usize) -> usize {
        self.limits()
            .map_or(usual, |limits| limits.row_bytes.min(usual))
    }

    /// Checks how many columns a file has.
    pub(crate) fn check_columns(&self, path: &Path, columns: usize) -> Result<(), IngestError> {
        match self.limits() {
            Some(limits) if columns > limits.columns => {
                let most = limits.columns;
                let reason =
                    format!("it has {columns} columns, and may have {most}: leave some out");
                Err(IngestError::too_large(path, reason))
            }
            _ => Ok(()),
        }
    }

    /// A count of what one pass over the file gives.
    pub(crate) fn meter(&self, path: &Path) -> DecodeMeter {
        DecodeMeter {
            budget: self.clone(),
            path: path.to_path_buf(),
            bytes: 0,
        }
    }
}

impl LimitedPool {
    /// A panic elsewhere leaves the reservation whole.
    fn reserved(&self) -> MutexGuard<'_, Reservation> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts what one pass over a file gives.
#[derive(Debug)]
pub(crate) struct DecodeMeter {
    budget: DecodeBudget,
    path: PathBuf,
    bytes: u64,
}

impl DecodeMeter {
    /// Counts bytes that come next.
    ///
    /// # Errors
    /// They are more than the file or all files together may have, or nobody waits for them.
    pub fn add(&mut self, bytes: u64) -> Result<(), IngestError> {
        let Some(limited) = &self.budget.0 else {
            return Ok(());
        };
        if limited.cancelled.load(Relaxed) {
            return Err(IngestError::Abandoned);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let most = limited.limits.bytes;
        if self.bytes > most {
            let mebibytes = most >> 20;
            let reason = format!(
                "it takes more than {mebibytes} MiB when it is decoded, which is the most: send it in parts"
            );
            return Err(IngestError::too_large(&self.path, reason));
        }
        let mut reserved = limited.reserved();
        let wanted = self.bytes.max(reserved.bytes());
        reserved.resize(wanted).map_err(|_| {
            let mebibytes = reserved.pool().limit() >> 20;
            IngestError::Busy {
                path: self.path.clone(),
                reason: format!(
                    "there is no room for it now: what is sent may take {mebibytes} MiB together when it is decoded; send it \
                     again in a while"
                ),
            }
        })
    }

    /// The same for bytes that a reader would hold at once in the place of others, so that they are checked and not added up.
    pub fn check(&self, bytes: u64) -> Result<(), IngestError> {
        let mut once = Self {
            budget: self.budget.clone(),
            path: self.path.clone(),
            bytes: 0,
        };
        once.add(bytes)
    }

    pub fn is_limited(&self) -> bool {
        self.budget.is_limited()
    }

    /// How many bytes have come.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: DecodeLimits = DecodeLimits {
        bytes: 2 << 20,
        row_bytes: 100,
        columns: 3,
    };

    #[test]
    fn a_pool_is_shared_and_given_back() {
        let pool = BytePool::new(10);
        let (mut one, mut two) = (Reservation::of(&pool), Reservation::of(&pool));
        one.resize(6).unwrap();
        assert_eq!(two.resize(5), Err(PoolExhausted));
        assert_eq!((two.bytes(), pool.used()), (0, 6));
        one.resize(4).unwrap();
        two.resize(5).unwrap();
        assert_eq!(one.resize(u64::MAX), Err(PoolExhausted));
        drop(one);
        assert_eq!(pool.used(), 5);
        drop(two);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn several_passes_count_as_the_longest() {
        let pool = BytePool::new(3 << 20);
        let budget = DecodeBudget::new(LIMITS, &pool);
        let path = Path::new("list");
        let (mut first, mut second) = (budget.meter(path), budget.meter(path));
        first.add(1 << 20).unwrap();
        second.add(2 << 20).unwrap();
        assert_eq!(pool.used(), 2 << 20);
        let error = second.add(1).unwrap_err().to_string();
        assert!(
            error.starts_with("list: it takes more than 2 MiB"),
            "{error}"
        );
        let other = DecodeBudget::new(LIMITS, &pool);
        let error = other.meter(path).add(2 << 20).unwrap_err();
        assert!(matches!(error, IngestError::Busy { .. }), "{error}");
        drop((budget, first, second));
        other.meter(path).add(2 << 20).unwrap();
    }

    #[test]
    fn columns_are_counted_and_who_leaves_is_not_waited_for() {
        let budget = DecodeBudget::new(LIMITS, &BytePool::new(100));
        let path = Path::new("list");
        budget.check_columns(path, 3).unwrap();
        assert!(budget.check_columns(path, 4).is_err());
        let mut meter = budget.meter(path);
        meter.add(1).unwrap();
        budget.cancel();
        assert!(matches!(meter.add(1), Err(IngestError::Abandoned)));
        let mut free = DecodeBudget::unlimited().meter(path);
        free.add(u64::MAX).unwrap();
        free.add(u64::MAX).unwrap();
    }
}
