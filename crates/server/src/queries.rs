//! What the query service needs of the server, and what SQL statements see of the server as tables.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ::queries::{MadeTable, QueryError, QueryHost, QueryService, UserLimits};
use ::users::Limit;
use engine::{
    EngineError, QueryInfo, QueryState, ScanEstimate, ScanForecast, Session, StoredRows,
    SystemTables, milestones,
};
use futures::future::{BoxFuture, FutureExt};
use sql::connection::ProcessInfo;
use sql::{Dialect, ErrorCode};

use crate::ClientError;
use crate::audit::AuditEntry;
use crate::authenticator::Authenticator;
use crate::http::TapJobs;
use crate::own_tables;
use crate::process_list::ProcessList;
use crate::query_runtime::QueryRuntime;

/// The users' sessions and the threads on which queries run.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) query_runtime: Arc<QueryRuntime>,
    /// Set once they are read. They have the queries, which have the host.
    pub(crate) jobs: Arc<OnceLock<Weak<TapJobs>>>,
}

impl QueryHost for Host {
    fn session(
        &self,
        user: String,
        database: Option<String>,
        dialect: Dialect,
    ) -> BoxFuture<'static, Result<Arc<Session>, QueryError>> {
        let authenticator = Arc::clone(&self.authenticator);
        async move {
            // With the rights that the user has now, not with those of when the query was submitted.
            let principal = authenticator.of(&user).await?;
            let sessions = &principal.sessions;
            Ok(sessions.of_dialect(database.as_deref(), dialect).await?)
        }
        .boxed()
    }

    fn limits(&self, user: String) -> BoxFuture<'static, Result<UserLimits, QueryError>> {
        let authenticator = Arc::clone(&self.authenticator);
        async move {
            let usage = Arc::clone(&authenticator.of(&user).await?.usage);
            Ok(UserLimits {
                at_once: usage.limit(Limit::Submitted),
                rows: usage.limit(Limit::Rows),
                bytes: usage.limit(Limit::Bytes),
                time: usage.seconds(),
            })
        }
        .boxed()
    }

    fn prepare(&self, query: u64) -> BoxFuture<'_, Result<(), QueryError>> {
        let jobs = self.jobs.get().and_then(Weak::upgrade);
        async move {
            match jobs {
                Some(jobs) => Ok(jobs.reopen_uploads_of(query).await?),
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn ended(&self, query: &QueryInfo) {
        let Some(audit) = self.authenticator.audit() else {
            return;
        };
        let microseconds = query.ended.unwrap_or_default() - query.started.unwrap_or_default();
        let is_done = query.started.is_some() && query.ended.is_some();
        let microseconds = u64::try_from(microseconds).unwrap_or_default();
        audit.add(&AuditEntry {
            event: "query",
            user: &query.user,
            from: None,
            protocol: match query.protocol {
                "MYSQL" => "mysql",
                _ => "http",
            },
            id: Some(query.id),
            database: query.database.as_deref(),
            text: Some(&query.statement),
            rows: Some(query.rows),
            outcome: match query.state {
                QueryState::Completed => "ok",
                QueryState::Aborted => "stopped",
                _ => "failed",
            },
            code: query.error_code,
            seconds: Duration::from_micros(if is_done { microseconds } else { 0 }),
        });
    }

    fn make_table(&self, table: MadeTable) -> BoxFuture<'static, Result<(), QueryError>> {
        let authenticator = Arc::clone(&self.authenticator);
        async move {
            let principal = authenticator.of(&table.user).await?;
            Ok(own_tables::make_table(&authenticator, &principal, table).await?)
        }
        .boxed()
    }

    fn run(
        &self,
        user: &str,
        work: BoxFuture<'static, Result<(), QueryError>>,
    ) -> BoxFuture<'static, Result<(), QueryError>> {
        let work = async move { work.await.map_err(ClientError::from) };
        let account = self.authenticator.usages().account(user);
        let mut receiver = self.query_runtime.charging(&account).compute(work);
        async move { receiver.recv_one().await.map_err(QueryError::from) }.boxed()
    }
}

/// The connections and queries of the server, for `information_schema` and `qserv_result`.
#[derive(Debug)]
pub(crate) struct ServerTables {
    processes: Arc<ProcessList>,
    /// Set once the sessions exist, which the service needs.
    queries: OnceLock<Arc<QueryService>>,
}

