//! The file with the users: `users.sqlite` of the data directory.
//!
//! It is not in write-ahead mode: each change raises SQLite's count of changes in the file itself, where other processes see it.

use std::fmt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Rights, fold_name};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};

use crate::secret::{Secret, Token};
use crate::{Limit, Limits, PUBLIC, User, UserList, UsersError, UsersState, now};

const VERSION: i64 = 3;
/// The name under which the limits of everybody are stored.
const EVERYBODY: &str = "";
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Of the file: hashes of passwords are for nobody else.
const MODE: u32 = 0o600;

const SCHEMA: &str = "
CREATE TABLE users (
    name TEXT NOT NULL PRIMARY KEY,
    folded TEXT NOT NULL UNIQUE,
    password TEXT,
    challenge BLOB,
    is_admin INTEGER NOT NULL,
    created INTEGER NOT NULL
) STRICT;
CREATE TABLE grants (
    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    database TEXT NOT NULL,
    -- Empty for all tables of the database.
    table_name TEXT NOT NULL,
    PRIMARY KEY (user, database, table_name)
) STRICT;
CREATE TABLE tokens (
    hash BLOB NOT NULL PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT;
PRAGMA user_version = 1;
";

/// What version 2 has more: limits, of a user or, under an empty name, of everybody.
const LIMITS: &str = "
CREATE TABLE limits (
    user TEXT NOT NULL,
    name TEXT NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (user, name)
) STRICT;
PRAGMA user_version = 2;
";

/// What version 3 has more: what everybody may read.
const PUBLIC_GRANTS: &str = "
CREATE TABLE public_grants (
    database TEXT NOT NULL,
    table_name TEXT NOT NULL,
    PRIMARY KEY (database, table_name)
) STRICT;
PRAGMA user_version = 3;
";

/// The right to read a database, or one table of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The database's folded name.
    pub database: String,
    /// The table's folded name; `None` for all tables.
    pub table: Option<String>,
}

impl Grant {
    /// Of names as they are written.
    pub fn new(database: &str, table: Option<&str>) -> Self {
        Self {
            database: fold_name(database),
            table: table.map(fold_name),
        }
    }

    fn stored_table(&self) -> &str {
        self.table.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Some(table) => write!(f, "{}.{table}", self.database),
            None => f.write_str(&self.database),
        }
    }
}

type Result<T> = std::result::Result<T, UsersError>;

/// Carries the file's path into an error of SQLite's.
fn failed(path: &Path) -> impl Fn(sqlx::Error) -> UsersError {
    let path = path.to_owned();
    move |source| UsersError::Database {
        path: path.clone(),
        source,
    }
}

/// Opens the file, which is made if it is not there.
pub(crate) async fn open(path: &Path) -> Result<Opened> {
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(path);
    made.map_err(|source| UsersError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    connect(path, false).await
}

/// Opens the file to change a user, who cannot be there if it is not.
pub(crate) async fn open_existing(path: &Path, name: &str) -> Result<Opened> {
    match path.try_exists() {
        Ok(false) => Err(UsersError::NoUser {
            name: name.to_owned(),
        }),
        _ => connect(path, false).await,
    }
}

/// A connection to the file.
pub(crate) struct Opened {
    connection: SqliteConnection,
    path: std::path::PathBuf,
}

async fn connect(path: &Path, read_only: bool) -> Result<Opened> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(read_only)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true);
    let options = match read_only {
        true => options,
        false => options
            .journal_mode(SqliteJournalMode::Delete)
            .synchronous(SqliteSynchronous::Full),
    };
    let mut connection = options.connect().await.map_err(failed(path))?;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut connection)
        .await
        .map_err(failed(path))?;
    if version > VERSION {
        return Err(UsersError::Newer {
            path: path.to_owned(),
            found: version,
            known: VERSION,
        });
    }
    if version < VERSION && !read_only {
        migrate(&mut connection).await.map_err(failed(path))?;
    }
    Ok(Opened {
        connection,
        path: path.to_owned(),
    })
}

