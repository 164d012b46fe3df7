//! What runs now: the connections, and the statements that they wait for. Each can be ended by its number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sql::connection::Process;
use sql::{ErrorCode, Interrupt};
use tokio_util::sync::CancellationToken;

use crate::Refusal;
use crate::doors::Peer;

/// Bytes of a statement that are kept to be shown.
const SHOWN: usize = 64 << 10;

/// All connections.
#[derive(Debug)]
pub(crate) struct Running {
    begun: Instant,
    connections: Mutex<BTreeMap<u32, Arc<Line>>>,
    last_connection: AtomicU32,
    last_statement: AtomicU64,
    most_at_once: AtomicUsize,
}

/// A connection's line in the list.
#[derive(Debug)]
struct Line {
    peer: Peer,
    /// Ends the connection.
    end: CancellationToken,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    user: String,
    database: Option<String>,
    command: &'static str,
    since: Instant,
    statement: Option<String>,
    /// Ends the statement alone.
    stop: CancellationToken,
    /// What it computes ends by this, where it computes within the list's sight.
    interrupt: Option<Arc<Interrupt>>,
}

impl Running {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            connections: Mutex::default(),
            last_connection: AtomicU32::new(0),
            last_statement: AtomicU64::new(0),
            most_at_once: AtomicUsize::new(0),
        })
    }

    /// A new connection; it is in the list for as long as it is held.
    pub(crate) fn enter(self: &Arc<Self>, peer: Peer) -> Entered {
        let id = self.last_connection.fetch_add(1, Relaxed).wrapping_add(1);
        let line = Arc::new(Line {
            peer,
            end: CancellationToken::new(),
            now: Mutex::new(Now {
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
        connections.insert(id, Arc::clone(&line));
        self.most_at_once.fetch_max(connections.len(), Relaxed);
        Entered {
            id,
            running: Arc::clone(self),
            line,
        }
    }

    /// Ends a connection, or what it waits for alone; says whether there is one of the number.
    pub(crate) fn kill(&self, id: u64, statement_only: bool) -> bool {
        let line = u32::try_from(id).ok();
        let line = line.and_then(|id| lock(&self.connections).get(&id).cloned());
        let Some(line) = line else {
            return false;
        };
        let now = lock(&line.now);
        now.stop.cancel();
        if let Some(interrupt) = &now.interrupt {
            interrupt.end();
        }
        drop(now);
        if !statement_only {
            line.end.cancel();
        }
        true
    }

    /// The connections and what they do, by their numbers.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let lines = lock(&self.connections).clone();
        let process = |(id, line): (u32, Arc<Line>)| {
            let now = lock(&line.now);
            Process {
                id,
                user: now.user.clone(),
                host: line.peer.to_string(),
                database: now.database.clone(),
                command: now.command,
                seconds: now.since.elapsed().as_secs(),
                state: if now.statement.is_some() {
                    "executing"
                } else {
                    ""
                },
                statement: now.statement.clone(),
            }
        };
        lines.into_iter().map(process).collect()
    }

    /// The number of the next statement or request.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_statement.fetch_add(1, Relaxed) + 1
    }

    /// What is counted, by MySQL's names.
    pub(crate) fn status(&self) -> Vec<(&'static str, String)> {
        let (connected, running) = self.at_once();
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
            ("Threads_running", running.to_string()),
            ("Uptime", self.begun.elapsed().as_secs().to_string()),
        ]
    }

    /// The same in a line.
    pub(crate) fn in_a_line(&self) -> String {
        let uptime = self.begun.elapsed();
        let (connected, _) = self.at_once();
        let statements = self.last_statement.load(Relaxed);
        let rate = statements as f64 / uptime.as_secs_f64().max(1.0);
        format!(
            "Uptime: {}  Threads: {connected}  Questions: {statements}  Slow queries: 0  Opens: 0  Flush tables: 0  \
             Open tables: 0  Queries per second avg: {rate:.3}",
            uptime.as_secs()
        )
    }

    /// How many connections there are, and how many of them wait for a statement.
    fn at_once(&self) -> (usize, usize) {
        let connections = lock(&self.connections);
        let busy = connections
            .values()
            .filter(|line| lock(&line.now).statement.is_some());
        (connections.len(), busy.count())
    }
}

