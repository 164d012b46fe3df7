//! The HTTP endpoint: cone searches, queries, HATS catalogues, health, metrics, and an overview page.
//!
//! HTTP/1.1 and HTTP/2 (negotiated in TLS, or with prior knowledge); responses are compressed for clients that accept it, and pages of
//! any origin may read all but those about queries.

mod activity;
mod alerts;
mod authentication;
mod browser_login;
mod browser_sessions;
mod cone;
mod editor;
mod hats_catalogues;
mod limited;
mod me;
mod pages;
mod parameters;
mod paths;
mod problem;
mod query_api;
mod received_table;
mod same_site;
mod state;
mod streaming;
mod table_file;
mod tap;
mod tracked_query;
mod unread_body;
mod upload;
mod user_tables;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Response, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::io::InspectWriter;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;
use tower_http::cors::{Any, CorsLayer};
use tracing::{Instrument, Level, debug, enabled, info_span};

use crate::Shared;
use crate::connection_slots::{ConnectionSlot, LimitReached};
use crate::metrics::Protocol;
use crate::tls::Tls;
use activity::{Activity, WatchedStream};
pub(crate) use alerts::AlertDatabases;
pub(crate) use authentication::UserRoutes;
pub(crate) use browser_sessions::BrowserSessions;
pub(crate) use received_table::TableRoom;
pub(crate) use same_site::AllowedHosts;
pub(crate) use state::HttpState;
pub use tap::{ServiceDescription, registry_record};
pub(crate) use tap::{TapJobs, fetch_document};

/// How often an HTTP/2 client is pinged.
const ROUND: Duration = Duration::from_secs(75);
/// How long the server tries to tell a rejected client why.
const REJECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The first byte of a TLS connection (RFC 8446, section 5.1), with which no HTTP method begins.
const TLS_HANDSHAKE: u8 = 0x16;
/// Responses of this many bytes and more are compressed.
const WORTH_COMPRESSING: u64 = 1024;
/// Concurrent requests on an HTTP/2 connection.
const STREAMS: u32 = 64;
/// Bytes that are buffered for each of these.
const BYTES_OF_A_STREAM: u32 = 64 << 10;
/// Bytes of a request's head, and of the send buffer of an HTTP/1.1 connection.
const LONGEST_HEAD: usize = 64 << 10;

/// The address of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) SocketAddr);

/// Whether the client has connected in TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encryption(pub(crate) bool);

/// The routes of one user, which are served under the allowed host names alone.
fn router(state: Arc<HttpState>, names: Arc<AllowedHosts>) -> Router {
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::HEAD, Method::POST])
        .allow_headers(Any)
        .expose_headers([header::ETAG, header::CONTENT_LENGTH, streaming::OVERFLOW]);
    let compression = CompressionLayer::new().compress_when(SizeAbove::new(WORTH_COMPRESSING));
    Router::new()
        .route("/", get(pages::overview))
        .route("/healthz", get(pages::is_alive))
        .route("/readyz", get(pages::is_ready))
        .route("/metrics", get(pages::metrics))
        .route(
            "/scs/{database}/{table}",
            get(cone::search).post(cone::multicone_search),
        )
        .route("/hats/{database}/{table}", get(hats_catalogues::overview))
        .route(
            "/hats/{database}/{table}/{*path}",
            get(hats_catalogues::file),
        )
        .merge(tap::routes())
        .layer(cors)
        // Not for pages of other sites.
        .route("/me", get(me::me))
        .merge(tap::job_routes())
        .merge(user_tables::routes())
        .merge(query_api::routes())
        .merge(editor::routes())
        .merge(alerts::routes(&state))
        .fallback(pages::nothing_here)
        .layer(compression)
        .layer(from_fn_with_state(names, same_site::own_names_only))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(state)
}

