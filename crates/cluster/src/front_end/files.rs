//! The files that a front end gives to others: its own ones, and through it those that workers alone have.
//!
//! Other processes of this machine (`meridian compact`, `check`, `load --append`, `backup`, `sql --data`) get files that are not in the
//! directory at a port of their own, with a token that is in the directory: whoever may read the one may read the other.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::get;
use axum::{Router, middleware};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use sky::ChunkId;
use store::FileService;
use tokio::net::TcpListener;

use super::holders::{AwayRange, Holders};
use super::routes::ClientError;
use super::{FrontEnd, KnownPart};
use crate::credentials::{Credentials, require_member};
use crate::file_service::serve;
use crate::listen::bind;
use crate::{ClusterError, Secret};

/// Bytes that are read at a time of a file that is passed on.
const STEP: u64 = 1 << 20;

/// The port at which other processes of this machine get files.
#[derive(Debug)]
pub(super) struct LocalPort {
    listener: TcpListener,
    credentials: Credentials,
    service: FileService,
}

impl LocalPort {
    /// Binds it, and tells of it in the data directory.
    ///
    /// # Errors
    /// It cannot be bound, or the directory cannot be written.
    pub async fn open(data_dir: &FilePath) -> Result<Self, ClusterError> {
        let listener = bind("127.0.0.1:0", false).await?;
        let address: io::Result<SocketAddr> = listener.local_addr();
        let address = address.map_err(|error| ClusterError::Listen {
            address: "127.0.0.1:0".to_owned(),
            why: error.to_string(),
        })?;
        let token = format!("{:016x}{:016x}", crate::random()?, crate::random()?);
        let credentials = Credentials::Secret(Secret::of(&token)?);
        let service = FileService {
            address: address.to_string(),
            token,
        };
        service.announce(data_dir)?;
        Ok(Self {
            listener,
            credentials,
            service,
        })
    }

    /// How others find it.
    pub fn service(&self) -> &FileService {
        &self.service
    }

    /// Its listener, what it serves, and who may ask.
    pub fn into_parts(self, front_end: Arc<FrontEnd>) -> (TcpListener, Router, Credentials) {
        let credentials = self.credentials.clone();
        let router = Router::new()
            .route("/parts/{part}/files/{chunk}", get(file))
            .layer(middleware::from_fn_with_state(credentials, require_member))
            .with_state(front_end);
        (self.listener, router, self.credentials)
    }
}

/// Where a file is read from.
#[derive(Debug, Deserialize)]
struct Source {
    /// The worker that is asked first, by its number among the holders: another one, once what it gave was damaged.
    #[serde(default)]
    place: usize,
}

async fn file(
    State(front_end): State<Arc<FrontEnd>>,
    Path((part, chunk)): Path<(i64, i32)>,
    Query(source): Query<Source>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let known = front_end.known_part(part).await?;
    front_end
        .give_file(&known, ChunkId(chunk), source.place, request)
        .await
}

impl FrontEnd {
    /// A file or a range of it, from here or, if it is not here, from a worker.
    pub(super) async fn give_file(
        &self,
        part: &KnownPart,
        file: ChunkId,
        place: usize,
        request: Request,
    ) -> Result<Response<Body>, ClientError> {
        let path = part.path(file);
        let range = AwayRange {
            part: part.key,
            file,
            bytes: 0,
            offset: 0,
            place,
        };
        let place = match (store::is_away(&path), place.checked_sub(1)) {
            (true, _) => place,
            // What is here comes first, and what workers hold once that was damaged.
            (false, Some(place)) if self.holders.have(&range) => place,
            (false, _) => return Ok(serve(&path, request).await),
        };
        let none = || {
            (
                StatusCode::NOT_FOUND,
                format!("there is no {}", part.name_of(file)),
            )
        };
        let bytes = part.file(file).ok_or_else(none)?.bytes;
        let range = AwayRange {
            bytes,
            place,
            ..range
        };
        pass_on(&self.holders, range, request.headers()).await
    }
}

/// Passes a file or a range of it on from a worker.
async fn pass_on(
    holders: &Arc<Holders>,
    from: AwayRange,
    headers: &HeaderMap,
) -> Result<Response<Body>, ClientError> {
    let wanted = match headers.get(RANGE) {
        None => 0..from.bytes,
        Some(header) => header
            .to_str()
            .ok()
            .and_then(|text| range_of(text, from.bytes))
            .ok_or_else(|| {
                let why = format!("the file has {} bytes", from.bytes);
                (StatusCode::RANGE_NOT_SATISFIABLE, why)
            })?,
    };
    // The first bytes are here before anything is said: that they cannot be read is then a status and a sentence.
    let first = read_step(holders, from, &wanted).await;
    let first = first.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let length = wanted.end - wanted.start;
    let rest = wanted.start + first.len() as u64..wanted.end;
    let holders = Arc::clone(holders);
    let rest = stream::try_unfold(rest, move |left| {
        let holders = Arc::clone(&holders);
        async move {
            if left.is_empty() {
                return Ok(None);
            }
            let bytes = read_step(&holders, from, &left).await?;
            let left = left.start + bytes.len() as u64..left.end;
            Ok::<_, io::Error>(Some((bytes, left)))
        }
    });
    let first = stream::iter([Ok(first)]);
    let body = Body::from_stream(futures::StreamExt::chain(first, rest));
    let response = Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(ACCEPT_RANGES, "bytes")
        .header(CONTENT_LENGTH, length);
    let response = match headers.contains_key(RANGE) {
        false => response,
        true => response.status(StatusCode::PARTIAL_CONTENT).header(
            CONTENT_RANGE,
            format!("bytes {}-{}/{}", wanted.start, wanted.end - 1, from.bytes),
        ),
    };
    let response = response.body(body);
    response.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// The first bytes of a range.
async fn read_step(holders: &Holders, from: AwayRange, wanted: &Range<u64>) -> io::Result<Bytes> {
    let length = (wanted.end - wanted.start).min(STEP);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let from = AwayRange {
        offset: wanted.start,
        ..from
    };
    holders.read(from, &mut bytes).await?;
    Ok(Bytes::from(bytes))
}

/// `bytes=FIRST-LAST` of a file of so many bytes, as a half-open range.
fn range_of(text: &str, bytes: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && first < bytes).then(|| first..last.saturating_add(1).min(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_within_the_file() {
        assert_eq!(range_of("bytes=0-0", 10), Some(0..1));
        assert_eq!(range_of("bytes=3-18446744073709551615", 10), Some(3..10));
        for wrong in [
            "bytes=10-12",
            "bytes=5-3",
            "bytes=-3",
            "bytes=3-",
            "bytes=1-2,4-5",
            "x",
        ] {
            assert_eq!(range_of(wrong, 10), None, "{wrong}");
        }
    }
}
