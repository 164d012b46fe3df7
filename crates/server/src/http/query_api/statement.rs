//! `POST /sql`: a statement whose client waits, and whose rows are sent in any format while they come; one that changes a table of the
//! user's own is answered with the number of rows.
//!
//! What is known only after the rows is told in trailers, to clients that take them (`TE: trailers`, RFC 9110, section 6.5): the warnings,
//! and an error, which breaks off the response for all others. Both are JSON in ASCII.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures::stream::{StreamExt, unfold};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};
use sql::connection::VariableValue;
use sql::mysql::TableCommand;
use sql::{AS_OF_VARIABLE, Dialect, ErrorCode, Warning};

use super::receive;
use super::requester::Requester;
use super::rest::{RestError, StatementRequest};
use super::result_stream::{DownloadFormat, Encoder, described};
use crate::ClientError;
use crate::http::parameters::RequestParameters;
use crate::http::streaming::takes_trailers;
use crate::http::tracked_query::TrackedQuery;
use crate::http::{ClientAddress, HttpState};
use crate::metrics;
use crate::own_tables::TableStatements;
use crate::query_runtime::{ResultReceiver, ResultSender};

/// The trailer or header with the warnings: a list of texts.
const WARNINGS: HeaderName = HeaderName::from_static("meridian-warnings");
/// The trailer with the error, an object as that of a request that fails.
const ERROR: HeaderName = HeaderName::from_static("meridian-error");
/// Bytes of warnings that are told; a client need not take longer heads.
const MOST_WARNINGS: usize = 8 << 10;

/// `POST /sql`.
pub(super) async fn execute(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, RestError> {
    let parameters = RequestParameters::read(query.as_deref().unwrap_or_default())?;
    let format = DownloadFormat::read(&parameters)?;
    let body = receive(&state, body).await?;
    let request = StatementRequest::read(&body)?;
    let requester = Requester::of(address, &headers, request.user.as_deref())?;
    let dialect = request.dialect()?;
    let (text, change) = request.executed(dialect)?;
    let query = tracked(&state, requester, &request, text).await?;
    if let Some(change) = change {
        return change_table(query, change, request.named_database()).await;
    }
    let warnings = Arc::<Mutex<Vec<Warning>>>::default();
    let query = WaitedQuery {
        query,
        dialect,
        format,
        warnings: Arc::clone(&warnings),
    };
    let mut rest = state.shared.query_runtime.spawn(|sender| query.run(sender));
    let first = rest.recv_one().await?;
    let ending = Ending {
        as_trailers: takes_trailers(&headers),
        warnings,
    };
    Ok(streamed(format.media_type(), first, rest, ending))
}

/// Registers the statement of a request.
async fn tracked(
    state: &HttpState,
    requester: Requester,
    request: &StatementRequest,
    statement: String,
) -> Result<TrackedQuery, RestError> {
    let shared = &state.shared;
    let time_limit = request.time_limit()?;
    let database = match request.named_database() {
        Some(named) => Some(named),
        None => shared
            .sessions
            .only_database()
            .await
            .map_err(ClientError::from)?,
    };
    let mut query = TrackedQuery::begin(shared, requester, database, statement)?;
    if let Some(limit) = time_limit {
        query = query.within(limit);
    }
    if let Some(rows) = request.row_limit {
        let limit = Some(VariableValue::Number(rows));
        let set = query.connection.variables.set("sql_select_limit", limit);
        set.map_err(ClientError::from)?;
    }
    if let Some(time) = &request.as_of {
        let time = Some(VariableValue::Text(time.clone()));
        let set = query.connection.variables.set(AS_OF_VARIABLE, time);
        set.map_err(ClientError::from)?;
    }
    Ok(query)
}

/// Changes a table, by default in the database that the request names or else in the user's own. A client that hangs up ends it.
async fn change_table(
    query: TrackedQuery,
    change: TableCommand,
    database: Option<String>,
) -> Result<Response<Body>, RestError> {
    let connection = Arc::new(query.connection.clone());
    let statements =
        TableStatements::of_connection(&query.shared, connection).into_database(database);
    let changing = Box::pin(statements.execute(change, &query.statement));
    let outcome = Box::pin(query.run(changing)).await;
    query.end(&outcome, 0);
    let changed = outcome.map_err(|error| match error.code {
        // What nobody may change is no failure of the server.
        ErrorCode::READ_ONLY => RestError::from(error).with_status(StatusCode::FORBIDDEN),
        _ => error.into(),
    })?;
    let mut response = super::json(StatusCode::OK, &json!({"rows_changed": changed.rows}));
    add_warnings(response.headers_mut(), &changed.warnings);
    Ok(response)
}

/// A statement that runs.
struct WaitedQuery {
    query: TrackedQuery,
    dialect: Dialect,
    format: DownloadFormat,
    /// Gets the warnings before the last block is sent.
    warnings: Arc<Mutex<Vec<Warning>>>,
}

impl WaitedQuery {
    async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        let mut rows = 0;
        let outcome = Box::pin(self.query.run(self.send(&sender, &mut rows))).await;
        self.query.end(&outcome, rows);
        outcome
    }

    async fn send(&self, sender: &ResultSender<Bytes>, rows: &mut u64) -> Result<(), ClientError> {
        let TrackedQuery {
            shared,
            connection,
            statement,
            ..
        } = &self.query;
        let database = connection.database.as_deref();
        let session = shared.sessions.of_dialect(database, self.dialect).await?;
        let mut result = session.execute_for(statement, connection).await?;
        let columns = described(&result.schema);
        let mut encoder = Encoder::new(self.format, &columns, &result.schema)?;
        let counter = shared.metrics.rows(metrics::Protocol::Http);
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            *rows += batch.num_rows() as u64;
            counter.inc_by(batch.num_rows() as u64);
            encoder.send(&batch, sender).await?;
        }
        result.warnings.extend(result.row_warnings.take());
        *self.warnings.lock().unwrap_or_else(PoisonError::into_inner) = result.warnings;
        encoder.send_rest(sender).await
    }
}

