//! Chunk files over HTTP, whole or by ranges: what front ends and workers serve to each other alike.

use std::path::Path;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use store::MANIFEST_FILE;
use tower::ServiceExt;
use tower_http::services::ServeFile;

/// The name of a chunk file in the directory of its part.
pub(crate) fn chunk_file(chunk: i32) -> String {
    format!("chunk_{chunk}.mrd")
}

/// Where a member serves a chunk file.
pub(crate) fn chunk_path(part: i64, chunk: i32) -> String {
    format!("/parts/{part}/files/{chunk}")
}

/// Where a front end serves a manifest.
pub(crate) fn manifest_path(part: i64) -> String {
    format!("/parts/{part}/manifest")
}

/// A file, or the range of it that is asked for.
pub(crate) async fn serve(path: &Path, request: Request) -> Response<Body> {
    match ServeFile::new(path).oneshot(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

/// The manifest of the part in this directory.
pub(crate) async fn serve_manifest(dir: &Path, request: Request) -> Response<Body> {
    serve(&dir.join(MANIFEST_FILE), request).await
}
