//! SQLite: a file in write-ahead mode, that is on disk when a transaction is committed.
//!
//! With `rusqlite`: a statement and all rows that it finds are one call on a thread that may wait. `sqlx`, which catalogs use, hands each row to
//! another thread; here these are tens of thousands for a detector.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::types::{Null, ValueRef};
use rusqlite::{InterruptHandle, OpenFlags, Row, Statement};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Connection, Kind, LONGEST_TURN, ROWS, Store, StoreTurn, TURN_LOOK, Values, count_found,
};
use crate::error::{AlertsError, Result, StorageError};

/// Rows of values in one statement that changes something, largest first, so that few different statements are prepared.
const STRIDES: &[usize] = &[256, 128, 64, 32, 16, 8, 4, 2, 1];
/// The same of one that finds something: a detector has thousands of objects.
const READ_STRIDES: &[usize] = &[4096, 1024, 256, 64, 16, 4, 1];
/// Values that SQLite takes with a statement (`SQLITE_MAX_VARIABLE_NUMBER`).
const MOST_VALUES: usize = 32_766;
/// Bytes of a page: a row of a few hundred columns fits into a leaf without overflowing.
const PAGE_BYTES: u32 = 8192;
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const READERS: usize = 4;
/// How long a read waits for one of the readers' connections.
const READER_TIMEOUT: Duration = Duration::from_secs(30);
/// KiB of pages that a connection keeps, negated as SQLite wants it.
const CACHE: i64 = -131_072;
/// Pages of the write-ahead log after which it is copied into the file.
const CHECKPOINT_PAGES: i64 = 8192;
/// Statements that a connection keeps prepared.
const PREPARED: usize = 500;

/// A file.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    name: String,
    path: PathBuf,
    /// Kept locked by whoever writes.
    lock: Arc<File>,
    /// Kept locked by whoever has a turn at writing.
    turn: File,
    readers: Arc<Readers>,
}

impl SqliteStore {
    /// Opens a file, which is made if it is not there.
    pub(crate) async fn open(name: &str, path: &Path) -> Result<Self> {
        let lock = lock_file(path, "lock")?;
        let turn = lock_file(path, "turn")?;
        // Write-ahead mode is a property of the file, which readers cannot give it.
        connect(path, Access::Writes).await?;
        Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            lock: Arc::new(lock),
            turn,
            readers: Arc::default(),
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

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Writes,
    Reads,
    /// Of a file of somebody else's, which has to be there.
    ReadsForeign,
}

async fn connect(path: &Path, access: Access) -> Result<rusqlite::Connection> {
    let path = path.to_owned();
    blocking(move || {
        open_file(&path, access).map_err(|error| {
            let (path, said) = (path.display().to_string(), error.to_string());
            let sentence = match said.contains(&path) {
                true => said,
                false => format!("{path}: {said}"),
            };
            StorageError::Told(sentence).into()
        })
    })
    .await
}

fn open_file(path: &Path, access: Access) -> rusqlite::Result<rusqlite::Connection> {
    let flags = match access {
        Access::ReadsForeign => OpenFlags::SQLITE_OPEN_READ_ONLY,
        _ => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    let connection =
        rusqlite::Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    if access != Access::ReadsForeign {
        // The size of pages is one of a file without write-ahead log.
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", CACHE)?;
        connection
            .pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    }
    if access != Access::Writes {
        connection.pragma_update(None, "query_only", true)?;
    }
    // The first look at the file, which may be none of SQLite's.
    connection.pragma_query_value(None, "schema_version", |_| Ok(()))?;
    Ok(connection)
}

/// Does what waits for the disk on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|failure| Err(StorageError::Told(failure.to_string()).into()))
}

/// A connection that only reads a file of somebody else's, which has to be there.
pub(crate) async fn open_foreign(path: &Path) -> Result<Box<dyn Connection>> {
    let connection = connect(path, Access::ReadsForeign).await?;
    Ok(Box::new(Handle::new(connection, Home::Nowhere)))
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
        let connection = connect(&self.path, Access::Writes).await?;
        Ok(Box::new(Handle::new(connection, Home::Writer(lock))))
    }

    async fn reader(&self) -> Result<Box<dyn Connection>> {
        Ok(Box::new(self.readers.acquire(&self.path).await?))
    }

