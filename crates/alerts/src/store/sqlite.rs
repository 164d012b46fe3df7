//! SQLite: a file in write-ahead mode, that is on disk when a transaction is committed.

use std::fs::{File, TryLockError};
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Row, Sqlite, SqliteConnection, SqlitePool};
use tokio::time::{Instant, sleep};

use super::{
    Connection, Kind, LONGEST_TURN, ROWS, Store, StoreTurn, TURN_LOOK, Values, count_found,
};
use crate::error::{AlertsError, Result};

/// Rows of values in one statement that changes something, largest first, so that few different statements are prepared.
const STRIDES: &[usize] = &[256, 128, 64, 32, 16, 8, 4, 2, 1];
/// The same of one that finds something: of a detector's 5,000 objects most have no rows, and each statement waits for the connection's
/// thread.
const READ_STRIDES: &[usize] = &[4096, 1024, 256, 64, 16, 4, 1];
/// Values that SQLite takes with a statement (`SQLITE_MAX_VARIABLE_NUMBER`).
const MOST_VALUES: usize = 32_766;
/// Bytes of a page: a row of a few hundred columns fits into a leaf without overflowing.
const PAGE_BYTES: u32 = 8192;
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const READERS: u32 = 4;
/// KiB of pages that a connection keeps, negated as SQLite wants it.
const CACHE: &str = "-131072";
/// Pages of the write-ahead log after which it is copied into the file.
const CHECKPOINT_PAGES: &str = "8192";

/// A file.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    name: String,
    path: PathBuf,
    /// Kept locked by whoever writes.
    lock: Arc<File>,
    /// Kept locked by whoever has a turn at writing.
    turn: File,
    readers: SqlitePool,
}

impl SqliteStore {
    /// Opens a file, which is made if it is not there.
    pub(crate) async fn open(name: &str, path: &Path) -> Result<Self> {
        let lock = lock_file(path, "lock")?;
        let turn = lock_file(path, "turn")?;
        // Write-ahead mode is a property of the file, which readers cannot give it.
        options(path)?.connect().await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_lazy_with(options(path)?.pragma("query_only", "true"));
        Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            lock: Arc::new(lock),
            turn,
            readers,
        })
    }
}

/// A file beside the store that is locked.
fn lock_file(store: &Path, extension: &str) -> Result<File> {
    let path = store.with_extension(extension);
    let options = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    options.map_err(|source| AlertsError::File { path, source })
}

fn options(path: &Path) -> Result<SqliteConnectOptions> {
    let options = SqliteConnectOptions::from_str("sqlite:")?;
    Ok(options
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("cache_size", CACHE)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .row_buffer_size(1024)
        .statement_cache_capacity(500))
}

/// A connection that only reads a file of somebody else's, which has to be there.
pub(crate) async fn open_foreign(path: &Path) -> Result<Box<dyn Connection>> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(1024)
        .pragma("query_only", "true");
    Ok(Box::new(Handle {
        connection: Box::new(options.connect().await?),
        _lock: None,
    }))
}

#[async_trait]
impl Store for SqliteStore {
    async fn writer(&self) -> Result<Box<dyn Connection>> {
        match self.lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let name = self.name.clone();
                return Err(AlertsError::InUse { name });
            }
            Err(TryLockError::Error(source)) => {
                let path = self.path.clone();
                return Err(AlertsError::File { path, source });
            }
        }
        let lock = WriterLock(Arc::clone(&self.lock));
        Ok(Box::new(Handle {
            connection: Box::new(options(&self.path)?.connect().await?),
            _lock: Some(lock),
        }))
    }

    async fn reader(&self) -> Result<Box<dyn Connection>> {
        Ok(Box::new(Handle {
            connection: self.readers.acquire().await?,
            _lock: None,
        }))
    }

    async fn snapshot(&self) -> Result<Box<dyn Connection>> {
        // Its moment is that of its first read. What is dropped is rolled back.
        Ok(Box::new(Handle {
            connection: self.readers.begin().await?,
            _lock: None,
        }))
    }

    async fn turn(&self) -> Result<Box<dyn StoreTurn>> {
        let file = lock_file(&self.path, "turn")?;
        let give_up = Instant::now() + LONGEST_TURN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Box::new(FileTurn { _file: file })),
                Err(TryLockError::WouldBlock) if Instant::now() < give_up => sleep(TURN_LOOK).await,
                Err(TryLockError::WouldBlock) => {
                    let name = self.name.clone();
                    return Err(AlertsError::InUse { name });
                }
                Err(TryLockError::Error(source)) => {
                    let path = self.path.clone();
                    return Err(AlertsError::File { path, source });
                }
            }
        }
    }

    async fn is_wanted(&self, _: &mut dyn Connection) -> Result<bool> {
        // Those who look do not see each other.
        match self.turn.try_lock_shared() {
            Ok(()) => Ok(self.turn.unlock().is_err()),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => {
                let path = self.path.clone();
                Err(AlertsError::File { path, source })
            }
        }
    }
}

