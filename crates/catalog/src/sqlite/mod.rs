//! The catalog in an SQLite file, `meridian.sqlite` in the data directory.
//!
//! Write-ahead logging lets readers continue while a process writes. Every change is one transaction that
//! takes the write lock at its start (`BEGIN IMMEDIATE`), so it can wait for its turn but never fail
//! half-way for want of it. Every commit is synced to the disk: the files of a replaced load may be
//! removed as soon as `publish` has returned, so a power failure must not bring that load back.

mod connections;
mod publications;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use self::connections::{Connections, file_state, log_len};
use self::publications::Publications;
use crate::CatalogError;
use crate::access::make_directories;
use crate::backend::CatalogBackend;
use crate::state::CatalogState;
use crate::statements::Transaction;

pub(crate) use self::publications::FILE_NAME as PUBLICATIONS_FILE;
pub(crate) use self::schema::LATEST;

/// The catalog's file in the data directory.
pub(crate) const FILE_NAME: &str = "meridian.sqlite";

/// How long the end of a process waits for the readers of older states of the catalog. Reads take milliseconds.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Problems that SQLite's own check tells at most.
const MOST_PROBLEMS: usize = 20;

/// One catalog file.
#[derive(Debug, Clone)]
pub(crate) struct SqliteCatalog {
    connections: Arc<Connections>,
    upgraded_from: Option<i64>,
    database: Arc<Path>,
    publications: Arc<Publications>,
}

impl SqliteCatalog {
    pub async fn open(data_dir: &Path) -> Result<Self, CatalogError> {
        let path = data_dir.join(FILE_NAME);
        if !path.is_file() {
            return Err(CatalogError::NoCatalog {
                dir: data_dir.to_owned(),
            });
        }
        Self::connect(data_dir, path).await
    }

    pub async fn open_or_create(data_dir: &Path) -> Result<Self, CatalogError> {
        make_directories(data_dir).map_err(CatalogError::io("make directory", data_dir))?;
        let opened = Self::connect(data_dir, data_dir.join(FILE_NAME)).await?;
        opened.expect_writable()?;
        Ok(opened)
    }

    /// Makes a catalog in a file of another name, beside which nothing else may be.
    pub async fn create_at(path: &Path) -> Result<Self, CatalogError> {
        Self::connect(path.parent().unwrap_or(Path::new(".")), path.to_owned()).await
    }

    async fn connect(data_dir: &Path, path: PathBuf) -> Result<Self, CatalogError> {
        let upgraded_from = schema::bring_up_to_date(data_dir, &path).await?;
        let opened = Self {
            connections: Arc::new(Connections::open(path.clone()).await?),
            upgraded_from,
            publications: Arc::new(Publications::beside(&path)),
            database: path.into(),
        };
        if !opened.connections.is_read_only() {
            opened.settle_publications().await?;
        }
        Ok(opened)
    }

    /// Copies the write-ahead log into the database file and truncates it, so that this file alone is the whole catalog.
    /// A reader that keeps at an older state for longer than [`CLOSE_TIMEOUT`] prevents it; then the log stays.
    async fn empty_log(&self) -> Result<(), CatalogError> {
        let pool = self.connections.current_pool();
        let nothing_to_do = self.connections.is_read_only() || log_len(&self.database) == 0;
        if nothing_to_do || pool.is_closed() {
            return Ok(());
        }
        let mut connection = pool.acquire().await?;
        let patience = CLOSE_TIMEOUT.as_millis();
        let waiting = format!("PRAGMA busy_timeout = {patience}");
        sqlx::raw_sql(AssertSqlSafe(waiting))
            .execute(&mut *connection)
            .await?;
        let (busy, ..): (i64, i64, i64) = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut *connection)
            .await?;
        if busy != 0 {
            tracing::warn!(
                "a reader keeps the catalog's log in use: it is copied when that one ends"
            );
        }
        Ok(())
    }

    fn expect_writable(&self) -> Result<(), CatalogError> {
        if self.connections.is_read_only() {
            let path = self.database.to_path_buf();
            return Err(CatalogError::ReadOnly { path });
        }
        Ok(())
    }

    /// Puts the number of publications into its file where that has another: after a crash, a power failure, or a copy without it.
    async fn settle_publications(&self) -> Result<(), CatalogError> {
        let mut connection = self.connections.pool().await?.acquire().await?;
        if !self.publications.agrees(&mut connection).await? {
            drop(connection);
            self.publications.try_to_settle(&self.database).await;
        }
        Ok(())
    }
}

#[async_trait]
impl CatalogBackend for SqliteCatalog {
    /// Puts what the log holds into the database file, and closes the connections.
    async fn close(&self) {
        if let Err(error) = self.empty_log().await {
            // Nothing is lost: the log stays, and the next process that opens the catalog reads it.
            tracing::warn!(%error, "the catalog's log could not be copied into its file");
        }
        self.connections.current_pool().close().await;
    }

    fn state(&self) -> Option<CatalogState> {
        Some(CatalogState {
            publications: self.publications.number()?,
            store: file_state(&self.database)?,
        })
    }

    fn upgraded_from(&self) -> Option<i64> {
        self.upgraded_from
    }

    async fn begin_read(&self) -> Result<Transaction<'static>, CatalogError> {
        let connections = &self.connections;
        if !connections.is_read_only() && !connections.current_pool().is_closed() {
            self.publications.settle_if_due(&self.database).await;
        }
        let begun = connections.pool().await?.begin().await?;
        Ok(Transaction::Sqlite(begun))
    }

    async fn begin_write(&self) -> Result<Transaction<'static>, CatalogError> {
        self.expect_writable()?;
        let pool = self.connections.pool().await?;
        let begun = pool.begin_with("BEGIN IMMEDIATE").await?;
        Ok(Transaction::Sqlite(begun))
    }

    async fn commit_publication(
        &self,
        change: Transaction<'static>,
        number: u64,
    ) -> Result<(), CatalogError> {
        self.publications.begin(number)?;
        change.commit().await?;
        if let Err(error) = self.publications.end(number) {
            // What is committed is so; until the number is settled, every statement asks the catalog.
            tracing::warn!(%error, "the number of publications could not be written");
        }
        Ok(())
    }

    /// What SQLite finds wrong with its file: pages, indexes, references.
    async fn file_problems(
        &self,
        snapshot: &mut Transaction<'_>,
    ) -> Result<Vec<String>, CatalogError> {
        let Transaction::Sqlite(snapshot) = snapshot else {
            return Ok(Vec::new());
        };
        let told: Vec<String> =
            sqlx::query_scalar("SELECT integrity_check FROM pragma_integrity_check")
                .fetch_all(&mut **snapshot)
                .await?;
        let mut problems: Vec<String> = (told.into_iter())
            .filter(|told| told != "ok")
            .take(MOST_PROBLEMS)
            .map(|told| format!("the catalog's file is damaged: {told}"))
            .collect();
        let dangling: Vec<String> =
            sqlx::query_scalar("SELECT DISTINCT \"table\" FROM pragma_foreign_key_check")
                .fetch_all(&mut **snapshot)
                .await?;
        let sentence =
            |table: String| format!("rows of the catalog's {table} refer to rows that are gone");
        problems.extend(dangling.into_iter().map(sentence));
        Ok(problems)
    }
}
