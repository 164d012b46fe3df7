//! The file in which queries are written down: `queries/queries.sqlite` of the data directory.
//!
//! A killed process loses nothing that was committed; a machine that loses power may lose the last moments (`synchronous = NORMAL`).

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use engine::QueryState;
use sql::connection::StatementLimits;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ColumnIndex, Connection, Decode, Row, Type};

use crate::QueryError;
use crate::milestones;
use crate::record::QueryRecord;
use crate::registry::Protocol;

const MIGRATIONS: [&str; 11] = [
    include_str!("../migrations/0001_queries.sql"),
    include_str!("../migrations/0002_dialect.sql"),
    include_str!("../migrations/0003_estimates.sql"),
    include_str!("../migrations/0004_reads.sql"),
    include_str!("../migrations/0005_cached_from.sql"),
    include_str!("../migrations/0006_milestones.sql"),
    include_str!("../migrations/0007_warnings.sql"),
    include_str!("../migrations/0008_veiled.sql"),
    include_str!("../migrations/0009_epoch.sql"),
    include_str!("../migrations/0010_as_of.sql"),
    include_str!("../migrations/0011_statement_limits.sql"),
];
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// How many numbers a process reserves at a time.
const RESERVED: u64 = 1_000_000;

/// The columns of a query, in the order in which `bound` gives their values.
pub(crate) const COLUMNS: [&str; 33] = [
    "id",
    "\"user\"",
    "database",
    "protocol",
    "is_async",
    "state",
    "lane",
    "submitted",
    "started",
    "ended",
    "pieces_done",
    "pieces",
    "scan_bytes",
    "estimate",
    "decoded_bytes",
    "shared_bytes",
    "rows",
    "result_bytes",
    "expires",
    "error_code",
    "error",
    "row_limit",
    "time_limit",
    "dialect",
    "statement",
    "cached_from",
    "milestones",
    "warnings",
    "veiled",
    "epoch",
    "as_of",
    "recursion_depth",
    "group_concat_bytes",
];

/// Binds what is known of a query to a statement of `sqlx`, of either database.
macro_rules! bound {
    ($statement:expr, $query:expr) => {{
        use $crate::database::as_signed;
        let query = $query;
        $statement
            .bind(query.id as i64)
            .bind(&query.user)
            .bind(&query.database)
            .bind(query.protocol)
            .bind(i64::from(query.is_async))
            .bind(query.state.name())
            .bind(&query.lane)
            .bind(query.submitted)
            .bind(query.started)
            .bind(query.ended)
            .bind(query.pieces_done as i64)
            .bind(query.pieces as i64)
            .bind(query.scan_bytes as i64)
            .bind(query.estimate.map(|estimate| estimate as i64))
            .bind(query.decoded_bytes as i64)
            .bind(query.shared_bytes as i64)
            .bind(query.rows as i64)
            .bind(query.result_bytes as i64)
            .bind(query.expires)
            .bind(query.error_code.map(i64::from))
            .bind(&query.error)
            .bind(query.row_limit.map(|limit| limit as i64))
            .bind(query.time_limit.map(|limit| limit as i64))
            .bind(query.dialect.name())
            .bind(&query.statement)
            .bind(query.cached_from.map(|query| query as i64))
            .bind($crate::milestones::written(&query.milestones))
            .bind(query.warnings as i64)
            .bind(i64::from(query.is_veiled))
            .bind(query.epoch as i64)
            .bind(query.as_of)
            .bind(as_signed(query.limits.recursion_depth))
            .bind(as_signed(query.limits.group_concat_bytes))
    }};
}
pub(crate) use bound;

/// A number as the databases have it: one that is too large is as good as the largest.
pub(crate) fn as_signed(number: Option<u64>) -> Option<i64> {
    number.map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

static PUT: LazyLock<String> = LazyLock::new(|| {
    let values = ["?"; COLUMNS.len()].join(", ");
    let columns = COLUMNS.join(", ");
    format!("INSERT OR REPLACE INTO queries ({columns}) VALUES ({values})")
});

/// The open file.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    pool: SqlitePool,
}

