//! The pace of work that goes on beside queries: so many bytes a second, so that the disk and the cores are left to these.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::IngestError;
use crate::progress::Progress;

/// How often somebody who waits looks whether the work is cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Lets bytes pass at a rate. Threads that share one share the rate.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// When the next bytes may pass.
    next: Mutex<Instant>,
}

impl Pace {
    /// A pace of so many bytes a second; as fast as it goes if `None`.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second,
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until these bytes may pass: those before them have taken their time.
    ///
    /// # Errors
    /// The work was cancelled.
    pub(crate) fn pass(&self, bytes: u64, progress: &Progress) -> Result<(), IngestError> {
        let due = self.reserve(bytes, Instant::now());
        loop {
            if progress.is_cancelled() {
                return Err(IngestError::Cancelled);
            }
            match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None | Some(Duration::ZERO) => return Ok(()),
                Some(left) => std::thread::sleep(left.min(LONGEST_SLEEP)),
            }
        }
    }

    /// When bytes that come `now` may pass.
    fn reserve(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_second?.max(1);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // Time in which nothing came is not made up for.
        let due = (*next).max(now);
        *next = due + Duration::from_secs_f64(bytes as f64 / rate as f64);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        let pace = Pace::new(Some(1000));
        let start = Instant::now() + Duration::from_secs(10);
        let due = |bytes, after_ms| {
            let due = pace.reserve(bytes, start + Duration::from_millis(after_ms));
            due.unwrap().duration_since(start).as_millis()
        };
        assert_eq!(due(500, 0), 0);
        assert_eq!(due(250, 0), 500);
        assert_eq!(due(100, 600), 750);
        // A pause gives nobody more than the rate afterwards.
        assert_eq!(due(1000, 5000), 5000);
        assert_eq!(due(1, 5000), 6000);
        assert_eq!(Pace::new(None).reserve(1 << 40, start), None);
    }

    #[test]
    fn whoever_waits_can_be_stopped() {
        let (pace, progress) = (Pace::new(Some(1)), Progress::default());
        pace.pass(1 << 30, &progress).unwrap();
        progress.cancel();
        let stopped = pace.pass(1, &progress);
        assert!(matches!(stopped, Err(IngestError::Cancelled)));
    }
}
