//! Reading the catalog: each public answer comes from one state of it.

use std::collections::HashMap;

use sky::ChunkId;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row, SqliteConnection};

use super::{SqliteCatalog, from_stored};
use crate::{
    CatalogError, Chunk, Column, Database, DirectorRef, LoadId, OverlapFile, Position, Table,
    TableSpec, fold_name,
};

impl SqliteCatalog {
    pub async fn databases(&self) -> Result<Vec<Database>, CatalogError> {
        let rows: Vec<DatabaseRow> = sqlx::query_as(
            "SELECT id, name, stripes, sub_stripes, overlap_deg FROM databases ORDER BY folded_name",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(DatabaseRow::into_database).collect()
    }

    pub async fn database(&self, name: &str) -> Result<Option<Database>, CatalogError> {
        let mut connection = self.pool.acquire().await?;
        database_named(&mut connection, name).await
    }

    /// The tables of a database, by name; only the one called `name` if a name is given.
    pub async fn tables(
        &self,
        database: &str,
        name: Option<&str>,
    ) -> Result<Vec<Table>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let Some(database) = database_named(&mut snapshot, database).await? else {
            return Ok(Vec::new());
        };
        let wanted = name.map(fold_name);
        let rows: Vec<TableRow> = sqlx::query_as(
            "SELECT id, name, load_id, kind, key_column, ra_column, dec_column, scan_rating, \
                    null_keys, orphan_rows, row_count, byte_count, loaded_at \
             FROM tables WHERE database_id = ? AND (? IS NULL OR folded_name = ?) \
             ORDER BY folded_name",
        )
        .bind(database.id)
        .bind(&wanted)
        .bind(&wanted)
        .fetch_all(&mut *snapshot)
        .await?;
        let mut columns = columns_of(&mut snapshot, database.id, wanted.as_deref()).await?;
        let mut directors = directors_of(&mut snapshot, database.id, wanted.as_deref()).await?;
        rows.into_iter()
            .map(|row| {
                let columns = columns.remove(&row.id).unwrap_or_default();
                let directors = directors.remove(&row.id).unwrap_or_default();
                row.into_table(&database, columns, directors)
            })
            .collect()
    }

    pub async fn chunks(&self, load: LoadId) -> Result<Vec<Chunk>, CatalogError> {
        let rows: Vec<ChunkRow> = sqlx::query_as(
            "SELECT chunk_id, row_count, byte_count, checksum, overlap_rows, overlap_bytes, \
                    overlap_checksum, ra_min, dec_min, ra_max, dec_max \
             FROM chunks WHERE load_id = ? ORDER BY chunk_id",
        )
        .bind(load.0)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(ChunkRow::into_chunk).collect()
    }

    pub async fn chunk_count(&self, load: LoadId) -> Result<u64, CatalogError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM chunks WHERE load_id = ?")
            .bind(load.0)
            .fetch_one(&self.pool)
            .await?;
        from_stored("a number of chunks", count)
    }

    pub async fn unpublished_loads(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let sql = "SELECT id FROM loads WHERE folded_database = ? AND folded_table = ? \
                   AND state IN ('running', 'abandoned') ORDER BY id";
        self.load_ids(sql, database, table).await
    }

    pub async fn superseded_loads(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let sql = "SELECT id FROM loads WHERE folded_database = ? AND folded_table = ? \
                   AND state = 'superseded' ORDER BY id";
        self.load_ids(sql, database, table).await
    }

    async fn load_ids(
        &self,
        sql: &'static str,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let ids: Vec<i64> = sqlx::query_scalar(sql)
            .bind(fold_name(database))
            .bind(fold_name(table))
            .fetch_all(&self.pool)
            .await?;
        Ok(ids.into_iter().map(LoadId).collect())
    }
}

