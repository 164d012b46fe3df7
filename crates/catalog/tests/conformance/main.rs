//! What every catalog must do, whatever keeps its rows.
//!
//! Each test takes a place in which any number of handles on the same catalog can be opened. The list at the bottom of each module runs its
//! tests on each backend; a new backend is one more place in the macro of these lists.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

/// Runs tests on each backend.
macro_rules! conformance {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::SqliteDirectory::new()).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    if let Some(place) = crate::PostgresPlace::new().await {
                        super::$test(place).await;
                    }
                }
            )+
        }
    };
}

mod descriptions;
mod partitioning;
mod parts;
mod publications;
mod states;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod views;

use meridian_catalog::{Append, Catalog, CatalogError, Chunk, LoadId, Table};
use support::contents;
use support::private_postgres::PostgresPlace;
use tempfile::TempDir;

/// Where a catalog can be opened.
trait Place {
    /// Whether each handle knows of a change as soon as it is made, and not some moments later.
    const KNOWS_AT_ONCE: bool;

    /// One more handle on the same catalog, as another process would get it.
    async fn open(&self) -> Catalog;
}

/// A data directory with an SQLite file.
struct SqliteDirectory(TempDir);

impl SqliteDirectory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Place for SqliteDirectory {
    const KNOWS_AT_ONCE: bool = true;

    async fn open(&self) -> Catalog {
        Catalog::open_or_create(self.0.path()).await.unwrap()
    }
}

impl Place for PostgresPlace {
    const KNOWS_AT_ONCE: bool = false;

    async fn open(&self) -> Catalog {
        Catalog::open(&self.another_dir()).await.unwrap()
    }
}

/// Loads of a table that nothing shows any more.
async fn superseded(catalog: &Catalog, table: &str) -> Vec<LoadId> {
    let all = catalog.superseded_loads().await.unwrap();
    let of_table = all
        .into_iter()
        .filter(|it| it.table == table.to_lowercase());
    of_table.map(|it| it.load).collect()
}

/// One more part for a table, as it is now.
async fn append(
    catalog: &Catalog,
    table: &Table,
    chunks: &[Chunk],
    unsettled: &[String],
) -> Result<LoadId, CatalogError> {
    let (database, name) = (&table.spec.database, &table.spec.name);
    let load = catalog.begin_load(database, name).await?;
    let append = Append {
        load,
        table,
        contents: contents(&table.spec, chunks),
        unsettled,
        replaces: &[],
    };
    catalog.append(append).await.map(|()| load)
}
