//! The list of queries, their submission and cancellation, and their results.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use engine::{QueryInfo, QueryState};
use queries::{Protocol, QueryError, QueryFilter, Submission};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sql::connection::StatementLimits;
use sql::mysql::TableCommand;
use sql::{Dialect, ErrorCode};

use super::requester::Requester;
use super::result_stream::{Download, DownloadFormat, DownloadRequest};
use super::statement::add_warnings;
use super::{only_executed, only_submitted, parsed, query_number, receive};
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;
use crate::http::streaming::streamed_from;
use crate::http::upload::ReceivedBody;
use crate::http::{ClientAddress, HttpState};
use crate::{ClientError, QueryDescription};

/// Queries of a list whose `limit` is not given, and the most that it may be.
const USUAL_LIMIT: u64 = 100;
const LARGEST_LIMIT: u64 = 1_000;
/// Bytes of each statement in a list.
const SHOWN: usize = 2_000;

/// An error as an object: a sentence, and MySQL's number if it has one.
#[derive(Debug)]
pub(super) struct RestError {
    status: StatusCode,
    code: Option<ErrorCode>,
    sentence: String,
}

impl From<Problem> for RestError {
    fn from(problem: Problem) -> Self {
        Self {
            status: problem.status,
            code: None,
            sentence: problem.sentence,
        }
    }
}

impl From<ClientError> for RestError {
    fn from(error: ClientError) -> Self {
        let (code, problem) = (error.code, Problem::from(error));
        let status = match code {
            ErrorCode::ACCESS_DENIED => StatusCode::FORBIDDEN,
            // The query is known, and is not in the state that the request needs.
            ErrorCode::NO_CONNECTION => StatusCode::CONFLICT,
            ErrorCode::READ_ONLY => StatusCode::SERVICE_UNAVAILABLE,
            _ => problem.status,
        };
        Self {
            status,
            code: Some(code),
            sentence: problem.sentence,
        }
    }
}

impl From<QueryError> for RestError {
    fn from(error: QueryError) -> Self {
        ClientError::from(error).into()
    }
}

impl RestError {
    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The error as an object.
    pub(super) fn object(&self) -> Value {
        let mut object = json!({"error": self.sentence});
        if let Some(code) = self.code {
            object["code"] = json!(code.number);
            object["sqlstate"] = json!(code.state);
        }
        object
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response<Body> {
        super::json(self.status, &self.object())
    }
}

fn parameters(query: Option<&str>) -> Result<RequestParameters, Problem> {
    RequestParameters::read(query.unwrap_or_default())
}

/// The query of a path.
async fn known(state: &HttpState, id: &str) -> Result<QueryInfo, RestError> {
    state.shared.queries.catch_up().await?;
    let found = state.shared.find_query(query_number(id)?);
    found.map_err(|error| RestError {
        status: StatusCode::NOT_FOUND,
        ..error.into()
    })
}

/// `GET /queries`.
pub(super) async fn list(
    State(state): State<Arc<HttpState>>,
    RawQuery(query): RawQuery,
) -> Result<Response<Body>, RestError> {
    let parameters = parameters(query.as_deref())?;
    let limit = parameters.count("LIMIT")?.unwrap_or(USUAL_LIMIT);
    if limit > LARGEST_LIMIT {
        return Err(Problem::bad(format!(
            "limit is {limit}: it is {LARGEST_LIMIT} at most; older queries are listed with before=, the number of the last one"
        ))
        .into());
    }
    let filter = QueryFilter {
        states: states(parameters.value("STATE")?)?,
        user: state.shared.whose(parameters.value("USER")?),
        before: parameters.count("BEFORE")?,
    };
    let queries = Arc::clone(&state.shared.queries);
    queries.catch_up().await?;
    // Among a hundred thousand queries, few may be wanted.
    let listed = async move { Ok(queries.list(&filter, limit as usize)) };
    let listed = state.shared.query_runtime.compute(listed).recv_one().await;
    let listed = listed?.into_iter();
    let queries: Vec<QueryDescription> = listed
        .map(|info| QueryDescription::from(state.shared.as_told(info)).shortened(SHOWN))
        .collect();
    Ok(super::json(StatusCode::OK, &QueryList { queries }))
}

/// The response to `GET /queries`.
#[derive(Debug, Serialize)]
struct QueryList {
    queries: Vec<QueryDescription>,
}

/// States, separated by commas.
fn states(text: Option<&str>) -> Result<Vec<QueryState>, Problem> {
    let names = text.unwrap_or_default().split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    let state = |name: &str| {
        QueryState::of_name(&name.to_ascii_uppercase()).ok_or_else(|| {
            let all = QueryState::ALL.map(QueryState::name).join(", ");
            Problem::bad(format!("state is {name}: it is one of {all}"))
        })
    };
    names.map(state).collect()
}

/// The body of a request with a statement, which is submitted or whose client waits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatementRequest {
    statement: String,
    #[serde(default)]
    database: Option<String>,
    /// `mysql` or `adql`.
    #[serde(default)]
    dialect: Option<String>,
    #[serde(default)]
    pub(super) user: Option<String>,
    /// Rows of a SELECT without a LIMIT of its own.
    #[serde(default)]
    pub(super) row_limit: Option<u64>,
    /// Seconds that the query may run.
    #[serde(default)]
    time_limit: Option<f64>,
    /// The time of whose state alert databases are read.
    #[serde(default)]
    pub(super) as_of: Option<String>,
}

