//! Compaction: small parts of tables become large ones, beside queries and loads.
//!
//! Which parts are merged, their sizes tell (`policy`), and of databases that are published night by night the months too (`months`).
//! One merge writes one part in the place of several that follow each other in a table's list, and one catalog transaction
//! shows it instead of these. It holds the table's load lock while it begins and while it publishes; in between it reads parts whose
//! directories it keeps in use, and writes into one of its own, beside appends, drops and replacements of the table. If the parts are
//! no longer there when it publishes, its work is thrown away, and it looks at the table anew. A table has one compaction at a time.
//!
//! Every row keeps its chunk and sub-chunk, and every key its home, whatever the directors have become since. A process that
//! dies on the way leaves the old list and a running load that nothing refers to, which the next load or compaction of the table
//! removes.

mod months;
mod policy;
mod request;
mod rows;

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{Catalog, CatalogError, LoadLock, Part, PartContents, Table, TableKind};
use sky::Chunker;
use store::{Durability, LoadDir, Removal};
use tokio::runtime::Handle;

use crate::directors::{Family, open_parts, unknown_ends_of};
use crate::error::IngestError;
use crate::fault;
use crate::leftovers::{clean_up, remove_loads};
use crate::load::{Transaction, blocking};
use crate::load_locks::{LOCK_WAIT, lock_waits};
use crate::manifest::write_manifest;
use crate::memory::{MemoryBudget, default_memory};
use crate::pace::Pace;
use crate::pipeline::{Outcome, SPILL_DIR, file_schema, write_files};
use crate::progress::{Phase, Progress};
use crate::report::{Partitioning, PlacementCounts};
use crate::request::LoadRequest;
use crate::write::ChunkWriter;
use months::MergeRun;
use policy::runs_to_merge;
use rows::{PartsToMerge, StoredPart};

pub use months::{Month, MonthSort};
pub use request::{CompactReport, CompactRequest, CompactedTable, Merge};

/// A table of more parts is worth a compaction: what is said after an append, and what a server looks for.
pub const MANY_PARTS: usize = policy::MOST_PARTS;

/// The memory of a compaction that is given none: it runs beside queries.
const DEFAULT_MEMORY: u64 = 1 << 30;

/// Characters of the sources of a merged part that are kept.
const SOURCE_LEN: usize = 200;
/// How often a merge is begun again because the table has changed meanwhile.
const MOST_ATTEMPTS: usize = 5;

/// What stands for further sources.
const FURTHER: &str = ", ...";

/// Merges small parts of tables. A table that cannot be compacted does not keep the others from it.
///
/// # Errors
/// There is no such table or database, or the compaction was cancelled: merges that were complete stay.
pub async fn compact(
    request: CompactRequest,
    progress: Arc<Progress>,
) -> Result<CompactReport, IngestError> {
    let catalog = Catalog::open(&request.data_dir).await?;
    let outcome = compact_with(&catalog, request, progress).await;
    catalog.close().await;
    outcome
}

/// The same with a catalog that is open, and stays so.
///
/// # Errors
/// As for [`compact`].
pub async fn compact_with(
    catalog: &Catalog,
    request: CompactRequest,
    progress: Arc<Progress>,
) -> Result<CompactReport, IngestError> {
    progress.enter(Phase::Preparing, 0);
    let compaction = Compaction {
        pace: Arc::new(Pace::new(request.rate)),
        catalog: catalog.clone(),
        this_month: Month::of(&catalog::utc_now()),
        request,
        progress,
        started: Instant::now(),
    };
    Box::pin(compaction.run()).await
}

/// A merge that has begun.
struct BegunMerge {
    transaction: Transaction,
    /// The table with the parts that are merged alone.
    merged: Table,
    parts: Vec<StoredPart>,
    load_dir: Arc<LoadDir>,
    /// The month of which these are all parts, if they are merged for that.
    month: Option<Month>,
}

