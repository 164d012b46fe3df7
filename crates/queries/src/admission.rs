//! The admission of one query: what it will read and how long that takes is noted, a blocking query that would take too long is
//! rejected, and one that gathers rows waits for its least share of memory.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{EngineError, ScanEstimate};
use futures::future::{BoxFuture, FutureExt};
use sql::{ErrorCode, Interrupt};

use crate::QueryError;
use crate::memory_gate::{MemoryGate, MemoryShare};
use crate::record::QueryRecord;
use crate::registry::lock;
use crate::scan_rate::ScanRate;

/// What a query was expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ExpectedCost {
    /// Bytes of columns that it decodes.
    pub bytes: u64,
    /// The time that it takes by itself.
    pub time: Duration,
    /// Whether the query's user may not be told.
    pub is_veiled: bool,
}

/// Admits one query.
#[derive(Debug)]
pub(crate) struct QueryAdmission {
    rate: Arc<ScanRate>,
    /// The longest time that is admitted.
    longest: Option<Duration>,
    expected: Mutex<Option<ExpectedCost>>,
    /// Where it waits for memory; a query that is only looked at waits for none.
    gate: Option<Arc<MemoryGate>>,
    memory: Mutex<MemoryState>,
    /// The places of its user's queries; of a submitted one none is taken.
    places: Option<Arc<dyn ClassPlaces>>,
    /// The place that it has.
    place: Mutex<Option<ClassPlace>>,
}

/// How many queries of a class a user may have that run while their clients wait.
pub trait ClassPlaces: fmt::Debug + Send + Sync {
    /// Takes a place for a query that touches few chunks, or for a scan. It is given back when what is returned is dropped.
    ///
    /// # Errors
    /// All are taken.
    fn take(&self, is_interactive: bool) -> Result<Box<dyn Any + Send + Sync>, QueryError>;
}

/// A place of a class.
#[derive(Debug)]
struct ClassPlace {
    is_interactive: bool,
    _taken: Box<dyn Any + Send + Sync>,
}

/// What a query has of the memory.
#[derive(Debug, Default)]
enum MemoryState {
    #[default]
    Unasked,
    /// It waits, or has waited in vain, with this ticket.
    Waiting(u64),
    Held(MemoryShare),
    /// It has ended.
    GivenBack,
}

impl QueryAdmission {
    pub(crate) fn new(rate: &Arc<ScanRate>, longest: Option<Duration>) -> Self {
        Self {
            rate: Arc::clone(rate),
            longest,
            expected: Mutex::default(),
            gate: None,
            memory: Mutex::default(),
            places: None,
            place: Mutex::default(),
        }
    }

    /// The same for a query that runs.
    pub(crate) fn with_memory(self, gate: &Arc<MemoryGate>) -> Self {
        Self {
            gate: Some(Arc::clone(gate)),
            ..self
        }
    }

    /// The same for a query that takes a place of its class.
    pub(crate) fn with_places(self, places: Option<Arc<dyn ClassPlaces>>) -> Self {
        Self { places, ..self }
    }

    /// Gives back what the query has: it has ended.
    pub(crate) fn end(&self) {
        drop(lock(&self.place).take());
        self.give_back();
    }

    /// The query's place among those that wait for memory, from 1 on.
    pub(crate) fn place(&self) -> Option<u64> {
        match &*lock(&self.memory) {
            MemoryState::Waiting(ticket) => self.gate.as_ref()?.place(*ticket),
            _ => None,
        }
    }

    /// Whether the query waits for memory, or has waited until it was ended.
    pub(crate) fn has_waited(&self) -> bool {
        matches!(&*lock(&self.memory), MemoryState::Waiting(_))
    }

    /// Gives the memory back.
    fn give_back(&self) {
        // The gate admits others, which is not to be done under the lock.
        let before = {
            let mut memory = lock(&self.memory);
            match &*memory {
                MemoryState::Held(_) => std::mem::replace(&mut *memory, MemoryState::GivenBack),
                _ => return,
            }
        };
        drop(before);
    }

    async fn wait_for(&self, gate: &Arc<MemoryGate>, bytes: u64) -> Result<(), EngineError> {
        let mut place = gate.request(bytes);
        *lock(&self.memory) = MemoryState::Waiting(place.ticket());
        let share = match self.longest {
            None => place.admitted().await,
            Some(longest) => match tokio::time::timeout(longest, place.admitted()).await {
                Ok(share) => share,
                Err(_) => {
                    let at = gate.place(place.ticket()).unwrap_or(1);
                    return Err(has_waited_too_long(longest, at, gate.bytes()).into());
                }
            },
        };
        if let Some(share) = share {
            promise(share.bytes());
            *lock(&self.memory) = MemoryState::Held(share);
        }
        Ok(())
    }