impl StatementRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// It is no such object.
    pub(super) fn read(body: &ReceivedBody) -> Result<Self, Problem> {
        parsed(body, r#"{"statement": "SELECT 1", "database": "sky"}"#)
    }

    /// The default database, if the request names one.
    pub(super) fn named_database(&self) -> Option<String> {
        self.database.clone().filter(|name| !name.is_empty())
    }

    pub(super) fn dialect(&self) -> Result<Dialect, Problem> {
        let Some(name) = &self.dialect else {
            return Ok(Dialect::default());
        };
        name.parse().map_err(Problem::bad)
    }

    /// The only statement, and how it changes a table if it does. What several are in ADQL, its grammar finds.
    pub(super) fn executed(
        &self,
        dialect: Dialect,
    ) -> Result<(String, Option<TableCommand>), ClientError> {
        match dialect {
            Dialect::MySql => only_executed(&self.statement),
            Dialect::Adql => Ok((self.statement.trim().to_owned(), None)),
        }
    }

    /// The only statement, which is submitted.
    fn submitted(&self, dialect: Dialect) -> Result<String, ClientError> {
        match dialect {
            Dialect::MySql => only_submitted(&self.statement),
            Dialect::Adql => Ok(self.statement.trim().to_owned()),
        }
    }

    /// The time of whose state alert databases are read, in microseconds since 1970.
    fn as_of(&self) -> Result<Option<i64>, ClientError> {
        match &self.as_of {
            Some(text) => Ok(sql::time_of_variable(text)?),
            None => Ok(None),
        }
    }

    pub(super) fn time_limit(&self) -> Result<Option<Duration>, Problem> {
        let Some(seconds) = self.time_limit else {
            return Ok(None);
        };
        let limit = Duration::try_from_secs_f64(seconds).ok();
        let limit = limit.filter(|limit| !limit.is_zero());
        limit.map(Some).ok_or_else(|| {
            Problem::bad(format!(
                "time_limit is {seconds}: it is a number of seconds above 0"
            ))
        })
    }
}

