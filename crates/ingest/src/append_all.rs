//! Appending to several tables of a database at once: a director, its children, and tables that hang on nothing. Their new parts become
//! visible together, in one transaction of the catalog, or not at all.
//!
//! The load locks of all tables are held from before the first one begins until the parts are visible, and so is the lock of the
//! director's family: nobody else places keys meanwhile. Children are placed by the director as it will be.
//!
//! Columns of the new rows that a table does not have are added to it in the same transaction, and are NULL in its rows from before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use catalog::{
    Append, Catalog, ChangedView, Chunk, Column, LoadId, LoadLock, NewColumns, PartContents, Table,
    TableKind, fold_name,
};
use store::LoadDir;

use crate::append::{adopt, same_placements};
use crate::directors::{Directors, Family, open_parts};
use crate::error::IngestError;
use crate::fault;
use crate::format::columns_of;
use crate::format::made::RowSource;
use crate::leftovers::clean_up;
use crate::load::{Transaction, blocking, check_existing};
use crate::load_locks::wait_for_lock;
use crate::partitioning::choose_partitioning;
use crate::plan::TablePlan;
use crate::progress::{Phase, Progress};
use crate::request::LoadRequest;
use crate::written_load::WrittenLoad;

/// The rows of one of the tables.
#[derive(Debug, Clone)]
pub struct TableRows {
    /// The table, which exists.
    pub table: String,
    /// Its new rows. Columns of theirs that it does not have come behind those that it has.
    pub rows: Arc<dyn RowSource>,
}

/// New rows of several tables of a database.
#[derive(Debug, Clone)]
pub struct AppendAllRequest {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The database.
    pub database: String,
    /// The tables; a director before its children. All children are of one director, which is among them.
    pub tables: Vec<TableRows>,
    /// What the rows come from, for the lists of parts.
    pub source: String,
    /// How many rows the table of this name has when the parts are to be appended; otherwise somebody else has been here.
    pub expects: Option<(String, u64)>,
    /// Views that change with the columns of the tables.
    pub views: Vec<ChangedView>,
    /// The memory budget in bytes.
    pub memory: Option<u64>,
    /// Threads that read and write; all cores when absent.
    pub threads: Option<usize>,
}

/// A part that was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedPart {
    /// The table.
    pub table: String,
    /// The part.
    pub load: LoadId,
    /// Its rows.
    pub rows: u64,
}

/// Appends rows to several tables. Tables without new rows get no part, and new columns all the same. On an error nothing is visible, and no
/// file is left.
///
/// # Errors
/// Every [`IngestError`] is a sentence for the person who requested it; [`IngestError::is_change`] of one if a table is not as expected.
pub async fn append_all(
    request: AppendAllRequest,
    progress: Arc<Progress>,
) -> Result<Vec<AppendedPart>, IngestError> {
    progress.enter(Phase::Preparing, 0);
    let catalog = Catalog::open(&request.data_dir).await?;
    let outcome = append_into(&catalog, &request, progress).await;
    catalog.close().await;
    outcome
}

async fn append_into(
    catalog: &Catalog,
    request: &AppendAllRequest,
    progress: Arc<Progress>,
) -> Result<Vec<AppendedPart>, IngestError> {
    let _locks = lock_tables(request).await?;
    if let Some((table, rows)) = &request.expects {
        let found = catalog.table(&request.database, table).await?;
        if found.is_none_or(|found| found.rows() != *rows) {
            let table = format!("{}.{table}", request.database);
            return Err(catalog::CatalogError::TableChanged { table }.into());
        }
    }
    let mut run = Run {
        catalog: catalog.clone(),
        started: Instant::now(),
        progress,
        family: Family::default(),
        director: None,
        done: Vec::new(),
    };
    let outcome = run.run(request).await;
    if outcome.is_err() {
        run.roll_back().await;
    }
    outcome
}

/// The columns of new rows that a table does not have.
fn new_columns(table: &Table, rows: &TableRows) -> Result<Vec<Column>, IngestError> {
    let columns = columns_of(&rows.rows.schema(), Path::new(&rows.table))?.into_iter();
    let is_new = |column: &Column| table.spec.column(&column.name).is_none();
    Ok(columns.filter(is_new).collect())
}