    /// What the query was expected to take, once it was planned.
    pub(crate) fn expected(&self) -> Option<ExpectedCost> {
        *lock(&self.expected)
    }

    /// Puts what the query was expected to take into what is known of it.
    pub(crate) fn note(&self, record: &mut QueryRecord) {
        if let Some(expected) = self.expected() {
            record.scan_bytes = expected.bytes;
            record.estimate = u64::try_from(expected.time.as_millis()).ok();
            record.is_veiled = expected.is_veiled;
        }
    }

    /// Notes how long it took for a part of what it reads: `done` of `all` pieces.
    pub(crate) fn observe(&self, thread_time: Duration, done: u64, all: u64) {
        if let Some(expected) = self.expected().filter(|_| all > 0) {
            let bytes = expected.bytes as f64 * (done as f64 / all as f64).min(1.0);
            self.rate.observe(bytes as u64, thread_time);
        }
    }
}

impl engine::Admission for QueryAdmission {
    fn admit(&self, estimate: &ScanEstimate) -> Result<(), EngineError> {
        let bytes = estimate.bytes();
        let time = Duration::try_from_secs_f64(self.rate.seconds(bytes)).unwrap_or(Duration::MAX);
        let is_veiled = estimate.is_veiled;
        *lock(&self.expected) = Some(ExpectedCost {
            bytes,
            time,
            is_veiled,
        });
        match self.longest {
            Some(longest) if time > longest => {
                Err(takes_too_long((!is_veiled).then_some(time), longest).into())
            }
            _ => self.take_place(estimate.is_interactive()),
        }
    }

    fn take_place(&self, is_interactive: bool) -> Result<(), EngineError> {
        let Some(places) = &self.places else {
            return Ok(());
        };
        let mut place = lock(&self.place);
        let is_same = |it: &ClassPlace| it.is_interactive == is_interactive;
        if !place.as_ref().is_some_and(is_same) {
            *place = Some(ClassPlace {
                is_interactive,
                _taken: places.take(is_interactive)?,
            });
        }
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> BoxFuture<'_, Result<(), EngineError>> {
        let is_first = matches!(&*lock(&self.memory), MemoryState::Unasked);
        match &self.gate {
            Some(gate) if bytes > 0 && is_first => self.wait_for(gate, bytes).boxed(),
            _ => std::future::ready(Ok(())).boxed(),
        }
    }

    fn has_share(&self) -> bool {
        matches!(&*lock(&self.memory), MemoryState::Held(_))
    }

    fn reserve_all(&self) -> BoxFuture<'_, Result<bool, EngineError>> {
        let has_less = match &*lock(&self.memory) {
            MemoryState::Held(share) => !share.is_all(),
            _ => false,
        };
        let Some(gate) = self.gate.as_ref().filter(|_| has_less) else {
            return std::future::ready(Ok(false)).boxed();
        };
        async move {
            promise(0);
            self.give_back();
            self.wait_for(gate, gate.bytes()).await?;
            Ok(self.has_share())
        }
        .boxed()
    }
}

/// Promises the statement of this thread so much memory.
fn promise(bytes: u64) {
    if let Some(statement) = Interrupt::current() {
        statement.promise(bytes);
    }
}

/// What is said of a query that was ended while it waited for memory.
pub(crate) const WAITED_FOR_MEMORY: &str = "it waited for memory, which other statements have (--memory): try it again when fewer of them run, \
                                            or put SUBMIT before it to have it wait without the connection";

fn has_waited_too_long(longest: Duration, place: u64, bytes: u64) -> QueryError {
    let sentence = format!(
        "the query has waited for memory for {}, as long as a connection may wait (--max-blocking), and is at place {place} of those that \
         wait; the sorts, groups and joins of all statements together may hold {} MiB (--memory): try it again when fewer of them run, or put \
         SUBMIT before it to have it wait without the connection",
        spelled(longest),
        bytes >> 20
    );
    QueryError::new(ErrorCode::OUT_OF_RESOURCES, sentence)
}

fn takes_too_long(time: Option<Duration>, longest: Duration) -> QueryError {
    let time = time.map(|time| format!(" about {},", spelled(time)));
    let sentence = format!(
        "the query would take{} longer than a connection may wait (--max-blocking {}): put SUBMIT before it to run it without \
         the connection, or restrict it to a part of the sky",
        time.unwrap_or_default(),
        spelled(longest)
    );
    QueryError::new(ErrorCode::LIMIT_REACHED, sentence)
}

