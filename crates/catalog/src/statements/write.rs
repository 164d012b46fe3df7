//! Changing the catalog: one short transaction for each change, which seals what it changed (see [`super::seal`]).

use sqlx::AssertSqlSafe;

use super::describe::{describe_columns, described_columns};
use super::query::{Transaction, query, query_scalar};
use super::read::{database_named, load_row, loads};
use super::seal::{seal_chunks, seal_databases, seal_loads, seal_table};
use super::views::expect_no_view;
use super::{Statements, to_stored};
use crate::catalog::Publication;
use crate::process::host_name;
use crate::{
    CatalogError, Chunk, Column, DirectorRef, LoadId, NewDatabase, PartContents, TableKind,
    TableSpec, UNKNOWN_LOAD, fold_name,
};

/// Rows of one INSERT statement. SQLite takes 32,766 parameters and PostgreSQL 65,535; a chunk has 14.
const ROWS_PER_INSERT: usize = 1000;

impl Statements {
    pub async fn begin_load(
        &self,
        database: &str,
        table: &str,
        now: &str,
    ) -> Result<LoadId, CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        expect_no_view(&mut change, database, table).await?;
        let begun = put_load(&mut change, database, table, now).await?;
        seal_loads(&mut change, |load| load.id == begun.0).await?;
        change.commit().await?;
        Ok(begun)
    }

    pub async fn publish(
        &self,
        load: LoadId,
        database: &NewDatabase,
        spec: &TableSpec,
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        expect_running(&mut change, load, &spec.database, &spec.name).await?;
        let database_id = settle_database(&mut change, database, spec).await?;
        let replaced = show(&mut change, database_id, load, spec, contents, now).await?;
        seal_databases(&mut change).await?;
        seal_loads(&mut change, |row| {
            row.id == load.0 || replaced.contains(&LoadId(row.id))
        })
        .await?;
        self.commit_publication(change).await?;
        Ok(replaced)
    }

    pub async fn repartition(
        &self,
        database: &NewDatabase,
        publications: &[Publication<'_>],
        now: &str,
    ) -> Result<(), CatalogError> {
        let changed = || CatalogError::ChangedMeanwhile {
            database: database.name.clone(),
        };
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        let listed = database_named(&mut change, &database.name).await?;
        let id = listed.ok_or_else(changed)?.row.id;
        let replaced = publications.iter().flat_map(|it| &it.replaces);
        let mut expected: Vec<i64> = replaced.map(|load| load.0).collect();
        expected.sort_unstable();
        if partitioned_loads(&mut change, id).await? != expected {
            return Err(changed());
        }
        repartition(&mut change, id, database).await?;
        for it in publications {
            let TableSpec { database, name, .. } = &it.spec;
            expect_running(&mut change, it.load, database, name).await?;
            let replaced = show(&mut change, id, it.load, &it.spec, it.contents, now).await?;
            if replaced != it.replaces {
                return Err(changed());
            }
        }
        seal_databases(&mut change).await?;
        let concerned = |load: i64| {
            let mut all = publications.iter();
            all.any(|it| it.load.0 == load || it.replaces.contains(&LoadId(load)))
        };
        seal_loads(&mut change, |row| concerned(row.id)).await?;
        self.commit_publication(change).await?;
        Ok(())
    }

    pub async fn abandon(&self, load: LoadId, now: &str) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        let state = load_row(&mut change, load).await?.map(|row| row.state);
        match state.as_deref() {
            Some("running") => end_load(&mut change, load, "abandoned", now).await?,
            Some("abandoned") => {}
            _ => return Err(not_running(load, state)),
        }
        seal_loads(&mut change, |row| row.id == load.0).await?;
        change.commit().await?;
        Ok(())
    }

    pub async fn forget(&self, forgotten: &[LoadId]) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        for load in forgotten {
            if let Some(row) = load_row(&mut change, *load).await?
                && row.state == "published"
            {
                return Err(CatalogError::StillShown {
                    load: *load,
                    table: row.table(),
                });
            }
            // Its chunks go with it (ON DELETE CASCADE).
            query("DELETE FROM loads WHERE id = ?")
                .bind(load.0)
                .execute(&mut change)
                .await?;
        }
        seal_loads(&mut change, |_| false).await?;
        change.commit().await?;
        Ok(())
    }
}