struct Compaction {
    catalog: Catalog,
    /// The month in which it began.
    this_month: Month,
    request: CompactRequest,
    progress: Arc<Progress>,
    pace: Arc<Pace>,
    started: Instant,
}

impl Compaction {
    async fn run(&self) -> Result<CompactReport, IngestError> {
        let mut report = CompactReport {
            tables: Vec::new(),
            failures: Vec::new(),
            elapsed: Duration::ZERO,
        };
        for table in self.tables().await? {
            let outcome = match self.request.dry_run {
                true => Ok(self.planned(&table)),
                false => self.compact_table(&table).await,
            };
            match outcome {
                Ok(compacted) => report.tables.push(compacted),
                Err(IngestError::Cancelled) => return Err(IngestError::CompactionCancelled),
                Err(error) => report.failures.push((full_name(&table), error)),
            }
        }
        report.elapsed = self.started.elapsed();
        Ok(report)
    }

    /// The tables that are requested, as they are now.
    async fn tables(&self) -> Result<Vec<Table>, IngestError> {
        let (catalog, table) = (&self.catalog, self.request.table.as_ref());
        let databases = match &self.request.database {
            Some(name) => match catalog.database(name).await? {
                Some(database) => vec![database],
                None => {
                    let database = name.clone();
                    return Err(CatalogError::NoDatabase { database }.into());
                }
            },
            None => catalog.databases().await?,
        };
        let mut tables = Vec::new();
        for database in databases {
            match table {
                None => tables.extend(catalog.tables(&database.name).await?),
                Some(name) => match catalog.table(&database.name, name).await? {
                    Some(found) => tables.push(found),
                    None => {
                        let table = format!("{}.{name}", database.name);
                        return Err(CatalogError::NoTable { table }.into());
                    }
                },
            }
        }
        Ok(tables)
    }

    /// The runs of parts of a table that are to be merged; `few` if it has so few that their number is no reason to.
    fn runs(&self, table: &Table, parts: &[Part], few: bool) -> Vec<MergeRun> {
        let CompactRequest { all, months, .. } = &self.request;
        let months = months.of(&table.spec.database).filter(|_| !all);
        if let Some(months) = months {
            return months::runs_to_merge(parts, &self.this_month, months, few);
        }
        let bytes: Vec<u64> = parts.iter().map(|part| part.bytes).collect();
        let runs = match all {
            _ if few || bytes.len() < 2 => Vec::new(),
            true => std::iter::once(0..bytes.len()).collect(),
            false => runs_to_merge(&bytes),
        };
        runs.into_iter().map(MergeRun::by_size).collect()
    }

    /// Whether a table has so few parts that none is merged for their number.
    fn leaves_alone(&self, table: &Table) -> bool {
        table.parts.len() < self.request.min_parts
    }

    /// What would be merged.
    fn planned(&self, table: &Table) -> CompactedTable {
        let runs = self.runs(table, &table.parts, self.leaves_alone(table));
        let merge = |run: MergeRun| Merge::of(&table.parts[run.parts], run.month);
        CompactedTable {
            merges: runs.into_iter().map(merge).collect(),
            ..CompactedTable::of(table)
        }
    }

