//! Chunk files over HTTP, whole or by ranges: what front ends and workers serve to each other alike.

use std::path::Path;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use store::{MANIFEST_FILE, OpenFile, StoreError};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tower::ServiceExt;
use tower_http::services::ServeFile;

use crate::ClusterError;

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

/// Whether a file is whole, and the one that was published.
///
/// # Errors
/// It is not.
pub(crate) async fn verify(path: &Path, checksum: u64) -> Result<(), ClusterError> {
    match read_through(path).await? == checksum {
        true => Ok(()),
        false => Err(ClusterError::Directory {
            path: path.to_owned(),
            why: "it is not the file that was published".to_owned(),
        }),
    }
}

/// The checksum of a file, every block of which is right. A thread of its own reads it, because that may take long.
pub(crate) async fn read_through(path: &Path) -> Result<u64, StoreError> {
    let (name, runtime) = (path.to_owned(), Handle::current());
    let read = move || {
        runtime.block_on(async {
            let opened = OpenFile::open(&name).await?;
            opened.verify().await?;
            Ok(opened.checksum())
        })
    };
    let read = spawn_blocking(read).await;
    read.unwrap_or_else(|error| Err(StoreError::io("read", path)(std::io::Error::other(error))))
}