/// Writes down a load that begins, and that it has no chunks yet. The load itself is for the caller to seal.
pub(super) async fn put_load(
    change: &mut Transaction<'_>,
    database: &str,
    table: &str,
    now: &str,
) -> Result<LoadId, CatalogError> {
    let id = query_scalar(
        "INSERT INTO loads (folded_database, folded_table, state, pid, host, started_at) \
         VALUES (?, ?, 'running', ?, ?, ?) RETURNING id",
    )
    .bind(fold_name(database))
    .bind(fold_name(table))
    .bind(i64::from(std::process::id()))
    .bind(host_name())
    .bind(now)
    .fetch_one(&mut *change)
    .await?;
    seal_chunks(change, LoadId(id)).await?;
    Ok(LoadId(id))
}

fn not_running(load: LoadId, state: Option<String>) -> CatalogError {
    CatalogError::NotRunning {
        load,
        state: state.unwrap_or_else(|| UNKNOWN_LOAD.to_owned()),
    }
}

/// Sees that a load is running and was begun for this table.
pub(super) async fn expect_running(
    change: &mut Transaction<'_>,
    load: LoadId,
    database: &str,
    table: &str,
) -> Result<(), CatalogError> {
    let Some(row) = load_row(change, load).await? else {
        return Err(not_running(load, None));
    };
    if row.state != "running" {
        return Err(not_running(load, Some(row.state)));
    }
    let asked = (fold_name(database), fold_name(table));
    if asked == (row.folded_database.clone(), row.folded_table.clone()) {
        return Ok(());
    }
    Err(CatalogError::OtherTable {
        load,
        begun: row.table(),
        asked: format!("{database}.{table}"),
    })
}

pub(super) async fn end_load(
    change: &mut Transaction<'_>,
    load: LoadId,
    state: &str,
    now: &str,
) -> Result<(), CatalogError> {
    query("UPDATE loads SET state = ?, ended_at = ? WHERE id = ?")
        .bind(state)
        .bind(now)
        .bind(load.0)
        .execute(change)
        .await?;
    Ok(())
}

/// Writes down that a table consists of one load: its own row, its part, columns, directors and chunks, and the states of this
/// load and of the parts before, which it gives. Seals the table and the chunks; databases and loads are for the caller to seal.
pub(super) async fn show(
    change: &mut Transaction<'_>,
    database: i64,
    load: LoadId,
    spec: &TableSpec,
    contents: PartContents<'_>,
    now: &str,
) -> Result<Vec<LoadId>, CatalogError> {
    expect_no_view(change, &spec.database, &spec.name).await?;
    expect_directors(change, database, spec).await?;
    let before = described_columns(change, database, &spec.name).await?;
    let table = put_table(change, database, load, spec).await?;
    let replaced = supersede_all(change, table, now).await?;
    put_part(change, table, 0, load, contents, now).await?;
    put_columns(change, table, &spec.columns).await?;
    describe_columns(change, table, spec, before, contents.metadata).await?;
    put_directors(change, table, &spec.directors, contents.orphan_rows).await?;
    put_chunks(change, load, contents.chunks).await?;
    end_load(change, load, "published", now).await?;
    seal_table(change, database, table).await?;
    seal_chunks(change, load).await?;
    Ok(replaced)
}

/// Of a table `t`: that it is cut as its database is, and not as that of a director elsewhere.
const CUT_AS_THE_DATABASE: &str = "NOT EXISTS (SELECT 1 FROM table_directors e \
     WHERE e.table_id = t.id AND e.director_database IS NOT NULL)";