    async fn compact_table(&self, then: &Table) -> Result<CompactedTable, IngestError> {
        let (database, name) = (&then.spec.database, &then.spec.name);
        let mut request = LoadRequest::new(&self.request.data_dir, database, name);
        let default = default_memory().min(DEFAULT_MEMORY);
        request.memory = Some(self.request.memory.unwrap_or(default));
        request.threads = Some(self.request.threads.unwrap_or(1));
        let mut compacted = CompactedTable::of(then);
        let mut attempts = 0;
        // What is appended from now on waits for the next compaction: else one would not end while rows come all the time.
        let last = then.parts.iter().map(|part| part.load).max();
        let _turn = self.lock(then, &compaction_of(name)).await?;
        loop {
            let lock = self.lock(then, name).await?;
            clean_up(&self.catalog, &request).await?;
            let found = self.catalog.table(database, name).await?;
            let table = found.ok_or_else(|| changed(then))?;
            if compacted.merges.is_empty() {
                compacted.parts_before = table.parts.len();
            }
            // Once parts are merged for their number, whatever is worth it is.
            let by_size = compacted.merges.iter().any(|merge| merge.month.is_none());
            let few = !by_size && self.leaves_alone(&table);
            let is_done = by_size && self.request.all;
            let is_known = |part: &Part| {
                let mut made = compacted.merges.iter().filter_map(|merge| merge.into);
                Some(part.load) <= last || made.any(|it| it == part.load)
            };
            let known = table
                .parts
                .iter()
                .rposition(is_known)
                .map_or(0, |at| at + 1);
            let runs = self.runs(&table, &table.parts[..known], few);
            let Some(run) = runs.into_iter().next().filter(|_| !is_done) else {
                return Ok(compacted);
            };
            let begun = self.begin(&request, &table, run).await?;
            drop(lock);
            match self.merge(begun).await {
                Ok((merge, removal)) => {
                    compacted.merges.push(merge);
                    compacted.in_use |= removal == Removal::InUse;
                }
                Err(error) if error.is_change() && attempts < MOST_ATTEMPTS => attempts += 1,
                Err(error) => return Err(error),
            }
            // Whoever waits for the table's lock gets it.
            tokio::time::sleep(LOCK_WAIT * 2).await;
        }
    }

    /// Waits for a lock of a table: the load lock by its name, or that of its compaction.
    async fn lock(&self, table: &Table, lock: &str) -> Result<LoadLock, IngestError> {
        let (database, name) = (&table.spec.database, &table.spec.name);
        let what = format!("compacting {name}");
        let mut waits = lock_waits();
        loop {
            let taken = LoadLock::try_acquire(&self.request.data_dir, database, lock, &what)?;
            if let Some(lock) = taken {
                return Ok(lock);
            }
            if self.progress.is_cancelled() {
                return Err(IngestError::Cancelled);
            }
            tokio::time::sleep(waits.next().unwrap_or(LOCK_WAIT)).await;
        }
    }

    /// Begins to merge a run of a table's parts: from here on nothing removes what it reads and writes. The load lock is held.
    async fn begin(
        &self,
        request: &LoadRequest,
        table: &Table,
        run: MergeRun,
    ) -> Result<BegunMerge, IngestError> {
        let spec = &table.spec;
        let mut merged = table.clone();
        merged.parts = table.parts[run.parts].to_vec();
        let mut parts = Vec::with_capacity(merged.parts.len());
        for (part, dir) in merged.parts.iter().zip(open_parts(request, &merged)?) {
            let chunks = self.catalog.chunks(part.load).await?;
            parts.push(StoredPart { chunks, dir });
        }
        let load = self.catalog.begin_load(&spec.database, &spec.name).await?;
        let transaction = Transaction {
            catalog: self.catalog.clone(),
            request: request.clone(),
            load,
            started: self.started,
            appended_to: None,
        };
        match transaction.make_dir() {
            Ok(load_dir) => Ok(BegunMerge {
                transaction,
                merged,
                parts,
                load_dir,
                month: run.month,
            }),
            Err(error) => {
                transaction.roll_back().await;
                Err(error)
            }
        }
    }

    /// Merges the parts. On an error the table is as it was.
    async fn merge(&self, begun: BegunMerge) -> Result<(Merge, Removal), IngestError> {
        let BegunMerge {
            transaction,
            merged,
            parts,
            load_dir,
            month,
        } = begun;
        let published = async {
            let written = self.write(&transaction, &merged, parts, &load_dir).await?;
            let _lock = self.lock(&merged, &merged.spec.name).await?;
            self.progress.enter(Phase::Publishing, 0);
            self.publish(&transaction, &merged, month, &written).await
        };
        let outcome = published.await;
        // It is in use as long as it is held.
        drop(load_dir);
        if outcome.is_err() {
            transaction.roll_back().await;
        }
        outcome
    }