impl Database {
    /// Opens the file, or makes it.
    pub(crate) async fn open(path: &Path) -> Result<Self, QueryError> {
        // The files that SQLite makes beside it get its mode.
        let made = catalog::writable_file().create(true).open(path);
        made.map_err(|error| {
            let sentence = format!("{} cannot be opened: {error}", path.display());
            QueryError::new(sql::ErrorCode::STORAGE, sentence)
        })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options)
            .await?;
        let database = Self { pool };
        database.migrate(path).await?;
        Ok(database)
    }

    async fn migrate(&self, path: &Path) -> Result<(), QueryError> {
        let mut connection = self.pool.acquire().await?;
        let version: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&mut *connection)
            .await?;
        let known = MIGRATIONS.len() as i64;
        if version > known {
            let sentence = format!(
                "{} is of a newer version of this program, {version} where this one knows {known}: use the newer one",
                path.display()
            );
            return Err(QueryError::new(sql::ErrorCode::STORAGE, sentence));
        }
        for (at, step) in MIGRATIONS.iter().enumerate().skip(version.max(0) as usize) {
            let mut transaction = connection.begin().await?;
            sqlx::raw_sql(*step).execute(&mut *transaction).await?;
            let set = format!("PRAGMA user_version = {}", at + 1);
            sqlx::raw_sql(sqlx::AssertSqlSafe(set))
                .execute(&mut *transaction)
                .await?;
            transaction.commit().await?;
        }
        Ok(())
    }

    /// Reserves numbers, which no process has had or will have.
    pub(crate) async fn reserve_numbers(&self) -> Result<std::ops::Range<u64>, QueryError> {
        let next: i64 = sqlx::query_scalar("UPDATE numbers SET next = next + ? RETURNING next")
            .bind(RESERVED as i64)
            .fetch_one(&self.pool)
            .await?;
        let next = next as u64;
        Ok(next - RESERVED..next)
    }

    /// Writes queries down, instead of what was known of them.
    pub(crate) async fn put(&self, queries: &[QueryRecord]) -> Result<(), QueryError> {
        let mut transaction = self.pool.begin().await?;
        for query in queries {
            bound!(sqlx::query(PUT.as_str()), query)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Forgets queries.
    pub(crate) async fn remove(&self, ids: &[u64]) -> Result<(), QueryError> {
        let mut transaction = self.pool.begin().await?;
        for id in ids {
            sqlx::query("DELETE FROM queries WHERE id = ?")
                .bind(*id as i64)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// All queries, by their numbers.
    pub(crate) async fn all(&self) -> Result<Vec<QueryRecord>, QueryError> {
        let rows = sqlx::query("SELECT * FROM queries ORDER BY id")
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
    }

    /// The first number that is not reserved.
    pub(crate) async fn next_number(&self) -> Result<u64, QueryError> {
        let next: i64 = sqlx::query_scalar("SELECT next FROM numbers")
            .fetch_one(&self.pool)
            .await?;
        Ok(next as u64)
    }

    /// Reserves all numbers below one.
    pub(crate) async fn set_next_number(&self, next: u64) -> Result<(), QueryError> {
        sqlx::query("UPDATE numbers SET next = ?")
            .bind(next as i64)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Closes the file.
    pub(crate) async fn close(self) {
        self.pool.close().await;
    }
}

/// A query as a row of either database has it.
pub(crate) fn record<'r, R: Row>(row: &'r R) -> Result<QueryRecord, sqlx::Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let number = |name: &'static str| -> Result<u64, sqlx::Error> {
        let value: i64 = row.try_get(name)?;
        Ok(value.max(0) as u64)
    };
    let optional = |name: &'static str| -> Result<Option<u64>, sqlx::Error> {
        let value: Option<i64> = row.try_get(name)?;
        Ok(value.map(|value| value.max(0) as u64))
    };
    let state: String = row.try_get("state")?;
    let protocol: String = row.try_get("protocol")?;
    let code: Option<i64> = row.try_get("error_code")?;
    let dialect: String = row.try_get("dialect")?;
    let milestones: String = row.try_get("milestones")?;
    Ok(QueryRecord {
        id: number("id")?,
        user: row.try_get("user")?,
        database: row.try_get("database")?,
        protocol: Protocol::of_name(&protocol).name(),
        is_async: number("is_async")? != 0,
        // A state of a later version: nothing is known of what it means.
        state: QueryState::of_name(&state).unwrap_or(QueryState::Aborted),
        lane: row.try_get("lane")?,
        submitted: row.try_get("submitted")?,
        started: row.try_get("started")?,
        ended: row.try_get("ended")?,
        pieces_done: number("pieces_done")?,
        pieces: number("pieces")?,
        scan_bytes: number("scan_bytes")?,
        estimate: optional("estimate")?,
        decoded_bytes: number("decoded_bytes")?,
        shared_bytes: number("shared_bytes")?,
        rows: number("rows")?,
        result_bytes: number("result_bytes")?,
        expires: row.try_get("expires")?,
        error_code: code.and_then(|code| u16::try_from(code).ok()),
        error: row.try_get("error")?,
        row_limit: optional("row_limit")?,
        time_limit: optional("time_limit")?,
        limits: StatementLimits {
            recursion_depth: optional("recursion_depth")?,
            group_concat_bytes: optional("group_concat_bytes")?,
        },
        as_of: row.try_get("as_of")?,
        dialect: dialect
            .parse()
            .map_err(|sentence: String| sqlx::Error::Decode(sentence.into()))?,
        statement: row.try_get("statement")?,
        cached_from: optional("cached_from")?,
        milestones: milestones::read(&milestones).into(),
        warnings: number("warnings")?,
        is_veiled: number("veiled")? != 0,
        front_end: 0,
        epoch: number("epoch")?,
    })
}

#[cfg(test)]
mod tests {
    use sql::Dialect;

    use super::*;

    /// A file of before queries had dialects is brought up to date, and its queries are in MySQL's.
    #[tokio::test]
    async fn files_of_the_first_version_are_brought_up_to_date() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("queries.sqlite");
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let statements = [
            MIGRATIONS[0],
            "INSERT INTO queries (id, user, protocol, is_async, state, submitted, statement) \
             VALUES (1000001, 'ann', 'MYSQL', 1, 'QUEUED', 5, 'SELECT 1')",
            "PRAGMA user_version = 1",
        ];
        for statement in statements {
            sqlx::raw_sql(statement).execute(&pool).await.unwrap();
        }
        pool.close().await;
        let database = Database::open(&path).await.unwrap();
        let [mut query] = <[_; 1]>::try_from(database.all().await.unwrap()).unwrap();
        assert_eq!(
            (query.dialect, query.statement.as_str()),
            (Dialect::MySql, "SELECT 1")
        );
        assert_eq!((query.as_of, query.limits), (None, Default::default()));
        (query.dialect, query.as_of) = (Dialect::Adql, Some(-5));
        query.limits = StatementLimits {
            recursion_depth: Some(0),
            group_concat_bytes: Some(4),
        };
        database.put(std::slice::from_ref(&query)).await.unwrap();
        assert_eq!(database.all().await.unwrap(), [query]);
    }
}
