//! SELECT ... INTO @x: a query whose only row becomes the values of variables.

use std::sync::Arc;

use engine::QueryResult;
use futures::StreamExt as _;
use sql::connection::{MOST_BYTES, UserValue};
use sql::{Connection, ErrorCode, Warning};

use super::connection::Client;
use super::watch::{Interruption, Watch};
use crate::ClientError;
use crate::sessions::Sessions;

/// What the query gave.
struct Row {
    /// A value for each variable; none if there was no row.
    values: Option<Vec<UserValue>>,
    warnings: Vec<Warning>,
}

impl Client {
    /// Executes it; without a row the variables keep what they have. Returns the number of rows.
    pub(super) async fn select_into(
        &mut self,
        query: String,
        variables: Vec<String>,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let sessions = Arc::clone(&self.shared.sessions);
        let connection = Arc::clone(&self.connection);
        let row = only_row(sessions, query, variables.len(), connection);
        let mut computed = self.shared.query_runtime.compute(row);
        let row = watch
            .during(&mut self.incoming, computed.recv_one())
            .await??;
        self.add_warnings(row.warnings);
        let Some(values) = row.values else {
            self.add_warnings(vec![Warning {
                code: ErrorCode::NO_ROW,
                sentence: "No data - zero rows fetched, selected, or processed".to_owned(),
            }]);
            return Ok(0);
        };
        let mut changed = Connection::clone(&self.connection);
        for (name, value) in variables.iter().zip(values) {
            if !changed.user_variables.set(name, value) {
                return Err(no_room(name).into());
            }
        }
        self.connection = Arc::new(changed);
        Ok(1)
    }
}

/// The error for values that are larger than the variables of a connection may be.
pub(super) fn no_room(name: &str) -> ClientError {
    let sentence = format!(
        "the variables of a connection may have {} MiB together: SET @{name} = NULL makes room",
        MOST_BYTES >> 20
    );
    ClientError::new(ErrorCode::OUT_OF_RESOURCES, sentence)
}

/// The only row of a query, of so many columns.
///
/// # Errors
/// The query fails, has another number of columns, or more than one row.
async fn only_row(
    sessions: Arc<Sessions>,
    query: String,
    width: usize,
    connection: Arc<Connection>,
) -> Result<Row, ClientError> {
    let session = sessions.of(connection.database.as_deref()).await?;
    let mut result = session.execute_for(&query, &connection).await?;
    let columns = result.schema.fields().len();
    if columns != width {
        let sentence = format!(
            "the SELECT gives {columns} columns, and there are {width} variables after INTO: each column needs one"
        );
        return Err(ClientError::new(ErrorCode::UNEQUAL_WIDTHS, sentence));
    }
    let values = only_values(&mut result).await?;
    let mut warnings = std::mem::take(&mut result.warnings);
    warnings.extend(result.row_warnings.take());
    Ok(Row { values, warnings })
}

async fn only_values(result: &mut QueryResult) -> Result<Option<Vec<UserValue>>, ClientError> {
    let mut values = None;
    while let Some(batch) = result.batches.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        if values.is_some() || batch.num_rows() > 1 {
            let sentence = "the result consisted of more than one row, and variables take one: add a condition, or LIMIT 1";
            return Err(ClientError::new(ErrorCode::TOO_MANY_ROWS, sentence));
        }
        let columns = batch.columns().iter();
        let of_row = columns.map(|column| UserValue::at(column, 0));
        let of_row: Result<Vec<UserValue>, _> = of_row.collect();
        values = Some(of_row.map_err(|error| {
            let sentence = format!("a column of the SELECT has no value of a variable: {error}");
            ClientError::new(ErrorCode::WRONG_VARIABLE_VALUE, sentence)
        })?);
    }
    Ok(values)
}
