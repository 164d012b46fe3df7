//! The load transaction: from a request to a table that queries see, or to nothing at all.
//!
//! The table's load lock is held from before the load begins until its leftovers are gone. Everything is written
//! under the load's own directory and synced; one catalog transaction makes it visible. A process that dies before
//! that leaves a directory that nothing refers to, which the next load of the table removes.

use std::sync::Arc;
use std::time::Instant;

use catalog::{
    Append, Catalog, CatalogError, Chunk, LoadId, LoadLock, NewDatabase, Table, TableKind,
    TableMetadata, TableSpec, UNRATED,
};
use store::{LoadDir, Removal};

use crate::append::{
    as_the_table_has_it, as_this_table, forget_placements, many_parts_note, publish,
    same_placements, unsettled_note, with_new_columns,
};
use crate::directors::{Directors, Family, open_parts};
use crate::dry_run::{unit_note, with_data_dir};
use crate::error::IngestError;
use crate::fault;
use crate::leftovers::{clean_up, remove_load, remove_superseded};
use crate::load_locks::wait_for_lock;
use crate::manifest::write_manifest;
use crate::partitioning::choose_partitioning;
use crate::pipeline::{Outcome, Pipeline, ReadRows, SPILL_DIR};
use crate::plan::{TablePlan, check_options};
use crate::progress::{Phase, Progress};
use crate::report::{LoadReport, Partitioning, upgraded_note};
use crate::request::LoadRequest;
use crate::spool::{Spool, any_stream};
use crate::text_keys::check_directors;
use crate::written_load::WrittenLoad;

/// Loads a table. On an error nothing of it is visible, and its files are removed.
///
/// # Errors
/// Every [`IngestError`] is a sentence for the person who requested the load.
pub async fn load(
    request: LoadRequest,
    progress: Arc<Progress>,
) -> Result<LoadReport, IngestError> {
    let started = Instant::now();
    progress.enter(Phase::Preparing, 0);
    let watched = progress.clone();
    let request = blocking(move || crate::inputs::expanded(request, &watched)).await?;
    let request = match request.append {
        true => as_the_table_has_it(request).await?,
        false => request.with_key_name(),
    };
    check_options(&request)?;
    // A dry run makes no data directory.
    let (request, _scratch) = with_data_dir(request)?;
    // What can be looked at more than once is, before anything is made.
    let (plan, request) = blocking(move || {
        let again = !any_stream(&request.files, request.remote.as_ref());
        let plan = again.then(|| TablePlan::make(&request, &request.files));
        Ok((plan.transpose()?, request))
    })
    .await?;
    let catalog = Catalog::open_or_create(&request.data_dir).await?;
    let loading = load_into(&catalog, request, plan, progress, started);
    let outcome = Box::pin(loading).await;
    // Whoever copies the data directory afterwards needs the catalog's file alone.
    catalog.close().await;
    outcome
}

/// The same with a catalog that is open, and stays so. Nothing is loaded on trial.
///
/// # Errors
/// Every [`IngestError`] is a sentence for the person who requested the load.
pub async fn load_with(
    catalog: &Catalog,
    request: LoadRequest,
    progress: Arc<Progress>,
) -> Result<LoadReport, IngestError> {
    let started = Instant::now();
    progress.enter(Phase::Preparing, 0);
    let request = match request.append {
        true => as_this_table(catalog, request).await?,
        false => request.with_key_name(),
    };
    check_options(&request)?;
    let (plan, request) = blocking(move || {
        let plan = TablePlan::make(&request, &request.files)?;
        Ok((plan, request))
    })
    .await?;
    Box::pin(load_into(catalog, request, Some(plan), progress, started)).await
}

