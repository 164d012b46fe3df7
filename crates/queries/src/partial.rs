//! The result so far of a query that runs: the result over the pieces that are committed, which are a part of the sky.

use std::sync::Arc;

use engine::{EngineError, QueryExecution, StoredRows};

use crate::record::QueryRecord;
use crate::run::{as_statement, prepare};
use crate::service::RunningQuery;

/// The rows of the query over what its journal has when they are read.
pub(crate) fn rows(running: RunningQuery, record: QueryRecord) -> StoredRows {
    let schema = Arc::clone(&running.schema);
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
        // They are told with the whole result.
        warnings: Arc::default(),
        open: Arc::new(open),
    }
}
