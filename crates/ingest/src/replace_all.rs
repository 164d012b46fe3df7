//! Filling several tables of a database anew and showing all of them in one transaction of the catalog: a director, its children, and
//! tables that hang on nothing.
//!
//! The load locks of all tables are held from beginning to end. A process that dies on the way leaves running loads that nothing refers to,
//! which the next load of each table removes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use catalog::{
    Catalog, CatalogError, ChangedView, Chunk, LoadLock, Publication, Table, TableKind, fold_name,
};
use store::{LoadDir, Removal, StoreError};

use crate::directors::{Directors, Family};
use crate::error::IngestError;
use crate::fault;
use crate::leftovers::{clean_up, remove_load};
use crate::load::{Transaction, blocking};
use crate::load_locks::wait_for_lock;
use crate::partitioning::choose_partitioning;
use crate::plan::TablePlan;
use crate::progress::{Phase, Progress};
use crate::request::LoadRequest;
use crate::written_load::WrittenLoad;

/// Tables that are filled anew. Nothing is visible before [`Replacement::publish`]; then
/// [`Replacement::finish`] removes what was replaced, or else [`Replacement::roll_back`] what was written.
pub struct Replacement {
    catalog: Catalog,
    data_dir: PathBuf,
    database: String,
    started: Instant,
    progress: Arc<Progress>,
    done: Vec<FilledTable>,
    _locks: Vec<LoadLock>,
}

/// A table whose new files are written, or are being written.
struct FilledTable {
    old: Table,
    transaction: Transaction,
    written: Option<WrittenLoad>,
}

impl FilledTable {
    /// The table as children find it: with the new load.
    fn as_director(&self) -> Option<(Table, Vec<Chunk>)> {
        let written = self.written.as_ref()?;
        Some(written.as_director(&self.old, self.transaction.load))
    }
}

impl Replacement {
    /// Locks the tables, which exist.
    ///
    /// # Errors
    /// The catalog cannot be opened, or one of the tables is in use for long.
    pub async fn begin(
        data_dir: &Path,
        database: &str,
        tables: &[&str],
        progress: Arc<Progress>,
    ) -> Result<Self, IngestError> {
        progress.enter(Phase::Preparing, 0);
        let mut names = tables.to_vec();
        // In one order, whoever asks.
        names.sort_by_key(|name| fold_name(name));
        let mut locks = Vec::with_capacity(names.len());
        for name in names {
            let of_table = LoadRequest::new(data_dir, database, name);
            locks.push(wait_for_lock(&of_table, name).await?);
        }
        Ok(Self {
            catalog: Catalog::open(data_dir).await?,
            data_dir: data_dir.to_owned(),
            database: database.to_owned(),
            started: Instant::now(),
            progress,
            done: Vec::new(),
            _locks: locks,
        })
    }

    /// Writes the new files of a table, a director before its children, and tells how many rows it has. The request is that of a load which
    /// replaces it by rows that are made.
    ///
    /// # Errors
    /// Every [`IngestError`] is a sentence for the person who requested it.
    pub async fn fill(&mut self, request: LoadRequest) -> Result<u64, IngestError> {
        let request = request.with_key_name();
        let found = self.catalog.table(&self.database, &request.table).await?;
        let old = found.ok_or_else(|| CatalogError::NoTable {
            table: format!("{}.{}", self.database, request.table),
        })?;
        let request = LoadRequest {
            replace: true,
            allow_empty: true,
            scan_rating: Some(old.spec.scan_rating),
            ..request
        };
        clean_up(&self.catalog, &request).await?;
        let directors = self.directors_of(&request)?;
        let family = self.family_of(&request)?;
        let load = self
            .catalog
            .begin_load(&self.database, &request.table)
            .await?;
        let of_plan = request.clone();
        self.done.push(FilledTable {
            old,
            transaction: Transaction {
                catalog: self.catalog.clone(),
                request,
                load,
                started: self.started,
                appended_to: None,
            },
            written: None,
        });
        let Some(done) = self.done.last_mut() else {
            return Err(IngestError::Internal);
        };
        let load_dir = done.transaction.make_dir()?;
        let plan = blocking(move || TablePlan::make(&of_plan, &[])).await?;
        let (plan, cut) =
            choose_partitioning(&self.catalog, &done.transaction.request, &directors, plan).await?;
        let read = done
            .transaction
            .read(plan, cut, directors, load_dir, &self.progress)
            .await?;
        let written = done.transaction.write(read, family).await?;
        let rows = written.outcome.rows;
        done.written = Some(written);
        // The rows may keep files open.
        done.transaction.request.made = None;
        Ok(rows)
    }

