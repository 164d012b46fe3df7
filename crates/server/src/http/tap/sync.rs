//! `/tap/sync`: a query whose client waits.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use sql::connection::VariableValue;
use sql::{AS_OF_VARIABLE, Dialect, ErrorCode};

use super::TapError;
use super::form::TapForm;
use super::request::{TapFormat, TapRequest, of_address};
use super::uploads::Uploads;
use crate::ClientError;
use crate::formats::{Role, TableColumn};
use crate::http::limited::{LimitedBatches, write};
use crate::http::query_api::Requester;
use crate::http::received_table::TableRoom;
use crate::http::streaming::{Overflow, streaming_response};
use crate::http::tracked_query::TrackedQuery;
use crate::http::{ClientAddress, HttpState};
use crate::metrics;
use crate::query_runtime::ResultSender;

/// The name of the table in a result.
pub(super) const RESULT: &str = "result";

/// `GET /tap/sync`.
pub(super) async fn get(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, TapError> {
    let parameters = of_address(query.as_deref())?;
    let form = TapForm {
        uploads: Uploads::of(&parameters, Vec::new(), &state.lists).await?,
        parameters,
    };
    answer(&state, address, &headers, form).await
}

/// `POST /tap/sync`.
pub(super) async fn post(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, TapError> {
    let form = TapForm::receive(&state, query.as_deref(), &headers, body).await?;
    answer(&state, address, &headers, form).await
}

async fn answer(
    state: &Arc<HttpState>,
    address: ClientAddress,
    headers: &HeaderMap,
    form: TapForm,
) -> Result<Response<Body>, TapError> {
    let request = TapRequest::read(&form.parameters)?;
    let requester = Requester::of(address, headers, None)?;
    let overflow = Overflow::of(headers);
    let query = SynchronousQuery::begin(state, requester, request, form.uploads, &overflow).await?;
    let format = query.format;
    let runtime = &state.shared.query_runtime;
    let results = runtime.spawn(|sender| query.run(sender));
    Ok(streaming_response(format.media_type(), results, (), overflow).await?)
}

/// The columns of a result.
pub(super) fn columns(schema: &arrow::datatypes::Schema) -> Vec<TableColumn> {
    let fields = schema.fields().iter();
    fields
        .map(|field| TableColumn::new(field, Role::Other))
        .collect()
}

/// A query that runs.
struct SynchronousQuery {
    query: TrackedQuery,
    uploads: Uploads,
    lists: Arc<TableRoom>,
    format: TapFormat,
    /// The most rows that are wanted.
    max_rows: Option<u64>,
    overflow: Overflow,
}

impl SynchronousQuery {
    async fn begin(
        state: &HttpState,
        requester: Requester,
        request: TapRequest,
        uploads: Uploads,
        overflow: &Overflow,
    ) -> Result<Self, ClientError> {
        let shared = &state.shared;
        let database = shared.sessions.only_database().await?;
        let max_rows = shared.usage.rows_within(request.max_rows);
        request.as_of().map_err(|problem| {
            ClientError::new(ErrorCode::WRONG_VARIABLE_VALUE, problem.sentence)
        })?;
        let mut query = TrackedQuery::begin(shared, requester, database, request.statement)?;
        if let Some(time) = request.as_of {
            let time = Some(VariableValue::Text(time));
            query.connection.variables.set(AS_OF_VARIABLE, time)?;
        }
        // Rows beyond are cut off, which the result tells, and are no error.
        query.connection.most_rows = None;
        Ok(Self {
            uploads,
            lists: Arc::clone(&state.lists),
            query,
            format: request.format,
            max_rows,
            overflow: overflow.clone(),
        })
    }

    /// Executes the query and sends its rows.
    ///
    /// # Errors
    /// It failed before its first block, or the client has gone.
    async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        let mut rows = 0;
        let outcome = Box::pin(self.query.run(self.execute(&sender, &mut rows))).await;
        self.query.end(&outcome, rows);
        outcome
    }

    async fn execute(
        &self,
        sender: &ResultSender<Bytes>,
        rows: &mut u64,
    ) -> Result<(), ClientError> {
        let TrackedQuery {
            shared,
            connection,
            statement,
            ..
        } = &self.query;
        let database = connection.database.as_deref();
        let session = shared.sessions.of_dialect(database, Dialect::Adql).await?;
        let names = self.uploads.names();
        // Statements may name the tables while these are held.
        let _opened = self.uploads.open(&self.lists).await?;
        let statement = names.statement(statement)?;
        let result = session.execute_for(&statement, connection).await;
        let result = result.map_err(|error| names.shown(error.into()))?;
        let columns = columns(&result.schema);
        let counter = shared.metrics.rows(metrics::Protocol::Http);
        let mut writer = self
            .format
            .writer(RESULT, &columns, &result.schema, &result.warnings)?;
        let batches = result
            .batches
            .map_err(move |error| names.shown_of_engine(error));
        let wanted = LimitedBatches::new(batches.boxed(), self.max_rows, counter);
        let mut wanted = wanted.noting(&self.overflow.is_cut_off);
        let written = write(writer.as_mut(), &mut wanted, sender).await;
        *rows = wanted.sent();
        written
    }
}
