//! Queries that run without a connection: submitted, queued, run, stored, resumed after a crash, and removed when they expire.
//!
//! ```text
//!   SUBMIT ──► written down as QUEUED ──► EXECUTING: journal of its pieces ──► stored result ──► COMPLETED
//!                        ▲                     │
//!                        └── after a crash ────┘   pieces that are committed do not run again
//! ```
//!
//! Everything that a query needs to go on is on the disk: its row in the database, and `queries/<number>/` with its journal and its result.
//! What several front ends do that share the queries is in [`crate::sharing`].

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use engine::{QueryInfo, QueryState, RESERVABLE, ScanEstimate, ScanForecast, Session, StoredRows};
use futures::future::BoxFuture;
use sql::connection::StatementLimits;
use sql::{Dialect, ErrorCode};
use tokio::sync::Notify;

use crate::QueryError;
use crate::database::Database;
use crate::journal::Journal;
use crate::made_table::MadeTable;
use crate::memory_gate::MemoryGate;
use crate::query::Query;
use crate::record::{QueryRecord, now};
use crate::registry::{Protocol, QueryRegistry, Store, lock};
use crate::run::check;
use crate::scan_rate::ScanRate;
use crate::scheduler::{PieceScheduler, SchedulerOptions, SchedulerStatus};
use crate::shared::{FILE, SharedQueries};
use crate::storage::{Storage, remove_directory};
use crate::stored_result;

/// What a query needs of its server.
pub trait QueryHost: std::fmt::Debug + Send + Sync {
    /// A user's session of a database, or of none, for statements of a dialect.
    fn session(
        &self,
        user: String,
        database: Option<String>,
        dialect: Dialect,
    ) -> BoxFuture<'static, Result<Arc<Session>, QueryError>>;

    /// How much a user may take now.
    fn limits(&self, user: String) -> BoxFuture<'static, Result<UserLimits, QueryError>>;

    /// Sees to what a query needs that another front end has begun, before it goes on here.
    fn prepare(&self, _query: u64) -> BoxFuture<'_, Result<(), QueryError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Is told of a submitted query that has ended, however.
    fn ended(&self, _: &QueryInfo) {}

    /// Makes the table of a query whose rows are stored, unless the query has made it already; before the query runs, sees whether
    /// it may be made. Runs as part of the query's own work.
    fn make_table(&self, table: MadeTable) -> BoxFuture<'static, Result<(), QueryError>>;

    /// Runs a user's work on the threads of queries, as a statement of its own. Dropping what is returned ends the work.
    fn run(
        &self,
        user: &str,
        work: BoxFuture<'static, Result<(), QueryError>>,
    ) -> BoxFuture<'static, Result<(), QueryError>>;
}

/// How much a user may take of a query service.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserLimits {
    /// Submitted queries that wait or run at a time.
    pub at_once: Option<u64>,
    /// Rows of a result.
    pub rows: Option<u64>,
    /// Bytes of a result.
    pub bytes: Option<u64>,
    /// How long a query may take.
    pub time: Option<Duration>,
}

/// The limits of a query service.
#[derive(Debug, Clone, Copy)]
pub struct QueryLimits {
    /// Submitted queries that run at a time.
    pub at_once: usize,
    /// Submitted queries that may wait.
    pub queued: usize,
    /// Bytes of one stored result.
    pub result_bytes: u64,
    /// How long results are kept.
    pub kept: Duration,
    /// The longest time that a blocking query may be expected to take.
    pub blocking: Option<Duration>,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            at_once: 8,
            queued: 100_000,
            result_bytes: 6 << 30,
            kept: Duration::from_secs(7 * 24 * 3600),
            blocking: Some(Duration::from_secs(3600)),
        }
    }
}

