//! How far the making of a catalogue has come: counters that threads add to and a display polls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counters of a catalogue that is being written. All of them only grow.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    total: AtomicU64,
    bytes: AtomicU64,
    files: AtomicU64,
    cancelled: AtomicBool,
}

/// One look at the counters.
#[derive(Debug, Clone, Copy)]
pub struct ProgressSnapshot {
    /// Rows made so far, of all tables.
    pub rows: u64,
    /// Rows to be made, where counts are exact; else about so many.
    pub total: u64,
    /// Bytes of the finished files.
    pub bytes: u64,
    /// Finished files.
    pub files: u64,
}

impl Progress {
    /// The counters now.
    pub fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            rows: self.rows.load(Relaxed),
            total: self.total.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            files: self.files.load(Relaxed),
        }
    }

    /// Asks to stop after the batches under way; no half-written file stays.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    pub(crate) fn begin(&self, total: u64) {
        self.total.store(total, Relaxed);
    }

    pub(crate) fn made(&self, rows: u64) {
        self.rows.fetch_add(rows, Relaxed);
    }

    pub(crate) fn finished(&self, bytes: u64) {
        self.files.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}