/// `POST /queries`: submits a query.
pub(super) async fn submit(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, RestError> {
    let body = receive(&state, body).await?;
    let request = StatementRequest::read(&body)?;
    let dialect = request.dialect()?;
    let submission = Submission {
        user: Requester::of(address, &headers, request.user.as_deref())?.user,
        database: request.named_database(),
        protocol: Protocol::Http,
        row_limit: request.row_limit,
        time_limit: request.time_limit()?,
        limits: StatementLimits::default(),
        as_of: request.as_of()?,
        dialect,
        statement: request.submitted(dialect)?,
    };
    let id = super::submit(&state, submission).await?;
    let described = QueryDescription::from(state.shared.find_query(id)?);
    let mut response = super::json(StatusCode::ACCEPTED, &described);
    if let Ok(location) = HeaderValue::from_str(&format!("/queries/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// `GET /queries/{id}`.
pub(super) async fn show(
    State(state): State<Arc<HttpState>>,
    Path(id): Path<String>,
) -> Result<Response<Body>, RestError> {
    let query = known(&state, &id).await?;
    let warnings = state.shared.queries.warnings(&query)?;
    let described = QueryDescription::from(query).with_warnings(&warnings);
    Ok(super::json(StatusCode::OK, &described))
}

/// `DELETE /queries/{id}`: cancels a query that waits or runs.
pub(super) async fn cancel(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, RestError> {
    let parameters = parameters(query.as_deref())?;
    let requester = Requester::of(address, &headers, parameters.value("USER")?)?;
    let id = known(&state, &id).await?.id;
    let queries = &state.shared.queries;
    queries.cancel(id, &requester.user).await?;
    let described = QueryDescription::from(state.shared.find_query(id)?);
    Ok(super::json(StatusCode::OK, &described))
}

/// `GET` and `HEAD /queries/{id}/result`.
pub(super) async fn result(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    method: Method,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, RestError> {
    let parameters = parameters(query.as_deref())?;
    let request = DownloadRequest::read(&parameters)?;
    let requester = Requester::of(address, &headers, parameters.value("USER")?)?;
    let id = known(&state, &id).await?.id;
    let runtime = &state.shared.query_runtime;
    let download = Download::begin(&state.shared, requester, id, request);
    let format = request.format;
    let mut response = if method == Method::HEAD {
        let mut checked = runtime.compute(async move { download.check() });
        checked.recv_one().await?;
        // As with GET, the length is not known.
        let unsized_body = futures::stream::empty::<Result<Bytes, Infallible>>();
        let mut response = Response::new(Body::from_stream(unsized_body));
        let media_type = HeaderValue::from_static(format.media_type());
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
        response
    } else {
        let warnings = download.warnings();
        let mut blocks = runtime.spawn(|sender| download.run(sender));
        let first = blocks.recv_one().await?;
        let mut response = streamed_from(format.media_type(), first, blocks, ());
        if let Some(warnings) = warnings.get() {
            add_warnings(response.headers_mut(), warnings);
        }
        response
    };
    if let DownloadFormat::File(format) = format {
        let name = format!("attachment; filename=\"query-{id}.{}\"", format.name());
        if let Ok(name) = HeaderValue::from_str(&name) {
            response
                .headers_mut()
                .insert(header::CONTENT_DISPOSITION, name);
        }
    }
    Ok(response)
}

/// `DELETE /queries/{id}/result`: removes a query that has ended, and its result.
pub(super) async fn remove(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, RestError> {
    let parameters = parameters(query.as_deref())?;
    let requester = Requester::of(address, &headers, parameters.value("USER")?)?;
    let id = known(&state, &id).await?.id;
    state.shared.queries.remove(id, &requester.user).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::feed;

    #[test]
    fn states_are_named_in_any_case() {
        assert_eq!(states(None), Ok(vec![]));
        let two = vec![QueryState::Queued, QueryState::Failed];
        assert_eq!(states(Some("queued, FAILED")), Ok(two));
        let problem = states(Some("done")).unwrap_err();
        assert!(problem.sentence.contains("QUEUED, EXECUTING"));
    }

    #[test]
    fn requests_are_objects_of_known_keys() {
        let read = |text: &str| serde_json::from_str::<StatementRequest>(text);
        let request = read(r#"{"statement": "SELECT 1", "time_limit": 0.5}"#).unwrap();
        let limit = Duration::from_millis(500);
        assert_eq!(request.time_limit(), Ok(Some(limit)));
        assert!(read(r#"{"statement": "SELECT 1", "databse": "sky"}"#).is_err());
        assert!(read("{}").is_err());
        for seconds in ["0", "-1", "1e300"] {
            let text = format!(r#"{{"statement": "SELECT 1", "time_limit": {seconds}}}"#);
            assert!(read(&text).unwrap().time_limit().is_err(), "{seconds}");
        }
    }

    #[test]
    fn strange_requests_for_queries_do_no_harm() {
        let usual = [
            r#"{"statement": "SELECT 1; -- \u0000", "database": "sky", "time_limit": 1e-3, "dialect": "mysql", "row_limit": 3}"#,
            r#"{"statement": "SELECT \"id\" FROM Star", "dialect": "ADQL", "as_of": "2026-11-20 08:00", "user": null}"#,
        ];
        feed("requests for queries", &usual.map(str::as_bytes), |bytes| {
            let Ok(request) = serde_json::from_slice::<StatementRequest>(bytes) else {
                return;
            };
            let _ = (request.time_limit(), request.as_of());
            if let Ok(dialect) = request.dialect() {
                let _ = (request.executed(dialect), request.submitted(dialect));
            }
            let _ = states(request.database.as_deref());
        });
    }
}
