//! Leases of parts: who reads a part has one, and its files stay until the last of them ends.
//!
//! A process has a row in `readers`, which it renews; its leases end with that row. A process that is gone leaves the row behind, which
//! counts until it expires, or until somebody on the same machine finds the process gone. A removal and a lease of one part exclude each other by
//! an advisory lock of their transactions: whoever removes a part notes it in `removals`, and nobody gets a lease of it after that.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::locks::key;
use super::{PostgresCatalog, Shared, io};
use crate::process::host_name;
use crate::{CatalogError, LoadId};

/// How often a process renews its row.
const BEAT: Duration = Duration::from_secs(10);
/// How many seconds the row counts after that.
const TERM: f64 = 60.0;
/// How long whoever gives a lease back waits for the database.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The leases of this process in one catalog.
#[derive(Debug, Default)]
pub(super) struct Leases {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the process's row.
    reader: Option<i64>,
    /// How many want each part.
    counts: BTreeMap<i64, usize>,
}

/// A lease; where the catalog is in SQLite, none is needed.
#[derive(Debug)]
pub struct PartLease(Option<(Arc<Shared>, i64)>);

/// The removal of a part of which nobody has a lease, nor gets one.
#[derive(Debug)]
pub struct PartRemoval(Option<(Arc<Shared>, i64)>);

impl PartLease {
    /// Takes a lease of a part; `None` if the part is being removed or is gone.
    pub fn take(data_dir: &Path, load: LoadId) -> Result<Option<Self>, CatalogError> {
        let Some(catalog) = PostgresCatalog::open_unseen(data_dir)? else {
            return Ok(Some(Self(None)));
        };
        let (shared, load) = (catalog.shared, load.0);
        io::block(async move {
            let taken = Leases::take(&shared, load).await;
            let taken = taken.map_err(|error| shared.unreachable(error))?;
            Ok(taken.then(|| Self(Some((shared, load)))))
        })
    }
}

impl Drop for PartLease {
    fn drop(&mut self) {
        if let Some((shared, load)) = self.0.take() {
            // What cannot be said to the database now is said when the reader's row is renewed.
            let _ = io::block(async move {
                let released = timeout(RELEASE_TIMEOUT, shared.leases.release(&shared, load)).await;
                if let Err(error) = released.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                    tracing::debug!(%error, load, "a lease could not be given back");
                }
                Ok(())
            });
        }
    }
}

impl PartRemoval {
    /// Begins to remove a part; `None` if somebody has a lease of it.
    pub fn begin(data_dir: &Path, load: LoadId) -> Result<Option<Self>, CatalogError> {
        let Some(catalog) = PostgresCatalog::open_unseen(data_dir)? else {
            return Ok(Some(Self(None)));
        };
        let (shared, load) = (catalog.shared, load.0);
        io::block(async move {
            let begun = begin_removal(&shared, load).await;
            let begun = begun.map_err(|error| shared.unreachable(error))?;
            Ok(begun.then(|| Self(Some((shared, load)))))
        })
    }

    /// The part's files are gone.
    pub fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for PartRemoval {
    /// Nothing was removed: the part can be read again.
    fn drop(&mut self) {
        if let Some((shared, load)) = self.0.take() {
            let _ = io::block(async move {
                sqlx::query("DELETE FROM removals WHERE load_id = $1")
                    .bind(load)
                    .execute(&shared.pool)
                    .await?;
                Ok(())
            });
        }
    }
}

impl Leases {
    async fn take(shared: &Arc<Shared>, load: i64) -> Result<bool, sqlx::Error> {
        let mut state = shared.leases.state.lock().await;
        if let Some(count) = state.counts.get_mut(&load) {
            *count += 1;
            return Ok(true);
        }
        let reader = match state.reader {
            Some(reader) => reader,
            None => {
                let reader = register(shared).await?;
                state.reader = Some(reader);
                // Without this task the leases end with their term.
                let _ = io::spawn(renew_until_gone(Arc::downgrade(shared)));
                reader
            }
        };
        let taken = match lease(shared, reader, load).await {
            // The row has expired, and somebody has removed it.
            Err(error) if is_missing_reader(&error) => {
                let reader = state.register_again(shared).await?;
                lease(shared, reader, load).await?
            }
            other => other?,
        };
        if taken {
            state.counts.insert(load, 1);
        }
        Ok(taken)
    }

    async fn release(&self, shared: &Shared, load: i64) -> Result<(), sqlx::Error> {
        let mut state = self.state.lock().await;
        match state.counts.get_mut(&load) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                state.counts.remove(&load);
                sqlx::query("DELETE FROM leases WHERE reader = $1 AND load_id = $2")
                    .bind(state.reader)
                    .bind(load)
                    .execute(&shared.pool)
                    .await?;
            }
            None => {}
        }
        Ok(())
    }

    async fn renew(&self, shared: &Shared) -> Result<(), sqlx::Error> {
        let mut state = self.state.lock().await;
        let renewed = sqlx::query(
            "UPDATE readers SET expires_at = now() + make_interval(secs => $2) WHERE id = $1",
        )
        .bind(state.reader)
        .bind(TERM)
        .execute(&shared.pool)
        .await?;
        if renewed.rows_affected() == 0 {
            state.register_again(shared).await?;
        }
        // Those that were given back while the database did not answer.
        let held: Vec<i64> = state.counts.keys().copied().collect();
        sqlx::query("DELETE FROM leases WHERE reader = $1 AND load_id <> ALL($2)")
            .bind(state.reader)
            .bind(held)
            .execute(&shared.pool)
            .await?;
        Ok(())
    }

    /// Gives all leases back, when the last handle goes.
    pub(super) fn end(&mut self, pool: sqlx::PgPool) {
        let reader = self.state.get_mut().reader;
        // Where the thread is gone the connections are, too.
        let _ = io::spawn(async move {
            if reader.is_some() {
                // Else it expires.
                let _ = sqlx::query("DELETE FROM readers WHERE id = $1")
                    .bind(reader)
                    .execute(&pool)
                    .await;
            }
            pool.close().await;
        });
    }
}

