//! The queries that several front ends share: tables in the schema of a catalog in PostgreSQL.
//!
//! Invariants: a query is written by the front end that its row names, while that has a row of its own, or ended and removed by anybody; what has ended
//! does not change. Whoever changes something raises the number of changes first and so waits for others: front ends that ask for what
//! has changed since a number miss nothing.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use catalog::{CatalogError, SharedDatabase, since_boot};
use engine::{EngineError, QueryState};
use sql::ErrorCode;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row};

use crate::QueryError;
use crate::database::{COLUMNS, Database, bound, record};
use crate::lease::{Lease, TERM};
use crate::record::{QueryRecord, now};
use crate::registry::lock;

const SCHEMA: &str = include_str!("../migrations/shared.sql");
/// Each adds what tables of one version lack, from the first one on.
const STEPS: [&str; 2] = [
    include_str!("../migrations/shared_2_as_of.sql"),
    include_str!("../migrations/shared_3_statement_limits.sql"),
];
const VERSION: i64 = 1 + STEPS.len() as i64;
/// The first number, and how many a front end reserves at a time.
const FIRST_NUMBER: u64 = 1_000_001;
const RESERVED: u64 = 1_000_000;
/// After what time without a look a front end reads everything anew: queries that were removed are known for an hour.
const FORGETFUL: Duration = Duration::from_secs(1800);
/// That a query waits or runs.
const ACTIVE: &str = "state IN ('QUEUED', 'EXECUTING') AND removed_at IS NULL";

/// Writes a new query down, if the front end has a row.
static INSERT: LazyLock<String> = LazyLock::new(|| {
    let places: Vec<String> = (1..=COLUMNS.len()).map(|at| format!("${at}")).collect();
    let (values, columns) = (places.join(", "), COLUMNS.join(", "));
    let (front_end, changed) = (COLUMNS.len() + 1, COLUMNS.len() + 2);
    format!(
        "INSERT INTO queries ({columns}, front_end, changed) SELECT {values}, ${front_end}, ${changed} \
         WHERE EXISTS (SELECT 1 FROM query_front_ends WHERE id = ${front_end})"
    )
});
static INSERT_NEW: LazyLock<String> =
    LazyLock::new(|| format!("{} ON CONFLICT (id) DO NOTHING", *INSERT));
/// The same for one that may be there: then the row must be the front end's still, and not have ended.
static PUT: LazyLock<String> = LazyLock::new(|| {
    let sets = COLUMNS.map(|column| format!("{column} = excluded.{column}"));
    format!(
        "{} ON CONFLICT (id) DO UPDATE SET {}, changed = excluded.changed \
         WHERE queries.front_end = excluded.front_end AND queries.epoch = excluded.epoch \
         AND queries.removed_at IS NULL AND queries.state IN ('QUEUED', 'EXECUTING')",
        *INSERT,
        sets.join(", ")
    )
});
/// Writes a query down that was in a file.
static IMPORT: LazyLock<String> = LazyLock::new(|| {
    let places: Vec<String> = (1..=COLUMNS.len()).map(|at| format!("${at}")).collect();
    let (values, columns) = (places.join(", "), COLUMNS.join(", "));
    format!("INSERT INTO queries ({columns}, front_end, changed) VALUES ({values}, 0, 1)")
});
static CHANGES: &str = "SELECT *, (removed_at IS NOT NULL)::int::bigint AS is_removed FROM queries \
     WHERE changed > $1 ORDER BY changed, id";
static END: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE queries SET state = $2, ended = $3, error_code = $4, error = $5, changed = $6 WHERE id = $1 AND {ACTIVE}"
    )
});
static IS_ORPHANED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT EXISTS (SELECT 1 FROM query_front_ends WHERE expires_at < now() AND id <> $1) \
         OR EXISTS (SELECT 1 FROM queries WHERE {ACTIVE} \
         AND NOT EXISTS (SELECT 1 FROM query_front_ends f WHERE f.id = queries.front_end))"
    )
});
static TAKE_OVER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE queries SET front_end = $1, epoch = epoch + 1, state = 'QUEUED', changed = $2 WHERE is_async = 1 AND {ACTIVE} \
         AND NOT EXISTS (SELECT 1 FROM query_front_ends f WHERE f.id = queries.front_end) RETURNING *"
    )
});
static ABORT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE queries SET state = 'ABORTED', ended = $1, error_code = $2, error = $3, changed = $4 WHERE is_async = 0 AND {ACTIVE} \
         AND NOT EXISTS (SELECT 1 FROM query_front_ends f WHERE f.id = queries.front_end)"
    )
});
static COUNT_OF_USER: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT count(*) FROM queries WHERE \"user\" = $1 AND is_async = 1 AND {ACTIVE}")
});

