//! How often logins have failed, which all servers of a data directory share: `failed_logins.sqlite` of the data directory.
//!
//! It is a file of its own, since a change of `users.sqlite` has every server look at all users again, and no backup has it. Nothing in it
//! tells a name or an address: a key is a hash. Servers add what has failed with them now and then, and not with each login, so that no
//! login waits for the disk. The rows are bounded: those that count least go first.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteSynchronous;
use sqlx::{Connection, SqliteConnection};

use crate::change_count::ChangeCount;
use crate::database::{Result, failed};
use crate::{UsersError, private_file};

const FILE_NAME: &str = "failed_logins.sqlite";
/// Rows that are kept.
const MOST: i64 = 10_000;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS failed_logins (
    -- The fingerprint of what is counted: an address, with a name or without.
    key BLOB NOT NULL PRIMARY KEY,
    -- How many had failed at that time and were not forgotten.
    failed REAL NOT NULL,
    -- How many of them are forgotten in a second.
    forgotten REAL NOT NULL,
    -- Seconds since 1970.
    at REAL NOT NULL
) STRICT";

/// Failed logins of a key, which are forgotten evenly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailedLogins {
    /// What is counted.
    pub key: [u8; 32],
    /// How many had failed at `at` and were not forgotten.
    pub failed: f64,
    /// How many of them are forgotten in a second.
    pub forgotten: f64,
    /// Seconds since 1970.
    pub at: f64,
}

impl FailedLogins {
    /// How many of them count still.
    pub fn remaining(&self, now: f64) -> f64 {
        (self.failed - (now - self.at).max(0.0) * self.forgotten).max(0.0)
    }
}

/// The failed logins of all servers.
#[derive(Debug)]
pub struct FailedLoginStore {
    path: PathBuf,
    changes: ChangeCount,
}

/// A state of the store: while it is the same, so are the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLoginState(Option<[u8; 4]>);

impl FailedLoginStore {
    /// That of a data directory. No file is made before a login has failed.
    pub fn of(data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        Self {
            changes: ChangeCount::of(path.clone()),
            path,
        }
    }

    /// The state as it is now. It takes a microsecond.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn state(&self) -> Result<FailedLoginState> {
        let changes = self.changes.read();
        changes
            .map(FailedLoginState)
            .map_err(|source| UsersError::Unreadable {
                path: self.path.clone(),
                source,
            })
    }

    /// All that count.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub async fn all(&self) -> Result<Vec<FailedLogins>> {
        match self.path.exists() {
            true => self.read(&mut self.open().await?).await,
            false => Ok(Vec::new()),
        }
    }

    /// Adds those that have failed since, all of them or nothing. Returns all that count then.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn add(&self, more: &[FailedLogins], now: f64) -> Result<Vec<FailedLogins>> {
        let mut connection = self.open().await?;
        let failed = failed(&self.path);
        let begun = connection.begin_with("BEGIN IMMEDIATE").await;
        let mut change = begun.map_err(&failed)?;
        for logins in more {
            sqlx::query(
                "INSERT INTO failed_logins (key, failed, forgotten, at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET
                     failed = max(0.0, failed - max(0.0, ?4 - at) * forgotten) + ?2, forgotten = ?3, at = max(at, ?4)",
            )
            .bind(logins.key.as_slice())
            .bind(logins.failed)
            .bind(logins.forgotten)
            .bind(now)
            .execute(&mut *change)
            .await
            .map_err(&failed)?;
        }
        sqlx::query(
            "DELETE FROM failed_logins WHERE failed <= (?1 - at) * forgotten OR key IN
             (SELECT key FROM failed_logins ORDER BY failed - (?1 - at) * forgotten DESC LIMIT -1 OFFSET ?2)",
        )
        .bind(now)
        .bind(MOST)
        .execute(&mut *change)
        .await
        .map_err(&failed)?;
        change.commit().await.map_err(&failed)?;
        self.read(&mut connection).await
    }

    async fn read(&self, connection: &mut SqliteConnection) -> Result<Vec<FailedLogins>> {
        let rows: Vec<(Vec<u8>, f64, f64, f64)> =
            sqlx::query_as("SELECT key, failed, forgotten, at FROM failed_logins")
                .fetch_all(connection)
                .await
                .map_err(failed(&self.path))?;
        let logins = rows.into_iter().filter_map(|(key, failed, forgotten, at)| {
            Some(FailedLogins {
                key: key.try_into().ok()?,
                failed,
                forgotten,
                at,
            })
        });
        Ok(logins.collect())
    }

    async fn open(&self) -> Result<SqliteConnection> {
        let failed = failed(&self.path);
        // What a crash of the machine takes away are some seconds of counts.
        private_file::open(&self.path, SCHEMA, SqliteSynchronous::Off, failed).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn logins(key: u16, failed: f64, forgotten: f64, at: f64) -> FailedLogins {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&key.to_le_bytes());
        FailedLogins {
            key: bytes,
            failed,
            forgotten,
            at,
        }
    }

    #[tokio::test]
    async fn servers_add_to_the_same_counts() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| FailedLoginStore::of(directory.path()));
        assert_eq!(one.all().await.unwrap(), []);
        let file = directory.path().join(FILE_NAME);
        assert!(!file.exists());
        let before = one.state().unwrap();
        one.add(
            &[logins(1, 4.0, 0.5, 100.0), logins(2, 1.0, 0.5, 100.0)],
            100.0,
        )
        .await
        .unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_ne!(one.state().unwrap(), before);
        // Two of the first are forgotten after four seconds, and the second as a whole.
        let all = other
            .add(&[logins(1, 3.0, 0.5, 104.0)], 104.0)
            .await
            .unwrap();
        assert_eq!(all, [logins(1, 5.0, 0.5, 104.0)]);
        assert_eq!(one.all().await.unwrap(), all);
        assert!((all[0].remaining(106.0) - 4.0).abs() < 1e-9);
        assert!(all[0].remaining(1000.0).abs() < 1e-9);
        // A clock that is behind forgets nothing.
        let all = one.add(&[logins(1, 1.0, 0.5, 90.0)], 90.0).await.unwrap();
        assert_eq!(all, [logins(1, 6.0, 0.5, 104.0)]);
    }

    #[tokio::test]
    async fn what_counts_least_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let store = FailedLoginStore::of(directory.path());
        store.add(&[logins(0, 10.0, 0.01, 0.0)], 0.0).await.unwrap();
        let many: Vec<FailedLogins> = { 1..=u16::try_from(MOST).unwrap() + 500 }
            .map(|key| logins(key, 1.0, 0.01, 1.0))
            .collect();
        let all = store.add(&many, 1.0).await.unwrap();
        assert_eq!(all.len() as i64, MOST);
        assert!(all.iter().any(|it| it.key == [0; 32] && it.failed > 9.0));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), [7; 4096]).unwrap();
        let store = FailedLoginStore::of(directory.path());
        assert!(store.all().await.is_err());
        assert!(store.add(&[logins(1, 1.0, 0.1, 1.0)], 1.0).await.is_err());
    }
}