/// How a response ends.
struct Ending {
    as_trailers: bool,
    warnings: Arc<Mutex<Vec<Warning>>>,
}

impl Ending {
    /// The last frame, after all rows.
    fn whole(&self) -> Option<Frame<Bytes>> {
        let warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let told = warnings_told(&warnings).filter(|_| self.as_trailers)?;
        Some(trailer(WARNINGS, &told))
    }

    /// The last frame, after an error.
    fn failed(&self, error: ClientError) -> io::Result<Frame<Bytes>> {
        match self.as_trailers {
            true => Ok(trailer(ERROR, &RestError::from(error).object())),
            false => Err(io::Error::other(error.sentence)),
        }
    }
}

/// As many of the warnings as are told, if there are any: a list of texts.
fn warnings_told(warnings: &[Warning]) -> Option<Value> {
    let mut room = MOST_WARNINGS;
    let told = warnings.iter().map(Warning::to_string).take_while(|text| {
        let fits = text.len() <= room;
        room = room.saturating_sub(text.len());
        fits
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| json!(told))
}

/// Adds warnings that are known before the rows to the head of a response.
pub(super) fn add_warnings(headers: &mut HeaderMap, warnings: &[Warning]) {
    let told = warnings_told(warnings).map(|told| HeaderValue::from_str(&ascii(&told)));
    if let Some(Ok(value)) = told {
        headers.insert(WARNINGS, value);
    }
}

fn trailer(name: HeaderName, value: &Value) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&ascii(value)) {
        trailers.insert(name, value);
    }
    Frame::trailers(trailers)
}

/// JSON in which other letters than those of ASCII are escaped (RFC 8259, section 7).
fn ascii(value: &Value) -> String {
    let mut out = String::new();
    for letter in value.to_string().chars() {
        match letter {
            ' '..='~' => out.push(letter),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out
}

/// The response whose first block has arrived.
fn streamed(
    media_type: &'static str,
    first: Bytes,
    rest: ResultReceiver<Bytes>,
    ending: Ending,
) -> Response<Body> {
    let as_trailers = ending.as_trailers;
    let rest = unfold(Some((rest, ending)), |state| async move {
        let (mut rest, ending) = state?;
        match rest.next().await {
            Some(Ok(block)) => Some((Ok(Frame::data(block)), Some((rest, ending)))),
            Some(Err(error)) => Some((ending.failed(error), None)),
            None => ending.whole().map(|frame| (Ok(frame), None)),
        }
    });
    let first = futures::stream::once(async move { Ok(Frame::data(first)) });
    // Compression polls a body once more after its end.
    let mut response = Response::new(Body::new(StreamBody::new(first.chain(rest).fuse())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if as_trailers {
        let names = HeaderValue::from_static("meridian-warnings, meridian-error");
        headers.insert(header::TRAILER, names);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_ascii() {
        let value = json!({"error": "Größe\n\t∞ 🔭 \"x\""});
        let text = ascii(&value);
        assert!(
            text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
