//! Queries that run without a connection: submitted, queued, run, stored, resumed after a crash, and removed when they expire.
//!
//! ```text
//!   SUBMIT ──► written down as QUEUED ──► EXECUTING: journal of its pieces ──► stored result ──► COMPLETED
//!                        ▲                     │
//!                        └── after a crash ────┘   pieces that are committed do not run again
//! ```
//!
//! Everything that a query needs to go on is on the disk: its row in the database, and `queries/<number>/` with its journal and its result.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use engine::{
    EngineError, PreparedQuery, QueryExecution, QueryInfo, QueryState, RowStream, Session,
    StoredRows,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use sql::connection::VariableValue;
use sql::{Connection, ErrorCode, Interrupt};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::QueryError;
use crate::database::Database;
use crate::journal::Journal;
use crate::record::{QueryRecord, now};
use crate::registry::{Protocol, Query, QueryRegistry, lock};
use crate::scheduler::{PieceScheduler, SchedulerOptions, SchedulerStatus};
use crate::stored_result::{self, ResultSize, ResultWriter};

/// How often running queries are written down.
const TICK: Duration = Duration::from_secs(1);
/// How often, in ticks, journals are written to the disk and expired results removed.
const TICKS_OF_A_ROUND: u64 = 5;

/// What a query needs of its server.
pub trait QueryHost: std::fmt::Debug + Send + Sync {
    /// The session of a database, or of none.
    fn session(
        &self,
        database: Option<String>,
    ) -> BoxFuture<'static, Result<Arc<Session>, QueryError>>;

    /// Runs work on the threads of queries, as a statement of its own. Dropping what is returned ends the work.
    fn run(
        &self,
        work: BoxFuture<'static, Result<(), QueryError>>,
    ) -> BoxFuture<'static, Result<(), QueryError>>;
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
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            at_once: 8,
            queued: 100_000,
            result_bytes: 6 << 30,
            kept: Duration::from_secs(7 * 24 * 3600),
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
    /// Its text, one statement.
    pub statement: String,
}

/// The queries of a server.
#[derive(Debug)]
pub struct QueryService {
    registry: Arc<QueryRegistry>,
    storage: Result<Storage, QueryError>,
    host: Arc<dyn QueryHost>,
    limits: QueryLimits,
    scheduler: Arc<PieceScheduler>,
    /// The numbers of those that wait.
    queue: Mutex<VecDeque<u64>>,
    wake: Notify,
    running: Mutex<HashMap<u64, RunningQuery>>,
}

/// What is needed of a running query for its result so far.
#[derive(Debug, Clone)]
pub(crate) struct RunningQuery {
    pub session: Arc<Session>,
    pub journal: Arc<Journal>,
    /// The columns of its result.
    pub schema: SchemaRef,
}

/// Where queries are stored.
#[derive(Debug)]
struct Storage {
    directory: PathBuf,
    /// Held as long as the service lives.
    _lock: File,
}

impl Storage {
    fn of(&self, id: u64) -> PathBuf {
        self.directory.join(id.to_string())
    }

    fn result(&self, id: u64) -> PathBuf {
        self.of(id).join("result")
    }
}

impl QueryService {
    /// Opens the queries of a data directory. Where they cannot be stored, or another server of the directory stores them, queries of
    /// connections are listed, and none can be submitted.
    ///
    /// # Errors
    /// What is stored cannot be read.
    pub async fn open(
        data_dir: &Path,
        host: Arc<dyn QueryHost>,
        limits: QueryLimits,
        scheduling: SchedulerOptions,
    ) -> Result<Arc<Self>, QueryError> {
        let scheduler = PieceScheduler::new(scheduling);
        let storage = open_storage(data_dir);
        let database = match &storage {
            Ok(storage) => Some(Database::open(&storage.directory.join("queries.sqlite")).await?),
            Err(error) => {
                tracing::info!(reason = %error.sentence, "queries cannot be submitted");
                None
            }
        };
        let service = Arc::new(Self {
            registry: Arc::new(QueryRegistry::open(database, Arc::clone(&scheduler)).await?),
            storage,
            host,
            limits,
            scheduler,
            queue: Mutex::default(),
            wake: Notify::new(),
            running: Mutex::default(),
        });
        service.take_up().await?;
        Ok(service)
    }

    /// The registry, for queries of connections.
    pub fn registry(&self) -> &Arc<QueryRegistry> {
        &self.registry
    }

