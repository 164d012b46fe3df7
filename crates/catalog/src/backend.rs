//! What keeps the catalog's rows: the trait behind [`Catalog`](crate::Catalog).

use std::fmt;

use async_trait::async_trait;

use crate::catalog::{Append, Publication, Superseded};
use crate::state::CatalogState;
use crate::{
    CatalogError, Chunk, Database, DatabaseChange, LoadId, NewDatabase, PartContents, Table,
    TableSpec, View, ViewQuery,
};

/// A database that keeps the catalog. Its operations are those of [`Catalog`](crate::Catalog), where what they promise is said; names and
/// descriptions have been checked, and times are given. `tests/conformance.rs` runs on every backend.
///
/// Each change is one transaction. One that changes what readers see raises the number of publications in the same transaction, so that
/// [`state`](Self::state) tells every process of it once it is committed.
#[async_trait]
pub(crate) trait CatalogBackend: fmt::Debug + Send + Sync {
    async fn close(&self);
    /// The state now; `None` while it is not known whether a change is committed. Never later than what a read that begins afterwards
    /// sees. It is asked for each statement, and must take no more than some microseconds.
    fn state(&self) -> Option<CatalogState>;
    fn upgraded_from(&self) -> Option<i64>;
    async fn verify(&self) -> Result<Vec<String>, CatalogError>;

    async fn databases(&self) -> Result<Vec<Database>, CatalogError>;
    async fn database(&self, name: &str) -> Result<Option<Database>, CatalogError>;
    /// The tables of a database, by name; only the one called `name` if a name is given.
    async fn tables(&self, database: &str, name: Option<&str>) -> Result<Vec<Table>, CatalogError>;
    async fn chunks(&self, load: LoadId) -> Result<Vec<Chunk>, CatalogError>;
    async fn chunk_count(&self, load: LoadId) -> Result<u64, CatalogError>;
    async fn unpublished_loads(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError>;
    async fn superseded_loads(&self) -> Result<Vec<Superseded>, CatalogError>;

    async fn begin_load(
        &self,
        database: &str,
        table: &str,
        now: &str,
    ) -> Result<LoadId, CatalogError>;
    async fn abandon(&self, load: LoadId, now: &str) -> Result<(), CatalogError>;
    async fn forget(&self, load: LoadId) -> Result<(), CatalogError>;

    async fn publish(
        &self,
        load: LoadId,
        database: &NewDatabase,
        spec: &TableSpec,
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<Vec<LoadId>, CatalogError>;
    async fn publish_renamed(
        &self,
        load: LoadId,
        former: &Table,
        spec: &TableSpec,
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<(), CatalogError>;
    async fn append(&self, appends: &[Append<'_>], now: &str) -> Result<(), CatalogError>;
    async fn merge_parts(
        &self,
        load: LoadId,
        table: &Table,
        merged: &[LoadId],
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<(), CatalogError>;
    async fn drop_part(
        &self,
        database: &str,
        table: &str,
        part: LoadId,
    ) -> Result<(), CatalogError>;
    async fn drop_table(&self, database: &str, table: &str) -> Result<Vec<LoadId>, CatalogError>;
    async fn drop_database(&self, database: &str) -> Result<(), CatalogError>;
    async fn repartition(
        &self,
        database: &NewDatabase,
        publications: &[Publication<'_>],
        now: &str,
    ) -> Result<(), CatalogError>;
    async fn describe(&self, database: &str, change: &DatabaseChange)
    -> Result<bool, CatalogError>;

    async fn views(&self) -> Result<Vec<View>, CatalogError>;
    async fn create_view(
        &self,
        database: &str,
        name: &str,
        query: &ViewQuery,
        description: Option<&str>,
        replace: bool,
        now: &str,
    ) -> Result<(), CatalogError>;
    async fn drop_view(&self, database: &str, name: &str) -> Result<(), CatalogError>;
}
