//! Qserv's REST API, which Rubin's services speak.
//!
//! Source: *Qserv User Guide*, "HTTP frontend of Qserv", version 55 of the API. As there, the status of HTTP is 200 whether or not a
//! request succeeded, which `success` tells; only a request that was not received whole has another one.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, Response, StatusCode};
use engine::{QueryInfo, QueryState};
use queries::{Protocol, QueryError, Submission};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sql::connection::StatementLimits;
use sql::{Dialect, ErrorCode};

use super::qserv_rows::BinaryEncoding;
use super::requester::Requester;
use super::synchronous::{StoredResult, SynchronousQuery};
use super::{JSON, only_statement, parsed, query_number, receive};
use crate::ClientError;
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;
use crate::http::streaming::streamed_from;
use crate::http::{ClientAddress, HttpState};

/// The version of the API that is implemented.
const API_VERSION: u64 = 55;
/// The number of this server among the front ends of its Qserv.
const CZAR_ID: u64 = 1;

/// The oldest version of the API in which each service is what it is here.
mod since {
    pub(super) const META: u64 = 1;
    pub(super) const CANCEL: u64 = 30;
    pub(super) const SUBMIT: u64 = 32;
    pub(super) const EXECUTE: u64 = 35;
    pub(super) const RESULT: u64 = 35;
    pub(super) const REMOVE: u64 = 40;
    pub(super) const STATUS: u64 = 47;
}

/// An error of the API.
#[derive(Debug)]
pub(super) struct QservError {
    status: StatusCode,
    object: Value,
}

impl From<Problem> for QservError {
    fn from(problem: Problem) -> Self {
        let not_as_qserv = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        Self {
            status: match not_as_qserv.contains(&problem.status) {
                true => problem.status,
                false => StatusCode::OK,
            },
            object: error_object(&problem.sentence, None),
        }
    }
}

impl From<ClientError> for QservError {
    fn from(error: ClientError) -> Self {
        Self {
            status: match error.retry_after {
                Some(_) => StatusCode::TOO_MANY_REQUESTS,
                None => StatusCode::OK,
            },
            object: error_object(&error.sentence, Some(error.code)),
        }
    }
}

impl From<QueryError> for QservError {
    fn from(error: QueryError) -> Self {
        ClientError::from(error).into()
    }
}

/// An error as an object; MySQL's number of it is in `error_ext`.
pub(super) fn error_object(sentence: &str, code: Option<ErrorCode>) -> Value {
    let ext = code.map_or_else(
        || json!({}),
        |code| json!({"code": code.number, "sqlstate": code.state}),
    );
    json!({"success": 0, "error": sentence, "error_ext": ext, "warning": ""})
}

/// The response to a request: what its service returns, and whether it succeeded.
fn respond(returned: Result<Map<String, Value>, QservError>) -> Response<Body> {
    match returned {
        Ok(mut object) => {
            object.insert("success".to_owned(), json!(1));
            object.insert("error".to_owned(), json!(""));
            object.insert("error_ext".to_owned(), json!({}));
            object.insert("warning".to_owned(), json!(""));
            super::json(StatusCode::OK, &object)
        }
        Err(error) => super::json(error.status, &error.object),
    }
}

