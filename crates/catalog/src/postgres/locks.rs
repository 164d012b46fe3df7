//! Load locks as advisory locks of PostgreSQL, which it releases when the session of their holder ends, however it ends.
//!
//! A connection that is lost takes the locks with it while their holder still works, and somebody else may have got them since.
//! So whoever publishes sees that its sessions are still there ([`Locks::expect_held`]), within the transaction that holds the
//! write lock; and a lock is taken while the write lock is held, too. So a publication sees that the session has ended, or is committed
//! before anybody else has the lock.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::{PostgresCatalog, Shared, io};
use crate::{CatalogError, Holder};

/// The locks of this process in one catalog.
#[derive(Debug)]
pub(super) struct Locks {
    options: PgConnectOptions,
    sessions: Mutex<Vec<Session>>,
}

/// A connection that holds locks. Only the last of them gets more.
#[derive(Debug)]
struct Session {
    connection: PgConnection,
    /// What tells it from all others: the number of its process and when that began, in microseconds.
    identity: (i32, i64),
    names: HashSet<String>,
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct PostgresLock {
    shared: Arc<Shared>,
    name: String,
}

/// What an attempt to take a lock gave.
pub(crate) enum Attempt {
    Taken(PostgresLock),
    /// Somebody else has it, who is this, if that is written already.
    Held(Option<Holder>),
}

impl PostgresLock {
    /// Takes a lock without waiting for whoever has it; `None` if the catalog of the data directory is not in PostgreSQL.
    pub(crate) fn acquire(
        data_dir: &Path,
        name: &str,
        holder: &Holder,
    ) -> Result<Option<Attempt>, CatalogError> {
        let Some(catalog) = PostgresCatalog::open_unseen(data_dir)? else {
            return Ok(None);
        };
        let holder = serde_json::to_string(holder)
            .map_err(|error| CatalogError::io("describe the holder of", name)(error.into()))?;
        let (shared, name) = (catalog.shared, name.to_owned());
        let attempt = io::block(async move {
            let taken = shared.locks.take(&shared, &name, &holder).await;
            match taken.map_err(|error| shared.unreachable(error))? {
                None => Ok(Attempt::Taken(Self { shared, name })),
                Some(written) => Ok(Attempt::Held(serde_json::from_str(&written).ok())),
            }
        });
        attempt.map(Some)
    }
}

impl Drop for PostgresLock {
    fn drop(&mut self) {
        let (shared, name) = (Arc::clone(&self.shared), self.name.clone());
        // Who waits for the lock finds it free afterwards. A connection that is lost has released it.
        let _ = io::block(async move {
            shared.locks.release(&shared, &name).await;
            Ok(())
        });
    }
}

impl Locks {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self {
            options,
            sessions: Mutex::default(),
        }
    }

    /// Takes a lock; gives what is written about its holder if somebody has it.
    async fn take(
        &self,
        shared: &Shared,
        name: &str,
        holder: &str,
    ) -> Result<Option<String>, sqlx::Error> {
        let mut sessions = self.sessions.lock().await;
        // Within one session a lock can be taken twice.
        if sessions.iter().any(|session| session.names.contains(name)) {
            return Ok(Some(written(shared, name).await?));
        }
        let is_alive = match sessions.last_mut() {
            None => false,
            Some(last) => last.connection.ping().await.is_ok(),
        };
        if !is_alive {
            sessions.retain(|session| !session.names.is_empty());
            let name = format!("meridian {} locks", shared.file.address.schema());
            let options = self.options.clone().application_name(&name);
            sessions.push(Session::connect(&options).await?);
        }
        let Some(session) = sessions.last_mut() else {
            return Err(sqlx::Error::WorkerCrashed);
        };
        let taken = session.take(key(shared, name), name, holder).await;
        match &taken {
            Ok(None) => {
                session.names.insert(name.to_owned());
            }
            Ok(Some(_)) => {}
            // Whether the session has the lock is unknown: none of its others is worth more than that it ends.
            Err(_) if session.names.is_empty() => {
                sessions.pop();
            }
            Err(_) => session.release(key(shared, name), name).await,
        }
        taken
    }

