//! Taking things away: a part of a table, a table, a database. Each is one catalog transaction; files go when nobody reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Catalog, LoadId, LoadLock, Part, Table, TableKind, fold_name};
use futures::StreamExt;
use store::{LoadDir, OpenFiles, ScanRequest};

use crate::directors::{Family, open_parts};
use crate::error::IngestError;
use crate::key_map::{KeyMap, NOWHERE, keys_of};
use crate::leftovers::{remove_loads, remove_superseded};
use crate::load::blocking;
use crate::position::find_column;
use crate::request::LoadRequest;
use crate::row_batch::Place;

/// Bytes for the keys of a part that is to be dropped; beyond that they are looked up on disk.
const KEY_BYTES: u64 = 1 << 30;

/// Files that are kept open while chunks are read in order.
const OPEN_FILES: usize = 4;

/// What was taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropReport {
    /// Tables that are gone, as `database.table`; the table whose part is gone.
    pub tables: Vec<String>,
    /// Rows that queries no longer see.
    pub rows: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Whether queries still read some of the files, which a server, or a later load, drop or compaction removes then.
    pub in_use: bool,
}

/// Drops a table.
///
/// # Errors
/// There is no such table, it is being loaded, or others have its keys.
pub async fn drop_table(
    data_dir: &Path,
    database: &str,
    table: &str,
) -> Result<DropReport, IngestError> {
    with_catalog(data_dir, async |catalog| {
        let found = find_table(catalog, database, table).await?;
        let _lock = lock(data_dir, &found)?;
        catalog.drop_table(database, table).await?;
        finish(catalog, data_dir, &[found]).await
    })
    .await
}

/// Drops a table that has expired.
///
/// # Errors
/// As for [`drop_table`]; and it has not expired, or expires no more.
pub async fn drop_expired(
    catalog: &Catalog,
    database: &str,
    table: &str,
) -> Result<DropReport, IngestError> {
    let found = find_table(catalog, database, table).await?;
    let data_dir = catalog.data_dir();
    let _lock = lock(data_dir, &found)?;
    catalog.drop_expired(database, table).await?;
    finish(catalog, data_dir, &[found]).await
}

/// Drops a database with all its tables.
///
/// # Errors
/// There is no such database, or one of its tables is being loaded.
pub async fn drop_database(data_dir: &Path, database: &str) -> Result<DropReport, IngestError> {
    with_catalog(data_dir, async |catalog| {
        let mut tables = catalog.tables(database).await?;
        // In one order, whoever asks.
        tables.sort_by_key(|table| fold_name(&table.spec.name));
        let locks: Result<Vec<LoadLock>, IngestError> =
            tables.iter().map(|table| lock(data_dir, table)).collect();
        let _locks = locks?;
        catalog.drop_database(database).await?;
        finish(catalog, data_dir, &tables).await
    })
    .await
}

/// Takes one part out of a table: a bad batch.
///
/// # Errors
/// There is no such part, it is the only one, the table is being loaded, or rows of other tables have keys of it, which are
/// named.
pub async fn drop_part(
    data_dir: &Path,
    database: &str,
    table: &str,
    part: LoadId,
) -> Result<DropReport, IngestError> {
    Box::pin(with_catalog(data_dir, async |catalog| {
        let found = find_table(catalog, database, table).await?;
        let _lock = lock(data_dir, &found)?;
        let found = find_table(catalog, database, table).await?;
        let mut dropped = found.clone();
        dropped.parts.retain(|it| it.load == part);
        // Nobody places rows by its keys meanwhile.
        let request = LoadRequest::new(data_dir, database, table);
        let _family = Family::of_director(catalog, &request, &found).await?;
        // What is wrong with the number itself, the catalog says.
        if !dropped.parts.is_empty() && found.parts.len() > 1 {
            reject_dependents(catalog, &request, &dropped).await?;
        }
        catalog.drop_part(database, table, part).await?;
        finish(catalog, data_dir, &[dropped]).await
    }))
    .await
}

async fn with_catalog(
    data_dir: &Path,
    work: impl AsyncFnOnce(&Catalog) -> Result<DropReport, IngestError>,
) -> Result<DropReport, IngestError> {
    let catalog = Catalog::open(data_dir).await?;
    let outcome = work(&catalog).await;
    catalog.close().await;
    outcome
}

async fn find_table(catalog: &Catalog, database: &str, table: &str) -> Result<Table, IngestError> {
    let found = catalog.table(database, table).await?;
    found.ok_or_else(|| {
        let table = format!("{database}.{table}");
        catalog::CatalogError::NoTable { table }.into()
    })
}

fn lock(data_dir: &Path, table: &Table) -> Result<LoadLock, IngestError> {
    let (database, name) = (&table.spec.database, &table.spec.name);
    let what = format!("dropping {database}.{name}");
    Ok(LoadLock::acquire(data_dir, database, name, &what)?)
}

