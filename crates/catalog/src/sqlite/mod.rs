//! The catalog in an SQLite file, `meridian.sqlite` in the data directory.
//!
//! Write-ahead logging lets readers go on while somebody writes. Every change is one transaction that
//! takes the write lock at its start (`BEGIN IMMEDIATE`), so it can wait for its turn but never fail
//! half-way for want of it. Every commit is synced to the disk: the files of a replaced load may be
//! removed as soon as `publish` has returned, so a power failure must not bring that load back.

mod checksum;
mod read;
mod rows;
mod schema;
mod seal;
mod state;
mod verify;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Sqlite, SqlitePool, Transaction};

use crate::CatalogError;
pub use state::CatalogState;

/// The catalog's file in the data directory.
const FILE_NAME: &str = "meridian.sqlite";
/// What SQLite calls the wal-index of that file.
const WAL_INDEX_NAME: &str = "meridian.sqlite-shm";
/// What SQLite calls the write-ahead log of that file.
const WAL_NAME: &str = "meridian.sqlite-wal";

/// How long a writer waits for the other writers. A transaction takes well under a second, so this is
/// the patience for a long queue of them on a slow disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the end of a process waits for the readers of older states of the catalog. Reads take milliseconds.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections of one process. Each has a thread; statements are short. They stay open as long as the catalog does, so that
/// the wal-index does (see [`state`]).
const CONNECTIONS: u32 = 4;

/// The pool of connections to one catalog file.
#[derive(Debug, Clone)]
pub(crate) struct SqliteCatalog {
    pool: SqlitePool,
    upgraded_from: Option<i64>,
    database: Arc<Path>,
    wal_index: Arc<Path>,
    log: Arc<Path>,
}

impl SqliteCatalog {
    pub async fn open(data_dir: &Path) -> Result<Self, CatalogError> {
        let path = data_dir.join(FILE_NAME);
        if !path.is_file() {
            return Err(CatalogError::NoCatalog {
                dir: data_dir.to_owned(),
            });
        }
        Self::connect(data_dir, path).await
    }

    pub async fn open_or_create(data_dir: &Path) -> Result<Self, CatalogError> {
        std::fs::create_dir_all(data_dir).map_err(CatalogError::io("make directory", data_dir))?;
        Self::connect(data_dir, data_dir.join(FILE_NAME)).await
    }

    async fn connect(data_dir: &Path, path: PathBuf) -> Result<Self, CatalogError> {
        let upgraded_from = schema::bring_up_to_date(data_dir, &path).await?;
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options(&path))
            .await?;
        Ok(Self {
            pool,
            upgraded_from,
            database: path.into(),
            wal_index: data_dir.join(WAL_INDEX_NAME).into(),
            log: data_dir.join(WAL_NAME).into(),
        })
    }

    /// Puts what the log holds into the database file, and closes the connections.
    pub async fn close(&self) {
        if let Err(error) = self.empty_log().await {
            // Nothing is lost: the log stays, and whoever opens the catalog reads it.
            tracing::warn!(%error, "the catalog's log could not be copied into its file");
        }
        self.pool.close().await;
    }

    /// Copies the write-ahead log into the database file and truncates it, so that this file alone is the whole catalog.
    /// A reader that keeps at an older state for longer than [`CLOSE_TIMEOUT`] prevents it; then the log stays.
    async fn empty_log(&self) -> Result<(), CatalogError> {
        let is_empty = |log: std::fs::Metadata| log.len() == 0;
        if self.pool.is_closed() || std::fs::metadata(&self.log).map_or(true, is_empty) {
            return Ok(());
        }
        let mut connection = self.pool.acquire().await?;
        let patience = CLOSE_TIMEOUT.as_millis();
        let waiting = format!("PRAGMA busy_timeout = {patience}");
        sqlx::raw_sql(AssertSqlSafe(waiting))
            .execute(&mut *connection)
            .await?;
        let (busy, ..): (i64, i64, i64) = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut *connection)
            .await?;
        if busy != 0 {
            tracing::warn!(
                "a reader keeps the catalog's log in use: it is copied when that one ends"
            );
        }
        Ok(())
    }

    /// The version that the catalog had when it was opened, if it was brought up to date then.
    pub fn upgraded_from(&self) -> Option<i64> {
        self.upgraded_from
    }

    /// The state in which the catalog is.
    pub fn state(&self) -> Option<CatalogState> {
        state::state(&self.database, &self.wal_index)
    }

    /// A transaction that sees one state of the catalog from its first read on.
    async fn begin_read(&self) -> Result<Transaction<'static, Sqlite>, CatalogError> {
        Ok(self.pool.begin().await?)
    }

    /// A transaction that holds the write lock.
    async fn begin_write(&self) -> Result<Transaction<'static, Sqlite>, CatalogError> {
        Ok(self.pool.begin_with("BEGIN IMMEDIATE").await?)
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
}

/// A count as SQLite keeps it. Counts of rows and bytes stay far below 2^63.
fn to_stored(count: u64) -> Result<i64, CatalogError> {
    i64::try_from(count).map_err(|_| CatalogError::Damaged(format!("a count of {count}")))
}

/// A count as we know it, of whatever width.
fn from_stored<T: TryFrom<i64>>(what: &str, stored: i64) -> Result<T, CatalogError> {
    T::try_from(stored).map_err(|_| CatalogError::Damaged(format!("{stored} for {what}")))
}
