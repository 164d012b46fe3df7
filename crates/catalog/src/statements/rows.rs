//! The rows of the catalog's tables as the database gives them: what their checksums are, and what they mean.

use sky::ChunkId;
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};

use super::checksum::Digest;
use super::from_stored;
use crate::{
    CatalogError, Chunk, Column, ColumnMetadata, Database, DirectorRef, LoadId, OtherDatabase,
    OverlapFile, Part, Position, Table, TableMetadata, TableSpec,
};

/// A row of `databases`.
#[derive(Debug, Clone, FromRow)]
pub(super) struct DatabaseRow {
    pub id: i64,
    pub name: String,
    pub folded_name: String,
    pub stripes: i64,
    pub sub_stripes: i64,
    pub overlap_deg: f64,
    pub description: Option<String>,
    pub checksum: i64,
}

impl DatabaseRow {
    /// Every column of it, for SELECT.
    pub(super) const COLUMNS: &str =
        "id, name, folded_name, stripes, sub_stripes, overlap_deg, description, checksum";

    /// The checksum of a database that has these tables, in the order of their numbers.
    pub(super) fn digest(&self, tables: &[ListedTable]) -> i64 {
        let digest = Digest::of("database")
            .int(self.id)
            .text(&self.name)
            .text(&self.folded_name)
            .int(self.stripes)
            .int(self.sub_stripes)
            .float(self.overlap_deg)
            .list(tables, |digest, table| {
                digest
                    .int(table.id)
                    .text(&table.folded_name)
                    .int(table.checksum)
            });
        // Where nothing is said the checksum is that of the versions in which nothing could be.
        match &self.description {
            None => digest.finish(),
            Some(description) => digest.text("described").text(description).finish(),
        }
    }

    pub(super) fn to_database(&self) -> Result<Database, CatalogError> {
        Ok(Database {
            id: self.id,
            name: self.name.clone(),
            stripes: from_stored("a number of stripes", self.stripes)?,
            sub_stripes: from_stored("a number of sub-stripes", self.sub_stripes)?,
            overlap_deg: self.overlap_deg,
            description: self.description.clone(),
        })
    }
}

/// What a database knows of one of its tables.
#[derive(Debug, Clone, FromRow)]
pub(super) struct ListedTable {
    pub id: i64,
    pub database_id: i64,
    pub folded_name: String,
    pub checksum: i64,
}

/// A row of `loads`.
#[derive(Debug, Clone, FromRow)]
pub(super) struct LoadRow {
    pub id: i64,
    pub folded_database: String,
    pub folded_table: String,
    pub state: String,
    pub pid: i64,
    pub host: String,
    pub started_at: String,
    pub ended_at: Option<String>,
    pub chunk_count: i64,
    pub chunks_checksum: i64,
    pub checksum: i64,
}

impl LoadRow {
    /// Every column of it, for SELECT.
    pub(super) const COLUMNS: &str = "id, folded_database, folded_table, state, pid, host, \
         started_at, ended_at, chunk_count, chunks_checksum, checksum";

    pub(super) fn digest(&self) -> i64 {
        Digest::of("load")
            .int(self.id)
            .text(&self.folded_database)
            .text(&self.folded_table)
            .text(&self.state)
            .int(self.pid)
            .text(&self.host)
            .text(&self.started_at)
            .maybe_text(self.ended_at.as_deref())
            .int(self.chunk_count)
            .int(self.chunks_checksum)
            .finish()
    }

    /// The table that it was begun for.
    pub(super) fn table(&self) -> String {
        format!("{}.{}", self.folded_database, self.folded_table)
    }

    /// What messages call it.
    pub(super) fn describe(&self) -> String {
        format!("load {} of {}", self.id, self.table())
    }
}

/// A row of `tables`.
#[derive(Debug, FromRow)]
pub(super) struct TableRow {
    pub id: i64,
    database_id: i64,
    pub name: String,
    folded_name: String,
    placement: i64,
    kind: String,
    key_column: Option<String>,
    ra_column: Option<String>,
    dec_column: Option<String>,
    scan_rating: i64,
    description: Option<String>,
    utype: Option<String>,
    table_index: Option<i64>,
    expires_at: Option<String>,
}