/// A locked file.
struct FileTurn {
    _file: File,
}

impl StoreTurn for FileTurn {}

/// A connection, and the lock of whoever writes, which goes after it.
struct Handle<C> {
    connection: C,
    _lock: Option<WriterLock>,
}

/// The lock of a file, taken.
struct WriterLock(Arc<File>);

impl Drop for WriterLock {
    fn drop(&mut self) {
        // It can only fail if the file is gone.
        let _ = self.0.unlock();
    }
}

#[async_trait]
impl<C: DerefMut<Target = SqliteConnection> + Send> Connection for Handle<C> {
    async fn change(&mut self, statement: &str, rows: &[Values]) -> Result<u64> {
        change(&mut self.connection, statement, rows).await
    }

    async fn fetch(
        &mut self,
        statement: &str,
        rows: &[Values],
        kinds: &[Kind],
    ) -> Result<Vec<Values>> {
        fetch(&mut self.connection, statement, rows, kinds).await
    }

    async fn run(&mut self, statements: &str) -> Result<()> {
        run(&mut self.connection, statements).await
    }
}

async fn change(
    connection: &mut SqliteConnection,
    statement: &str,
    rows: &[Values],
) -> Result<u64> {
    let mut changed = 0;
    for (begin, count) in strides(rows, STRIDES) {
        let text = with_rows(statement, rows.len(), count);
        let query = sqlx::query(AssertSqlSafe(text));
        let done = bound(query, rows, begin, count)
            .execute(&mut *connection)
            .await?;
        changed += done.rows_affected();
    }
    Ok(changed)
}

async fn fetch(
    connection: &mut SqliteConnection,
    statement: &str,
    rows: &[Values],
    kinds: &[Kind],
) -> Result<Vec<Values>> {
    let mut rows_found = 0;
    let mut found: Vec<Values> = kinds.iter().map(|&kind| Values::empty(kind)).collect();
    let strides = match statement.contains(ROWS) {
        true => strides(rows, READ_STRIDES),
        false => vec![(0, 0)],
    };
    for (begin, count) in strides {
        let text = with_rows(statement, rows.len(), count);
        let query = sqlx::query(AssertSqlSafe(text));
        let mut stream = bound(query, rows, begin, count).fetch(&mut *connection);
        while let Some(row) = stream.try_next().await? {
            count_found(&mut rows_found)?;
            for (at, values) in found.iter_mut().enumerate() {
                match values {
                    Values::Int(values) => values.push(row.try_get_unchecked(at)?),
                    Values::Real(values) => values.push(row.try_get_unchecked(at)?),
                    Values::Bytes(values) => values.push(row.try_get_unchecked(at)?),
                    Values::Text(values) => values.push(row.try_get_unchecked(at)?),
                }
            }
        }
    }
    Ok(found)
}

async fn run(connection: &mut SqliteConnection, statements: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Where the rows of each statement begin, and how many they are.
fn strides(rows: &[Values], sizes: &[usize]) -> Vec<(usize, usize)> {
    let all = rows.first().map_or(0, Values::len);
    let (mut strides, mut begin) = (Vec::new(), 0);
    let fits = |stride: &&usize| **stride * rows.len() <= MOST_VALUES;
    for &stride in sizes.iter().filter(fits) {
        while all - begin >= stride {
            strides.push((begin, stride));
            begin += stride;
        }
    }
    strides
}

fn with_rows(statement: &str, columns: usize, rows: usize) -> String {
    if !statement.contains(ROWS) {
        return statement.to_owned();
    }
    let row = format!("({})", vec!["?"; columns].join(","));
    statement.replace(ROWS, &format!("VALUES {}", vec![row; rows].join(",")))
}

fn bound<'q>(
    mut query: Query<'q, Sqlite, SqliteArguments>,
    rows: &'q [Values],
    begin: usize,
    count: usize,
) -> Query<'q, Sqlite, SqliteArguments> {
    for row in begin..begin + count {
        for values in rows {
            query = match values {
                Values::Int(values) => query.bind(values[row]),
                Values::Real(values) => query.bind(values[row]),
                Values::Bytes(values) => query.bind(values[row].as_deref()),
                Values::Text(values) => query.bind(values[row].as_deref()),
            };
        }
    }
    query
}
