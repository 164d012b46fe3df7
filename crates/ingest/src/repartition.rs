//! Cutting the sky of a database anew: all its partitioned tables are written again from their own files, and one
//! catalog transaction shows them all instead of the old ones.
//!
//! Directors come first, then their children, then match tables, because rows follow the places of their directors' rows.
//! Each table is filled by the machinery of a load, from [`StoredRows`] instead of files. The locks of all the tables are
//! held from beginning to end. A process that dies on the way leaves running loads that nothing refers to; the next load of
//! each table removes them, and so does the next repartitioning.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{
    Catalog, Chunk, Database, LoadLock, NewDatabase, Position, Publication, Table, TableKind,
    TableMetadata, fold_name,
};
use store::{LoadDir, StoreError};

use crate::directors::{Directors, Family, open_parts};
use crate::error::IngestError;
use crate::fault;
use crate::format::generated_key::KeyStart;
use crate::format::made;
use crate::leftovers::{clean_up, remove_load};
use crate::load::{Transaction, blocking};
use crate::partitioning::for_rows;
use crate::place::child::ChildColumns;
use crate::plan::{Roles, TablePlan};
use crate::position::{PositionColumns, find_column};
use crate::progress::{Phase, Progress};
use crate::report::Partitioning;
use crate::request::LoadRequest;
use crate::stored_rows::StoredRows;
use crate::written_load::WrittenLoad;

/// The request of a repartitioning.
#[derive(Debug, Clone)]
pub struct RepartitionRequest {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The database.
    pub database: String,
    /// The new number of stripes; chosen from the rows when absent.
    pub stripes: Option<u32>,
    /// The new number of sub-stripes; chosen from the rows when absent.
    pub sub_stripes: Option<u32>,
    /// The new overlap in degrees; that of the database when absent.
    pub overlap_deg: Option<f64>,
    /// The memory budget in bytes; a third of the machine when absent.
    pub memory: Option<u64>,
    /// Threads that read and write; all cores when absent.
    pub threads: Option<usize>,
}

/// What a repartitioning did.
#[derive(Debug, Clone)]
pub struct RepartitionReport {
    /// The database, as declared.
    pub database: String,
    /// How it was cut.
    pub before: Partitioning,
    /// How it is cut.
    pub after: Partitioning,
    /// The tables that were written anew, with their rows and chunks; none if the partitioning is what it was.
    pub tables: Vec<RepartitionedTable>,
    /// How long it took.
    pub elapsed: Duration,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// A table that was written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepartitionedTable {
    /// Its name, as declared.
    pub name: String,
    /// Rows as a query counts them: as many as before.
    pub rows: u64,
    /// Chunks that it had.
    pub chunks_before: u64,
    /// Chunks that it has.
    pub chunks_after: u64,
}

/// Writes all partitioned tables of a database with another partitioning. On an error everything is as it was.
///
/// # Errors
/// There is no such database or nothing in it that is partitioned; a table is being loaded; the partitioning is impossible; a
/// file is damaged; pairs of a match table are wider than the new overlap. Each as a sentence.
pub async fn repartition(
    request: RepartitionRequest,
    progress: Arc<Progress>,
) -> Result<RepartitionReport, IngestError> {
    progress.enter(Phase::Preparing, 0);
    let catalog = Catalog::open(&request.data_dir).await?;
    let outcome = in_catalog(&catalog, &request, progress).await;
    catalog.close().await;
    outcome
}

async fn in_catalog(
    catalog: &Catalog,
    request: &RepartitionRequest,
    progress: Arc<Progress>,
) -> Result<RepartitionReport, IngestError> {
    let started = Instant::now();
    let Some(database) = catalog.database(&request.database).await? else {
        return Err(no_such_database(catalog, &request.database).await?);
    };
    let _locks = lock_tables(catalog, request).await?;
    // As they are now that nobody else loads them.
    let tables = partitioned_tables(catalog, request).await?;
    let mut run = Run {
        catalog: catalog.clone(),
        request: request.clone(),
        database,
        started,
        progress,
        done: Vec::new(),
    };
    let outcome = run.run(tables).await;
    if outcome.is_err() {
        // Children keep the new files of their directors in use.
        run.done.iter_mut().for_each(|table| table.written = None);
        for table in &run.done {
            table.transaction.roll_back().await;
        }
    }
    outcome
}

