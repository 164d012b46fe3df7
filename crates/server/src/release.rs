//! Letting go of tables that have changed, and removing what nobody reads any more.

use std::sync::Arc;
use std::time::Duration;

use engine::Archive;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How often a server looks whether tables that it holds have changed.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// Lets go of tables that were dropped or changed, although nobody asks for these tables any more, and removes the files of parts
/// that were replaced or dropped as soon as nobody reads them.
pub(crate) async fn release_changed_tables(archive: Arc<Archive>, stop: CancellationToken) {
    let (mut last, mut unremoved) = (None, None);
    // Parts whose files somebody still reads, when the catalog was in a state.
    let mut waiting = (None, true);
    while timeout(RELEASE_INTERVAL, stop.cancelled()).await.is_err() {
        // Of files whose home is an object store, copies go.
        archive.files().close_removed();
        let outcome = archive.release_changed_tables().await;
        let problem = outcome.err().map(|error| error.to_string());
        // A damaged catalog stays so: it is told of once.
        if let Some(problem) = problem.as_ref().filter(|_| problem != last) {
            warn!(error = problem, "changed tables could not be looked up");
        }
        last = problem;
        let state = archive.catalog().state();
        if state.is_some() && waiting == (state, false) {
            continue;
        }
        let removed = remove_superseded(&archive).await;
        waiting = (state, removed != Ok(0));
        let problem = removed.err();
        // A server that may not write leaves this to the loads, and says so once.
        if let Some(problem) = problem.as_ref().filter(|_| problem != unremoved) {
            warn!(
                error = problem,
                "files of replaced parts could not be removed"
            );
        }
        unremoved = problem;
    }
}

/// Removes the files that no table shows any more. Gives of how many parts they are still read.
async fn remove_superseded(archive: &Archive) -> Result<usize, String> {
    let catalog = archive.catalog().clone();
    // A part may have very many files: others have the network's threads.
    let removing = tokio::task::spawn_blocking(move || {
        let removing = ingest::remove_superseded(&catalog, catalog.data_dir());
        Handle::current().block_on(removing)
    });
    let removed = removing.await.map_err(|error| error.to_string())?;
    removed.map_err(|error| error.to_string())
}
