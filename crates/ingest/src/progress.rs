//! How far a load has come: counters that the loader's threads add to and a display polls.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// What a load is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Phase {
    /// Looking at the files: formats, columns, partitioning.
    Preparing,
    /// Copying what can be read only once, such as standard input.
    Receiving,
    /// Reading the files and sorting their rows into runs.
    Reading,
    /// Finding duplicate keys and writing the index.
    Indexing,
    /// Writing the chunk files.
    Writing,
    /// Making the table visible.
    Publishing,
}

impl Phase {
    /// A word for the display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Receiving => "receiving",
            Self::Reading => "reading",
            Self::Indexing => "indexing",
            Self::Writing => "writing chunks",
            Self::Publishing => "publishing",
        }
    }

    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Preparing,
            1 => Self::Receiving,
            2 => Self::Reading,
            3 => Self::Indexing,
            4 => Self::Writing,
            _ => Self::Publishing,
        }
    }
}

/// Counters of a running load. All of them only grow within a phase.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    rows: AtomicU64,
    bytes: AtomicU64,
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

/// One look at the counters.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ProgressSnapshot {
    /// The current phase.
    pub phase: Phase,
    /// Rows read so far.
    pub rows: u64,
    /// Bytes of text or columns decoded so far.
    pub bytes: u64,
    /// Work done in this phase (bytes while receiving, bytes of the files while reading, rows while writing).
    pub done: u64,
    /// Work in this phase altogether; 0 when not known.
    pub total: u64,
}

impl Progress {
    /// The counters now.
    pub fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            phase: Phase::from_u8(self.phase.load(Relaxed)),
            rows: self.rows.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            done: self.done.load(Relaxed),
            total: self.total.load(Relaxed),
        }
    }

    /// Shows how far a load is that runs in another process.
    pub fn show(&self, now: &ProgressSnapshot) {
        self.phase.store(now.phase as u8, Relaxed);
        self.rows.store(now.rows, Relaxed);
        self.bytes.store(now.bytes, Relaxed);
        self.done.store(now.done, Relaxed);
        self.total.store(now.total, Relaxed);
    }

    /// Asks the load to stop; it ends with an error and leaves nothing visible.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    pub(crate) fn enter(&self, phase: Phase, total: u64) {
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    pub(crate) fn read(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn advance(&self, done: u64) {
        self.done.fetch_add(done, Relaxed);
    }
}
