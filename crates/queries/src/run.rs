//! Running the submitted queries: from the queue to the stored result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{
    Admission, CachedRows, EngineError, PreparedQuery, QueryExecution, QueryState, RowStream,
    Session,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use sql::connection::VariableValue;
use sql::{AS_OF_VARIABLE, Connection, Dialect, ErrorCode, Interrupt, MOST_WARNINGS};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::QueryError;
use crate::admission::{QueryAdmission, WAITED_FOR_MEMORY};
use crate::journal::Journal;
use crate::made_table::MadeTable;
use crate::query::Query;
use crate::record::{QueryRecord, now};
use crate::registry::lock;
use crate::scan_rate::ScanRate;
use crate::service::{QueryHost, QueryService, RunningQuery};
use crate::storage::{QueryFiles, remove_directory};
use crate::stored_result::{self, ResultSize, ResultWriter};

/// How often running queries are written down.
const TICK: Duration = Duration::from_secs(1);
/// How often, in ticks, journals are written to the disk and expired results removed.
const TICKS_OF_A_ROUND: u64 = 5;

/// How large the result of a query may be.
struct MostOfResult {
    /// Rows that its user may have.
    rows: Option<u64>,
    /// Rows beyond these, which tell clients of TAP that there are more.
    spare: u64,
    /// Bytes that its user may have.
    bytes: Option<u64>,
    /// Bytes of any result.
    bytes_of_any: u64,
}

impl MostOfResult {
    fn check(&self, written: &ResultWriter) -> Result<(), QueryError> {
        let (rows, bytes) = (written.num_rows(), written.num_bytes());
        if let Some(most) = self.rows
            && rows > most.saturating_add(self.spare)
        {
            return Err(engine::too_many_rows(most).into());
        }
        if let Some(most) = self.bytes.filter(|most| bytes > *most) {
            return Err(engine::too_many_bytes(most).into());
        }
        if bytes > self.bytes_of_any {
            return Err(too_large(self.bytes_of_any));
        }
        Ok(())
    }
}

