//! How fast replicas come: no faster than they may, and how fast they came lately.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// How much later than allowed bytes may still be taken at once: what a pause has saved.
const SAVED: Duration = Duration::from_millis(200);
/// Over how long the rate is measured.
const WINDOW: Duration = Duration::from_secs(10);

/// The bytes that come, of all files together.
#[derive(Debug)]
pub(super) struct Bandwidth {
    /// Bytes a second that may come.
    most: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the next bytes may come.
    next: Instant,
    /// Bytes that have come since the start.
    bytes: u64,
    /// How many they were at some moments of the last seconds.
    marks: VecDeque<(Instant, u64)>,
}

impl Bandwidth {
    /// No more than so many bytes a second.
    pub fn new(most: Option<u64>) -> Self {
        let next = Instant::now();
        let state = State {
            next,
            bytes: 0,
            marks: VecDeque::new(),
        };
        Self {
            most,
            state: Mutex::new(state),
        }
    }

    /// Notes bytes that have come, and waits as long as it takes for the next ones to be allowed.
    pub async fn take(&self, bytes: usize) {
        let next = self.lock().take(bytes, self.most, Instant::now());
        if let Some(next) = next {
            sleep_until(next.into()).await;
        }
    }

    /// Bytes a second that have come in the last seconds. To be called about once a second.
    pub fn rate(&self) -> u64 {
        self.lock().rate(Instant::now())
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// When the next bytes may come after these.
    fn take(&mut self, bytes: usize, most: Option<u64>, now: Instant) -> Option<Instant> {
        self.bytes += bytes as u64;
        // Exact enough: a float has 15 digits.
        let takes = Duration::from_secs_f64(bytes as f64 / most?.max(1) as f64);
        let earliest = now.checked_sub(SAVED).unwrap_or(now);
        self.next = self.next.max(earliest) + takes;
        Some(self.next)
    }

    fn rate(&mut self, now: Instant) -> u64 {
        self.marks.push_back((now, self.bytes));
        while self.marks.len() > 2 && now.duration_since(self.marks[0].0) > WINDOW {
            self.marks.pop_front();
        }
        let (began, before) = self.marks[0];
        let seconds = now.duration_since(began).as_secs_f64();
        match seconds > 0.0 {
            true => ((self.bytes - before) as f64 / seconds) as u64,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1_000_000;
    const MOST: Option<u64> = Some(10 * MEGABYTE as u64);

    fn state(now: Instant) -> State {
        State {
            next: now,
            bytes: 0,
            marks: VecDeque::new(),
        }
    }

    #[test]
    fn several_files_together_come_no_faster_than_they_may() {
        let began = Instant::now();
        let mut state = state(began);
        // Four files, each of which goes on when it may.
        let mut files = [began; 4];
        for _ in 0..200 {
            files.sort();
            files[0] = state.take(MEGABYTE / 10, MOST, files[0]).unwrap();
        }
        let took = files.iter().max().unwrap().duration_since(began);
        assert!(
            (1.99..2.01).contains(&took.as_secs_f64()),
            "20 MB took {took:?}"
        );
        // What a pause has saved is a fifth of a second.
        let later = began + Duration::from_secs(60);
        let next = state.take(10 * MEGABYTE, MOST, later).unwrap();
        let took = next.duration_since(later).as_secs_f64();
        assert!((0.79..0.81).contains(&took), "10 MB took {took} s");
        assert_eq!(state.take(MEGABYTE, None, later), None);
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut now = Instant::now();
        let mut state = state(now);
        assert_eq!(state.rate(now), 0);
        for _ in 0..30 {
            state.take(5 * MEGABYTE, None, now);
            now += Duration::from_secs(1);
            state.rate(now);
        }
        assert_eq!(state.rate(now), 5 * MEGABYTE as u64);
        for _ in 0..15 {
            now += Duration::from_secs(1);
            state.rate(now);
        }
        assert_eq!(state.rate(now), 0);
    }
}
