//! Files of SQLite that their owner alone may read, and connections to those whose tables have had one form ever since.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

use crate::UsersError;

/// How long a connection waits for others.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the file, empty, if it is not there: hashes of passwords and of cookies are for nobody else.
///
/// # Errors
/// It cannot be made or written.
pub(crate) fn make(path: &Path) -> Result<(), UsersError> {
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    made.map(drop).map_err(|source| UsersError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// Opens a file with the tables of a schema, which are made if they are not there. `failed` says what an error of SQLite means.
///
/// # Errors
/// It cannot be made or opened.
pub(crate) async fn open(
    path: &Path,
    schema: &'static str,
    synchronous: SqliteSynchronous,
    failed: impl Fn(sqlx::Error) -> UsersError,
) -> Result<SqliteConnection, UsersError> {
    make(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Delete)
        .synchronous(synchronous);
    let mut connection = options.connect().await.map_err(&failed)?;
    let made = sqlx::raw_sql(schema).execute(&mut connection).await;
    made.map_err(&failed)?;
    Ok(connection)
}
