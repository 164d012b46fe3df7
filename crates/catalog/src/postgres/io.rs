//! The thread that serves the connections of all PostgreSQL catalogs of this process.
//!
//! A connection belongs to the runtime in which it was made, and is dead when nobody drives that. The catalog is opened in
//! runtimes that come and go, and locks are released where there is none: so connections are made in a runtime of their own.

use std::future::Future;
use std::sync::{LazyLock, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};

use crate::CatalogError;

static RUNTIME: LazyLock<std::io::Result<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("catalog".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
});

fn runtime() -> Result<&'static Handle, CatalogError> {
    RUNTIME.as_ref().map_err(|error| {
        CatalogError::io("start a thread for", "the catalog")(std::io::Error::new(
            error.kind(),
            error.to_string(),
        ))
    })
}

fn ended() -> CatalogError {
    CatalogError::Backend(sqlx::Error::WorkerCrashed)
}

/// Starts work there.
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Result<(), CatalogError> {
    runtime()?.spawn(work);
    Ok(())
}

/// Does work there, and waits for it. The work goes on when nobody waits any more.
pub(super) async fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T, CatalogError>> + Send + 'static,
) -> Result<T, CatalogError> {
    runtime()?
        .spawn(work)
        .await
        .unwrap_or_else(|_| Err(ended()))
}

/// The same where the caller's thread may wait.
pub(super) fn block<T: Send + 'static>(
    work: impl Future<Output = Result<T, CatalogError>> + Send + 'static,
) -> Result<T, CatalogError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // Nobody may be waiting any more.
        let _ = sender.send(work.await);
    });
    receiver.recv().unwrap_or_else(|_| Err(ended()))
}