/// Makes the tables of this version, in a file that is new or of a former one.
async fn migrate(connection: &mut SqliteConnection) -> std::result::Result<(), sqlx::Error> {
    let mut change = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Another process may have done it meanwhile.
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *change)
        .await?;
    for (made, tables) in [(1, SCHEMA), (2, LIMITS), (3, PUBLIC_GRANTS)] {
        if version < made {
            sqlx::raw_sql(tables).execute(&mut *change).await?;
        }
    }
    change.commit().await
}

/// Whether the file has a table: one that is just made, or of a former version, may not.
async fn has_table(
    connection: &mut SqliteConnection,
    name: &str,
) -> std::result::Result<bool, sqlx::Error> {
    let found: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = ?")
        .bind(name)
        .fetch_one(connection)
        .await?;
    Ok(found > 0)
}

/// Reads all users.
pub(crate) async fn list(path: &Path, state: UsersState) -> Result<UserList> {
    let mut opened = connect(path, true).await?;
    let mut reading = opened.connection.begin().await.map_err(failed(path))?;
    let mut list = UserList::empty(state);
    let exists = has_table(&mut reading, "users").await;
    if !exists.map_err(failed(path))? {
        // Whoever makes the file has not come further.
        return Ok(list);
    }
    let mut users: Vec<User> = Vec::new();
    let rows =
        sqlx::query("SELECT name, password, challenge, is_admin, created FROM users ORDER BY name")
            .fetch_all(&mut *reading)
            .await
            .map_err(failed(path))?;
    for row in rows {
        let challenge: Option<Vec<u8>> = row.try_get("challenge").map_err(failed(path))?;
        users.push(User {
            name: row.try_get("name").map_err(failed(path))?,
            password: row.try_get("password").map_err(failed(path))?,
            challenge: challenge.and_then(|bytes| bytes.try_into().ok()),
            is_admin: row.try_get("is_admin").map_err(failed(path))?,
            created: row.try_get("created").map_err(failed(path))?,
            grants: Vec::new(),
            rights: Arc::new(Rights::none()),
            tokens: 0,
            own_limits: Limits::default(),
            limits: Limits::default(),
        });
    }
    let grants: Vec<(String, String, String)> =
        sqlx::query_as("SELECT user, database, table_name FROM grants ORDER BY 1, 2, 3")
            .fetch_all(&mut *reading)
            .await
            .map_err(failed(path))?;
    for (user, database, table) in grants {
        if let Some(user) = users.iter_mut().find(|it| it.name == user) {
            let table = (!table.is_empty()).then_some(table);
            user.grants.push(Grant { database, table });
        }
    }
    let tokens: Vec<(Vec<u8>, String, i64)> =
        sqlx::query_as("SELECT hash, user, expires FROM tokens")
            .fetch_all(&mut *reading)
            .await
            .map_err(failed(path))?;
    for (hash, user, expires) in tokens {
        if let Some(owner) = users.iter_mut().find(|it| it.name == user)
            && let Ok(hash) = hash.try_into()
        {
            owner.tokens += usize::from(expires > now());
            list.tokens.insert(hash, (user, expires));
        }
    }
    let has_limits = has_table(&mut reading, "limits").await;
    if has_limits.map_err(failed(path))? {
        let limits: Vec<(String, String, i64)> =
            sqlx::query_as("SELECT user, name, value FROM limits")
                .fetch_all(&mut *reading)
                .await
                .map_err(failed(path))?;
        for (user, name, value) in limits {
            let value = u64::try_from(value).ok();
            let of = match user.as_str() {
                EVERYBODY => Some(&mut list.everybody),
                _ => { users.iter_mut() }
                    .find(|it| it.name == user)
                    .map(|it| &mut it.own_limits),
            };
            if let (Some(limits), Some(limit)) = (of, Limit::of_name(&name)) {
                limits.set(limit, value);
            }
        }
    }
    let has_public = has_table(&mut reading, "public_grants").await;
    if has_public.map_err(failed(path))? {
        let grants: Vec<(String, String)> =
            sqlx::query_as("SELECT database, table_name FROM public_grants ORDER BY 1, 2")
                .fetch_all(&mut *reading)
                .await
                .map_err(failed(path))?;
        list.public = { grants.into_iter() }
            .map(|(database, table)| Grant {
                database,
                table: (!table.is_empty()).then_some(table),
            })
            .collect();
    }
    for mut user in users {
        user.set_rights(&list.public);
        user.set_limits(&list.everybody);
        list.users.insert(user.name.clone(), Arc::new(user));
    }
    Ok(list)
}

