//! The file with the users: `users.sqlite` of the data directory.
//!
//! It is not in write-ahead mode: each change raises SQLite's count of changes in the file itself, where other processes see it.

use std::path::Path;
use std::time::Duration;

use catalog::fold_name;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::grant::Grant;
use crate::secret::{Secret, Token};
use crate::{Limit, NativePassword, PUBLIC, UsersError};

/// The version of the file in which groups came, and all grants into one table.
pub(crate) const WITH_GROUPS: i64 = 4;
/// The version in which releases of rows came.
pub(crate) const WITH_RELEASES: i64 = 5;
/// The version in which groups' databases came.
pub(crate) const WITH_GROUP_DATABASES: i64 = 6;
/// The version in which the hashes of `mysql_native_password` came.
pub(crate) const WITH_NATIVE_PASSWORDS: i64 = 7;
const VERSION: i64 = WITH_NATIVE_PASSWORDS;
/// The name under which the limits and the grants of everybody are stored.
pub(crate) const EVERYBODY: &str = "";
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

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

/// What version 4 has more: groups; and the grants of users, of groups and, under an empty name, of everybody in one table.
const GROUPS: &str = "
CREATE TABLE groups (
    name TEXT NOT NULL PRIMARY KEY,
    folded TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL
) STRICT;
CREATE TABLE members (
    of_group TEXT NOT NULL REFERENCES groups (name) ON DELETE CASCADE,
    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    PRIMARY KEY (of_group, user)
) STRICT;
ALTER TABLE grants RENAME TO former_grants;
CREATE TABLE grants (
    grantee TEXT NOT NULL,
    database TEXT NOT NULL,
    -- Empty for all tables of the database.
    table_name TEXT NOT NULL,
    -- Empty for all columns of the table.
    column_name TEXT NOT NULL,
    PRIMARY KEY (grantee, database, table_name, column_name)
) STRICT;
INSERT INTO grants SELECT user, database, table_name, '' FROM former_grants;
INSERT INTO grants SELECT '', database, table_name, '' FROM public_grants;
DROP TABLE former_grants;
DROP TABLE public_grants;
PRAGMA user_version = 4;
";

/// What version 5 has more: conditions by which rows of tables are released, and who sees the others.
const RELEASES: &str = "
CREATE TABLE releases (
    database TEXT NOT NULL,
    table_name TEXT NOT NULL,
    condition TEXT NOT NULL,
    PRIMARY KEY (database, table_name)
) STRICT;
CREATE TABLE unreleased (
    grantee TEXT NOT NULL,
    database TEXT NOT NULL,
    -- Empty for all tables of the database.
    table_name TEXT NOT NULL,
    PRIMARY KEY (grantee, database, table_name)
) STRICT;
PRAGMA user_version = 5;
";

/// What version 6 has more: which groups have a database.
const GROUP_DATABASES: &str = "
ALTER TABLE groups ADD COLUMN has_database INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 6;
";

/// What version 7 has more: what `mysql_native_password` needs, of users whose passwords were set for it.
const NATIVE_PASSWORDS: &str = "
ALTER TABLE users ADD COLUMN native BLOB;
PRAGMA user_version = 7;
";

pub(crate) type Result<T> = std::result::Result<T, UsersError>;

/// Carries the file's path into an error of SQLite's.
pub(crate) fn failed(path: &Path) -> impl Fn(sqlx::Error) -> UsersError {
    let path = path.to_owned();
    move |source| UsersError::Database {
        path: path.clone(),
        source,
    }
}

/// Opens the file, which is made if it is not there: as a whole, since an empty one has lost its users.
pub(crate) async fn open(path: &Path) -> Result<UsersFile> {
    if !path.exists() {
        make(path).await?;
    }
    connect(path, false).await
}

async fn make(path: &Path) -> Result<()> {
    let unreadable = |source| UsersError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let directory = path.parent().unwrap_or(Path::new("."));
    // Its owner alone may read it.
    let made = tempfile::NamedTempFile::new_in(directory).map_err(unreadable)?;
    let mut connection = options(made.path(), false)
        .connect()
        .await
        .map_err(failed(path))?;
    migrate(&mut connection).await.map_err(failed(path))?;
    connection.close().await.map_err(failed(path))?;
    match std::fs::hard_link(made.path(), path) {
        // Another process has made it meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.map_err(unreadable),
    }
}

/// Opens the file to change a user, who cannot be there if it is not.
pub(crate) async fn open_existing(path: &Path, name: &str) -> Result<UsersFile> {
    match path.try_exists() {
        Ok(false) => Err(UsersError::NoUser {
            name: name.to_owned(),
        }),
        _ => connect(path, false).await,
    }
}