/// The parts of the partitioned tables of a database, by number.
async fn partitioned_loads(
    change: &mut Transaction<'_>,
    database: i64,
) -> Result<Vec<i64>, CatalogError> {
    let sql = format!(
        "SELECT load_id FROM parts p JOIN tables t ON t.id = p.table_id \
               WHERE database_id = ? AND kind <> 'replicated' AND {CUT_AS_THE_DATABASE} ORDER BY load_id"
    );
    Ok(query_scalar(AssertSqlSafe(sql))
        .bind(database)
        .fetch_all(change)
        .await?)
}

/// Makes the database or sees that it agrees; gives its number.
pub(super) async fn settle_database(
    change: &mut Transaction<'_>,
    asked: &NewDatabase,
    spec: &TableSpec,
) -> Result<i64, CatalogError> {
    if fold_name(&asked.name) != fold_name(&spec.database) {
        let reason = format!("it was to go into database {}", asked.name);
        return Err(spec.reject(reason));
    }
    let Some(listed) = database_named(change, &asked.name).await? else {
        return make_database(change, asked).await;
    };
    let id = listed.row.id;
    let there = NewDatabase {
        name: asked.name.clone(),
        ..NewDatabase::from(&listed.row.to_database()?)
    };
    if there == *asked {
        return Ok(id);
    }
    // Replicated tables have no use for the partitioning: whatever was written down with them yields
    // to the first table that has, and they take whatever is there. So does what a table's own former
    // rows were cut by. A child of a director elsewhere is cut as that one's database is.
    if spec.kind == TableKind::Replicated || spec.is_cut_as_elsewhere() {
        return Ok(id);
    }
    if others_are_partitioned(change, id, spec).await? {
        return Err(CatalogError::DatabaseDiffers {
            database: asked.name.clone(),
            there: there.partitioning(),
            asked: asked.partitioning(),
        });
    }
    repartition(change, id, asked).await?;
    Ok(id)
}

async fn make_database(
    change: &mut Transaction<'_>,
    asked: &NewDatabase,
) -> Result<i64, CatalogError> {
    let id = query_scalar(
        "INSERT INTO databases (name, folded_name, stripes, sub_stripes, overlap_deg) \
         VALUES (?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(&asked.name)
    .bind(fold_name(&asked.name))
    .bind(asked.stripes)
    .bind(asked.sub_stripes)
    .bind(asked.overlap_deg)
    .fetch_one(change)
    .await?;
    Ok(id)
}

/// Whether a database has other tables than this one whose rows are spread over chunks.
async fn others_are_partitioned(
    change: &mut Transaction<'_>,
    database: i64,
    spec: &TableSpec,
) -> Result<bool, CatalogError> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM tables t \
         WHERE database_id = ? AND kind <> 'replicated' AND {CUT_AS_THE_DATABASE} AND folded_name <> ?)"
    );
    let partitioned = query_scalar(AssertSqlSafe(sql))
        .bind(database)
        .bind(fold_name(&spec.name))
        .fetch_one(change)
        .await?;
    Ok(partitioned)
}

async fn repartition(
    change: &mut Transaction<'_>,
    database: i64,
    asked: &NewDatabase,
) -> Result<(), CatalogError> {
    query("UPDATE databases SET stripes = ?, sub_stripes = ?, overlap_deg = ? WHERE id = ?")
        .bind(asked.stripes)
        .bind(asked.sub_stripes)
        .bind(asked.overlap_deg)
        .bind(database)
        .execute(change)
        .await?;
    Ok(())
}

async fn expect_directors(
    change: &mut Transaction<'_>,
    database: i64,
    spec: &TableSpec,
) -> Result<(), CatalogError> {
    for director in &spec.directors {
        let name = &director.table;
        let elsewhere = director.elsewhere.as_ref();
        let sql = "SELECT t.kind FROM tables t JOIN databases d ON d.id = t.database_id \
                   WHERE CASE WHEN ?1 IS NULL THEN d.id = ?2 ELSE d.folded_name = ?1 END AND t.folded_name = ?3";
        let kind: Option<String> = query_scalar(sql)
            .bind(elsewhere.map(|other| fold_name(&other.name)))
            .bind(database)
            .bind(fold_name(name))
            .fetch_optional(&mut *change)
            .await?;
        match kind.as_deref() {
            Some("director") => {}
            Some("child") if spec.kind == TableKind::Match => {}
            Some(kind) => {
                return Err(spec.reject(format!("{name} is a {kind} table, not a director")));
            }
            None => return Err(spec.reject(format!("there is no director {name} in its database"))),
        }
    }
    Ok(())
}

