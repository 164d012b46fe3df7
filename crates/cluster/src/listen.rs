//! The ports at which members listen to each other.

use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

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

/// Serves a port until it is stopped. Requests that run are cut off then: whoever sent them has another member to ask.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let listener = listener.tap_io(|stream| tune(stream));
    let served = axum::serve(listener, router);
    tokio::select! {
        outcome = served => {
            if let Err(error) = outcome {
                tracing::error!(%error, "the port of the cluster is not served any more");
            }
        }
        () = stop.cancelled() => {}
    }
}
