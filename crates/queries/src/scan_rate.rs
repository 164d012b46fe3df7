//! How fast this machine scans, measured on the queries that have run.

use std::sync::Mutex;
use std::time::Duration;

use crate::registry::lock;

/// Bytes that a thread is taken to decode, filter and aggregate in a second before anything was measured.
const FIRST_RATE: f64 = 400e6;
/// The measured time for which that counts.
const FIRST_SECONDS: f64 = 0.5;
/// Measured seconds that are remembered: what was measured before them counts half.
const REMEMBERED_SECONDS: f64 = 60.0;
/// Scans that take less time tell more of beginning and ending than of scanning.
const SHORTEST: Duration = Duration::from_millis(20);

/// Bytes of decoded columns for each second of a thread.
#[derive(Debug)]
pub(crate) struct ScanRate {
    threads: f64,
    /// Bytes and seconds, each worth less the longer ago it was.
    measured: Mutex<(f64, f64)>,
}

impl ScanRate {
    /// Of a process with so many threads for scans.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1) as f64,
            measured: Mutex::new((FIRST_RATE * FIRST_SECONDS, FIRST_SECONDS)),
        }
    }

    /// Notes that a query took this time of threads for so many bytes.
    pub(crate) fn observe(&self, bytes: u64, thread_time: Duration) {
        if bytes == 0 || thread_time < SHORTEST {
            return;
        }
        let seconds = thread_time.as_secs_f64();
        let kept = 0.5_f64.powf(seconds / REMEMBERED_SECONDS);
        let mut measured = lock(&self.measured);
        measured.0 = measured.0 * kept + bytes as f64;
        measured.1 = measured.1 * kept + seconds;
    }

    /// The seconds that a query of so many bytes takes with all threads.
    pub(crate) fn seconds(&self, bytes: u64) -> f64 {
        let (known, seconds) = *lock(&self.measured);
        bytes as f64 * seconds / known / self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_takes_the_place_of_what_was_assumed() {
        let rate = ScanRate::new(4);
        assert!((rate.seconds(1_600_000_000) - 1.0).abs() < 1e-9);
        // Ten times slower, for a minute.
        for _ in 0..60 {
            rate.observe(40_000_000, Duration::from_secs(1));
        }
        let slow = rate.seconds(160_000_000);
        assert!((0.8..1.01).contains(&slow), "{slow}");
        // And ten times faster again, for ten minutes.
        for _ in 0..600 {
            rate.observe(400_000_000, Duration::from_secs(1));
        }
        let fast = rate.seconds(1_600_000_000);
        assert!((0.99..1.2).contains(&fast), "{fast}");
    }

    #[test]
    fn short_scans_are_not_measured() {
        let rate = ScanRate::new(1);
        let before = rate.seconds(1000);
        rate.observe(1, Duration::from_millis(19));
        rate.observe(0, Duration::from_secs(19));
        assert!((rate.seconds(1000) - before).abs() < 1e-15);
    }
}