/// A connection to the file.
pub(crate) struct UsersFile {
    pub connection: SqliteConnection,
    pub path: std::path::PathBuf,
    /// The version of the file, which is only older than this program's where it is not opened to change it.
    pub version: i64,
}

pub(crate) async fn connect(path: &Path, read_only: bool) -> Result<UsersFile> {
    let mut connection = options(path, read_only)
        .connect()
        .await
        .map_err(failed(path))?;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut connection)
        .await
        .map_err(failed(path))?;
    if version == 0 {
        return Err(UsersError::Emptied {
            path: path.to_owned(),
        });
    }
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
    Ok(UsersFile {
        connection,
        path: path.to_owned(),
        version: if read_only { version } else { VERSION },
    })
}

fn options(path: &Path, read_only: bool) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(read_only)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true);
    match read_only {
        true => options,
        false => options
            .journal_mode(SqliteJournalMode::Delete)
            .synchronous(SqliteSynchronous::Full),
    }
}

/// Makes the tables of this version, in a file that is new or of a former one.
async fn migrate(connection: &mut SqliteConnection) -> std::result::Result<(), sqlx::Error> {
    let mut change = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Another process may have done it meanwhile.
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *change)
        .await?;
    for (made, tables) in [
        (1, SCHEMA),
        (2, LIMITS),
        (3, PUBLIC_GRANTS),
        (WITH_GROUPS, GROUPS),
        (WITH_RELEASES, RELEASES),
        (WITH_GROUP_DATABASES, GROUP_DATABASES),
        (WITH_NATIVE_PASSWORDS, NATIVE_PASSWORDS),
    ] {
        if version < made {
            sqlx::raw_sql(tables).execute(&mut *change).await?;
        }
    }
    change.commit().await
}

pub(crate) async fn add(
    opened: &mut UsersFile,
    name: &str,
    secret: Option<(&Secret, NativePassword)>,
    is_admin: bool,
    created: i64,
) -> Result<()> {
    let path = opened.path.clone();
    let begun = opened.connection.begin_with("BEGIN IMMEDIATE").await;
    let mut change = begun.map_err(failed(&path))?;
    check_is_free(&mut change, &path, name).await?;
    let added = sqlx::query(
        "INSERT INTO users (name, folded, password, challenge, native, is_admin, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(name)
    .bind(fold_name(name))
    .bind(secret.map(|(secret, _)| secret.hash.as_str()))
    .bind(secret.map(|(secret, _)| secret.challenge.as_slice()))
    .bind(secret.and_then(|(secret, native)| {
        (native == NativePassword::Kept).then_some(secret.native.as_slice())
    }))
    .bind(is_admin)
    .bind(created);
    added.execute(&mut *change).await.map_err(failed(&path))?;
    change.commit().await.map_err(failed(&path))
}

/// Users and groups share their names: who is granted something is one of them.
pub(crate) async fn check_is_free(
    connection: &mut SqliteConnection,
    path: &Path,
    name: &str,
) -> Result<()> {
    for (statement, is_group) in [
        ("SELECT name FROM users WHERE folded = ?", false),
        ("SELECT name FROM groups WHERE folded = ?", true),
    ] {
        let found: Option<String> = sqlx::query_scalar(statement)
            .bind(fold_name(name))
            .fetch_optional(&mut *connection)
            .await
            .map_err(failed(path))?;
        match found {
            Some(name) if is_group => return Err(UsersError::GroupExists { name }),
            Some(name) => return Err(UsersError::Exists { name }),
            None => {}
        }
    }
    Ok(())
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
    opened: &mut UsersFile,
    name: &str,
    secret: Option<(&Secret, NativePassword)>,
) -> Result<()> {
    let native = secret.map(|(_, native)| native);
    let changed = sqlx::query(
        "UPDATE users SET password = ?1, challenge = ?2, native = CASE WHEN ?3 OR (?4 AND native IS NOT NULL) THEN ?5 END
         WHERE name = ?6",
    )
    .bind(secret.map(|(secret, _)| secret.hash.as_str()))
    .bind(secret.map(|(secret, _)| secret.challenge.as_slice()))
    .bind(native == Some(NativePassword::Kept))
    .bind(native == Some(NativePassword::AsBefore))
    .bind(secret.map(|(secret, _)| secret.native.as_slice()))
    .bind(name)
    .execute(&mut opened.connection)
    .await
    .map_err(failed(&opened.path))?;
    of_user(name, changed.rows_affected())
}

pub(crate) async fn remove(opened: &mut UsersFile, name: &str) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change(&mut opened.connection, &path, name).await?;
    for removed in [
        "DELETE FROM users WHERE name = ?",
        "DELETE FROM limits WHERE user = ?",
        "DELETE FROM grants WHERE grantee = ?",
        "DELETE FROM unreleased WHERE grantee = ?",
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
    opened: &mut UsersFile,
    name: Option<&str>,
    limits: &[(Limit, Option<u64>)],
) -> Result<()> {
    let path = opened.path.clone();
    let mut change = match name {
        Some(name) => change_grantee(&mut opened.connection, &path, name).await?,
        None => { opened.connection.begin_with("BEGIN IMMEDIATE").await }.map_err(failed(&path))?,
    };
    let user = name.unwrap_or(EVERYBODY);
    if let Some((limit, _)) = limits.iter().find(|(limit, _)| limit.is_of_groups()) {
        let users: i64 = sqlx::query_scalar("SELECT count(*) FROM users WHERE name = ?")
            .bind(user)
            .fetch_one(&mut *change)
            .await
            .map_err(failed(&path))?;
        if users > 0 {
            return Err(UsersError::LimitOfGroups {
                limit: *limit,
                name: user.to_owned(),
            });
        }
    }
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
pub(crate) async fn change<'a>(
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

/// A transaction about a user or a group who is there, or about everybody.
pub(crate) async fn change_grantee<'a>(
    connection: &'a mut SqliteConnection,
    path: &Path,
    name: &str,
) -> Result<sqlx::Transaction<'a, sqlx::Sqlite>> {
    let mut change = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(failed(path))?;
    if name != EVERYBODY {
        let found: i64 = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM users WHERE name = ?1) + (SELECT count(*) FROM groups WHERE name = ?1)",
        )
        .bind(name)
        .fetch_one(&mut *change)
        .await
        .map_err(failed(path))?;
        of_user(name, found as u64)?;
    }
    Ok(change)
}

