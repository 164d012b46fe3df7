//! The result so far of a query that runs: the result over the pieces that are committed, which are a part of the sky.

use std::sync::Arc;

use engine::{EngineError, QueryExecution, StoredRows};
use sql::{ErrorCode, Warning};

use crate::record::QueryRecord;
use crate::run::{as_statement, prepare};
use crate::service::RunningQuery;

/// The rows of the query over what its journal has when they are read.
pub(crate) fn rows(running: RunningQuery, record: QueryRecord) -> StoredRows {
    let schema = Arc::clone(&running.schema);
    // Those of the statement are told with the whole result.
    let warnings = [Warning {
        code: ErrorCode::OTHER,
        sentence: coverage(record.id, record.pieces_done, record.pieces),
    }];
    let open = move || {
        let (session, record) = (Arc::clone(&running.session), record.clone());
        let journal = Arc::clone(&running.journal);
        let execution = Arc::new(QueryExecution::new().with_journal(journal));
        let rows = async move {
            let prepared = prepare(&session, &record)
                .await
                .map_err(EngineError::from)?;
            Ok(session.start_journaled(prepared, true)?.batches)
        };
        as_statement(rows, execution)
    };
    StoredRows {
        schema,
        warnings: Arc::new(warnings),
        open: Arc::new(open),
    }
}

/// How much of the sky a result so far covers. Pieces that are done a moment later may be in it, too.
fn coverage(id: u64, done: u64, pieces: u64) -> String {
    let percent = done.saturating_mul(100).checked_div(pieces).unwrap_or(0);
    format!(
        "the result so far of query {id}, not the whole: {done} of the {pieces} pieces of the sky that it reads are done, {percent} %"
    )
}

#[cfg(test)]
mod tests {
    use super::coverage;

    #[test]
    fn a_result_so_far_says_of_how_much_it_is() {
        let told = |done, pieces| {
            let sentence = coverage(7, done, pieces);
            let (_, told) = sentence.split_once(": ").unwrap();
            told.to_owned()
        };
        let of = |done, pieces, percent| {
            format!("{done} of the {pieces} pieces of the sky that it reads are done, {percent} %")
        };
        for (done, pieces, percent) in [(0, 0, 0), (0, 208, 0), (83, 208, 39), (207, 208, 99)] {
            assert_eq!(told(done, pieces), of(done, pieces, percent));
        }
        assert!(coverage(7, 1, 2).starts_with("the result so far of query 7, not the whole"));
    }
}