async fn no_such_database(catalog: &Catalog, name: &str) -> Result<IngestError, IngestError> {
    let databases = catalog.databases().await?;
    let near = crate::error::nearest(name, databases.iter().map(|d| d.name.as_str()));
    let hint = near.map_or(String::new(), |near| format!(": did you mean {near:?}?"));
    Ok(IngestError::Options(format!(
        "there is no database {name:?}{hint}"
    )))
}

/// The tables that have to be written anew, each after those that it hangs on.
async fn partitioned_tables(
    catalog: &Catalog,
    request: &RepartitionRequest,
) -> Result<Vec<Table>, IngestError> {
    let mut tables = catalog.tables(&request.database).await?;
    tables.retain(|table| table.spec.kind != TableKind::Replicated);
    // Those stay where the rows of their directors were; that of another database says where.
    tables.retain(|table| !table.spec.is_cut_as_elsewhere());
    tables.sort_by_key(|table| match table.spec.kind {
        TableKind::Director => 0,
        TableKind::Child => 1,
        TableKind::Match | TableKind::Replicated => 2,
    });
    if tables.is_empty() {
        return Err(IngestError::Options(format!(
            "the database {:?} has no partitioned table: the first one that is loaded chooses how the sky is cut",
            request.database
        )));
    }
    Ok(tables)
}

async fn lock_tables(
    catalog: &Catalog,
    request: &RepartitionRequest,
) -> Result<Vec<LoadLock>, IngestError> {
    let mut names: Vec<String> = (partitioned_tables(catalog, request).await?.into_iter())
        .map(|table| table.spec.name)
        .collect();
    // In one order, whoever asks.
    names.sort_by_key(|name| fold_name(name));
    let what = format!("repartitioning {}", request.database);
    let lock = |name: String| {
        let lock = LoadLock::acquire(&request.data_dir, &request.database, &name, &what);
        lock.map_err(IngestError::from)
    };
    names.into_iter().map(lock).collect()
}

/// A table whose new files are written.
struct RepartitionedLoad {
    old: Table,
    chunks_before: u64,
    transaction: Transaction,
    /// What its parts were loaded from.
    source: String,
    /// The table as it will be; nothing while it is being filled.
    written: Option<WrittenLoad>,
}

impl RepartitionedLoad {
    /// The table as children find it: with the new load.
    fn as_director(&self) -> Option<(Table, Vec<Chunk>)> {
        let written = self.written.as_ref()?;
        Some(written.as_director(&self.old, self.transaction.load))
    }
}

struct Run {
    catalog: Catalog,
    request: RepartitionRequest,
    database: Database,
    started: Instant,
    progress: Arc<Progress>,
    done: Vec<RepartitionedLoad>,
}

