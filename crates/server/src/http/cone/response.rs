//! The response to a cone search: a small one is built at once, a large one is streamed.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use engine::ConeSearch;

use super::parameters::ConeParameters;
use super::served_table::ServedTable;
use crate::ClientError;
use crate::formats::{Format, TableEnd};
use crate::http::limited::{LimitedBatches, write};
use crate::http::problem::Problem;
use crate::http::streaming::{Overflow, streaming_response, tell_overflow};
use crate::http::{ClientAddress, HttpState};
use crate::listener::Peer;
use crate::metrics::{self, Protocol, QueryTimer};

/// The media type of Simple Cone Search's VOTables.
pub(super) const CONE_MEDIA_TYPE_HEADER: &str = "application/x-votable+xml";
/// The initial capacity of a small response.
const SMALL: usize = 16 << 10;

/// A complete response.
pub(super) fn whole(format: Format, bytes: Vec<u8>) -> Response<Body> {
    of_type(format, Body::from(bytes))
}

fn of_type(format: Format, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let media_type = HeaderValue::from_static(format.media_type());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// Builds a small response.
pub(super) async fn small(
    state: &HttpState,
    served: &ServedTable,
    search: ConeSearch,
    parameters: &ConeParameters,
) -> Result<Response<Body>, Problem> {
    let rows = state.shared.metrics.rows(Protocol::Http);
    let mut wanted = LimitedBatches::new(search.batches(), parameters.max_rows, rows);
    let mut writer = served.writer(parameters.format);
    let mut out = Vec::with_capacity(SMALL);
    writer.begin(&mut out);
    while let Some(batch) = wanted.next().await {
        writer.rows(&batch?, &mut out).map_err(cannot_be_written)?;
    }
    let ending = wanted.ending();
    writer.end(ending, &mut out);
    let mut response = whole(parameters.format, out);
    if ending == TableEnd::Overflow {
        tell_overflow(response.headers_mut());
    }
    Ok(response)
}

/// Builds a response that the query runtime produces while it is sent.
pub(super) async fn streamed(
    state: &Arc<HttpState>,
    (address, headers): (ClientAddress, &HeaderMap),
    served: ServedTable,
    search: ConeSearch,
    parameters: &ConeParameters,
    timer: Option<QueryTimer>,
) -> Result<Response<Body>, Problem> {
    let format = parameters.format;
    let shared = &state.shared;
    let rows = shared.metrics.rows(Protocol::Http);
    let overflow = Overflow::of(headers);
    let wanted = LimitedBatches::new(search.batches(), parameters.max_rows, rows);
    let mut wanted = wanted.noting(&overflow.is_cut_off);
    let database = served.cones.table().spec().database.clone();
    let work = shared.track(
        Peer::Address(address.0),
        &database,
        "Cone",
        &parameters.to_string(),
    );
    let results = shared.query_runtime.spawn(move |sender| async move {
        let mut writer = served.writer(format);
        let done = work.run(write(&mut writer, &mut wanted, &sender)).await;
        if let Some(timer) = timer {
            timer.end_now(metrics::QueryOutcome::of_work(&done));
        }
        done
    });
    streaming_response(format.media_type(), results, (), overflow).await
}

pub(super) fn cannot_be_written(error: arrow::error::ArrowError) -> Problem {
    let sentence = format!("a column cannot be sent: {error}");
    ClientError::new(sql::ErrorCode::INTERNAL, sentence).into()
}