    /// Writes the files of a merged part.
    async fn write(
        &self,
        transaction: &Transaction,
        table: &Table,
        parts: Vec<StoredPart>,
        load_dir: &Arc<LoadDir>,
    ) -> Result<Outcome, IngestError> {
        let request = &transaction.request;
        let spill_dir = load_dir.path().join(SPILL_DIR);
        catalog::make_directories(&spill_dir)
            .map_err(|e| IngestError::io("create", &spill_dir, e))?;
        let cut = &table.database;
        let budget = MemoryBudget::new(request.memory_bytes(), request.thread_count());
        let merge = PartsToMerge {
            table: table.clone(),
            parts,
            chunker: Chunker::new(cut.stripes, cut.sub_stripes)?,
            budget: Arc::new(budget),
            spill_dir,
            progress: Arc::clone(&self.progress),
            pace: Arc::clone(&self.pace),
        };
        let runtime = Handle::current();
        let load_dir = Arc::clone(load_dir);
        let written = blocking(move || write_merged(&merge, &load_dir, runtime)).await?;
        let (spec, cut) = (table.spec.clone(), Partitioning::of(&table.database));
        let unknown_ends = unknown_ends_of(request, table);
        write_manifest(request, transaction.load, spec, cut, &written, unknown_ends).await?;
        Ok(written)
    }

    /// Shows the merged part instead of its parts, and removes their files if nobody reads them.
    async fn publish(
        &self,
        transaction: &Transaction,
        merged: &Table,
        month: Option<Month>,
        written: &Outcome,
    ) -> Result<(Merge, Removal), IngestError> {
        let Transaction { request, load, .. } = transaction;
        // Others who hold this lock read the list and open the parts' files, which must not go in between.
        let directors = names_of_directors(merged);
        let _family = Family::lock(request, database_of_directors(merged), directors).await?;
        let (database, name) = (&merged.spec.database, &merged.spec.name);
        let now = self.catalog.table(database, name).await?;
        // A match table may have been told meanwhile that its pairs are elsewhere than a director says: no file is of that.
        let now = now.filter(|now| (now.id, now.placement) == (merged.id, merged.placement));
        let now = now.ok_or_else(|| changed(merged))?;
        let parts = merged.part_numbers();
        let contents = contents(merged, written);
        let source = match &month {
            Some(month) => format!("month {month}"),
            None => sources_of(&merged.parts),
        };
        let merge = Merge {
            into: Some(*load),
            bytes_after: Some(contents.bytes),
            ..Merge::of(&merged.parts, month)
        };
        let contents = PartContents {
            source: &source,
            ..contents
        };
        fault::reached("before-publish")?;
        (self.catalog.merge_parts(*load, &now, &parts, contents)).await?;
        // The merged part is visible from here on: what fails below must not undo it.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the parts are merged");
        }
        let outcome = match remove_loads(&self.catalog, request, &parts).await {
            Ok(0) => Removal::Removed,
            Ok(_) => Removal::InUse,
            Err(error) => {
                tracing::warn!(%error, "the next load, drop or compaction removes the files of merged parts");
                Removal::InUse
            }
        };
        Ok((merge, outcome))
    }
}

fn full_name(table: &Table) -> String {
    format!("{}.{}", table.spec.database, table.spec.name)
}

/// The name of the lock of a table's compactions, which is no table's: none has this character in its name.
pub(crate) fn compaction_of(table: &str) -> String {
    format!("{table}\0compaction")
}

fn changed(table: &Table) -> IngestError {
    let table = full_name(table);
    CatalogError::TableChanged { table }.into()
}

/// The database that these directors are in.
fn database_of_directors(table: &Table) -> &str {
    let director = table.spec.directors.first();
    let own = &table.spec.database;
    director.map_or(own, |it| it.database(own))
}

/// The directors by whose keys the rows of a table are placed.
fn names_of_directors(table: &Table) -> Vec<&String> {
    match table.spec.kind {
        TableKind::Director => vec![&table.spec.name],
        _ => table.spec.directors.iter().map(|it| &it.table).collect(),
    }
}

