//! PostgreSQL: a schema of a database, written into by the one server that holds its advisory lock.

use std::ops::DerefMut;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, PgPool, Postgres, Row};
use tokio::time::{Instant, sleep};

use super::hosts::{Hosts, takes_changes};
use super::{
    Connection, Kind, LONGEST_TURN, ROWS, Store, StoreTurn, TURN_LOOK, Values, count_found, first,
};
use crate::error::{AlertsError, Result};

const READERS: u32 = 8;
const IS_PRIMARY: &str = "SELECT NOT pg_is_in_recovery()";
/// How long a reader waits for a connection before another server is tried, where there are several.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Every statement here looks a few given rows up in an index. Without statistics, or with those of an hour ago, PostgreSQL may take the
/// whole table instead.
const OF_SESSIONS: [(&str, &str); 4] = [
    // What is acknowledged is on the disk of the standby as well, where the server names one, whatever its configuration says of others.
    ("synchronous_commit", "on"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
];

/// A schema of a database.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    name: String,
    schema: String,
    hosts: Hosts,
    readers: PgPool,
}

impl PostgresStore {
    /// Of a database at a URL. The schema is made if it is not there.
    pub(crate) async fn open(name: &str, url: &str) -> Result<Self> {
        let schema = format!("meridian_{}", name.to_lowercase());
        let hosts = Hosts::of(url, |options| {
            options
                .application_name("meridian")
                .options(OF_SESSIONS)
                .options([("search_path", schema.as_str())])
                .statement_cache_capacity(500)
        })?;
        let mut pool = PgPoolOptions::new().max_connections(READERS);
        if hosts.are_several() {
            // What is read of a server that has become a standby would be of the past.
            pool = pool
                .test_before_acquire(false)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .before_acquire(|connection, _| Box::pin(takes_changes(connection)));
        }
        Ok(Self {
            name: name.to_owned(),
            readers: pool.connect_lazy_with(hosts.present()),
            hosts,
            schema,
        })
    }
}

impl PostgresStore {
    /// What `get` gets of the readers' connections, at the server that takes what is stored: what is read of a standby may be of the past.
    async fn at_primary<C>(
        &self,
        get: impl Fn() -> BoxFuture<'static, sqlx::Result<C>> + Send + Sync,
    ) -> Result<C>
    where
        C: DerefMut<Target = PgConnection> + Send,
    {
        if !self.hosts.are_several() {
            return Ok(get().await?);
        }
        if let Ok(mut found) = get().await
            && matches!(is_so(&mut found, IS_PRIMARY.to_owned()).await, Ok(true))
        {
            return Ok(found);
        }
        // Another one may have taken its place. Connections to it that are kept are given up as they are found.
        self.hosts.connect().await?;
        self.readers.set_connect_options(self.hosts.present());
        let mut found = get().await?;
        match is_so(&mut found, IS_PRIMARY.to_owned()).await? {
            true => Ok(found),
            false => Err(sqlx::Error::Io(std::io::Error::other(
                "the PostgreSQL server has become a standby just now",
            ))
            .into()),
        }
    }
}

/// The advisory locks of a schema: that of its writer, and that of whoever has a turn at being it.
const WRITER: i64 = 28;
const TURN: i64 = 29;

impl PostgresStore {
    /// The key of an advisory lock. The name of a database here has letters, digits and underscores alone.
    fn key(&self, lock: i64) -> String {
        format!("hashtextextended('{}', {lock})", self.schema)
    }
}

/// A connection that only reads a database of somebody else's.
pub(crate) async fn open_foreign(options: PgConnectOptions) -> Result<Box<dyn Connection>> {
    let options = options
        .application_name("meridian")
        .options([("default_transaction_read_only", "on")]);
    Ok(Box::new(Handle(Box::new(options.connect().await?))))
}

#[async_trait]
impl Store for PostgresStore {
    async fn writer(&self) -> Result<Box<dyn Connection>> {
        let mut connection = self.hosts.connect().await?;
        let lock = format!("SELECT pg_try_advisory_lock({})", self.key(WRITER));
        if !is_so(&mut connection, lock).await? {
            let name = self.name.clone();
            return Err(AlertsError::InUse { name });
        }
        run(
            &mut connection,
            &format!("CREATE SCHEMA IF NOT EXISTS {}", self.schema),
        )
        .await?;
        Ok(Box::new(Handle(Box::new(connection))))
    }

    async fn reader(&self) -> Result<Box<dyn Connection>> {
        let readers = self.readers.clone();
        let get = move || {
            let readers = readers.clone();
            async move { readers.acquire().await }.boxed()
        };
        Ok(Box::new(Handle(self.at_primary(get).await?)))
    }

