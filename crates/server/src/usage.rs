//! What each user takes of the server at the moment, and what each may take.
//!
//! A limit that is reached is an error with MySQL's number 1226, over HTTP 429 with the time after which to try again. It names the limit,
//! the present use and what helps.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::queries::{ClassPlaces, QueryError};
use ::users::{DailyUsage, Limit, Limits, UsersError};
use sql::connection::LimitInfo;
use sql::{ErrorCode, TimeAccount};

use crate::ClientError;

/// After what time whoever has reached a limit of what runs may try again.
const RETRY: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// What users take, by their names.
#[derive(Debug, Default)]
pub(crate) struct Usages {
    users: Mutex<HashMap<String, Arc<Usage>>>,
    /// What users had taken of this day's processor time when the server began, in nanoseconds.
    before: HashMap<String, u64>,
}

impl Usages {
    /// With what users have taken of this day's processor time.
    pub(crate) fn beginning_with(before: HashMap<String, u64>) -> Self {
        Self {
            users: Mutex::default(),
            before,
        }
    }

    /// What a user takes, with the limits as they are now.
    pub(crate) fn of(&self, user: &str, limits: &Limits) -> Arc<Usage> {
        let usage = self.find(user);
        *lock(&usage.limits) = *limits;
        let most = limits.get(Limit::Cpu).map(Duration::from_secs);
        usage.time.set_most(most);
        usage
    }

    fn find(&self, user: &str) -> Arc<Usage> {
        let mut users = lock(&self.users);
        let usage = users.entry(user.to_owned()).or_insert_with(|| {
            let usage = Usage::default();
            let before = self.before.get(user).copied().unwrap_or(0);
            usage.time.charge(Duration::from_nanos(before));
            *lock(&usage.written) = before;
            Arc::new(usage)
        });
        Arc::clone(usage)
    }

    /// To whom the processor time of a user's work is charged.
    pub(crate) fn account(&self, user: &str) -> Arc<TimeAccount> {
        Arc::clone(&self.find(user).time)
    }

