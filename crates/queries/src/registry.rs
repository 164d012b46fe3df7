//! The registry: every query that a server knows, running and past.
//!
//! A query has a number that no other query of the data directory ever had. Queries that were submitted to run without a connection, and
//! blocking ones that take longer than a second, are written down; of the others the last thousand are remembered.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::milestones::{MOST, merged};
use engine::{PieceJournal, QueryExecution, QueryInfo, QueryState, WaitsFor};
use sql::Dialect;
use tokio_util::sync::CancellationToken;

use crate::QueryError;
use crate::admission::{ClassPlaces, QueryAdmission, WAITED_FOR_MEMORY};
use crate::database::Database;
use crate::memory_gate::MemoryGate;
use crate::milestones;
use crate::record::{QueryRecord, now};
use crate::scan_rate::ScanRate;
use crate::scheduler::PieceScheduler;
use crate::turns::{QueryTurns, number_of_user};

/// Short blocking queries that are remembered when they have ended.
const REMEMBERED: usize = 1_000;
/// Microseconds after which a blocking query is written down.
const WORTH_WRITING: i64 = 1_000_000;
/// The first number where nothing can be written down.
const FIRST_NUMBER: u64 = 1_000_001;
/// Numbers that should be in reserve.
const RESERVE: u64 = 100_000;
/// Bytes of a statement that are kept of a blocking query.
const LONGEST_TEXT: usize = 64 << 10;

/// How a query came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// MySQL's protocol.
    MySql,
    /// HTTP.
    Http,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MySql => "MYSQL",
            Self::Http => "HTTP",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "HTTP" => Self::Http,
            _ => Self::MySql,
        }
    }
}

/// A query.
#[derive(Debug)]
pub(crate) struct Query {
    pub id: u64,
    pub is_async: bool,
    record: Mutex<QueryRecord>,
    /// While it runs.
    running: Mutex<Option<RunningState>>,
    /// Cancelled to end it.
    pub cancel: CancellationToken,
}