/// Takes all parts of a table out of its list and gives their numbers in order.
pub(super) async fn supersede_all(
    change: &mut Transaction<'_>,
    table: i64,
    now: &str,
) -> Result<Vec<LoadId>, CatalogError> {
    let parts: Vec<i64> =
        query_scalar("SELECT load_id FROM parts WHERE table_id = ? ORDER BY ordinal")
            .bind(table)
            .fetch_all(&mut *change)
            .await?;
    let parts: Vec<LoadId> = parts.into_iter().map(LoadId).collect();
    for part in &parts {
        supersede(change, *part, now).await?;
    }
    Ok(parts)
}

/// Takes a part out of its table's list.
pub(super) async fn supersede(
    change: &mut Transaction<'_>,
    part: LoadId,
    now: &str,
) -> Result<(), CatalogError> {
    query("DELETE FROM parts WHERE load_id = ?")
        .bind(part.0)
        .execute(&mut *change)
        .await?;
    end_load(change, part, "superseded", now).await
}

/// Writes a part into a table's list at a place that is free.
pub(super) async fn put_part(
    change: &mut Transaction<'_>,
    table: i64,
    ordinal: i64,
    load: LoadId,
    contents: PartContents<'_>,
    now: &str,
) -> Result<(), CatalogError> {
    query(
        "INSERT INTO parts (load_id, table_id, ordinal, row_count, byte_count, null_keys, orphan_rows, \
                            loaded_at, source) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(load.0)
    .bind(table)
    .bind(ordinal)
    .bind(to_stored(contents.rows)?)
    .bind(to_stored(contents.bytes)?)
    .bind(to_stored(contents.null_keys)?)
    .bind(to_stored(contents.orphan_rows)?)
    .bind(now)
    .bind(contents.source)
    .execute(change)
    .await?;
    Ok(())
}

/// Writes the table's own row, new or over the one that was there, and gives its number.
async fn put_table(
    change: &mut Transaction<'_>,
    database: i64,
    load: LoadId,
    spec: &TableSpec,
) -> Result<i64, CatalogError> {
    let position = spec.position.as_ref();
    let table = query_scalar(
        "INSERT INTO tables (database_id, name, folded_name, placement, kind, key_column, ra_column, \
                             dec_column, scan_rating) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (database_id, folded_name) DO UPDATE SET \
             name = excluded.name, placement = excluded.placement, kind = excluded.kind, \
             key_column = excluded.key_column, ra_column = excluded.ra_column, \
             dec_column = excluded.dec_column, scan_rating = excluded.scan_rating \
         RETURNING id",
    )
    .bind(database)
    .bind(&spec.name)
    .bind(fold_name(&spec.name))
    .bind(load.0)
    .bind(spec.kind.to_string())
    .bind(&spec.key)
    .bind(position.map(|position| &position.ra))
    .bind(position.map(|position| &position.dec))
    .bind(spec.scan_rating)
    .fetch_one(change)
    .await?;
    Ok(table)
}

async fn put_columns(
    change: &mut Transaction<'_>,
    table: i64,
    columns: &[Column],
) -> Result<(), CatalogError> {
    query("DELETE FROM columns WHERE table_id = ?")
        .bind(table)
        .execute(&mut *change)
        .await?;
    add_columns(change, table, 0, columns).await
}

/// Writes down columns of a table, the first of which has this number.
pub(super) async fn add_columns(
    change: &mut Transaction<'_>,
    table: i64,
    first: i64,
    columns: &[Column],
) -> Result<(), CatalogError> {
    for (ordinal, column) in (first..).zip(columns) {
        query(
            "INSERT INTO columns (table_id, ordinal, name, folded_name, type, nullable, declared) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(table)
        .bind(ordinal)
        .bind(&column.name)
        .bind(fold_name(&column.name))
        .bind(column.ty.to_string())
        .bind(column.nullable)
        .bind(&column.declared)
        .execute(&mut *change)
        .await?;
    }
    Ok(())
}

async fn put_directors(
    change: &mut Transaction<'_>,
    table: i64,
    directors: &[DirectorRef],
    orphan_rows: u64,
) -> Result<(), CatalogError> {
    query("DELETE FROM table_directors WHERE table_id = ?")
        .bind(table)
        .execute(&mut *change)
        .await?;
    for (ordinal, director) in (0_i64..).zip(directors) {
        let elsewhere = director.elsewhere.as_ref();
        // Nobody keeps the keys that a director lacks together beyond its database.
        let is_placed = elsewhere.is_none() || orphan_rows == 0;
        query(
            "INSERT INTO table_directors (table_id, ordinal, director, key_column, director_placement, \
                                          director_database, stripes, sub_stripes) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(table)
        .bind(ordinal)
        .bind(&director.table)
        .bind(&director.key)
        .bind(director.placement.filter(|_| is_placed).map(|it| it.0))
        .bind(elsewhere.map(|other| &other.name))
        .bind(elsewhere.map(|other| other.stripes))
        .bind(elsewhere.map(|other| other.sub_stripes))
        .execute(&mut *change)
        .await?;
    }
    Ok(())
}

pub(super) async fn put_chunks(
    change: &mut Transaction<'_>,
    load: LoadId,
    chunks: &[Chunk],
) -> Result<(), CatalogError> {
    for part in chunks.chunks(ROWS_PER_INSERT) {
        let rows = part
            .iter()
            .map(StoredChunk::of)
            .collect::<Result<Vec<_>, _>>()?;
        let row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let sql = format!(
            "INSERT INTO chunks (load_id, chunk_id, row_count, byte_count, checksum, overlap_rows, \
                                 overlap_bytes, overlap_checksum, ra_min, dec_min, ra_max, dec_max, file, strays) \
             VALUES {}",
            vec![row; rows.len()].join(", ")
        );
        let mut insert = query(AssertSqlSafe(sql));
        for chunk in rows {
            insert = insert.bind(load.0).bind(chunk.id);
            for number in chunk.file {
                insert = insert.bind(number);
            }
            for number in chunk.overlap {
                insert = insert.bind(number);
            }
            for degrees in chunk.bounds {
                insert = insert.bind(degrees);
            }
            insert = insert.bind(chunk.file_chunk).bind(chunk.strays);
        }
        insert.execute(&mut *change).await?;
    }
    Ok(())
}

/// A chunk's values as they are stored, in the order of the table's columns.
struct StoredChunk {
    id: i32,
    /// Rows, bytes, checksum.
    file: [i64; 3],
    /// The same of the overlap file, or NULLs.
    overlap: [Option<i64>; 3],
    bounds: [Option<f64>; 4],
    file_chunk: Option<i32>,
    strays: i64,
}

impl StoredChunk {
    fn of(chunk: &Chunk) -> Result<Self, CatalogError> {
        let stored = |rows, bytes, checksum: u64| {
            // A checksum is 64 bits, not a count: its bits are kept.
            Ok::<_, CatalogError>([to_stored(rows)?, to_stored(bytes)?, checksum.cast_signed()])
        };
        let overlap = chunk
            .overlap
            .map(|file| stored(file.rows, file.bytes, file.checksum));
        Ok(Self {
            id: chunk.chunk.0,
            file: stored(chunk.rows, chunk.bytes, chunk.checksum)?,
            overlap: overlap
                .transpose()?
                .map_or([None; 3], |numbers| numbers.map(Some)),
            bounds: chunk.bounds.map_or([None; 4], |degrees| degrees.map(Some)),
            file_chunk: (chunk.file != chunk.chunk).then_some(chunk.file.0),
            strays: to_stored(chunk.strays)?,
        })
    }
}
