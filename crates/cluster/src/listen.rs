//! The ports at which members listen to each other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::Request;
use futures::future::{BoxFuture, FutureExt};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{debug, warn};

use crate::ClusterError;
use crate::credentials::{Caller, Credentials};
use crate::tls::{Certificates, MemberName, in_words, of_server};

/// Binds an address, `host:port`. It has to be one of this machine if others may not reach it.
pub(crate) async fn bind(address: &str, may_be_reached: bool) -> Result<TcpListener, ClusterError> {
    let failed = |why: String| ClusterError::Listen {
        address: address.to_owned(),
        why,
    };
    let found = tokio::net::lookup_host(address).await;
    let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    if !may_be_reached && found.iter().any(|address| !address.ip().is_loopback()) {
        return Err(failed(
            "other machines reach it, and with a secret what the members of a cluster say to each other is not encrypted: give \
             --cluster-tls, which `meridian cluster init` prepares, or a loopback address, or --insecure where the network is trusted"
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
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    credentials: &Credentials,
    stop: CancellationToken,
) {
    let served = serve_patiently(listener, router, credentials, stop, HEAD_TIMEOUT);
    match credentials {
        Credentials::Secret(_) => served.await,
        Credentials::Tls(certificates) => tokio::select! {
            () = served => {}
            () = certificates.keep_looking() => {}
        },
    }
}

async fn serve_patiently(
    listener: TcpListener,
    router: Router,
    credentials: &Credentials,
    stop: CancellationToken,
    patience: Duration,
) {
    let rejected = Arc::new(RejectedConnections::default());
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
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
        let (router, stop) = (router.clone(), stop.clone());
        let served = match credentials {
            Credentials::Secret(_) => serve_connection(stream, router, None, patience).boxed(),
            Credentials::Tls(certificates) => {
                let (certificates, rejected) = (Arc::clone(certificates), Arc::clone(&rejected));
                async move {
                    match accept(certificates, stream, patience).await {
                        Ok(accepted) => accepted.serve(address.ip(), router, patience).await,
                        Err(why) => rejected.tell(address.ip(), why),
                    }
                }
                .boxed()
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = served => {}
                () = stop.cancelled() => {}
            }
            drop(slot);
        });
    }
}

/// Answers the requests of a connection, each of which is told whose it is.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    caller: Option<Caller>,
    patience: Duration,
) {
    let router = router.map_request(move |mut request: Request<Incoming>| {
        if let Some(caller) = &caller {
            request.extensions_mut().insert(caller.clone());
        }
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Why a member's connection ended is the member's to tell.
    let _ = connection.await;
}

/// How long a process that was refused may take to read why.
const LINGER: Duration = Duration::from_secs(2);

/// A connection in TLS.
struct AcceptedConnection {
    stream: TlsStream<TcpStream>,
    members: Vec<MemberName>,
    /// Ends when the certificate that the other side has shown is not trusted any more, and says why.
    refused: BoxFuture<'static, String>,
}

impl AcceptedConnection {
    /// Answers its requests as long as the other side is trusted.
    async fn serve(self, address: IpAddr, router: Router, patience: Duration) {
        let member = in_words(&self.members);
        let caller = Caller::Certified(self.members.into());
        tokio::select! {
            () = serve_connection(self.stream, router, Some(caller), patience) => {}
            why = self.refused => {
                warn!(%address, "a connection to the port of the cluster is cut: the certificate of {member} {why}");
            }
        }
    }
}

/// Makes a connection one in TLS, and says whose it is. `None` is no news: it has ended before it has said anything wrong.
async fn accept(
    certificates: Arc<Certificates>,
    stream: TcpStream,
    patience: Duration,
) -> Result<AcceptedConnection, Option<String>> {
    let loaded = certificates.loaded();
    let handshake = loaded.acceptor().accept(stream).into_fallible();
    match timeout(patience, handshake).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates();
            let shown: Vec<_> = { shown.into_iter().flatten() }
                .map(|it| it.clone().into_owned())
                .collect();
            Ok(AcceptedConnection {
                stream,
                members: shown.first().map(MemberName::all_of).unwrap_or_default(),
                refused: certificates.until_refused(loaded, shown).boxed(),
            })
        }
        Ok(Err((error, mut stream))) => {
            // With bytes that nobody has read, its end would take the alert away that says why.
            let read_out = async {
                let _ = stream.shutdown().await;
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {}
            };
            let _ = timeout(LINGER, read_out).await;
            Err(of_server(&error))
        }
        Err(_) => Err(Some("it began no TLS in time".to_owned())),
    }
}

/// How long the same is not said again.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Connections that are remembered.
const MOST_REJECTED: usize = 1000;

/// What was said of connections that were rejected, so that one who tries again and again does not fill the log.
#[derive(Debug, Default)]
struct RejectedConnections(Mutex<HashMap<(IpAddr, String), Instant>>);

impl RejectedConnections {
    fn tell(&self, address: IpAddr, why: Option<String>) {
        let Some(why) = why else {
            debug!(%address, "a connection ended before there was TLS");
            return;
        };
        // Every change is a single one, so that a panic elsewhere leaves it whole.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST_REJECTED {
            said.clear();
        }
        let now = Instant::now();
        let before = said.insert((address, why.clone()), now);
        let is_news = before.is_none_or(|before| now.duration_since(before) > SAID_AGAIN_AFTER);
        match is_news {
            true => warn!(%address, why, "a connection to the port of the cluster is rejected"),
            false => debug!(%address, why, "a connection to the port of the cluster is rejected"),
        }
        if !is_news && let Some(before) = before {
            said.insert((address, why), before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use axum::routing::get;

    async fn served(patience: Duration, stop: &CancellationToken) -> SocketAddr {
        let listener = bind("127.0.0.1:0", false).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let mut options = std::fs::OpenOptions::new();
        let mut file = std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600)
            .write(true)
            .create(true)
            .open(&path)
            .unwrap();
        std::io::Write::write_all(&mut file, &[b'a'; 32]).unwrap();
        let credentials = Credentials::read(&crate::CredentialFiles::Secret(path), &[]).unwrap();
        let stop = stop.clone();
        tokio::spawn(async move {
            serve_patiently(listener, router, &credentials, stop, patience).await;
        });
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