pub(crate) async fn grant(opened: &mut UsersFile, grantee: &str, grants: &[Grant]) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change_grantee(&mut opened.connection, &path, grantee).await?;
    for grant in grants {
        sqlx::query("INSERT OR IGNORE INTO grants (grantee, database, table_name, column_name) VALUES (?, ?, ?, ?)")
            .bind(grantee)
            .bind(&grant.database)
            .bind(grant.stored_table())
            .bind(grant.stored_column())
            .execute(&mut *change)
            .await
            .map_err(failed(&path))?;
    }
    change.commit().await.map_err(failed(&path))
}

/// Takes grants back; that of a table takes those of its columns along.
pub(crate) async fn revoke(opened: &mut UsersFile, grantee: &str, grants: &[Grant]) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change_grantee(&mut opened.connection, &path, grantee).await?;
    for grant in grants {
        let removed = sqlx::query(
            "DELETE FROM grants WHERE grantee = ?1 AND database = ?2 AND table_name = ?3 AND (column_name = ?4 OR ?4 = '')",
        )
        .bind(grantee)
        .bind(&grant.database)
        .bind(grant.stored_table())
        .bind(grant.stored_column())
        .execute(&mut *change)
        .await
        .map_err(failed(&path))?;
        if removed.rows_affected() == 0 {
            return Err(UsersError::NoGrant {
                name: match grantee {
                    EVERYBODY => PUBLIC.to_owned(),
                    name => name.to_owned(),
                },
                grant: grant.to_string(),
            });
        }
    }
    change.commit().await.map_err(failed(&path))
}

pub(crate) async fn add_token(
    opened: &mut UsersFile,
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

pub(crate) async fn remove_tokens(opened: &mut UsersFile, name: &str) -> Result<u64> {
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

/// Makes a file of a former version, with a user and what the version knew of one.
#[cfg(test)]
pub(crate) async fn make_former(path: &Path, version: usize) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let made = [
        (
            SCHEMA,
            "INSERT INTO users VALUES ('ann', 'ann', NULL, NULL, 0, 5);
             INSERT INTO grants VALUES ('ann', 'sky', ''), ('ann', 'deep', 'star');",
        ),
        (LIMITS, "INSERT INTO limits VALUES ('ann', 'rows', 8);"),
        (
            PUBLIC_GRANTS,
            "INSERT INTO public_grants VALUES ('open', 't');",
        ),
        (
            GROUPS,
            "INSERT INTO groups VALUES ('former', 'former', 5);
             INSERT INTO members VALUES ('former', 'ann');
             INSERT INTO grants VALUES ('former', 'wide', '', '');",
        ),
        (
            RELEASES,
            "INSERT INTO releases VALUES ('sky', 't', 'x < 1');",
        ),
        (GROUP_DATABASES, ""),
    ];
    for (schema, rows) in made.into_iter().take(version) {
        for statements in [schema, rows] {
            let run = sqlx::raw_sql(statements).execute(&mut connection);
            run.await.unwrap();
        }
    }
    connection.close().await.unwrap();
}
