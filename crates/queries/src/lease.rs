//! The lease that a front end has on its queries, where several share a data directory.
//!
//! A front end renews its row in the database; when the row has expired another front end removes it and takes the queries over. The
//! row has a number that no other ever gets, and every write of a query names it, so that what a front end writes after that is refused.
//! By its own clock a front end takes its lease for lost some seconds before the row expires, and stops what it runs. That clock goes on while the
//! process is stopped or the machine sleeps.

use std::sync::Mutex;
use std::time::Duration;

use catalog::since_boot;
use engine::EngineError;
use tokio_util::sync::CancellationToken;

use crate::registry::lock;

/// How long the row of a front end counts after it was renewed, in seconds.
pub(crate) const TERM: f64 = 10.0;
/// For how long a front end believes that it counts.
const BELIEVED: Duration = Duration::from_secs(8);
/// How often it is renewed.
pub(crate) const BEAT: Duration = Duration::from_secs(2);

/// A front end's right to run queries.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The number of the front end's row.
    pub front_end: u64,
    /// Until when it holds, by [`since_boot`].
    until: Mutex<Duration>,
    /// Cancelled when it is lost.
    pub lost: CancellationToken,
}

impl Lease {
    /// A lease that was asked for at a moment, by [`since_boot`].
    pub(crate) fn new(front_end: u64, asked: Duration) -> Self {
        Self {
            front_end,
            until: Mutex::new(asked + BELIEVED),
            lost: CancellationToken::new(),
        }
    }

    /// Notes that it was renewed, which was asked for at a moment.
    pub(crate) fn renewed(&self, asked: Duration) {
        *lock(&self.until) = asked + BELIEVED;
    }

    /// Whether nobody can have taken the queries over. Once it is lost it stays so.
    pub(crate) fn holds(&self) -> bool {
        if since_boot() >= *lock(&self.until) {
            self.lost.cancel();
        }
        !self.lost.is_cancelled()
    }

    /// Fails if somebody may have taken the queries over.
    pub(crate) fn expect_held(&self) -> Result<(), EngineError> {
        match self.holds() {
            true => Ok(()),
            false => Err(EngineError::storage(
                "this front end was out of touch with the list of queries: another one goes on with the query".to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_holds_until_it_is_not_renewed_or_lost() {
        let lease = Lease::new(7, since_boot());
        lease.renewed(since_boot());
        assert!(lease.holds() && lease.expect_held().is_ok());
        lease.renewed(since_boot().saturating_sub(BELIEVED));
        assert!(!lease.holds() && lease.expect_held().is_err());
        lease.renewed(since_boot());
        assert!(!lease.holds(), "what is lost does not come back");
        assert!(lease.lost.is_cancelled());
    }
}