/// A query that is submitted.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Who submits it.
    pub user: String,
    /// The default database.
    pub database: Option<String>,
    /// How it came.
    pub protocol: Protocol,
    /// `sql_select_limit`.
    pub row_limit: Option<u64>,
    /// `max_execution_time`.
    pub time_limit: Option<Duration>,
    /// `cte_max_recursion_depth` and `group_concat_max_len`.
    pub limits: StatementLimits,
    /// The time of whose state published data are read, in microseconds since 1970 (`meridian_as_of`).
    pub as_of: Option<i64>,
    /// The dialect of its text.
    pub dialect: Dialect,
    /// Its text, one statement.
    pub statement: String,
}

/// A query that is being submitted.
struct SubmissionPlace<'a> {
    service: &'a QueryService,
    user: String,
}

impl Drop for SubmissionPlace<'_> {
    fn drop(&mut self) {
        let mut submitting = lock(&self.service.submitting);
        if let Some(here) = submitting.get_mut(&self.user) {
            *here -= 1;
            if *here == 0 {
                submitting.remove(&self.user);
            }
        }
    }
}

/// The error of a user who has so many submitted queries already.
pub(crate) fn at_limit(taken: u64, most: u64) -> QueryError {
    let sentence = format!(
        "you have {taken} of {most} submitted queries that may wait or run at a time: wait until one of them has ended, or end one (information_schema.QUERIES, CANCEL); SHOW LIMITS tells all limits"
    );
    QueryError {
        retry_after: Some(RETRY),
        ..QueryError::new(ErrorCode::LIMIT_REACHED, sentence)
    }
}

/// The error of whoever wants to end a query that has ended.
pub(crate) fn has_ended(query: &Query) -> QueryError {
    let sentence = format!("query {} has ended: it is {}", query.id, query.state());
    QueryError::new(ErrorCode::NO_CONNECTION, sentence)
}

/// After what time whoever has as many submitted queries as they may try again.
const RETRY: Duration = Duration::from_secs(30);

/// The queries of a server.
#[derive(Debug)]
pub struct QueryService {
    pub(crate) registry: Arc<QueryRegistry>,
    pub(crate) storage: Result<Storage, QueryError>,
    pub(crate) host: Arc<dyn QueryHost>,
    pub(crate) limits: QueryLimits,
    pub(crate) scheduler: Arc<PieceScheduler>,
    /// The numbers of those that wait.
    pub(crate) queue: Mutex<VecDeque<u64>>,
    pub(crate) wake: Notify,
    pub(crate) running: Mutex<HashMap<u64, RunningQuery>>,
    /// Queries that users are submitting at this moment, by their names.
    submitting: Mutex<HashMap<String, u64>>,
}

/// What is needed of a running query for its result so far.
#[derive(Debug, Clone)]
pub(crate) struct RunningQuery {
    pub session: Arc<Session>,
    pub journal: Arc<Journal>,
    /// The columns of its result.
    pub schema: SchemaRef,
}

impl QueryService {
    /// Opens the queries of a data directory. Several servers share them where the catalog is in PostgreSQL. Where they cannot be stored, or
    /// another server of the directory stores them in a file, queries of connections are listed, and none can be submitted.
    ///
    /// # Errors
    /// What is stored cannot be read.
    pub async fn open(
        data_dir: &Path,
        host: Arc<dyn QueryHost>,
        limits: QueryLimits,
        scheduling: SchedulerOptions,
    ) -> Result<Arc<Self>, QueryError> {
        let rate = ScanRate::new(scheduling.threads);
        let memory = MemoryGate::new(scheduling.memory_bytes / RESERVABLE.1 * RESERVABLE.0);
        let scheduler = PieceScheduler::new(scheduling);
        let shared = SharedQueries::open(data_dir).await?;
        let storage = match &shared {
            Some(_) => Storage::open_shared(data_dir),
            None => Storage::open(data_dir),
        };
        if let Err(error) = &storage {
            tracing::info!(reason = %error.sentence, "queries cannot be submitted");
        }
        let store = match (shared, &storage) {
            (Some(shared), _) => Store::Shared(Arc::new(shared)),
            (None, Ok(storage)) => {
                Store::File(Database::open(&storage.directory.join(FILE)).await?)
            }
            (None, Err(_)) => Store::None,
        };
        let service = Arc::new(Self {
            registry: Arc::new(
                QueryRegistry::open(store, Arc::clone(&scheduler), rate, memory, limits.blocking)
                    .await?,
            ),
            storage,
            host,
            limits,
            scheduler,
            queue: Mutex::default(),
            wake: Notify::new(),
            running: Mutex::default(),
            submitting: Mutex::default(),
        });
        match service.registry.shared() {
            // Those that nobody runs are taken over when the service runs.
            Some(_) => service.catch_up().await?,
            None => service.take_up().await?,
        }
        Ok(service)
    }

