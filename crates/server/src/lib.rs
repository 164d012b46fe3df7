//! The server: listeners and connections, the process list, MySQL's protocol, cone searches over HTTP, metrics and the query log.
//!
//! May depend on `sql` and `engine`; knows nothing of chunks, files or plans. Invariants: the network threads scan a few rows at most, so
//! that a busy server still accepts connections, answers pings and executes KILL; a result takes bounded memory whatever its size, because
//! rows are produced as fast as the client reads them; no byte that a client sends can make the server panic, and a panic in a query is an
//! error of that query alone.

mod audit;
mod authenticator;
mod background_threads;
#[cfg(test)]
#[path = "../tests/chance/mod.rs"]
mod chance;
mod client_error;
mod config;
mod connection_slots;
mod daily_usage;
mod formats;
mod grants;
mod heartbeat;
mod http;
mod listener;
mod login_throttle;
pub mod metrics;
mod mysql;
mod native_password;
mod oidc;
mod own_tables;
mod priority;
mod process_list;
mod publication;
mod queries;
mod query_description;
mod query_log;
mod query_runtime;
mod release;
mod server_error;
mod server_info;
mod sessions;
mod tls;
mod unix_socket;
mod usage;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::queries::scheduler::{LaneTable, SchedulerOptions};
use ::queries::{QueryError, QueryService};
use ::users::{DailyUsage, SessionStore, User, Users};
use cluster::FrontEnd;
use engine::{Archive, ConeTable, EngineError, QueryInfo, ResultCache};
use ingest::BytePool;
use sql::connection::ServerInfo;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use ::queries::QueryLimits;
use audit::AuditLog;
pub use audit::AuditOptions;
use authenticator::{Authenticator, Principal};
pub use client_error::ClientError;
pub use config::{Config, DEFAULT_HTTP_ADDRESS, DEFAULT_MYSQL_ADDRESS};
use connection_slots::ConnectionLimits;
use http::{AlertDatabases, AllowedHosts, BrowserSessions, HttpState, TableRoom, UserRoutes};
pub use http::{ServiceDescription, registry_record};
use listener::{Endpoint, Listener, Peer};
use login_throttle::LoginThrottle;
use metrics::{Metrics, QueryCounts};
pub use oidc::OidcOptions;
use process_list::{ProcessList, TrackedTask};
use publication::{ArchiveRows, follow_in_background, publish_in_background};
pub use publication::{
    PublicationError, PublicationStatus, PublishedEdition, RELEASES, ReseedReport, ReseedRequest,
    TableCounts, empty_store, publish, reseed,
};
use queries::{Host, ServerTables};
pub use query_description::{MilestoneDescription, QueryDescription};
use query_runtime::QueryRuntime;
use release::release_changed_tables;
pub use server_error::ServerError;
use server_info::{LiveServerInfo, OwnServerInfo};
use sessions::Sessions;
use tls::Tls;
pub use tls::{TlsError, TlsFiles};
use usage::{Usage, Usages};

/// How long stopped statements may take to end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How many rejected clients are told the reason concurrently.
const MAX_REJECTIONS: usize = 64;

/// The user of HTTP requests that name none.
pub(crate) const HTTP_USER: &str = "http";

/// What all connections share, as one user sees it.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// Who that is; `None` while there are no users, and before a login.
    pub(crate) user: Option<Arc<User>>,
    /// What the user takes and may take.
    pub(crate) usage: Arc<Usage>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) query_runtime: Arc<QueryRuntime>,
    pub(crate) processes: Arc<ProcessList>,
    pub(crate) queries: Arc<QueryService>,
    pub(crate) server_info: Arc<dyn ServerInfo>,
    /// The port for MySQL clients.
    pub(crate) mysql_port: Option<u16>,
    /// The acceptors for clients that request TLS.
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics: Arc<Metrics>,
    /// Statements that take longer are logged with their text.
    pub(crate) slow: Option<Duration>,
    /// How long the head of an HTTP request may take to arrive.
    pub(crate) http_patience: Duration,
    /// Who changes which table.
    pub(crate) table_turns: Arc<own_tables::TableTurns>,
    /// The memory for packets and prepared statements of MySQL clients.
    pub(crate) packets: Arc<BytePool>,
    /// Limits how many rejected clients are told the reason concurrently.
    pub(crate) rejected: Arc<Semaphore>,
    /// Cancelled when the server accepts no new queries.
    pub(crate) closing: CancellationToken,
    /// Cancelled when running queries are stopped.
    pub(crate) ended: CancellationToken,
}

