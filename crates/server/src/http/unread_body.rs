//! Connections whose requests were answered before they had arrived as a whole.
//!
//! What is left of such a request cannot be told from the next one: the connection is closed after the response. The response has to
//! say so, or else a client sends its next request there, and finds the connection gone.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, Version, header};
use axum::middleware::Next;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

/// Says in the response that the connection is closed, if the body of the request has not been read to its end.
pub(super) async fn close_after_unread_body(request: Request, next: Next) -> Response<Body> {
    // HTTP/2 has a stream for each request.
    if request.version() == Version::HTTP_2 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let is_read = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| {
        Body::new(WatchedBody {
            body,
            is_read: Arc::clone(&is_read),
        })
    });
    let mut response = next.run(request).await;
    if !is_read.load(Relaxed) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// A body that tells when its end was read.
struct WatchedBody {
    body: Body,
    is_read: Arc<AtomicBool>,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_read.store(true, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