    /// Whether several front ends share the queries.
    pub fn is_shared(&self) -> bool {
        self.registry.shared().is_some()
    }

    /// The registry, for queries of connections.
    pub fn registry(&self) -> &Arc<QueryRegistry> {
        &self.registry
    }

    /// How many submitted queries wait.
    pub fn num_queued(&self) -> usize {
        lock(&self.queue).len()
    }

    /// The lanes and their pieces at this moment.
    pub fn scheduler_status(&self) -> SchedulerStatus {
        self.scheduler.status()
    }

    /// The lane in which a scan that reads this would run, and how long it would take.
    pub fn forecast(&self, estimate: &ScanEstimate) -> ScanForecast {
        ScanForecast {
            lane: self.scheduler.lane_name(estimate.rating),
            seconds: self.registry.rate().seconds(estimate.bytes()),
        }
    }

    /// Puts what a former process left into the queue again.
    async fn take_up(&self) -> Result<(), QueryError> {
        for query in self.registry.all() {
            match query.state() {
                QueryState::Queued | QueryState::Executing if query.is_async => {
                    query.update(|record| record.state = QueryState::Queued);
                    lock(&self.queue).push_back(query.id);
                }
                QueryState::Queued | QueryState::Executing => {
                    let sentence = "the server ended while the query ran";
                    let error = QueryError::new(ErrorCode::SERVER_ENDS, sentence);
                    query.end(QueryState::Aborted, Some(&error));
                    self.registry.write(&query).await?;
                }
                QueryState::Completed | QueryState::Failed | QueryState::Aborted => {}
            }
        }
        Ok(())
    }

    /// Where queries are stored; `None` where none can be submitted.
    pub fn directory(&self) -> Option<&Path> {
        let storage = self.storage.as_ref().ok()?;
        Some(&storage.directory)
    }

    /// How long results are kept.
    pub fn kept(&self) -> Duration {
        self.limits.kept
    }

    /// A number that no query has or will have, but one that is submitted with it.
    pub fn reserve_number(&self) -> u64 {
        self.registry.next_number()
    }

    /// Checks a statement, writes it down and puts it into the queue; returns its number.
    ///
    /// # Errors
    /// The statement cannot be planned, or nothing can be submitted here.
    pub async fn submit(self: &Arc<Self>, submission: Submission) -> Result<u64, QueryError> {
        let id = self.reserve_number();
        self.submit_as(id, submission).await?;
        Ok(id)
    }

    /// The same with a number that was reserved for it.
    ///
    /// # Errors
    /// The statement cannot be planned, or nothing can be submitted here.
    pub async fn submit_as(
        self: &Arc<Self>,
        id: u64,
        submission: Submission,
    ) -> Result<(), QueryError> {
        self.storage.as_ref().map_err(Clone::clone)?;
        if lock(&self.queue).len() >= self.limits.queued {
            let sentence = format!(
                "{} queries wait already: submit it when some of them have run",
                self.limits.queued
            );
            return Err(QueryError::new(ErrorCode::OUT_OF_RESOURCES, sentence));
        }
        if self.is_shared() && submission.statement.contains('\0') {
            let sentence = "a statement with a character of number 0 cannot be submitted here: write CHAR(0), or execute it without SUBMIT";
            return Err(QueryError::new(ErrorCode::WRONG_VALUE, sentence));
        }
        self.catch_up().await?;
        let limits = self.host.limits(submission.user.clone()).await?;
        let _place = self.take_place(&submission.user, limits.at_once)?;
        let here = self.registry.here();
        let record = QueryRecord {
            id,
            user: submission.user,
            database: submission.database,
            protocol: submission.protocol.name(),
            is_async: true,
            state: QueryState::Queued,
            lane: None,
            submitted: now(),
            started: None,
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
            row_limit: submission.row_limit,
            time_limit: submission
                .time_limit
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            limits: submission.limits,
            as_of: submission.as_of,
            dialect: submission.dialect,
            statement: submission.statement,
            cached_from: None,
            milestones: Arc::default(),
            warnings: 0,
            is_veiled: false,
            front_end: here.front_end(),
            epoch: 0,
        };
        let user = record.user.clone();
        let query = Arc::new(Query::new(record, here));
        let checked = check(
            Arc::clone(&self.host),
            Arc::clone(self.registry.rate()),
            Arc::clone(&query),
        );
        self.host.run(&user, Box::pin(checked)).await?;
        if let Some(shared) = self.registry.shared() {
            return self.submit_shared(shared, query, limits.at_once).await;
        }
        self.registry.write(&query).await?;
        self.enqueue(query);
        Ok(())
    }