impl TableRow {
    fn begin_digest(&self) -> Digest {
        Digest::of("table")
            .int(self.id)
            .int(self.database_id)
            .text(&self.name)
            .text(&self.folded_name)
            .int(self.placement)
            .text(&self.kind)
            .maybe_text(self.key_column.as_deref())
            .maybe_text(self.ra_column.as_deref())
            .maybe_text(self.dec_column.as_deref())
            .int(self.scan_rating)
    }

    /// What is said of it, if anything is.
    fn add_metadata_to(&self, digest: Digest) -> Digest {
        if self.description.is_none() && self.utype.is_none() && self.table_index.is_none() {
            return digest;
        }
        digest
            .text("described")
            .maybe_text(self.description.as_deref())
            .maybe_text(self.utype.as_deref())
            .maybe(self.table_index, Digest::int)
    }

    /// When it expires, if it does.
    fn add_expiry_to(&self, digest: Digest) -> Digest {
        match &self.expires_at {
            None => digest,
            Some(time) => digest.text("expires").text(time),
        }
    }

    fn into_table(
        self,
        database: &Database,
        parts: Vec<PartRow>,
        columns: Vec<ColumnRow>,
        directors: Vec<DirectorRow>,
    ) -> Result<Table, CatalogError> {
        let position = self.ra_column.zip(self.dec_column);
        let mut metadata = TableMetadata {
            description: self.description,
            utype: self.utype,
            index: optional("the place of a table", self.table_index)?,
            ..TableMetadata::default()
        };
        for column in &columns {
            let said = column.metadata()?;
            if said != ColumnMetadata::default() {
                metadata.columns.insert(column.folded_name.clone(), said);
            }
        }
        let columns: Result<Vec<_>, _> = columns.into_iter().map(ColumnRow::into_column).collect();
        let directors = directors.into_iter().map(DirectorRow::into_reference);
        let directors = directors.collect::<Result<Vec<_>, _>>()?;
        let elsewhere = directors.iter().find_map(|it| it.elsewhere.as_ref());
        let (stripes, sub_stripes) = match elsewhere {
            Some(other) => (other.stripes, other.sub_stripes),
            None => (database.stripes, database.sub_stripes),
        };
        Ok(Table {
            id: self.id,
            database: Database {
                stripes,
                sub_stripes,
                ..database.clone()
            },
            placement: LoadId(self.placement),
            spec: TableSpec {
                database: database.name.clone(),
                name: self.name,
                kind: self.kind.parse()?,
                columns: columns?,
                key: self.key_column,
                position: position.map(|(ra, dec)| Position { ra, dec }),
                directors,
                scan_rating: from_stored("a scan rating", self.scan_rating)?,
            },
            metadata,
            expires_at: self.expires_at,
            parts: parts
                .into_iter()
                .map(PartRow::into_part)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// A row of `parts`.
#[derive(Debug, FromRow)]
pub(super) struct PartRow {
    pub load_id: i64,
    pub table_id: i64,
    ordinal: i64,
    row_count: i64,
    byte_count: i64,
    null_keys: i64,
    orphan_rows: i64,
    loaded_at: String,
    source: String,
    merged_from: String,
}

impl PartRow {
    fn add_to(&self, digest: Digest) -> Digest {
        let digest = digest.int(self.load_id).int(self.ordinal);
        let digest = self
            .add_counts_to(digest, self.orphan_rows)
            .text(&self.source);
        // A part that was loaded has the checksum that versions had which knew no other.
        match self.merged_from.as_str() {
            "" => digest,
            merged => digest.text("merged from").text(merged),
        }
    }

    fn add_counts_to(&self, digest: Digest, orphan_rows: i64) -> Digest {
        digest
            .int(self.null_keys)
            .int(orphan_rows)
            .int(self.row_count)
            .int(self.byte_count)
            .text(&self.loaded_at)
    }

    fn into_part(self) -> Result<Part, CatalogError> {
        Ok(Part {
            load: LoadId(self.load_id),
            rows: from_stored("a number of rows", self.row_count)?,
            bytes: from_stored("a number of bytes", self.byte_count)?,
            null_keys: from_stored("a number of NULL keys", self.null_keys)?,
            orphan_rows: from_stored("a number of orphans", self.orphan_rows)?,
            loaded_at: self.loaded_at,
            source: self.source,
            merged_from: parse_numbers(&self.merged_from)?,
        })
    }
}

/// The numbers of parts as they are stored: ascending, neighbours as in `3-5`.
pub(super) fn numbers_to_text(numbers: &[LoadId]) -> String {
    let mut texts = Vec::new();
    for run in numbers.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0)) {
        match run {
            [first, .., last] => texts.push(format!("{first}-{last}")),
            run => texts.extend(run.iter().map(LoadId::to_string)),
        }
    }
    texts.join(",")
}

/// Reads what [`numbers_to_text`] wrote.
fn parse_numbers(text: &str) -> Result<Vec<LoadId>, CatalogError> {
    let damaged = || CatalogError::Damaged(format!("{text:?} as numbers of parts"));
    let number = |text: &str| text.parse::<i64>().map_err(|_| damaged());
    let mut numbers = Vec::new();
    for run in text.split(',').filter(|run| !run.is_empty()) {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        numbers.extend((number(first)?..=number(last)?).map(LoadId));
    }
    Ok(numbers)
}

/// All that is written about one table: its own row, its parts, columns and directors in their order.
#[derive(Debug)]
pub(super) struct TableRows {
    pub table: TableRow,
    pub parts: Vec<PartRow>,
    pub columns: Vec<ColumnRow>,
    pub directors: Vec<DirectorRow>,
}

impl TableRows {
    /// The table's checksum.
    pub(super) fn digest(&self) -> i64 {
        let digest = (self.table.begin_digest())
            .list(&self.parts, |digest, part| part.add_to(digest))
            .list(&self.columns, |digest, column| column.add_to(digest))
            .list(&self.directors, |digest, director| director.add_to(digest));
        // A table of which nothing is said has the checksum of the versions in which nothing could be.
        let digest = self.table.add_metadata_to(digest);
        let digest = self.table.add_expiry_to(digest);
        let columns = self.columns.iter();
        columns
            .fold(digest, |digest, column| column.add_metadata_to(digest))
            .finish()
    }

    /// The checksum that version 2 of the catalog kept of it, when every table had one part; `None` if it has more.
    pub(super) fn digest_of_version_2(&self) -> Option<i64> {
        let [part] = self.parts.as_slice() else {
            return None;
        };
        // Of match tables that version counted no orphans.
        let orphan_rows = match self.table.kind.as_str() {
            "match" => 0,
            _ => part.orphan_rows,
        };
        let digest = part.add_counts_to(self.table.begin_digest(), orphan_rows);
        let digest = digest.list(&self.columns, |digest, column| column.add_to(digest));
        let add_director = |digest: Digest, it: &DirectorRow| {
            let digest = digest.int(it.ordinal).text(&it.director);
            digest
                .text(&it.key_column)
                .int(it.director_placement.unwrap_or_default())
        };
        Some(digest.list(&self.directors, add_director).finish())
    }

    pub(super) fn into_table(self, database: &Database) -> Result<Table, CatalogError> {
        self.table
            .into_table(database, self.parts, self.columns, self.directors)
    }
}

/// A row of `columns`.
#[derive(Debug, FromRow)]
pub(super) struct ColumnRow {
    pub table_id: i64,
    ordinal: i64,
    name: String,
    folded_name: String,
    #[sqlx(rename = "type")]
    ty: String,
    nullable: i64,
    declared: Option<String>,
    description: Option<String>,
    unit: Option<String>,
    ucd: Option<String>,
    utype: Option<String>,
    xtype: Option<String>,
    principal: Option<i64>,
    column_index: Option<i64>,
}

impl ColumnRow {
    fn add_to(&self, digest: Digest) -> Digest {
        digest
            .int(self.ordinal)
            .text(&self.name)
            .text(&self.folded_name)
            .text(&self.ty)
            .int(self.nullable)
            .maybe_text(self.declared.as_deref())
    }

    /// The texts that are said of it, in their order.
    fn texts(&self) -> [&Option<String>; 5] {
        [
            &self.description,
            &self.unit,
            &self.ucd,
            &self.utype,
            &self.xtype,
        ]
    }

    /// What is said of it, if anything is, behind its place, so that no column's words pass for another's.
    fn add_metadata_to(&self, digest: Digest) -> Digest {
        let numbers = [self.principal, self.column_index];
        if self.texts().iter().all(|text| text.is_none()) && numbers == [None; 2] {
            return digest;
        }
        let digest = digest.text("described").int(self.ordinal);
        let digest = (self.texts().into_iter())
            .fold(digest, |digest, text| digest.maybe_text(text.as_deref()));
        (numbers.into_iter()).fold(digest, |digest, number| digest.maybe(number, Digest::int))
    }

    pub(super) fn folded_name(&self) -> &str {
        &self.folded_name
    }

    pub(super) fn metadata(&self) -> Result<ColumnMetadata, CatalogError> {
        Ok(ColumnMetadata {
            description: self.description.clone(),
            unit: self.unit.clone(),
            ucd: self.ucd.clone(),
            utype: self.utype.clone(),
            xtype: self.xtype.clone(),
            principal: self.principal.map(|flag| flag != 0),
            index: optional("the place of a column", self.column_index)?,
        })
    }

    fn into_column(self) -> Result<Column, CatalogError> {
        Ok(Column {
            ty: self.ty.parse()?,
            name: self.name,
            nullable: self.nullable != 0,
            declared: self.declared,
        })
    }
}

fn optional<T: TryFrom<i64>>(what: &str, stored: Option<i64>) -> Result<Option<T>, CatalogError> {
    stored.map(|stored| from_stored(what, stored)).transpose()
}

/// A row of `table_directors`.
#[derive(Debug, FromRow)]
pub(super) struct DirectorRow {
    pub table_id: i64,
    ordinal: i64,
    director: String,
    key_column: String,
    director_placement: Option<i64>,
    director_database: Option<String>,
    stripes: Option<i64>,
    sub_stripes: Option<i64>,
}

impl DirectorRow {
    fn add_to(&self, digest: Digest) -> Digest {
        let digest = digest
            .int(self.ordinal)
            .text(&self.director)
            .text(&self.key_column)
            .maybe(self.director_placement, Digest::int);
        // A director of the same database has the checksum of the versions that knew no others.
        match &self.director_database {
            None if self.stripes.is_none() && self.sub_stripes.is_none() => digest,
            name => digest
                .text("elsewhere")
                .maybe_text(name.as_deref())
                .maybe(self.stripes, Digest::int)
                .maybe(self.sub_stripes, Digest::int),
        }
    }

    fn into_reference(self) -> Result<DirectorRef, CatalogError> {
        let elsewhere = match (self.director_database, self.stripes, self.sub_stripes) {
            (Some(name), Some(stripes), Some(sub_stripes)) => Some(OtherDatabase {
                name,
                stripes: from_stored("a number of stripes", stripes)?,
                sub_stripes: from_stored("a number of sub-stripes", sub_stripes)?,
            }),
            (None, None, None) => None,
            _ => {
                return Err(CatalogError::Damaged(format!(
                    "the database of the director {:?}",
                    self.director
                )));
            }
        };
        Ok(DirectorRef {
            table: self.director,
            elsewhere,
            key: self.key_column,
            placement: self.director_placement.map(LoadId),
        })
    }
}

/// A row of `chunks`, in the order of [`ChunkRow::COLUMNS`]: they are taken by number, because there are many rows.
#[derive(Debug)]
pub(super) struct ChunkRow {
    chunk_id: i64,
    /// Rows, bytes, checksum.
    file: [i64; 3],
    /// The same of the overlap file, or NULLs.
    overlap: [Option<i64>; 3],
    bounds: [Option<f64>; 4],
    /// The chunk that the file is named after.
    file_chunk: Option<i64>,
    strays: i64,
}

impl<'r, R: Row> FromRow<'r, R> for ChunkRow
where
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    f64: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        Ok(Self {
            chunk_id: row.try_get(0)?,
            file: [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?],
            overlap: [row.try_get(4)?, row.try_get(5)?, row.try_get(6)?],
            bounds: [
                row.try_get(7)?,
                row.try_get(8)?,
                row.try_get(9)?,
                row.try_get(10)?,
            ],
            file_chunk: row.try_get(11)?,
            strays: row.try_get(12)?,
        })
    }
}

