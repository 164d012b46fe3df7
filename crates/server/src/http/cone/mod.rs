//! Simple Cone Search 1.03, `GET /scs/{database}/{table}?RA=&DEC=&SR=`, and lists of cones by POST.
//!
//! ```text
//!   few rows to scan:  position ──► sub-chunks ──► rows ──► bytes, on the network thread: some tens of microseconds
//!   many:              the same on the query runtime, block by block as the client reads
//!   views, and tables of which somebody sees some rows alone:  a query, as any client could write it
//! ```

mod by_query;
mod multicone;
mod parameters;
mod response;
mod served_table;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use self::by_query::Source;
use self::parameters::ConeParameters;
use self::response::{CONE_MEDIA_TYPE_HEADER, small, streamed};
use super::problem::{self, Problem};
use super::{ClientAddress, HttpState};
use crate::formats::{Format, error_document, metadata_document};
use crate::metrics::{Protocol, QueryOutcome, QueryTimer, StatementKind};
pub(crate) use multicone::multicone_search;
pub(crate) use served_table::{ColumnSelection, ServedTable};

/// A cone whose chunks' sub-chunks have no more rows than this is executed on the network thread.
const FEW_ROWS: u64 = 20_000;
/// Provided that it lies in no more chunks than this.
const FEW_CHUNKS: usize = 4;

/// `GET /scs/{database}/{table}`.
pub(crate) async fn search(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path((database, table)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    let timer = begin(&state, StatementKind::Cone);
    let parameters = match ConeParameters::read(query.as_deref().unwrap_or_default()) {
        Ok(parameters) => parameters,
        Err((format, problem)) => {
            timer.end_now(problem.ending());
            return error_response(format, &problem);
        }
    };
    let format = parameters.format;
    let mut timer = Some(timer);
    let names = [database.as_str(), table.as_str()];
    let answered = answered(&state, address, names, &parameters, &headers, &mut timer);
    let answered = match state.shared.user.is_some() {
        true => state.shared.usage.time().charged(answered).await,
        false => answered.await,
    };
    record_outcome(timer, &answered);
    answered.unwrap_or_else(|problem| error_response(format, &problem))
}

/// Starts the timer of a request for the metrics.
fn begin(state: &HttpState, kind: StatementKind) -> QueryTimer {
    let metrics = &state.shared.metrics;
    metrics.begin(Protocol::Http, kind, Instant::now())
}

/// Counts a request, unless its response is still being produced: then the producer counts it.
fn record_outcome(timer: Option<QueryTimer>, answered: &Result<Response<Body>, Problem>) {
    if let Some(timer) = timer {
        let problem = answered.as_ref().err();
        timer.end_now(problem.map_or(QueryOutcome::Succeeded, Problem::ending));
    }
}

async fn answered(
    state: &Arc<HttpState>,
    address: ClientAddress,
    [database, table]: [&str; 2],
    parameters: &ConeParameters,
    headers: &HeaderMap,
    timer: &mut Option<QueryTimer>,
) -> Result<Response<Body>, Problem> {
    state.shared.usage.check_time()?;
    if let Some(view) = state.view(database, table).await? {
        let source = Source::of_view(state, &view, parameters.verbosity).await?;
        return by_query::search(state, address, headers, source, parameters).await;
    }
    let served = state.served(database, table, parameters.verbosity).await?;
    if served.cones.is_partly_released() {
        let source = Source::of_table(&served)?;
        return by_query::search(state, address, headers, source, parameters).await;
    }
    let tag = tag(&served, parameters);
    if is_known(headers, &tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        tagged(&mut response, tag);
        return Ok(response);
    }
    let circle = match parameters.circle {
        Some(circle) if parameters.max_rows != Some(0) => circle,
        _ => return Ok(only_metadata(&served, parameters, tag)),
    };
    let search = served.cones.search(circle, &served.chosen.columns)?;
    let few = search.looks_at_most(FEW_ROWS, FEW_CHUNKS).await?;
    let mut response = if few {
        small(state, &served, search, parameters).await?
    } else {
        let timer = timer.take();
        let client = (address, headers);
        streamed(state, client, served, search, parameters, timer).await?
    };
    tagged(&mut response, tag);
    Ok(response)
}

/// The columns without rows, which SR=0 requests.
fn only_metadata(
    served: &ServedTable,
    parameters: &ConeParameters,
    tag: HeaderValue,
) -> Response<Body> {
    let mut out = Vec::new();
    if parameters.format.is_votable() {
        out = metadata_document(served.name(), served.described());
    } else {
        let mut writer = served.writer(parameters.format);
        writer.begin(&mut out);
        writer.end(crate::formats::TableEnd::Whole, &mut out);
    }
    let mut response = response::whole(parameters.format, out);
    tagged(&mut response, tag);
    response
}

/// What a response is known by. The rows of a part never change, so this follows from the query and the parts.
fn tag(served: &ServedTable, parameters: &ConeParameters) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    let results = served.cones.table().table.part_numbers();
    (results, &served.chosen.columns).hash(&mut hasher);
    parameters.hash(&mut hasher);
    let tag = format!("W/\"{:016x}\"", hasher.finish());
    // Hexadecimal digits are always a valid header value.
    HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("W/\"\""))
}

/// Whether the client has the response already.
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let wanted = tag.to_str().map(opaque).unwrap_or_default();
    let mut tags = known.filter_map(|value| value.to_str().ok());
    tags.any(|tags| tags.split(',').any(|tag| opaque(tag) == wanted))
}

fn tagged(response: &mut Response<Body>, tag: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag);
    // The client may cache it but must revalidate, because the table may be loaded again at any time.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// A problem in the response format. Simple Cone Search wants errors in a VOTable with status 200: its clients show only the
/// status of any other response.
pub(super) fn error_response(format: Format, problem: &Problem) -> Response<Body> {
    if !format.is_votable() {
        return problem::text(problem.status, &problem.sentence);
    }
    let mut response = Response::new(Body::from(error_document(&problem.sentence)));
    if problem.status != StatusCode::BAD_REQUEST {
        *response.status_mut() = problem.status;
    }
    let media_type = HeaderValue::from_static(CONE_MEDIA_TYPE_HEADER);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