/// A connection in the list.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) id: u32,
    running: Arc<Running>,
    line: Arc<Line>,
}

impl Entered {
    /// Says who is connected and which database is chosen.
    pub(crate) fn introduce(&self, user: &str, database: Option<&str>) {
        let mut now = lock(&self.line.now);
        user.clone_into(&mut now.user);
        now.database = database.map(str::to_owned);
    }

    /// Waits for its next command.
    pub(crate) fn sleep(&self) {
        let mut now = lock(&self.line.now);
        (now.command, now.since) = ("Sleep", Instant::now());
    }

    /// A statement begins; it is in the list for as long as it is held.
    pub(crate) fn begin(&self, command: &'static str, text: &str) -> Statement {
        let number = self.running.next_number();
        let stop = self.line.end.child_token();
        let mut now = lock(&self.line.now);
        (now.command, now.since) = (command, Instant::now());
        now.statement = Some(text[..text.floor_char_boundary(SHOWN)].to_owned());
        now.stop = stop.clone();
        Statement {
            number,
            stop,
            begun: now.since,
            line: Arc::clone(&self.line),
        }
    }

    /// What somebody ends the connection by.
    pub(crate) fn end(&self) -> CancellationToken {
        self.line.end.clone()
    }

    /// Ends when somebody has ended the connection.
    pub(crate) async fn ended(&self) {
        self.line.end.cancelled().await;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.line.end.is_cancelled()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        lock(&self.running.connections).remove(&self.id);
    }
}

/// A statement that a connection waits for.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Its number among all of the server's.
    pub(crate) number: u64,
    pub(crate) begun: Instant,
    stop: CancellationToken,
    line: Arc<Line>,
}

impl Statement {
    /// Its text, as far as it is shown.
    pub(crate) fn text(&self) -> String {
        lock(&self.line.now).statement.clone().unwrap_or_default()
    }

    /// Ends when somebody has ended the statement or its connection.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        let mut now = lock(&self.line.now);
        (now.statement, now.interrupt) = (None, None);
    }
}

/// Work that no connection of MySQL's waits for, in the list as one that does.
#[derive(Debug)]
pub(crate) struct Listed {
    statement: Statement,
    ended: CancellationToken,
    /// Goes last, as the statement is its.
    _entered: Entered,
}

impl Listed {
    pub(crate) fn new(
        entered: Entered,
        command: &'static str,
        text: &str,
        ended: CancellationToken,
    ) -> Self {
        Self {
            statement: entered.begin(command, text),
            ended,
            _entered: entered,
        }
    }

    /// Does the work, unless somebody ends it. KILL ends what its thread works on at once.
    ///
    /// # Errors
    /// Those of the work, and that it was ended.
    pub(crate) async fn during<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        lock(&self.statement.line.now).interrupt = Interrupt::current();
        tokio::select! {
            biased;
            () = self.statement.stopped() => {
                Err(Refusal::new(ErrorCode::INTERRUPTED, "it was stopped by KILL"))
            }
            () = self.ended.cancelled() => {
                Err(Refusal::new(ErrorCode::SERVER_ENDS, "the server ends: it was stopped"))
            }
            done = work => done,
        }
    }
}

/// A panic elsewhere leaves the lists whole: every change is a single one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn statements_and_connections_end_apart() {
        let running = Running::new();
        let connection = running.enter(Peer::Address(([127, 0, 0, 1], 5000).into()));
        connection.introduce("ann", Some("sky"));
        let statement = connection.begin("Query", "SELECT 1");
        let listed = &running.processes()[0];
        assert_eq!((listed.user.as_str(), listed.command), ("ann", "Query"));
        assert_eq!(listed.statement.as_deref(), Some("SELECT 1"));

        assert!(running.kill(connection.id.into(), true));
        assert!(statement.stopped().now_or_never().is_some());
        assert!(!connection.is_ended());
        drop(statement);
        assert_eq!(running.processes()[0].statement, None);

        let next = connection.begin("Query", "SELECT 2");
        assert!(next.stopped().now_or_never().is_none());
        assert!(running.kill(connection.id.into(), false));
        assert!(next.stopped().now_or_never().is_some());
        assert!(connection.is_ended());
        drop((next, connection));
        assert!(running.processes().is_empty());
        assert!(!running.kill(1, false));
        assert!(!running.kill(u64::MAX, true));
    }
}
