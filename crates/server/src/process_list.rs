//! The process list: the connections and the statements that they execute. KILL ends either by its number.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sql::connection::ProcessInfo;
use sql::{ErrorCode, Interrupt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ClientError;
use crate::listener::Peer;

/// Bytes of a statement's text that the list keeps.
const SHOWN: usize = 64 << 10;

/// The list of all connections.
#[derive(Debug)]
pub(crate) struct ProcessList {
    begun: Instant,
    connections: Mutex<BTreeMap<u32, Arc<Process>>>,
    last_connection: AtomicU32,
    last_statement: AtomicU64,
    most_at_once: AtomicUsize,
}

/// A connection in the list.
#[derive(Debug)]
struct Process {
    peer: Peer,
    /// Cancelled to end the connection.
    end: CancellationToken,
    now: Mutex<ProcessState>,
}

#[derive(Debug)]
struct ProcessState {
    user: String,
    database: Option<String>,
    command: &'static str,
    since: Instant,
    statement: Option<String>,
    /// Cancelled to stop the statement alone.
    stop: CancellationToken,
    /// Interrupts the computation, if it runs on a thread that the list knows.
    interrupt: Option<Arc<Interrupt>>,
}

impl ProcessList {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            connections: Mutex::default(),
            last_connection: AtomicU32::new(0),
            last_statement: AtomicU64::new(0),
            most_at_once: AtomicUsize::new(0),
        })
    }

    /// Registers a connection, which is listed until the guard is dropped.
    pub(crate) fn register(self: &Arc<Self>, peer: Peer) -> ConnectionGuard {
        let id = self.last_connection.fetch_add(1, Relaxed).wrapping_add(1);
        let process = Arc::new(Process {
            peer,
            end: CancellationToken::new(),
            now: Mutex::new(ProcessState {
                user: String::new(),
                database: None,
                command: "Connect",
                since: Instant::now(),
                statement: None,
                stop: CancellationToken::new(),
                interrupt: None,
            }),
        });
        let mut connections = lock(&self.connections);
        connections.insert(id, Arc::clone(&process));
        self.most_at_once.fetch_max(connections.len(), Relaxed);
        ConnectionGuard {
            id,
            processes: Arc::clone(self),
            process,
        }
    }

    /// Ends a connection, or only its statement; returns whether the connection exists.
    pub(crate) fn kill(&self, id: u64, statement_only: bool) -> bool {
        let process = u32::try_from(id).ok();
        let process = process.and_then(|id| lock(&self.connections).get(&id).cloned());
        let Some(process) = process else {
            return false;
        };
        let now = lock(&process.now);
        now.stop.cancel();
        if let Some(interrupt) = &now.interrupt {
            interrupt.end();
        }
        drop(now);
        if !statement_only {
            process.end.cancel();
        }
        true
    }

    /// The user of a connection, if there is one of the number.
    pub(crate) fn user_of(&self, id: u64) -> Option<String> {
        let id = u32::try_from(id).ok()?;
        let process = lock(&self.connections).get(&id).cloned()?;
        let now = lock(&process.now);
        Some(now.user.clone())
    }

    /// All connections, by their numbers.
    pub(crate) fn processes(&self) -> Vec<ProcessInfo> {
        let processes = lock(&self.connections).clone();
        let info = |(id, process): (u32, Arc<Process>)| {
            let now = lock(&process.now);
            ProcessInfo {
                id: id.into(),
                user: now.user.clone(),
                host: process.peer.to_string(),
                database: now.database.clone(),
                command: now.command,
                seconds: now.since.elapsed().as_secs(),
                state: match now.statement {
                    Some(_) => "executing".to_owned(),
                    None => String::new(),
                },
                statement: now.statement.clone(),
            }
        };
        processes.into_iter().map(info).collect()
    }

    /// The number of the next statement or request.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_statement.fetch_add(1, Relaxed) + 1
    }

    /// The status variables, by MySQL's names.
    pub(crate) fn status(&self) -> Vec<(&'static str, String)> {
        let (connected, processes) = self.count_active();
        let statements = self.last_statement.load(Relaxed);
        vec![
            (
                "Connections",
                self.last_connection.load(Relaxed).to_string(),
            ),
            (
                "Max_used_connections",
                self.most_at_once.load(Relaxed).to_string(),
            ),
            ("Queries", statements.to_string()),
            ("Questions", statements.to_string()),
            ("Ssl_cipher", String::new()),
            ("Ssl_version", String::new()),
            ("Threads_connected", connected.to_string()),
            ("Threads_running", processes.to_string()),
            ("Uptime", self.begun.elapsed().as_secs().to_string()),
        ]
    }

    /// The status as one line, for COM_STATISTICS.
    pub(crate) fn status_line(&self) -> String {
        let uptime = self.begun.elapsed();
        let (connected, _) = self.count_active();
        let statements = self.last_statement.load(Relaxed);
        let rate = statements as f64 / uptime.as_secs_f64().max(1.0);
        format!(
            "Uptime: {}  Threads: {connected}  Questions: {statements}  Slow queries: 0  Opens: 0  Flush tables: 0  \
             Open tables: 0  Queries per second avg: {rate:.3}",
            uptime.as_secs()
        )
    }

    /// The number of connections, and of those that execute a statement.
    fn count_active(&self) -> (usize, usize) {
        let connections = lock(&self.connections);
        let busy = connections
            .values()
            .filter(|process| lock(&process.now).statement.is_some());
        (connections.len(), busy.count())
    }
}

/// Keeps a connection in the list.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    pub(crate) id: u32,
    processes: Arc<ProcessList>,
    process: Arc<Process>,
}