    /// The lanes and their pieces at this moment.
    pub fn scheduler_status(&self) -> SchedulerStatus {
        self.scheduler.status()
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

    /// Checks a statement, writes it down and puts it into the queue; returns its number.
    ///
    /// # Errors
    /// The statement cannot be planned, or nothing can be submitted here.
    pub async fn submit(&self, submission: Submission) -> Result<u64, QueryError> {
        self.storage.as_ref().map_err(Clone::clone)?;
        if lock(&self.queue).len() >= self.limits.queued {
            let sentence = format!(
                "{} queries wait already: submit it when some of them have run",
                self.limits.queued
            );
            return Err(QueryError::new(ErrorCode::OUT_OF_RESOURCES, sentence));
        }
        let record = QueryRecord {
            id: self.registry.next_number(),
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
            rows: 0,
            result_bytes: 0,
            expires: None,
            error_code: None,
            error: None,
            row_limit: submission.row_limit,
            time_limit: submission
                .time_limit
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            statement: submission.statement,
        };
        let query = Arc::new(Query::new(record));
        self.host
            .run(Box::pin(check(Arc::clone(&self.host), Arc::clone(&query))))
            .await?;
        self.registry.write(&query).await?;
        self.registry.insert(Arc::clone(&query));
        lock(&self.queue).push_back(query.id);
        self.wake.notify_one();
        Ok(query.id)
    }

    /// Ends a query: one that waits or runs.
    ///
    /// # Errors
    /// There is none of the number, it is another user's, or it has ended.
    pub async fn cancel(&self, id: u64, user: &str) -> Result<(), QueryError> {
        let query = self.query_of(id, user)?;
        let error = QueryError::new(ErrorCode::INTERRUPTED, "the query was cancelled");
        if !query.end(QueryState::Aborted, Some(&error)) {
            let sentence = format!("query {id} has ended: it is {}", query.state());
            return Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence));
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
    pub async fn remove(&self, id: u64, user: &str) -> Result<(), QueryError> {
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
        let query = self.registry.find(id).ok_or_else(|| no_query(id))?;
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
        Ok(query.record().info(self.place(id)))
    }

    /// What is known of all queries.
    pub fn infos(&self) -> Vec<QueryInfo> {
        let queue = lock(&self.queue);
        let places: HashMap<u64, u64> = queue.iter().copied().zip(1..).collect();
        drop(queue);
        self.registry.infos(|id| places.get(&id).copied())
    }

    fn place(&self, id: u64) -> Option<u64> {
        let queue = lock(&self.queue);
        let at = queue.iter().position(|queued| *queued == id)?;
        Some(at as u64 + 1)
    }

    /// The stored result of a query.
    ///
    /// # Errors
    /// There is none of the number, it is another user's, or it has no result: the sentence says which.
    pub fn result(&self, id: u64, user: &str) -> Result<StoredRows, QueryError> {
        let query = self.query_of(id, user)?;
        let record = query.record();
        let none = |sentence| Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence));
        match record.state {
            QueryState::Completed if !record.is_async => none(format!(
                "query {id} was no submitted one: its result went to its connection and is not stored"
            )),
            QueryState::Completed => {
                let storage = self.storage.as_ref().map_err(Clone::clone)?;
                Ok(stored_result::open(&storage.result(id))?)
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
            (QueryState::Queued | QueryState::Executing, _) => {
                let sentence = format!("query {id} has not begun: it has no rows yet");
                Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence))
            }
            _ => self.result(id, user),
        }
    }

    /// Runs the queries of the queue until `stop` is cancelled. Those that run then go on in the next process.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let ticking = tokio::spawn(Arc::clone(&self).tick(stop.clone()));
        let mut running = JoinSet::new();
        loop {
            while running.len() < self.limits.at_once
                && let Some(query) = self.next_queued()
            {
                running.spawn(Arc::clone(&self).run_query(query, stop.clone()));
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.wake.notified() => {}
                Some(ended) = running.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a query made the server panic");
                    }
                }
            }
        }
        while running.join_next().await.is_some() {}
        let _ = ticking.await;
    }

    fn next_queued(&self) -> Option<Arc<Query>> {
        loop {
            let id = lock(&self.queue).pop_front()?;
            let query = self.registry.find(id);
            if let Some(query) = query.filter(|query| !query.state().is_final()) {
                return Some(query);
            }
        }
    }

    async fn run_query(self: Arc<Self>, query: Arc<Query>, stop: CancellationToken) {
        let Ok(storage) = &self.storage else {
            return;
        };
        query.update(|record| {
            record.state = QueryState::Executing;
            record.started.get_or_insert_with(now);
        });
        self.write_down(&query).await;
        let limit = query.record().time_limit.map(Duration::from_millis);
        let late = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let work = self.execute(storage.of(query.id), Arc::clone(&query));
        let outcome = tokio::select! {
            biased;
            () = query.cancel.cancelled() => Err(QueryError::new(ErrorCode::INTERRUPTED, "the query was cancelled")),
            // It is taken up again by the next process.
            () = stop.cancelled() => {
                lock(&self.running).remove(&query.id);
                return;
            }
            () = late => Err(too_late(limit.unwrap_or_default())),
            outcome = work => outcome,
        };
        let kept = i64::try_from(self.limits.kept.as_micros()).unwrap_or(i64::MAX);
        match outcome {
            Ok(()) => {
                query.update(|record| record.expires = Some(now().saturating_add(kept)));
                query.end(QueryState::Completed, None);
            }
            Err(error) => {
                let state = match error.is_abort() {
                    true => QueryState::Aborted,
                    false => QueryState::Failed,
                };
                query.end(state, Some(&error));
            }
        }
        self.write_down(&query).await;
        lock(&self.running).remove(&query.id);
        let directory = storage.of(query.id);
        match query.state() {
            QueryState::Completed => drop(fs::remove_file(directory.join("journal"))),
            _ => remove_directory(&directory),
        }
    }

    async fn write_down(&self, query: &Query) {
        if let Err(error) = self.registry.write(query).await {
            tracing::error!(query = query.id, %error, "a query could not be written down");
        }
    }

    /// Runs a query on the threads of queries, and stores its result.
    fn execute(
        self: &Arc<Self>,
        directory: PathBuf,
        query: Arc<Query>,
    ) -> BoxFuture<'static, Result<(), QueryError>> {
        let service = Arc::clone(self);
        let work = async move {
            let size = service.execute_and_store(&directory, &query).await?;
            query.update(|record| {
                (record.rows, record.result_bytes) = (size.rows, size.bytes);
            });
            Ok(())
        };
        self.host.run(Box::pin(work))
    }

    async fn execute_and_store(
        &self,
        directory: &Path,
        query: &Arc<Query>,
    ) -> Result<ResultSize, QueryError> {
        let path = directory.join("result");
        if let Some(size) = stored_before(&path) {
            return Ok(size);
        }
        catalog::make_directories(directory).map_err(|error| {
            let sentence = format!("cannot make {}: {error}", directory.display());
            QueryError::new(ErrorCode::STORAGE, sentence)
        })?;
        let record = query.record();
        let session = self.host.session(record.database.clone()).await?;
        let journal = Arc::new(Journal::open(&directory.join("journal"))?);
        let prepared = prepare(&session, &record).await?;
        let running = RunningQuery {
            session: Arc::clone(&session),
            journal: Arc::clone(&journal),
            schema: Arc::clone(&prepared.schema),
        };
        lock(&self.running).insert(query.id, running);
        let pieces = prepared.pieces_of_phases().iter().sum::<usize>();
        query.update(|record| record.pieces = pieces as u64);
        query
            .begin_execution(&self.scheduler, Some(journal))
            .attach();
        let mut result = session.start_journaled(prepared, false)?;
        let mut writer = ResultWriter::create(&path, &result.schema)?;
        while let Some(batch) = result.batches.next().await {
            writer.write(&batch?)?;
            query.update(|record| record.rows = writer.num_rows());
            if writer.num_bytes() > self.limits.result_bytes {
                return Err(too_large(self.limits.result_bytes));
            }
        }
        Ok(writer.finish()?)
    }

    /// Writes down what runs, and removes what has expired.
    async fn tick(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = 0_u64;
        while tokio::time::timeout(TICK, stop.cancelled()).await.is_err() {
            ticks += 1;
            if let Err(error) = self.registry.write_running().await {
                tracing::warn!(%error, "running queries could not be written down");
            }
            if ticks % TICKS_OF_A_ROUND == 0 {
                self.sync_journals().await;
                self.remove_expired().await;
            }
        }
    }

    async fn sync_journals(&self) {
        let running: Vec<RunningQuery> = lock(&self.running).values().cloned().collect();
        let synced = tokio::task::spawn_blocking(move || {
            running
                .iter()
                .try_for_each(|running| running.journal.sync())
        });
        if let Ok(Err(error)) = synced.await {
            tracing::warn!(%error, "a journal could not be written to the disk");
        }
    }

    async fn remove_expired(&self) {
        let now = now();
        for query in self.registry.all() {
            let record = query.record();
            let expired = record.state.is_final() && record.expires.is_some_and(|at| at <= now);
            if expired && let Err(error) = self.remove(record.id, &record.user).await {
                tracing::warn!(query = record.id, %error, "an expired query could not be removed");
            }
        }
    }
}

