//! The load transaction: from a request to a table that queries see, or to nothing at all.
//!
//! The table's load lock is held from before the load begins until its leftovers are gone. Everything is written
//! under the load's own directory and synced; one catalog transaction makes it visible. A process that dies before
//! that leaves a directory that nothing refers to, which the next load of the table removes.

use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, Chunk, LoadId, LoadLock, NewDatabase, Table, TableKind, TableSpec};
use store::{LoadDir, Removal};

use crate::directors::{Directors, Family};
use crate::error::IngestError;
use crate::fault;
use crate::manifest::write_manifest;
use crate::memory::default_memory;
use crate::partitioning::settle_partitioning;
use crate::pipeline::{Outcome, Pipeline, ReadRows, SPILL_DIR};
use crate::plan::{TablePlan, check_options};
use crate::progress::{Phase, Progress};
use crate::report::{LoadReport, Partitioning};
use crate::request::LoadRequest;
use crate::spool::{Spool, any_stream};

/// Loads a table. On an error nothing of it is visible, and its files are removed.
///
/// # Errors
/// Every [`IngestError`] is a sentence for the person who asked for the load.
pub async fn load(
    request: LoadRequest,
    progress: Arc<Progress>,
) -> Result<LoadReport, IngestError> {
    let started = Instant::now();
    progress.enter(Phase::Preparing, 0);
    check_options(&request)?;
    // What can be looked at more than once is, before anything is made.
    let (plan, request) = blocking(move || {
        let again = !any_stream(&request.files);
        let plan = again.then(|| TablePlan::make(&request, &request.files));
        Ok((plan.transpose()?, request))
    })
    .await?;
    let catalog = Catalog::open_or_create(&request.data_dir).await?;
    let outcome = load_into(&catalog, request, plan, progress, started).await;
    // Whoever copies the data directory afterwards needs the catalog's file alone.
    catalog.close().await;
    outcome
}

