//! The tables about a server: its connections and its queries.

use super::{Contents, Row, Value};
use crate::system_tables::QueryInfo;

/// The columns of `QUERIES`, which MySQL has not.
pub(super) const QUERY_COLUMNS: &str = "ID# USER DB PROTOCOL MODE STATE QUEUE_PLACE# LANE SUBMITTED@ STARTED@ ENDED@ PIECES_DONE# \
                                        PIECES# SCAN_BYTES# ESTIMATED_MS# DECODED_BYTES# SHARED_BYTES# ROWS# RESULT_BYTES# SECONDS_LEFT# \
                                        EXPIRES@ ERROR_CODE# ERROR DIALECT STATEMENT CACHED_FROM# WAITS_FOR \
                                        WARNINGS# AS_OF@";

/// The columns of `QUERY_MILESTONES`.
pub(super) const MILESTONE_COLUMNS: &str = "QUERY_ID# NUMBER# PHASE# RUN_BY PIECES# PIECES_DONE# HANDED_OUT@ STARTED@ FIRST_ROWS@ COMMITTED@";

/// The connections, and the queries that run without one.
pub(super) fn processes(contents: &Contents) -> Vec<Row> {
    let processes = contents.system.iter().flat_map(|it| it.processes());
    let row = |process: sql::connection::ProcessInfo| {
        vec![
            process.id.into(),
            process.user.into(),
            process.host.into(),
            process.database.into(),
            process.command.into(),
            process.seconds.into(),
            process.state.into(),
            process.statement.into(),
        ]
    };
    processes.map(row).collect()
}

/// The queries, running and past.
pub(super) fn queries(contents: &Contents) -> Vec<Row> {
    let queries = contents.system.iter().flat_map(|it| it.queries());
    queries.map(query_row).collect()
}

fn query_row(query: QueryInfo) -> Row {
    let mode = if query.is_async { "ASYNC" } else { "BLOCKING" };
    vec![
        query.id.into(),
        query.user.into(),
        query.database.into(),
        query.protocol.into(),
        mode.into(),
        query.state.name().into(),
        query.place.into(),
        query.lane.into(),
        Value::Time(query.submitted),
        time(query.started),
        time(query.ended),
        query.pieces_done.into(),
        query.pieces.into(),
        query.scan_bytes.into(),
        query.estimate.into(),
        query.decoded_bytes.into(),
        query.shared_bytes.into(),
        query.rows.into(),
        query.result_bytes.into(),
        query.seconds_left.into(),
        time(query.expires),
        query.error_code.map(u64::from).into(),
        query.error.into(),
        query.dialect.name().into(),
        query.statement.into(),
        query.cached_from.into(),
        query.waits_for.map(|what| what.name().to_owned()).into(),
        query.warnings.into(),
        time(query.as_of),
    ]
}

/// When the work of the queries was handed out, begun and done.
pub(super) fn milestones(contents: &Contents) -> Vec<Row> {
    let queries = contents.system.iter().flat_map(|it| it.queries());
    let rows = queries.flat_map(|query| {
        let milestones = query.milestones.iter().zip(1_u64..);
        let rows = milestones.map(|(it, number)| {
            vec![
                query.id.into(),
                number.into(),
                u64::from(it.phase).into(),
                it.runner.as_str().into(),
                it.pieces.into(),
                it.pieces_done.into(),
                Value::Time(it.handed_out),
                time(it.started),
                time(it.first_rows),
                time(it.committed),
            ]
        });
        rows.collect::<Vec<Row>>()
    });
    rows.collect()
}

fn time(time: Option<i64>) -> Value {
    time.map_or(Value::Null, Value::Time)
}