impl State {
    /// A new row, with leases of all parts that are wanted. Those that were removed meanwhile will be found missing.
    async fn register_again(&mut self, shared: &Shared) -> Result<i64, sqlx::Error> {
        let reader = register(shared).await?;
        self.reader = Some(reader);
        for &load in self.counts.keys() {
            if !lease(shared, reader, load).await? {
                tracing::warn!(
                    load,
                    "the lease of a part ran out, and the part was removed"
                );
            }
        }
        Ok(reader)
    }
}

async fn renew_until_gone(shared: Weak<Shared>) {
    loop {
        sleep(BEAT).await;
        let Some(alive) = shared.upgrade() else {
            return;
        };
        if let Err(error) = alive.leases.renew(&alive).await {
            tracing::warn!(%error, "the leases of parts could not be renewed");
        }
    }
}

async fn register(shared: &Shared) -> Result<i64, sqlx::Error> {
    let pid = i64::from(std::process::id());
    sqlx::query_scalar(
        "INSERT INTO readers (host, pid, began, expires_at) \
         VALUES ($1, $2, $3, now() + make_interval(secs => $4)) RETURNING id",
    )
    .bind(this_machine())
    .bind(pid)
    .bind(began(pid).unwrap_or_default())
    .bind(TERM)
    .fetch_one(&shared.pool)
    .await
}

/// Has a reader lease a part, unless that is being removed or gone.
async fn lease(shared: &Shared, reader: i64, load: i64) -> Result<bool, sqlx::Error> {
    let mut change = shared.pool.begin().await?;
    lock_part(shared, &mut change, load).await?;
    let is_there: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM loads WHERE id = $1) \
         AND NOT EXISTS (SELECT 1 FROM removals WHERE load_id = $1)",
    )
    .bind(load)
    .fetch_one(&mut *change)
    .await?;
    if is_there {
        sqlx::query("INSERT INTO leases (reader, load_id) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(reader)
            .bind(load)
            .execute(&mut *change)
            .await?;
    }
    change.commit().await?;
    Ok(is_there)
}

async fn begin_removal(shared: &Shared, load: i64) -> Result<bool, sqlx::Error> {
    forget_dead_readers(shared).await?;
    let mut change = shared.pool.begin().await?;
    lock_part(shared, &mut change, load).await?;
    let is_read: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM leases WHERE load_id = $1)")
            .bind(load)
            .fetch_one(&mut *change)
            .await?;
    if !is_read {
        // Of a load that is not known nobody gets a lease.
        sqlx::query(
            "INSERT INTO removals (load_id) SELECT id FROM loads WHERE id = $1 ON CONFLICT DO NOTHING",
        )
        .bind(load)
        .execute(&mut *change)
        .await?;
    }
    change.commit().await?;
    Ok(!is_read)
}

/// Waits for others who begin to read or to remove the part, until the transaction ends.
async fn lock_part(
    shared: &Shared,
    change: &mut PgConnection,
    load: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(key(shared, &format!("part {load}")))
        .execute(change)
        .await?;
    Ok(())
}

/// Removes readers whose term is over, and those of this machine whose process is gone.
async fn forget_dead_readers(shared: &Shared) -> Result<(), sqlx::Error> {
    let here: Vec<(i64, i64, i64)> =
        sqlx::query_as("SELECT id, pid, began FROM readers WHERE host = $1")
            .bind(this_machine())
            .fetch_all(&shared.pool)
            .await?;
    let dead = { here.into_iter() }.filter(|(_, pid, since)| began(*pid) != Some(*since));
    let dead: Vec<i64> = dead.map(|(id, ..)| id).collect();
    sqlx::query("DELETE FROM readers WHERE expires_at < now() OR id = ANY($1)")
        .bind(dead)
        .execute(&shared.pool)
        .await?;
    Ok(())
}

/// Whether a statement failed since the reader's row is gone.
fn is_missing_reader(error: &sqlx::Error) -> bool {
    let failed = error.as_database_error();
    failed.is_some_and(|error| {
        error.is_foreign_key_violation() && error.constraint() == Some("leases_reader_fkey")
    })
}

/// The machine, since it was started, and what of it this process sees: two containers may have one name and the same numbers of processes.
fn this_machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {} {}", host_name(), boot.trim(), processes.display())
}

/// When a process began, in ticks since the machine was started; `None` if there is none of this number.
fn began(pid: i64) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may have any characters; the 22nd field is the 20th after it.
    let (_, after) = text.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_one_that_is_gone() {
        let own = i64::from(std::process::id());
        assert!(began(own).is_some());
        assert_eq!(began(own), began(own));
        assert_eq!(began(i64::from(u32::MAX)), None);
        assert_eq!(this_machine(), this_machine());
    }
}