async fn load_into(
    catalog: &Catalog,
    request: LoadRequest,
    plan: Option<TablePlan>,
    progress: Arc<Progress>,
    started: Instant,
) -> Result<LoadReport, IngestError> {
    let inputs = request.input_names();
    let what = format!("loading {}", inputs[0].display());
    let _lock = LoadLock::acquire(&request.data_dir, &request.database, &request.table, &what)?;
    clean_up(catalog, &request).await?;
    check_replaceable(catalog, &request).await?;
    let load = catalog
        .begin_load(&request.database, &request.table)
        .await?;
    let transaction = Transaction {
        catalog: catalog.clone(),
        request,
        load,
        started,
    };
    let outcome = transaction.run(plan, progress).await;
    if outcome.is_err() {
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

/// Removes what killed loads of the table left, and replaced files that nobody reads any more.
pub(crate) async fn clean_up(catalog: &Catalog, request: &LoadRequest) -> Result<(), IngestError> {
    let LoadRequest {
        database, table, ..
    } = request;
    let mut leftovers = catalog.unpublished_loads(database, table).await?;
    leftovers.extend(catalog.superseded_loads(database, table).await?);
    for load in leftovers {
        remove_load(catalog, request, load).await?;
    }
    Ok(())
}

pub(crate) async fn remove_load(
    catalog: &Catalog,
    request: &LoadRequest,
    load: LoadId,
) -> Result<Removal, IngestError> {
    let removal = LoadDir::remove(&request.data_dir, &request.database, &request.table, load)?;
    if removal == Removal::Removed {
        catalog.forget(load).await?;
    }
    Ok(removal)
}

async fn check_replaceable(catalog: &Catalog, request: &LoadRequest) -> Result<(), IngestError> {
    let LoadRequest {
        database, table, ..
    } = request;
    match catalog.table(database, table).await? {
        Some(found) if !request.replace => Err(IngestError::Options(format!(
            "the table {database}.{} exists already ({} rows, loaded {}): give --replace to load it anew",
            found.spec.name, found.rows, found.loaded_at
        ))),
        _ => Ok(()),
    }
}

/// A load that has begun.
pub(crate) struct Transaction {
    pub catalog: Catalog,
    pub request: LoadRequest,
    pub load: LoadId,
    pub started: Instant,
}

/// A load whose rows are read, but not written.
pub(crate) struct Read {
    spec: TableSpec,
    partitioning: Partitioning,
    directors: Directors,
    rows: ReadRows,
    notes: Vec<String>,
}

/// A load whose files are written.
pub(crate) struct Filled {
    spec: TableSpec,
    partitioning: Partitioning,
    directors: Directors,
    pub outcome: Outcome,
    notes: Vec<String>,
    /// Kept until the table is visible, so that the next child of the director sees where this one's orphans went.
    _family: Family,
}

impl Filled {
    /// What is published of the table.
    pub(crate) fn final_spec(&self) -> TableSpec {
        let mut spec = self.spec.clone();
        spec.null_keys = self.outcome.counts.null_keys;
        spec.orphan_rows = self.outcome.counts.orphan_rows;
        spec
    }

    /// Bytes of all its files.
    pub(crate) fn bytes(&self) -> u64 {
        let of_chunk = |chunk: &Chunk| chunk.bytes + chunk.overlap.map_or(0, |o| o.bytes);
        let chunks: u64 = self.outcome.chunks.iter().map(of_chunk).sum();
        chunks + self.outcome.index_bytes
    }
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
        let directors = Directors::find(&self.catalog, &self.request, plan.kind).await?;
        let settled = settle_partitioning(&self.catalog, &self.request, plan).await;
        let (plan, partitioning) = settled.map_err(named)?;
        let hints = plan.notes.clone();
        let explained = |error| named(error).with_hints(&hints);
        let read = self
            .read(plan, partitioning, directors, load_dir, &progress)
            .await
            .map_err(explained)?;
        let family = Family::gather(&self.catalog, &self.request, &read.directors).await?;
        let filled = self.write(read, family).await.map_err(explained)?;
        progress.enter(Phase::Publishing, 0);
        self.publish(filled).await
    }

    /// Copies what can be read only once into the load's directory, from where it goes with what else is kept aside.
    async fn spool(
        &self,
        load_dir: &LoadDir,
        progress: Arc<Progress>,
    ) -> Result<(Spool, LoadRequest), IngestError> {
        let dir = load_dir.path().join(SPILL_DIR);
        let request = self.request.clone();
        blocking(move || {
            let spool = Spool::take(&request.files, &dir, &progress)?;
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
    ) -> Result<Read, IngestError> {
        let spec = self.spec(&plan, &directors);
        let notes = plan.notes.clone();
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
        fault::reached("read")?;
        Ok(Read {
            spec,
            partitioning,
            directors,
            rows,
            notes,
        })
    }

    /// Writes all files. The family is kept until the table is visible.
    pub(crate) async fn write(&self, read: Read, family: Family) -> Result<Filled, IngestError> {
        fault::reached("partitioned")?;
        let siblings = family.orphan_indexes();
        let runtime = tokio::runtime::Handle::current();
        let rows = read.rows;
        let outcome = blocking(move || rows.write(&siblings, runtime)).await?;
        let filled = Filled {
            spec: read.spec,
            partitioning: read.partitioning,
            directors: read.directors,
            outcome,
            notes: read.notes,
            _family: family,
        };
        let (spec, outcome) = (filled.final_spec(), &filled.outcome);
        write_manifest(&self.request, self.load, spec, filled.partitioning, outcome).await?;
        Ok(filled)
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
            scan_rating: self.request.scan_rating,
            null_keys: 0,
            orphan_rows: 0,
        }
    }

    async fn publish(&self, filled: Filled) -> Result<LoadReport, IngestError> {
        let (spec, bytes) = (filled.final_spec(), filled.bytes());
        let outcome = &filled.outcome;
        let mut notes = filled.notes.clone();
        notes.extend(self.catalog.upgraded_from().map(|version| {
            format!(
                "the catalog was of version {version} and is brought up to date: its checksums were computed of what it said"
            )
        }));
        notes.extend(filled.directors.notes(&self.catalog).await?);
        notes.extend(self.children_left_behind(&spec).await?);
        let report = self.report(&spec, filled.partitioning, outcome, notes);
        let Partitioning {
            stripes,
            sub_stripes,
            overlap_deg,
            ..
        } = filled.partitioning;
        let database = NewDatabase {
            name: self.request.database.clone(),
            stripes,
            sub_stripes,
            overlap_deg,
        };
        fault::reached("before-publish")?;
        let published = self
            .catalog
            .publish(
                self.load,
                &database,
                &spec,
                report.rows_loaded,
                bytes,
                &outcome.chunks,
            )
            .await?;
        // The table is visible from here on: what fails below must not undo the load.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the load is published");
        }
        Ok(self.remove_replaced(report, published.replaced).await)
    }

    async fn remove_replaced(
        &self,
        mut report: LoadReport,
        replaced: Option<LoadId>,
    ) -> LoadReport {
        let Some(replaced) = replaced else {
            return report;
        };
        match remove_load(&self.catalog, &self.request, replaced).await {
            Ok(Removal::Removed) => {}
            Ok(Removal::InUse) => report.notes.push(
                "queries still read the replaced files; the next load of this table removes them"
                    .to_owned(),
            ),
            Err(error) => report
                .notes
                .push(format!("the replaced files could not be removed: {error}")),
        }
        report
    }

    /// Children and match tables that were placed by the director that this load replaces.
    async fn children_left_behind(&self, spec: &TableSpec) -> Result<Vec<String>, IngestError> {
        if spec.kind != TableKind::Director {
            return Ok(Vec::new());
        }
        let hangs_on_us = |table: &Table| {
            table
                .spec
                .directors
                .iter()
                .any(|director| director.table.eq_ignore_ascii_case(&spec.name))
        };
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

    fn report(
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
            partitioning,
            rows_read: outcome.rows + outcome.refused,
            rows_loaded: outcome.rows,
            rows_refused: outcome.refused,
            refusals: outcome.refusals.clone(),
            counts: outcome.counts,
            latin1_values: outcome.latin1_values,
            chunks: outcome.chunks.len() as u64,
            overlap_rows: outcome.chunks.iter().map(|c| overlap(c).0).sum(),
            chunk_bytes: outcome.chunks.iter().map(|c| c.bytes).sum(),
            overlap_bytes: outcome.chunks.iter().map(|c| overlap(c).1).sum(),
            index_bytes: outcome.index_bytes,
            input_bytes: outcome.input_bytes,
            spilled_parts: outcome.spilled_parts,
            elapsed: self.started.elapsed(),
            notes,
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

impl LoadRequest {
    /// The memory budget in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or_else(default_memory)
    }

    /// The number of threads that read and write.
    pub(crate) fn thread_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores).max(1)
    }
}
