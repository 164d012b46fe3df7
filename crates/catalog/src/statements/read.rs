//! Reading the catalog: each public result comes from one state of it, and the rows that it uses match their checksums.

use std::collections::HashMap;

use sqlx::AssertSqlSafe;

use super::checksum::Digest;
use super::query::{Transaction, query_as, query_scalar};
use super::rows::{
    ChunkRow, ColumnRow, DatabaseRow, DirectorRow, ListedTable, LoadRow, PartRow, TableRow,
    TableRows,
};
use super::{Statements, from_stored};
use crate::{CatalogError, Chunk, Database, LoadId, SupersededLoad, Table, fold_name};

impl Statements {
    pub async fn databases(&self) -> Result<Vec<Database>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let mut databases = databases(&mut snapshot).await?;
        databases.sort_by(|a, b| a.row.folded_name.cmp(&b.row.folded_name));
        databases
            .iter()
            .map(|listed| listed.row.to_database())
            .collect()
    }

    pub async fn database(&self, name: &str) -> Result<Option<Database>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let found = database_named(&mut snapshot, name).await?;
        found.map(|listed| listed.row.to_database()).transpose()
    }

    /// The tables of a database, by name; only the one called `name` if a name is given.
    pub async fn tables(
        &self,
        database: &str,
        name: Option<&str>,
    ) -> Result<Vec<Table>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let Some(listed) = database_named(&mut snapshot, database).await? else {
            return Ok(Vec::new());
        };
        tables_of(&mut snapshot, &listed, name).await
    }

    pub async fn chunks(&self, load: LoadId) -> Result<Vec<Chunk>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let Some(row) = load_row(&mut snapshot, load).await? else {
            return Ok(Vec::new());
        };
        chunks_of(&mut snapshot, &row).await
    }

    pub async fn chunk_count(&self, load: LoadId) -> Result<u64, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let row = load_row(&mut snapshot, load).await?;
        from_stored("a number of chunks", row.map_or(0, |load| load.chunk_count))
    }

    pub async fn unpublished_loads(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        self.loads_in(&["running", "abandoned"], database, table)
            .await
    }

    pub async fn superseded_loads(&self) -> Result<Vec<SupersededLoad>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let loads = loads(&mut snapshot).await?;
        let superseded = loads.into_iter().filter(|load| load.state == "superseded");
        let named = superseded.map(|load| SupersededLoad {
            load: LoadId(load.id),
            database: load.folded_database,
            table: load.folded_table,
        });
        Ok(named.collect())
    }

    async fn loads_in(
        &self,
        states: &[&str],
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let (database, table) = (fold_name(database), fold_name(table));
        let mut snapshot = self.begin_read().await?;
        let loads = loads(&mut snapshot).await?;
        let is_asked_for = |load: &&LoadRow| {
            load.folded_database == database
                && load.folded_table == table
                && states.contains(&load.state.as_str())
        };
        Ok(loads
            .iter()
            .filter(is_asked_for)
            .map(|load| LoadId(load.id))
            .collect())
    }
}

/// A database whose description fits its checksum, and what it knows of its tables, in the order of their numbers.
#[derive(Debug, Clone)]
pub(super) struct ListedDatabase {
    pub row: DatabaseRow,
    pub tables: Vec<ListedTable>,
}

/// All databases, in the order of their numbers.
///
/// # Errors
/// [`CatalogError::Altered`] if one of them, the list of its tables, or the list of databases does not fit its checksum.
pub(super) async fn databases(
    connection: &mut Transaction<'_>,
) -> Result<Vec<ListedDatabase>, CatalogError> {
    let databases = databases_unverified(connection).await?;
    for listed in &databases {
        let name = &listed.row.name;
        let digest = listed.row.digest(&listed.tables);
        expect(listed.row.checksum, digest, || {
            format!("database {name} and its list of tables")
        })?;
    }
    expect(
        list_checksum(connection, "databases").await?,
        digest_databases(&databases),
        || "the list of databases".to_owned(),
    )?;
    Ok(databases)
}

/// The same, not compared with the checksums.
pub(super) async fn databases_unverified(
    connection: &mut Transaction<'_>,
) -> Result<Vec<ListedDatabase>, CatalogError> {
    let sql = format!("SELECT {} FROM databases", DatabaseRow::COLUMNS);
    let mut rows: Vec<DatabaseRow> = query_as(AssertSqlSafe(sql))
        .fetch_all(&mut *connection)
        .await?;
    rows.sort_by_key(|row| row.id);
    let mut tables: Vec<ListedTable> =
        query_as("SELECT id, database_id, folded_name, checksum FROM tables")
            .fetch_all(connection)
            .await?;
    tables.sort_by_key(|table| table.id);
    let mut of_database: HashMap<i64, Vec<ListedTable>> = HashMap::new();
    for table in tables {
        of_database
            .entry(table.database_id)
            .or_default()
            .push(table);
    }
    let listed = rows.into_iter().map(|row| ListedDatabase {
        tables: of_database.remove(&row.id).unwrap_or_default(),
        row,
    });
    Ok(listed.collect())
}

