//! A question on its way through the workshop: from its text to the packets of its answer.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use engine::Answer;
use futures::StreamExt;
use sql::{Connection, ErrorCode, SqlError, Warning};

use super::answers::{Status, eof};
use super::capabilities::Capabilities;
use super::columns::{ColumnType, define};
use super::packets::Outgoing;
use super::rows::{Form, Rows};
use super::wire::put_length;
use crate::Refusal;
use crate::sessions::Sessions;
use crate::workshop::Giver;

/// Bytes from which on packets are handed over.
const PART: usize = 256 << 10;
/// Rows that are looked at on the thread of the network, some tens of microseconds to a millisecond.
const FEW_ROWS: u64 = 20_000;

/// A statement that asks for rows.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) text: String,
    pub(crate) connection: Arc<Connection>,
    pub(crate) capabilities: Capabilities,
    pub(crate) form: Form,
    /// The headings that were announced, where they are as many as the columns.
    pub(crate) headings: Option<Vec<String>>,
    /// The number of the answer's first packet.
    pub(crate) number: u8,
}

/// Some of an answer's packets.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) packets: Bytes,
    /// The number of the packet that comes next.
    pub(crate) number: u8,
    /// Rows in these.
    pub(crate) rows: u64,
    /// What is odd about the statement; with the first part.
    pub(crate) warnings: Vec<Warning>,
}

impl Question {
    /// The answer, where it is found sooner than the workshop has begun: the statement is known, and few rows have to be looked
    /// at. `None` where the workshop has to find it.
    pub(crate) async fn short_answer(
        &self,
        sessions: &Sessions,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(session) = sessions.made(self.connection.database.as_deref()) else {
            return Ok(None);
        };
        let answer = session.try_execute_inline(&self.text, &self.connection, FEW_ROWS);
        Ok(answer.await?)
    }

    /// Answers it, but for the packet that ends the answer.
    pub(crate) async fn answer(
        self,
        sessions: Arc<Sessions>,
        giver: Giver<Part>,
    ) -> Result<(), Refusal> {
        let session = sessions.of(self.connection.database.as_deref()).await?;
        let mut answer = session.ask_for(&self.text, &self.connection).await?;
        let mut packets = Outgoing::from_number(self.number);
        self.put_columns(&mut packets, &answer.schema);
        let mut first = part(&mut packets, 0);
        first.warnings = std::mem::take(&mut answer.warnings);
        giver.give(first).await?;
        while let Some(batch) = answer.batches.next().await {
            let batch = batch?;
            let mut row = 0;
            while row < batch.num_rows() {
                let from = row;
                row = self.put_rows(&mut packets, &batch, from)?;
                giver.give(part(&mut packets, (row - from) as u64)).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn put_columns(&self, packets: &mut Outgoing, schema: &SchemaRef) {
        let announced = self.headings.as_ref();
        let announced = announced.filter(|headings| headings.len() == schema.fields().len());
        packets.add(|bytes| put_length(bytes, schema.fields().len() as u64));
        for (at, field) in schema.fields().iter().enumerate() {
            let announced = announced.and_then(|headings| headings.get(at));
            let heading = announced.unwrap_or_else(|| field.name());
            packets.add(|bytes| define(bytes, heading, ColumnType::of(field)));
        }
        if !self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            let status = Status::of(self.connection.variables.autocommit());
            packets.add(|bytes| eof(bytes, status));
        }
    }

    /// Puts rows from one on until there is enough to hand over; says which comes next.
    pub(crate) fn put_rows(
        &self,
        packets: &mut Outgoing,
        batch: &RecordBatch,
        from: usize,
    ) -> Result<usize, Refusal> {
        let rows = Rows::new(batch, self.form).map_err(|error| {
            let sentence = format!("a column cannot be sent: {error}");
            Refusal::new(ErrorCode::INTERNAL, sentence)
        })?;
        let mut row = from;
        while row < batch.num_rows() && packets.len() < PART {
            packets.add(|bytes| rows.put(row, bytes));
            row += 1;
        }
        Ok(row)
    }
}

fn part(packets: &mut Outgoing, rows: u64) -> Part {
    Part {
        packets: packets.take(),
        number: packets.number,
        rows,
        warnings: vec![],
    }
}

/// What is known of a statement before its parameters are bound.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) columns: Vec<(String, ColumnType)>,
}

impl From<SchemaRef> for Described {
    fn from(schema: SchemaRef) -> Self {
        let fields = schema.fields().iter();
        let columns = fields.map(|field| (field.name().clone(), ColumnType::of(field)));
        Self {
            columns: columns.collect(),
        }
    }
}

/// The columns that a statement would give, with NULL or else 1 in the places of its parameters; none where it cannot be planned
/// without their values.
///
/// # Errors
/// A statement that cannot be read; without parameters also one that cannot be planned.
pub(crate) async fn describe(
    sessions: Arc<Sessions>,
    text: String,
    places: Vec<usize>,
    connection: Arc<Connection>,
) -> Result<Described, Refusal> {
    let session = sessions.of(connection.database.as_deref()).await?;
    let headings = sql::headings(&text)?;
    if places.is_empty() {
        return Ok(session.describe(&text, &connection, None).await?.into());
    }
    for literal in ["NULL", "1"] {
        let bound = super::parameters::bind(&text, &places, places.iter().map(|_| literal));
        let described = session.describe(&bound, &connection, headings.clone());
        if let Ok(schema) = described.await {
            return Ok(schema.into());
        }
    }
    Ok(Described::default())
}

/// The value that an expression of a SET has.
///
/// # Errors
/// It cannot be computed, or is more than one value.
pub(crate) async fn evaluate(
    sessions: Arc<Sessions>,
    expression: String,
    connection: Arc<Connection>,
) -> Result<Option<String>, Refusal> {
    let session = sessions.of(connection.database.as_deref()).await?;
    let text = format!("SELECT {expression}");
    let mut answer = session.ask_for(&text, &connection).await?;
    let several = || {
        let sentence = format!("{expression} is not a single value");
        Refusal::from(SqlError::new(sentence).with_code(ErrorCode::WRONG_VARIABLE_VALUE))
    };
    let mut value = None;
    while let Some(batch) = answer.batches.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        if value.is_some() || batch.num_rows() > 1 || batch.num_columns() != 1 {
            return Err(several());
        }
        let column = batch.column(0);
        let shown = arrow::util::display::array_value_to_string(column, 0);
        let shown = shown.map_err(|_| several())?;
        value = Some((!column.is_null(0)).then_some(shown));
    }
    Ok(value.flatten())
}