/// Whether a statement can be planned; notes how many pieces it has.
async fn check(host: Arc<dyn QueryHost>, query: Arc<Query>) -> Result<(), QueryError> {
    let record = query.record();
    let session = host.session(record.database.clone()).await?;
    let prepared = prepare(&session, &record).await?;
    let pieces = prepared.pieces_of_phases().iter().sum::<usize>();
    query.update(|record| record.pieces = pieces as u64);
    Ok(())
}

/// Plans a query's statement.
pub(crate) async fn prepare(
    session: &Session,
    record: &QueryRecord,
) -> Result<PreparedQuery, QueryError> {
    let mut connection = Connection::alone(record.database.clone());
    connection.user.clone_from(&record.user);
    if let Some(limit) = record.row_limit {
        let limit = Some(VariableValue::Number(limit));
        let set = connection.variables.set("sql_select_limit", limit);
        set.map_err(|error| QueryError::new(error.code(), error.to_string()))?;
    }
    let parsed = session
        .parse_one_for(&record.statement, &connection)
        .await?;
    Ok(session.prepare(&record.statement, parsed).await?)
}

/// The size of a result that was stored just before the former process ended.
fn stored_before(path: &Path) -> Option<ResultSize> {
    let stored = path.exists().then(|| stored_result::size(path))?;
    stored.ok()
}

