//! The response to a cone search: a small one is built at once, a large one is streamed.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use engine::{ConeSearch, EngineError};
use futures::stream::{BoxStream, StreamExt};
use prometheus::IntCounter;

use super::parameters::ConeParameters;
use super::served_table::ServedTable;
use crate::ClientError;
use crate::formats::{Format, TableEnd, TableWriter};
use crate::http::problem::Problem;
use crate::http::streaming::{BLOCK_BYTES, streaming_response};
use crate::http::{ClientAddress, HttpState};
use crate::listener::Peer;
use crate::metrics::{self, Protocol, QueryTimer};
use crate::query_runtime::ResultSender;

/// The media type of Simple Cone Search's VOTables.
pub(super) const CONE_MEDIA_TYPE_HEADER: &str = "application/x-votable+xml";
/// The initial capacity of a small response.
const SMALL: usize = 16 << 10;

/// Batches cut off at the number of rows that the client requested.
pub(super) struct LimitedBatches {
    batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
    left: Option<u64>,
    /// Whether more rows exist.
    pub(super) overflow: bool,
    /// The counter of the rows.
    timer: IntCounter,
}

impl LimitedBatches {
    pub(super) fn new(
        batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
        max_rows: Option<u64>,
        timer: IntCounter,
    ) -> Self {
        Self {
            batches,
            left: max_rows,
            overflow: false,
            timer,
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<RecordBatch, EngineError>> {
        let next = self.next_limited().await;
        if let Some(Ok(batch)) = &next {
            self.timer.inc_by(batch.num_rows() as u64);
        }
        next
    }

    async fn next_limited(&mut self) -> Option<Result<RecordBatch, EngineError>> {
        if self.overflow {
            return None;
        }
        let batch = match self.batches.next().await? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let Some(left) = &mut self.left else {
            return Some(Ok(batch));
        };
        let rows = batch.num_rows() as u64;
        if rows > *left {
            self.overflow = true;
            // It is less than the batch's number of rows, which is a `usize`.
            let some = batch.slice(0, *left as usize);
            return (some.num_rows() > 0).then_some(Ok(some));
        }
        *left -= rows;
        Some(Ok(batch))
    }

    pub(super) fn ending(&self) -> TableEnd<'static> {
        match self.overflow {
            true => TableEnd::Overflow,
            false => TableEnd::Whole,
        }
    }
}

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
    writer.end(wanted.ending(), &mut out);
    Ok(whole(parameters.format, out))
}

/// Builds a response that the query runtime produces while it is sent.
pub(super) async fn streamed(
    state: &Arc<HttpState>,
    address: ClientAddress,
    served: ServedTable,
    search: ConeSearch,
    parameters: &ConeParameters,
    timer: Option<QueryTimer>,
) -> Result<Response<Body>, Problem> {
    let format = parameters.format;
    let shared = &state.shared;
    let rows = shared.metrics.rows(Protocol::Http);
    let mut wanted = LimitedBatches::new(search.batches(), parameters.max_rows, rows);
    let database = served.cones.table().spec().database.clone();
    let work = shared.track(
        Peer::Address(address.0),
        &database,
        "Cone",
        &parameters.to_string(),
    );
    let results = shared.query_runtime.spawn(move |sender| async move {
        let writer = served.writer(format);
        let done = work.run(write(writer, &mut wanted, &sender)).await;
        if let Some(timer) = timer {
            timer.end_now(metrics::QueryOutcome::of_work(&done));
        }
        done
    });
    streaming_response(format.media_type(), results, ()).await
}

/// Writes rows as they arrive. An error after the first block is written at the end where the format can express it, and else breaks
/// off the response, so that the client does not take it for complete.
pub(super) async fn write(
    mut writer: TableWriter<'_>,
    wanted: &mut LimitedBatches,
    sender: &ResultSender<Bytes>,
) -> Result<(), ClientError> {
    let mut out = Vec::with_capacity(BLOCK_BYTES);
    let mut next = wanted.next().await.transpose()?;
    writer.begin(&mut out);
    while let Some(batch) = next {
        let written = writer.rows(&batch, &mut out);
        written.map_err(|error| ClientError::new(sql::ErrorCode::OTHER, error.to_string()))?;
        if out.len() >= BLOCK_BYTES {
            let part = std::mem::replace(&mut out, Vec::with_capacity(BLOCK_BYTES));
            sender.send(part.into()).await?;
        }
        next = match wanted.next().await.transpose() {
            Ok(next) => next,
            Err(error) => {
                let sentence = error.to_string();
                if writer.end(TableEnd::Failed(&sentence), &mut out) {
                    return sender.send(out.into()).await;
                }
                return Err(error.into());
            }
        };
    }
    writer.end(wanted.ending(), &mut out);
    sender.send(out.into()).await
}

pub(super) fn cannot_be_written(error: arrow::error::ArrowError) -> Problem {
    let sentence = format!("a column cannot be sent: {error}");
    ClientError::new(sql::ErrorCode::OTHER, sentence).into()
}