impl ConnectionGuard {
    /// Sets the user and the database.
    pub(crate) fn set_identity(&self, user: &str, database: Option<&str>) {
        let mut now = lock(&self.process.now);
        user.clone_into(&mut now.user);
        now.database = database.map(str::to_owned);
    }

    /// Notes that the connection waits for its next command.
    pub(crate) fn sleep(&self) {
        let mut now = lock(&self.process.now);
        (now.command, now.since) = ("Sleep", Instant::now());
    }

    /// Registers a statement, which is listed without passwords until the result is dropped.
    pub(crate) fn begin(&self, command: &'static str, text: &str) -> Statement {
        let number = self.processes.next_number();
        let stop = self.process.end.child_token();
        let text = sql::mysql::without_passwords(text);
        let mut now = lock(&self.process.now);
        (now.command, now.since) = (command, Instant::now());
        now.statement = Some(text[..text.floor_char_boundary(SHOWN)].to_owned());
        now.stop = stop.clone();
        Statement {
            number,
            stop,
            begun: now.since,
            process: Arc::clone(&self.process),
        }
    }

    /// The token that ends the connection.
    pub(crate) fn end(&self) -> CancellationToken {
        self.process.end.clone()
    }

    /// Completes when the connection is killed.
    pub(crate) async fn ended(&self) {
        self.process.end.cancelled().await;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.process.end.is_cancelled()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        lock(&self.processes.connections).remove(&self.id);
    }
}

/// A statement that a connection executes.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Its number among all statements of the server.
    pub(crate) number: u64,
    pub(crate) begun: Instant,
    stop: CancellationToken,
    process: Arc<Process>,
}

impl Statement {
    /// Its text, as far as the list keeps it.
    pub(crate) fn text(&self) -> String {
        lock(&self.process.now)
            .statement
            .clone()
            .unwrap_or_default()
    }

    /// The token that stops the statement.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Completes when the statement or its connection is killed.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        let mut now = lock(&self.process.now);
        (now.statement, now.interrupt) = (None, None);
    }
}

/// Work of another protocol, listed as a connection with a statement.
#[derive(Debug)]
pub(crate) struct TrackedTask {
    statement: Statement,
    ended: CancellationToken,
    limit: Option<TimeLimit>,
    /// Dropped after the statement, which belongs to it.
    guard: ConnectionGuard,
}

/// What ends work that takes longer than its user may have.
#[derive(Debug)]
struct TimeLimit {
    limit: Duration,
    /// The error of what has taken longer.
    error: fn(Duration) -> ClientError,
    is_over: Arc<AtomicBool>,
    waiting: JoinHandle<()>,
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

impl TrackedTask {
    pub(crate) fn new(
        guard: ConnectionGuard,
        command: &'static str,
        text: &str,
        ended: CancellationToken,
    ) -> Self {
        Self {
            statement: guard.begin(command, text),
            ended,
            limit: None,
            guard,
        }
    }

    /// The same, which is ended after a time that begins now. It is the network's threads that wait: those of queries may compute.
    #[must_use]
    pub(crate) fn within(self, limit: Option<Duration>) -> Self {
        match limit {
            Some(limit) => self.within_or(limit, |limit| ::queries::over_limit(limit).into()),
            None => self,
        }
    }

    /// The same, with an error of its own.
    #[must_use]
    pub(crate) fn within_or(self, limit: Duration, error: fn(Duration) -> ClientError) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (processes, id) = (Arc::clone(&self.guard.processes), self.guard.id);
        let over = Arc::clone(&is_over);
        let waiting = tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            over.store(true, Release);
            processes.kill(id.into(), true);
        });
        let limit = TimeLimit {
            limit,
            error,
            is_over,
            waiting,
        };
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// The token that stops it.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.statement.stop_token()
    }

    /// The number of its connection.
    pub(crate) fn connection_id(&self) -> u32 {
        self.guard.id
    }

    /// Does the work unless it is killed. KILL also interrupts the thread that computes.
    ///
    /// # Errors
    /// Those of the work, or that it was stopped.
    pub(crate) async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        lock(&self.statement.process.now).interrupt = Interrupt::current();
        let outcome = tokio::select! {
            biased;
            () = self.statement.stopped() => {
                Err(ClientError::new(ErrorCode::INTERRUPTED, "it was stopped by KILL"))
            }
            () = self.ended.cancelled() => {
                Err(ClientError::new(ErrorCode::SERVER_ENDS, "the server shuts down: it was stopped"))
            }
            done = work => done,
        };
        match &self.limit {
            Some(limit) if outcome.is_err() && limit.is_over.load(Acquire) => {
                Err((limit.error)(limit.limit))
            }
            _ => outcome,
        }
    }
}

/// A panic in another thread leaves the list consistent, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn statements_and_connections_end_apart() {
        let processes = ProcessList::new();
        let connection = processes.register(Peer::Address(([127, 0, 0, 1], 5000).into()));
        connection.set_identity("ann", Some("sky"));
        let statement = connection.begin("Query", "SELECT 1");
        let info = &processes.processes()[0];
        assert_eq!((info.user.as_str(), info.command), ("ann", "Query"));
        assert_eq!(info.statement.as_deref(), Some("SELECT 1"));

        assert!(processes.kill(connection.id.into(), true));
        assert!(statement.stopped().now_or_never().is_some());
        assert!(!connection.is_ended());
        drop(statement);
        assert_eq!(processes.processes()[0].statement, None);

        let next = connection.begin("Query", "SELECT 2");
        assert!(next.stopped().now_or_never().is_none());
        assert!(processes.kill(connection.id.into(), false));
        assert!(next.stopped().now_or_never().is_some());
        assert!(connection.is_ended());
        drop((next, connection));
        assert!(processes.processes().is_empty());
        assert!(!processes.kill(1, false));
        assert!(!processes.kill(u64::MAX, true));
    }
}
