//! Which front end decides what workers hold: the leader, by a lease that has an epoch.
//!
//! 1. The epoch of a lease is higher than that of every lease before it, and an assignment goes to workers with the epoch of its leader.
//! 2. A worker follows no assignment of an older epoch than that of the one which it follows.
//! 3. By its own clock a leader takes its lease for lost some seconds before another front end may have one, and says nothing after that. That
//!    clock goes on while the process is stopped or the machine sleeps.
//! 4. A leader counts on what a worker holds only once that has acknowledged an assignment of the leader's own epoch
//!    ([`super::orders`]): what an earlier leader told it does not count any more then, by rule 2.
//!
//! So a front end that was asleep has no worker give a file up, whatever it still sends. Where the catalog is in SQLite there is one front end,
//! which always leads.

use std::sync::Mutex;
use std::time::Duration;

use catalog::since_boot;

use super::lock;

/// How long the lease of a leader counts after it was renewed, in seconds.
pub(super) const TERM: f64 = 8.0;
/// For how long the leader believes that it counts.
const BELIEVED: Duration = Duration::from_secs(6);
/// Beyond this a worker's epoch is no number of a lease.
const HIGHEST: u64 = 1 << 62;

/// A front end's right to decide what workers hold.
#[derive(Debug)]
pub(super) struct Leadership {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    /// The highest epoch that a worker was heard to follow.
    heard: u64,
}

#[derive(Debug, Clone, Copy)]
enum Lease {
    /// There is no other front end.
    Alone { epoch: u64 },
    /// Another front end leads, or nobody.
    None,
    /// Until a time by [`since_boot`].
    Held { epoch: u64, until: Duration },
}

impl Leadership {
    /// That of a front end which is alone.
    pub fn alone() -> Self {
        Self::with(Lease::Alone { epoch: 0 })
    }

    /// That of one of several, which does not lead yet.
    pub fn among_others() -> Self {
        Self::with(Lease::None)
    }

    fn with(lease: Lease) -> Self {
        Self {
            state: Mutex::new(State { lease, heard: 0 }),
        }
    }

    /// The epoch in which this front end leads; `None` if it does not.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch_at(since_boot())
    }

    fn epoch_at(&self, now: Duration) -> Option<u64> {
        match lock(&self.state).lease {
            Lease::Alone { epoch } => Some(epoch),
            Lease::Held { epoch, until } if now < until => Some(epoch),
            Lease::Held { .. } | Lease::None => None,
        }
    }

    /// Notes which epoch a worker follows. The archive may have had other front ends before, whose epochs were counted elsewhere: workers that run
    /// since then follow no lower one.
    pub fn note_epoch(&self, epoch: u64) {
        let mut state = lock(&self.state);
        if epoch > HIGHEST || epoch <= state.heard {
            return;
        }
        state.heard = epoch;
        if let Lease::Alone { epoch: own } = &mut state.lease
            && *own < epoch
        {
            *own = epoch + 1;
        }
    }

    /// The highest epoch that a worker was heard to follow.
    pub fn heard(&self) -> u64 {
        lock(&self.state).heard
    }

    /// Notes that the lease of an epoch was taken or renewed, which was asked for at a time by [`since_boot`].
    pub fn hold(&self, epoch: u64, asked: Duration) {
        lock(&self.state).lease = Lease::Held {
            epoch,
            until: asked + BELIEVED,
        };
    }

    /// Notes that another front end leads, or nobody.
    pub fn lose(&self) {
        lock(&self.state).lease = Lease::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_lost_before_another_front_end_may_have_one() {
        let leadership = Leadership::among_others();
        assert_eq!(leadership.epoch(), None);
        let asked = Duration::from_secs(1000);
        leadership.hold(7, asked);
        let shortly_before = asked + BELIEVED - Duration::from_millis(1);
        assert_eq!(leadership.epoch_at(shortly_before), Some(7));
        assert_eq!(leadership.epoch_at(asked + BELIEVED), None);
        assert!(BELIEVED.as_secs_f64() < TERM);
        leadership.hold(7, asked + BELIEVED / 2);
        assert_eq!(leadership.epoch_at(asked + BELIEVED), Some(7));
        leadership.lose();
        assert_eq!(leadership.epoch_at(asked), None);
    }

    /// An archive whose catalog moves from PostgreSQL back to SQLite has workers that run on.
    #[test]
    fn one_that_is_alone_leads_in_an_epoch_that_workers_follow() {
        let leadership = Leadership::alone();
        assert_eq!(leadership.epoch(), Some(0));
        leadership.note_epoch(0);
        assert_eq!(leadership.epoch(), Some(0));
        leadership.note_epoch(5);
        assert_eq!(leadership.epoch(), Some(6));
        for known in [3, 5, 6, u64::MAX] {
            leadership.note_epoch(known);
            assert_eq!(leadership.epoch(), Some(6));
        }
    }
}