/// The database of this name as the given connection or transaction sees it.
pub(super) async fn database_named(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<Option<Database>, CatalogError> {
    let row: Option<DatabaseRow> = sqlx::query_as(
        "SELECT id, name, stripes, sub_stripes, overlap_deg FROM databases WHERE folded_name = ?",
    )
    .bind(fold_name(name))
    .fetch_optional(connection)
    .await?;
    row.map(DatabaseRow::into_database).transpose()
}

/// The columns of a database's tables (or of one of them), by table number, in order.
async fn columns_of(
    connection: &mut SqliteConnection,
    database: i64,
    wanted: Option<&str>,
) -> Result<HashMap<i64, Vec<Column>>, CatalogError> {
    let rows: Vec<ColumnRow> = sqlx::query_as(
        "SELECT c.table_id, c.name, c.type, c.nullable, c.declared \
         FROM columns c JOIN tables t ON t.id = c.table_id \
         WHERE t.database_id = ? AND (? IS NULL OR t.folded_name = ?) \
         ORDER BY c.table_id, c.ordinal",
    )
    .bind(database)
    .bind(wanted)
    .bind(wanted)
    .fetch_all(connection)
    .await?;
    let mut by_table: HashMap<i64, Vec<Column>> = HashMap::new();
    for row in rows {
        let columns = by_table.entry(row.table_id).or_default();
        columns.push(row.into_column()?);
    }
    Ok(by_table)
}

/// The directors of a database's tables (or of one of them), by table number, in order.
async fn directors_of(
    connection: &mut SqliteConnection,
    database: i64,
    wanted: Option<&str>,
) -> Result<HashMap<i64, Vec<DirectorRef>>, CatalogError> {
    let rows: Vec<DirectorRow> = sqlx::query_as(
        "SELECT d.table_id, d.director, d.key_column, d.director_load \
         FROM table_directors d JOIN tables t ON t.id = d.table_id \
         WHERE t.database_id = ? AND (? IS NULL OR t.folded_name = ?) \
         ORDER BY d.table_id, d.ordinal",
    )
    .bind(database)
    .bind(wanted)
    .bind(wanted)
    .fetch_all(connection)
    .await?;
    let mut by_table: HashMap<i64, Vec<DirectorRef>> = HashMap::new();
    for row in rows {
        let directors = by_table.entry(row.table_id).or_default();
        directors.push(DirectorRef {
            table: row.director,
            key: row.key_column,
            load: LoadId(row.director_load),
        });
    }
    Ok(by_table)
}

#[derive(FromRow)]
struct DatabaseRow {
    id: i64,
    name: String,
    stripes: i64,
    sub_stripes: i64,
    overlap_deg: f64,
}

impl DatabaseRow {
    fn into_database(self) -> Result<Database, CatalogError> {
        Ok(Database {
            id: self.id,
            name: self.name,
            stripes: from_stored("a number of stripes", self.stripes)?,
            sub_stripes: from_stored("a number of sub-stripes", self.sub_stripes)?,
            overlap_deg: self.overlap_deg,
        })
    }
}

#[derive(FromRow)]
struct TableRow {
    id: i64,
    name: String,
    load_id: i64,
    kind: String,
    key_column: Option<String>,
    ra_column: Option<String>,
    dec_column: Option<String>,
    scan_rating: i64,
    null_keys: i64,
    orphan_rows: i64,
    row_count: i64,
    byte_count: i64,
    loaded_at: String,
}

impl TableRow {
    fn into_table(
        self,
        database: &Database,
        columns: Vec<Column>,
        directors: Vec<DirectorRef>,
    ) -> Result<Table, CatalogError> {
        let position = self.ra_column.zip(self.dec_column);
        Ok(Table {
            id: self.id,
            database: database.clone(),
            load: LoadId(self.load_id),
            spec: TableSpec {
                database: database.name.clone(),
                name: self.name,
                kind: self.kind.parse()?,
                columns,
                key: self.key_column,
                position: position.map(|(ra, dec)| Position { ra, dec }),
                directors,
                scan_rating: from_stored("a scan rating", self.scan_rating)?,
                null_keys: from_stored("a number of NULL keys", self.null_keys)?,
                orphan_rows: from_stored("a number of orphans", self.orphan_rows)?,
            },
            rows: from_stored("a number of rows", self.row_count)?,
            bytes: from_stored("a number of bytes", self.byte_count)?,
            loaded_at: self.loaded_at,
        })
    }
}

#[derive(FromRow)]
struct ColumnRow {
    table_id: i64,
    name: String,
    #[sqlx(rename = "type")]
    ty: String,
    nullable: bool,
    declared: Option<String>,
}

impl ColumnRow {
    fn into_column(self) -> Result<Column, CatalogError> {
        Ok(Column {
            ty: self.ty.parse()?,
            name: self.name,
            nullable: self.nullable,
            declared: self.declared,
        })
    }
}

#[derive(FromRow)]
struct DirectorRow {
    table_id: i64,
    director: String,
    key_column: String,
    director_load: i64,
}

/// In the order of the query's columns: they are taken by number, because there are many rows.
struct ChunkRow {
    chunk_id: i32,
    row_count: i64,
    byte_count: i64,
    checksum: i64,
    overlap_rows: Option<i64>,
    overlap_bytes: Option<i64>,
    overlap_checksum: Option<i64>,
    ra_min: Option<f64>,
    dec_min: Option<f64>,
    ra_max: Option<f64>,
    dec_max: Option<f64>,
}

impl FromRow<'_, SqliteRow> for ChunkRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            chunk_id: row.try_get(0)?,
            row_count: row.try_get(1)?,
            byte_count: row.try_get(2)?,
            checksum: row.try_get(3)?,
            overlap_rows: row.try_get(4)?,
            overlap_bytes: row.try_get(5)?,
            overlap_checksum: row.try_get(6)?,
            ra_min: row.try_get(7)?,
            dec_min: row.try_get(8)?,
            ra_max: row.try_get(9)?,
            dec_max: row.try_get(10)?,
        })
    }
}

impl ChunkRow {
    fn into_chunk(self) -> Result<Chunk, CatalogError> {
        let overlap = self
            .overlap_rows
            .zip(self.overlap_bytes)
            .zip(self.overlap_checksum);
        let overlap = overlap.map(|((rows, bytes), checksum)| {
            Ok::<_, CatalogError>(OverlapFile {
                rows: from_stored("a number of rows", rows)?,
                bytes: from_stored("a number of bytes", bytes)?,
                checksum: checksum.cast_unsigned(),
            })
        });
        let low = self.ra_min.zip(self.dec_min);
        let high = self.ra_max.zip(self.dec_max);
        Ok(Chunk {
            chunk: ChunkId(self.chunk_id),
            rows: from_stored("a number of rows", self.row_count)?,
            bytes: from_stored("a number of bytes", self.byte_count)?,
            checksum: self.checksum.cast_unsigned(),
            overlap: overlap.transpose()?,
            bounds: (low.zip(high))
                .map(|((ra_min, dec_min), (ra_max, dec_max))| [ra_min, dec_min, ra_max, dec_max]),
        })
    }
}