impl ChunkRow {
    /// Every column of it but the load's number, for SELECT.
    pub(super) const COLUMNS: &str = "chunk_id, row_count, byte_count, checksum, overlap_rows, \
         overlap_bytes, overlap_checksum, ra_min, dec_min, ra_max, dec_max, file, strays";

    /// The checksum of all chunks of a load, in the order of their numbers.
    pub(super) fn digest_all(load: LoadId, chunks: &[Self]) -> i64 {
        let add = |digest: Digest, chunk: &Self| {
            let digest = chunk.add_to(digest);
            let digest = digest.maybe(chunk.file_chunk, Digest::int);
            digest.int(chunk.strays)
        };
        Digest::of("chunks").int(load.0).list(chunks, add).finish()
    }

    /// The same as version 2 of the catalog kept it, before files could be shared.
    pub(super) fn digest_all_of_version_2(load: LoadId, chunks: &[Self]) -> i64 {
        let add = |digest: Digest, chunk: &Self| chunk.add_to(digest);
        Digest::of("chunks").int(load.0).list(chunks, add).finish()
    }

    fn add_to(&self, digest: Digest) -> Digest {
        let digest = digest.int(self.chunk_id);
        let digest = self.file.into_iter().fold(digest, Digest::int);
        let digest = (self.overlap.into_iter())
            .fold(digest, |digest, number| digest.maybe(number, Digest::int));
        (self.bounds.into_iter()).fold(digest, |digest, bound| digest.maybe(bound, Digest::float))
    }