/// The checksum of the list of databases.
pub(super) fn digest_databases(databases: &[ListedDatabase]) -> i64 {
    let add = |digest: Digest, listed: &ListedDatabase| {
        digest.int(listed.row.id).int(listed.row.checksum)
    };
    Digest::of("databases").list(databases, add).finish()
}

/// The database of this name as the given connection or transaction sees it.
pub(super) async fn database_named(
    connection: &mut Transaction<'_>,
    name: &str,
) -> Result<Option<ListedDatabase>, CatalogError> {
    let folded = fold_name(name);
    let databases = databases(connection).await?;
    Ok(databases
        .into_iter()
        .find(|listed| listed.row.folded_name == folded))
}

/// The tables of a database, by name; only the one called `name` if a name is given.
pub(super) async fn tables_of(
    connection: &mut Transaction<'_>,
    database: &ListedDatabase,
    name: Option<&str>,
) -> Result<Vec<Table>, CatalogError> {
    let wanted = name.map(fold_name);
    let listed: Vec<&ListedTable> = (database.tables.iter())
        .filter(|table| {
            wanted
                .as_ref()
                .is_none_or(|name| *name == table.folded_name)
        })
        .collect();
    let only = match (&wanted, listed.as_slice()) {
        (_, []) => return Ok(Vec::new()),
        (Some(_), [only, ..]) => Some(only.id),
        (None, _) => None,
    };
    let mut described = describe_tables(connection, database.row.id, only).await?;
    let owner = database.row.to_database()?;
    let mut tables = Vec::with_capacity(listed.len());
    for table in listed {
        let what = || format!("table {}.{}", owner.name, table.folded_name);
        let rows =
            (described.remove(&table.id)).ok_or_else(|| CatalogError::Altered { what: what() })?;
        expect(table.checksum, rows.digest(), what)?;
        if rows.parts.is_empty() {
            return Err(CatalogError::Altered { what: what() });
        }
        tables.push((&table.folded_name, rows.into_table(&owner)?));
    }
    tables.sort_by(|a, b| a.0.cmp(b.0));
    Ok(tables.into_iter().map(|(_, table)| table).collect())
}

/// What is written about the tables of a database (or about one of them), by table number; not compared with anything.
pub(super) async fn describe_tables(
    connection: &mut Transaction<'_>,
    database: i64,
    only: Option<i64>,
) -> Result<HashMap<i64, TableRows>, CatalogError> {
    let rows: Vec<TableRow> = query_as(
        "SELECT id, database_id, name, folded_name, placement, kind, key_column, ra_column, dec_column, \
                scan_rating, description, utype, table_index, expires_at \
         FROM tables WHERE database_id = ? AND (? IS NULL OR id = ?)",
    )
    .bind(database)
    .bind(only)
    .bind(only)
    .fetch_all(&mut *connection)
    .await?;
    let parts: Vec<PartRow> = query_as(
        "SELECT p.load_id, p.table_id, p.ordinal, p.row_count, p.byte_count, p.null_keys, p.orphan_rows, \
                p.loaded_at, p.source, p.merged_from \
         FROM tables t JOIN parts p ON p.table_id = t.id \
         WHERE t.database_id = ? AND (? IS NULL OR t.id = ?) ORDER BY p.table_id, p.ordinal",
    )
    .bind(database)
    .bind(only)
    .bind(only)
    .fetch_all(&mut *connection)
    .await?;
    let columns: Vec<ColumnRow> = query_as(
        "SELECT c.table_id, c.ordinal, c.name, c.folded_name, c.type, c.nullable, c.declared, \
                c.description, c.unit, c.ucd, c.utype, c.xtype, c.principal, c.column_index \
         FROM tables t JOIN columns c ON c.table_id = t.id \
         WHERE t.database_id = ? AND (? IS NULL OR t.id = ?) ORDER BY c.table_id, c.ordinal",
    )
    .bind(database)
    .bind(only)
    .bind(only)
    .fetch_all(&mut *connection)
    .await?;
    let directors: Vec<DirectorRow> = query_as(
        "SELECT d.table_id, d.ordinal, d.director, d.key_column, d.director_placement, \
                d.director_database, d.stripes, d.sub_stripes \
         FROM tables t JOIN table_directors d ON d.table_id = t.id \
         WHERE t.database_id = ? AND (? IS NULL OR t.id = ?) ORDER BY d.table_id, d.ordinal",
    )
    .bind(database)
    .bind(only)
    .bind(only)
    .fetch_all(connection)
    .await?;
    let empty = |table: TableRow| TableRows {
        table,
        parts: Vec::new(),
        columns: Vec::new(),
        directors: Vec::new(),
    };
    let mut described: HashMap<i64, TableRows> =
        (rows.into_iter()).map(|row| (row.id, empty(row))).collect();
    for part in parts {
        if let Some(rows) = described.get_mut(&part.table_id) {
            rows.parts.push(part);
        }
    }
    for column in columns {
        if let Some(rows) = described.get_mut(&column.table_id) {
            rows.columns.push(column);
        }
    }
    for director in directors {
        if let Some(rows) = described.get_mut(&director.table_id) {
            rows.directors.push(director);
        }
    }
    Ok(described)
}

