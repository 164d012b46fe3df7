//! The thread time of several pieces that start and stop.

use std::time::Duration;

/// Adds up thread time without a list of what runs. Times are since the scheduler started.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ThreadClock {
    running: usize,
    /// The sum of the times at which the running pieces started, in ns.
    starts: u128,
    /// The thread time of the pieces that have stopped, in ns.
    used: u128,
}

impl ThreadClock {
    /// How many pieces run.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn start(&mut self, now: Duration) {
        self.running += 1;
        self.starts += now.as_nanos();
    }

    /// A piece stops that started at `since`.
    pub(super) fn stop(&mut self, since: Duration, now: Duration) {
        debug_assert!(self.running > 0, "more pieces stop than started");
        self.running = self.running.saturating_sub(1);
        self.starts = self.starts.saturating_sub(since.as_nanos());
        self.used += now.saturating_sub(since).as_nanos();
    }

    /// The thread time so far, in ns, that of running pieces included.
    pub(super) fn nanos_until(&self, now: Duration) -> u128 {
        self.used + (now.as_nanos() * self.running as u128).saturating_sub(self.starts)
    }

    /// The thread time so far, that of running pieces included.
    pub(super) fn used_until(&self, now: Duration) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos_until(now)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_pieces_count_up_to_now() {
        let second = Duration::from_secs;
        let mut clock = ThreadClock::default();
        clock.start(second(1));
        clock.start(second(3));
        assert_eq!(
            (clock.running(), clock.used_until(second(4))),
            (2, second(4))
        );
        clock.stop(second(1), second(5));
        assert_eq!(
            (clock.running(), clock.used_until(second(6))),
            (1, second(7))
        );
        clock.stop(second(3), second(6));
        assert_eq!(
            (clock.running(), clock.used_until(second(99))),
            (0, second(7))
        );
    }
}
