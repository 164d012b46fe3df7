//! What the front ends of a cluster share whose catalog is in PostgreSQL: who leads, which workers drain, and which were removed.
//!
//! Each statement is a transaction of its own, so that a front end that is stopped in the middle keeps nobody waiting. Whoever changes what
//! drains does so under a lock of its own, which the leader's renewals do not wait for.

use std::collections::HashSet;
use std::time::Duration;

use catalog::{CatalogError, SharedDatabase};
use engine::EngineError;
use sqlx::{PgConnection, PgPool};
use tokio::time::{Instant, sleep};

use super::leadership::TERM;
use crate::ClusterError;

const SCHEMA: &str = include_str!("../../migrations/shared.sql");
const VERSION: i64 = 1;
/// How long a start waits for the row of a front end that was killed.
const EXPIRY: Duration = Duration::from_secs(TERM as u64 + 4);
/// How long to wait before the next look.
const RETRY: Duration = Duration::from_millis(500);

/// Who a front end is.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// A number of its process.
    pub process: u64,
    /// Where members connect to it.
    pub address: String,
    /// Replicas of each file that it was told there shall be.
    pub replicas: usize,
    /// Whether it gives up files of the data directory that workers hold.
    pub gives_up: bool,
}

/// A front end that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownFrontEnd {
    pub process: u64,
    pub address: String,
    pub replicas: usize,
    pub gives_up: bool,
}

/// What a front end wants of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseRequest {
    /// To go on leading in an epoch.
    Keep(u64),
    /// To lead, if no other one does.
    Take,
    /// Another one shall lead.
    None,
}

/// What a front end learns each time.
#[derive(Debug)]
pub(super) struct SharedState {
    /// The epoch in which it leads.
    pub epoch: Option<u64>,
    /// The process of the front end that leads, if one does.
    pub leader: Option<u64>,
    /// The workers that shall give everything up.
    pub draining: HashSet<String>,
    /// The workers that were removed since the last time.
    pub removed: Vec<String>,
    /// The front ends that are there.
    pub front_ends: Vec<KnownFrontEnd>,
}

/// The tables.
#[derive(Debug)]
pub(super) struct SharedCluster {
    database: SharedDatabase,
    me: Identity,
    /// The archive, by a number that no other has.
    archive: String,
    /// The removal that was learned of last. It is locked while something is learned.
    last_removal: tokio::sync::Mutex<i64>,
}

impl SharedCluster {
    /// Opens the tables, or makes them of what the file of the data directory says.
    ///
    /// # Errors
    /// The database cannot be reached; the tables are of a newer version; this front end or another one gives files up, which one that is alone may.
    pub async fn open(
        database: SharedDatabase,
        me: Identity,
        archive: &str,
        draining: HashSet<String>,
    ) -> Result<Self, ClusterError> {
        let archive = archive.to_owned();
        let opened = database
            .run(move |pool| async move { open(&pool, &archive, &draining).await })
            .await
            .map_err(unreachable)?;
        let (version, archive, last_removal) = opened;
        if version > VERSION {
            return Err(ClusterError::Shared(format!(
                "what front ends share in PostgreSQL is of a newer version of this program, {version} where this one knows {VERSION}: use the newer one"
            )));
        }
        let shared = Self {
            database,
            me,
            archive,
            last_removal: tokio::sync::Mutex::new(last_removal),
        };
        shared.expect_compatible().await?;
        Ok(shared)
    }

    /// The archive, by a number that no other has.
    pub fn archive(&self) -> &str {
        &self.archive
    }

