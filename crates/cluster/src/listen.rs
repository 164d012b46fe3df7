//! The ports at which members listen to each other.

use axum::Router;
use tokio::net::TcpListener;
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

/// Serves a port until it is stopped. Requests that run are cut off then: whoever sent them has another member to ask.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
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