impl Run {
    async fn run(&mut self, tables: Vec<Table>) -> Result<RepartitionReport, IngestError> {
        let before = Partitioning::of(&self.database);
        let after = self.choose(&tables).await?;
        let same = (after.stripes, after.sub_stripes) == (before.stripes, before.sub_stripes)
            && after.overlap_deg.to_bits() == before.overlap_deg.to_bits();
        if !same {
            for table in tables {
                self.fill(table, after).await?;
            }
            self.progress.enter(Phase::Publishing, 0);
            fault::reached("before-publish")?;
            self.publish(after).await?;
        }
        let mut report = self.report(before, after);
        // What fails from here on must not undo what everybody sees.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the database is repartitioned");
        }
        for done in self.done.drain(..) {
            let mut removed = true;
            for part in done.old.part_numbers() {
                let request = &done.transaction.request;
                let removal = remove_load(&self.catalog, request, part).await;
                removed &= matches!(removal, Ok(store::Removal::Removed));
            }
            if !removed {
                report.notes.push(format!(
                    "the old files of {} are still in use: the next load or repartitioning removes them",
                    done.old.spec.name
                ));
            }
        }
        Ok(report)
    }

    /// The new partitioning: as requested, else as suits the largest director.
    async fn choose(&self, tables: &[Table]) -> Result<Partitioning, IngestError> {
        let directors = tables.iter().filter(|t| t.spec.kind == TableKind::Director);
        let largest = directors
            .max_by_key(|table| table.rows())
            .unwrap_or(&tables[0]);
        let (load_request, plan) = self.plan(largest).await?;
        let overlap_deg = self
            .request
            .overlap_deg
            .unwrap_or(self.database.overlap_deg);
        blocking(move || for_rows(&load_request, &plan, overlap_deg)).await
    }

    /// The table's own rows as the input of a load.
    async fn plan(&self, table: &Table) -> Result<(LoadRequest, TablePlan), IngestError> {
        let spec = &table.spec;
        let mut request = LoadRequest::new(&self.request.data_dir, &self.database.name, &spec.name);
        let mut parts = Vec::with_capacity(table.parts.len());
        for (part, dir) in table.parts.iter().zip(open_parts(&request, table)?) {
            parts.push((self.catalog.chunks(part.load).await?, dir));
        }
        let runtime = tokio::runtime::Handle::current();
        let rows = Arc::new(StoredRows::new(table.clone(), parts, runtime));
        request.kind = Some(spec.kind);
        request.directors = spec.directors.iter().map(|d| d.table.clone()).collect();
        request.stripes = self.request.stripes;
        request.sub_stripes = self.request.sub_stripes;
        request.memory = self.request.memory;
        request.threads = self.request.threads;
        request.scan_rating = Some(spec.scan_rating);
        request.replace = true;
        request.allow_empty = true;
        request.made = Some(rows.clone());
        let plan = TablePlan {
            kind: spec.kind,
            columns: spec.columns.clone(),
            roles: roles_of(table)?,
            files: made::open(&(rows as Arc<dyn made::RowSource>)),
            notes: Vec::new(),
            metadata: TableMetadata::default(),
            key_start: KeyStart::default(),
            generates_keys: false,
        };
        Ok((request, plan))
    }

    /// Writes the new files of one table.
    async fn fill(&mut self, table: Table, cut: Partitioning) -> Result<(), IngestError> {
        let (request, plan) = self.plan(&table).await?;
        clean_up(&self.catalog, &request).await?;
        let directors = self.directors_of(&table)?;
        let family = self.family_of(&table)?;
        let mut chunks_before = 0;
        for part in &table.parts {
            chunks_before += self.catalog.chunk_count(part.load).await?;
        }
        let load = self
            .catalog
            .begin_load(&self.database.name, &table.spec.name)
            .await?;
        self.done.push(RepartitionedLoad {
            chunks_before,
            transaction: Transaction {
                catalog: self.catalog.clone(),
                request,
                load,
                started: self.started,
                appended_to: None,
            },
            source: sources_of(&table.parts),
            old: table,
            written: None,
        });
        let Some(done) = self.done.last_mut() else {
            return Err(IngestError::Internal);
        };
        let load_dir = done.transaction.make_dir()?;
        let read = done
            .transaction
            .read(plan, cut, directors, load_dir, &self.progress)
            .await?;
        let written = done.transaction.write(read, family).await?;
        let (rows, name) = (written.outcome.rows, &done.old.spec.name);
        if rows != done.old.rows() {
            return Err(IngestError::Options(format!(
                "{name} has {} rows, but {rows} were read back: run `meridian check`; nothing was changed",
                done.old.rows()
            )));
        }
        done.written = Some(written);
        // It keeps the old files in use.
        done.transaction.request.made = None;
        Ok(())
    }

    fn new_load(&self, name: &str) -> Option<&RepartitionedLoad> {
        let folded = fold_name(name);
        let same = |done: &&RepartitionedLoad| fold_name(&done.old.spec.name) == folded;
        self.done.iter().find(same)
    }

    fn open_new(&self, done: &RepartitionedLoad) -> Result<LoadDir, StoreError> {
        LoadDir::open(
            &self.request.data_dir,
            &self.database.name,
            &done.old.spec.name,
            done.transaction.load,
        )
    }

    /// The directors of a table, as they are written anew.
    fn directors_of(&self, table: &Table) -> Result<Directors, IngestError> {
        let mut directors = Vec::new();
        for reference in &table.spec.directors {
            let found = self.new_load(&reference.table);
            let can_place = |done: &&RepartitionedLoad| match done.old.spec.kind {
                TableKind::Director => true,
                TableKind::Child => table.spec.kind == TableKind::Match,
                TableKind::Match | TableKind::Replicated => false,
            };
            let director = found.filter(can_place);
            let Some((done, (as_it_will_be, chunks))) =
                director.and_then(|done| Some((done, done.as_director()?)))
            else {
                return Err(IngestError::Options(format!(
                    "{} hangs on {}, which is no director any more: load {} again first",
                    table.spec.name, reference.table, table.spec.name
                )));
            };
            directors.push((as_it_will_be, self.open_new(done)?, chunks));
        }
        Ok(Directors::of(directors))
    }

    /// The other children of a child's director that are written anew already: one orphan key has one place.
    fn family_of(&self, table: &Table) -> Result<Family, IngestError> {
        let [director] = table.spec.directors.as_slice() else {
            return Ok(Family::default());
        };
        let folded = fold_name(&director.table);
        let is_sibling = |done: &&RepartitionedLoad| {
            let references = done.old.spec.directors.as_slice();
            done.old.spec.kind == TableKind::Child
                && references.iter().any(|r| fold_name(&r.table) == folded)
        };
        let siblings = self.done.iter().filter(is_sibling);
        let dirs: Result<Vec<LoadDir>, StoreError> =
            siblings.map(|done| self.open_new(done)).collect();
        Ok(Family::of(dirs?))
    }

    async fn publish(&self, cut: Partitioning) -> Result<(), IngestError> {
        let written = || {
            let done = self.done.iter();
            done.filter_map(|done| Some((done, done.written.as_ref()?)))
        };
        let publications = written().map(|(done, written)| Publication {
            load: done.transaction.load,
            replaces: done.old.part_numbers(),
            spec: written.spec.clone(),
            contents: written.contents(&done.source),
        });
        let publications: Vec<Publication<'_>> = publications.collect();
        let database = NewDatabase {
            name: self.database.name.clone(),
            stripes: cut.stripes,
            sub_stripes: cut.sub_stripes,
            overlap_deg: cut.overlap_deg,
        };
        Ok(self.catalog.repartition(&database, &publications).await?)
    }

    fn report(&self, before: Partitioning, after: Partitioning) -> RepartitionReport {
        let table = |done: &RepartitionedLoad| {
            let written = done.written.as_ref()?;
            Some(RepartitionedTable {
                name: done.old.spec.name.clone(),
                rows: written.outcome.rows,
                chunks_before: done.chunks_before,
                chunks_after: written.outcome.chunks.len() as u64,
            })
        };
        RepartitionReport {
            database: self.database.name.clone(),
            before,
            after,
            tables: self.done.iter().filter_map(table).collect(),
            elapsed: self.started.elapsed(),
            notes: Vec::new(),
        }
    }
}

