//! What is written down of a query.

use std::sync::Arc;

use engine::{Milestone, QueryInfo, QueryState, WaitsFor, milestones};
use sql::Dialect;
use sql::connection::StatementLimits;

/// A query as it is written down. Times are microseconds since 1970 in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueryRecord {
    pub id: u64,
    pub user: String,
    pub database: Option<String>,
    pub protocol: &'static str,
    pub is_async: bool,
    pub state: QueryState,
    /// Where its pieces are scheduled.
    pub lane: Option<String>,
    pub submitted: i64,
    pub started: Option<i64>,
    pub ended: Option<i64>,
    pub pieces_done: u64,
    pub pieces: u64,
    /// Bytes of columns that it decodes, by the catalog's counts.
    pub scan_bytes: u64,
    /// How long it was expected to take by itself, in milliseconds.
    pub estimate: Option<u64>,
    /// Bytes of columns that it has decoded.
    pub decoded_bytes: u64,
    /// Bytes of columns that it has found decoded.
    pub shared_bytes: u64,
    pub rows: u64,
    pub result_bytes: u64,
    pub expires: Option<i64>,
    pub error_code: Option<u16>,
    pub error: Option<String>,
    /// `sql_select_limit` of the connection.
    pub row_limit: Option<u64>,
    /// `max_execution_time` of the connection, in milliseconds.
    pub time_limit: Option<u64>,
    /// `cte_max_recursion_depth` and `group_concat_max_len` of the connection.
    pub limits: StatementLimits,
    /// The time of whose state published data are read (`meridian_as_of`), as of which it was submitted.
    pub as_of: Option<i64>,
    pub dialect: Dialect,
    pub statement: String,
    /// The query whose result answered it, if it did not run.
    pub cached_from: Option<u64>,
    /// When its work was handed out, begun and done.
    pub milestones: Arc<[Milestone]>,
    /// How many warnings are beside its stored result.
    pub warnings: u64,
    /// Whether its user may not be told what it reads.
    pub is_veiled: bool,
    /// The front end that runs it, where several share the queries.
    pub front_end: u64,
    /// How often another front end has taken it over.
    pub epoch: u64,
}

impl QueryRecord {
    /// What users see of it.
    pub(crate) fn info(&self, waiting: Option<(u64, WaitsFor)>) -> QueryInfo {
        QueryInfo {
            id: self.id,
            user: self.user.clone(),
            database: self.database.clone(),
            protocol: self.protocol,
            is_async: self.is_async,
            state: self.state,
            place: waiting.map(|(place, _)| place),
            waits_for: waiting.map(|(_, what)| what),
            lane: self.lane.clone(),
            submitted: self.submitted,
            started: self.started,
            ended: self.ended,
            pieces_done: self.pieces_done,
            pieces: self.pieces,
            scan_bytes: Some(self.scan_bytes),
            estimate: self.estimate,
            decoded_bytes: Some(self.decoded_bytes),
            shared_bytes: Some(self.shared_bytes),
            rows: self.rows,
            result_bytes: self.result_bytes,
            seconds_left: self.seconds_left(),
            expires: self.expires,
            error_code: self.error_code,
            error: self.error.clone(),
            dialect: self.dialect,
            as_of: self.as_of,
            statement: self.statement.clone(),
            cached_from: self.cached_from,
            milestones: Arc::clone(&self.milestones),
            warnings: self.warnings,
            is_veiled: self.is_veiled,
        }
    }

    /// How long the query will still take if its pieces take as long as those before.
    fn seconds_left(&self) -> Option<u64> {
        let started = self
            .started
            .filter(|_| self.state == QueryState::Executing)?;
        let (done, left) = (self.pieces_done, self.pieces.checked_sub(self.pieces_done)?);
        if done == 0 {
            return None;
        }
        let elapsed = (now() - started).max(0) as f64 / 1e6;
        Some((elapsed * left as f64 / done as f64).ceil() as u64)
    }
}

/// Microseconds since 1970.
pub(crate) fn now() -> i64 {
    milestones::now()
}