    pub(super) fn into_chunk(self) -> Result<Chunk, CatalogError> {
        let [rows, bytes, checksum] = self.file;
        let overlap = match self.overlap {
            [Some(rows), Some(bytes), Some(checksum)] => Some(OverlapFile {
                rows: from_stored("a number of rows", rows)?,
                bytes: from_stored("a number of bytes", bytes)?,
                checksum: checksum.cast_unsigned(),
            }),
            _ => None,
        };
        let bounds = match self.bounds {
            [Some(ra_min), Some(dec_min), Some(ra_max), Some(dec_max)] => {
                Some([ra_min, dec_min, ra_max, dec_max])
            }
            _ => None,
        };
        Ok(Chunk {
            chunk: chunk_number(self.chunk_id)?,
            file: chunk_number(self.file_chunk.unwrap_or(self.chunk_id))?,
            strays: from_stored("a number of rows", self.strays)?,
            rows: from_stored("a number of rows", rows)?,
            bytes: from_stored("a number of bytes", bytes)?,
            checksum: checksum.cast_unsigned(),
            overlap,
            bounds,
        })
    }
}

fn chunk_number(stored: i64) -> Result<ChunkId, CatalogError> {
    Ok(ChunkId(from_stored("the number of a chunk", stored)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_damage_is_told() {
        let numbers = [3, 4, 5, 9, 11, 12].map(LoadId);
        assert_eq!(numbers_to_text(&numbers), "3-5,9,11-12");
        for bits in 0..1_i64 << 10 {
            let set = (1..=10).filter(|bit| bits >> (bit - 1) & 1 == 1);
            let numbers: Vec<LoadId> = set.map(LoadId).collect();
            assert_eq!(parse_numbers(&numbers_to_text(&numbers)).unwrap(), numbers);
        }
        for damaged in ["x", "3-", "3-x", "-"] {
            let error = parse_numbers(damaged).unwrap_err();
            assert!(matches!(error, CatalogError::Damaged(_)), "{error}");
        }
    }
}
