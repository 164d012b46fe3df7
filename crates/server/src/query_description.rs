//! A query as the HTTP endpoint describes it.

use engine::{Milestone, QueryInfo};
use serde::{Deserialize, Serialize};
use sql::{Moment, Warning};

/// What is known of a query, as JSON has it. Times are texts such as `2026-11-25T10:00:00.250000Z`, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryDescription {
    /// Its number.
    pub id: u64,
    /// Who submitted it.
    pub user: String,
    /// The default database.
    pub database: Option<String>,
    /// How it came: `MYSQL` or `HTTP`.
    pub protocol: String,
    /// `ASYNC` if it was submitted to run without a connection, `BLOCKING` if a connection waits for it.
    pub mode: String,
    /// `QUEUED`, `EXECUTING`, `COMPLETED`, `FAILED` or `ABORTED`.
    pub state: String,
    /// Its place in the queue, from 1 on, while it waits.
    pub queue_place: Option<u64>,
    /// What it waits for there: `TURN` or `MEMORY`.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Where its pieces are scheduled: `INTERACTIVE`, `FAST`, `MEDIUM`, `SLOW` or `SNAIL`.
    pub lane: Option<String>,
    /// When it was submitted.
    pub submitted: String,
    /// When it began to run.
    pub started: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
    /// When its result is removed.
    pub expires: Option<String>,
    /// Pieces of work that are done.
    pub pieces_done: u64,
    /// All pieces, as far as they are known.
    pub pieces: u64,
    /// Bytes of columns that it decodes, by the catalog's counts; none if that would tell of rows that its user may not see.
    #[serde(default)]
    pub scan_bytes: Option<u64>,
    /// How long it was expected to take by itself, in milliseconds.
    pub estimated_ms: Option<u64>,
    /// Bytes of columns that it has decoded.
    #[serde(default)]
    pub decoded_bytes: Option<u64>,
    /// Bytes of columns that it has found decoded in memory.
    #[serde(default)]
    pub shared_bytes: Option<u64>,
    /// Rows of its result; so far, while it runs.
    pub rows: u64,
    /// Bytes of its stored result.
    pub result_bytes: u64,
    /// How long it will still take, judged by its pieces.
    pub seconds_left: Option<u64>,
    /// MySQL's number of its error.
    pub error_code: Option<u16>,
    /// Its error.
    pub error: Option<String>,
    /// Where its result is, if there is a stored one.
    pub result: Option<String>,
    /// The dialect of its text: `mysql` or `adql`.
    pub dialect: String,
    /// The time of whose state it reads alert databases, if it was submitted as of one.
    #[serde(default)]
    pub as_of: Option<String>,
    /// Its text.
    pub statement: String,
    /// The number of the query whose result answered it, if it did not run.
    #[serde(default)]
    pub cached_from: Option<u64>,
    /// How many warnings its stored result has.
    #[serde(default)]
    pub warning_count: u64,
    /// These, with their numbers; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// When its work was handed out, begun and done; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<MilestoneDescription>,
}

/// Some pieces of a query that were handed out together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MilestoneDescription {
    /// The number of their phase, from 1 on.
    pub phase: u32,
    /// Who ran them: `here`, a worker, or `several`.
    pub run_by: String,
    /// How many they are.
    pub pieces: u64,
    /// Those whose rows count.
    pub pieces_done: u64,
    /// When the first of them was given to its lane or sent to its worker.
    pub handed_out: String,
    /// When the first of them began.
    pub started: Option<String>,
    /// When the first rows came.
    pub first_rows: Option<String>,
    /// When the last of them was done.
    pub committed: Option<String>,
}

impl From<&Milestone> for MilestoneDescription {
    fn from(milestone: &Milestone) -> Self {
        Self {
            phase: milestone.phase,
            run_by: milestone.runner.clone(),
            pieces: milestone.pieces,
            pieces_done: milestone.pieces_done,
            handed_out: moment(milestone.handed_out),
            started: milestone.started.map(moment),
            first_rows: milestone.first_rows.map(moment),
            committed: milestone.committed.map(moment),
        }
    }
}

impl QueryDescription {
    /// Whether the query does nothing more.
    pub fn is_final(&self) -> bool {
        !["QUEUED", "EXECUTING"].contains(&self.state.as_str())
    }

    /// The same with these warnings.
    pub(crate) fn with_warnings(self, warnings: &[Warning]) -> Self {
        Self {
            warnings: warnings.iter().map(Warning::to_string).collect(),
            ..self
        }
    }

    /// The same for a list: with no more of the text than this many bytes, and without milestones.
    pub(crate) fn shortened(mut self, bytes: usize) -> Self {
        self.milestones.clear();
        let end = self.statement.floor_char_boundary(bytes);
        if end < self.statement.len() {
            self.statement.truncate(end);
            self.statement.push_str("...");
        }
        self
    }
}

impl From<QueryInfo> for QueryDescription {
    fn from(info: QueryInfo) -> Self {
        let is_stored = info.is_async && info.state == engine::QueryState::Completed;
        Self {
            id: info.id,
            user: info.user,
            database: info.database,
            protocol: info.protocol.to_owned(),
            mode: if info.is_async { "ASYNC" } else { "BLOCKING" }.to_owned(),
            state: info.state.name().to_owned(),
            queue_place: info.place,
            waits_for: info.waits_for.map(|what| what.name().to_owned()),
            lane: info.lane,
            submitted: moment(info.submitted),
            started: info.started.map(moment),
            ended: info.ended.map(moment),
            expires: info.expires.map(moment),
            pieces_done: info.pieces_done,
            pieces: info.pieces,
            rows: info.rows,
            scan_bytes: info.scan_bytes,
            estimated_ms: info.estimate,
            decoded_bytes: info.decoded_bytes,
            shared_bytes: info.shared_bytes,
            result_bytes: info.result_bytes,
            seconds_left: info.seconds_left,
            error_code: info.error_code,
            error: info.error,
            result: is_stored.then(|| format!("/queries/{}/result", info.id)),
            dialect: info.dialect.name().to_owned(),
            as_of: info.as_of.map(moment),
            statement: info.statement,
            cached_from: info.cached_from,
            warning_count: info.warnings,
            warnings: vec![],
            milestones: info.milestones.iter().map(Into::into).collect(),
        }
    }
}

/// A time, by its microseconds since 1970, as ISO 8601 writes it.
fn moment(micros: i64) -> String {
    let Moment {
        year,
        month,
        day,
        hour,
        minute,
        second,
        micros,
    } = Moment::of_micros(micros);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(moment(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(moment(1_276_563_723_000_250), "2010-06-15T01:02:03.000250Z");
    }
}