async fn load_into(
    catalog: &Catalog,
    mut request: LoadRequest,
    plan: Option<TablePlan>,
    progress: Arc<Progress>,
    started: Instant,
) -> Result<LoadReport, IngestError> {
    let inputs = request.input_names();
    let what = format!("loading {}", inputs[0].display());
    let _lock = match request.append {
        // Appends to one table queue up, and so do changes of its rows.
        true => wait_for_lock(&request, &request.table).await?,
        false if request.waits || request.made_of.is_some() => {
            wait_for_lock(&request, &request.table).await?
        }
        false => LoadLock::acquire(&request.data_dir, &request.database, &request.table, &what)?,
    };
    let _former = match &request.renames {
        Some(former) => Some(wait_for_lock(&request, &former.spec.name).await?),
        None => None,
    };
    clean_up(catalog, &request).await?;
    let appended_to = check_existing(catalog, &request).await?;
    if request.scan_rating.is_none() {
        let replaced = catalog.table(&request.database, &request.table).await?;
        request.scan_rating = replaced.map(|table| table.spec.scan_rating);
    }
    let load = catalog
        .begin_load(&request.database, &request.table)
        .await?;
    let transaction = Transaction {
        catalog: catalog.clone(),
        request,
        load,
        started,
        appended_to,
    };
    let outcome = transaction.run(plan, progress).await;
    if outcome.is_err() || transaction.request.dry_run {
        transaction.roll_back().await;
    }
    outcome
}

/// Runs work that blocks a thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, IngestError> + Send + 'static,
) -> Result<T, IngestError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(IngestError::Internal))
}

/// The table that the load appends to, if it appends.
pub(crate) async fn check_existing(
    catalog: &Catalog,
    request: &LoadRequest,
) -> Result<Option<Table>, IngestError> {
    let LoadRequest {
        database, table, ..
    } = request;
    let found = catalog.table(database, table).await?;
    let changed = || {
        let table = format!("{database}.{table}");
        IngestError::from(CatalogError::TableChanged { table })
    };
    if request.append {
        let as_planned = found.and_then(|found| with_new_columns(request, found));
        return as_planned.map(Some).ok_or_else(changed);
    }
    if let Some(made_of) = &request.made_of {
        let has = |found: &Table| found.parts.iter().map(|part| &part.load).eq(made_of);
        if !found.as_ref().is_some_and(has) {
            return Err(changed());
        }
    }
    match found {
        Some(found) if !request.replace => Err(IngestError::Options(format!(
            "the table {database}.{} exists already ({} rows, loaded {}): give --replace to load it anew, or --append to add \
             rows to it",
            found.spec.name,
            found.rows(),
            found.loaded_at()
        ))),
        _ => Ok(None),
    }
}

/// What is said where files cannot be removed yet.
pub(crate) const STILL_READ: &str = "queries still read the replaced files; the next load, drop or compaction in this data directory removes them";

/// A load that has begun.
pub(crate) struct Transaction {
    pub catalog: Catalog,
    pub request: LoadRequest,
    pub load: LoadId,
    pub started: Instant,
    /// The table that gets one more part; `None` where it is loaded whole.
    pub appended_to: Option<Table>,
}

/// A load whose rows are read, but not written.
pub(crate) struct ReadLoad {
    spec: TableSpec,
    partitioning: Partitioning,
    directors: Directors,
    rows: ReadRows,
    notes: Vec<String>,
    metadata: TableMetadata,
}