/// What several parts were loaded from, as one text.
fn sources_of(parts: &[catalog::Part]) -> String {
    let mut sources: Vec<&str> = parts.iter().map(|part| part.source.as_str()).collect();
    sources.retain(|source| !source.is_empty());
    sources.dedup();
    sources.join(", ")
}

/// The parts that a loaded table's columns play. What the rows of one object of a child are ordered by is not known any
/// more, nor is it needed: they are read in that order, and keep it.
pub(crate) fn roles_of(table: &Table) -> Result<Roles, IngestError> {
    let spec = &table.spec;
    let column = |name: &str| find_column(&spec.columns, "the catalog's column", name);
    let find_positions = |position: &Position| PositionColumns::find(&spec.columns, position);
    let positions = spec.position.as_ref().map(find_positions).transpose()?;
    let own_key = spec.key.as_deref().map(column).transpose()?;
    let keys: Result<Vec<usize>, IngestError> =
        spec.directors.iter().map(|d| column(&d.key)).collect();
    match (spec.kind, own_key, positions, keys?.as_slice()) {
        (TableKind::Director, Some(key), Some(positions), _) => {
            Ok(Roles::Director { key, positions })
        }
        (TableKind::Child, own_key, positions, [key]) => Ok(Roles::Child(ChildColumns {
            key: *key,
            own_key,
            order: None,
            positions,
        })),
        (TableKind::Match, _, _, [left, right]) => Ok(Roles::Match {
            keys: [*left, *right],
        }),
        _ => Err(IngestError::Options(format!(
            "the catalog does not say which columns {} is partitioned by: load it again",
            spec.name
        ))),
    }
}
