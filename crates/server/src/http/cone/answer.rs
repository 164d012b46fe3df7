//! The answer to a cone search: at once where it is small, else as a stream.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use engine::{ConeSearch, EngineError};
use futures::stream::{BoxStream, StreamExt};
use prometheus::IntCounter;

use super::parameters::ConeParameters;
use super::served::Served;
use crate::Refusal;
use crate::doors::Peer;
use crate::formats::{Ending, Format, TableWriter};
use crate::http::problem::Problem;
use crate::http::{ClientAddress, HttpState};
use crate::metrics::{self, Begun, Door};
use crate::workshop::{Giver, Parts};

/// Simple Cone Search's answers that are VOTables.
pub(super) const CONE_MEDIA_TYPE_HEADER: &str = "application/x-votable+xml";
/// Bytes from which on a part of an answer is handed over.
const PART: usize = 256 << 10;
/// Bytes that a small answer has room for from the beginning.
const SMALL: usize = 16 << 10;

/// Rows, of which there are no more than were wanted.
pub(super) struct Wanted {
    batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
    left: Option<u64>,
    /// There were more.
    pub(super) overflow: bool,
    /// Where they are counted.
    counted: IntCounter,
}

impl Wanted {
    pub(super) fn new(
        batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
        max_rows: Option<u64>,
        counted: IntCounter,
    ) -> Self {
        Self {
            batches,
            left: max_rows,
            overflow: false,
            counted,
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<RecordBatch, EngineError>> {
        let next = self.next_of_wanted().await;
        if let Some(Ok(batch)) = &next {
            self.counted.inc_by(batch.num_rows() as u64);
        }
        next
    }

    async fn next_of_wanted(&mut self) -> Option<Result<RecordBatch, EngineError>> {
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
            // Less than the batch's rows, so that it is a number of rows.
            let some = batch.slice(0, *left as usize);
            return (some.num_rows() > 0).then_some(Ok(some));
        }
        *left -= rows;
        Some(Ok(batch))
    }

    pub(super) fn ending(&self) -> Ending<'static> {
        match self.overflow {
            true => Ending::Overflow,
            false => Ending::Whole,
        }
    }
}

/// An answer that is there.
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

/// All of an answer that is small.
pub(super) async fn small(
    state: &HttpState,
    served: &Served,
    search: ConeSearch,
    parameters: &ConeParameters,
) -> Result<Response<Body>, Problem> {
    let rows = state.shared.metrics.rows(Door::Http);
    let mut wanted = Wanted::new(search.batches(), parameters.max_rows, rows);
    let mut writer = served.writer(parameters.format);
    let mut out = Vec::with_capacity(SMALL);
    writer.begin(&mut out);
    while let Some(batch) = wanted.next().await {
        writer.rows(&batch?, &mut out).map_err(cannot_be_written)?;
    }
    writer.end(wanted.ending(), &mut out);
    Ok(whole(parameters.format, out))
}

/// An answer that is made in the workshop while it is sent.
pub(super) async fn streamed(
    state: &Arc<HttpState>,
    address: ClientAddress,
    served: Served,
    search: ConeSearch,
    parameters: &ConeParameters,
    counted: Option<Begun>,
) -> Result<Response<Body>, Problem> {
    let format = parameters.format;
    let shared = &state.shared;
    let rows = shared.metrics.rows(Door::Http);
    let mut wanted = Wanted::new(search.batches(), parameters.max_rows, rows);
    let database = served.cones.table().spec().database.clone();
    let work = shared.list(
        Peer::Address(address.0),
        &database,
        "Cone",
        &parameters.to_string(),
    );
    let parts = shared.workshop.start(move |giver| async move {
        let writer = served.writer(format);
        let done = work.during(write(writer, &mut wanted, &giver)).await;
        if let Some(counted) = counted {
            counted.end_now(metrics::Ending::of_work(&done));
        }
        done
    });
    from_parts(format, parts, ()).await
}

/// Makes a response of parts once the first is there, so that what fails before is told by the response's status. Something is held
/// until the answer is sent or the client has gone.
pub(super) async fn from_parts<H: Send + 'static>(
    format: Format,
    mut parts: Parts<Bytes>,
    held: H,
) -> Result<Response<Body>, Problem> {
    let first = parts.only().await?;
    let first = futures::stream::once(async move { Ok(first) });
    let rest = futures::stream::unfold((parts, held), |(mut parts, held)| async move {
        Some((parts.next().await?, (parts, held)))
    });
    let stream = first.chain(rest);
    let stream = stream.map(|part| part.map_err(|refusal| std::io::Error::other(refusal.sentence)));
    Ok(of_type(format, Body::from_stream(stream)))
}

/// Writes rows as they come. Whatever fails once rows were given away is said at the end, where the format can say it, and else
/// breaks the answer off, so that nobody takes it for whole.
pub(super) async fn write(
    mut writer: TableWriter<'_>,
    wanted: &mut Wanted,
    giver: &Giver<Bytes>,
) -> Result<(), Refusal> {
    let mut out = Vec::with_capacity(PART);
    let mut next = wanted.next().await.transpose()?;
    writer.begin(&mut out);
    while let Some(batch) = next {
        let written = writer.rows(&batch, &mut out);
        written.map_err(|error| Refusal::new(sql::ErrorCode::OTHER, error.to_string()))?;
        if out.len() >= PART {
            let part = std::mem::replace(&mut out, Vec::with_capacity(PART));
            giver.give(part.into()).await?;
        }
        next = match wanted.next().await.transpose() {
            Ok(next) => next,
            Err(error) => {
                let sentence = error.to_string();
                if writer.end(Ending::Failed(&sentence), &mut out) {
                    return giver.give(out.into()).await;
                }
                return Err(error.into());
            }
        };
    }
    writer.end(wanted.ending(), &mut out);
    giver.give(out.into()).await
}

pub(super) fn cannot_be_written(error: arrow::error::ArrowError) -> Problem {
    let sentence = format!("a column cannot be sent: {error}");
    Refusal::new(sql::ErrorCode::OTHER, sentence).into()
}