    async fn snapshot(&self) -> Result<Box<dyn Connection>> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let readers = self.readers.clone();
        let get = move || {
            let readers = readers.clone();
            async move { readers.begin_with(begin).await }.boxed()
        };
        let transaction = self.at_primary(get).await?;
        Ok(Box::new(Handle(transaction)))
    }

    async fn turn(&self) -> Result<Box<dyn StoreTurn>> {
        let mut connection = self.hosts.connect().await?;
        let lock = format!("SELECT pg_try_advisory_lock({})", self.key(TURN));
        let give_up = Instant::now() + LONGEST_TURN;
        while !is_so(&mut connection, lock.clone()).await? {
            if Instant::now() > give_up {
                let name = self.name.clone();
                return Err(AlertsError::InUse { name });
            }
            sleep(TURN_LOOK).await;
        }
        Ok(Box::new(LockTurn {
            _connection: connection,
        }))
    }

    async fn is_wanted(&self, connection: &mut dyn Connection) -> Result<bool> {
        // Those who look do not see each other.
        let key = self.key(TURN);
        let look = format!(
            "SELECT CASE WHEN pg_try_advisory_lock_shared({key}) THEN CASE WHEN pg_advisory_unlock_shared({key}) THEN 0 ELSE 1 END ELSE 1 END::bigint"
        );
        let found = connection.fetch(&look, &[], &[Kind::Int]).await?;
        Ok(first(found).into_ints().first() == Some(&Some(1)))
    }
}

/// A connection with the lock of a turn, which ends with it.
struct LockTurn {
    _connection: PgConnection,
}

impl StoreTurn for LockTurn {}

/// What a statement says of one truth.
async fn is_so(connection: &mut PgConnection, statement: String) -> Result<bool> {
    let found = sqlx::query_scalar(AssertSqlSafe(statement));
    Ok(found.fetch_one(connection).await?)
}

struct Handle<C>(C);

#[async_trait]
impl<C: DerefMut<Target = PgConnection> + Send> Connection for Handle<C> {
    async fn change(&mut self, statement: &str, rows: &[Values]) -> Result<u64> {
        change(&mut self.0, statement, rows).await
    }

    async fn fetch(
        &mut self,
        statement: &str,
        rows: &[Values],
        kinds: &[Kind],
    ) -> Result<Vec<Values>> {
        fetch(&mut self.0, statement, rows, kinds).await
    }

    async fn run(&mut self, statements: &str) -> Result<()> {
        run(&mut self.0, statements).await
    }
}

async fn change(connection: &mut PgConnection, statement: &str, rows: &[Values]) -> Result<u64> {
    if rows.first().is_none_or(|values| values.len() == 0) {
        return Ok(0);
    }
    let query = sqlx::query(AssertSqlSafe(with_rows(statement, rows)));
    Ok(bound(query, rows)
        .execute(connection)
        .await?
        .rows_affected())
}

async fn fetch(
    connection: &mut PgConnection,
    statement: &str,
    rows: &[Values],
    kinds: &[Kind],
) -> Result<Vec<Values>> {
    let mut rows_found = 0;
    let mut found: Vec<Values> = kinds.iter().map(|&kind| Values::empty(kind)).collect();
    if statement.contains(ROWS) && rows.first().is_none_or(|values| values.len() == 0) {
        return Ok(found);
    }
    let query = sqlx::query(AssertSqlSafe(with_rows(statement, rows)));
    let mut stream = bound(query, rows).fetch(connection);
    while let Some(row) = stream.try_next().await? {
        count_found(&mut rows_found)?;
        for (at, values) in found.iter_mut().enumerate() {
            match values {
                Values::Int(values) => values.push(row.try_get(at)?),
                Values::Real(values) => values.push(row.try_get(at)?),
                Values::Bytes(values) => values.push(row.try_get(at)?),
                Values::Text(values) => values.push(row.try_get(at)?),
            }
        }
    }
    Ok(found)
}

async fn run(connection: &mut PgConnection, statements: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(connection)
        .await?;
    Ok(())
}

fn with_rows(statement: &str, rows: &[Values]) -> String {
    let arrays = rows.iter().enumerate().map(|(at, values)| {
        let array = match values {
            Values::Int(_) => "bigint",
            Values::Real(_) => "double precision",
            Values::Bytes(_) => "bytea",
            Values::Text(_) => "text",
        };
        format!("${}::{array}[]", at + 1)
    });
    let arrays = arrays.collect::<Vec<_>>().join(", ");
    statement.replace(ROWS, &format!("SELECT * FROM unnest({arrays})"))
}

fn bound<'q>(
    mut query: Query<'q, Postgres, PgArguments>,
    rows: &'q [Values],
) -> Query<'q, Postgres, PgArguments> {
    for values in rows {
        query = match values {
            Values::Int(values) => query.bind(values.as_slice()),
            Values::Real(values) => query.bind(values.as_slice()),
            Values::Bytes(values) => query.bind(values.as_slice()),
            Values::Text(values) => query.bind(values.as_slice()),
        };
    }
    query
}