/// Removes the files that nobody reads any more, and tells what is gone.
async fn finish(
    catalog: &Catalog,
    data_dir: &Path,
    tables: &[Table],
) -> Result<DropReport, IngestError> {
    // The tables' locks are held.
    for table in tables {
        let request = LoadRequest::new(data_dir, &table.spec.database, &table.spec.name);
        let left = catalog.unpublished_loads(&request.database, &request.table);
        remove_loads(catalog, &request, &left.await?).await?;
    }
    let in_use = remove_superseded(catalog, data_dir).await? > 0;
    let full_name = |table: &Table| format!("{}.{}", table.spec.database, table.spec.name);
    Ok(DropReport {
        tables: tables.iter().map(full_name).collect(),
        rows: tables.iter().map(Table::rows).sum(),
        bytes: tables.iter().map(Table::bytes).sum(),
        in_use,
    })
}

/// Rejects to drop a part of a director if rows of other tables have its keys. `dropped` is the table with this part alone.
async fn reject_dependents(
    catalog: &Catalog,
    request: &LoadRequest,
    dropped: &Table,
) -> Result<(), IngestError> {
    if dropped.spec.kind != TableKind::Director {
        // Pairs of a child's rows do not need them to be there.
        return Ok(());
    }
    let name = fold_name(&dropped.spec.name);
    let mut dependents = Vec::new();
    // Children in other databases hold up nobody: they are not taken for placed by the director any more.
    for table in catalog.tables(&request.database).await? {
        for reference in &table.spec.directors {
            if fold_name(&reference.table) != name || reference.elsewhere.is_some() {
                continue;
            }
            let in_place = reference.placement == Some(dropped.placement);
            let chunks = key_chunks(catalog, &table, dropped, in_place).await?;
            let keys = keys_of_part(request, dropped).await?;
            let rows = count_rows(request, &table, &reference.key, chunks, keys, in_place).await?;
            if rows > 0 {
                dependents.push(format!(
                    "{rows} rows of {} by {}",
                    table.spec.name, reference.key
                ));
            }
        }
    }
    if dependents.is_empty() {
        return Ok(());
    }
    let part = dropped.parts[0].load;
    Err(IngestError::Options(format!(
        "part {part} of {} cannot be dropped: its keys are those of {}; drop the parts with these rows first",
        dropped.spec.name,
        dependents.join(", ")
    )))
}

/// The chunks of a table's parts in which rows with keys of a part of its director can be.
async fn key_chunks(
    catalog: &Catalog,
    table: &Table,
    dropped: &Table,
    in_place: bool,
) -> Result<Vec<(Part, Vec<catalog::Chunk>)>, IngestError> {
    let mut of_director = std::collections::HashSet::new();
    for part in &dropped.parts {
        of_director.extend(catalog.chunks(part.load).await?.iter().map(|it| it.chunk));
    }
    let mut chunks = Vec::with_capacity(table.parts.len());
    for part in &table.parts {
        let mut of_part = catalog.chunks(part.load).await?;
        of_part.retain(|chunk| !in_place || of_director.contains(&chunk.chunk));
        chunks.push((part.clone(), of_part));
    }
    Ok(chunks)
}

async fn keys_of_part(request: &LoadRequest, dropped: &Table) -> Result<KeyMap, IngestError> {
    let dirs = open_parts(request, dropped)?;
    blocking(move || {
        let indexes: Vec<PathBuf> = dirs.iter().map(LoadDir::index_dir).collect();
        KeyMap::open(&indexes, KEY_BYTES)
    })
    .await
}

/// Rows of a table's chunks whose `column` has one of the keys.
async fn count_rows(
    request: &LoadRequest,
    table: &Table,
    column: &str,
    chunks: Vec<(Part, Vec<catalog::Chunk>)>,
    keys: KeyMap,
    in_place: bool,
) -> Result<u64, IngestError> {
    let column = &table.spec.columns[find_column(&table.spec.columns, "the column", column)?].name;
    let mut rows = 0;
    let mut places = Vec::new();
    // A file may hold several chunks.
    let files = OpenFiles::new(OPEN_FILES);
    for (part, chunks) in chunks {
        let spec = &table.spec;
        let dir = LoadDir::open(&request.data_dir, &spec.database, &spec.name, part.load)?;
        for chunk in chunks {
            let file = files.get(&dir.chunk_path(chunk.file), chunk.chunk).await?;
            let at = file.schema().index_of(column)?;
            let mut batches = file.scan(ScanRequest {
                projection: vec![at],
                filter: None,
                hints: Vec::new(),
                condition: None,
                ranges: None,
                sorted: None,
                sharers: 0,
                counters: None,
                schema: Arc::new(file.schema().project(&[at])?),
            });
            while let Some(batch) = batches.next().await {
                let (values, has_key) = keys_of(batch?.column(0))?;
                keys.lookup(&values, &mut places)?;
                let found =
                    (places.iter().zip(&has_key)).filter(|(it, has)| **has && **it != NOWHERE);
                // A pair may be stored in two chunks: where rows are in place it counts where this key is at home.
                let counts = |it: u64| !in_place || Place(it).chunk() == chunk.chunk;
                rows += found.filter(|(it, _)| counts(**it)).count() as u64;
            }
        }
    }
    Ok(rows)
}