impl Query {
    pub(crate) fn new(record: QueryRecord) -> Self {
        Self {
            id: record.id,
            is_async: record.is_async,
            record: Mutex::new(record),
            running: Mutex::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// What is known of it now.
    pub(crate) fn record(&self) -> QueryRecord {
        let mut record = lock(&self.record).clone();
        if let Some(running) = &*lock(&self.running) {
            record.pieces_done = running.execution.pieces_done();
            record.pieces = record.pieces.max(running.execution.pieces());
            record.lane = running.lane().or(record.lane);
            let reads = running.execution.reads();
            record.decoded_bytes = reads.decoded();
            record.shared_bytes = reads.shared();
            record.cached_from = running.execution.cached_from();
            let mut milestones = running.execution.milestones().all();
            // Those of a former process come first.
            drop(milestones.splice(0..0, record.milestones.iter().cloned()));
            record.milestones = merged(milestones, MOST).into();
            running.admission.note(&mut record);
        }
        record
    }

    pub(crate) fn state(&self) -> QueryState {
        lock(&self.record).state
    }

    /// What users see of it; `turn` is its place among those that wait for their turn.
    pub(crate) fn info(&self, turn: Option<u64>) -> QueryInfo {
        let memory = lock(&self.running)
            .as_ref()
            .and_then(|it| it.admission.place());
        let record = self.record();
        match memory {
            Some(place) if !record.state.is_final() => {
                let waiting = QueryRecord {
                    state: QueryState::Queued,
                    ..record
                };
                waiting.info(Some((place, WaitsFor::Memory)))
            }
            _ => record.info(turn.map(|place| (place, WaitsFor::Turn))),
        }
    }

    /// The state as users see it: a query that waits for memory is queued.
    pub(crate) fn shown_state(&self) -> QueryState {
        let running = lock(&self.running);
        let waits = running
            .as_ref()
            .is_some_and(|it| it.admission.place().is_some());
        drop(running);
        match self.state() {
            QueryState::Executing if waits => QueryState::Queued,
            state => state,
        }
    }

    /// Whether it waits for memory, or has waited for it until it was ended.
    pub(crate) fn has_waited_for_memory(&self) -> bool {
        let running = lock(&self.running);
        running.as_ref().is_some_and(|it| it.admission.has_waited())
    }

    /// Changes what is known of it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut QueryRecord) -> T) -> T {
        change(&mut lock(&self.record))
    }

    /// Notes that it begins to run; returns what those who execute it report to.
    pub(crate) fn begin_execution(
        &self,
        scheduler: &Arc<PieceScheduler>,
        admission: &Arc<QueryAdmission>,
        journal: Option<Arc<dyn PieceJournal>>,
    ) -> Arc<QueryExecution> {
        let user = number_of_user(&lock(&self.record).user);
        let turns = Arc::new(QueryTurns::new(scheduler, self.id, user));
        let admission = Arc::clone(admission);
        let execution = QueryExecution::new()
            .with_number(self.id)
            .with_user(user)
            .with_scheduler(Arc::clone(&turns) as _)
            .with_admission(Arc::clone(&admission) as _);
        let execution = Arc::new(match journal {
            Some(journal) => execution.with_journal(journal),
            None => execution,
        });
        let begun = Arc::clone(&execution);
        *lock(&self.running) = Some(RunningState {
            execution,
            turns,
            admission,
        });
        begun
    }

    /// Ends it in this state, unless it has ended. Returns whether it had not.
    pub(crate) fn end(&self, state: QueryState, error: Option<&QueryError>) -> bool {
        let seen = self.record();
        let running = lock(&self.running).take();
        if let Some(running) = running {
            running.observe();
            running.admission.end();
        }
        self.update(|record| {
            if record.state.is_final() {
                return false;
            }
            record.state = state;
            record.ended = Some(now());
            (record.pieces, record.pieces_done) = (seen.pieces, seen.pieces_done);
            record.lane = seen.lane;
            (record.scan_bytes, record.estimate) = (seen.scan_bytes, seen.estimate);
            (record.decoded_bytes, record.shared_bytes) = (seen.decoded_bytes, seen.shared_bytes);
            record.is_veiled = seen.is_veiled;
            record.cached_from = seen.cached_from;
            record.milestones = milestones::kept(&seen.milestones).into();
            record.error_code = error.map(|error| error.code.number);
            record.error = error.map(|error| error.sentence.clone());
            true
        })
    }
}

/// What is known of a query only while it runs.
#[derive(Debug)]
struct RunningState {
    execution: Arc<QueryExecution>,
    turns: Arc<QueryTurns>,
    admission: Arc<QueryAdmission>,
}

impl RunningState {
    /// Notes how fast its scans were.
    fn observe(&self) {
        if let Some(status) = self.turns.status() {
            let (done, all) = (self.execution.pieces_done(), self.execution.pieces());
            self.admission.observe(status.thread_time, done, all);
        }
    }