/// The tables.
#[derive(Debug)]
pub(crate) struct SharedQueries {
    pub database: SharedDatabase,
    lease: Mutex<Arc<Lease>>,
    /// Held by whoever changes what is known here of queries that others change, too. It is waited for in
    /// [`SharedDatabase::run`] alone.
    pub known: tokio::sync::Mutex<ListPosition>,
}

/// Up to where the list is known.
#[derive(Debug, Default)]
pub(crate) struct ListPosition {
    /// All changes up to this one.
    changes: i64,
    /// When the database was last asked, by [`since_boot`].
    pub asked: Duration,
}

/// What has changed.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Whether it is everything that there is.
    pub is_all: bool,
    pub queries: Vec<QueryRecord>,
    pub removed: Vec<u64>,
}

/// What became of a query that was to be written down as submitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
    Done,
    /// The user has so many already.
    AtLimit(u64),
    /// There is one of the number.
    Known,
    /// This front end has lost its lease.
    NoLease,
}

impl SharedQueries {
    /// Opens the tables, or makes them; `None` if the catalog of the data directory is not in PostgreSQL. Queries that were in a file
    /// before come with it.
    pub(crate) async fn open(data_dir: &Path) -> Result<Option<Self>, QueryError> {
        let Some(database) = SharedDatabase::of(data_dir).await? else {
            return Ok(None);
        };
        if database
            .run(|pool| async move { version(&pool).await })
            .await?
            .is_none()
        {
            let (queries, next) = of_file(data_dir).await?;
            let make = move |pool: PgPool| async move { make(&pool, &queries, next).await };
            database.run(make).await?;
        }
        database
            .run(|pool| async move { migrate(&pool).await })
            .await?;
        let version = database
            .run(|pool| async move { version(&pool).await })
            .await?;
        if let Some(version) = version.filter(|version| *version > VERSION) {
            let sentence = format!(
                "the list of queries in PostgreSQL is of a newer version of this program, {version} where this one knows {VERSION}: use the newer one"
            );
            return Err(QueryError::new(ErrorCode::STORAGE, sentence));
        }
        let lease = join(&database).await?;
        Ok(Some(Self {
            database,
            lease: Mutex::new(Arc::new(lease)),
            known: tokio::sync::Mutex::default(),
        }))
    }