    /// Rejects that one of several front ends gives files up. One that was killed has a row for some seconds.
    async fn expect_compatible(&self) -> Result<(), ClusterError> {
        let give_up = Instant::now() + EXPIRY;
        loop {
            let me = self.me.clone();
            let others = self
                .database
                .run(move |pool| async move {
                    // Those that start at the same time see each other.
                    register(&pool, &me).await?;
                    front_ends(&pool).await
                })
                .await
                .map_err(unreachable)?;
            let others: Vec<KnownFrontEnd> = { others.into_iter() }
                .filter(|it| it.process != self.me.process)
                .collect();
            let Some(sentence) = conflict(&self.me, &others) else {
                return Ok(());
            };
            if Instant::now() > give_up {
                // It will expire else.
                let _ = self.leave(None).await;
                return Err(ClusterError::Shared(sentence));
            }
            sleep(RETRY).await;
        }
    }

    /// Renews what this front end has, and learns what others have changed.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn beat(&self, lease: LeaseRequest, heard: u64) -> Result<SharedState, ClusterError> {
        let mut last_removal = self.last_removal.lock().await;
        let (me, since) = (self.me.clone(), *last_removal);
        let beat = move |pool: PgPool| async move {
            register(&pool, &me).await?;
            let epoch = lead(&pool, &me, lease, heard).await?;
            // What drains is read by whoever leads already: the next leader knows all that was said to this one.
            let draining = draining(&pool).await?;
            let removed: Vec<(i64, String)> = sqlx::query_as(
                "SELECT number, worker FROM cluster_removals WHERE number > $1 ORDER BY number",
            )
            .bind(since)
            .fetch_all(&pool)
            .await?;
            let leader: Option<i64> = sqlx::query_scalar(
                "SELECT leader FROM cluster_settings WHERE id = 1 AND expires_at > now() AND leader IS NOT NULL",
            )
            .fetch_optional(&pool)
            .await?;
            let found = SharedState {
                epoch,
                leader: leader.map(|it| it as u64),
                draining,
                removed: Vec::new(),
                front_ends: front_ends(&pool).await?,
            };
            Ok((found, removed))
        };
        let (mut found, removed) = self.database.run(beat).await.map_err(unreachable)?;
        if let Some((last, _)) = removed.last() {
            *last_removal = *last;
        }
        found.removed = removed.into_iter().map(|(_, worker)| worker).collect();
        Ok(found)
    }

    /// Has a worker give everything up, or take its share again, unless the check of what drains besides objects. Gives what drains then.
    ///
    /// # Errors
    /// The database cannot be reached; the inner error is that of the check.
    pub async fn drain<E: Send + 'static>(
        &self,
        worker: &str,
        drains: bool,
        check: impl FnOnce(&HashSet<String>) -> Result<(), E> + Send + 'static,
    ) -> Result<Result<HashSet<String>, E>, ClusterError> {
        let worker = worker.to_owned();
        let change = move |pool: PgPool| async move {
            let mut change = pool.begin().await?;
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 11))")
                .execute(&mut *change)
                .await?;
            if let Err(error) = check(&draining(&mut *change).await?) {
                return Ok(Err(error));
            }
            let statement = match drains {
                true => "INSERT INTO cluster_draining (worker) VALUES ($1) ON CONFLICT DO NOTHING",
                false => "DELETE FROM cluster_draining WHERE worker = $1",
            };
            sqlx::query(statement)
                .bind(&worker)
                .execute(&mut *change)
                .await?;
            let now = draining(&mut *change).await?;
            change.commit().await?;
            Ok(Ok(now))
        };
        self.database.run(change).await.map_err(unreachable)
    }

    /// Has every front end forget a worker, which shall not drain any more either. Gives what drains then.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn remove(&self, worker: &str) -> Result<HashSet<String>, ClusterError> {
        let worker = worker.to_owned();
        let change = move |pool: PgPool| async move {
            let mut change = pool.begin().await?;
            // Removals get their numbers in the order in which they are committed.
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 11))")
                .execute(&mut *change)
                .await?;
            for statement in [
                "DELETE FROM cluster_draining WHERE worker = $1",
                "INSERT INTO cluster_removals (worker) VALUES ($1)",
            ] {
                sqlx::query(statement)
                    .bind(&worker)
                    .execute(&mut *change)
                    .await?;
            }
            sqlx::query(
                "DELETE FROM cluster_removals WHERE removed_at < now() - interval '1 hour'",
            )
            .execute(&mut *change)
            .await?;
            let now = draining(&mut *change).await?;
            change.commit().await?;
            Ok(now)
        };
        self.database.run(change).await.map_err(unreachable)
    }

    /// Gives up the lease of an epoch and this front end's row: another one leads at once.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn leave(&self, epoch: Option<u64>) -> Result<(), ClusterError> {
        let me = self.me.process as i64;
        let leave = move |pool: PgPool| async move {
            if let Some(epoch) = epoch {
                release(&pool, me, epoch).await?;
            }
            sqlx::query("DELETE FROM cluster_front_ends WHERE process = $1")
                .bind(me)
                .execute(&pool)
                .await?;
            Ok(())
        };
        self.database.run(leave).await.map_err(unreachable)
    }
}