impl Transaction {
    async fn run(
        &self,
        plan: Option<TablePlan>,
        progress: Arc<Progress>,
    ) -> Result<LoadReport, IngestError> {
        let load_dir = self.make_dir()?;
        let (spool, request) = self.spool(&load_dir, progress.clone()).await?;
        let named = |error| spool.name_inputs(error);
        let plan = match plan {
            Some(plan) => plan,
            None => {
                let files = spool.files().to_vec();
                let made = blocking(move || TablePlan::make(&request, &files)).await;
                made.map_err(named)?
            }
        };
        // A part of a director may bring keys that its children have already: nobody else places keys until it is published.
        let mut whole_load = None;
        let directors = match &self.appended_to {
            Some(table) if table.spec.kind == TableKind::Director => {
                let family = Family::of_director(&self.catalog, &self.request, table).await?;
                let dirs = open_parts(&self.request, table)?;
                plan.begin_keys_behind(&dirs)?;
                let directors = Directors::of_appended(dirs, &family);
                whole_load = Some(family);
                directors
            }
            _ => Directors::find(&self.catalog, &self.request, plan.kind).await?,
        };
        check_directors(directors.tables(), &plan.columns, &plan.roles)?;
        if let Some(table) = &self.appended_to {
            same_placements(table, &directors)?;
        }
        let settled = choose_partitioning(&self.catalog, &self.request, &directors, plan).await;
        let (plan, partitioning) = settled.map_err(named)?;
        let hints = plan.notes.clone();
        let explained = |error| named(error).with_hints(&hints);
        let read = self
            .read(plan, partitioning, directors, load_dir, &progress)
            .await
            .map_err(explained)?;
        let family = match whole_load {
            Some(family) => family,
            None if read.spec.kind == TableKind::Child => {
                Family::gather(&self.catalog, &self.request, &read.directors).await?
            }
            None => Family::default(),
        };
        let written = self.write(read, family).await.map_err(explained)?;
        if self.request.dry_run {
            return Ok(self.dry_report(&written));
        }
        progress.enter(Phase::Publishing, 0);
        self.publish(written).await
    }

    /// Copies what can be read only once into the load's directory, from where it goes with what else is kept aside.
    pub(crate) async fn spool(
        &self,
        load_dir: &LoadDir,
        progress: Arc<Progress>,
    ) -> Result<(Spool, LoadRequest), IngestError> {
        let dir = load_dir.path().join(SPILL_DIR);
        let request = self.request.clone();
        blocking(move || {
            let spool = Spool::take(&request.files, request.remote.as_ref(), &dir, &progress)?;
            Ok((spool, request))
        })
        .await
    }

    /// Makes the load's directory.
    pub(crate) fn make_dir(&self) -> Result<Arc<LoadDir>, IngestError> {
        let LoadRequest {
            data_dir,
            database,
            table,
            ..
        } = &self.request;
        let load_dir = LoadDir::create(data_dir, database, table, self.load)?;
        fault::reached("begun")?;
        Ok(Arc::new(load_dir))
    }

    /// Reads all rows.
    pub(crate) async fn read(
        &self,
        plan: TablePlan,
        partitioning: Partitioning,
        mut directors: Directors,
        load_dir: Arc<LoadDir>,
        progress: &Arc<Progress>,
    ) -> Result<ReadLoad, IngestError> {
        let mut spec = self.spec(&plan, &directors);
        let (notes, metadata) = (plan.notes.clone(), plan.metadata.clone());
        let pipeline = Pipeline::new(
            &self.request,
            &partitioning,
            plan,
            load_dir,
            progress.clone(),
        )?;
        let (rows, directors) = blocking(move || {
            let rows = pipeline.read(&mut directors)?;
            Ok((rows, directors))
        })
        .await?;
        forget_placements(&mut spec, &directors.scattered_keys());
        fault::reached("read")?;
        Ok(ReadLoad {
            spec,
            partitioning,
            directors,
            rows,
            notes,
            metadata,
        })
    }

    /// Writes all files. The family is kept until the table is visible.
    pub(crate) async fn write(
        &self,
        read: ReadLoad,
        family: Family,
    ) -> Result<WrittenLoad, IngestError> {
        fault::reached("partitioned")?;
        let siblings = family.indexes();
        let runtime = tokio::runtime::Handle::current();
        let rows = read.rows;
        let outcome = blocking(move || rows.write(&siblings, runtime)).await?;
        let written = WrittenLoad {
            spec: read.spec,
            partitioning: read.partitioning,
            directors: read.directors,
            outcome,
            notes: read.notes,
            metadata: read.metadata,
            family,
        };
        let (spec, outcome) = (written.spec.clone(), &written.outcome);
        write_manifest(
            &self.request,
            self.load,
            spec,
            written.partitioning,
            outcome,
            outcome.counts.unknown_ends_of(written.spec.kind),
        )
        .await?;
        Ok(written)
    }

