//! Files that no table shows: what killed loads left, and what was replaced.

use std::path::Path;

use catalog::{Catalog, LoadId};
use store::{LoadDir, Removal};

use crate::error::IngestError;
use crate::request::LoadRequest;

/// Removes what killed loads of the table left, and replaced files that nobody reads any more.
pub(crate) async fn clean_up(catalog: &Catalog, request: &LoadRequest) -> Result<(), IngestError> {
    let LoadRequest {
        database, table, ..
    } = request;
    for load in catalog.unpublished_loads(database, table).await? {
        remove_load(catalog, request, load).await?;
    }
    remove_superseded(catalog, &request.data_dir).await?;
    Ok(())
}

/// Files of a part that no table shows any more, which stay until nobody reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPart {
    /// The folded name of the database that the part was in.
    pub database: String,
    /// The folded name of the table.
    pub table: String,
    /// The part.
    pub part: LoadId,
    /// Bytes of its files.
    pub bytes: u64,
}

/// The parts that no table shows any more and whose files are still there: somebody reads them, or nobody has removed them since.
///
/// # Errors
/// The catalog or the directory of a part cannot be read.
pub async fn held_parts(catalog: &Catalog) -> Result<Vec<HeldPart>, IngestError> {
    let mut held = Vec::new();
    for it in catalog.superseded_loads().await? {
        let bytes = LoadDir::bytes_on_disk(catalog.data_dir(), &it.database, &it.table, it.load)?;
        if bytes > 0 {
            held.push(HeldPart {
                database: it.database,
                table: it.table,
                part: it.load,
                bytes,
            });
        }
    }
    Ok(held)
}

/// Removes the files of parts that no table shows any more and nobody reads. Gives how many others are still read.
///
/// # Errors
/// The catalog cannot be read or written, or files cannot be removed.
pub async fn remove_superseded(catalog: &Catalog, data_dir: &Path) -> Result<usize, IngestError> {
    let mut in_use = 0;
    for it in catalog.superseded_loads().await? {
        match LoadDir::remove(data_dir, &it.database, &it.table, it.load)? {
            Removal::Removed => catalog.forget(it.load).await?,
            Removal::InUse => in_use += 1,
        }
    }
    Ok(in_use)
}

pub(crate) async fn remove_load(
    catalog: &Catalog,
    request: &LoadRequest,
    load: LoadId,
) -> Result<Removal, IngestError> {
    let removal = LoadDir::remove(&request.data_dir, &request.database, &request.table, load)?;
    if removal == Removal::Removed {
        catalog.forget(load).await?;
    }
    Ok(removal)
}
