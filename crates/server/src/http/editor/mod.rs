//! `GET /editor`: a page on which statements are written, followed and read in a browser. It has its script and its style from here and asks
//! the service as any program does, so that it shows what its reader may see.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::HttpState;

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("script.js");
const STYLE: &str = include_str!("style.css");

/// What the page may do: nothing that is not of this service, so that no text which gets into it can do more than be read.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/editor", get(|| served("text/html; charset=utf-8", PAGE)))
        .route(
            "/editor/script.js",
            get(|| served("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route(
            "/editor/style.css",
            get(|| served("text/css; charset=utf-8", STYLE)),
        )
}

async fn served(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 4] = [
        (header::CONTENT_TYPE, content_type),
        // Another version of the server has another page.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text)
}
