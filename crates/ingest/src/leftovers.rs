//! Files that no table shows: what killed loads left, and what was replaced.

use std::path::Path;

use catalog::{Catalog, LoadId};
use store::{LoadDir, Removal};

use crate::error::IngestError;
use crate::request::LoadRequest;

/// Loads that are removed and then forgotten in one transaction.
const REMOVED_TOGETHER: usize = 64;

/// Removes what killed loads of the table left, and replaced files that nobody reads any more.
pub(crate) async fn clean_up(catalog: &Catalog, request: &LoadRequest) -> Result<(), IngestError> {
    let LoadRequest {
        database, table, ..
    } = request;
    let left = catalog.unpublished_loads(database, table).await?;
    remove_loads(catalog, request, &left).await?;
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
    let superseded = catalog.superseded_loads().await?;
    let loads = superseded.iter();
    let loads = loads.map(|it| (it.database.as_str(), it.table.as_str(), it.load));
    let loads: Vec<_> = loads.collect();
    remove_all(catalog, data_dir, &loads).await
}

pub(crate) async fn remove_load(
    catalog: &Catalog,
    request: &LoadRequest,
    load: LoadId,
) -> Result<Removal, IngestError> {
    match remove_loads(catalog, request, &[load]).await? {
        0 => Ok(Removal::Removed),
        _ => Ok(Removal::InUse),
    }
}

/// Removes what loads of the request's table have written. Gives how many of them somebody still reads, which stay.
pub(crate) async fn remove_loads(
    catalog: &Catalog,
    request: &LoadRequest,
    loads: &[LoadId],
) -> Result<usize, IngestError> {
    let (database, table) = (request.database.as_str(), request.table.as_str());
    let loads: Vec<_> = { loads.iter() }
        .map(|load| (database, table, *load))
        .collect();
    remove_all(catalog, &request.data_dir, &loads).await
}

/// Removes the files of loads, each with its database and table, and forgets them. Gives how many of them somebody still reads.
async fn remove_all(
    catalog: &Catalog,
    data_dir: &Path,
    loads: &[(&str, &str, LoadId)],
) -> Result<usize, IngestError> {
    let mut in_use = 0;
    for some in loads.chunks(REMOVED_TOGETHER) {
        let removals = LoadDir::remove_all(data_dir, some)?;
        let mut removed = Vec::with_capacity(some.len());
        for ((.., load), removal) in some.iter().zip(removals) {
            match removal {
                Removal::Removed => removed.push(*load),
                Removal::InUse => in_use += 1,
            }
        }
        catalog.forget_all(&removed).await?;
    }
    Ok(in_use)
}