/// Serves one connection, in TLS if the server has a certificate and the client begins with TLS.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    router: Router,
    stream: TcpStream,
    address: SocketAddr,
    slot: ConnectionSlot,
) {
    let activity = Activity::new(slot, shared.http_patience);
    let Some(tls) = &shared.tls else {
        let encrypted = Encryption(false);
        return serve_stream(shared, router, stream, (address, encrypted), activity).await;
    };
    let Some(stream) = negotiate(stream, tls, &activity, shared.http_patience).await else {
        debug!(%address, "TLS was not agreed upon");
        return;
    };
    match stream {
        NegotiatedStream::Clear(stream) => {
            let client = (address, Encryption(false));
            serve_stream(shared, router, stream, client, activity).await
        }
        NegotiatedStream::Tls(stream) => {
            let client = (address, Encryption(true));
            serve_stream(shared, router, *stream, client, activity).await
        }
    }
}

/// A connection after the negotiation of TLS.
enum NegotiatedStream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Peeks whether the client begins with TLS and performs the handshake; `None` if that fails or takes too long.
async fn negotiate(
    stream: TcpStream,
    tls: &Tls,
    activity: &Activity,
    patience: Duration,
) -> Option<NegotiatedStream> {
    let negotiating = async {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        if first[0] != TLS_HANDSHAKE {
            return Some(NegotiatedStream::Clear(stream));
        }
        let stream = timeout(patience, tls.for_http().accept(stream)).await;
        Some(NegotiatedStream::Tls(Box::new(stream.ok()?.ok()?)))
    };
    tokio::select! {
        negotiate = negotiating => negotiate,
        () = activity.is_over() => None,
    }
}

/// Serves one connection until the client hangs up or the server shuts down.
async fn serve_stream<S>(
    shared: Arc<Shared>,
    router: Router,
    stream: S,
    (address, encrypted): (SocketAddr, Encryption),
    activity: Arc<Activity>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // `Activity` enforces the timeouts of heads and idle connections.
        .header_read_timeout(None)
        .max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(BYTES_OF_A_STREAM as usize)
        .initial_stream_window_size(BYTES_OF_A_STREAM)
        .keep_alive_interval(ROUND);
    let (running, begun) = (Arc::clone(&shared.processes), Arc::clone(&activity));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(ClientAddress(address));
        if let Some(meant) = paths::meant(request.uri()) {
            *request.uri_mut() = meant;
        }
        request.extensions_mut().insert(encrypted);
        let span = info_span!("request", query = running.next_number());
        let runs = begun.begin(request.version());
        let response = log_request(router.clone(), request).instrument(span);
        async move { Ok::<_, Infallible>(runs.until_sent(response.await?)) }
    });
    let sent = shared.metrics.bytes(Protocol::Http);
    let stream = WatchedStream::new(stream, Arc::clone(&activity));
    let stream = InspectWriter::new(stream, move |bytes: &[u8]| sent.inc_by(bytes.len() as u64));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = activity.is_over() => {
            debug!(%address, "an HTTP connection timed out or was evicted");
            return;
        }
        () = shared.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = activity.is_over() => return,
                () = shared.ended.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        // Mostly clients that hang up, or that do not speak HTTP.
        debug!(%address, %error, "an HTTP connection failed");
    }
}

/// Handles a request, and logs it at the debug level.
async fn log_request(
    router: Router,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if !enabled!(Level::DEBUG) {
        return router.oneshot(request).await;
    }
    let (begun, method, target) = (
        Instant::now(),
        request.method().clone(),
        request.uri().clone(),
    );
    let response = router.oneshot(request).await;
    let status = response
        .as_ref()
        .map_or(0, |response| response.status().as_u16());
    let milliseconds = begun.elapsed().as_micros() as f64 / 1000.0;
    debug!(%method, %target, status, milliseconds, "a request was answered");
    response
}

/// Tells a client that the connection limit is reached. The response does not depend on the request.
pub(crate) async fn reject<S>(stream: S, full: LimitReached)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let busy = hyper::service::service_fn(|_| async {
        let mut response = problem::text(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("{full}: try again in a while"),
        );
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
        headers.insert(
            header::CONNECTION,
            header::HeaderValue::from_static("close"),
        );
        Ok::<_, Infallible>(response)
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(REJECT_TIMEOUT)
        .keep_alive(false);
    // The client may hang up without reading the response.
    let answered = builder.serve_connection(TokioIo::new(stream), busy);
    let _ = timeout(REJECT_TIMEOUT, answered).await;
}
