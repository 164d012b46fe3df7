//! Writing the checksums down, in the transaction that changes what they cover.
//!
//! A checksum is computed of the rows as they are read back, by the code that will compare them. What covers more than was
//! changed (the list of loads, a database's list of tables) is compared with its checksum before the change: to seal it
//! unseen would hide damage that is there already.

use super::query::{Transaction, query};
use super::read::{
    chunk_rows, databases, databases_unverified, describe_tables, digest_databases, digest_loads,
    loads, loads_unverified,
};
use super::rows::{ChunkRow, LoadRow, TableRows};
use crate::{CatalogError, LoadId};

/// Seals the description of one table.
pub(super) async fn seal_table(
    change: &mut Transaction<'_>,
    database: i64,
    table: i64,
) -> Result<(), CatalogError> {
    let described = describe_tables(change, database, Some(table)).await?;
    for rows in described.values() {
        query("UPDATE tables SET checksum = ? WHERE id = ?")
            .bind(rows.digest())
            .bind(rows.table.id)
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}

/// Seals the databases and their lists of tables. Their tables are sealed already.
pub(super) async fn seal_databases(change: &mut Transaction<'_>) -> Result<(), CatalogError> {
    let mut databases = databases_unverified(change).await?;
    for listed in &mut databases {
        listed.row.checksum = listed.row.digest(&listed.tables);
        query("UPDATE databases SET checksum = ? WHERE id = ?")
            .bind(listed.row.checksum)
            .bind(listed.row.id)
            .execute(&mut *change)
            .await?;
    }
    seal_list(change, "databases", digest_databases(&databases)).await
}

/// Seals the list of chunks of a load; the load itself is not sealed by that.
pub(super) async fn seal_chunks(
    change: &mut Transaction<'_>,
    load: LoadId,
) -> Result<(), CatalogError> {
    let chunks = chunk_rows(change, load).await?;
    query("UPDATE loads SET chunk_count = ?, chunks_checksum = ? WHERE id = ?")
        .bind(chunks.len() as i64)
        .bind(ChunkRow::digest_all(load, &chunks))
        .bind(load.0)
        .execute(change)
        .await?;
    Ok(())
}

/// Seals the loads that were changed, and the list of all.
pub(super) async fn seal_loads(
    change: &mut Transaction<'_>,
    changed: impl Fn(&LoadRow) -> bool,
) -> Result<(), CatalogError> {
    let mut loads = loads_unverified(change).await?;
    for load in loads.iter_mut().filter(|load| changed(load)) {
        load.checksum = load.digest();
        query("UPDATE loads SET checksum = ? WHERE id = ?")
            .bind(load.checksum)
            .bind(load.id)
            .execute(&mut *change)
            .await?;
    }
    seal_list(change, "loads", digest_loads(&loads)).await
}

/// Seals everything as it is: for a catalog that had no checksums.
pub(crate) async fn seal_all(change: &mut Transaction<'_>) -> Result<(), CatalogError> {
    for listed in databases_unverified(change).await? {
        for table in listed.tables {
            seal_table(change, listed.row.id, table.id).await?;
        }
    }
    seal_databases(change).await?;
    for load in loads_unverified(change).await? {
        seal_chunks(change, LoadId(load.id)).await?;
    }
    seal_loads(change, |_| true).await
}

/// Seals everything anew after a step from version 2, whose checksums covered the same rows in another form. What did not fit
/// its checksum before gets one that it does not fit either: a step hides no damage.
pub(crate) async fn seal_again(change: &mut Transaction<'_>) -> Result<(), CatalogError> {
    // Both lists are of the same form in both versions; whoever is damaged there cannot be told apart.
    databases(change).await?;
    loads(change).await?;
    for listed in databases_unverified(change).await? {
        let described = describe_tables(change, listed.row.id, None).await?;
        for table in listed.tables {
            let rows = described.get(&table.id);
            let fits = rows.and_then(TableRows::digest_of_version_2) == Some(table.checksum);
            seal_table(change, listed.row.id, table.id).await?;
            if !fits {
                spoil(
                    change,
                    "UPDATE tables SET checksum = ~checksum WHERE id = ?",
                    table.id,
                )
                .await?;
            }
        }
    }
    seal_databases(change).await?;
    for load in loads_unverified(change).await? {
        let rows = chunk_rows(change, LoadId(load.id)).await?;
        let digest = ChunkRow::digest_all_of_version_2(LoadId(load.id), &rows);
        seal_chunks(change, LoadId(load.id)).await?;
        if digest != load.chunks_checksum {
            let sql = "UPDATE loads SET chunks_checksum = ~chunks_checksum WHERE id = ?";
            spoil(change, sql, load.id).await?;
        }
    }
    seal_loads(change, |_| true).await
}

async fn spoil(
    change: &mut Transaction<'_>,
    sql: &'static str,
    id: i64,
) -> Result<(), CatalogError> {
    query(sql).bind(id).execute(change).await?;
    Ok(())
}

pub(super) async fn seal_list(
    change: &mut Transaction<'_>,
    list: &str,
    checksum: i64,
) -> Result<(), CatalogError> {
    query(
        "INSERT INTO lists (name, checksum) VALUES (?, ?) \
         ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum",
    )
    .bind(list)
    .bind(checksum)
    .execute(change)
    .await?;
    Ok(())
}
