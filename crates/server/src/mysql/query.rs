//! The execution of a query: from its text to the packets of its result.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Fields, SchemaRef};
use bytes::Bytes;
use engine::QueryResult;
use futures::StreamExt;
use sql::connection::UserValue;
use sql::{Connection, ErrorCode, SqlError, Warning};

use super::capabilities::Capabilities;
use super::columns::define;
use super::packets::PacketBuffer;
use super::responses::{Status, eof};
use super::rows::{Form, Rows};
use super::wire::put_length;
use crate::ClientError;
use crate::query_runtime::ResultSender;
use crate::sessions::Sessions;

/// Bytes of a batch of packets.
const BATCH_BYTES: usize = 256 << 10;
/// A query that scans no more rows than this may run on the network thread, for at most about a millisecond.
const FEW_ROWS: u64 = 20_000;

/// A statement that returns rows.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) connection: Arc<Connection>,
    pub(crate) capabilities: Capabilities,
    pub(crate) form: Form,
    /// The headings that the response to PREPARE announced; they apply if they are as many as the columns.
    pub(crate) headings: Option<Vec<String>>,
    /// The number of the result's first packet.
    pub(crate) number: u8,
}

/// Some packets of a result.
#[derive(Debug)]
pub(crate) struct PacketBatch {
    pub(crate) packets: Bytes,
    /// The number of the packet that follows.
    pub(crate) number: u8,
    /// The rows in these packets.
    pub(crate) rows: u64,
    /// The warnings of the statement in the first batch, those about values of rows in the last.
    pub(crate) warnings: Vec<Warning>,
}

impl Query {
    /// Executes the query on this thread, if its plan is cached and it scans few rows: that is faster than handing it over to the query
    /// runtime. `None` if the query runtime has to execute it.
    pub(crate) async fn try_execute_inline(
        &self,
        sessions: &Sessions,
    ) -> Result<Option<QueryResult>, ClientError> {
        let Some(session) = sessions.made(self.connection.database.as_deref()) else {
            return Ok(None);
        };
        let result = session.try_execute_inline(&self.text, &self.connection, FEW_ROWS);
        Ok(result.await?)
    }

    /// Executes the query and sends its packets, but for the one that ends the result.
    pub(crate) async fn execute(
        self,
        sessions: Arc<Sessions>,
        sender: ResultSender<PacketBatch>,
    ) -> Result<(), ClientError> {
        let session = sessions.of(self.connection.database.as_deref()).await?;
        let mut result = session.execute_for(&self.text, &self.connection).await?;
        let mut packets = PacketBuffer::from_number(self.number);
        self.put_columns(&mut packets, &result.schema);
        let mut first = take_batch(&mut packets, 0);
        first.warnings = std::mem::take(&mut result.warnings);
        sender.send(first).await?;
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            let mut row = 0;
            while row < batch.num_rows() {
                let from = row;
                row = self.put_rows(&mut packets, &batch, from)?;
                sender
                    .send(take_batch(&mut packets, (row - from) as u64))
                    .await?;
            }
        }
        let late = result.row_warnings.take();
        if !late.is_empty() {
            let mut last = take_batch(&mut packets, 0);
            last.warnings = late;
            sender.send(last).await?;
        }
        Ok(())
    }

    pub(crate) fn put_columns(&self, packets: &mut PacketBuffer, schema: &SchemaRef) {
        let set = self.connection.variables.results_character_set();
        let announced = self.headings.as_ref();
        let announced = announced.filter(|headings| headings.len() == schema.fields().len());
        packets.add(|bytes| put_length(bytes, schema.fields().len() as u64));
        for (at, field) in schema.fields().iter().enumerate() {
            let announced = announced.and_then(|headings| headings.get(at));
            let heading = announced.unwrap_or_else(|| field.name());
            packets.add(|bytes| define(bytes, heading, field, set));
        }
        if !self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            let status = Status::of(self.connection.variables.autocommit());
            packets.add(|bytes| eof(bytes, status));
        }
    }

    /// Appends rows from `from` on until a batch is full; returns the next row.
    pub(crate) fn put_rows(
        &self,
        packets: &mut PacketBuffer,
        batch: &RecordBatch,
        from: usize,
    ) -> Result<usize, ClientError> {
        let set = self.connection.variables.results_character_set();
        let rows = Rows::new(batch, self.form, set).map_err(|error| {
            let sentence = format!("a column cannot be sent: {error}");
            ClientError::new(ErrorCode::INTERNAL, sentence)
        })?;
        let mut row = from;
        while row < batch.num_rows() && packets.len() < BATCH_BYTES {
            packets.add(|bytes| rows.put(row, bytes));
            row += 1;
        }
        Ok(row)
    }
}

fn take_batch(packets: &mut PacketBuffer, rows: u64) -> PacketBatch {
    PacketBatch {
        packets: packets.take(),
        number: packets.number,
        rows,
        warnings: vec![],
    }
}

/// The columns of a prepared statement's result.
#[derive(Debug, Default)]
pub(crate) struct ResultColumns {
    pub(crate) columns: Fields,
}

impl From<SchemaRef> for ResultColumns {
    fn from(schema: SchemaRef) -> Self {
        Self {
            columns: schema.fields().clone(),
        }
    }
}

/// The columns of a statement's result, planned with NULL, or else 1, for its parameters; none if it cannot be planned without their
/// values.
///
/// # Errors
/// The statement cannot be parsed, or has no parameters and cannot be planned.
pub(crate) async fn describe(
    sessions: Arc<Sessions>,
    text: String,
    offsets: Vec<usize>,
    connection: Arc<Connection>,
) -> Result<ResultColumns, ClientError> {
    let session = sessions.of(connection.database.as_deref()).await?;
    let headings = sql::headings(&text)?;
    if offsets.is_empty() {
        return Ok(session.describe(&text, &connection, None).await?.into());
    }
    for literal in ["NULL", "1"] {
        let bound = super::parameters::bind(&text, &offsets, offsets.iter().map(|_| literal));
        let described = session.describe(&bound, &connection, headings.clone());
        if let Ok(schema) = described.await {
            return Ok(schema.into());
        }
    }
    Ok(ResultColumns::default())
}

/// The value of an expression in a SET.
///
/// # Errors
/// The expression cannot be evaluated, or has more than one value.
pub(crate) async fn evaluate(
    sessions: Arc<Sessions>,
    expression: String,
    connection: Arc<Connection>,
) -> Result<UserValue, ClientError> {
    let session = sessions.of(connection.database.as_deref()).await?;
    let text = format!("SELECT {expression}");
    let mut result = session.execute_for(&text, &connection).await?;
    let several = || {
        let sentence = format!("{expression} is not a single value");
        ClientError::from(SqlError::new(sentence).with_code(ErrorCode::WRONG_VARIABLE_VALUE))
    };
    let mut value = None;
    while let Some(batch) = result.batches.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        if value.is_some() || batch.num_rows() > 1 || batch.num_columns() != 1 {
            return Err(several());
        }
        value = Some(UserValue::at(batch.column(0), 0).map_err(|_| several())?);
    }
    Ok(value.unwrap_or(UserValue::Null))
}