    async fn snapshot(&self) -> Result<Box<dyn Connection>> {
        let mut handle = self.readers.acquire(&self.path).await?;
        // Its moment is that of its first read.
        handle.run("BEGIN").await?;
        Ok(Box::new(handle))
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

/// The connections that read: those that nobody uses, and places for all.
#[derive(Debug)]
struct Readers {
    idle: Mutex<Vec<rusqlite::Connection>>,
    places: Arc<Semaphore>,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(READERS)),
        }
    }
}

impl Readers {
    async fn acquire(self: &Arc<Self>, path: &Path) -> Result<Handle> {
        let place = Arc::clone(&self.places).acquire_owned();
        let Ok(Ok(place)) = timeout(READER_TIMEOUT, place).await else {
            let sentence = format!(
                "its {READERS} connections for reads have been busy for {} s",
                READER_TIMEOUT.as_secs()
            );
            return Err(StorageError::Told(sentence).into());
        };
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => connect(path, Access::Reads).await?,
        };
        let home = Home::Readers(Arc::clone(self), place);
        Ok(Handle::new(connection, home))
    }

    fn take_idle(&self) -> Option<rusqlite::Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    /// Takes a connection back, unless it is in a transaction that it cannot leave.
    fn give_back(&self, connection: rusqlite::Connection) {
        if connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(connection);
        }
    }
}

/// Where a connection goes when it is not used any more.
enum Home {
    Nowhere,
    /// The lock of whoever writes, which goes after the connection.
    Writer(#[expect(dead_code, reason = "it is held, and unlocks when it is dropped")] WriterLock),
    /// A place among the readers.
    Readers(Arc<Readers>, OwnedSemaphorePermit),
}

/// A connection that is used.
struct Used {
    connection: rusqlite::Connection,
    home: Home,
}

/// A connection, which is away while a statement runs.
struct Handle(Option<Used>);

impl Drop for Handle {
    fn drop(&mut self) {
        // One that was given up with its statement is closed: it may still be interrupted.
        if let Some(used) = self.0.take()
            && let Home::Readers(readers, _place) = used.home
        {
            readers.give_back(used.connection);
        }
    }
}

/// Ends what a connection does when nobody waits for it any more.
struct EndsWork(Option<InterruptHandle>);

impl Drop for EndsWork {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.interrupt();
        }
    }
}

impl Handle {
    const fn new(connection: rusqlite::Connection, home: Home) -> Self {
        Self(Some(Used { connection, home }))
    }

    /// Does something with the connection on a thread that may wait.
    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // It is gone if work panicked, or was given up.
        let lost = || StorageError::Told("its connection is lost".to_owned());
        let used = self.0.take().ok_or_else(lost)?;
        let mut ends_work = EndsWork(Some(used.connection.get_interrupt_handle()));
        let done = blocking(move || {
            let done = work(&used.connection);
            Ok((used, done))
        });
        let done = done.await;
        ends_work.0 = None;
        let (used, done) = done?;
        self.0 = Some(used);
        done
    }
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
impl Connection for Handle {
    async fn change(&mut self, statement: &str, rows: &[Values]) -> Result<u64> {
        let (statement, rows) = (statement.to_owned(), rows.to_vec());
        self.with(move |connection| change(connection, &statement, &rows))
            .await
    }

    async fn fetch(
        &mut self,
        statement: &str,
        rows: &[Values],
        kinds: &[Kind],
    ) -> Result<Vec<Values>> {
        let (statement, rows, kinds) = (statement.to_owned(), rows.to_vec(), kinds.to_vec());
        self.with(move |connection| fetch(connection, &statement, &rows, &kinds))
            .await
    }

    async fn run(&mut self, statements: &str) -> Result<()> {
        let statements = statements.to_owned();
        self.with(move |connection| Ok(connection.execute_batch(&statements)?))
            .await
    }
}

fn change(connection: &rusqlite::Connection, statement: &str, rows: &[Values]) -> Result<u64> {
    let mut changed = 0;
    for (begin, count) in strides(rows, STRIDES) {
        let mut prepared = connection.prepare_cached(&with_rows(statement, rows.len(), count))?;
        bind(&mut prepared, rows, begin, count)?;
        changed += prepared.raw_execute()? as u64;
    }
    Ok(changed)
}

fn fetch(
    connection: &rusqlite::Connection,
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
        let mut prepared = connection.prepare_cached(&with_rows(statement, rows.len(), count))?;
        bind(&mut prepared, rows, begin, count)?;
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next()? {
            count_found(&mut rows_found)?;
            for (at, values) in found.iter_mut().enumerate() {
                push(values, row, at)?;
            }
        }
    }
    Ok(found)
}