pub(crate) async fn add(
    opened: &mut Opened,
    name: &str,
    secret: Option<&Secret>,
    is_admin: bool,
    created: i64,
) -> Result<()> {
    let added = sqlx::query(
        "INSERT INTO users (name, folded, password, challenge, is_admin, created) VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(name)
    .bind(fold_name(name))
    .bind(secret.map(|secret| secret.hash.as_str()))
    .bind(secret.map(|secret| secret.challenge.as_slice()))
    .bind(is_admin)
    .bind(created)
    .execute(&mut opened.connection)
    .await;
    match added {
        Ok(_) => Ok(()),
        Err(error) if is_conflict(&error) => Err(UsersError::Exists {
            name: name.to_owned(),
        }),
        Err(error) => Err(failed(&opened.path)(error)),
    }
}

fn is_conflict(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation())
}

/// Turns a change of no row into the error that there is no such user.
fn of_user(name: &str, changed: u64) -> Result<()> {
    match changed {
        0 => Err(UsersError::NoUser {
            name: name.to_owned(),
        }),
        _ => Ok(()),
    }
}

pub(crate) async fn set_password(
    opened: &mut Opened,
    name: &str,
    secret: Option<&Secret>,
) -> Result<()> {
    let changed = sqlx::query("UPDATE users SET password = ?, challenge = ? WHERE name = ?")
        .bind(secret.map(|secret| secret.hash.as_str()))
        .bind(secret.map(|secret| secret.challenge.as_slice()))
        .bind(name)
        .execute(&mut opened.connection)
        .await
        .map_err(failed(&opened.path))?;
    of_user(name, changed.rows_affected())
}

pub(crate) async fn remove(opened: &mut Opened, name: &str) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change(&mut opened.connection, &path, name).await?;
    for removed in [
        "DELETE FROM users WHERE name = ?",
        "DELETE FROM limits WHERE user = ?",
    ] {
        sqlx::query(removed)
            .bind(name)
            .execute(&mut *change)
            .await
            .map_err(failed(&path))?;
    }
    change.commit().await.map_err(failed(&path))
}

pub(crate) async fn set_limits(
    opened: &mut Opened,
    name: Option<&str>,
    limits: &[(Limit, Option<u64>)],
) -> Result<()> {
    let path = opened.path.clone();
    let mut change = match name {
        Some(name) => change(&mut opened.connection, &path, name).await?,
        None => { opened.connection.begin_with("BEGIN IMMEDIATE").await }.map_err(failed(&path))?,
    };
    let user = name.unwrap_or(EVERYBODY);
    for (limit, value) in limits {
        let changed = match value {
            Some(value) => {
                sqlx::query("INSERT OR REPLACE INTO limits (user, name, value) VALUES (?, ?, ?)")
                    .bind(user)
                    .bind(limit.name())
                    .bind(i64::try_from(*value).unwrap_or(i64::MAX))
            }
            None => sqlx::query("DELETE FROM limits WHERE user = ? AND name = ?")
                .bind(user)
                .bind(limit.name()),
        };
        changed.execute(&mut *change).await.map_err(failed(&path))?;
    }
    change.commit().await.map_err(failed(&path))
}

