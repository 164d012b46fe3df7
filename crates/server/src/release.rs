//! Letting go of tables that have changed.

use std::sync::Arc;
use std::time::Duration;

use engine::Archive;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How often a server looks whether tables that it holds have changed.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// Lets go of tables that were dropped or changed, so that the files of their former parts can be removed although nobody asks
/// for these tables any more.
pub(crate) async fn release_changed_tables(archive: Arc<Archive>, stop: CancellationToken) {
    let mut last = None;
    while timeout(RELEASE_INTERVAL, stop.cancelled()).await.is_err() {
        let outcome = archive.release_changed_tables().await;
        let problem = outcome.err().map(|error| error.to_string());
        // A damaged catalog stays so: it is told of once.
        if let Some(problem) = problem.as_ref().filter(|_| problem != last) {
            tracing::warn!(error = problem, "changed tables could not be looked up");
        }
        last = problem;
    }
}