/// Adds a value of a row to a column. What is of another kind becomes what SQLite makes of it.
fn push(values: &mut Values, row: &Row<'_>, at: usize) -> rusqlite::Result<()> {
    let value = row.get_ref(at)?;
    match (values, value) {
        (Values::Int(values), ValueRef::Null) => values.push(None),
        (Values::Int(values), ValueRef::Integer(value)) => values.push(Some(value)),
        (Values::Int(values), ValueRef::Real(value)) => values.push(Some(value as i64)),
        (Values::Real(values), ValueRef::Null) => values.push(None),
        (Values::Real(values), ValueRef::Real(value)) => values.push(Some(value)),
        (Values::Real(values), ValueRef::Integer(value)) => values.push(Some(value as f64)),
        (Values::Bytes(values), ValueRef::Null) => values.push(None),
        (Values::Bytes(values), ValueRef::Blob(value) | ValueRef::Text(value)) => {
            values.push(Some(value.to_vec()));
        }
        (Values::Text(values), ValueRef::Null) => values.push(None),
        (Values::Text(values), ValueRef::Text(_)) => values.push(Some(row.get(at)?)),
        (Values::Text(values), ValueRef::Integer(value)) => values.push(Some(value.to_string())),
        (Values::Text(values), ValueRef::Real(value)) => values.push(Some(value.to_string())),
        (_, value) => {
            let name = row.as_ref().column_name(at)?.to_owned();
            let found = value.data_type();
            return Err(rusqlite::Error::InvalidColumnType(at, name, found));
        }
    }
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

/// Binds the values of some rows, row by row.
fn bind(
    statement: &mut Statement<'_>,
    rows: &[Values],
    begin: usize,
    count: usize,
) -> rusqlite::Result<()> {
    let mut place = 1;
    for row in begin..begin + count {
        for values in rows {
            match values {
                Values::Int(values) => statement.raw_bind_parameter(place, values[row])?,
                Values::Real(values) => statement.raw_bind_parameter(place, values[row])?,
                Values::Bytes(values) => match values[row].as_deref() {
                    Some(bytes) => statement.raw_bind_parameter(place, bytes)?,
                    None => statement.raw_bind_parameter(place, Null)?,
                },
                Values::Text(values) => {
                    statement.raw_bind_parameter(place, values[row].as_deref())?
                }
            }
            place += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i % 2) FROM n";

    async fn with_numbers(directory: &Path) -> SqliteStore {
        let store = SqliteStore::open("night", &directory.join("hot.sqlite")).await;
        let store = store.unwrap();
        let mut writer = store.writer().await.unwrap();
        writer
            .run("CREATE TABLE numbers (i INTEGER, r REAL, b BLOB, t TEXT)")
            .await
            .unwrap();
        drop(writer);
        store
    }

    async fn count(connection: &mut dyn Connection) -> Option<i64> {
        let found = connection
            .fetch("SELECT count(*) FROM numbers", &[], &[Kind::Int])
            .await;
        super::super::first(found.unwrap()).into_ints()[0]
    }

    #[tokio::test]
    async fn values_come_back_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let store = with_numbers(directory.path()).await;
        // More than one statement takes, and no multiple of what one takes.
        let rows = 10_007;
        let value = |row: i64| (row % 5 != 0).then_some(row);
        let given = [
            Values::Int(
                (0..rows)
                    .map(|row| value(row).map(|it| it - 5000))
                    .collect(),
            ),
            Values::Real(
                (0..rows)
                    .map(|row| value(row).map(|it| it as f64 / 7.0))
                    .collect(),
            ),
            Values::Bytes(
                (0..rows)
                    .map(|row| value(row).map(|it| it.to_le_bytes().to_vec()))
                    .collect(),
            ),
            Values::Text(
                (0..rows)
                    .map(|row| value(row).map(|it| format!("№ {it}")))
                    .collect(),
            ),
        ];
        let mut writer = store.writer().await.unwrap();
        let insert = "WITH r(i, r, b, t) AS ({rows}) INSERT INTO numbers SELECT i, r, b, t FROM r";
        assert_eq!(writer.change(insert, &given).await.unwrap(), rows as u64);
        let kinds = [Kind::Int, Kind::Real, Kind::Bytes, Kind::Text];
        let mut reader = store.reader().await.unwrap();
        let all = "SELECT i, r, b, t FROM numbers ORDER BY rowid";
        assert_eq!(reader.fetch(all, &[], &kinds).await.unwrap(), given);
        let wanted = Values::ints((0..rows).map(|row| row - 5000));
        let some = "WITH w(i) AS ({rows}) SELECT n.i FROM w CROSS JOIN numbers n ON n.i = w.i";
        let found = reader.fetch(some, &[wanted], &[Kind::Int]).await.unwrap();
        assert_eq!(found[0].len(), (0..rows).filter(|row| row % 5 != 0).count());
        assert!(
            reader.run("DELETE FROM numbers").await.is_err(),
            "readers change nothing"
        );
    }

    #[tokio::test]
    async fn values_of_other_kinds_are_what_sqlite_makes_of_them_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let store = with_numbers(directory.path()).await;
        let mut reader = store.reader().await.unwrap();
        let kinds = [Kind::Int, Kind::Real, Kind::Text, Kind::Text, Kind::Bytes];
        let found = reader
            .fetch("SELECT 2.0, 3, 4, 0.5, 'a'", &[], &kinds)
            .await;
        let expected = vec![
            Values::ints([2]),
            Values::reals([3.0]),
            Values::texts(["4".to_owned()]),
            Values::texts(["0.5".to_owned()]),
            Values::bytes([b"a".to_vec()]),
        ];
        assert_eq!(found.unwrap(), expected);
        for (value, kind) in [
            ("'x'", Kind::Int),
            ("x'00'", Kind::Real),
            ("x'ff'", Kind::Text),
        ] {
            let refused = reader
                .fetch(&format!("SELECT {value} AS odd"), &[], &[kind])
                .await;
            let told = refused.unwrap_err().to_string();
            assert!(told.contains("odd"), "{told}");
        }
    }

    #[tokio::test]
    async fn snapshots_are_of_one_moment_and_end() {
        let directory = tempfile::tempdir().unwrap();
        let store = with_numbers(directory.path()).await;
        let mut writer = store.writer().await.unwrap();
        for before in 0..3 * READERS as i64 {
            let mut snapshot = store.snapshot().await.unwrap();
            assert_eq!(count(snapshot.as_mut()).await, Some(before));
            writer
                .run("INSERT INTO numbers (i) VALUES (1)")
                .await
                .unwrap();
            assert_eq!(count(snapshot.as_mut()).await, Some(before));
        }
        let mut reader = store.reader().await.unwrap();
        assert_eq!(count(reader.as_mut()).await, Some(3 * READERS as i64));
    }

    #[tokio::test]
    async fn reads_that_nobody_waits_for_end_and_leave_their_place() {
        let directory = tempfile::tempdir().unwrap();
        let store = with_numbers(directory.path()).await;
        for _ in 0..2 * READERS {
            let mut reader = store.reader().await.unwrap();
            let endless = reader.fetch(ENDLESS, &[], &[Kind::Int]);
            let given_up = timeout(Duration::from_millis(20), endless).await;
            assert!(given_up.is_err(), "it ended");
            let lost = reader.run("SELECT 1").await.unwrap_err();
            assert!(lost.to_string().contains("lost"), "{lost}");
        }
        // All places are free again once the statements have noticed.
        let mut used = Vec::new();
        for _ in 0..READERS {
            let mut reader = store.reader().await.unwrap();
            assert_eq!(count(reader.as_mut()).await, Some(0));
            used.push(reader);
        }
    }

    #[tokio::test]
    async fn files_that_cannot_be_opened_are_named_once() {
        let directory = tempfile::tempdir().unwrap();
        let (none, other) = (
            directory.path().join("none"),
            directory.path().join("other"),
        );
        std::fs::write(
            &other,
            "no database, and longer than a header's first words",
        )
        .unwrap();
        for path in [none, other] {
            let told = open_foreign(&path).await.map(drop).unwrap_err().to_string();
            assert_eq!(told.matches(&*path.to_string_lossy()).count(), 1, "{told}");
        }
    }

    #[tokio::test]
    async fn one_writes_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = with_numbers(directory.path()).await;
        let path = directory.path().join("hot.sqlite");
        let other = SqliteStore::open("night", &path);
        let other = other.await.unwrap();
        let writer = store.writer().await.unwrap();
        let refused = other.writer().await.map(drop);
        assert!(
            matches!(refused, Err(AlertsError::InUse { .. })),
            "{refused:?}"
        );
        drop(writer);
        other.writer().await.unwrap();
    }
}
