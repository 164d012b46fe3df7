//! The statements that read and change the catalog: the same ones whichever database keeps it.
//!
//! What each operation promises is said at [`Catalog`](crate::Catalog). Names and descriptions have been checked, and times are given.

mod checksum;
mod copying;
mod describe;
mod parts;
mod query;
mod read;
mod rows;
mod seal;
mod several_parts;
mod verify;
mod views;
mod write;

use std::sync::Arc;

pub(crate) use self::copying::copy_all;
pub(crate) use self::query::{Transaction, query_scalar};
pub(crate) use self::seal::{seal_again, seal_all};
pub(crate) use self::verify::problems_in;
pub(crate) use self::views::seal_views;
use crate::CatalogError;
use crate::backend::CatalogBackend;

/// The rows of a catalog, in whatever database.
#[derive(Debug, Clone)]
pub(crate) struct Statements {
    backend: Arc<dyn CatalogBackend>,
}

impl Statements {
    pub(crate) fn of(backend: impl CatalogBackend + 'static) -> Self {
        Self {
            backend: Arc::new(backend),
        }
    }

    /// The database.
    pub(crate) fn backend(&self) -> &dyn CatalogBackend {
        &*self.backend
    }

    async fn begin_read(&self) -> Result<Transaction<'static>, CatalogError> {
        self.backend.begin_read().await
    }

    async fn begin_write(&self) -> Result<Transaction<'static>, CatalogError> {
        self.backend.begin_write().await
    }

    /// Commits a change of what readers see, and tells all processes of it.
    async fn commit_publication(
        &self,
        mut change: Transaction<'static>,
    ) -> Result<(), CatalogError> {
        let raised: i64 =
            query_scalar("UPDATE publications SET counter = counter + 1 RETURNING counter")
                .fetch_one(&mut change)
                .await?;
        let number = from_stored("the number of publications", raised)?;
        self.backend.commit_publication(change, number).await
    }
}

/// A count as the database keeps it. Counts of rows and bytes stay far below 2^63.
fn to_stored(count: u64) -> Result<i64, CatalogError> {
    i64::try_from(count).map_err(|_| CatalogError::Damaged(format!("a count of {count}")))
}

/// A count as we know it, of whatever width.
pub(crate) fn from_stored<T: TryFrom<i64>>(what: &str, stored: i64) -> Result<T, CatalogError> {
    T::try_from(stored).map_err(|_| CatalogError::Damaged(format!("{stored} for {what}")))
}
