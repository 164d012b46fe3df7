//! Rows for Qserv's REST API: of a statement that runs while its client waits, and of a stored result. Both run on the query runtime.

use std::sync::Arc;

use bytes::Bytes;
use engine::RowStream;
use futures::StreamExt;
use sql::Warning;

use super::qserv_rows::{BinaryEncoding, QservRows};
use super::requester::Requester;
use crate::http::streaming::BLOCK_BYTES;
use crate::http::tracked_query::TrackedQuery;
use crate::metrics;
use crate::process_list::TrackedTask;
use crate::query_runtime::ResultSender;
use crate::{ClientError, Shared};

/// A statement whose client waits for its rows.
pub(super) struct SynchronousQuery {
    query: TrackedQuery,
    encoding: BinaryEncoding,
}

impl SynchronousQuery {
    /// Registers a statement.
    ///
    /// # Errors
    /// Its user has as many queries that run as they may.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        requester: Requester,
        database: Option<String>,
        statement: String,
        encoding: BinaryEncoding,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            query: TrackedQuery::begin(shared, requester, database, statement)?,
            encoding,
        })
    }

    /// Executes the statement and sends its rows. An error after the first block is told at the end of the result.
    ///
    /// # Errors
    /// The statement failed before its first block, or the client has gone.
    pub(super) async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        let mut output = RowSender::new(&self.query.shared, self.encoding, sender);
        let outcome = Box::pin(self.query.run(self.execute(&mut output))).await;
        self.query.end(&outcome, output.num_rows());
        output.finish(outcome).await
    }

    async fn execute(&self, output: &mut RowSender) -> Result<Vec<Warning>, ClientError> {
        let TrackedQuery {
            shared,
            connection,
            statement,
            ..
        } = &self.query;
        let session = shared.sessions.of(connection.database.as_deref()).await?;
        let result = session.execute_for(statement, connection).await?;
        output.begin(&result.schema);
        output.send_all(result.batches).await?;
        let mut warnings = result.warnings;
        warnings.extend(result.row_warnings.take());
        Ok(warnings)
    }
}

/// A stored result that is sent.
pub(super) struct StoredResult {
    shared: Arc<Shared>,
    work: TrackedTask,
    id: u64,
    user: String,
    encoding: BinaryEncoding,
}

impl StoredResult {
    /// Registers the sending of a result.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        requester: Requester,
        id: u64,
        encoding: BinaryEncoding,
    ) -> Self {
        let Requester { user, peer } = requester;
        Self {
            shared: Arc::clone(shared),
            work: shared.track_for(peer, &user, None, "Result", &id.to_string()),
            id,
            user,
            encoding,
        }
    }

    /// Sends the rows.
    ///
    /// # Errors
    /// There is no such result, it cannot be read, or the client has gone.
    pub(super) async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        let mut output = RowSender::new(&self.shared, self.encoding, sender);
        let sending = async {
            let stored = self.shared.queries.result(self.id, &self.user)?;
            output.begin(&stored.schema);
            output.send_all((stored.open)()).await?;
            Ok(stored.warnings.to_vec())
        };
        let outcome = self.work.run(sending).await;
        output.finish(outcome).await
    }
}

/// Sends rows block by block.
struct RowSender {
    encoding: BinaryEncoding,
    sender: ResultSender<Bytes>,
    counter: prometheus::IntCounter,
    /// `None` before the columns are known.
    rows: Option<QservRows>,
    out: Vec<u8>,
}

impl RowSender {
    fn new(shared: &Shared, encoding: BinaryEncoding, sender: ResultSender<Bytes>) -> Self {
        Self {
            encoding,
            sender,
            counter: shared.metrics.rows(metrics::Protocol::Http),
            rows: None,
            out: Vec::new(),
        }
    }

    fn num_rows(&self) -> u64 {
        self.rows.as_ref().map_or(0, QservRows::num_rows)
    }

    fn begin(&mut self, schema: &arrow::datatypes::Schema) {
        self.rows = Some(QservRows::begin(schema, self.encoding, &mut self.out));
    }

    async fn send_all(&mut self, mut batches: RowStream) -> Result<(), ClientError> {
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            let mut row = 0;
            while let Some(rows) = &mut self.rows
                && row < batch.num_rows()
            {
                row = rows.rows(&batch, row, BLOCK_BYTES, &mut self.out)?;
                if self.out.len() >= BLOCK_BYTES {
                    self.sender
                        .send(std::mem::take(&mut self.out).into())
                        .await?;
                }
            }
            self.counter.inc_by(batch.num_rows() as u64);
        }
        Ok(())
    }

    /// Sends the end of the result.
    async fn finish(
        mut self,
        outcome: Result<Vec<Warning>, ClientError>,
    ) -> Result<(), ClientError> {
        if let (Err(error), None) = (&outcome, &self.rows) {
            return Err(error.clone());
        }
        QservRows::end(outcome.as_deref(), &mut self.out);
        self.sender.send(self.out.into()).await
    }
}