    async fn release(&self, shared: &Shared, name: &str) {
        let mut sessions = self.sessions.lock().await;
        let holding = sessions.iter_mut();
        if let Some(session) = { holding }.find(|session| session.names.contains(name)) {
            session.release(key(shared, name), name).await;
            session.names.remove(name);
        }
        let last = sessions.len().saturating_sub(1);
        let mut at = 0;
        sessions.retain(|session| {
            at += 1;
            !session.names.is_empty() || at > last
        });
    }

    /// Sees within a transaction that holds the write lock that this process has lost none of its locks.
    pub(super) async fn expect_held(&self, change: &mut PgConnection) -> Result<(), CatalogError> {
        let holding: Vec<(i32, i64)> = {
            let sessions = self.sessions.lock().await;
            let holding = sessions.iter().filter(|session| !session.names.is_empty());
            holding.map(|session| session.identity).collect()
        };
        for (pid, began) in holding {
            let is_there: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1 \
                 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2)",
            )
            .bind(pid)
            .bind(began)
            .fetch_one(&mut *change)
            .await?;
            if !is_there {
                return Err(CatalogError::LockLost);
            }
        }
        Ok(())
    }
}

impl Session {
    async fn connect(options: &PgConnectOptions) -> Result<Self, sqlx::Error> {
        let mut connection = options.connect().await?;
        let identity = sqlx::query_as(
            "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity \
             WHERE pid = pg_backend_pid()",
        )
        .fetch_one(&mut connection)
        .await?;
        Ok(Self {
            connection,
            identity,
            names: HashSet::new(),
        })
    }

    async fn take(
        &mut self,
        key: i64,
        name: &str,
        holder: &str,
    ) -> Result<Option<String>, sqlx::Error> {
        let mut change = self.connection.begin().await?;
        sqlx::query("LOCK TABLE publications IN SHARE ROW EXCLUSIVE MODE")
            .execute(&mut *change)
            .await?;
        let is_ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(key)
            .fetch_one(&mut *change)
            .await?;
        if !is_ours {
            let written: Option<String> =
                sqlx::query_scalar("SELECT holder FROM load_locks WHERE name = $1")
                    .bind(name)
                    .fetch_optional(&mut *change)
                    .await?;
            change.rollback().await?;
            return Ok(Some(written.unwrap_or_default()));
        }
        sqlx::query(
            "INSERT INTO load_locks (name, holder) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder",
        )
        .bind(name)
        .bind(holder)
        .execute(&mut *change)
        .await?;
        change.commit().await?;
        Ok(None)
    }

    /// Releases a lock; what cannot be said to the database has ended with the connection.
    async fn release(&mut self, key: i64, name: &str) {
        let released = async {
            sqlx::query("DELETE FROM load_locks WHERE name = $1")
                .bind(name)
                .execute(&mut self.connection)
                .await?;
            sqlx::query("SELECT pg_advisory_unlock($1)")
                .bind(key)
                .execute(&mut self.connection)
                .await
        };
        if let Err(error) = released.await {
            tracing::debug!(%error, name, "a load lock could not be released");
        }
    }
}

/// What is written about the holder of a lock.
async fn written(shared: &Shared, name: &str) -> Result<String, sqlx::Error> {
    let found: Option<String> = sqlx::query_scalar("SELECT holder FROM load_locks WHERE name = $1")
        .bind(name)
        .fetch_optional(&shared.pool)
        .await?;
    Ok(found.unwrap_or_default())
}

/// The number of a lock: of the archive and its name, since other archives may be in the same database.
pub(super) fn key(shared: &Shared, name: &str) -> i64 {
    let text = format!("{}/{name}", shared.file.archive);
    xxh3_64(text.as_bytes()).cast_signed()
}
