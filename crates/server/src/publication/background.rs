//! What a server publishes by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alerts::AlertsError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{PublicationError, PublicationStatus};
use crate::http::AlertDatabases;

/// How often a server looks whether something is to be published.
const INTERVAL: Duration = Duration::from_secs(10);

/// What is published of databases and what waits, as it was seen last: for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Publishing {
    statuses: Mutex<HashMap<String, PublicationStatus>>,
    /// Why stores could not be emptied, as it was logged last.
    problems: Mutex<HashMap<String, String>>,
}

impl Publishing {
    /// The statuses by the names of databases.
    pub(crate) fn statuses(&self) -> HashMap<String, PublicationStatus> {
        lock(&self.statuses).clone()
    }

    /// Notes a status.
    pub(crate) fn note(&self, database: &str, status: PublicationStatus) {
        lock(&self.statuses).insert(database.to_owned(), status);
    }

    /// Logs why a store could not be emptied, each reason once. What is published is published all the same.
    pub(crate) fn note_emptying(&self, database: &str, outcome: Result<(), PublicationError>) {
        let mut problems = lock(&self.problems);
        let Err(error) = outcome else {
            problems.remove(database);
            return;
        };
        let told = error.to_string();
        if problems.get(database) != Some(&told) {
            warn!(database, %error, "a store could not be emptied of what is published");
            problems.insert(database.to_owned(), told);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Publishes whatever is closed, until the server ends.
pub(crate) async fn publish_in_background(databases: Arc<AlertDatabases>, stop: CancellationToken) {
    // The last problem of each database, which is told of once.
    let mut problems: HashMap<String, String> = HashMap::new();
    while timeout(INTERVAL, stop.cancelled()).await.is_err() {
        // A directory that cannot be read is told of by whoever asks for it.
        for name in databases.names().unwrap_or_default() {
            let publishing = Box::pin(publish_one(Arc::clone(&databases), name.clone()));
            let published = databases.run(publishing).await;
            let Err(error) = published.unwrap_or(Err(AlertsError::Ending.into())) else {
                problems.remove(&name);
                continue;
            };
            let told = error.to_string();
            if problems.get(&name) != Some(&told) {
                complain(&name, &error);
                problems.insert(name, told);
            }
        }
    }
}

async fn publish_one(databases: Arc<AlertDatabases>, name: String) -> Result<(), PublicationError> {
    let database = databases.database(&name).await?;
    if database.replica_seconds().is_none() {
        return Ok(());
    }
    for edition in databases.publish(&database).await? {
        info!(
            database = name,
            edition = edition.number,
            chunks = edition.chunks,
            rows = edition.rows,
            "published"
        );
    }
    Ok(())
}

fn complain(database: &str, error: &PublicationError) {
    match error {
        // It publishes them.
        PublicationError::Alerts(AlertsError::InUse { .. }) => {
            info!(database, "another server publishes it");
        }
        _ => warn!(database, %error, "an alert database could not be published"),
    }
}
