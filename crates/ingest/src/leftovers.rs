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

/// Removes the files of parts that no table shows any more and nobody reads. Gives how many others are still read.
pub(crate) async fn remove_superseded(
    catalog: &Catalog,
    data_dir: &Path,
) -> Result<usize, IngestError> {
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
