//! Ranges of objects, of equal length, that were read a short while ago: a scan reads tens of kilobytes at a time, and a store takes as long
//! for these as for half a megabyte.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore};

/// Bytes of a window.
pub(super) const WINDOW: u64 = 512 << 10;
/// Windows that are kept by a process: 64 MiB.
const MOST_KEPT: usize = 128;
/// Windows that are fetched at a time.
const MOST_FETCHED: usize = 16;

/// A window, once it is fetched.
pub(super) type WindowCell = Arc<OnceCell<Bytes>>;

/// The windows of all files of a process.
#[derive(Debug)]
pub(super) struct Windows {
    kept: Mutex<Kept>,
    /// Who may fetch one.
    pub fetching: Semaphore,
    files: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    by_place: HashMap<(u64, u64), (WindowCell, u64)>,
    clock: u64,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            fetching: Semaphore::new(MOST_FETCHED),
            files: AtomicU64::new(0),
        }
    }
}

impl Windows {
    /// A number for a file whose windows are to be kept.
    pub fn new_file(&self) -> u64 {
        self.files.fetch_add(1, Relaxed)
    }

    /// A window of a file, fetched or to be fetched by whoever asks first.
    pub fn window(&self, file: u64, number: u64) -> WindowCell {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        if let Some((window, last_used)) = kept.by_place.get_mut(&(file, number)) {
            *last_used = now;
            return Arc::clone(window);
        }
        if kept.by_place.len() >= MOST_KEPT {
            let used = kept.by_place.iter();
            let oldest = used.min_by_key(|(_, (_, last_used))| *last_used);
            if let Some(oldest) = oldest.map(|(place, _)| *place) {
                kept.by_place.remove(&oldest);
            }
        }
        let window = WindowCell::default();
        kept.by_place
            .insert((file, number), (Arc::clone(&window), now));
        window
    }

    /// Whether somebody has asked for a window.
    pub fn has(&self, file: u64, number: u64) -> bool {
        self.lock().by_place.contains_key(&(file, number))
    }

    /// Forgets what was read of a file.
    pub fn forget(&self, file: u64) {
        self.lock().by_place.retain(|(of, _), _| *of != file);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Every change leaves it whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers of the windows in which a range of bytes lies.
pub(super) fn windows_of(range: &Range<u64>) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / WINDOW..range.end.div_ceil(WINDOW),
    }
}

/// The bytes of a window of a file of so many bytes.
pub(super) fn bytes_of(number: u64, bytes: u64) -> Range<u64> {
    let start = (number * WINDOW).min(bytes);
    start..(start + WINDOW).min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_a_range_and_no_more() {
        assert_eq!(windows_of(&(0..0)), 0..0);
        assert_eq!(windows_of(&(0..1)), 0..1);
        assert_eq!(windows_of(&(WINDOW - 1..WINDOW)), 0..1);
        assert_eq!(windows_of(&(WINDOW - 1..WINDOW + 1)), 0..2);
        assert_eq!(bytes_of(1, WINDOW + 7), WINDOW..WINDOW + 7);
        assert_eq!(bytes_of(0, 7), 0..7);
        assert!(bytes_of(3, 7).is_empty());
    }

    #[test]
    fn the_windows_that_were_used_last_are_kept() {
        let windows = Windows::default();
        let (file, other) = (windows.new_file(), windows.new_file());
        let first = windows.window(file, 0);
        windows.window(other, 0);
        for number in 1..MOST_KEPT as u64 {
            windows.window(file, number);
            assert!(Arc::ptr_eq(&first, &windows.window(file, 0)));
        }
        assert!(!windows.has(other, 0) && windows.has(file, 1));
        windows.forget(file);
        assert!(!windows.has(file, 0));
    }
}