    /// The lease on the queries that this front end runs.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&lock(&self.lease))
    }

    /// Gets another lease when the former one is lost.
    pub(crate) async fn join_again(&self) -> Result<(), QueryError> {
        let lease = join(&self.database).await?;
        *lock(&self.lease) = Arc::new(lease);
        Ok(())
    }

    /// Renews the lease; `false` if somebody has ended it.
    pub(crate) async fn renew(&self, lease: &Lease) -> Result<bool, QueryError> {
        let (asked, front_end) = (since_boot(), lease.front_end as i64);
        let renew = move |pool: PgPool| async move {
            let renewed = "UPDATE query_front_ends SET expires_at = now() + make_interval(secs => $2) WHERE id = $1";
            let renewed = sqlx::query(renewed).bind(front_end).bind(TERM);
            Ok(renewed.execute(&pool).await?.rows_affected() > 0)
        };
        let is_renewed = self.database.run(renew).await?;
        if is_renewed {
            lease.renewed(asked);
        }
        Ok(is_renewed)
    }

    /// Ends the lease: others take over what waits.
    pub(crate) async fn leave(&self) -> Result<(), QueryError> {
        let front_end = self.lease().front_end as i64;
        self.lease().lost.cancel();
        let leave = move |pool: PgPool| async move {
            sqlx::query("DELETE FROM query_front_ends WHERE id = $1")
                .bind(front_end)
                .execute(&pool)
                .await
        };
        self.database.run(leave).await?;
        Ok(())
    }

    /// Reserves numbers, which no process has had or will have.
    pub(crate) async fn reserve_numbers(&self) -> Result<Range<u64>, QueryError> {
        let reserve = |pool: PgPool| async move {
            sqlx::query_scalar::<_, i64>(
                "UPDATE query_settings SET next_number = next_number + $1 RETURNING next_number",
            )
            .bind(RESERVED as i64)
            .fetch_one(&pool)
            .await
        };
        let next = self.database.run(reserve).await? as u64;
        Ok(next - RESERVED..next)
    }

    /// Writes queries of this front end down, instead of what was known of them. Gives those that were written: the others are another
    /// front end's by now, or have been ended or removed.
    pub(crate) async fn put(&self, queries: Vec<QueryRecord>) -> Result<Vec<u64>, QueryError> {
        let put = |pool: PgPool| async move {
            let mut change = pool.begin().await?;
            let number = begin_change(&mut change).await?;
            let mut written = Vec::new();
            for query in queries.into_iter().map(as_text) {
                let put = bound!(sqlx::query(PUT.as_str()), &query);
                let put = put.bind(query.front_end as i64).bind(number);
                if put.execute(&mut *change).await?.rows_affected() > 0 {
                    written.push(query.id);
                }
            }
            change.commit().await?;
            Ok(written)
        };
        Ok(self.database.run(put).await?)
    }

    /// Ends a query that waits or runs, at whichever front end; `false` if there is none of the number.
    pub(crate) async fn end(
        &self,
        id: u64,
        state: QueryState,
        error: QueryError,
    ) -> Result<bool, QueryError> {
        let end = move |pool: PgPool| async move {
            let mut change = pool.begin().await?;
            let number = begin_change(&mut change).await?;
            let ended = sqlx::query(END.as_str())
                .bind(id as i64)
                .bind(state.name())
                .bind(now())
                .bind(i64::from(error.code.number))
                .bind(error.sentence)
                .bind(number)
                .execute(&mut *change)
                .await?;
            change.commit().await?;
            Ok(ended.rows_affected() > 0)
        };
        Ok(self.database.run(end).await?)
    }

    /// Removes a query that has ended.
    pub(crate) async fn remove(&self, id: u64) -> Result<(), QueryError> {
        let remove = move |pool: PgPool| async move {
            let mut change = pool.begin().await?;
            let number = begin_change(&mut change).await?;
            sqlx::query(
                "UPDATE queries SET removed_at = now(), statement = '', milestones = '', error = NULL, changed = $2 \
                 WHERE id = $1 AND removed_at IS NULL AND state NOT IN ('QUEUED', 'EXECUTING')",
            )
            .bind(id as i64)
            .bind(number)
            .execute(&mut *change)
            .await?;
            sqlx::query("DELETE FROM queries WHERE removed_at < now() - interval '1 hour'")
                .execute(&mut *change)
                .await?;
            change.commit().await
        };
        Ok(self.database.run(remove).await?)
    }

    /// Whether there are queries of a front end that is gone.
    pub(crate) async fn are_orphaned(&self) -> Result<bool, QueryError> {
        let front_end = self.lease().front_end as i64;
        let look = move |pool: PgPool| async move {
            sqlx::query_scalar(IS_ORPHANED.as_str())
                .bind(front_end)
                .fetch_one(&pool)
                .await
        };
        Ok(self.database.run(look).await?)
    }
}

/// Writes a submitted query down. Of a user who may have so many at a time, no more than these wait or run.
pub(crate) async fn insert(
    pool: &PgPool,
    query: &QueryRecord,
    most: Option<u64>,
) -> Result<Insertion, sqlx::Error> {
    let mut change = pool.begin().await?;
    let number = begin_change(&mut change).await?;
    if let Some(most) = most {
        let taken: i64 = sqlx::query_scalar(COUNT_OF_USER.as_str())
            .bind(&query.user)
            .fetch_one(&mut *change)
            .await?;
        if taken as u64 >= most {
            return Ok(Insertion::AtLimit(taken as u64));
        }
    }
    let inserted = bound!(sqlx::query(INSERT_NEW.as_str()), query)
        .bind(query.front_end as i64)
        .bind(number)
        .execute(&mut *change)
        .await?;
    if inserted.rows_affected() == 0 {
        return Ok(match is_there(&mut change, query.front_end).await? {
            true => Insertion::Known,
            false => Insertion::NoLease,
        });
    }
    change.commit().await?;
    Ok(Insertion::Done)
}

