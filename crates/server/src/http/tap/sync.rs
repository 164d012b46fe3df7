//! `/tap/sync`: a query whose client waits.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use futures::StreamExt;
use queries::{Protocol, QueryGuard};
use sql::{Connection, Dialect};

use super::request::{TapRequest, of_address, parameters};
use super::{TapError, tell_overflow};
use crate::formats::{Role, TableColumn, TableWriter};
use crate::http::limited::{LimitedBatches, write};
use crate::http::parameters::RequestParameters;
use crate::http::query_api::Requester;
use crate::http::streaming::streaming_response;
use crate::http::{ClientAddress, HttpState};
use crate::metrics::{self, QueryOutcome, QueryTimer, StatementKind};
use crate::process_list::TrackedTask;
use crate::query_log::QueryLogEntry;
use crate::query_runtime::ResultSender;
use crate::{ClientError, Shared};

/// The name of the table in a result.
pub(super) const RESULT: &str = "result";

/// `GET /tap/sync`.
pub(super) async fn get(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, TapError> {
    answer(&state, address, &headers, &of_address(query.as_deref())?).await
}

/// `POST /tap/sync`.
pub(super) async fn post(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, TapError> {
    let parameters = parameters(&state, query.as_deref(), &headers, body).await?;
    answer(&state, address, &headers, &parameters).await
}

async fn answer(
    state: &Arc<HttpState>,
    address: ClientAddress,
    headers: &HeaderMap,
    parameters: &RequestParameters,
) -> Result<Response<Body>, TapError> {
    let request = TapRequest::read(parameters)?;
    let requester = Requester::of(address, headers, None)?;
    let query = SynchronousQuery::begin(&state.shared, requester, request).await?;
    let format = query.request.format;
    let runtime = &state.shared.query_runtime;
    let overflow = Arc::clone(&query.overflow);
    let results = runtime.spawn(|sender| query.run(sender));
    let mut response = streaming_response(format.media_type(), results, ()).await?;
    tell_overflow(&mut response, &overflow);
    Ok(response)
}

/// The columns of a result.
pub(super) fn columns(schema: &arrow::datatypes::Schema) -> Vec<TableColumn> {
    let fields = schema.fields().iter();
    fields
        .map(|field| TableColumn::new(field, Role::Other))
        .collect()
}

/// The database in which names without one are looked for: the only one.
///
/// # Errors
/// The catalog cannot be read.
pub(super) async fn default_database(shared: &Shared) -> Result<Option<String>, ClientError> {
    let mut names = shared.sessions.databases().await?.into_iter();
    Ok(match (names.next(), names.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    })
}

/// A query that runs, listed among the processes and the queries of the server until it is dropped.
struct SynchronousQuery {
    shared: Arc<Shared>,
    work: TrackedTask,
    registered: QueryGuard,
    connection: Connection,
    request: TapRequest,
    /// Set once it is known that rows are cut off.
    overflow: Arc<AtomicBool>,
    timer: QueryTimer,
    begun: Instant,
}

impl SynchronousQuery {
    async fn begin(
        shared: &Arc<Shared>,
        requester: Requester,
        request: TapRequest,
    ) -> Result<Self, ClientError> {
        let begun = Instant::now();
        let database = default_database(shared).await?;
        let kind = StatementKind::of(&request.statement);
        let Requester { user, peer } = requester;
        let statement = request.statement.as_str();
        let work = shared.track_for(peer, &user, database.as_deref(), "Query", statement);
        let registered = shared.queries.registry().begin(
            &user,
            database.as_deref(),
            Protocol::Http,
            statement,
            work.stop_token(),
        );
        let connection = Connection {
            id: work.connection_id(),
            user,
            host: peer.host(),
            server_info: Arc::clone(&shared.server_info),
            ..Connection::alone(database)
        };
        Ok(Self {
            shared: Arc::clone(shared),
            work,
            registered,
            connection,
            request,
            overflow: Arc::default(),
            timer: shared.metrics.begin(metrics::Protocol::Http, kind, begun),
            begun,
        })
    }

    /// Executes the query and sends its rows.
    ///
    /// # Errors
    /// It failed before its first block, or the client has gone.
    async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        self.registered.execution().attach();
        let mut rows = 0;
        let outcome = self.work.run(self.execute(&sender, &mut rows)).await;
        let error = outcome.as_ref().err();
        let ending = QueryOutcome::of_work(&outcome);
        let took = self.begun.elapsed();
        self.timer.end(ending, took);
        let ended = QueryLogEntry {
            ending,
            took,
            rows,
            user: &self.connection.user,
            database: self.connection.database.as_deref(),
            error,
        };
        ended.log(self.shared.slow, || self.request.statement.clone());
        let query_error = error.cloned().map(Into::into);
        self.registered.end(rows, query_error.as_ref());
        outcome
    }

    async fn execute(
        &self,
        sender: &ResultSender<Bytes>,
        rows: &mut u64,
    ) -> Result<(), ClientError> {
        let database = self.connection.database.as_deref();
        let sessions = &self.shared.sessions;
        let session = sessions.of_dialect(database, Dialect::Adql).await?;
        let result = session
            .execute_for(&self.request.statement, &self.connection)
            .await?;
        let columns = columns(&result.schema);
        let counter = self.shared.metrics.rows(metrics::Protocol::Http);
        let writer = TableWriter::new(self.request.format, RESULT, &columns);
        let wanted = LimitedBatches::new(result.batches.boxed(), self.request.max_rows, counter);
        let mut wanted = wanted.noting(&self.overflow);
        let written = write(writer, &mut wanted, sender).await;
        *rows = wanted.sent();
        written
    }
}
