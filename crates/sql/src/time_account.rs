//! The processor time that the statements of one user take together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::{ErrorCode, SqlError};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// The processor time that this thread has taken since it began.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

/// What the work of one user has taken of the day's processor time, and may take, in nanoseconds.
#[derive(Debug)]
pub struct TimeAccount {
    used: AtomicU64,
    most: AtomicU64,
}

impl Default for TimeAccount {
    fn default() -> Self {
        Self {
            used: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
        }
    }
}

impl TimeAccount {
    /// Sets how much may be taken in a day; `None` for any.
    pub fn set_most(&self, most: Option<Duration>) {
        self.most.store(most.map_or(u64::MAX, nanos), Relaxed);
    }

    /// What was taken of this day.
    pub fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Relaxed))
    }

    /// Adds what was taken.
    pub fn charge(&self, time: Duration) {
        self.used.fetch_add(nanos(time), Relaxed);
    }

    /// Takes back what belongs to another day.
    pub fn forget(&self, time: Duration) {
        let forget = |used: u64| Some(used.saturating_sub(nanos(time)));
        // The closure never declines.
        let _ = self.used.fetch_update(Relaxed, Relaxed, forget);
    }

    /// Succeeds while less is taken than may be.
    ///
    /// # Errors
    /// All is taken.
    pub fn check(&self) -> Result<(), SqlError> {
        let (used, most) = (self.used.load(Relaxed), self.most.load(Relaxed));
        if used < most {
            return Ok(());
        }
        let seconds = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
        let sentence = format!(
            "you have used {:.1} of the {} seconds of processor time that you may use in a day (UTC): wait until midnight, select less, or ask the operator for more; SHOW LIMITS tells all limits",
            seconds(used),
            seconds(most)
        );
        Err(SqlError::new(sentence)
            .with_code(ErrorCode::LIMIT_REACHED)
            .with_retry_after(until_midnight()))
    }

    /// A future whose polls are charged.
    pub fn charged<F: Future>(self: &Arc<Self>, future: F) -> ChargedFuture<F> {
        ChargedFuture {
            account: Arc::clone(self),
            future: Box::pin(future),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time until the next day of UTC begins.
fn until_midnight() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    Duration::from_secs(DAY - seconds % DAY)
}

/// A future whose polls are charged to an account: for work of one thread that has no interrupt of its own.
#[derive(Debug)]
pub struct ChargedFuture<F> {
    account: Arc<TimeAccount>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for ChargedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begun = thread_time();
        let polled = self.future.as_mut().poll(context);
        self.account.charge(thread_time().saturating_sub(begun));
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupt;

    /// Computes until this thread has taken so much time, however long others have the processor.
    fn compute(time: Duration) {
        let begun = thread_time();
        while thread_time().saturating_sub(begun) < time {
            std::hint::spin_loop();
        }
    }

    const SOME: Duration = Duration::from_millis(20);

    #[test]
    fn work_is_charged_to_whoever_it_is_for() {
        let (ann, bob) = (
            Arc::new(TimeAccount::default()),
            Arc::new(TimeAccount::default()),
        );
        let of_ann = Interrupt::for_account(&ann);
        {
            let _entered = of_ann.enter();
            compute(SOME);
            // What the work begins by itself is for the same.
            let _inner = Interrupt::new().enter();
            compute(SOME);
            let of_bob = Interrupt::for_account(&bob);
            let _bob = of_bob.enter();
            compute(SOME);
        }
        compute(SOME);
        assert!(ann.used() >= 2 * SOME, "{:?}", ann.used());
        assert!(
            bob.used() >= SOME && bob.used() < ann.used(),
            "{:?}",
            bob.used()
        );
        let before = ann.used();
        compute(SOME);
        drop(Interrupt::new().enter());
        assert_eq!(ann.used(), before);
    }

    #[test]
    fn work_ends_when_all_is_taken() {
        let account = Arc::new(TimeAccount::default());
        account.set_most(Some(SOME));
        let interrupt = Interrupt::for_account(&account);
        drop(interrupt.enter());
        assert!(interrupt.check().is_ok() && account.check().is_ok());
        {
            let _entered = interrupt.enter();
            compute(SOME);
        }
        let told = interrupt.check().unwrap_err();
        let datafusion::common::DataFusionError::External(told) = told else {
            panic!("{told}");
        };
        let told: &SqlError = told.downcast_ref().unwrap();
        assert_eq!(told.code(), ErrorCode::LIMIT_REACHED);
        assert!(told.to_string().contains("of the 0.02 seconds"), "{told}");
        assert!(
            told.retry_after()
                .is_some_and(|it| it <= Duration::from_secs(DAY))
        );
        // The next day.
        account.forget(account.used());
        assert!(account.check().is_ok());
        account.set_most(Some(Duration::ZERO));
        assert!(account.check().is_err());
        account.set_most(None);
        assert!(account.check().is_ok());
    }
}
