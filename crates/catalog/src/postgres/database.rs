//! The database of a catalog in PostgreSQL, for other lists that all front ends of a data directory share. They are tables in the
//! catalog's schema, and neither sealed nor copied with it.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;

use super::{CONNECT_TIMEOUT, PostgresCatalog, Shared, io};
use crate::CatalogError;

/// Connections of one process for such lists.
const CONNECTIONS: u32 = 4;
/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a process that is stopped in the middle of a change keeps others waiting, at most.
const IDLE: &str = "5s";
/// How long a change waits for others.
const LOCK_TIMEOUT: &str = "15s";

/// Connections to the database.
#[derive(Debug, Clone)]
pub struct SharedDatabase {
    catalog: Arc<Shared>,
    pool: PgPool,
}

impl SharedDatabase {
    /// The database that has the catalog of a data directory; `None` if the catalog is in SQLite.
    ///
    /// # Errors
    /// The database cannot be reached, or has the catalog of another directory.
    pub async fn of(data_dir: &Path) -> Result<Option<Self>, CatalogError> {
        let Some(catalog) = PostgresCatalog::open(data_dir).await? else {
            return Ok(None);
        };
        let catalog = catalog.shared;
        let options = catalog.file.address.options()?.options([
            ("idle_in_transaction_session_timeout", IDLE),
            ("lock_timeout", LOCK_TIMEOUT),
        ]);
        let connecting = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT);
        let pool = io::run(async move { Ok(connecting.connect_lazy_with(options)) }).await?;
        Ok(Some(Self { catalog, pool }))
    }

    /// Does work with the connections.
    ///
    /// # Errors
    /// The work fails, or the database does not answer in time.
    pub async fn run<T, W>(
        &self,
        work: impl FnOnce(PgPool) -> W + Send + 'static,
    ) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    {
        let (catalog, pool) = (Arc::clone(&self.catalog), self.pool.clone());
        io::run(in_time(catalog, move || work(pool))).await
    }

    /// The same where the caller's thread may wait.
    ///
    /// # Errors
    /// The work fails, or the database does not answer in time.
    pub fn block<T, W>(
        &self,
        work: impl FnOnce(PgPool) -> W + Send + 'static,
    ) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    {
        let (catalog, pool) = (Arc::clone(&self.catalog), self.pool.clone());
        io::block(in_time(catalog, move || work(pool)))
    }

    /// Ends the connections.
    pub async fn close(self) {
        // Where the thread is gone the connections are, too.
        let _ = io::run(async move {
            self.pool.close().await;
            Ok(())
        })
        .await;
    }
}

async fn in_time<T, W>(
    catalog: Arc<Shared>,
    work: impl FnOnce() -> W + Send,
) -> Result<T, CatalogError>
where
    W: Future<Output = Result<T, sqlx::Error>> + Send,
{
    let done = timeout(PATIENCE, work()).await;
    let done = done.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    done.map_err(|error| catalog.unreachable(error))
}