    /// The lane of its scans; `INTERACTIVE` if it has only pieces that wait for none.
    fn lane(&self) -> Option<String> {
        let status = self.turns.status()?;
        let counts = status.pieces;
        let any = counts.waiting + counts.running + counts.paused + counts.done + counts.failed > 0;
        let interactive = || any.then(|| "INTERACTIVE".to_owned());
        status
            .lane
            .map(|lane| lane.to_ascii_uppercase())
            .or_else(interactive)
    }
}

/// All queries.
#[derive(Debug)]
pub struct QueryRegistry {
    scheduler: Arc<PieceScheduler>,
    rate: Arc<ScanRate>,
    memory: Arc<MemoryGate>,
    /// The longest time that a blocking query may be expected to take.
    longest: Option<Duration>,
    queries: Mutex<BTreeMap<u64, Arc<Query>>>,
    /// Ended blocking queries that are not written down.
    remembered: Mutex<VecDeque<u64>>,
    /// Reserved ranges of numbers.
    numbers: Mutex<VecDeque<Range<u64>>>,
    database: Option<Database>,
}

impl QueryRegistry {
    pub(crate) async fn open(
        database: Option<Database>,
        scheduler: Arc<PieceScheduler>,
        rate: ScanRate,
        memory: Arc<MemoryGate>,
        longest: Option<Duration>,
    ) -> Result<Self, QueryError> {
        let mut queries = BTreeMap::new();
        let mut numbers = VecDeque::new();
        match &database {
            Some(database) => {
                numbers.push_back(database.reserve_numbers().await?);
                for record in database.all().await? {
                    queries.insert(record.id, Arc::new(Query::new(record)));
                }
            }
            None => numbers.push_back(FIRST_NUMBER..u64::MAX),
        }
        Ok(Self {
            scheduler,
            rate: Arc::new(rate),
            memory,
            longest,
            queries: Mutex::new(queries),
            remembered: Mutex::default(),
            numbers: Mutex::new(numbers),
            database,
        })
    }

    /// How fast this machine scans.
    pub(crate) fn rate(&self) -> &Arc<ScanRate> {
        &self.rate
    }

    /// The memory of the statements.
    pub(crate) fn memory(&self) -> &Arc<MemoryGate> {
        &self.memory
    }

    /// The next number.
    pub(crate) fn next_number(&self) -> u64 {
        let mut numbers = lock(&self.numbers);
        loop {
            let Some(range) = numbers.front_mut() else {
                // Ranges are reserved long before the last one ends, and a process does not live to see the end of all numbers.
                return u64::MAX >> 1;
            };
            match range.next() {
                Some(number) => return number,
                None => drop(numbers.pop_front()),
            }
        }
    }

    /// Registers a query of a connection, which is listed as running until the guard is dropped. `stop` is cancelled if somebody ends it. It
    /// takes one of `places` before it runs.
    pub fn begin(
        self: &Arc<Self>,
        user: &str,
        database: Option<&str>,
        protocol: Protocol,
        statement: &str,
        stop: CancellationToken,
        places: Option<Arc<dyn ClassPlaces>>,
    ) -> QueryGuard {
        let submitted = now();
        let record = QueryRecord {
            id: self.next_number(),
            user: user.to_owned(),
            database: database.map(str::to_owned),
            protocol: protocol.name(),
            is_async: false,
            state: QueryState::Executing,
            lane: None,
            submitted,
            started: Some(submitted),
            ended: None,
            pieces_done: 0,
            pieces: 0,
            scan_bytes: 0,
            estimate: None,
            decoded_bytes: 0,
            shared_bytes: 0,
            rows: 0,
            result_bytes: 0,
            expires: None,
            error_code: None,
            error: None,
            row_limit: None,
            time_limit: None,
            dialect: Dialect::default(),
            statement: statement[..statement.floor_char_boundary(LONGEST_TEXT)].to_owned(),
            cached_from: None,
            milestones: Arc::default(),
            warnings: 0,
            is_veiled: false,
        };
        let query = Arc::new(Query {
            cancel: stop,
            ..Query::new(record)
        });
        let admission = QueryAdmission::new(&self.rate, self.longest)
            .with_memory(&self.memory)
            .with_places(places);
        let execution = query.begin_execution(&self.scheduler, &Arc::new(admission), None);
        self.insert(Arc::clone(&query));
        QueryGuard {
            query,
            execution,
            registry: Arc::clone(self),
        }
    }

