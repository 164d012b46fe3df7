//! Makes the catalog's tables, and brings those of an older version up to date.

use std::io::ErrorKind;
use std::path::Path;

use sqlx::sqlite::SqliteJournalMode;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};

use super::connections::{Mode, options, unless_unreadable};
use crate::CatalogError;
use crate::access::writable_file;
use crate::lock::open_lock_file;
use crate::statements::{Transaction, seal_again, seal_all, seal_views};

/// The steps from an empty file to the present version; step `n` leads to version `n + 1`. A step
/// that was released is never changed: a new one is added.
const MIGRATIONS: [&str; 10] = [
    include_str!("../../migrations/0001_catalog.sql"),
    include_str!("../../migrations/0002_checksums.sql"),
    include_str!("../../migrations/0003_parts.sql"),
    include_str!("../../migrations/0004_publications.sql"),
    include_str!("../../migrations/0005_merged_parts.sql"),
    include_str!("../../migrations/0006_metadata.sql"),
    include_str!("../../migrations/0007_views.sql"),
    include_str!("../../migrations/0008_view_columns.sql"),
    include_str!("../../migrations/0009_other_databases.sql"),
    include_str!("../../migrations/0010_expiry.sql"),
];

/// The first version whose rows carry checksums.
const WITH_CHECKSUMS: i64 = 2;

/// The first version whose checksums are those of the present one: what came later leaves those of the rows that there were.
const WITH_PARTS: i64 = 3;

/// The first version that has views, and a checksum of their list.
const WITH_VIEWS: i64 = 7;

/// Marks the file as ours (`PRAGMA application_id`): "MRDN" in ASCII.
const APPLICATION_ID: i64 = 0x4d52_444e;

pub(crate) const LATEST: i64 = MIGRATIONS.len() as i64;

/// Makes sure that the file at `path` is a catalog of the present version. Gives the older version that it was of.
///
/// Processes that start at the same time on a new directory do this one after the other, under a file
/// lock: turning write-ahead logging on does not wait its turn as transactions do.
pub async fn bring_up_to_date(data_dir: &Path, path: &Path) -> Result<Option<i64>, CatalogError> {
    if path.is_file() {
        let found = version(path).await?;
        if found == LATEST {
            return Ok(None);
        }
        if Mode::of(path) != Mode::Shared {
            return Err(CatalogError::Older {
                path: path.to_owned(),
                found,
            });
        }
    }
    let lock_path = data_dir.join("locks").join("catalog.lock");
    let lock = open_lock_file(&lock_path)?;
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
        .await
        .map_err(|error| CatalogError::io("lock", &lock_path)(error.into()))?
        .map_err(CatalogError::io("lock", &lock_path))?;
    let done = migrate(path).await;
    drop(lock);
    done
}

/// The version of an existing file; rejects files that are not ours or newer than we are.
async fn version(path: &Path) -> Result<i64, CatalogError> {
    let mode = Mode::of(path);
    let mut connection = options(path, mode).connect().await?;
    // SQLite opens a file, and its log, at the first statement.
    let version = match version_of(&mut connection, path).await {
        Err(CatalogError::Backend(error)) => Err(unless_unreadable(path, mode)(error)),
        other => other,
    };
    connection.close().await?;
    version
}

async fn version_of(connection: &mut SqliteConnection, path: &Path) -> Result<i64, CatalogError> {
    let (application, found): (i64, i64) = sqlx::query_as(
        "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version",
    )
    .fetch_one(&mut *connection)
    .await?;
    let objects: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
        .fetch_one(connection)
        .await?;
    if application != APPLICATION_ID && objects > 0 {
        return Err(CatalogError::NotACatalog {
            path: path.to_owned(),
        });
    }
    if found > LATEST {
        return Err(CatalogError::Newer {
            path: path.to_owned(),
            found,
            known: LATEST,
        });
    }
    Ok(found)
}

/// Makes an empty file, of which SQLite makes a database. Its log and the log's index get the mode of the file.
fn make_file(path: &Path) -> Result<(), CatalogError> {
    match writable_file().create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(CatalogError::io("make", path)(error)),
    }
}

/// Runs the steps that are missing in one transaction, so that a crash leaves the version before. Gives that version, but
/// for a new file.
async fn migrate(path: &Path) -> Result<Option<i64>, CatalogError> {
    make_file(path)?;
    let mut connection = options(path, Mode::Shared)
        .journal_mode(SqliteJournalMode::Wal)
        .connect()
        .await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found = version_of(&mut transaction, path).await?;
    let missing = usize::try_from(found).map_or(&MIGRATIONS[..], |found| &MIGRATIONS[found..]);
    for step in missing {
        sqlx::raw_sql(*step).execute(&mut *transaction).await?;
    }
    // Pragmas take no parameters; both values are constants of ours.
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LATEST}");
    sqlx::raw_sql(AssertSqlSafe(marks))
        .execute(&mut *transaction)
        .await?;
    let mut transaction = Transaction::Sqlite(transaction);
    if found < WITH_CHECKSUMS {
        seal_all(&mut transaction).await?;
    } else if found < WITH_PARTS {
        seal_again(&mut transaction).await?;
    }
    if found < WITH_VIEWS {
        seal_views(&mut transaction, |_| false).await?;
    }
    transaction.commit().await?;
    connection.close().await?;
    let upgraded = (1..LATEST).contains(&found).then_some(found);
    if let Some(version) = upgraded {
        tracing::info!(version, "the catalog is brought up to date");
    }
    Ok(upgraded)
}
