//! What users have taken of the processor on each day: `usage.sqlite` of the data directory.
//!
//! It is a file of its own, since a change of `users.sqlite` has every server look at all users again. Servers of one data directory add
//! to the same numbers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteSynchronous;
use sqlx::{Connection, SqliteConnection};

use crate::database::{Result, failed};
use crate::private_file;

const FILE_NAME: &str = "usage.sqlite";
/// Days that are kept.
const KEPT: i64 = 31;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS processor_time (
    -- Days since 1970-01-01, of UTC.
    day INTEGER NOT NULL,
    user TEXT NOT NULL,
    nanoseconds INTEGER NOT NULL,
    PRIMARY KEY (day, user)
) STRICT";

/// The processor time that users have taken.
#[derive(Debug)]
pub struct DailyUsage {
    path: PathBuf,
}

impl DailyUsage {
    /// That of a data directory. No file is made before there is something to be added.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join(FILE_NAME),
        }
    }

    /// What users have taken on a day, in nanoseconds.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub async fn of_day(&self, day: i64) -> Result<HashMap<String, u64>> {
        if !self.path.exists() {
            return Ok(HashMap::new());
        }
        let mut connection = self.open().await?;
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT user, nanoseconds FROM processor_time WHERE day = ?")
                .bind(day)
                .fetch_all(&mut connection)
                .await
                .map_err(failed(&self.path))?;
        let rows = rows.into_iter();
        Ok(rows
            .map(|(user, nanoseconds)| (user, u64::try_from(nanoseconds).unwrap_or(0)))
            .collect())
    }

    /// Adds what users have taken on a day, all of it or nothing. Returns what each has taken then, also by other servers, in their order.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn add(&self, day: i64, taken: &[(String, u64)]) -> Result<Vec<u64>> {
        let mut connection = self.open().await?;
        let failed = failed(&self.path);
        let begun = connection.begin_with("BEGIN IMMEDIATE").await;
        let mut change = begun.map_err(&failed)?;
        let mut totals = Vec::with_capacity(taken.len());
        for (user, nanoseconds) in taken {
            let total: i64 = sqlx::query_scalar(
                "INSERT INTO processor_time (day, user, nanoseconds) VALUES (?, ?, ?)
                 ON CONFLICT DO UPDATE SET nanoseconds = nanoseconds + excluded.nanoseconds
                 RETURNING nanoseconds",
            )
            .bind(day)
            .bind(user)
            .bind(i64::try_from(*nanoseconds).unwrap_or(i64::MAX))
            .fetch_one(&mut *change)
            .await
            .map_err(&failed)?;
            totals.push(u64::try_from(total).unwrap_or(0));
        }
        sqlx::query("DELETE FROM processor_time WHERE day < ?")
            .bind(day - KEPT)
            .execute(&mut *change)
            .await
            .map_err(&failed)?;
        change.commit().await.map_err(&failed)?;
        Ok(totals)
    }

    async fn open(&self) -> Result<SqliteConnection> {
        let failed = failed(&self.path);
        private_file::open(&self.path, SCHEMA, SqliteSynchronous::Normal, failed).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(of: &[(&str, u64)]) -> Vec<(String, u64)> {
        { of.iter() }
            .map(|(user, nanoseconds)| ((*user).to_owned(), *nanoseconds))
            .collect()
    }

    #[tokio::test]
    async fn what_servers_add_is_added_up_by_day() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (
            DailyUsage::of(directory.path()),
            DailyUsage::of(directory.path()),
        );
        assert!(one.of_day(100).await.unwrap().is_empty());
        assert!(!directory.path().join(FILE_NAME).exists());
        let totals = one.add(100, &taken(&[("ann", 5), ("bob", 1)])).await;
        assert_eq!(totals.unwrap(), [5, 1]);
        let totals = other.add(100, &taken(&[("bob", 7)])).await;
        assert_eq!(totals.unwrap(), [8]);
        other.add(101, &taken(&[("ann", 2)])).await.unwrap();
        let of_100 = one.of_day(100).await.unwrap();
        assert_eq!(
            of_100,
            HashMap::from([("ann".to_owned(), 5), ("bob".to_owned(), 8)])
        );
        one.add(100 + KEPT + 1, &taken(&[("ann", 1)]))
            .await
            .unwrap();
        assert!(one.of_day(100).await.unwrap().is_empty());
        assert_eq!(one.of_day(101).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_file_that_is_none_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), [7; 4096]).unwrap();
        assert!(DailyUsage::of(directory.path()).of_day(1).await.is_err());
    }
}