fn open_storage(data_dir: &Path) -> Result<Storage, QueryError> {
    let directory = data_dir.join("queries");
    let refused = |error: &dyn std::fmt::Display| {
        let sentence = format!(
            "queries cannot be submitted: {} cannot be written: {error}",
            directory.display()
        );
        QueryError::new(ErrorCode::READ_ONLY, sentence)
    };
    catalog::make_directories(&directory).map_err(|error| refused(&error))?;
    let path = directory.join("lock");
    let mut options = catalog::writable_file();
    let lock = options.read(true).create(true).truncate(false).open(path);
    let lock = lock.map_err(|error| refused(&error))?;
    match lock.try_lock() {
        Ok(()) => Ok(Storage {
            directory,
            _lock: lock,
        }),
        Err(TryLockError::WouldBlock) => {
            let sentence =
                "another server runs the queries of this data directory: submit the query there";
            Err(QueryError::new(ErrorCode::READ_ONLY, sentence))
        }
        Err(TryLockError::Error(error)) => Err(refused(&error)),
    }
}

fn remove_directory(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %directory.display(), %error, "a query's files could not be removed");
    }
}

fn no_query(id: u64) -> QueryError {
    let sentence =
        format!("there is no query of number {id}; information_schema.QUERIES lists them");
    QueryError::new(ErrorCode::NO_CONNECTION, sentence)
}

fn too_late(limit: Duration) -> QueryError {
    let sentence = format!(
        "the query took longer than max_execution_time, which was {} ms when it was submitted",
        limit.as_millis()
    );
    QueryError::new(ErrorCode::TIME_LIMIT, sentence)
}

fn too_large(limit: u64) -> QueryError {
    let sentence = format!(
        "the result is larger than {} MB, the most that is stored of one query (--max-result): select fewer columns or rows, or \
         aggregate",
        limit >> 20
    );
    QueryError::new(ErrorCode::RESULT_TOO_LARGE, sentence)
}

/// The rows of a stream that is the work of a statement of its own.
pub(crate) fn as_statement(
    rows: impl Future<Output = Result<RowStream, EngineError>> + Send + 'static,
    execution: Arc<QueryExecution>,
) -> RowStream {
    let interrupt = Interrupt::new();
    interrupt.set_extension(execution);
    let opened = interrupt.scope(rows);
    let state = (interrupt, Some(opened), None::<RowStream>);
    futures::stream::unfold(state, |(interrupt, opening, mut rows)| async move {
        if let Some(opening) = opening {
            match opening.await {
                Ok(opened) => rows = Some(opened),
                Err(error) => return Some((Err(error), (interrupt, None, None))),
            }
        }
        let mut open = rows?;
        let next = interrupt.scope(open.next()).await;
        next.map(|batch| (batch, (interrupt, None, Some(open))))
    })
    .boxed()
}