/// Why a front end cannot be one of these.
fn conflict(me: &Identity, others: &[KnownFrontEnd]) -> Option<String> {
    if me.gives_up && !others.is_empty() {
        return Some(format!(
            "--keep-files SIZE is for a cluster with one front end, and others run (at {}): leave it out",
            addresses(others.iter())
        ));
    }
    let giving = addresses(others.iter().filter(|it| it.gives_up));
    (!giving.is_empty()).then(|| {
        format!(
            "a front end with --keep-files SIZE runs (at {giving}), which has to be the only one of its cluster: restart it without that option first"
        )
    })
}

fn addresses<'a>(of: impl Iterator<Item = &'a KnownFrontEnd>) -> String {
    let addresses: Vec<&str> = of.map(|it| it.address.as_str()).collect();
    addresses.join(", ")
}

fn unreachable(error: CatalogError) -> ClusterError {
    EngineError::from(error).into()
}

/// Makes the tables, unless they are there. Gives their version, the archive, and the number of the last removal.
async fn open(
    pool: &PgPool,
    archive: &str,
    draining: &HashSet<String>,
) -> Result<(i64, String, i64), sqlx::Error> {
    let mut change = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 12))")
        .execute(&mut *change)
        .await?;
    if !are_there(&mut change).await? {
        sqlx::raw_sql(SCHEMA).execute(&mut *change).await?;
        sqlx::query(
            "INSERT INTO cluster_settings (id, version, archive, epoch, expires_at) VALUES (1, $1, $2, 0, now())",
        )
        .bind(VERSION)
        .bind(archive)
        .execute(&mut *change)
        .await?;
        for worker in draining {
            sqlx::query("INSERT INTO cluster_draining (worker) VALUES ($1)")
                .bind(worker)
                .execute(&mut *change)
                .await?;
        }
    }
    sqlx::query("DELETE FROM cluster_front_ends WHERE expires_at < now() - interval '1 hour'")
        .execute(&mut *change)
        .await?;
    let (version, archive): (i64, String) =
        sqlx::query_as("SELECT version, archive FROM cluster_settings WHERE id = 1")
            .fetch_one(&mut *change)
            .await?;
    let last: i64 = sqlx::query_scalar("SELECT coalesce(max(number), 0) FROM cluster_removals")
        .fetch_one(&mut *change)
        .await?;
    change.commit().await?;
    Ok((version, archive, last))
}

async fn are_there(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'cluster_settings')",
    )
    .fetch_one(connection)
    .await
}

/// Renews the row of a front end.
async fn register(pool: &PgPool, me: &Identity) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO cluster_front_ends (process, address, replicas, gives_up, expires_at) \
         VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5)) \
         ON CONFLICT (process) DO UPDATE SET expires_at = excluded.expires_at",
    )
    .bind(me.process as i64)
    .bind(&me.address)
    .bind(me.replicas as i64)
    .bind(i64::from(me.gives_up))
    .bind(TERM)
    .execute(pool)
    .await?;
    Ok(())
}

