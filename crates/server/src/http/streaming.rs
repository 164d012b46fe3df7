//! Responses that the query runtime produces while they are sent.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures::stream::StreamExt;

use super::problem::Problem;
use crate::query_runtime::ResultReceiver;

/// Bytes from which on a block of a response is sent.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

/// Builds a streaming response once the first block has arrived, so that an error before it determines the status. An error after it
/// breaks off the response. `held` is dropped when the response has been sent or the client has gone.
///
/// # Errors
/// The work failed before its first block.
pub(super) async fn streaming_response<H: Send + 'static>(
    media_type: &'static str,
    mut results: ResultReceiver<Bytes>,
    held: H,
) -> Result<Response<Body>, Problem> {
    let first = results.recv_one().await?;
    Ok(streamed_from(media_type, first, results, held))
}

/// The streaming response whose first block has arrived.
pub(super) fn streamed_from<H: Send + 'static>(
    media_type: &'static str,
    first: Bytes,
    results: ResultReceiver<Bytes>,
    held: H,
) -> Response<Body> {
    let first = futures::stream::once(async move { Ok(first) });
    let rest = futures::stream::unfold((results, held), |(mut results, held)| async move {
        Some((results.next().await?, (results, held)))
    });
    // Compression polls a body once more after its end.
    let stream = first.chain(rest).fuse();
    let stream = stream.map(|part| part.map_err(|error| std::io::Error::other(error.sentence)));
    let mut response = Response::new(Body::from_stream(stream));
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use hyper::body::Body as _;

    use super::*;
    use crate::query_runtime::QueryRuntime;

    /// A compressed response made its connection panic: the encoder polls the body once more when that has ended, which the stream did
    /// not allow.
    #[tokio::test]
    async fn a_response_may_be_polled_after_its_end() {
        let runtime = QueryRuntime::new(NonZeroUsize::MIN).unwrap();
        let results = runtime.compute(async { Ok(Bytes::from_static(b"all")) });
        let response = streaming_response("text/plain", results, ()).await.unwrap();
        let mut body = response.into_body();
        let mut poll = || {
            let mut context = Context::from_waker(Waker::noop());
            Pin::new(&mut body).poll_frame(&mut context)
        };
        assert!(matches!(poll(), Poll::Ready(Some(Ok(_)))));
        // The sender may still have to end.
        while poll().is_pending() {
            tokio::task::yield_now().await;
        }
        assert!(matches!(poll(), Poll::Ready(None)));
    }
}