impl Shared {
    /// The same as a principal sees it.
    pub(crate) fn seen_by(&self, principal: &Principal) -> Self {
        Self {
            user: principal.user.clone(),
            usage: Arc::clone(&principal.usage),
            query_runtime: Arc::new(self.query_runtime.charging(principal.usage.time())),
            sessions: Arc::clone(&principal.sessions),
            ..self.clone()
        }
    }

    /// The server's information as the user sees it.
    pub(crate) fn server_info_for_user(&self, server: Arc<dyn ServerInfo>) -> Arc<dyn ServerInfo> {
        match &self.user {
            None => server,
            Some(user) => Arc::new(OwnServerInfo {
                user: Arc::clone(user),
                usage: Arc::clone(&self.usage),
                queries: Arc::clone(&self.queries),
                server,
            }),
        }
    }

    /// Whether queries and connections of this user are seen, and may be ended.
    pub(crate) fn may_see_those_of(&self, user: &str) -> bool {
        let me = self.user.as_ref();
        me.is_none_or(|me| me.is_admin || me.name == user)
    }

    /// Whose queries are listed: those of the user whom a request names, of the only one who may be seen, or everybody's.
    pub(crate) fn whose(&self, named: Option<&str>) -> Option<String> {
        match &self.user {
            Some(me) if !me.is_admin => Some(me.name.clone()),
            _ => named.map(str::to_owned),
        }
    }

    /// A query of this number.
    ///
    /// # Errors
    /// There is none that may be seen.
    pub(crate) fn find_query(&self, id: u64) -> Result<QueryInfo, QueryError> {
        let found = self.queries.find(id)?;
        match self.may_see_those_of(&found.user) {
            true => Ok(self.as_told(found)),
            false => Err(QueryError::no_query(id)),
        }
    }

    /// A query that may be seen, with what the user may be told of it.
    pub(crate) fn as_told(&self, query: QueryInfo) -> QueryInfo {
        match &self.user {
            Some(me) if !me.is_admin => query.for_its_user(),
            _ => query,
        }
    }

    /// Adds work that is not a statement of a MySQL connection to the process list, so that it is visible and can be killed.
    pub(crate) fn track(
        &self,
        peer: Peer,
        database: &str,
        command: &'static str,
        text: &str,
    ) -> TrackedTask {
        self.track_for(peer, HTTP_USER, Some(database), command, text)
    }

    /// The same for a user who has given a name.
    pub(crate) fn track_for(
        &self,
        peer: Peer,
        user: &str,
        database: Option<&str>,
        command: &'static str,
        text: &str,
    ) -> TrackedTask {
        let guard = self.processes.register(peer);
        guard.set_identity(user, database);
        TrackedTask::new(guard, command, text, self.ended.clone())
    }
}

/// A server that listens and does not accept connections yet.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    archive: Arc<Archive>,
    shared: Arc<Shared>,
    front_end: Option<Arc<FrontEnd>>,
    alerts: Arc<AlertDatabases>,
    grace: Duration,
    has_users: bool,
}

/// Opens the queries of the data directory.
async fn open_queries(config: &Config, host: Host) -> Result<Arc<QueryService>, ServerError> {
    let scheduling = SchedulerOptions {
        threads: config.threads.get(),
        interactive_threads: config.threads.get(),
        memory_bytes: config.memory as u64,
        lanes: LaneTable::default(),
    };
    let host = Arc::new(host);
    Ok(QueryService::open(&config.data, host, config.queries, scheduling).await?)
}

/// The sessions of all clients.
fn open_sessions(
    config: &Config,
    archive: &Arc<Archive>,
    tables: &Arc<ServerTables>,
    front_end: Option<&Arc<FrontEnd>>,
) -> Result<Arc<Sessions>, ServerError> {
    let least = config.result_cache;
    let results = least.map(|least| ResultCache::new(least, config.memory as u64));
    let sessions = Sessions::new(
        Arc::clone(archive),
        config.threads,
        config.memory,
        config.spilled,
        Arc::clone(tables) as _,
        front_end.map(|it| it.dispatcher()),
        results,
    )?;
    Ok(Arc::new(sessions))
}

