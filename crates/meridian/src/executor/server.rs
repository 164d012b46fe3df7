//! Statements that a server executes, over HTTP: rows come as Arrow streams, so that they are written as those of a data directory.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use server::QueryDescription;
use sql::Dialect;
use sql::mysql::Command;

use crate::console::remark;
use crate::failure::Failure;
use crate::server_client::{BatchReader, RequestError, ServerClient, target, warnings_in};
use crate::sql::SqlArgs;
use crate::statements::{Executed, ResultWriter};

/// The response to a statement that changes a table.
#[derive(Deserialize)]
struct ChangedRows {
    rows_changed: u64,
}

/// A server, and what its next statement goes by.
#[derive(Clone)]
pub struct ServerSession {
    client: ServerClient,
    pub(super) dialect: Dialect,
    pub(super) database: Option<String>,
}

impl ServerSession {
    pub(super) async fn open(client: ServerClient, args: &SqlArgs) -> Result<Self, Failure> {
        let mut session = Self {
            client,
            dialect: args.dialect,
            database: args.db.clone(),
        };
        // It tells at once whether there are the server and the database, and which it is if none is named.
        let chosen = session.texts("SELECT DATABASE()").await?;
        session.database = chosen.into_iter().flatten().next().flatten();
        Ok(session)
    }

    /// The same, for a statement in MySQL's dialect.
    pub fn in_mysql(&self) -> Self {
        Self {
            dialect: Dialect::MySql,
            ..self.clone()
        }
    }

    pub(super) async fn choose(&mut self, database: &str) -> Result<(), Failure> {
        let chosen = Self {
            database: Some(database.to_owned()),
            ..self.clone()
        };
        // Answered with an error where there is no such database.
        chosen.texts("SELECT DATABASE()").await?;
        *self = chosen;
        Ok(())
    }

    pub(super) async fn execute(
        &self,
        writer: &ResultWriter,
        text: &str,
        executed: &mut Executed,
    ) -> Result<(), Failure> {
        let statements = match self.dialect {
            Dialect::MySql => sql::mysql::split_statements(text),
            // The server finds whether it is one.
            Dialect::Adql => vec![text.trim().trim_end_matches(';')],
        };
        for statement in statements {
            executed.statements += 1;
            let command = match self.dialect {
                Dialect::MySql => sql::mysql::command(statement).ok().flatten(),
                Dialect::Adql => None,
            };
            match command {
                Some(Command::Submit(query)) => {
                    executed.begin_results(1, writer.format)?;
                    self.submit(writer, &query).await?;
                }
                Some(Command::Cancel(id)) => self.cancel(id).await?,
                Some(Command::Nothing) => {}
                Some(Command::Table(_)) => self.change(writer, statement).await?,
                _ => {
                    executed.begin_results(1, writer.format)?;
                    self.query(writer, statement).await?;
                }
            }
        }
        Ok(())
    }

    /// Executes a statement that returns rows, or has the server say why it is none.
    async fn query(&self, writer: &ResultWriter, statement: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut batches = self
            .send(statement, self.dialect)
            .await
            .map_err(self.told())?;
        let written = batches.write_all(|schema| writer.open(schema), self.told());
        let rows = written.await?;
        for warning in batches.warnings() {
            remark(&format!("meridian: warning {warning}"));
        }
        writer.report(rows, begun.elapsed());
        Ok(())
    }

    /// Executes a statement that changes a table, and tells how many rows it concerns.
    async fn change(&self, writer: &ResultWriter, statement: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        let request = self.request(statement, self.dialect);
        let response = self.client.send(Method::POST, "/sql", Some(&request));
        let response = response.await.map_err(self.told())?;
        let warnings = warnings_in(response.headers());
        let changed = self.client.object(response).await;
        let ChangedRows { rows_changed } = changed.map_err(self.told())?;
        for warning in warnings {
            remark(&format!("meridian: warning {warning}"));
        }
        writer.report_change(rows_changed, begun.elapsed());
        Ok(())
    }

    /// Submits a query, and writes its number.
    async fn submit(&self, writer: &ResultWriter, query: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        let request = json!({
            "statement": query,
            "database": self.database,
            "user": self.client.user(),
        });
        let submitted = self
            .client
            .send_for(Method::POST, "/queries", Some(&request));
        let submitted: QueryDescription = submitted.await.map_err(self.told())?;
        let id: ArrayRef = Arc::new(UInt64Array::from(vec![submitted.id]));
        let batch = RecordBatch::try_from_iter([("id", id)])?;
        let mut output = writer.open(&batch.schema())?;
        output.write(&batch)?;
        output.finish()?;
        writer.report(1, begun.elapsed());
        Ok(())
    }

    async fn cancel(&self, id: u64) -> Result<(), Failure> {
        let target = target(&format!("/queries/{id}"), &[("user", self.client.user())]);
        let cancelled = self.client.send_for(Method::DELETE, &target, None);
        let _: QueryDescription = cancelled.await.map_err(self.told())?;
        remark(&format!("query {id} is cancelled"));
        Ok(())
    }

    /// The rows of a statement in MySQL's dialect whose columns are texts.
    ///
    /// # Errors
    /// The server does not answer, or with an error.
    pub async fn texts(&self, statement: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let mut batches = self
            .send(statement, Dialect::MySql)
            .await
            .map_err(self.told())?;
        let mut rows = Vec::new();
        while let Some(batch) = batches.next().await.map_err(self.told())? {
            rows.extend(texts_of(&batch)?);
        }
        Ok(rows)
    }

    async fn send(&self, statement: &str, dialect: Dialect) -> Result<BatchReader, RequestError> {
        let request = self.request(statement, dialect);
        let response = self
            .client
            .send(Method::POST, "/sql?format=arrow", Some(&request));
        Ok(BatchReader::new(response.await?.into_body()))
    }

    fn request(&self, statement: &str, dialect: Dialect) -> Value {
        json!({
            "statement": statement,
            "database": self.database,
            "dialect": dialect.name(),
            "user": self.client.user(),
        })
    }

    /// An error as it is reported: with its number where MySQL's is the dialect.
    fn told(&self) -> impl Fn(RequestError) -> Failure + use<> {
        let dialect = self.dialect;
        move |error| match (dialect, &error) {
            (Dialect::MySql, RequestError::Rejected(told)) => match (told.code, &told.sqlstate) {
                (Some(code), Some(state)) => {
                    Failure::new(format!("error {code} ({state}): {told}"))
                }
                _ => error.into(),
            },
            _ => error.into(),
        }
    }
}

/// The rows of a batch whose columns are texts.
fn texts_of(batch: &RecordBatch) -> Result<Vec<Vec<Option<String>>>, Failure> {
    let texts: Result<Vec<ArrayRef>, _> = (batch.columns().iter())
        .map(|column| cast(column, &DataType::Utf8))
        .collect();
    let texts = texts?;
    let value = |row: usize| {
        move |column: &ArrayRef| {
            let column = column.as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_owned())
        }
    };
    Ok((0..batch.num_rows())
        .map(|row| texts.iter().map(value(row)).collect())
        .collect())
}
