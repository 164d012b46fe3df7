//! Responses that the query runtime produces while they are sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use bytes::Bytes;
use futures::stream::{StreamExt, once, unfold};
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::problem::Problem;
use crate::query_runtime::ResultReceiver;

/// Bytes from which on a block of a response is sent.
pub(super) const BLOCK_BYTES: usize = 256 << 10;
/// The header or the trailer that says that rows were cut off: CSV and TSV have no other place for it.
pub(super) const OVERFLOW: HeaderName = HeaderName::from_static("meridian-overflow");

/// Whether rows of a response are cut off, and to whom that may be told.
#[derive(Debug, Clone, Default)]
pub(super) struct Overflow {
    /// Set by whoever writes the rows, before the last block is sent.
    pub(super) is_cut_off: Arc<AtomicBool>,
    takes_trailers: bool,
}

impl Overflow {
    /// For the client with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            takes_trailers: takes_trailers(headers),
            ..Self::default()
        }
    }

    fn is_known(&self) -> bool {
        self.is_cut_off.load(Ordering::Acquire)
    }
}

/// Says in the headers or the trailers of a response that rows were cut off.
pub(super) fn tell_overflow(headers: &mut HeaderMap) {
    headers.insert(OVERFLOW, HeaderValue::from_static("true"));
}

/// Builds a streaming response once the first block has arrived, so that an error before it determines the status. An error after it
/// breaks off the response. `held` is dropped when the response has been sent or the client has gone. That rows are cut off is told in a
/// header if it is known when the first block has arrived, and else behind the rows, in a trailer, to a client that takes trailers.
///
/// # Errors
/// The work failed before its first block.
pub(super) async fn streaming_response<H: Send + 'static>(
    media_type: &'static str,
    mut results: ResultReceiver<Bytes>,
    held: H,
    overflow: Overflow,
) -> Result<Response<Body>, Problem> {
    let first = results.recv_one().await?;
    let is_known = overflow.is_known();
    let behind = Some(overflow).filter(|overflow| overflow.takes_trailers && !is_known);
    let mut response = streamed(media_type, first, results, held, behind);
    if is_known {
        tell_overflow(response.headers_mut());
    }
    Ok(response)
}

/// The streaming response whose first block has arrived.
pub(super) fn streamed_from<H: Send + 'static>(
    media_type: &'static str,
    first: Bytes,
    results: ResultReceiver<Bytes>,
    held: H,
) -> Response<Body> {
    streamed(media_type, first, results, held, None)
}

/// The streaming response whose first block has arrived, with the trailer, if there may be one.
fn streamed<H: Send + 'static>(
    media_type: &'static str,
    first: Bytes,
    results: ResultReceiver<Bytes>,
    held: H,
    overflow: Option<Overflow>,
) -> Response<Body> {
    let has_trailer = overflow.is_some();
    let first = once(async move { Ok(Frame::data(first)) });
    let rest = unfold(Some((results, held, overflow)), |state| async move {
        let (mut results, held, overflow) = state?;
        match results.next().await {
            Some(Ok(block)) => Some((Ok(Frame::data(block)), Some((results, held, overflow)))),
            Some(Err(error)) => Some((Err(io::Error::other(error.sentence)), None)),
            None => {
                overflow.filter(Overflow::is_known)?;
                let mut trailers = HeaderMap::new();
                tell_overflow(&mut trailers);
                Some((Ok(Frame::trailers(trailers)), None))
            }
        }
    });
    // Compression polls a body once more after its end.
    let mut response = Response::new(Body::new(StreamBody::new(first.chain(rest).fuse())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if has_trailer {
        headers.insert(header::TRAILER, OVERFLOW.into());
    }
    response
}

/// Whether the client takes trailers (RFC 9110, section 10.1.4).
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(header::TE).into_iter();
    named.any(|value| {
        let value = value.to_str().unwrap_or_default();
        value
            .split(',')
            .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;
    use crate::query_runtime::{QueryRuntime, ResultSender};

    /// A compressed response made its connection panic: the encoder polls the body once more when that has ended, which the stream did
    /// not allow.
    #[tokio::test]
    async fn a_response_may_be_polled_after_its_end() {
        let runtime = QueryRuntime::new(NonZeroUsize::MIN).unwrap();
        let results = runtime.compute(async { Ok(Bytes::from_static(b"all")) });
        let response = streaming_response("text/plain", results, (), Overflow::default());
        let response = response.await.unwrap();
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

    #[test]
    fn clients_say_whether_they_take_trailers() {
        let takes = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::TE, text.parse().unwrap());
            takes_trailers(&headers)
        };
        assert!(takes("trailers") && takes("gzip, Trailers"));
        assert!(!takes("gzip") && !takes_trailers(&HeaderMap::new()));
    }

    /// The response of two blocks whose rows are cut off, which is known before the first one, before the second one, or never.
    async fn cut_off(known_at: u32, te: &'static str) -> Response<Body> {
        let runtime = QueryRuntime::new(NonZeroUsize::MIN).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::TE, HeaderValue::from_static(te));
        let overflow = Overflow::of(&headers);
        let is_cut_off = Arc::clone(&overflow.is_cut_off);
        let (told, first_is_taken) = tokio::sync::oneshot::channel();
        let results = runtime.spawn(|sender: ResultSender<Bytes>| async move {
            is_cut_off.store(known_at == 1, Ordering::Release);
            sender.send(Bytes::from_static(b"one,")).await?;
            let _ = first_is_taken.await;
            is_cut_off.store(known_at > 0, Ordering::Release);
            sender.send(Bytes::from_static(b"two")).await
        });
        let response = streaming_response("text/csv", results, runtime, overflow).await;
        told.send(()).unwrap();
        response.unwrap()
    }

    /// A large table in CSV said nowhere that its rows were cut off.
    #[tokio::test]
    async fn rows_that_are_cut_off_are_told_before_or_behind_them() {
        for (known_at, te, as_header, as_trailer) in [
            (0, "trailers", false, false),
            (1, "trailers", true, false),
            (2, "trailers", false, true),
            (1, "gzip", true, false),
            (2, "gzip", false, false),
        ] {
            let response = cut_off(known_at, te).await;
            let (head, body) = response.into_parts();
            let is_announced = head.headers.get(header::TRAILER).is_some();
            assert_eq!(head.headers.contains_key(OVERFLOW), as_header);
            assert_eq!(is_announced, te == "trailers" && !as_header);
            let body = body.collect().await.unwrap();
            let told = body.trailers().is_some_and(|it| it[OVERFLOW] == "true");
            assert_eq!(told, as_trailer, "{known_at} {te}");
            assert_eq!(body.to_bytes(), "one,two");
        }
    }
}