impl ServerTables {
    pub(crate) fn new(processes: Arc<ProcessList>) -> Arc<Self> {
        Arc::new(Self {
            processes,
            queries: OnceLock::new(),
        })
    }

    /// Lists the queries of this service from now on.
    pub(crate) fn list_queries(&self, queries: &Arc<QueryService>) {
        // It is set once, when the server starts.
        let _ = self.queries.set(Arc::clone(queries));
    }

    /// The status variables, by MySQL's names.
    pub(crate) fn status(&self) -> Vec<(&'static str, String)> {
        self.processes.status()
    }
}

/// A query without a connection, as SHOW PROCESSLIST lists it.
fn process_of(query: QueryInfo) -> ProcessInfo {
    let state = match (query.state, query.place) {
        (QueryState::Queued, Some(place)) => format!("queued, place {place}"),
        (QueryState::Queued, None) => "queued".to_owned(),
        _ => format!(
            "executing, {} of {} pieces",
            query.pieces_done, query.pieces
        ),
    };
    let since = query.started.unwrap_or(query.submitted);
    let micros = milestones::now().saturating_sub(since);
    ProcessInfo {
        id: query.id,
        user: query.user,
        host: String::new(),
        database: query.database,
        command: "Query",
        seconds: u64::try_from(micros / 1_000_000).unwrap_or(0),
        state,
        statement: Some(query.statement),
    }
}

impl SystemTables for ServerTables {
    fn processes(&self) -> Vec<ProcessInfo> {
        let connections = self.processes.processes().into_iter();
        // Those of other front ends are as they were told last: nothing waits for them here.
        let submitted = self.queries.get().map(|queries| queries.submitted());
        let submitted = submitted.into_iter().flatten().map(process_of);
        connections.chain(submitted).collect()
    }

    fn queries(&self) -> Vec<QueryInfo> {
        let Some(queries) = self.queries.get() else {
            return Vec::new();
        };
        if let Err(error) = queries.catch_up_waiting() {
            tracing::warn!(%error, "queries of other front ends cannot be listed as they are now");
        }
        queries.infos()
    }

    fn forecast(&self, estimate: &ScanEstimate) -> ScanForecast {
        let forecast = self.queries.get().map(|it| it.forecast(estimate));
        // The server is starting: nothing runs yet.
        forecast.unwrap_or_else(|| ScanForecast {
            lane: String::new(),
            seconds: 0.0,
        })
    }

    fn result(&self, query: u64, user: &str, partial: bool) -> Result<StoredRows, EngineError> {
        let Some(queries) = self.queries.get() else {
            return Err(EngineError::Server(
                ErrorCode::SERVER_ENDS,
                "the server is starting: try again in some seconds".to_owned(),
            ));
        };
        queries.catch_up_waiting()?;
        Ok(match partial {
            true => queries.partial_result(query, user)?,
            false => queries.result(query, user)?,
        })
    }
}

/// The same as a user sees it who is no administrator: their own connections and queries.
#[derive(Debug)]
pub(crate) struct UserTables {
    tables: Arc<ServerTables>,
    user: String,
}

impl UserTables {
    pub(crate) fn new(tables: Arc<ServerTables>, user: &str) -> Self {
        Self {
            tables,
            user: user.to_owned(),
        }
    }
}

impl SystemTables for UserTables {
    fn processes(&self) -> Vec<ProcessInfo> {
        let mut processes = self.tables.processes();
        processes.retain(|process| process.user == self.user);
        processes
    }

    fn queries(&self) -> Vec<QueryInfo> {
        let mut queries = self.tables.queries();
        queries.retain(|query| query.user == self.user);
        queries.into_iter().map(QueryInfo::for_its_user).collect()
    }

    fn forecast(&self, estimate: &ScanEstimate) -> ScanForecast {
        self.tables.forecast(estimate)
    }

    fn result(&self, query: u64, _: &str, partial: bool) -> Result<StoredRows, EngineError> {
        self.tables.result(query, &self.user, partial)
    }
}

impl From<QueryError> for ClientError {
    fn from(error: QueryError) -> Self {
        Self {
            code: error.code,
            sentence: error.sentence,
            retry_after: error.retry_after,
        }
    }
}

impl From<ClientError> for QueryError {
    fn from(error: ClientError) -> Self {
        Self {
            code: error.code,
            sentence: error.sentence,
            retry_after: error.retry_after,
        }
    }
}