/// Listeners at the endpoints that are configured.
fn listeners_of(
    endpoints: [Option<Endpoint>; 3],
    config: &Config,
) -> Result<Vec<Listener>, ServerError> {
    let of_an_address = config.max_connections_per_address;
    let limits = ConnectionLimits {
        all: config.max_connections,
        of_an_address: of_an_address.unwrap_or(config.max_connections),
    };
    let endpoints = endpoints.into_iter().flatten();
    let listeners: Vec<Listener> = endpoints
        .map(|endpoint| Listener::new(endpoint, limits))
        .collect();
    match listeners.is_empty() {
        true => Err(ServerError::NoListener),
        false => Ok(listeners),
    }
}

/// What all HTTP requests share. The tables of jobs that a former process has begun are open before these go on.
async fn http_state(config: &Config, shared: &Arc<Shared>, archive: &Arc<Archive>) -> HttpState {
    let memory = config.memory as u64;
    let received = Arc::clone(shared.sessions.received());
    let rows = ArchiveRows::new(Arc::clone(&shared.sessions), config.threads);
    let opening = Arc::clone(&shared.query_runtime);
    let state = HttpState::new(
        Arc::clone(shared),
        Arc::clone(archive),
        config.cone_columns.clone(),
        TableRoom::new(memory, received, config.http_patience, opening),
        AlertDatabases::new(archive, rows, memory, config.threads),
    );
    state.jobs.reopen_uploads().await;
    state
}

/// Has the metrics tell of the queries, and of the cluster if there is one.
fn poll_queries(
    metrics: &Metrics,
    queries: &Arc<QueryService>,
    front_end: Option<&Arc<FrontEnd>>,
) -> Result<(), ServerError> {
    if let Some(front_end) = front_end {
        metrics.poll_cluster(front_end)?;
    }
    let counting = Arc::clone(queries);
    metrics.poll_queries(move || QueryCounts {
        queued: counting.num_queued(),
        scheduler: counting.scheduler_status(),
    })?;
    Ok(())
}