    /// Submitted queries of a user that wait or run.
    pub fn num_submitted_by(&self, user: &str) -> u64 {
        let all = self.registry.all().into_iter();
        let theirs = all.filter(|query| {
            query.is_async && !query.state().is_final() && query.record().user == user
        });
        theirs.count() as u64
    }

    /// Counts a query that is being submitted, until it is in the registry.
    fn take_place(&self, user: &str, most: Option<u64>) -> Result<SubmissionPlace<'_>, QueryError> {
        let mut submitting = lock(&self.submitting);
        let here = submitting.get(user).copied().unwrap_or_default();
        if let Some(most) = most {
            let taken = self.num_submitted_by(user) + here;
            if taken >= most {
                return Err(at_limit(taken, most));
            }
        }
        submitting.insert(user.to_owned(), here + 1);
        Ok(SubmissionPlace {
            service: self,
            user: user.to_owned(),
        })
    }

    /// Ends a query: one that waits or runs.
    ///
    /// # Errors
    /// There is none of the number, it is another user's, or it has ended.
    pub async fn cancel(self: &Arc<Self>, id: u64, user: &str) -> Result<(), QueryError> {
        self.catch_up().await?;
        let query = self.query_of(id, user)?;
        let error = QueryError::new(ErrorCode::INTERRUPTED, "the query was cancelled");
        if let Some(shared) = self.registry.shared()
            && (query.is_async || !query.is_here())
        {
            return self.cancel_shared(shared, id, error).await;
        }
        if !query.end(QueryState::Aborted, Some(&error)) {
            return Err(has_ended(&query));
        }
        query.cancel.cancel();
        if query.is_async {
            lock(&self.queue).retain(|queued| *queued != id);
            self.registry.write(&query).await?;
        }
        Ok(())
    }

    /// Whether there is a query of this number.
    pub fn has(&self, id: u64) -> bool {
        self.registry.find(id).is_some()
    }

    /// Forgets a query that has ended, and removes its result.
    ///
    /// # Errors
    /// There is none of the number, it is another user's, or it has not ended.
    pub async fn remove(self: &Arc<Self>, id: u64, user: &str) -> Result<(), QueryError> {
        self.catch_up().await?;
        let query = self.query_of(id, user)?;
        if !query.state().is_final() {
            let sentence = format!("query {id} is {}: cancel it first", query.state());
            return Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence));
        }
        self.registry.remove(id).await?;
        if let Ok(storage) = &self.storage {
            remove_directory(&storage.of(id));
        }
        Ok(())
    }

    fn query_of(&self, id: u64, user: &str) -> Result<Arc<Query>, QueryError> {
        let query = self
            .registry
            .find(id)
            .ok_or_else(|| QueryError::no_query(id))?;
        let owner = query.record().user;
        if owner != user {
            let sentence = format!("query {id} is of another user, {owner}");
            return Err(QueryError::new(ErrorCode::ACCESS_DENIED, sentence));
        }
        Ok(query)
    }

    /// What is known of a query.
    ///
    /// # Errors
    /// There is none of the number, or it is another user's.
    pub fn info(&self, id: u64, user: &str) -> Result<QueryInfo, QueryError> {
        let query = self.query_of(id, user)?;
        Ok(query.info(self.place(id)))
    }

    /// What is known of all queries.
    pub fn infos(&self) -> Vec<QueryInfo> {
        let places = self.places();
        self.registry.infos(|id| places.get(&id).copied())
    }

    /// The places of the queries that wait, from 1 on.
    pub(crate) fn places(&self) -> HashMap<u64, u64> {
        let mut places: HashMap<u64, u64> = lock(&self.queue).iter().copied().zip(1..).collect();
        if self.registry.shared().is_some() {
            // The queues of the other front ends.
            let mut lengths: HashMap<u64, u64> = HashMap::new();
            let all = self.registry.all().into_iter();
            for query in all.filter(|it| !it.is_here() && it.state() == QueryState::Queued) {
                let front_end = query.update(|record| record.front_end);
                let length = lengths.entry(front_end).or_default();
                *length += 1;
                places.insert(query.id, *length);
            }
        }
        places
    }

    pub(crate) fn place(&self, id: u64) -> Option<u64> {
        if self.registry.find(id).is_some_and(|query| !query.is_here()) {
            return self.places().get(&id).copied();
        }
        let queue = lock(&self.queue);
        let at = queue.iter().position(|queued| *queued == id)?;
        Some(at as u64 + 1)
    }

    /// The stored result of a query.
    ///
    /// # Errors
    /// There is none of the number, it is another user's, or it has no result: the sentence says which.
    pub fn result(&self, id: u64, user: &str) -> Result<StoredRows, QueryError> {
        Ok(self.result_from(id, user, 0)?.0)
    }

    /// The stored result of a query without its first `skip` rows, as far as these are whole blocks; and how many of these it still has.
    ///
    /// # Errors
    /// There is none of the number, it is another user's, or it has no result: the sentence says which.
    pub fn result_from(
        &self,
        id: u64,
        user: &str,
        skip: u64,
    ) -> Result<(StoredRows, u64), QueryError> {
        let query = self.query_of(id, user)?;
        let record = query.record();
        let none = |sentence| Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence));
        match record.state {
            QueryState::Completed if !record.is_async => none(format!(
                "query {id} was no submitted one: its result went to its connection and is not stored"
            )),
            QueryState::Completed => {
                let storage = self.storage.as_ref().map_err(Clone::clone)?;
                let result = storage.files(id, record.epoch).result();
                Ok(stored_result::open_from(&result, skip)?)
            }
            QueryState::Queued | QueryState::Executing => none(format!(
                "query {id} is {}, {} of {} pieces done: its result is there when it is COMPLETED",
                record.state, record.pieces_done, record.pieces
            )),
            QueryState::Failed => none(format!(
                "query {id} failed: {}",
                record.error.unwrap_or_default()
            )),
            QueryState::Aborted => none(format!(
                "query {id} was aborted: {}",
                record.error.unwrap_or_default()
            )),
        }
    }

    /// The result so far of a query that runs: of the pieces that are committed. `None` where the query has a whole result, or none.
    ///
    /// # Errors
    /// There is none of the number, or it is another user's.
    pub fn partial_result(&self, id: u64, user: &str) -> Result<StoredRows, QueryError> {
        let query = self.query_of(id, user)?;
        let running = lock(&self.running).get(&id).cloned();
        match (query.state(), running) {
            (QueryState::Executing, Some(running)) => {
                Ok(crate::partial::rows(running, query.record()))
            }
            (QueryState::Executing, None) if !query.is_here() => {
                let sentence = format!(
                    "query {id} runs at another front end, which alone has its rows so far: ask there, or wait until it is COMPLETED"
                );
                Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence))
            }
            (QueryState::Queued | QueryState::Executing, _) => {
                let sentence = format!("query {id} has not begun: it has no rows yet");
                Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence))
            }
            _ => self.result(id, user),
        }
    }
}
