//! What members ask of each other about kept rows, over HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use engine::shuffle::{KeptRun, ShuffleId};
use futures::stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sql::ErrorCode;
use tokio::task::spawn_blocking;

use super::bucket_file::Block;
use super::{BucketFile, KeptShuffles};
use crate::client::{json, read_body};
use crate::frames::{FrameWriter, failure};
use crate::messages::{ErrorClass, ShareFailure};

/// Bytes of a request: some million pieces.
const LONGEST_REQUEST: usize = 256 << 20;
/// Bytes that are read at a time.
const READ_AT_ONCE: usize = 1 << 20;

/// The rows of one bucket that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketRequest {
    /// The shuffle.
    pub shuffle: ShuffleId,
    /// The bucket.
    pub bucket: u32,
    /// The pieces in the order in which their rows are wanted, each by its run and its number in that.
    pub pieces: Vec<(KeptRun, u32)>,
}

/// Runs of which somebody asks whether their rows are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingRequest {
    /// The shuffle.
    pub shuffle: ShuffleId,
    /// The runs.
    pub runs: Vec<KeptRun>,
}

type ClientError = (StatusCode, String);

async fn request_of<T: DeserializeOwned>(request: Request) -> Result<T, ClientError> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), LONGEST_REQUEST).await;
    serde_json::from_slice(&body.map_err(bad)?)
        .map_err(|error| bad(format!("the request cannot be read: {error}")))
}

/// Those of the runs whose rows are not here.
pub(crate) async fn missing(
    kept: &KeptShuffles,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let MissingRequest { shuffle, runs } = request_of(request).await?;
    let missing = { runs.into_iter() }.filter(|run| kept.get(shuffle, *run).is_none());
    Ok(json(&missing.collect::<Vec<_>>()))
}

/// The rows of a bucket: the frames of a share whose pieces are those of the request, by their places there.
pub(crate) async fn bucket(
    kept: &KeptShuffles,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let wanted: BucketRequest = request_of(request).await?;
    let gone = || {
        let why = "the rows are not kept here any more";
        (StatusCode::NOT_FOUND, why.to_owned())
    };
    let mut pieces = Vec::with_capacity(wanted.pieces.len());
    for (run, piece) in wanted.pieces {
        let file = kept.get(wanted.shuffle, run).ok_or_else(gone)?;
        let blocks = file.blocks(piece, wanted.bucket).ok_or_else(gone)?;
        pieces.push((file, blocks));
    }
    let frames = BucketFrames {
        pieces: pieces.into_iter(),
        piece: 0,
        current: None,
        writer: FrameWriter::default(),
        has_begun: false,
        is_over: false,
    };
    let frames = stream::unfold(frames, |frames| async move {
        // Reading may wait for a disk.
        match spawn_blocking(move || frames.next()).await {
            Ok((bytes, frames)) => Some((Ok::<_, Infallible>(bytes?), frames)),
            // Without a footer it is not whole.
            Err(_) => None,
        }
    });
    Ok(Body::from_stream(frames).into_response())
}

/// The frames that are left to be sent.
struct BucketFrames {
    pieces: std::vec::IntoIter<(Arc<BucketFile>, Vec<Block>)>,
    /// The place of the piece that comes next.
    piece: u32,
    /// What is left of the piece before it, and how many rows of it were sent.
    current: Option<(Arc<BucketFile>, std::vec::IntoIter<Block>, u64)>,
    writer: FrameWriter,
    /// Whether the schema was sent.
    has_begun: bool,
    is_over: bool,
}

impl BucketFrames {
    /// The next frames, together; none after the last.
    fn next(mut self) -> (Option<Bytes>, Self) {
        let mut bytes = BytesMut::new();
        while bytes.len() < READ_AT_ONCE && !self.is_over {
            match self.next_frame() {
                Ok(frame) => bytes.extend_from_slice(&frame),
                Err(error) => {
                    self.is_over = true;
                    let told = ShareFailure {
                        class: ErrorClass::Worker,
                        code: ErrorCode::STORAGE.number,
                        sentence: format!("a temporary file cannot be read: {error}"),
                    };
                    bytes.extend_from_slice(&failure(&told));
                }
            }
        }
        ((!bytes.is_empty()).then(|| bytes.freeze()), self)
    }

    fn next_frame(&mut self) -> io::Result<Bytes> {
        if let Some((file, blocks, rows)) = &mut self.current {
            if let Some(block) = blocks.next() {
                *rows += block.rows;
                let message = file.read(block)?;
                let schema: &[u8] = match std::mem::replace(&mut self.has_begun, true) {
                    false => file.schema_message(),
                    true => &[],
                };
                return Ok(FrameWriter::encoded_rows(self.piece, &[schema, &message]));
            }
            let done = self.writer.done(self.piece, *rows);
            self.piece += 1;
            self.current = None;
            return Ok(done);
        }
        match self.pieces.next() {
            Some((file, blocks)) => {
                self.current = Some((file, blocks.into_iter(), 0));
                self.next_frame()
            }
            None => {
                self.is_over = true;
                Ok(self.writer.footer())
            }
        }
    }
}