/// What has changed since the last look.
pub(crate) async fn changes(
    pool: &PgPool,
    known: &mut ListPosition,
) -> Result<Changes, sqlx::Error> {
    let asked = since_boot();
    let is_all = known.changes == 0 || asked.saturating_sub(known.asked) > FORGETFUL;
    let since = if is_all { 0 } else { known.changes };
    let rows = sqlx::query(CHANGES).bind(since).fetch_all(pool).await?;
    let mut found = Changes {
        is_all,
        queries: Vec::new(),
        removed: Vec::new(),
    };
    let mut last = since;
    for row in &rows {
        let query = owned(row)?;
        last = last.max(row.try_get("changed")?);
        match row.try_get::<i64, _>("is_removed")? {
            0 => found.queries.push(query),
            _ => found.removed.push(query.id),
        }
    }
    *known = ListPosition {
        changes: last.max(known.changes),
        asked,
    };
    Ok(found)
}

/// Takes over the submitted queries of front ends that are gone, and of one more; `None` if this front end is itself one of them.
pub(crate) async fn take_over(
    pool: &PgPool,
    front_end: u64,
    former: Option<u64>,
) -> Result<Option<Vec<QueryRecord>>, sqlx::Error> {
    let mut change = pool.begin().await?;
    let number = begin_change(&mut change).await?;
    if !is_there(&mut change, front_end).await? {
        return Ok(None);
    }
    sqlx::query("DELETE FROM query_front_ends WHERE id <> $1 AND (expires_at < now() OR id = $2)")
        .bind(front_end as i64)
        .bind(former.map(|it| it as i64))
        .execute(&mut *change)
        .await?;
    let rows = sqlx::query(TAKE_OVER.as_str())
        .bind(front_end as i64)
        .bind(number)
        .fetch_all(&mut *change)
        .await?;
    sqlx::query(ABORT.as_str())
        .bind(now())
        .bind(i64::from(ErrorCode::SERVER_ENDS.number))
        .bind("the server ended while the query ran")
        .bind(number)
        .execute(&mut *change)
        .await?;
    change.commit().await?;
    let mut taken = rows.iter().map(owned).collect::<Result<Vec<_>, _>>()?;
    taken.sort_by_key(|query| query.id);
    Ok(Some(taken))
}

/// Copies the queries of a data directory whose catalog is in PostgreSQL into a file, for a server that finds its catalog in SQLite.
///
/// # Errors
/// They cannot be read, or the file cannot be written.
pub async fn copy_to_file(data_dir: &Path) -> Result<(), QueryError> {
    let Some(database) = SharedDatabase::of(data_dir).await? else {
        return Ok(());
    };
    let copied = copy_from(&database, data_dir).await;
    // Whoever moves the catalog sees that nobody else is connected.
    database.close().await;
    copied
}

async fn copy_from(database: &SharedDatabase, data_dir: &Path) -> Result<(), QueryError> {
    let read = |pool: PgPool| async move {
        if version(&pool).await?.is_none() {
            return Ok(None);
        }
        migrate(&pool).await?;
        let next: i64 = sqlx::query_scalar("SELECT next_number FROM query_settings")
            .fetch_one(&pool)
            .await?;
        let queries = changes(&pool, &mut ListPosition::default()).await?.queries;
        Ok(Some((queries, next as u64)))
    };
    // No server has ever opened it.
    let Some((queries, next)) = database.run(read).await? else {
        return Ok(());
    };
    let directory = data_dir.join("queries");
    let failed = |error: std::io::Error| {
        let sentence = format!("{} cannot be written: {error}", directory.display());
        QueryError::new(ErrorCode::STORAGE, sentence)
    };
    catalog::make_directories(&directory).map_err(failed)?;
    let (path, made) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
    for ending in ["", "-wal", "-shm"] {
        remove_if_there(&directory.join(format!("{FILE}.new{ending}"))).map_err(failed)?;
    }
    let file = Database::open(&made).await?;
    file.put(&queries).await?;
    file.set_next_number(next).await?;
    file.close().await;
    for ending in ["-wal", "-shm"] {
        remove_if_there(&directory.join(format!("{FILE}{ending}"))).map_err(failed)?;
    }
    std::fs::rename(made, path).map_err(failed)
}

