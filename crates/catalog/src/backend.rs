//! What keeps the catalog's rows: the trait behind [`Catalog`](crate::Catalog).

use std::fmt;

use async_trait::async_trait;

use crate::CatalogError;
use crate::state::CatalogState;
use crate::statements::Transaction;

/// A database that keeps the catalog. What is read and changed in it is the same for all (`statements`); `tests/conformance.rs` runs on
/// every backend.
#[async_trait]
pub(crate) trait CatalogBackend: fmt::Debug + Send + Sync {
    async fn close(&self);
    /// The state now; `None` while it is not known whether a change is committed. Never later than what a read that begins afterwards
    /// sees. It is asked for each statement, and must take no more than some microseconds.
    fn state(&self) -> Option<CatalogState>;
    fn upgraded_from(&self) -> Option<i64>;

    /// A transaction that sees one state of the catalog from its first read on.
    async fn begin_read(&self) -> Result<Transaction<'static>, CatalogError>;
    /// A transaction that holds the write lock: others that change anything wait for it, readers do not.
    async fn begin_write(&self) -> Result<Transaction<'static>, CatalogError>;
    /// Commits a change of what readers see, in which the number of publications was raised to `number`, so that
    /// [`state`](Self::state) tells every process of it.
    async fn commit_publication(
        &self,
        change: Transaction<'static>,
        number: u64,
    ) -> Result<(), CatalogError>;
    /// What the database itself finds wrong with its files and references, in sentences.
    async fn file_problems(
        &self,
        snapshot: &mut Transaction<'_>,
    ) -> Result<Vec<String>, CatalogError>;
}
