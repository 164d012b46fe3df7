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
use crate::memory::default_memory;
use crate::partitioning::settle_partitioning;
use crate::pipeline::{Outcome, Pipeline, SPILL_DIR};
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
async fn clean_up(catalog: &Catalog, request: &LoadRequest) -> Result<(), IngestError> {
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

async fn remove_load(
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
struct Transaction {
    catalog: Catalog,
    request: LoadRequest,
    load: LoadId,
    started: Instant,
}

/// A load whose files are written.
struct Filled {
    spec: TableSpec,
    partitioning: Partitioning,
    directors: Directors,
    outcome: Outcome,
    notes: Vec<String>,
    /// Kept until the table is visible, so that the next child of the director sees where this one's orphans went.
    _family: Family,
}

impl Transaction {
    async fn run(
        &self,
        plan: Option<TablePlan>,
        progress: Arc<Progress>,
    ) -> Result<LoadReport, IngestError> {
        let LoadRequest {
            data_dir,
            database,
            table,
            ..
        } = &self.request;
        let load_dir = Arc::new(LoadDir::create(data_dir, database, table, self.load)?);
        fault::reached("begun")?;
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
        let filled = self
            .fill(plan, partitioning, directors, load_dir, &progress)
            .await
            .map_err(|error| named(error).with_hints(&hints))?;
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

    /// Reads all rows and writes all files.
    async fn fill(
        &self,
        plan: TablePlan,
        partitioning: Partitioning,
        mut directors: Directors,
        load_dir: Arc<LoadDir>,
        progress: &Arc<Progress>,
    ) -> Result<Filled, IngestError> {
        let spec = self.spec(&plan, &directors);
        let notes = plan.notes.clone();
        let pipeline = Pipeline::new(
            &self.request,
            &partitioning,
            plan,
            load_dir,
            progress.clone(),
        )?;
        let (read, directors) = blocking(move || {
            let read = pipeline.read(&mut directors)?;
            Ok((read, directors))
        })
        .await?;
        fault::reached("read")?;
        let family = Family::gather(&self.catalog, &self.request, &directors).await?;
        fault::reached("partitioned")?;
        let siblings = family.orphan_indexes();
        let runtime = tokio::runtime::Handle::current();
        let outcome = blocking(move || read.write(&siblings, runtime)).await?;
        Ok(Filled {
            spec,
            partitioning,
            directors,
            outcome,
            notes,
            _family: family,
        })
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
        let Filled {
            mut spec, outcome, ..
        } = filled;
        spec.null_keys = outcome.counts.null_keys;
        spec.orphan_rows = outcome.counts.orphan_rows;
        let mut notes = filled.notes;
        notes.extend(filled.directors.notes(&self.catalog).await?);
        notes.extend(self.children_left_behind(&spec).await?);
        let report = self.report(&spec, filled.partitioning, &outcome, notes);
        let bytes = report.chunk_bytes + report.overlap_bytes + report.index_bytes;
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
    async fn roll_back(&self) {
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