/// A transaction about a user who is there.
async fn change<'a>(
    connection: &'a mut SqliteConnection,
    path: &Path,
    name: &str,
) -> Result<sqlx::Transaction<'a, sqlx::Sqlite>> {
    let mut change = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(failed(path))?;
    let found: i64 = sqlx::query_scalar("SELECT count(*) FROM users WHERE name = ?")
        .bind(name)
        .fetch_one(&mut *change)
        .await
        .map_err(failed(path))?;
    of_user(name, found as u64)?;
    Ok(change)
}

pub(crate) async fn grant(opened: &mut Opened, name: &str, grants: &[Grant]) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change(&mut opened.connection, &path, name).await?;
    for grant in grants {
        sqlx::query("INSERT OR IGNORE INTO grants (user, database, table_name) VALUES (?, ?, ?)")
            .bind(name)
            .bind(&grant.database)
            .bind(grant.stored_table())
            .execute(&mut *change)
            .await
            .map_err(failed(&path))?;
    }
    change.commit().await.map_err(failed(&path))
}

pub(crate) async fn revoke(opened: &mut Opened, name: &str, grants: &[Grant]) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change(&mut opened.connection, &path, name).await?;
    for grant in grants {
        let removed =
            sqlx::query("DELETE FROM grants WHERE user = ? AND database = ? AND table_name = ?")
                .bind(name)
                .bind(&grant.database)
                .bind(grant.stored_table())
                .execute(&mut *change)
                .await
                .map_err(failed(&path))?;
        if removed.rows_affected() == 0 {
            return Err(UsersError::NoGrant {
                name: name.to_owned(),
                grant: grant.to_string(),
            });
        }
    }
    change.commit().await.map_err(failed(&path))
}

/// Lets everybody read, or no longer.
pub(crate) async fn change_public(
    opened: &mut Opened,
    grants: &[Grant],
    is_granted: bool,
) -> Result<()> {
    let path = opened.path.clone();
    let begun = opened.connection.begin_with("BEGIN IMMEDIATE").await;
    let mut change = begun.map_err(failed(&path))?;
    for grant in grants {
        let statement = match is_granted {
            true => "INSERT OR IGNORE INTO public_grants (database, table_name) VALUES (?, ?)",
            false => "DELETE FROM public_grants WHERE database = ? AND table_name = ?",
        };
        let changed = sqlx::query(statement)
            .bind(&grant.database)
            .bind(grant.stored_table())
            .execute(&mut *change)
            .await
            .map_err(failed(&path))?;
        if !is_granted && changed.rows_affected() == 0 {
            return Err(UsersError::NoGrant {
                name: PUBLIC.to_owned(),
                grant: grant.to_string(),
            });
        }
    }
    change.commit().await.map_err(failed(&path))
}

pub(crate) async fn add_token(
    opened: &mut Opened,
    name: &str,
    token: &Token,
    created: i64,
    expires: i64,
) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change(&mut opened.connection, &path, name).await?;
    sqlx::query("DELETE FROM tokens WHERE expires <= ?")
        .bind(created.saturating_sub(1))
        .execute(&mut *change)
        .await
        .map_err(failed(&path))?;
    sqlx::query("INSERT INTO tokens (hash, user, created, expires) VALUES (?, ?, ?, ?)")
        .bind(Token::hash(token.text()).as_slice())
        .bind(name)
        .bind(created)
        .bind(expires)
        .execute(&mut *change)
        .await
        .map_err(failed(&path))?;
    change.commit().await.map_err(failed(&path))
}

pub(crate) async fn remove_tokens(opened: &mut Opened, name: &str) -> Result<u64> {
    let path = opened.path.clone();
    let mut change = change(&mut opened.connection, &path, name).await?;
    let removed = sqlx::query("DELETE FROM tokens WHERE user = ?")
        .bind(name)
        .execute(&mut *change)
        .await
        .map_err(failed(&path))?;
    change.commit().await.map_err(failed(&path))?;
    Ok(removed.rows_affected())
}
