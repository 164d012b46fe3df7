//! The ports at which members listen to each other.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::ClusterError;

/// Binds an address, `host:port`. What members say is not encrypted, so that it has to be one of this machine unless it is known that
/// nobody else listens.
pub(crate) async fn bind(address: &str, is_insecure: bool) -> Result<TcpListener, ClusterError> {
    let failed = |why: String| ClusterError::Listen {
        address: address.to_owned(),
        why,
    };
    let found = tokio::net::lookup_host(address).await;
    let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    if !is_insecure && found.iter().any(|address| !address.ip().is_loopback()) {
        return Err(failed(
            "other machines reach it, and what the members of a cluster say to each other is not encrypted: give --insecure where the \
             network is trusted, or a loopback address"
                .to_owned(),
        ));
    }
    let bound = TcpListener::bind(found.as_slice()).await;
    bound.map_err(|error| failed(error.to_string()))
}

/// After this silence a connection is probed.
const PROBED_AFTER: Duration = Duration::from_secs(4);
/// How long each probe waits for an answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Probes without an answer after which the other side counts as gone.
const PROBES: u32 = 3;

/// Has small messages sent without delay, and a member that has vanished noticed within 10 s though it said nothing. The connection works
/// without either.
pub(crate) fn tune(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(PROBED_AFTER)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    let socket = SockRef::from(stream);
    let _ = stream.set_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    // What was sent and is not acknowledged is no silence: it has a time of its own.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(PROBED_AFTER + PROBE_INTERVAL * PROBES));
}

/// How long the head of a request may take to arrive, and a connection may be idle before it: whoever has not sent a head has not shown
/// that they know the secret.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at a port.
const MOST_CONNECTIONS: usize = 4096;
/// How long to wait where the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Serves a port until it is stopped. Requests that run are cut off then: whoever sent them has another member to ask.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    serve_patiently(listener, router, stop, HEAD_TIMEOUT).await;
}

async fn serve_patiently(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    patience: Duration,
) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection can be accepted at the port of the cluster");
                sleep(NO_ROOM_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            debug!("a connection at the port of the cluster is closed, as there are too many");
            continue;
        };
        tune(&stream);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(patience)
            .serve_connection(
                TokioIo::new(stream),
                TowerToHyperService::new(router.clone()),
            );
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                // Why a member's connection ended is the member's to tell.
                _ = connection => {}
                () = stop.cancelled() => {}
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    async fn served(patience: Duration, stop: &CancellationToken) -> SocketAddr {
        let listener = bind("127.0.0.1:0", false).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve_patiently(listener, router, stop.clone(), patience));
        address
    }

    #[tokio::test]
    async fn heads_that_do_not_end_end_their_connection() {
        let stop = CancellationToken::new();
        let address = served(Duration::from_millis(100), &stop).await;
        for begun in [&b""[..], b"GET / HTTP/1.1\r\nHost: x\r\n"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun).await.unwrap();
            let mut rest = vec![];
            let ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest));
            ended
                .await
                .expect("the connection is open for ever")
                .unwrap();
        }
        stop.cancel();
    }

    #[tokio::test]
    async fn requests_are_answered_until_the_end() {
        let stop = CancellationToken::new();
        let address = served(HEAD_TIMEOUT, &stop).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        for _ in 0..2 {
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            let mut answer = vec![0; 1000];
            let length = stream.read(&mut answer).await.unwrap();
            assert!(String::from_utf8_lossy(&answer[..length]).contains("200 OK"));
        }
        stop.cancel();
        let mut rest = vec![];
        let ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest));
        ended.await.expect("the connection goes on").unwrap();
    }
}
