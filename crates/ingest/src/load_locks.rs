//! Waiting for the locks of tables that other loads have.

use std::time::Duration;

use catalog::LoadLock;

use crate::error::IngestError;
use crate::request::LoadRequest;

/// How often a load looks whether another one has given a lock back: soon at first, for those that are held for moments.
const FIRST_LOCK_WAIT: Duration = Duration::from_millis(2);
pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(100);

/// The pauses between looks.
pub(crate) fn lock_waits() -> impl Iterator<Item = Duration> {
    let longer = |wait: &Duration| Some((*wait + *wait / 4).min(LOCK_WAIT));
    std::iter::successors(Some(FIRST_LOCK_WAIT), longer)
}

/// Waits for the load lock of a table, or of something that is named like one.
pub(crate) async fn wait_for_lock(
    request: &LoadRequest,
    name: &str,
) -> Result<LoadLock, IngestError> {
    wait_for_lock_in(request, &request.database, name).await
}

/// The same in another database.
pub(crate) async fn wait_for_lock_in(
    request: &LoadRequest,
    database: &str,
    name: &str,
) -> Result<LoadLock, IngestError> {
    let what = format!("loading {}", request.table);
    let mut waits = lock_waits();
    loop {
        let acquired = LoadLock::try_acquire(&request.data_dir, database, name, &what)?;
        if let Some(lock) = acquired {
            return Ok(lock);
        }
        tokio::time::sleep(waits.next().unwrap_or(LOCK_WAIT)).await;
    }
}