    pub(crate) fn insert(&self, query: Arc<Query>) {
        lock(&self.queries).insert(query.id, query);
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Query>> {
        lock(&self.queries).get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Query>> {
        lock(&self.queries).values().cloned().collect()
    }

    /// All queries as users see them; `place` gives the place of one that waits.
    pub(crate) fn infos(&self, place: impl Fn(u64) -> Option<u64>) -> Vec<QueryInfo> {
        let queries = self.all();
        let infos = queries.iter().map(|query| query.info(place(query.id)));
        infos.collect()
    }

    /// The newest queries that `is_wanted`, of which there may be more.
    pub(crate) fn newest(
        &self,
        limit: usize,
        is_wanted: impl Fn(&Query) -> bool,
    ) -> Vec<Arc<Query>> {
        let queries = self.all().into_iter().rev();
        queries.filter(|it| is_wanted(it)).take(limit).collect()
    }

    /// Writes a query down.
    pub(crate) async fn write(&self, query: &Query) -> Result<(), QueryError> {
        match &self.database {
            Some(database) => database.put(&[query.record()]).await,
            None => Ok(()),
        }
    }

    /// Forgets a query.
    pub(crate) async fn remove(&self, id: u64) -> Result<(), QueryError> {
        lock(&self.queries).remove(&id);
        match &self.database {
            Some(database) => database.remove(&[id]).await,
            None => Ok(()),
        }
    }

    /// Writes down what has changed of the running queries, and reserves numbers. To be called every second.
    pub(crate) async fn write_running(&self) -> Result<(), QueryError> {
        let Some(database) = &self.database else {
            return Ok(());
        };
        let now = now();
        let is_worth = |record: &QueryRecord| {
            record.state == QueryState::Executing
                && (record.is_async || now - record.submitted > WORTH_WRITING)
        };
        let records = self.all().into_iter().map(|query| query.record());
        let records: Vec<QueryRecord> = records.filter(is_worth).collect();
        if !records.is_empty() {
            database.put(&records).await?;
        }
        let left: u64 = lock(&self.numbers).iter().map(|it| it.end - it.start).sum();
        if left < RESERVE {
            let more = database.reserve_numbers().await?;
            lock(&self.numbers).push_back(more);
        }
        Ok(())
    }

    /// Keeps an ended query of a connection in the list, or no longer.
    fn remember(&self, query: &Arc<Query>) {
        let record = query.record();
        let took = record.ended.unwrap_or_default() - record.submitted;
        if let Some(database) = self.database.clone().filter(|_| took > WORTH_WRITING)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                if let Err(error) = database.put(&[record]).await {
                    tracing::warn!(%error, "a query could not be written down");
                }
            });
            return;
        }
        let mut remembered = lock(&self.remembered);
        remembered.push_back(query.id);
        if remembered.len() > REMEMBERED
            && let Some(oldest) = remembered.pop_front()
        {
            lock(&self.queries).remove(&oldest);
        }
    }
}

/// A running query of a connection.
#[derive(Debug)]
pub struct QueryGuard {
    query: Arc<Query>,
    execution: Arc<QueryExecution>,
    registry: Arc<QueryRegistry>,
}

impl QueryGuard {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.query.id
    }

    /// What is to be said of it if it was ended while it waited for memory.
    pub fn waited_for(&self) -> Option<&'static str> {
        let waited = self.query.has_waited_for_memory();
        waited.then_some(WAITED_FOR_MEMORY)
    }

    /// What those who execute it report to.
    pub fn execution(&self) -> &Arc<QueryExecution> {
        &self.execution
    }

    /// Notes that it has ended, with so many rows or an error.
    pub fn end(self, rows: u64, error: Option<&QueryError>) {
        self.query.update(|record| record.rows = rows);
        let state = match error {
            None => QueryState::Completed,
            Some(error) if error.is_abort() => QueryState::Aborted,
            Some(_) => QueryState::Failed,
        };
        self.query.end(state, error);
    }
}

impl Drop for QueryGuard {
    fn drop(&mut self) {
        self.query.end(QueryState::Aborted, None);
        self.registry.remember(&self.query);
    }
}

/// A panic in another thread leaves the values consistent, because every change is a single operation.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
