//! Connections whose requests were answered before they had arrived as a whole.
//!
//! What is left of such a request cannot be told from the next one: the connection is closed after the response. The response has to
//! say so, or else a client sends its next request there, and finds the connection gone.
//!
//! A client may send all of its body before it reads. Where the connection ended meanwhile, it would be told of that alone, and might
//! not get the response that is under way (RFC 9112, section 9.6): what it sends is read for a while, and dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, Version, header};
use axum::middleware::Next;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long a body is read of which nobody wants the rest.
const LONGEST: Duration = Duration::from_secs(10);
/// How long nothing of it may arrive.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of it that are read.
const MOST_BYTES: usize = 256 << 20;

/// Says in the response that the connection is closed, if the body of the request has not been read to its end.
pub(super) async fn close_after_unread_body(request: Request, next: Next) -> Response<Body> {
    // HTTP/2 has a stream for each request.
    if request.version() == Version::HTTP_2 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let is_read = Arc::new(AtomicBool::new(false));
    // Whoever waits to be told to send it has the response before they send anything.
    let is_awaited = request.headers().contains_key(header::EXPECT);
    let request = request.map(|body| {
        Body::new(WatchedBody {
            body,
            is_read: Arc::clone(&is_read),
            is_sent: !is_awaited,
        })
    });
    let mut response = next.run(request).await;
    if !is_read.load(Relaxed) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// A body that tells when its end was read, and is read on when it is dropped before.
struct WatchedBody {
    body: Body,
    is_read: Arc<AtomicBool>,
    /// Whether the client sends it, whatever the response will be.
    is_sent: bool,
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if self.is_read.load(Relaxed) || !self.is_sent {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let body = std::mem::take(&mut self.body);
            runtime.spawn(drop_rest(body, Arc::clone(&self.is_read)));
        }
    }
}

/// Reads a body on and drops what it reads, within bounds.
async fn drop_rest(mut body: Body, is_read: Arc<AtomicBool>) {
    let read = async {
        let mut bytes = 0;
        while bytes <= MOST_BYTES {
            match timeout(PATIENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Ok(None) => return is_read.store(true, Relaxed),
                Ok(Some(Err(_))) | Err(_) => return,
            }
        }
    };
    let _ = timeout(LONGEST, read).await;
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_sent = true;
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::middleware::from_fn;
    use tokio::net::TcpListener;
    use tokio::task::spawn_blocking;

    use super::*;

    async fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refuse = || async { (StatusCode::FORBIDDEN, "it is not yours") };
        let router = Router::new()
            .fallback(refuse)
            .layer(from_fn(close_after_unread_body));
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// Sends all of a body, and only then reads the response.
    fn response_to(address: SocketAddr, header: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "PUT /tables/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n{header}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    /// Clients were told that the connection was reset, and not why.
    #[tokio::test]
    async fn a_client_that_sends_everything_first_gets_the_response() {
        let address = served().await;
        for _ in 0..10 {
            let body = vec![b'x'; 4_000_000];
            let sent = move || response_to(address, "Connection: close\r\n", &body);
            let response = spawn_blocking(sent).await.unwrap();
            assert!(response.starts_with("HTTP/1.1 403"), "{response}");
            assert!(response.ends_with("it is not yours"), "{response}");
        }
    }

    #[tokio::test]
    async fn nobody_is_told_to_send_what_is_not_wanted() {
        let address = served().await;
        let sent = move || response_to(address, "Expect: 100-continue\r\n", b"");
        let response = spawn_blocking(sent).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 403"), "{response}");
        assert!(response.contains("connection: close"), "{response}");
    }
}