    /// Writes down what users have taken of a day's processor time since it was last written down. If the day is over, they have taken
    /// nothing of the next one.
    ///
    /// # Errors
    /// It cannot be written: then it is the next time.
    pub(crate) async fn write_down(
        &self,
        file: &DailyUsage,
        day: i64,
        is_over: bool,
    ) -> Result<(), UsersError> {
        let usages = lock(&self.users).clone();
        let (mut concerned, mut taken) = (Vec::new(), Vec::new());
        for (user, usage) in usages {
            let used = nanos(usage.time.used());
            let more = used.saturating_sub(*lock(&usage.written));
            if more > 0 || is_over {
                concerned.push((usage, used));
                taken.push((user, more));
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        let totals = file.add(day, &taken).await?;
        for ((usage, used), total) in concerned.into_iter().zip(totals) {
            if is_over {
                usage.time.forget(Duration::from_nanos(used));
                *lock(&usage.written) = 0;
                continue;
            }
            // What other servers have counted.
            usage
                .time
                .charge(Duration::from_nanos(total.saturating_sub(used)));
            *lock(&usage.written) = total;
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What one user takes.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    limits: Mutex<Limits>,
    connections: AtomicU64,
    queries: AtomicU64,
    interactive: AtomicU64,
    scans: AtomicU64,
    requests: Mutex<Requests>,
    /// The processor time of this day.
    time: Arc<TimeAccount>,
    /// What of it is written down, in nanoseconds.
    written: Mutex<u64>,
}

/// The requests of the last minute, as a store of requests that fills up evenly.
#[derive(Debug, Default)]
struct Requests {
    /// How many were taken of it, when that was last computed.
    taken: f64,
    at: Option<Instant>,
}

impl Requests {
    /// How many are taken now, where `most` come back in a minute.
    fn taken(&self, most: u64, now: Instant) -> f64 {
        let since = self
            .at
            .map_or(MINUTE, |at| now.saturating_duration_since(at));
        (self.taken - most as f64 * since.as_secs_f64() / MINUTE.as_secs_f64()).max(0.0)
    }

    /// Takes one; else the time after which there is one again.
    fn take(&mut self, most: u64, now: Instant) -> Result<(), Duration> {
        let taken = self.taken(most, now);
        if taken + 1.0 > most as f64 {
            let missing = taken + 1.0 - most as f64;
            let seconds = missing * MINUTE.as_secs_f64() / most.max(1) as f64;
            return Err(Duration::from_secs_f64(seconds));
        }
        (self.taken, self.at) = (taken + 1.0, Some(now));
        Ok(())
    }
}

/// Something that a user takes until this is dropped.
#[derive(Debug)]
pub(crate) struct TakenShare {
    usage: Arc<Usage>,
    limit: Limit,
}

impl Drop for TakenShare {
    fn drop(&mut self) {
        if let Some(counter) = self.usage.counter(self.limit) {
            counter.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Usage {
    /// A limit; `None` if there is none.
    pub(crate) fn limit(&self, limit: Limit) -> Option<u64> {
        lock(&self.limits).get(limit)
    }

    fn counter(&self, limit: Limit) -> Option<&AtomicU64> {
        match limit {
            Limit::Connections => Some(&self.connections),
            Limit::Queries => Some(&self.queries),
            Limit::Interactive => Some(&self.interactive),
            Limit::Scans => Some(&self.scans),
            _ => None,
        }
    }

    fn take(self: &Arc<Self>, limit: Limit, remedy: &str) -> Result<TakenShare, ClientError> {
        let most = self.limit(limit).unwrap_or(u64::MAX);
        let more = |counter: &AtomicU64| {
            counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < most).then_some(taken + 1)
            })
        };
        match self.counter(limit).map(more) {
            Some(Err(taken)) => Err(reached(limit, taken, most, remedy)),
            _ => Ok(TakenShare {
                usage: Arc::clone(self),
                limit,
            }),
        }
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn connection(self: &Arc<Self>) -> Result<TakenShare, ClientError> {
        self.take(Limit::Connections, "close one of them")
    }

    /// Takes a query whose client waits.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn query(self: &Arc<Self>) -> Result<TakenShare, ClientError> {
        self.check_time()?;
        self.take(
            Limit::Queries,
            "wait until one of them has ended, or end one (SHOW PROCESSLIST, KILL)",
        )
    }

    /// Takes a query whose client waits and that touches few chunks, beside its place among all queries.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn interactive(self: &Arc<Self>) -> Result<TakenShare, ClientError> {
        self.take(
            Limit::Interactive,
            "wait until one of them has ended, or end one (SHOW PROCESSLIST, KILL)",
        )
    }

    /// Takes a scan whose client waits, beside its place among all queries.
    ///
    /// # Errors
    /// The limit is reached.
    fn scan(self: &Arc<Self>) -> Result<TakenShare, ClientError> {
        self.take(
            Limit::Scans,
            "wait until one of them has ended, end one (SHOW PROCESSLIST, KILL), put SUBMIT before this one, or restrict it to a small part of the sky",
        )
    }

    /// Takes an HTTP request.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn request(&self) -> Result<(), ClientError> {
        let Some(most) = self.limit(Limit::Requests) else {
            return Ok(());
        };
        let mut requests = lock(&self.requests);
        requests.take(most, Instant::now()).map_err(|after| {
            let sentence = format!(
                "you have sent the {most} requests that you may send in a minute: the next one may come in {:.1} s",
                after.as_secs_f64()
            );
            ClientError::new(ErrorCode::LIMIT_REACHED, sentence).retried_after(after)
        })
    }

    /// Succeeds while the user may take more of this day's processor time.
    ///
    /// # Errors
    /// All is taken.
    pub(crate) fn check_time(&self) -> Result<(), ClientError> {
        Ok(self.time.check()?)
    }

    /// To whom the processor time of the user's work is charged.
    pub(crate) fn time(&self) -> &Arc<TimeAccount> {
        &self.time
    }

    /// How long a statement may take.
    pub(crate) fn seconds(&self) -> Option<Duration> {
        self.limit(Limit::Seconds).map(Duration::from_secs)
    }

    /// The smaller of the rows that a client wants and those that it may have.
    pub(crate) fn rows_within(&self, wanted: Option<u64>) -> Option<u64> {
        match (wanted, self.limit(Limit::Rows)) {
            (Some(wanted), Some(most)) => Some(wanted.min(most)),
            (wanted, most) => wanted.or(most),
        }
    }

    /// All limits, with what is taken of them as far as it is known here.
    pub(crate) fn infos(&self) -> Vec<LimitInfo> {
        let limits = *lock(&self.limits);
        let info = |limit: Limit| LimitInfo {
            name: limit.name(),
            most: limits.get(limit),
            used: match limit {
                Limit::Requests => limits.get(limit).map(|most| {
                    let taken = lock(&self.requests).taken(most, Instant::now());
                    taken.ceil() as u64
                }),
                Limit::Cpu => Some(self.time.used().as_secs()),
                limit => { self.counter(limit) }.map(|it| it.load(Ordering::Acquire)),
            },
            stored_in: None,
            meaning: limit.meaning().into(),
        };
        let of_users = Limit::ALL.into_iter().filter(|limit| !limit.is_of_groups());
        of_users.map(info).collect()
    }
}

/// The places of a user's queries by their classes.
#[derive(Debug)]
pub(crate) struct UserPlaces(pub(crate) Arc<Usage>);

impl ClassPlaces for UserPlaces {
    fn take(&self, is_interactive: bool) -> Result<Box<dyn Any + Send + Sync>, QueryError> {
        let taken = match is_interactive {
            true => self.0.interactive(),
            false => self.0.scan(),
        };
        Ok(Box::new(taken?))
    }
}

/// The error of a limit that is reached.
pub(crate) fn reached(limit: Limit, used: u64, most: u64, remedy: &str) -> ClientError {
    limit_reached(limit.meaning(), used, most, remedy)
}

/// The same of a limit with this meaning.
pub(crate) fn limit_reached(meaning: &str, used: u64, most: u64, remedy: &str) -> ClientError {
    let sentence =
        format!("you have {used} of {most} {meaning}: {remedy}; SHOW LIMITS tells all limits");
    ClientError::new(ErrorCode::LIMIT_REACHED, sentence).retried_after(RETRY)
}

/// A panic in another thread leaves these whole, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(limits: &[(Limit, u64)]) -> Arc<Usage> {
        let mut set = Limits::default();
        for (limit, most) in limits {
            set.set(*limit, Some(*most));
        }
        Usages::default().of("ann", &set)
    }