/// A time in the largest unit of which it has at least one.
fn spelled(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        s @ 1..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Admission, TableEstimate};

    fn estimate(bytes: u64) -> ScanEstimate {
        let table = TableEstimate {
            table: "sky.Source".to_owned(),
            columns: vec!["ra".to_owned()],
            chunks: 9,
            of_chunks: 9,
            rows: bytes / 8,
            bytes,
        };
        ScanEstimate {
            tables: vec![table],
            pieces: 9,
            chunks: 9,
            rating: 1,
            memory: 0,
            is_veiled: false,
        }
    }

    #[test]
    fn a_query_that_takes_too_long_is_rejected_with_what_to_do() {
        let rate = Arc::new(ScanRate::new(1));
        let admission = QueryAdmission::new(&rate, Some(Duration::from_secs(60)));
        admission.admit(&estimate(400_000_000)).unwrap();
        assert_eq!(admission.expected().unwrap().time, Duration::from_secs(1));
        let error = admission.admit(&estimate(400_000_000 * 300)).unwrap_err();
        let sentence = error.to_string();
        assert!(
            sentence.contains("about 5 min") && sentence.contains("SUBMIT"),
            "{sentence}"
        );
        assert_eq!(error.code(), ErrorCode::LIMIT_REACHED);
        let unlimited = QueryAdmission::new(&rate, None);
        unlimited.admit(&estimate(u64::MAX / 4)).unwrap();
    }

    #[test]
    fn what_a_part_of_the_pieces_took_changes_the_rate() {
        let rate = Arc::new(ScanRate::new(1));
        let admission = QueryAdmission::new(&rate, None);
        admission.observe(Duration::from_secs(9), 1, 1);
        assert!(
            (rate.seconds(400_000_000) - 1.0).abs() < 1e-9,
            "nothing was expected"
        );
        admission.admit(&estimate(4_000_000_000)).unwrap();
        // Half of it took ten times as long as it was expected to.
        admission.observe(Duration::from_secs(50), 5, 10);
        assert!(rate.seconds(400_000_000) > 5.0);
    }

    #[tokio::test]
    async fn a_query_waits_for_its_share_and_no_longer_than_it_may() {
        let rate = Arc::new(ScanRate::new(1));
        let gate = MemoryGate::new(100 << 20);
        let admission = |longest| QueryAdmission::new(&rate, longest).with_memory(&gate);
        let first = admission(None);
        first.reserve(80 << 20).await.unwrap();
        // It has what it needs already.
        first.reserve(80 << 20).await.unwrap();
        let second = admission(Some(Duration::from_millis(300)));
        let third = Arc::new(admission(None));
        let waiting = {
            let third = Arc::clone(&third);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                third.reserve(60 << 20).await
            })
        };
        let error = second.reserve(50 << 20).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::OUT_OF_RESOURCES);
        let sentence = error.to_string();
        for words in ["for 300 ms", "place 1", "100 MiB", "SUBMIT"] {
            assert!(sentence.contains(words), "{sentence}");
        }
        assert!(second.has_waited() && second.place().is_none());
        assert_eq!(third.place(), Some(1));
        first.give_back();
        waiting.await.unwrap().unwrap();
        assert!(third.place().is_none() && !third.has_waited());
        third.give_back();
        third.give_back();
        admission(None).reserve(100 << 20).await.unwrap();
    }

    #[tokio::test]
    async fn a_query_whose_share_was_too_little_waits_for_all_the_memory_and_holds_nothing_meanwhile()
     {
        let rate = Arc::new(ScanRate::new(1));
        let gate = MemoryGate::new(100 << 20);
        let admission = || QueryAdmission::new(&rate, None).with_memory(&gate);
        let (other, query) = (admission(), Arc::new(admission()));
        assert!(!query.reserve_all().await.unwrap(), "it has no share");
        other.reserve(30 << 20).await.unwrap();
        let statement = Interrupt::new();
        (statement.scope(query.reserve(60 << 20))).await.unwrap();
        assert!(query.has_share());
        assert_eq!(statement.promised(), 60 << 20);
        let alone = {
            let (query, statement) = (Arc::clone(&query), Arc::clone(&statement));
            tokio::spawn(async move { statement.scope(query.reserve_all()).await })
        };
        while query.place().is_none() {
            tokio::task::yield_now().await;
        }
        // What it had is there for others, which come after it.
        assert_eq!(statement.promised(), 0);
        let late = admission();
        let mut waits = late.reserve(10 << 20);
        assert!((&mut waits).now_or_never().is_none());
        other.give_back();
        assert!(alone.await.unwrap().unwrap());
        assert_eq!(statement.promised(), 100 << 20);
        assert!(!query.reserve_all().await.unwrap(), "it has all of it");
        query.give_back();
        waits.await.unwrap();
    }
}