fn fields(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    let named = fields.into_iter();
    named
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The body of a request with a query.
#[derive(Debug, Deserialize)]
struct QueryRequest {
    query: String,
    #[serde(default)]
    database: Option<String>,
    #[serde(default)]
    binary_encoding: Option<String>,
    #[serde(default)]
    version: Option<u64>,
}

impl QueryRequest {
    /// Receives a request and checks that it is of a version from `since` on.
    async fn receive(
        state: &HttpState,
        query: Option<&str>,
        body: Body,
        since: u64,
    ) -> Result<Self, QservError> {
        let body = receive(state, body).await?;
        let request: Self = parsed(&body, r#"{"query": "SELECT 1", "database": "sky"}"#)?;
        check_version(&parameters(query)?, request.version, since)?;
        Ok(request)
    }

    fn database(&self) -> Option<String> {
        self.database.clone().filter(|name| !name.is_empty())
    }
}

fn parameters(query: Option<&str>) -> Result<RequestParameters, Problem> {
    RequestParameters::read(query.unwrap_or_default())
}

/// Checks the version that a client names, in the body or in the query string: the body takes precedence.
fn check_version(
    parameters: &RequestParameters,
    in_body: Option<u64>,
    since: u64,
) -> Result<(), QservError> {
    let named = match (in_body, parameters.value("VERSION")?) {
        (Some(version), _) => version,
        (None, None) => return Ok(()),
        (None, Some(text)) => text.parse().map_err(|_| {
            Problem::bad(format!("version is no number: {text}; give {API_VERSION}"))
        })?,
    };
    if (since..=API_VERSION).contains(&named) {
        return Ok(());
    }
    let sentence = format!(
        "The requested version {named} of the API is not in the range supported by the service."
    );
    let mut object = error_object(&sentence, None);
    object["error_ext"] = json!({"min_version": since, "max_version": API_VERSION});
    Err(QservError {
        status: StatusCode::OK,
        object,
    })
}

fn encoding(name: Option<&str>) -> Result<BinaryEncoding, Problem> {
    let Some(name) = name else {
        return Ok(BinaryEncoding::default());
    };
    BinaryEncoding::named(name).ok_or_else(|| {
        Problem::bad(format!(
            "binary_encoding is {name:?}: it is one of hex, b64 and array"
        ))
    })
}

/// `GET /meta/version`.
pub(super) async fn version(RawQuery(query): RawQuery) -> Response<Body> {
    let returned = async {
        check_version(&parameters(query.as_deref())?, None, since::META)?;
        Ok(fields([
            ("kind", json!("qserv-czar-query-frontend")),
            ("name", json!("http")),
            ("id", json!(CZAR_ID)),
            ("instance_id", json!("meridian")),
            ("version", json!(API_VERSION)),
        ]))
    };
    respond(returned.await)
}

/// `POST /query`: executes a statement and sends its rows while they are computed.
pub(super) async fn execute(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let returned = async {
        let request = QueryRequest::receive(&state, query.as_deref(), body, since::EXECUTE).await?;
        let encoding = encoding(request.binary_encoding.as_deref())?;
        let requester = Requester::of(address, &headers, None)?;
        let statement = only_statement(&request.query)?;
        let shared = &state.shared;
        let query =
            SynchronousQuery::begin(shared, requester, request.database(), statement, encoding)?;
        let mut blocks = shared.query_runtime.spawn(|sender| query.run(sender));
        let first = blocks.recv_one().await?;
        Ok(streamed_from(JSON, first, blocks, ()))
    };
    returned.await.unwrap_or_else(|error| respond(Err(error)))
}

/// `POST /query-async`: submits a statement.
pub(super) async fn submit(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let returned = async {
        let request = QueryRequest::receive(&state, query.as_deref(), body, since::SUBMIT).await?;
        let submission = Submission {
            user: Requester::of(address, &headers, None)?.user,
            database: request.database(),
            protocol: Protocol::Http,
            row_limit: None,
            time_limit: None,
            limits: StatementLimits::default(),
            as_of: None,
            dialect: Dialect::MySql,
            statement: only_statement(&request.query)?,
        };
        let id = super::submit(&state, submission).await?;
        Ok(fields([("queryId", json!(id))]))
    };
    respond(returned.await)
}

/// `GET /query-async/status/{id}`.
pub(super) async fn status(
    State(state): State<Arc<HttpState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let returned = async {
        check_version(&parameters(query.as_deref())?, None, since::STATUS)?;
        state.shared.queries.catch_up().await?;
        let info = state.shared.find_query(query_number(&id)?)?;
        Ok(fields([("status", described(&info, now()))]))
    };
    respond(returned.await)
}

/// `GET /query-async/result/{id}`.
pub(super) async fn result(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    let returned = async {
        let parameters = parameters(query.as_deref())?;
        check_version(&parameters, None, since::RESULT)?;
        let encoding = encoding(parameters.value("BINARY_ENCODING")?)?;
        let requester = Requester::of(address, &headers, None)?;
        let shared = &state.shared;
        shared.queries.catch_up().await?;
        let stored = StoredResult::begin(shared, requester, query_number(&id)?, encoding);
        let mut blocks = shared.query_runtime.spawn(|sender| stored.run(sender));
        let first = blocks.recv_one().await?;
        Ok(streamed_from(JSON, first, blocks, ()))
    };
    returned.await.unwrap_or_else(|error| respond(Err(error)))
}

/// `DELETE /query-async/{id}`: cancels a query.
pub(super) async fn cancel(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    let returned = async {
        check_version(&parameters(query.as_deref())?, None, since::CANCEL)?;
        let requester = Requester::of(address, &headers, None)?;
        let id = query_number(&id)?;
        state.shared.queries.cancel(id, &requester.user).await?;
        Ok(Map::new())
    };
    respond(returned.await)
}

/// `DELETE /query-async/result/{id}`: removes the result of a query that is completed.
pub(super) async fn remove_result(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    let returned = async {
        check_version(&parameters(query.as_deref())?, None, since::REMOVE)?;
        let requester = Requester::of(address, &headers, None)?;
        let id = query_number(&id)?;
        state.shared.queries.remove(id, &requester.user).await?;
        Ok(Map::new())
    };
    respond(returned.await)
}

/// A query's status. Times are in seconds since 1970.
fn described(info: &QueryInfo, now: u64) -> Value {
    let seconds = |micros: i64| u64::try_from(micros / 1_000_000).unwrap_or(0);
    let is_completed = info.state == QueryState::Completed;
    json!({
        "queryId": info.id,
        "query": info.statement,
        "status": state_name(info),
        "queryType": if info.is_async { "ASYNC" } else { "SYNC" },
        "error": info.error.as_deref().unwrap_or_default(),
        "czarId": CZAR_ID,
        "czarType": "http",
        "totalChunks": info.pieces,
        "completedChunks": info.pieces_done,
        "collectedBytes": info.result_bytes,
        "collectedRows": info.rows,
        "finalRows": if is_completed { info.rows } else { 0 },
        "queryBeginEpoch": seconds(info.started.unwrap_or(info.submitted)),
        "lastUpdateEpoch": match (info.ended, info.started) {
            (Some(ended), _) => seconds(ended),
            (None, Some(_)) => now,
            (None, None) => 0,
        },
    })
}

/// The state in Qserv's words: a query that waits is executing, and one whose result was too large has a state of its own.
fn state_name(info: &QueryInfo) -> &'static str {
    let too_large = Some(ErrorCode::RESULT_TOO_LARGE.number);
    match info.state {
        QueryState::Queued | QueryState::Executing => "EXECUTING",
        QueryState::Completed => "COMPLETED",
        QueryState::Failed if info.error_code == too_large => "FAILED_LR",
        QueryState::Failed => "FAILED",
        QueryState::Aborted => "ABORTED",
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    // A clock before 1970 was never set.
    let elapsed: Duration = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    elapsed.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(state: QueryState, error_code: Option<u16>) -> QueryInfo {
        QueryInfo {
            id: 7,
            user: "ann".to_owned(),
            database: None,
            protocol: "HTTP",
            is_async: true,
            state,
            place: None,
            waits_for: None,
            lane: None,
            submitted: 5_000_000,
            started: None,
            ended: None,
            pieces_done: 3,
            pieces: 9,
            scan_bytes: Some(800),
            estimate: Some(12),
            decoded_bytes: Some(700),
            shared_bytes: Some(100),
            rows: 2,
            result_bytes: 100,
            seconds_left: None,
            expires: None,
            error_code,
            error: error_code.map(|_| "it failed".to_owned()),
            dialect: Dialect::MySql,
            as_of: None,
            statement: "SELECT 1".to_owned(),
            cached_from: None,
            milestones: Arc::default(),
            warnings: 0,
            is_veiled: false,
        }
    }

    #[test]
    fn states_are_those_of_qserv() {
        for (state, code, expected) in [
            (QueryState::Queued, None, "EXECUTING"),
            (QueryState::Executing, None, "EXECUTING"),
            (QueryState::Completed, None, "COMPLETED"),
            (QueryState::Failed, Some(1064), "FAILED"),
            (QueryState::Failed, Some(1104), "FAILED_LR"),
            (QueryState::Aborted, Some(1317), "ABORTED"),
        ] {
            let described = described(&info(state, code), 60);
            assert_eq!(described["status"], expected);
            assert_eq!(described["error"] == "", code.is_none(), "{expected}");
        }
    }

    #[test]
    fn times_are_seconds_since_1970() {
        let waiting = described(&info(QueryState::Queued, None), 60);
        assert_eq!(waiting["queryBeginEpoch"], 5);
        assert_eq!(waiting["lastUpdateEpoch"], 0);
        let mut running = info(QueryState::Executing, None);
        running.started = Some(8_999_999);
        let running = described(&running, 60);
        assert_eq!(running["queryBeginEpoch"], 8);
        assert_eq!(running["lastUpdateEpoch"], 60);
    }

    #[test]
    fn versions_that_are_not_implemented_are_rejected() {
        let check = |query: &str, body: Option<u64>| {
            check_version(&RequestParameters::read(query).unwrap(), body, 32)
        };
        for (query, body) in [
            ("", None),
            ("version=55", None),
            ("version=32", None),
            ("version=99", Some(40)),
        ] {
            assert!(check(query, body).is_ok(), "{query} {body:?}");
        }
        for (query, body) in [
            ("version=56", None),
            ("version=31", None),
            ("version=40", Some(99)),
        ] {
            let error = check(query, body).unwrap_err();
            assert_eq!(
                error.object["error_ext"],
                json!({"min_version": 32, "max_version": 55})
            );
            assert_eq!(error.status, StatusCode::OK);
        }
        assert!(check("version=x", None).is_err());
    }
}
