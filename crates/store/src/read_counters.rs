//! How many bytes of columns scans decode, and how many they find decoded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of one query, or of all scans. Bytes are those of Arrow arrays.
#[derive(Debug, Default)]
pub struct ReadCounters {
    decoded: AtomicU64,
    shared: AtomicU64,
}

impl ReadCounters {
    /// Bytes that were read from files and decoded.
    pub fn decoded(&self) -> u64 {
        self.decoded.load(Relaxed)
    }

    /// Bytes of rows that were taken from decoded blocks in memory, whoever decoded them.
    pub fn shared(&self) -> u64 {
        self.shared.load(Relaxed)
    }

    /// Notes bytes that were decoded.
    pub(crate) fn add_decoded(&self, bytes: u64) {
        self.decoded.fetch_add(bytes, Relaxed);
    }

    /// Notes bytes that were found decoded.
    pub(crate) fn add_shared(&self, bytes: u64) {
        self.shared.fetch_add(bytes, Relaxed);
    }
}
