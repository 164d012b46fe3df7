//! What a server adds to the tables of the catalog: its connections, its queries, and the stored results of these.

use std::fmt;
use std::sync::Arc;

use sql::Dialect;
use sql::connection::ProcessInfo;

use crate::stored_rows::StoredRows;
use crate::{EngineError, Milestone, ScanEstimate};

/// Information of a server that statements read as tables.
pub trait SystemTables: fmt::Debug + Send + Sync {
    /// The connections, and the queries that wait or run without one, for `information_schema.PROCESSLIST`.
    fn processes(&self) -> Vec<ProcessInfo>;

    /// The queries that are known, running and past, for `information_schema.QUERIES`.
    fn queries(&self) -> Vec<QueryInfo>;

    /// How the server would run a scan that reads this.
    fn forecast(&self, estimate: &ScanEstimate) -> ScanForecast;

    /// The stored result of a query, for `qserv_result(id)`; or its result so far, for `qserv_result(id, 'partial')`.
    ///
    /// # Errors
    /// There is no such query, it is another user's, or it has no result: the sentence says which.
    fn result(&self, query: u64, user: &str, partial: bool) -> Result<StoredRows, EngineError>;
}

/// How a scan would run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanForecast {
    /// The lane that it would join.
    pub lane: String,
    /// How long it would take by itself, in seconds.
    pub seconds: f64,
}

/// The state of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueryState {
    /// It waits for its turn.
    Queued,
    /// It runs.
    Executing,
    /// Its result is complete.
    Completed,
    /// It ended with an error.
    Failed,
    /// Somebody ended it, or the server did.
    Aborted,
}

impl QueryState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Queued,
        Self::Executing,
        Self::Completed,
        Self::Failed,
        Self::Aborted,
    ];

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Executing => "EXECUTING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Aborted => "ABORTED",
        }
    }

    /// The state of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the query does nothing more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Aborted)
    }
}

impl fmt::Display for QueryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a query waits for that is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// That fewer submitted queries run.
    Turn,
    /// Its least share of the memory of statements.
    Memory,
}

impl WaitsFor {
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "TURN",
            Self::Memory => "MEMORY",
        }
    }
}

/// A query in `information_schema.QUERIES`. Times are microseconds since 1970 in UTC.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryInfo {
    /// Its number.
    pub id: u64,
    /// Who submitted it.
    pub user: String,
    /// The default database.
    pub database: Option<String>,
    /// How it came: `MYSQL`, `HTTP`.
    pub protocol: &'static str,
    /// Whether it was submitted to run without its connection.
    pub is_async: bool,
    /// What it does.
    pub state: QueryState,
    /// Its place in the queue, from 1 on.
    pub place: Option<u64>,
    /// What it waits for there.
    pub waits_for: Option<WaitsFor>,
    /// The class and the lane of its scans: `INTERACTIVE`, `FAST` ...
    pub lane: Option<String>,
    /// When it was submitted.
    pub submitted: i64,
    /// When it began to run.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// Pieces that have run.
    pub pieces_done: u64,
    /// Pieces of all its phases, as far as they are known.
    pub pieces: u64,
    /// Rows of its result; so far, while it runs.
    pub rows: u64,
    /// Bytes of its stored result.
    pub result_bytes: u64,
    /// Bytes of columns that it decodes, by the catalog's counts; `None` if that is not told.
    pub scan_bytes: Option<u64>,
    /// How long it was expected to take by itself, in milliseconds.
    pub estimate: Option<u64>,
    /// Bytes of columns that it has decoded.
    pub decoded_bytes: Option<u64>,
    /// Bytes of columns that it has found decoded in memory, whoever decoded them.
    pub shared_bytes: Option<u64>,
    /// How long it will still take, in seconds, judged by its pieces.
    pub seconds_left: Option<u64>,
    /// When its result will be removed.
    pub expires: Option<i64>,
    /// MySQL's number of its error.
    pub error_code: Option<u16>,
    /// Its error.
    pub error: Option<String>,
    /// The dialect of its text.
    pub dialect: Dialect,
    /// The time of whose state it reads published data, if it was submitted as of one.
    pub as_of: Option<i64>,
    /// Its text.
    pub statement: String,
    /// The number of the query whose result answered it, if it did not run.
    pub cached_from: Option<u64>,
    /// When its work was handed out, begun and done.
    pub milestones: Arc<[Milestone]>,
    /// How many warnings its stored result has.
    pub warnings: u64,
    /// Whether what it reads tells of rows that its user may not see.
    pub is_veiled: bool,
}

impl QueryInfo {
    /// The same for whoever has asked it: without the bytes that it reads and the time that these take, if they count rows that its user may
    /// not see.
    #[must_use]
    pub fn for_its_user(self) -> Self {
        match self.is_veiled {
            false => self,
            true => Self {
                scan_bytes: None,
                estimate: None,
                decoded_bytes: None,
                shared_bytes: None,
                ..self
            },
        }
    }
}
