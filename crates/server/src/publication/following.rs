//! What a server reads by itself of the databases that alert databases follow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alerts::{AlertsError, Extent};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::now_us;
use crate::http::AlertDatabases;

/// How often a server looks whether a replica chunk is over that is new or has changed.
const INTERVAL: Duration = Duration::from_secs(10);
/// How often it reads what is new without one: not every change is in a chunk.
const LONGEST_INTERVAL: Duration = Duration::from_secs(600);

/// How following a database goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FollowingStatus {
    /// Replica chunks that were new or had changed, since the server began.
    pub(crate) chunks: u64,
    /// Rows that were stored.
    pub(crate) rows: u64,
    /// Whether it failed last.
    pub(crate) is_failed: bool,
    /// When it went well last, in seconds since 1970 (UTC).
    pub(crate) good_s: i64,
}

/// How following goes, by the names of databases: for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Following {
    statuses: Mutex<HashMap<String, FollowingStatus>>,
}

impl Following {
    /// The statuses by the names of databases.
    pub(crate) fn statuses(&self) -> HashMap<String, FollowingStatus> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, FollowingStatus>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets databases that are gone or detached.
    fn retain(&self, keeps: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| keeps(name));
    }
}

/// Follows whatever is followed, each database in a task of its own, until the server ends.
pub(crate) async fn follow_in_background(databases: Arc<AlertDatabases>, stop: CancellationToken) {
    let mut tasks: HashMap<String, JoinSet<()>> = HashMap::new();
    loop {
        let names = databases.names().unwrap_or_default();
        tasks.retain(|name, task| {
            while task.try_join_next().is_some() {}
            names.contains(name) && !task.is_empty()
        });
        databases.following.retain(|name| tasks.contains_key(name));
        for name in names {
            if !tasks.contains_key(&name) && follows(&databases, &name).await {
                let (of, following) = (Arc::clone(&databases), name.clone());
                tasks.entry(name).or_default().spawn(async move {
                    // Threads that cannot be started are asked for again.
                    let _ = of.run(follow_one(Arc::clone(&of), following)).await;
                });
            }
        }
        if timeout(INTERVAL, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// Whether a database follows another one. One that cannot be opened is told of by whoever asks for it.
async fn follows(databases: &AlertDatabases, name: &str) -> bool {
    let database = databases.database(name).await;
    database.is_ok_and(|it| it.follows().is_ok_and(|follows| follows.is_some()))
}

/// Follows for a database until it is detached.
async fn follow_one(databases: Arc<AlertDatabases>, name: String) {
    let mut told: Option<String> = None;
    let mut wait = INTERVAL;
    let mut last_all: Option<Instant> = None;
    while follows(&databases, &name).await {
        let is_long_ago = last_all.is_none_or(|last| last.elapsed() >= LONGEST_INTERVAL);
        let extent = match is_long_ago {
            true => Extent::New,
            false => Extent::Due(now_us()),
        };
        let outcome = match databases.database(&name).await {
            Ok(database) => databases.follow(&database, extent).await.map(|_| ()),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                if told.take().is_some() {
                    info!(database = name, "following works again");
                }
                if is_long_ago {
                    last_all = Some(Instant::now());
                }
                wait = INTERVAL;
            }
            Err(error) => {
                let why = error.to_string();
                if told.as_ref() != Some(&why) {
                    match error {
                        AlertsError::InUse { .. } => {
                            info!(database = name, "another server follows for it");
                        }
                        _ => warn!(database = name, %error, "an alert database cannot follow"),
                    }
                    told = Some(why);
                }
                // What does not work is tried less and less often.
                wait = (2 * wait).min(LONGEST_INTERVAL);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

impl AlertDatabases {
    /// Reads what is new in the database that one follows, and notes how that went.
    pub(crate) async fn follow(
        &self,
        database: &Arc<alerts::AlertDatabase>,
        extent: Extent,
    ) -> Result<alerts::FollowOutcome, AlertsError> {
        let outcome = database.follow(extent).await;
        let name = database.name();
        if let Ok(read) = &outcome
            && read.chunks + read.rows > 0
        {
            info!(
                database = name,
                chunks = read.chunks,
                rows = read.rows,
                "read of the database that is followed"
            );
        }
        let mut statuses = self.following.lock();
        let status = statuses.entry(name.to_owned()).or_default();
        match &outcome {
            Ok(read) => {
                status.chunks += read.chunks;
                status.rows += read.rows;
                status.is_failed = false;
                status.good_s = now_us() / 1_000_000;
            }
            // Another server follows, and tells how that goes.
            Err(AlertsError::InUse { .. }) => status.is_failed = false,
            Err(_) => status.is_failed = true,
        }
        outcome
    }
}