/// The file's name.
pub(crate) const FILE: &str = "queries.sqlite";

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What the file of a data directory has whose catalog was in SQLite: the queries, and the first number that is free.
async fn of_file(data_dir: &Path) -> Result<(Vec<QueryRecord>, u64), QueryError> {
    let path = data_dir.join("queries").join(FILE);
    if !path.exists() {
        return Ok((Vec::new(), FIRST_NUMBER));
    }
    let file = Database::open(&path).await?;
    let found = (file.all().await?, file.next_number().await?);
    file.close().await;
    Ok(found)
}

/// Makes the tables, unless somebody else has made them meanwhile.
async fn make(pool: &PgPool, queries: &[QueryRecord], next: u64) -> Result<(), sqlx::Error> {
    let mut change = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 10))")
        .execute(&mut *change)
        .await?;
    if version_in(&mut change).await?.is_some() {
        return Ok(());
    }
    sqlx::raw_sql(SCHEMA).execute(&mut *change).await?;
    sqlx::query(
        "INSERT INTO query_settings (id, version, next_number, changes) VALUES (1, $1, $2, 1)",
    )
    .bind(VERSION)
    .bind(next as i64)
    .execute(&mut *change)
    .await?;
    for query in queries.iter().cloned().map(as_text) {
        bound!(sqlx::query(IMPORT.as_str()), &query)
            .execute(&mut *change)
            .await?;
    }
    change.commit().await
}

/// Brings tables of an earlier version up to date.
async fn migrate(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut change = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 10))")
        .execute(&mut *change)
        .await?;
    if let Some(version) = version_in(&mut change).await? {
        let known = usize::try_from(version - 1).unwrap_or(STEPS.len());
        for step in STEPS.iter().skip(known) {
            sqlx::raw_sql(*step).execute(&mut *change).await?;
        }
    }
    change.commit().await
}

async fn version(pool: &PgPool) -> Result<Option<i64>, sqlx::Error> {
    version_in(&mut *pool.acquire().await?).await
}

async fn version_in(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let is_made: bool = sqlx::query_scalar("SELECT to_regclass('query_settings') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !is_made {
        return Ok(None);
    }
    sqlx::query_scalar("SELECT version FROM query_settings")
        .fetch_optional(connection)
        .await
}

async fn join(database: &SharedDatabase) -> Result<Lease, QueryError> {
    let asked = since_boot();
    let join = |pool: PgPool| async move {
        sqlx::query_scalar::<_, i64>(
            "INSERT INTO query_front_ends (name, expires_at) VALUES ($1, now() + make_interval(secs => $2)) RETURNING id",
        )
        .bind(format!("{} {}", catalog::host_name(), std::process::id()))
        .bind(TERM)
        .fetch_one(&pool)
        .await
    };
    let front_end = database.run(join).await?;
    Ok(Lease::new(front_end as u64, asked))
}

/// Waits for the changes of others, and gives this one a number.
async fn begin_change(change: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("UPDATE query_settings SET changes = changes + 1 RETURNING changes")
        .fetch_one(change)
        .await
}

async fn is_there(change: &mut PgConnection, front_end: u64) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM query_front_ends WHERE id = $1)")
        .bind(front_end as i64)
        .fetch_one(change)
        .await
}

fn owned(row: &PgRow) -> Result<QueryRecord, sqlx::Error> {
    let front_end: i64 = row.try_get("front_end")?;
    Ok(QueryRecord {
        front_end: front_end as u64,
        ..record(row)?
    })
}

/// A query whose texts PostgreSQL takes: it has no character of number 0. Statements with one are not submitted.
fn as_text(mut query: QueryRecord) -> QueryRecord {
    let texts = [&mut query.statement, &mut query.user];
    let texts = texts
        .into_iter()
        .chain(&mut query.error)
        .chain(&mut query.database);
    for text in texts.filter(|text| text.contains('\0')) {
        *text = text.replace('\0', "\u{fffd}");
    }
    query
}

/// The tables cannot be used.
impl From<CatalogError> for QueryError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Backend(error) => error.into(),
            error => EngineError::from(error).into(),
        }
    }
}
