//! The Table Access Protocol: queries in ADQL, synchronous and as jobs, and what there is to query.
//!
//! ```text
//!   /tap/sync           a query whose client waits: rows, or an error document
//!   /tap/async          jobs (UWS); each is a query of the query service, of the same number, once it runs
//!   /tap/tables         what TAP_SCHEMA tells, as one document
//!   /tap/capabilities   what this service can do;   /tap/availability   whether it can now;   /tap/examples   queries to begin with
//! ```
//!
//! Source: TAP 1.1 (Dowler et al., IVOA Recommendation 2019), UWS 1.1 (Harrison and Rixon, 2016), DALI 1.1 (Dowler et al., 2017), VOSI 1.1
//! (Graham and Rixon, 2017).

mod capabilities;
mod examples;
mod fetch;
mod form;
mod job_document;
mod job_files;
mod job_requests;
mod jobs;
mod registry;
mod request;
mod sync;
mod tables;
mod uploads;
mod xml;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use axum::middleware::{map_request, map_response};
use axum::response::IntoResponse;
use axum::routing::get;

use super::problem::Problem;
use super::{Encryption, HttpState};
use crate::formats::error_document;
pub(crate) use fetch::fetch_document;
pub(crate) use jobs::TapJobs;
pub use registry::{ServiceDescription, registry_record};

/// Below which all of it is.
const ROOT: &str = "/tap";
/// By which a proxy tells how the client has connected to it.
pub(super) const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The media type of documents that are no tables.
const XML: &str = "text/xml;charset=utf-8";

/// The routes.
pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/tap/sync", get(sync::get).post(sync::post))
        .route("/tap/capabilities", get(capabilities::capabilities))
        .route("/tap/availability", get(capabilities::availability))
        .route("/tap/tables", get(tables::all))
        .route("/tap/tables/{name}", get(tables::one))
        .route("/tap/examples", get(examples::examples))
        .layer(map_request(name_host))
        .layer(map_response(name_server))
}

/// The jobs, whose statements and results are their owners'.
pub(super) fn job_routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route(
            "/tap/async",
            get(job_requests::list).post(job_requests::create),
        )
        .route(
            "/tap/async/{id}",
            get(job_requests::show)
                .post(job_requests::change)
                .delete(job_requests::delete),
        )
        .route(
            "/tap/async/{id}/{part}",
            get(job_requests::part).post(job_requests::change_part),
        )
        .route("/tap/async/{id}/results/result", get(job_requests::result))
        .layer(map_request(name_host))
        .layer(map_response(name_server))
}

/// Makes sure that the headers tell how the client knows the service: HTTP/2 has the host in the address, and without a proxy the
/// connection tells the scheme.
async fn name_host(mut request: Request) -> Request {
    let encrypted = request
        .extensions()
        .get::<Encryption>()
        .is_some_and(|it| it.0);
    let authority = request.uri().authority().map(ToString::to_string);
    let headers = request.headers_mut();
    let host = authority.and_then(|authority| HeaderValue::from_str(&authority).ok());
    if let (None, Some(host)) = (headers.get(header::HOST), host) {
        headers.insert(header::HOST, host);
    }
    let scheme = if encrypted { "https" } else { "http" };
    let scheme = HeaderValue::from_static(scheme);
    headers.entry(FORWARDED_SCHEME).or_insert(scheme);
    request
}

/// Tells the name and the version of the program.
async fn name_server(mut response: Response<Body>) -> Response<Body> {
    const NAME: HeaderValue =
        HeaderValue::from_static(concat!("Meridian/", env!("CARGO_PKG_VERSION")));
    response.headers_mut().insert(header::SERVER, NAME);
    response
}

/// Why a request failed, told as a VOTable.
#[derive(Debug)]
struct TapError(Problem);

impl<E: Into<Problem>> From<E> for TapError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for TapError {
    fn into_response(self) -> Response<Body> {
        let mut response = document(
            "application/x-votable+xml",
            error_document(&self.0.sentence),
        );
        *response.status_mut() = self.0.status;
        response
    }
}

fn document(media_type: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// A redirection after which the client looks at something else.
fn see_other(location: &str) -> Result<Response<Body>, TapError> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let location = HeaderValue::from_str(location)
        .map_err(|_| Problem::bad("the Host header is no name of a host"))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// The address of the service as the client knows it: by the host that it names, and by the scheme that a proxy before the server tells.
fn base_url(headers: &HeaderMap) -> String {
    let given = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = match given(FORWARDED_SCHEME) {
        Some("https") => "https",
        _ => "http",
    };
    let host = given(header::HOST).unwrap_or("localhost");
    format!("{scheme}://{host}{ROOT}")
}
