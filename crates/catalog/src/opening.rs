//! Which database keeps the catalog of a data directory: PostgreSQL where the file `meridian.catalog` names one, else SQLite.

use std::path::Path;

use crate::CatalogError;
use crate::postgres::PostgresCatalog;
use crate::sqlite::SqliteCatalog;
use crate::statements::Statements;

/// Opens the catalog of a data directory that has one.
pub(crate) async fn open(data_dir: &Path) -> Result<Statements, CatalogError> {
    match PostgresCatalog::open(data_dir).await? {
        Some(postgres) => Ok(Statements::of(postgres)),
        None => Ok(Statements::of(SqliteCatalog::open(data_dir).await?)),
    }
}

/// Opens the catalog of a data directory, which is made if need be, with a catalog in SQLite.
pub(crate) async fn open_or_create(data_dir: &Path) -> Result<Statements, CatalogError> {
    match PostgresCatalog::open(data_dir).await? {
        Some(postgres) => Ok(Statements::of(postgres)),
        None => Ok(Statements::of(
            SqliteCatalog::open_or_create(data_dir).await?,
        )),
    }
}