impl QueryService {
    /// Runs the queries of the queue until `stop` is cancelled. Those that run then go on in the next process.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let ticking = tokio::spawn(Arc::clone(&self).tick(stop.clone()));
        let sharing = self.registry.shared().map(|_| {
            let leasing = tokio::spawn(Arc::clone(&self).keep_lease(stop.clone()));
            (
                leasing,
                tokio::spawn(Arc::clone(&self).follow(stop.clone())),
            )
        });
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
        if let (Some((leasing, following)), Some(shared)) = (sharing, self.registry.shared()) {
            let _ = (leasing.await, following.await);
            // Others go on with what is left.
            if let Err(error) = shared.leave().await {
                tracing::warn!(%error, "other front ends are not told yet that this one ends");
            }
        }
    }

    fn next_queued(&self) -> Option<Arc<Query>> {
        loop {
            let id = lock(&self.queue).pop_front()?;
            let query = self.registry.find(id);
            let query = query.filter(|query| !query.state().is_final());
            if let Some(query) = query.filter(|query| query.is_held()) {
                return Some(query);
            }
        }
    }

    async fn run_query(self: Arc<Self>, query: Arc<Query>, stop: CancellationToken) {
        let Ok(storage) = &self.storage else {
            return;
        };
        let epoch = query.update(|record| {
            record.state = QueryState::Executing;
            record.started.get_or_insert_with(now);
            record.epoch
        });
        let files = storage.files(query.id, epoch);
        if !self.persist(&query, query.record()).await {
            return self.give_up(&query, &files).await;
        }
        self.write_down(&query).await;
        let late = self.late(&query);
        let work = self.execute(files.clone(), Arc::clone(&query));
        let outcome = tokio::select! {
            biased;
            () = query.cancel.cancelled() => Err(QueryError::new(ErrorCode::INTERRUPTED, "the query was cancelled")),
            // It is taken up again by the next process.
            () = stop.cancelled() => {
                lock(&self.running).remove(&query.id);
                return;
            }
            () = query.lost() => return self.give_up(&query, &files).await,
            error = late => Err(error),
            outcome = work => outcome,
        };
        let kept = i64::try_from(self.limits.kept.as_micros()).unwrap_or(i64::MAX);
        let ended = match &outcome {
            Ok(()) => {
                query.update(|record| record.expires = Some(now().saturating_add(kept)));
                query.ended(QueryState::Completed, None)
            }
            Err(error) => {
                let state = match error.is_abort() {
                    true => QueryState::Aborted,
                    false => QueryState::Failed,
                };
                query.ended(state, Some(error))
            }
        };
        if !self.persist(&query, ended.clone()).await {
            return self.give_up(&query, &files).await;
        }
        query.end_as(ended);
        self.write_down(&query).await;
        lock(&self.running).remove(&query.id);
        self.settle(&query, &files);
    }

    /// Does what is to be done when a query has ended.
    pub(crate) fn settle(&self, query: &Query, files: &QueryFiles) {
        self.host.ended(&query.info(None));
        match query.state() {
            QueryState::Completed => files.keep_result(),
            _ => remove_directory(&files.directory),
        }
    }

    /// Ends, with the error, when a query has taken as long as it may.
    async fn late(&self, query: &Query) -> QueryError {
        let record = query.record();
        // Who has gone meanwhile is told so when the query runs.
        let limits = self.host.limits(record.user).await.unwrap_or_default();
        let asked = record.time_limit.map(Duration::from_millis);
        let Some(limit) = [asked, limits.time].into_iter().flatten().min() else {
            return std::future::pending().await;
        };
        tokio::time::sleep(limit).await;
        let mut error = match asked == Some(limit) {
            true => too_late(limit),
            false => over_limit(limit),
        };
        if query.has_waited_for_memory() {
            error.sentence = format!("{}; {WAITED_FOR_MEMORY}", error.sentence);
        }
        error
    }

    /// Writes a query down in the file, if this server alone has them.
    async fn write_down(&self, query: &Query) {
        if self.registry.shared().is_some() {
            return;
        }
        let mut written = self.registry.write(query).await;
        if self.registry.find(query.id).is_none() {
            // It was removed meanwhile, after it was cancelled.
            written = self.registry.remove(query.id).await;
        }
        if let Err(error) = written {
            tracing::error!(query = query.id, %error, "a query could not be written down");
        }
    }

    /// Runs a query on the threads of queries, and stores its result.
    fn execute(
        self: &Arc<Self>,
        files: QueryFiles,
        query: Arc<Query>,
    ) -> BoxFuture<'static, Result<(), QueryError>> {
        let service = Arc::clone(self);
        let user = query.record().user;
        let work = async move {
            let size = service.execute_and_store(&files, &query).await?;
            if let (_, Some(table)) = query.record().planned()? {
                expect_held(&query)?;
                let rows = stored_result::open_from(&files.result(), 0)?.0;
                let rows = Some(rows);
                service.host.make_table(MadeTable { rows, ..table }).await?;
            }
            query.update(|record| {
                (record.rows, record.result_bytes) = (size.rows, size.bytes);
                record.warnings = size.warnings;
            });
            Ok(())
        };
        self.host.run(&user, Box::pin(work))
    }

    async fn execute_and_store(
        &self,
        files: &QueryFiles,
        query: &Arc<Query>,
    ) -> Result<ResultSize, QueryError> {
        files.inherit()?;
        let path = files.result();
        if let Some(size) = stored_before(&path) {
            // Its last pieces were done after it was written down for the last time.
            query.update(|record| record.pieces_done = record.pieces);
            return Ok(size);
        }
        catalog::make_directories(&files.directory).map_err(|error| {
            let sentence = format!("cannot make {}: {error}", files.directory.display());
            QueryError::new(ErrorCode::STORAGE, sentence)
        })?;
        let record = query.record();
        if record.epoch > 0 {
            self.host.prepare(record.id).await?;
        }
        let session = self
            .host
            .session(record.user.clone(), record.database.clone(), record.dialect)
            .await?;
        let most = self.most_of_result(&record).await?;
        let journal = Arc::new(Journal::open(&files.journal(), query.lease().cloned())?);
        let prepared = prepare(&session, &record).await?;
        let running = RunningQuery {
            session: Arc::clone(&session),
            journal: Arc::clone(&journal),
            schema: Arc::clone(&prepared.schema),
        };
        let pieces = prepared.pieces_of_phases().iter().sum::<usize>();
        query.update(|record| record.pieces = pieces as u64);
        let admission = QueryAdmission::new(self.registry.rate(), None);
        let admission = Arc::new(admission.with_memory(self.registry.memory()));
        let estimate = session.estimate(&prepared).await?;
        admission.admit(&estimate)?;
        query
            .begin_execution(&self.scheduler, &admission, Some(Arc::clone(&journal) as _))
            .attach();
        // What may not be told of rows is not kept either.
        let tells_of_rows = prepared.tells_of_rows();
        if tells_of_rows {
            journal.keep_warnings(Interrupt::current_or_new().warnings());
        }
        let begun = Instant::now();
        let key = session.result_key(&prepared);
        let cached = key.as_ref();
        let cached = cached.and_then(|key| session.cached_result(&prepared, key));
        let is_cached = cached.is_some();
        let mut result = match cached {
            Some(result) => {
                query.update(|record| record.pieces = 0);
                result
            }
            None => {
                admission.reserve(estimate.memory).await?;
                lock(&self.running).insert(query.id, running);
                session.start_journaled(prepared, false)?
            }
        };
        let mut writer = ResultWriter::create(&path, &result.schema)?;
        while let Some(batch) = result.batches.next().await {
            writer.write(&batch?)?;
            query.update(|record| record.rows = writer.num_rows());
            most.check(&writer)?;
        }
        let of_rows = match tells_of_rows && !is_cached {
            true => journal.take_warnings(),
            false => vec![],
        };
        expect_held(query)?;
        // An equal statement would have to be told of its warnings too.
        let is_kept = !is_cached && of_rows.is_empty();
        let mut warnings = std::mem::take(&mut result.warnings);
        warnings.extend(of_rows);
        warnings.truncate(MOST_WARNINGS);
        let size = writer.finish(&warnings)?;
        if let Some(key) = key.filter(|_| is_kept) {
            let rows = self.stored_rows(query, path);
            session.keep_result(key, begun.elapsed(), rows);
        }
        Ok(size)
    }

    /// How large the result of a query may be.
    async fn most_of_result(&self, record: &QueryRecord) -> Result<MostOfResult, QueryError> {
        // The rows of a table are limited by their bytes.
        let limits = match record.planned()?.1 {
            Some(_) => None,
            None => Some(self.host.limits(record.user.clone()).await?),
        };
        Ok(MostOfResult {
            rows: limits.as_ref().and_then(|limits| limits.rows),
            spare: u64::from(record.dialect == Dialect::Adql),
            bytes: limits.as_ref().and_then(|limits| limits.bytes),
            bytes_of_any: self.limits.result_bytes,
        })
    }

    /// The stored result of a query for equal statements, as long as it is complete and not expired.
    fn stored_rows(&self, query: &Query, path: PathBuf) -> CachedRows {
        let (registry, id) = (Arc::clone(&self.registry), query.id);
        CachedRows::stored(id, move || {
            let record = registry.find(id)?.record();
            let is_kept = record.expires.is_some_and(|expires| expires > now());
            match record.state == QueryState::Completed && is_kept {
                true => Some(stored_result::open_from(&path, 0).ok()?.0),
                false => None,
            }
        })
    }

    /// Writes down what runs, and removes what has expired.
    async fn tick(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = 0_u64;
        while tokio::time::timeout(TICK, stop.cancelled()).await.is_err() {
            ticks += 1;
            if let Err(error) = self.registry.write_running().await {
                tracing::warn!(%error, "running queries could not be written down");
            }
            if ticks.is_multiple_of(TICKS_OF_A_ROUND) {
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

    async fn remove_expired(self: &Arc<Self>) {
        let now = now();
        for query in self.registry.all() {
            let record = query.record();
            let expired = record.state.is_final() && record.expires.is_some_and(|at| at <= now);
            // Another front end may have removed it meanwhile.
            if expired
                && let Err(error) = self.remove(record.id, &record.user).await
                && self.has(record.id)
            {
                tracing::warn!(query = record.id, %error, "an expired query could not be removed");
            }
        }
    }
}

/// Fails if another front end may have taken the query over.
fn expect_held(query: &Query) -> Result<(), EngineError> {
    query.lease().map_or(Ok(()), |lease| lease.expect_held())
}

/// Whether a statement can be planned; notes how many pieces it has, and what it reads.
pub(crate) async fn check(
    host: Arc<dyn QueryHost>,
    rate: Arc<ScanRate>,
    query: Arc<Query>,
) -> Result<(), QueryError> {
    let record = query.record();
    let session = host
        .session(record.user.clone(), record.database.clone(), record.dialect)
        .await?;
    let prepared = prepare(&session, &record).await?;
    if let (_, Some(table)) = record.planned()? {
        host.make_table(table).await?;
    }
    let pieces = prepared.pieces_of_phases().iter().sum::<usize>();
    let admission = QueryAdmission::new(&rate, None);
    admission.admit(&session.estimate(&prepared).await?)?;
    query.update(|record| {
        record.pieces = pieces as u64;
        admission.note(record);
    });
    Ok(())
}

/// Plans a query's statement.
pub(crate) async fn prepare(
    session: &Session,
    record: &QueryRecord,
) -> Result<PreparedQuery, QueryError> {
    let mut connection = Connection::alone(record.database.clone());
    connection.user.clone_from(&record.user);
    let (text, table) = record.planned()?;
    // A limit of what a client shows would cut the table short without a word.
    if let Some(limit) = record.row_limit.filter(|_| table.is_none()) {
        let limit = Some(VariableValue::Number(limit));
        let set = connection.variables.set("sql_select_limit", limit);
        set.map_err(|error| QueryError::new(error.code(), error.to_string()))?;
    }
    let set = connection.variables.set_statement_limits(record.limits);
    set.map_err(|error| QueryError::new(error.code(), error.to_string()))?;
    if let Some(time) = record.as_of {
        let time = sql::time_as_text(time).map(VariableValue::Text);
        let set = connection.variables.set(AS_OF_VARIABLE, time);
        set.map_err(|error| QueryError::new(error.code(), error.to_string()))?;
    }
    let parsed = session.parse_one_for(&text, &connection).await?;
    Ok(session.prepare(&text, parsed).await?)
}

/// The size of a result that was stored just before the former process ended.
fn stored_before(path: &Path) -> Option<ResultSize> {
    let stored = path.exists().then(|| stored_result::size(path))?;
    stored.ok()
}

/// What a query took longer than that was given so much time when it was submitted, in the words of its error.
pub fn given_time(limit: Duration) -> String {
    format!(
        "max_execution_time, which was {} ms when it was submitted",
        limit.as_millis()
    )
}

fn too_late(limit: Duration) -> QueryError {
    let sentence = format!("the query took longer than {}", given_time(limit));
    QueryError::new(ErrorCode::TIME_LIMIT, sentence)
}

/// The error of a query that takes longer than its user may have.
pub fn over_limit(limit: Duration) -> QueryError {
    let sentence = format!(
        "the query took longer than the {} s that one of yours may take: ask for less, or ask the operator for more (SHOW LIMITS tells all limits)",
        limit.as_secs()
    );
    QueryError::new(ErrorCode::LIMIT_REACHED, sentence)
}

fn too_large(limit: u64) -> QueryError {
    let sentence = format!(
        "the result is larger than {}, the most that is stored of one query (--max-result): select fewer columns or rows, or aggregate",
        readable(limit)
    );
    QueryError::new(ErrorCode::RESULT_TOO_LARGE, sentence)
}

/// A limit of bytes in words.
fn readable(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KB", bytes >> 10),
        _ => format!("{} MB", bytes >> 20),
    }
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