    fn spec(&self, plan: &TablePlan, directors: &Directors) -> TableSpec {
        TableSpec {
            database: self.request.database.clone(),
            name: self.request.table.clone(),
            kind: plan.kind,
            columns: plan.columns.clone(),
            key: plan.key(),
            position: plan.position(),
            directors: directors.references(&plan.columns, &plan.roles),
            scan_rating: self.request.scan_rating.unwrap_or(UNRATED),
        }
    }

    async fn publish(&self, mut written: WrittenLoad) -> Result<LoadReport, IngestError> {
        let mut notes = written.notes.clone();
        notes.extend(self.catalog.upgraded_from().map(upgraded_note));
        notes.extend(unit_note(&self.request, &written.outcome));
        notes.extend(written.directors.notes(&self.catalog).await?);
        let has_unknown = written.outcome.counts.unknown_ends().map(|pairs| pairs > 0);
        let settled = self.settle_pairs(&mut written.spec, &written.directors, has_unknown);
        let settled = settled.await?;
        match &self.appended_to {
            Some(table) => {
                notes.extend(unsettled_note(table, written.family.unsettled()));
                notes.extend(many_parts_note(table, 1, &self.request.data_dir));
            }
            None => notes.extend(self.children_left_behind(&written.spec).await?),
        }
        let report = self.report(&written.spec, written.partitioning, &written.outcome, notes);
        fault::reached("before-publish")?;
        let replaced = self.show(&written).await?;
        drop(settled);
        // The table is visible from here on: what fails below must not undo the load.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the load is published");
        }
        Ok(self.remove_replaced(report, replaced).await)
    }

    /// Makes the rows visible. Gives the parts that they replace.
    async fn show(&self, written: &WrittenLoad) -> Result<Vec<LoadId>, IngestError> {
        let source = self.source();
        let contents = written.contents(&source);
        if let Some(table) = &self.appended_to {
            let append = Append {
                load: self.load,
                table,
                contents,
                unsettled: written.family.unsettled(),
                replaces: &[],
            };
            publish(&self.catalog, append).await?;
            return Ok(Vec::new());
        }
        if let Some(former) = &self.request.renames {
            self.catalog
                .publish_renamed(self.load, former, &written.spec, contents)
                .await?;
            // The files are where the former name says.
            remove_superseded(&self.catalog, &self.request.data_dir)
                .await
                .inspect_err(|error| tracing::warn!(%error, "files of a renamed table stay"))
                .ok();
            return Ok(Vec::new());
        }
        let Partitioning {
            stripes,
            sub_stripes,
            overlap_deg,
            ..
        } = written.partitioning;
        let database = NewDatabase {
            name: self.request.database.clone(),
            stripes,
            sub_stripes,
            overlap_deg,
        };
        let published = self
            .catalog
            .publish(self.load, &database, &written.spec, contents)
            .await?;
        Ok(published)
    }

    /// What the rows come from, for the list of parts: the names of the first files.
    pub(crate) fn source(&self) -> String {
        if let Some(source) = &self.request.source {
            return source.clone();
        }
        const NAMED: usize = 3;
        let names = self.request.given_names();
        let named: Vec<String> = (names.iter().take(NAMED))
            .map(|name| name.display().to_string())
            .collect();
        match names.len().saturating_sub(NAMED) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }

    /// Where a director has got keys while pairs of a match table were placed, pairs whose end there is unknown may lie elsewhere than
    /// that says; `has_unknown` says of each end whether there are such pairs. Nobody appends to the directors until the guard that this gives is dropped.
    pub(crate) async fn settle_pairs(
        &self,
        spec: &mut TableSpec,
        directors: &Directors,
        has_unknown: [bool; 2],
    ) -> Result<Option<Family>, IngestError> {
        if spec.kind != TableKind::Match {
            return Ok(None);
        }
        let (guard, changed) =
            Family::lock_for_publication(&self.catalog, &self.request, directors).await?;
        // Any new row of a child may have an own key that another has, elsewhere.
        let children = directors.are_children();
        let ends = children.iter().zip(&changed);
        let unsure: Vec<bool> = ends.map(|(child, changed)| *child && *changed).collect();
        forget_placements(spec, &unsure);
        let ends = has_unknown.iter().zip(&changed);
        let moved: Vec<bool> = ends
            .map(|(unknown, changed)| *unknown && *changed)
            .collect();
        if moved.contains(&true) {
            if let Some(table) = &self.appended_to {
                let table = format!("{}.{}", table.spec.database, table.spec.name);
                return Err(CatalogError::TableChanged { table }.into());
            }
            forget_placements(spec, &moved);
        }
        Ok(Some(guard))
    }

    pub(crate) async fn remove_replaced(
        &self,
        mut report: LoadReport,
        replaced: Vec<LoadId>,
    ) -> LoadReport {
        let mut in_use = false;
        for part in replaced {
            match remove_load(&self.catalog, &self.request, part).await {
                Ok(removal) => in_use |= removal == Removal::InUse,
                Err(error) => report
                    .notes
                    .push(format!("the replaced files could not be removed: {error}")),
            }
        }
        if in_use {
            report.notes.push(STILL_READ.to_owned());
        }
        report
    }

    /// Children and match tables that were placed by the director that this load replaces, or match tables by the child.
    pub(crate) async fn children_left_behind(
        &self,
        spec: &TableSpec,
    ) -> Result<Vec<String>, IngestError> {
        if !matches!(spec.kind, TableKind::Director | TableKind::Child) {
            return Ok(Vec::new());
        }
        let hangs_on_us = |table: &Table| table.spec.refers_to(&spec.database, &spec.name);
        let tables = self.catalog.tables(&spec.database).await?;
        let left: Vec<String> = tables
            .into_iter()
            .filter(hangs_on_us)
            .map(|table| table.spec.name)
            .collect();
        if left.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![format!(
            "{} was placed by the replaced {}: its answers stay right, but its joins are slower until it is loaded again",
            left.join(", "),
            spec.name
        )])
    }

    pub(crate) fn report(
        &self,
        spec: &TableSpec,
        partitioning: Partitioning,
        outcome: &Outcome,
        notes: Vec<String>,
    ) -> LoadReport {
        let overlap = |chunk: &Chunk| chunk.overlap.map_or((0, 0), |o| (o.rows, o.bytes));
        LoadReport {
            database: spec.database.clone(),
            table: spec.name.clone(),
            kind: spec.kind,
            load: self.load,
            appended: self.appended_to.is_some(),
            partitioning,
            rows_read: outcome.rows + outcome.rejected,
            rows_loaded: outcome.rows,
            rows_rejected: outcome.rejected,
            rejected_rows: outcome.rejected_rows.clone(),
            counts: outcome.counts,
            latin1_values: outcome.latin1_values,
            comment_lines: outcome.comment_lines,
            chunks: outcome.chunks.len() as u64,
            overlap_rows: outcome.chunks.iter().map(|c| overlap(c).0).sum(),
            chunk_bytes: outcome.chunks.iter().map(|c| c.bytes).sum(),
            overlap_bytes: outcome.chunks.iter().map(|c| overlap(c).1).sum(),
            index_bytes: outcome.index_bytes,
            input_bytes: outcome.input_bytes,
            spilled_parts: outcome.spilled_parts,
            elapsed: self.started.elapsed(),
            notes,
            schema: None,
        }
    }

    /// Leaves nothing of a load that failed; what cannot be removed now is removed by the next load of the table.
    pub(crate) async fn roll_back(&self) {
        let undone = async {
            self.catalog.abandon(self.load).await?;
            remove_load(&self.catalog, &self.request, self.load).await
        };
        if let Err(error) = undone.await {
            tracing::warn!(%error, "the next load of this table will remove what this one left");
        }
    }
}