async fn lock_tables(request: &AppendAllRequest) -> Result<Vec<LoadLock>, IngestError> {
    let mut names: Vec<&String> = request.tables.iter().map(|it| &it.table).collect();
    // In one order, whoever asks.
    names.sort_by_key(|name| fold_name(name));
    let mut locks = Vec::with_capacity(names.len());
    for name in names {
        let of_table = LoadRequest::new(&request.data_dir, &request.database, name);
        locks.push(wait_for_lock(&of_table, name).await?);
    }
    Ok(locks)
}

/// A table whose new part is written, or is being written.
struct AppendedLoad {
    /// As it was.
    before: Table,
    /// With its new columns.
    table: Table,
    transaction: Transaction,
    written: Option<WrittenLoad>,
}

struct Run {
    catalog: Catalog,
    started: Instant,
    progress: Arc<Progress>,
    /// Holds the lock of the director's family.
    family: Family,
    /// The director as its children find it: with its new part.
    director: Option<(Table, Vec<(usize, Chunk)>)>,
    done: Vec<AppendedLoad>,
}

impl Run {
    async fn run(&mut self, request: &AppendAllRequest) -> Result<Vec<AppendedPart>, IngestError> {
        for rows in &request.tables {
            self.fill(request, rows).await?;
        }
        self.progress.enter(Phase::Publishing, 0);
        fault::reached("before-publish")?;
        let appended = self.publish(request).await?;
        // What fails from here on must not undo what everybody sees.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the parts are published");
        }
        Ok(appended)
    }

    /// Writes the new part of a table.
    async fn fill(
        &mut self,
        request: &AppendAllRequest,
        rows: &TableRows,
    ) -> Result<(), IngestError> {
        let mut of_table = LoadRequest::new(&request.data_dir, &request.database, &rows.table);
        of_table.append = true;
        of_table.allow_empty = true;
        of_table.made = Some(Arc::clone(&rows.rows));
        of_table.memory = request.memory;
        of_table.threads = request.threads;
        let missing = || catalog::CatalogError::NoTable {
            table: format!("{}.{}", request.database, rows.table),
        };
        let found = self.catalog.table(&request.database, &rows.table).await?;
        let of_table = adopt(of_table, &found.ok_or_else(missing)?)?;
        clean_up(&self.catalog, &of_table).await?;
        let before = check_existing(&self.catalog, &of_table).await?;
        let before = before.ok_or_else(missing)?;
        let mut table = before.clone();
        table.spec.columns.extend(new_columns(&before, rows)?);
        let of_table = LoadRequest {
            declared: Some(table.spec.columns.clone()),
            ..of_table
        };
        let directors = self.directors_of(&of_table, &table).await?;
        same_placements(&table, &directors)?;
        let family = self.siblings(&of_table, &table).await?;
        let load = self
            .catalog
            .begin_load(&request.database, &rows.table)
            .await?;
        self.done.push(AppendedLoad {
            before,
            table: table.clone(),
            transaction: Transaction {
                catalog: self.catalog.clone(),
                request: of_table.clone(),
                load,
                started: self.started,
                appended_to: Some(table.clone()),
            },
            written: None,
        });
        let Some(done) = self.done.last_mut() else {
            return Err(IngestError::Internal);
        };
        let transaction = &done.transaction;
        let load_dir = transaction.make_dir()?;
        let plan = blocking(move || TablePlan::make(&of_table, &[])).await?;
        let (plan, cut) =
            choose_partitioning(&self.catalog, &transaction.request, &directors, plan).await?;
        let read = transaction
            .read(plan, cut, directors, load_dir, &self.progress)
            .await?;
        let written = transaction.write(read, family).await?;
        if table.spec.kind == TableKind::Director {
            let mut chunks = Vec::new();
            for (number, part) in table.parts.iter().enumerate() {
                let of_part = self.catalog.chunks(part.load).await?.into_iter();
                chunks.extend(of_part.map(|chunk| (number, chunk)));
            }
            let new = written.outcome.chunks.iter();
            chunks.extend(new.map(|chunk| (table.parts.len(), chunk.clone())));
            self.director = Some((table, chunks));
        }
        done.written = Some(written);
        Ok(())
    }

    /// The director of a child, with its new part; of a director what it and its children have already.
    async fn directors_of(
        &mut self,
        request: &LoadRequest,
        table: &Table,
    ) -> Result<Directors, IngestError> {
        match (table.spec.kind, &self.director) {
            (TableKind::Replicated, _) => Ok(Directors::none()),
            (TableKind::Director, None) => {
                self.family = Family::of_director(&self.catalog, request, table).await?;
                Ok(Directors::of_appended(
                    open_parts(request, table)?,
                    &self.family,
                ))
            }
            (TableKind::Child, Some((director, chunks)))
                if (table.spec.directors.iter()).all(|it| {
                    it.elsewhere.is_none() && fold_name(&it.table) == fold_name(&director.spec.name)
                }) =>
            {
                let mut dirs = open_parts(request, director)?;
                dirs.extend(self.new_parts(TableKind::Director)?);
                Ok(Directors::of_parts(director.clone(), dirs, chunks.clone()))
            }
            _ => Err(IngestError::Options(format!(
                "{} is no child of the director that comes before it",
                table.spec.name
            ))),
        }
    }

    /// The directories of the new parts of tables of a kind, which keeps them from being removed.
    fn new_parts(&self, kind: TableKind) -> Result<Vec<LoadDir>, IngestError> {
        let of_kind = |done: &&AppendedLoad| done.table.spec.kind == kind;
        let open = |done: &AppendedLoad| {
            let spec = &done.table.spec;
            let Transaction { request, load, .. } = &done.transaction;
            LoadDir::open(&request.data_dir, &spec.database, &spec.name, *load)
        };
        let dirs: Result<Vec<LoadDir>, _> = self.done.iter().filter(of_kind).map(open).collect();
        Ok(dirs?)
    }

    /// Where orphans of a child's director are: in its children's parts, and in the new ones that come before.
    async fn siblings(&self, request: &LoadRequest, table: &Table) -> Result<Family, IngestError> {
        let Some((director, _)) = self.director.as_ref() else {
            return Ok(Family::default());
        };
        if table.spec.kind != TableKind::Child {
            return Ok(Family::default());
        }
        let mut children = Vec::new();
        for sibling in self.catalog.tables(&request.database).await? {
            let mut references = sibling.spec.directors.iter();
            let is_ours = references.any(|it| it.placement == Some(director.placement));
            if sibling.spec.kind == TableKind::Child && is_ours {
                children.extend(open_parts(request, &sibling)?);
            }
        }
        children.extend(self.new_parts(TableKind::Child)?);
        Ok(Family::of(children))
    }

    async fn publish(
        &mut self,
        request: &AppendAllRequest,
    ) -> Result<Vec<AppendedPart>, IngestError> {
        let unsettled = self.family.unsettled().to_vec();
        let mut appends = Vec::new();
        let mut appended = Vec::new();
        for done in &self.done {
            let Some(written) = done.written.as_ref().filter(|it| it.outcome.rows > 0) else {
                continue;
            };
            let contents: PartContents<'_> = written.contents(&request.source);
            appended.push(AppendedPart {
                table: done.table.spec.name.clone(),
                load: done.transaction.load,
                rows: contents.rows,
            });
            appends.push(Append {
                load: done.transaction.load,
                table: &done.table,
                contents,
                unsettled: match done.table.spec.kind {
                    TableKind::Director => &unsettled,
                    _ => &[],
                },
                replaces: &[],
            });
        }
        let with_columns = |done| {
            let AppendedLoad { before, table, .. }: &AppendedLoad = done;
            let columns = &table.spec.columns[before.spec.columns.len()..];
            (!columns.is_empty()).then_some(NewColumns {
                table: before,
                columns,
            })
        };
        let columns: Vec<NewColumns<'_>> = self.done.iter().filter_map(with_columns).collect();
        let appended_all = self.catalog.append_all(&appends, &columns, &request.views);
        appended_all.await?;
        drop((appends, columns));
        // Those that have no rows.
        let is_published =
            |done: &AppendedLoad| (appended.iter()).any(|part| part.load == done.transaction.load);
        self.director = None;
        for done in &mut self.done {
            done.written = None;
            if !is_published(done) {
                done.transaction.roll_back().await;
            }
        }
        Ok(appended)
    }

    async fn roll_back(&mut self) {
        // Children keep the new files of their director in use.
        self.director = None;
        self.done.iter_mut().for_each(|done| done.written = None);
        for done in &self.done {
            done.transaction.roll_back().await;
        }
    }
}