/// Reads the parts and writes the files of the one that they become. Blocks its thread.
fn write_merged(
    merge: &PartsToMerge,
    load_dir: &LoadDir,
    runtime: Handle,
) -> Result<Outcome, IngestError> {
    let placed = merge.read(&runtime)?;
    fault::reached("read")?;
    fault::reached("partitioned")?;
    let index_bytes = merge.write_index(&load_dir.index_dir())?;
    fault::reached("index-written")?;
    let spec = &merge.table.spec;
    let schema = file_schema(&spec.columns, spec.kind);
    let writer = ChunkWriter {
        placed: &placed,
        load_dir,
        writers: merge.budget.writers(schema.fields().len()),
        schema,
        runtime,
        progress: &merge.progress,
        pace: &merge.pace,
        durability: Durability::WithName,
    };
    let chunks = write_files(&writer, spec.kind)?;
    let spilled = placed.rows.spilled_parts();
    drop(placed);
    let spill_dir = &merge.spill_dir;
    std::fs::remove_dir_all(spill_dir).map_err(|e| IngestError::io("remove", spill_dir, e))?;
    Ok(Outcome {
        chunks,
        rows: merge.table.rows(),
        rejected: 0,
        rejected_rows: Vec::new(),
        counts: PlacementCounts::default(),
        latin1_values: 0,
        comment_lines: 0,
        index_bytes,
        input_bytes: 0,
        spilled_parts: spilled as u64,
    })
}

/// What is published of a merged part, but for its sources.
fn contents<'a>(merged: &Table, written: &'a Outcome) -> PartContents<'a> {
    let of_chunk = |chunk: &catalog::Chunk| chunk.bytes + chunk.overlap.map_or(0, |it| it.bytes);
    let chunks: u64 = written.chunks.iter().map(of_chunk).sum();
    PartContents {
        rows: written.rows,
        bytes: chunks + written.index_bytes,
        null_keys: merged.null_keys(),
        orphan_rows: merged.orphan_rows(),
        source: "",
        chunks: &written.chunks,
        metadata: None,
    }
}

/// What several parts were loaded from, as one text: as many of the first ones as there is room for.
fn sources_of(parts: &[Part]) -> String {
    let mut text = String::new();
    let mut is_cut = false;
    for part in parts {
        let source = part.source.strip_suffix(FURTHER);
        is_cut |= source.is_some();
        for name in source.unwrap_or(&part.source).split(", ") {
            if name.is_empty() || text.split(", ").any(|it| it == name) {
                continue;
            }
            if !text.is_empty() && text.chars().count() + name.chars().count() > SOURCE_LEN {
                is_cut = true;
                break;
            }
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(name);
        }
    }
    if is_cut {
        text.push_str(FURTHER);
    }
    text
}

#[cfg(test)]
mod tests {
    use catalog::LoadId;

    use super::*;

    fn part(source: &str) -> Part {
        Part {
            load: LoadId(1),
            rows: 1,
            bytes: 1,
            null_keys: 0,
            orphan_rows: 0,
            loaded_at: String::new(),
            source: source.to_owned(),
            merged_from: Vec::new(),
        }
    }

    #[test]
    fn sources_stay_readable() {
        let texts = |sources: &[&str]| {
            let parts: Vec<Part> = sources.iter().map(|source| part(source)).collect();
            sources_of(&parts)
        };
        assert_eq!(texts(&["a.csv", "", "b.csv, a.csv"]), "a.csv, b.csv");
        assert_eq!(texts(&["", ""]), "");
        let many: Vec<String> = (0..90).map(|night| format!("night{night}.csv")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = texts(&many);
        assert!(text.starts_with("night0.csv, night1.csv,") && text.ends_with(FURTHER));
        assert!(text.len() <= SOURCE_LEN + FURTHER.len() + 2, "{text}");
        // Merged again, it is still as short.
        assert_eq!(texts(&[&text, "later.csv"]), text);
    }
}
