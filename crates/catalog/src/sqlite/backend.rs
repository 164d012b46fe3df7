//! SQLite as a backend: each operation is in the module of its kind.

use async_trait::async_trait;

use super::SqliteCatalog;
use crate::backend::CatalogBackend;
use crate::catalog::{Append, Publication, Superseded};
use crate::state::CatalogState;
use crate::{
    CatalogError, Chunk, Database, DatabaseChange, LoadId, NewDatabase, PartContents, Table,
    TableSpec, View, ViewQuery,
};

#[async_trait]
impl CatalogBackend for SqliteCatalog {
    async fn close(&self) {
        self.close().await;
    }

    fn state(&self) -> Option<CatalogState> {
        self.state()
    }

    fn upgraded_from(&self) -> Option<i64> {
        self.upgraded_from()
    }

    async fn verify(&self) -> Result<Vec<String>, CatalogError> {
        self.verify().await
    }

    async fn databases(&self) -> Result<Vec<Database>, CatalogError> {
        self.databases().await
    }

    async fn database(&self, name: &str) -> Result<Option<Database>, CatalogError> {
        self.database(name).await
    }

    async fn tables(&self, database: &str, name: Option<&str>) -> Result<Vec<Table>, CatalogError> {
        self.tables(database, name).await
    }

    async fn chunks(&self, load: LoadId) -> Result<Vec<Chunk>, CatalogError> {
        self.chunks(load).await
    }

    async fn chunk_count(&self, load: LoadId) -> Result<u64, CatalogError> {
        self.chunk_count(load).await
    }

    async fn unpublished_loads(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        self.unpublished_loads(database, table).await
    }

    async fn superseded_loads(&self) -> Result<Vec<Superseded>, CatalogError> {
        self.superseded_loads().await
    }

    async fn begin_load(
        &self,
        database: &str,
        table: &str,
        now: &str,
    ) -> Result<LoadId, CatalogError> {
        self.begin_load(database, table, now).await
    }

    async fn abandon(&self, load: LoadId, now: &str) -> Result<(), CatalogError> {
        self.abandon(load, now).await
    }

    async fn forget(&self, load: LoadId) -> Result<(), CatalogError> {
        self.forget(load).await
    }

    async fn publish(
        &self,
        load: LoadId,
        database: &NewDatabase,
        spec: &TableSpec,
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        self.publish(load, database, spec, contents, now).await
    }

    async fn append(&self, appends: &[Append<'_>], now: &str) -> Result<(), CatalogError> {
        self.append(appends, now).await
    }

    async fn merge_parts(
        &self,
        load: LoadId,
        table: &Table,
        merged: &[LoadId],
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<(), CatalogError> {
        self.merge_parts(load, table, merged, contents, now).await
    }

    async fn drop_part(
        &self,
        database: &str,
        table: &str,
        part: LoadId,
    ) -> Result<(), CatalogError> {
        self.drop_part(database, table, part).await
    }

    async fn publish_renamed(
        &self,
        load: LoadId,
        former: &Table,
        spec: &TableSpec,
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<(), CatalogError> {
        self.publish_renamed(load, former, spec, contents, now)
            .await
    }

    async fn drop_table(&self, database: &str, table: &str) -> Result<Vec<LoadId>, CatalogError> {
        self.drop_table(database, table).await
    }

    async fn drop_database(&self, database: &str) -> Result<(), CatalogError> {
        self.drop_database(database).await
    }

    async fn repartition(
        &self,
        database: &NewDatabase,
        publications: &[Publication<'_>],
        now: &str,
    ) -> Result<(), CatalogError> {
        self.repartition(database, publications, now).await
    }

    async fn describe(
        &self,
        database: &str,
        change: &DatabaseChange,
    ) -> Result<bool, CatalogError> {
        self.describe(database, change).await
    }

    async fn views(&self) -> Result<Vec<View>, CatalogError> {
        self.views().await
    }

    async fn create_view(
        &self,
        database: &str,
        name: &str,
        query: &ViewQuery,
        description: Option<&str>,
        replace: bool,
        now: &str,
    ) -> Result<(), CatalogError> {
        self.create_view(database, name, query, description, replace, now)
            .await
    }

    async fn drop_view(&self, database: &str, name: &str) -> Result<(), CatalogError> {
        self.drop_view(database, name).await
    }
}
