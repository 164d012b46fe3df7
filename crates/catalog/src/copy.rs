//! Copies of SQLite's databases, whole though others write them.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::CatalogError;
use crate::access::{may_write, writable_file};

/// The name of the catalog in a data directory.
pub const CATALOG_FILE: &str = crate::sqlite::FILE_NAME;

/// How long others may keep the database locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Copies a database as it is at one moment into a file that is new.
///
/// # Errors
/// The database cannot be read, or the file cannot be written.
pub async fn copy_database(from: &Path, to: &Path) -> Result<(), CatalogError> {
    // SQLite takes an empty file for a new one, and this has the mode of the others.
    let made = writable_file().create(true).truncate(true).open(to);
    made.map_err(|source| CatalogError::Io {
        what: "write",
        path: to.to_owned(),
        source,
    })?;
    let parent = from.parent().unwrap_or(Path::new("."));
    let mut connection = SqliteConnectOptions::new()
        .filename(from)
        .read_only(!(may_write(from) && may_write(parent)))
        .busy_timeout(BUSY_TIMEOUT)
        .connect()
        .await?;
    sqlx::query("VACUUM INTO ?")
        .bind(to.to_string_lossy().into_owned())
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_has_what_the_database_had() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.sqlite"), dir.path().join("b.sqlite"));
        let options = |path: &Path| SqliteConnectOptions::new().filename(path);
        let mut written = options(&from)
            .create_if_missing(true)
            .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
            .connect()
            .await
            .unwrap();
        let made = "CREATE TABLE t (x); INSERT INTO t VALUES (1), (2); PRAGMA user_version = 7; PRAGMA application_id = 9";
        sqlx::raw_sql(made).execute(&mut written).await.unwrap();
        // A writer that is not done is not in its way, and not in the copy.
        let mut unfinished = written.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::raw_sql("INSERT INTO t VALUES (3)")
            .execute(&mut *unfinished)
            .await
            .unwrap();
        copy_database(&from, &to).await.unwrap();
        unfinished.commit().await.unwrap();
        let mut copy = options(&to).connect().await.unwrap();
        let rows: (i64, i64) = sqlx::query_as("SELECT count(*), sum(x) FROM t")
            .fetch_one(&mut copy)
            .await
            .unwrap();
        assert_eq!(rows, (2, 3));
        for (pragma, expected) in [("user_version", 7), ("application_id", 9)] {
            let text = sqlx::AssertSqlSafe(format!("PRAGMA {pragma}"));
            let found: i64 = sqlx::query_scalar(text).fetch_one(&mut copy).await.unwrap();
            assert_eq!(found, expected);
        }
        assert!(
            copy_database(&dir.path().join("none"), &dir.path().join("c"))
                .await
                .is_err()
        );
    }
}
