//! The registry: every query that a server knows, running and past.
//!
//! A query has a number that no other query of the data directory ever had. Queries that were submitted to run without a connection, and
//! blocking ones that take longer than a second, are written down; of the others the last thousand are remembered.
//!
//! Where several front ends share the queries, it has those of the others too, as they were written down when this one last looked.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{QueryExecution, QueryInfo, QueryState};
use sql::Dialect;
use sql::connection::StatementLimits;
use tokio_util::sync::CancellationToken;

use crate::QueryError;
use crate::admission::{ClassPlaces, QueryAdmission, WAITED_FOR_MEMORY};
use crate::database::Database;
use crate::memory_gate::MemoryGate;
use crate::query::{Place, Query};
use crate::record::{QueryRecord, now};
use crate::scan_rate::ScanRate;
use crate::scheduler::PieceScheduler;
use crate::shared::SharedQueries;

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

/// Where queries are written down.
#[derive(Debug)]
pub(crate) enum Store {
    /// Nowhere.
    None,
    /// In a file of this server.
    File(Database),
    /// In a database that several front ends share.
    Shared(Arc<SharedQueries>),
}

impl Store {
    /// Writes queries of this front end down, instead of what was known of them, as far as they are still its own.
    async fn put(&self, queries: Vec<QueryRecord>) -> Result<(), QueryError> {
        match self {
            Self::File(database) => database.put(&queries).await,
            Self::Shared(shared) => shared.put(queries).await.map(drop),
            Self::None => Ok(()),
        }
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
    store: Store,
}

impl QueryRegistry {
    pub(crate) async fn open(
        store: Store,
        scheduler: Arc<PieceScheduler>,
        rate: ScanRate,
        memory: Arc<MemoryGate>,
        longest: Option<Duration>,
    ) -> Result<Self, QueryError> {
        let mut queries = BTreeMap::new();
        let mut numbers = VecDeque::new();
        match &store {
            Store::File(database) => {
                numbers.push_back(database.reserve_numbers().await?);
                for record in database.all().await? {
                    queries.insert(record.id, Arc::new(Query::new(record, Place::Here(None))));
                }
            }
            Store::Shared(shared) => numbers.push_back(shared.reserve_numbers().await?),
            Store::None => numbers.push_back(FIRST_NUMBER..u64::MAX),
        }
        Ok(Self {
            scheduler,
            rate: Arc::new(rate),
            memory,
            longest,
            queries: Mutex::new(queries),
            remembered: Mutex::default(),
            numbers: Mutex::new(numbers),
            store,
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

    /// The list that several front ends share, if they do.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedQueries>> {
        match &self.store {
            Store::Shared(shared) => Some(shared),
            Store::File(_) | Store::None => None,
        }
    }

    /// The place of what begins here now.
    pub(crate) fn here(&self) -> Place {
        Place::Here(self.shared().map(|shared| shared.lease()))
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
        let place = self.here();
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
            limits: StatementLimits::default(),
            as_of: None,
            dialect: Dialect::default(),
            statement: statement[..statement.floor_char_boundary(LONGEST_TEXT)].to_owned(),
            cached_from: None,
            milestones: Arc::default(),
            warnings: 0,
            is_veiled: false,
            front_end: place.front_end(),
            epoch: 0,
        };
        let query = Arc::new(Query::ended_by(stop, record, place));
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
        self.store.put(vec![query.record()]).await
    }

    /// Forgets a query.
    pub(crate) async fn remove(&self, id: u64) -> Result<(), QueryError> {
        match &self.store {
            Store::File(database) => {
                self.forget(id);
                database.remove(&[id]).await
            }
            Store::Shared(shared) => {
                shared.remove(id).await?;
                self.forget(id);
                Ok(())
            }
            Store::None => {
                self.forget(id);
                Ok(())
            }
        }
    }

    /// Forgets a query that is not written down any more.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.queries).remove(&id);
    }

    /// Writes down what has changed of the running queries, and reserves numbers. To be called every second.
    pub(crate) async fn write_running(&self) -> Result<(), QueryError> {
        if let Store::None = self.store {
            return Ok(());
        }
        let now = now();
        let is_worth = |record: &QueryRecord| {
            record.state == QueryState::Executing
                && (record.is_async || now - record.submitted > WORTH_WRITING)
        };
        let running = self.all().into_iter().filter(|query| query.is_here());
        let records = running.map(|query| query.record());
        let records: Vec<QueryRecord> = records.filter(is_worth).collect();
        if !records.is_empty() {
            self.store.put(records).await?;
        }
        let left: u64 = lock(&self.numbers).iter().map(|it| it.end - it.start).sum();
        if left < RESERVE {
            let more = match &self.store {
                Store::File(database) => Some(database.reserve_numbers().await?),
                Store::Shared(shared) => Some(shared.reserve_numbers().await?),
                Store::None => None,
            };
            lock(&self.numbers).extend(more);
        }
        Ok(())
    }

    /// Keeps an ended query of a connection in the list, or no longer.
    fn remember(self: &Arc<Self>, query: &Arc<Query>) {
        let record = query.record();
        let took = record.ended.unwrap_or_default() - record.submitted;
        if took > WORTH_WRITING
            && !matches!(self.store, Store::None)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let registry = Arc::clone(self);
            runtime.spawn(async move {
                if let Err(error) = registry.store.put(vec![record]).await {
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