    fn open_new(&self, done: &FilledTable) -> Result<LoadDir, StoreError> {
        LoadDir::open(
            &self.data_dir,
            &self.database,
            &done.old.spec.name,
            done.transaction.load,
        )
    }

    /// The director of a child, filled anew.
    fn directors_of(&self, request: &LoadRequest) -> Result<Directors, IngestError> {
        let mut directors = Vec::new();
        for name in &request.directors {
            let is_director =
                |done: &&FilledTable| fold_name(&done.old.spec.name) == fold_name(name);
            let found = self.done.iter().find(is_director);
            let Some((done, (table, chunks))) =
                found.and_then(|done| Some((done, done.as_director()?)))
            else {
                return Err(IngestError::Options(format!(
                    "{} is no child of a director that comes before it",
                    request.table
                )));
            };
            directors.push((table, self.open_new(done)?, chunks));
        }
        match directors.is_empty() {
            true => Ok(Directors::none()),
            false => Ok(Directors::of(directors)),
        }
    }

    /// The other children that are filled already: one orphan key has one place.
    fn family_of(&self, request: &LoadRequest) -> Result<Family, IngestError> {
        if request.directors.is_empty() {
            return Ok(Family::default());
        }
        let is_child =
            |done: &&FilledTable| done.transaction.request.kind == Some(TableKind::Child);
        let siblings = self.done.iter().filter(is_child);
        let dirs: Result<Vec<LoadDir>, StoreError> =
            siblings.map(|done| self.open_new(done)).collect();
        Ok(Family::of(dirs?))
    }

    /// Shows all tables, and these views of them, in one transaction. When this fails, nothing has changed, unless the catalog's disk failed at
    /// the very end: then the catalog tells.
    ///
    /// # Errors
    /// One of the tables was changed meanwhile, or the catalog cannot be written.
    pub async fn publish(
        &mut self,
        source: &str,
        views: &[ChangedView],
    ) -> Result<(), IngestError> {
        self.progress.enter(Phase::Publishing, 0);
        fault::reached("before-publish")?;
        self.show(source, views).await?;
        fault::reached("after-publish")
    }

    /// Removes what was replaced, unless somebody still reads it: then it goes later.
    pub async fn finish(mut self) {
        for done in self.done.drain(..) {
            for part in done.old.part_numbers() {
                let removal = remove_load(&self.catalog, &done.transaction.request, part).await;
                if !matches!(removal, Ok(Removal::Removed)) {
                    tracing::info!(table = done.old.spec.name, "replaced files are still read");
                }
            }
        }
        self.catalog.close().await;
    }

    async fn show(&self, source: &str, views: &[ChangedView]) -> Result<(), IngestError> {
        let written: Vec<(&FilledTable, &WrittenLoad)> = { self.done.iter() }
            .filter_map(|done| Some((done, done.written.as_ref()?)))
            .collect();
        let publications: Vec<Publication<'_>> = { written.iter() }
            .map(|(done, written)| Publication {
                load: done.transaction.load,
                replaces: done.old.part_numbers(),
                spec: written.spec.clone(),
                contents: written.contents(source),
            })
            .collect();
        Ok(self.catalog.replace_all(&publications, views).await?)
    }

    /// Removes what was written.
    pub async fn roll_back(mut self) {
        // Children keep the new files of their director in use.
        self.done.iter_mut().for_each(|done| done.written = None);
        for done in &self.done {
            done.transaction.roll_back().await;
        }
        self.catalog.close().await;
    }
}