/// Keeps or takes the lease. Gives the epoch in which this front end leads.
async fn lead(
    pool: &PgPool,
    me: &Identity,
    lease: LeaseRequest,
    heard: u64,
) -> Result<Option<u64>, sqlx::Error> {
    let (process, heard) = (me.process as i64, heard as i64);
    let epoch: Option<i64> = match lease {
        LeaseRequest::Keep(epoch) => {
            sqlx::query_scalar(
                "UPDATE cluster_settings SET expires_at = now() + make_interval(secs => $4), \
                 epoch = CASE WHEN $3 > epoch THEN $3 + 1 ELSE epoch END \
                 WHERE id = 1 AND leader = $1 AND epoch = $2 RETURNING epoch",
            )
            .bind(process)
            .bind(epoch as i64)
            .bind(heard)
            .bind(TERM)
            .fetch_optional(pool)
            .await?
        }
        LeaseRequest::Take => {
            sqlx::query_scalar(
                "UPDATE cluster_settings SET leader = $1, epoch = greatest(epoch, $2) + 1, \
                 expires_at = now() + make_interval(secs => $3) \
                 WHERE id = 1 AND (leader IS NULL OR leader = $1 OR expires_at < now()) RETURNING epoch",
            )
            .bind(process)
            .bind(heard)
            .bind(TERM)
            .fetch_optional(pool)
            .await?
        }
        LeaseRequest::None => {
            sqlx::query("UPDATE cluster_settings SET leader = NULL WHERE id = 1 AND leader = $1")
                .bind(process)
                .execute(pool)
                .await?;
            None
        }
    };
    Ok(epoch.map(|it| it as u64))
}

async fn release(pool: &PgPool, process: i64, epoch: u64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE cluster_settings SET leader = NULL WHERE id = 1 AND leader = $1 AND epoch = $2",
    )
    .bind(process)
    .bind(epoch as i64)
    .execute(pool)
    .await?;
    Ok(())
}

async fn draining(connection: impl sqlx::PgExecutor<'_>) -> Result<HashSet<String>, sqlx::Error> {
    let workers: Vec<String> = sqlx::query_scalar("SELECT worker FROM cluster_draining")
        .fetch_all(connection)
        .await?;
    Ok(workers.into_iter().collect())
}

async fn front_ends(pool: &PgPool) -> Result<Vec<KnownFrontEnd>, sqlx::Error> {
    let rows: Vec<(i64, String, i64, i64)> = sqlx::query_as(
        "SELECT process, address, replicas, gives_up FROM cluster_front_ends WHERE expires_at > now() ORDER BY address, process",
    )
    .fetch_all(pool)
    .await?;
    let known = |(process, address, replicas, gives_up): (i64, String, i64, i64)| KnownFrontEnd {
        process: process as u64,
        address,
        replicas: usize::try_from(replicas).unwrap_or_default(),
        gives_up: gives_up != 0,
    };
    Ok(rows.into_iter().map(known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front_end(process: u64, gives_up: bool) -> KnownFrontEnd {
        KnownFrontEnd {
            process,
            address: format!("10.0.0.{process}:7600"),
            replicas: 2,
            gives_up,
        }
    }

    #[test]
    fn one_that_gives_files_up_is_alone() {
        let me = |gives_up| Identity {
            process: 9,
            address: "10.0.0.9:7600".to_owned(),
            replicas: 2,
            gives_up,
        };
        assert_eq!(conflict(&me(true), &[]), None);
        assert_eq!(conflict(&me(false), &[front_end(1, false)]), None);
        let others = [front_end(1, false), front_end(2, true)];
        let told = conflict(&me(true), &others[..1]).unwrap();
        assert!(told.contains("at 10.0.0.1:7600"), "{told}");
        let told = conflict(&me(false), &others).unwrap();
        assert!(told.contains("at 10.0.0.2:7600"), "{told}");
    }
}