impl Server {
    /// Opens the data directory and binds the addresses.
    ///
    /// # Errors
    /// The data directory cannot be opened, or an address cannot be bound.
    pub async fn bind(config: Config) -> Result<Self, ServerError> {
        let tls = config.tls.as_ref().map(Tls::read).transpose()?;
        let users = Users::of(&config.data);
        let list = users.list().await?;
        let has_users = !list.is_empty();
        native_password::log_at_start(&list, config.native_password);
        let is_guarded = config.is_insecure || (has_users && tls.is_some());
        let mysql = listener::bind_tcp(config.mysql.as_deref(), "--mysql", is_guarded).await?;
        let mysql_socket = config
            .mysql_socket
            .as_deref()
            .map(listener::bind_unix)
            .transpose()?;
        let http = listener::bind_tcp(config.http.as_deref(), "--http", is_guarded).await?;
        let addresses = [&mysql, &http].into_iter().flatten();
        let is_local = { addresses }.all(|endpoint| endpoint.address.ip().is_loopback());
        let archive = Archive::open_keeping(&config.data, config.cache).await?;
        engine::bound_memory(&archive, config.memory);
        let processes = ProcessList::new();
        let tables = ServerTables::new(Arc::clone(&processes));
        let front_end = match config.cluster.clone() {
            Some(options) => Some(FrontEnd::bind(Arc::clone(&archive), options).await?),
            None => None,
        };
        let sessions = open_sessions(&config, &archive, &tables, front_end.as_ref())?;
        let query_runtime = QueryRuntime::start(config.threads)?;
        let authenticator = Authenticator::new(
            users,
            LoginThrottle::of(&config.data).await,
            is_local || config.is_insecure,
            Arc::clone(&archive),
            Arc::clone(&sessions),
            Arc::clone(&tables),
            Arc::clone(&query_runtime),
        );
        let usages = Usages::beginning_with(daily_usage::before(&config.data).await);
        let audit = config.audit.clone().map(AuditLog::open).transpose()?;
        let authenticator = authenticator.counting(usages).audited(audit);
        let authenticator = authenticator.taking_native(config.native_password);
        let authenticator = Arc::new(authenticator.with_provider(config.oidc.clone()));
        let host = Host {
            authenticator: Arc::clone(&authenticator),
            query_runtime: Arc::clone(&query_runtime),
            jobs: Arc::default(),
        };
        let jobs_of_host = Arc::clone(&host.jobs);
        let queries = open_queries(&config, host).await?;
        tables.list_queries(&queries);
        let counted = Arc::clone(&archive);
        let mysql_port = mysql.as_ref().map(|listening| listening.address.port());
        let server_info = server_info(&config, &tables, mysql_port);
        let spilling = sessions.spilled();
        let metrics = Metrics::new(move || counted.usage(), spilling, query_runtime.health())?;
        poll_queries(&metrics, &queries, front_end.as_ref())?;
        let shared = Arc::new(Shared {
            user: None,
            usage: Arc::default(),
            authenticator,
            sessions,
            processes,
            queries,
            server_info: Arc::new(server_info),
            mysql_port,
            tls,
            metrics: Arc::new(metrics),
            query_runtime,
            slow: config.slow,
            table_turns: Arc::default(),
            http_patience: config.http_patience,
            packets: BytePool::new(room_for_packets(config.memory as u64)),
            rejected: Arc::new(Semaphore::new(MAX_REJECTIONS)),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let state = http_state(&config, &shared, &archive).await;
        // It is set once, here.
        let _ = jobs_of_host.set(Arc::downgrade(&state.jobs));
        let alerts = Arc::clone(&state.alerts);
        shared.metrics.poll_alerts(&alerts)?;
        let http = http.map(|listening| {
            let names = AllowedHosts::new(listening.address, &config.http_hosts);
            let browsers = BrowserSessions::new(SessionStore::of(&config.data));
            Endpoint::Http(listening, UserRoutes::new(state, names, browsers).router())
        });
        let listeners = [
            mysql.map(Endpoint::MySql),
            mysql_socket.map(Endpoint::MySqlSocket),
            http,
        ];
        Ok(Self {
            listeners: listeners_of(listeners, &config)?,
            archive,
            shared,
            front_end,
            alerts,
            grace: config.grace,
            has_users,
        })
    }

    /// Whether clients had to log in when the server began.
    pub fn has_users(&self) -> bool {
        self.has_users
    }

    /// The names of the databases.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn databases(&self) -> Result<Vec<String>, ServerError> {
        Ok(self.shared.sessions.databases().await?)
    }

    /// A database, a table and a position at which the table has rows, for an example: the director with the most rows.
    ///
    /// # Errors
    /// The catalog or the table cannot be read.
    pub async fn example_cone(&self) -> Result<Option<(String, String, [f64; 2])>, ServerError> {
        let catalog = self.archive.catalog();
        let mut largest: Option<catalog::Table> = None;
        for database in catalog.databases().await.map_err(EngineError::from)? {
            let tables = catalog.tables(&database.name).await;
            for table in tables.map_err(EngineError::from)? {
                let is_larger = largest
                    .as_ref()
                    .is_none_or(|known| known.rows() < table.rows());
                if table.spec.kind == catalog::TableKind::Director && is_larger {
                    largest = Some(table);
                }
            }
        }
        let Some(spec) = largest.map(|table| table.spec) else {
            return Ok(None);
        };
        let place = ConeTable::example(&self.archive, &spec.database, &spec.name).await?;
        Ok(place.map(|place| (spec.database, spec.name, place)))
    }

    /// The address for MySQL clients.
    pub fn mysql_address(&self) -> Option<SocketAddr> {
        self.endpoints().find_map(|endpoint| match endpoint {
            Endpoint::MySql(listening) => Some(listening.address),
            _ => None,
        })
    }

    /// The socket for MySQL clients.
    pub fn mysql_socket(&self) -> Option<&Path> {
        self.endpoints().find_map(|endpoint| match endpoint {
            Endpoint::MySqlSocket(socket) => Some(socket.path.as_path()),
            _ => None,
        })
    }

    /// The address for HTTP clients.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.endpoints().find_map(|endpoint| match endpoint {
            Endpoint::Http(listening, _) => Some(listening.address),
            _ => None,
        })
    }

    /// The address for the workers of the cluster.
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.front_end.as_ref().map(|it| it.address())
    }

    fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners.iter().map(Listener::endpoint)
    }

    /// Serves until `stop` is cancelled. Running statements then have the grace period to finish.
    pub async fn serve(self, stop: CancellationToken) {
        // Workers run pieces until the last statement has ended.
        let left = CancellationToken::new();
        let expiring = tokio::spawn(own_tables::remove_expired_tables(
            Arc::clone(&self.archive),
            Arc::clone(&self.shared.authenticator),
            stop.clone(),
        ));
        let usage = DailyUsage::of(self.archive.catalog().data_dir());
        let counting = Arc::clone(&self.shared.authenticator);
        let counting = tokio::spawn(daily_usage::write_down(counting, usage, left.clone()));
        let sharing = Arc::clone(&self.shared.authenticator);
        let sharing = tokio::spawn(login_throttle::share(sharing, left.clone()));
        let releasing = tokio::spawn(release_changed_tables(self.archive, stop.clone()));
        let following = follow_in_background(Arc::clone(&self.alerts), stop.clone());
        let following = tokio::spawn(following);
        let publishing = tokio::spawn(publish_in_background(self.alerts, stop.clone()));
        // Submitted queries that run do not delay the end: the next process goes on with them.
        let queries = Arc::clone(&self.shared.queries);
        let queries = tokio::spawn(queries.run(stop.clone()));
        let front_end = self.front_end;
        let front_end = front_end.map(|it| tokio::spawn(it.run(left.clone())));
        let leaving = left.drop_guard();
        let open = self.listeners.into_iter();
        let open =
            open.map(|listener| listener.accept_loop(Arc::clone(&self.shared), stop.clone()));
        let mut connections: Vec<JoinSet<()>> = futures::future::join_all(open).await;
        info!(
            connections = count(&connections),
            grace = self.grace.as_secs(),
            "ending"
        );
        self.shared.closing.cancel();
        if timeout(self.grace, all(&mut connections)).await.is_err() {
            info!(
                connections = count(&connections),
                "statements that still run are stopped"
            );
            self.shared.ended.cancel();
            // Statements that do not end even then are abandoned.
            let _ = timeout(LAST_WORDS, all(&mut connections)).await;
        }
        // What it began to remove is removed in a moment.
        let _ = timeout(LAST_WORDS, releasing).await;
        // A publication that is broken off is none, and begins anew in the next process.
        publishing.abort();
        following.abort();
        expiring.abort();
        let _ = timeout(LAST_WORDS, queries).await;
        drop(leaving);
        let _ = timeout(LAST_WORDS, counting).await;
        let _ = timeout(LAST_WORDS, sharing).await;
        if let Some(front_end) = front_end {
            let _ = timeout(LAST_WORDS, front_end).await;
        }
        self.shared.authenticator.flush_audit(LAST_WORDS).await;
        info!("ended");
    }
}

/// What statements tell of the server.
fn server_info(
    config: &Config,
    tables: &Arc<ServerTables>,
    mysql_port: Option<u16>,
) -> LiveServerInfo {
    LiveServerInfo {
        tables: Arc::clone(tables),
        port: mysql_port.unwrap_or(0),
        socket: config.mysql_socket.clone(),
        max_connections: config.max_connections as u64,
        tls: config.tls.is_some(),
        native_password: config.native_password,
    }
}

/// Bytes of packets and prepared statements of all connections together: half as much as their statements may take.
fn room_for_packets(memory: u64) -> u64 {
    (memory / 2).max(2 * mysql::LONGEST_COMMAND as u64)
}

fn count(connections: &[JoinSet<()>]) -> usize {
    connections.iter().map(JoinSet::len).sum()
}

async fn all(connections: &mut [JoinSet<()>]) {
    for of_listener in connections {
        while let Some(left) = of_listener.join_next().await {
            log_panic(left);
        }
    }
}

/// Logs a connection whose task panicked. No other connection is affected.
pub(crate) fn log_panic(left: Result<(), JoinError>) {
    if let Err(error) = left {
        error!(%error, "a connection made the server panic");
    }
}
