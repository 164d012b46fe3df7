//! The HTTP door: cone searches, health, metrics, and a page that says what there is.
//!
//! HTTP/1.1 and HTTP/2 (agreed on in TLS, or with prior knowledge), answers compressed for clients that ask for it, readable by
//! pages of any origin.

mod activity;
mod cone;
mod pages;
mod problem;
mod same_site;
mod state;

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
use crate::metrics::Door;
use crate::places::{Full, Place};
use crate::tls::Tls;
use activity::{Activity, Watched};
pub(crate) use cone::ListRoom;
pub(crate) use same_site::OwnNames;
pub(crate) use state::HttpState;

/// How often it is found out whether a client of HTTP/2 is still there.
const ROUND: Duration = Duration::from_secs(75);
/// The longest that somebody for whom there is no place is told so.
const TURNED_AWAY: Duration = Duration::from_secs(5);
/// The first byte of a connection in TLS (RFC 8446, section 5.1), which no method of HTTP begins with.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes from which on an answer is worth compressing.
const WORTH_COMPRESSING: u64 = 1024;
/// Requests at once on a connection of HTTP/2.
const STREAMS: u32 = 64;
/// Bytes that wait to be sent, or are read ahead, of one of these.
const BYTES_OF_A_STREAM: u32 = 64 << 10;
/// Bytes of a request's head, and of what waits to be sent on a connection of HTTP/1.1.
const LONGEST_HEAD: usize = 64 << 10;

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) SocketAddr);

/// What is answered where, to those who ask by one of the names.
pub(crate) fn router(state: Arc<HttpState>, names: OwnNames) -> Router {
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::HEAD, Method::POST])
        .allow_headers(Any)
        .expose_headers([header::ETAG, header::CONTENT_LENGTH]);
    let compression = CompressionLayer::new().compress_when(SizeAbove::new(WORTH_COMPRESSING));
    Router::new()
        .route("/", get(pages::overview))
        .route("/healthz", get(pages::is_alive))
        .route("/readyz", get(pages::is_ready))
        .route("/metrics", get(pages::metrics))
        .route(
            "/scs/{database}/{table}",
            get(cone::search).post(cone::search_many),
        )
        .fallback(pages::nothing_here)
        .layer(compression)
        .layer(cors)
        .layer(from_fn_with_state(
            Arc::new(names),
            same_site::own_names_only,
        ))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(state)
}

/// Answers the requests of one connection, in TLS where there is TLS and the client begins with it.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    router: Router,
    stream: TcpStream,
    address: SocketAddr,
    place: Place,
) {
    let activity = Activity::new(place, shared.http_patience);
    let Some(tls) = &shared.tls else {
        return serve_stream(shared, router, stream, address, activity).await;
    };
    let Some(stream) = decided(stream, tls, &activity, shared.http_patience).await else {
        debug!(%address, "TLS was not agreed upon");
        return;
    };
    match stream {
        Decided::Clear(stream) => serve_stream(shared, router, stream, address, activity).await,
        Decided::Tls(stream) => serve_stream(shared, router, *stream, address, activity).await,
    }
}

/// How a connection goes on.
enum Decided {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Finds out whether a client begins with TLS, and agrees upon it; `None` where that comes to nothing in time.
async fn decided(
    stream: TcpStream,
    tls: &Tls,
    activity: &Activity,
    patience: Duration,
) -> Option<Decided> {
    let deciding = async {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        if first[0] != TLS_HANDSHAKE {
            return Some(Decided::Clear(stream));
        }
        let stream = timeout(patience, tls.for_http().accept(stream)).await;
        Some(Decided::Tls(Box::new(stream.ok()?.ok()?)))
    };
    tokio::select! {
        decided = deciding => decided,
        () = activity.is_over() => None,
    }
}

/// Answers the requests of one connection until the client hangs up or the server ends.
async fn serve_stream<S>(
    shared: Arc<Shared>,
    router: Router,
    stream: S,
    address: SocketAddr,
    activity: Arc<Activity>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Heads and idle connections are watched by the activity.
        .header_read_timeout(None)
        .max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(BYTES_OF_A_STREAM as usize)
        .initial_stream_window_size(BYTES_OF_A_STREAM)
        .keep_alive_interval(ROUND);
    let (running, begun) = (Arc::clone(&shared.running), Arc::clone(&activity));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(ClientAddress(address));
        let span = info_span!("request", query = running.next_number());
        let runs = begun.begin(request.version());
        let answer = numbered(router.clone(), request).instrument(span);
        async move { Ok::<_, Infallible>(runs.until_sent(answer.await?)) }
    });
    let sent = shared.metrics.bytes(Door::Http);
    let stream = Watched::new(stream, Arc::clone(&activity));
    let stream = InspectWriter::new(stream, move |bytes: &[u8]| sent.inc_by(bytes.len() as u64));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = activity.is_over() => {
            debug!(%address, "an HTTP connection kept waiting, or gave way to others");
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
        // Mostly clients that hang up, or do not speak HTTP.
        debug!(%address, %error, "an HTTP connection ended before its time");
    }
}

/// Answers a request, and writes it down for whoever wants to know of each.
async fn numbered(
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
    let answer = router.oneshot(request).await;
    let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
    let milliseconds = begun.elapsed().as_micros() as f64 / 1000.0;
    debug!(%method, %target, status, milliseconds, "a request was answered");
    answer
}

/// Tells a client that there are too many. The answer is the same whatever it asks.
pub(crate) async fn turn_away<S>(stream: S, full: Full)
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
        .header_read_timeout(TURNED_AWAY)
        .keep_alive(false);
    // Whoever does not wait for the answer need not have it.
    let answered = builder.serve_connection(TokioIo::new(stream), busy);
    let _ = timeout(TURNED_AWAY, answered).await;
}