    #[test]
    fn what_runs_is_counted_until_it_ends() {
        let usage = usage(&[(Limit::Queries, 2)]);
        let first = usage.query().unwrap();
        let _second = usage.query().unwrap();
        let error = usage.query().unwrap_err();
        assert_eq!(error.code.number, 1226);
        assert!(
            error.sentence.starts_with("you have 2 of 2 queries"),
            "{error}"
        );
        assert!(error.retry_after.is_some());
        drop(first);
        let _third = usage.query().unwrap();
        assert!(usage.query().is_err());
        // No limit, no error; the use is known all the same.
        let many: Vec<TakenShare> = (0..100).map(|_| usage.connection().unwrap()).collect();
        let infos = usage.infos();
        assert_eq!((infos[0].most, infos[0].used), (None, Some(100)));
        assert_eq!((infos[1].most, infos[1].used), (Some(2), Some(2)));
        drop(many);
        assert_eq!(usage.infos()[0].used, Some(0));
    }

    #[test]
    fn classes_have_places_of_their_own() {
        let usage = usage(&[(Limit::Interactive, 2), (Limit::Scans, 1)]);
        let places = UserPlaces(Arc::clone(&usage));
        let scan = places.take(false).unwrap();
        let _few = [places.take(true).unwrap(), places.take(true).unwrap()];
        for (is_interactive, used, remedy) in [
            (true, "2 of 2 interactive", "KILL"),
            (false, "1 of 1 scans", "SUBMIT"),
        ] {
            let error = places.take(is_interactive).unwrap_err();
            assert_eq!(error.code.number, 1226);
            assert!(
                error.sentence.starts_with(&format!("you have {used}")),
                "{error}"
            );
            assert!(error.sentence.contains(remedy), "{error}");
            assert!(error.retry_after.is_some());
        }
        drop(scan);
        assert!(places.take(false).is_ok() && places.take(true).is_err());
    }

    #[test]
    fn limits_change_while_users_are_served() {
        let usages = Usages::default();
        let mut limits = Limits::default();
        let usage = usages.of("ann", &limits);
        let _one = usage.query().unwrap();
        limits.set(Limit::Queries, Some(1));
        assert!(Arc::ptr_eq(&usage, &usages.of("ann", &limits)));
        assert!(usage.query().is_err());
        assert!(usages.of("bob", &Limits::default()).query().is_ok());
    }

    #[test]
    fn requests_come_back_evenly() {
        let mut requests = Requests::default();
        let begin = Instant::now();
        for _ in 0..60 {
            requests.take(60, begin).unwrap();
        }
        let after = requests.take(60, begin).unwrap_err();
        assert!((after.as_secs_f64() - 1.0).abs() < 1e-6, "{after:?}");
        let later = begin + Duration::from_secs(2);
        assert!(requests.take(60, later).is_ok() && requests.take(60, later).is_ok());
        assert!(requests.take(60, later).is_err());
        assert!(requests.take(60, begin + Duration::from_secs(600)).is_ok());
        assert!(Requests::default().take(0, begin).is_err());
    }
}