/// All loads, in the order of their numbers.
///
/// # Errors
/// [`CatalogError::Altered`] if one of them or their list does not fit its checksum.
pub(super) async fn loads(connection: &mut Transaction<'_>) -> Result<Vec<LoadRow>, CatalogError> {
    let loads = loads_unverified(connection).await?;
    for load in &loads {
        expect(load.checksum, load.digest(), || load.describe())?;
    }
    expect(
        list_checksum(connection, "loads").await?,
        digest_loads(&loads),
        || "the list of loads".to_owned(),
    )?;
    Ok(loads)
}

/// The same, not compared with the checksums.
pub(super) async fn loads_unverified(
    connection: &mut Transaction<'_>,
) -> Result<Vec<LoadRow>, CatalogError> {
    let sql = format!("SELECT {} FROM loads", LoadRow::COLUMNS);
    let mut loads: Vec<LoadRow> = query_as(AssertSqlSafe(sql)).fetch_all(connection).await?;
    loads.sort_by_key(|load| load.id);
    Ok(loads)
}

/// The checksum of the list of loads.
pub(super) fn digest_loads(loads: &[LoadRow]) -> i64 {
    let add = |digest: Digest, load: &LoadRow| digest.int(load.id).int(load.checksum);
    Digest::of("loads").list(loads, add).finish()
}

/// One load; `None` if it is not known, which a load that a table shows must be.
pub(super) async fn load_row(
    connection: &mut Transaction<'_>,
    load: LoadId,
) -> Result<Option<LoadRow>, CatalogError> {
    let sql = format!("SELECT {} FROM loads WHERE id = ?", LoadRow::COLUMNS);
    let row: Option<LoadRow> = query_as(AssertSqlSafe(sql))
        .bind(load.0)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        let shown: bool = query_scalar("SELECT EXISTS (SELECT 1 FROM parts WHERE load_id = ?)")
            .bind(load.0)
            .fetch_one(connection)
            .await?;
        let what = format!("load {load}, which a table shows,");
        return if shown {
            Err(CatalogError::Altered { what })
        } else {
            Ok(None)
        };
    };
    expect(row.checksum, row.digest(), || row.describe())?;
    Ok(Some(row))
}

/// The chunks of a load, which fit its checksum of them.
pub(super) async fn chunks_of(
    connection: &mut Transaction<'_>,
    load: &LoadRow,
) -> Result<Vec<Chunk>, CatalogError> {
    let rows = chunk_rows(connection, LoadId(load.id)).await?;
    expect(
        load.chunks_checksum,
        ChunkRow::digest_all(LoadId(load.id), &rows),
        || format!("the list of chunks of {}", load.describe()),
    )?;
    rows.into_iter().map(ChunkRow::into_chunk).collect()
}

/// The chunks of a load in the order of their numbers, not compared with anything.
pub(super) async fn chunk_rows(
    connection: &mut Transaction<'_>,
    load: LoadId,
) -> Result<Vec<ChunkRow>, CatalogError> {
    let sql = format!(
        "SELECT {} FROM chunks WHERE load_id = ? ORDER BY chunk_id",
        ChunkRow::COLUMNS
    );
    Ok(query_as(AssertSqlSafe(sql))
        .bind(load.0)
        .fetch_all(connection)
        .await?)
}

/// The checksum that is kept of a list; 0 if it is gone, which is no list's.
pub(super) async fn list_checksum(
    connection: &mut Transaction<'_>,
    list: &str,
) -> Result<i64, CatalogError> {
    let kept: Option<i64> = query_scalar("SELECT checksum FROM lists WHERE name = ?")
        .bind(list)
        .fetch_optional(connection)
        .await?;
    Ok(kept.unwrap_or(0))
}

pub(super) fn expect(
    kept: i64,
    found: i64,
    what: impl FnOnce() -> String,
) -> Result<(), CatalogError> {
    if kept == found {
        return Ok(());
    }
    Err(CatalogError::Altered { what: what() })
}
