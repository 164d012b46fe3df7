//! Appends of a few rows at a time: INSERTs of single rows, stored as fast as a disk can be written to.
//!
//! A load reads files, sorts what does not fit into memory and syncs every file when it is complete. Here the rows are in memory, and what a
//! part consists of is written first and synced at once:
//!
//! ```text
//!   rows ──► value rules, places ──► index, chunk files, manifest ──► one sync of all ──► one transaction of the catalog: the part is there
//! ```
//!
//! Rows are placed ([`placing`]) and written ([`writing`]) by what places and writes those of a load, so that a part is what a load of the same
//! rows would have written.
//!
//! So that a table does not get a part for every few rows, a new part takes the place of those before it that are no larger than it: it has
//! their rows too, which are still in memory, in the places that they have. Sizes of the parts at the end of the list fall by half each time, as in a
//! binary counter, and a row is written no more often than the logarithm of [`MOST_ROWS`]. What is larger than that is merged by a compaction.
//!
//! What a kill leaves is what a killed load leaves: a running load and its directory, which the next load of the table removes. Loads are begun
//! before they are needed, several at once, where appends follow each other.

mod placing;
mod writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use catalog::{
    Append, Catalog, CatalogError, Column, LoadId, LoadLock, PartContents, Table, TableKind,
    UNKNOWN_LOAD,
};
use store::table_dir;
use tokio::runtime::Handle;

use self::placing::{OpenIndexes, PlacedPart, PlacedStatements, RowPlaces};
use self::writing::{WrittenPart, write_part};
use crate::append::adopt;
use crate::compact::compaction_of;
use crate::error::IngestError;
use crate::fault;
use crate::leftovers::{clean_up, remove_load};
use crate::load::blocking;
use crate::load_locks::wait_for_lock;
use crate::pipeline::SPILL_DIR;
use crate::request::LoadRequest;

/// Rows of a part that others are added to, and their bytes.
const MOST_ROWS: usize = 16_384;
const MOST_BYTES: u64 = 1 << 20;
/// Bytes that every part counts at least where sizes are compared.
const SMALLEST_PART: u64 = 256;
/// Appends that each begin their own load before several are begun at once, and how many then.
const PATIENCE: usize = 4;
const LOADS_AT_ONCE: usize = 32;

/// The rows of a statement.
#[derive(Debug, Clone)]
pub struct SmallRows {
    /// The rows: columns of the table's names. Those that are appended together have the same types.
    pub rows: RecordBatch,
    /// The columns that the table had when the rows were made.
    pub columns: Vec<Column>,
    /// What they are called in messages, in the place of a file's name.
    pub name: String,
    /// What they come from, for the list of parts.
    pub source: String,
}

/// Who appends to one table, again and again.
#[derive(Debug)]
pub struct SmallAppends {
    catalog: Catalog,
    request: LoadRequest,
    /// The last parts of the table that were written here, in the order of the list, as long as others may be added to them.
    tail: Vec<TailPart>,
    /// Loads that are begun for the parts to come.
    begun: Vec<LoadId>,
    /// Appends since the loads were given back.
    appends: usize,
    /// Appends until what they have replaced, and what killed loads have left, is removed; none if that is due.
    uncleaned: usize,
    indexes: OpenIndexes,
    /// The table's parts after the last append.
    parts: usize,
}

/// A part whose rows are still in memory.
#[derive(Debug)]
struct TailPart {
    load: LoadId,
    rows: Arc<PlacedPart>,
    bytes: u64,
}

impl SmallAppends {
    /// Of a table in the data directory of a catalog.
    pub fn new(catalog: &Catalog, database: &str, table: &str) -> Self {
        Self {
            catalog: catalog.clone(),
            request: LoadRequest::new(catalog.data_dir(), database, table),
            tail: Vec::new(),
            begun: Vec::new(),
            appends: 0,
            uncleaned: 0,
            indexes: OpenIndexes::default(),
            parts: 0,
        }
    }

    /// Whether rows are appended to a table so: pairs of a match table are not.
    pub fn suits(table: &Table) -> bool {
        table.spec.kind != TableKind::Match
    }

    /// How many parts the table had after the last append.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Appends the rows of statements to the table as it is now, as one part. Gives of each statement whether its rows are there: all of them
    /// or none. [`IngestError::is_change`] of an error if the table has other columns.
    ///
    /// # Errors
    /// None of the rows is there, for a reason that is none of theirs.
    pub async fn append(
        &mut self,
        statements: Vec<SmallRows>,
    ) -> Result<Vec<Result<(), IngestError>>, IngestError> {
        let Some(source) = statements.first().map(|it| it.source.clone()) else {
            return Ok(Vec::new());
        };
        let _lock = wait_for_lock(&self.request, &self.request.table).await?;
        let table = self.table().await?;
        let mut request = adopt(self.request.clone(), &table)?;
        request.append = true;
        self.forget_other_parts(&table);
        let places = RowPlaces::find(&self.catalog, &request, table, &mut self.indexes).await?;
        let load = self.next_load().await?;
        let spill_dir = self.dir_of(load).join(SPILL_DIR);
        let placing = blocking(move || {
            let placed = places.place(&statements, &spill_dir)?;
            Ok((places, placed))
        });
        let (places, placed) = match placing.await {
            Ok(placed) => placed,
            Err(error) => {
                self.give_back(load).await;
                return Err(error);
            }
        };
        let PlacedStatements { part, outcomes } = placed;
        let Some(part) = part else {
            self.give_back(load).await;
            return Ok(outcomes);
        };
        let append = PlacedAppend {
            request,
            places: Arc::new(places),
            part: Arc::new(part),
            source,
        };
        self.add(load, &append).await?;
        Ok(outcomes)
    }

    /// The table as it is now.
    async fn table(&self) -> Result<Table, IngestError> {
        let LoadRequest {
            database, table, ..
        } = &self.request;
        let found = self.catalog.table(database, table).await?;
        let found = found.filter(Self::suits);
        found.ok_or_else(|| changed(&format!("{database}.{table}")))
    }

    /// Adds a part that takes the place of those before it that are as small.
    async fn add(&mut self, load: LoadId, append: &PlacedAppend) -> Result<(), IngestError> {
        let replaced = match self.replaced(&append.places.table, &append.part) {
            Ok(replaced) => replaced,
            Err(error) => {
                self.give_back(load).await;
                return Err(error);
            }
        };
        match self.write_and_show(load, append, replaced).await {
            // Somebody has removed the loads that were begun.
            Err(IngestError::Catalog(CatalogError::NotRunning { .. })) => {
                self.tail.clear();
                // Those that are there still are cleaned up.
                self.begun.clear();
                self.uncleaned = 0;
                let load = self.next_load().await?;
                self.write_and_show(load, append, 0).await
            }
            outcome => outcome,
        }
    }

    /// Begins the loads that are needed next and removes the files of parts that were replaced, if that is due: nobody waits for it.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub async fn prepare(&mut self) -> Result<(), IngestError> {
        if self.appends < PATIENCE || !self.begun.is_empty() {
            return Ok(());
        }
        let _lock = wait_for_lock(&self.request, &self.request.table).await?;
        self.clean_up().await?;
        let (database, table) = (&self.request.database, &self.request.table);
        let begun = self.catalog.begin_loads(database, table, LOADS_AT_ONCE);
        self.begun = begun.await?;
        // The first one first.
        self.begun.reverse();
        Ok(())
    }

    /// Gives loads back that are not needed now, and indexes that are open.
    ///
    /// # Errors
    /// The catalog cannot be written: the next load of the table does it.
    pub async fn pause(&mut self) -> Result<(), IngestError> {
        self.appends = 0;
        self.indexes = OpenIndexes::default();
        let begun = std::mem::take(&mut self.begun);
        Ok(self.catalog.forget_all(&begun).await?)
    }

    /// Forgets rows of parts that are not the last of the table any more.
    fn forget_other_parts(&mut self, table: &Table) {
        let are_last = {
            let mut parts = table.parts.iter().rev();
            let mut tail = self.tail.iter().rev();
            tail.all(|it| parts.next().is_some_and(|part| part.load == it.load))
        };
        if !are_last {
            self.tail.clear();
        }
    }

    /// How many of the last parts the new one takes the place of. None while a compaction may have chosen them.
    fn replaced(&self, table: &Table, part: &PlacedPart) -> Result<usize, IngestError> {
        let sizes = self.tail.iter();
        let sizes = sizes.map(|it| (it.rows.rows.num_rows(), it.bytes));
        let sizes: Vec<(usize, u64)> = sizes.collect();
        let most = replaced_parts(&sizes, (part.rows.num_rows(), part.bytes()));
        if most == 0 || self.is_being_compacted(table)? {
            return Ok(0);
        }
        Ok(most)
    }

    /// Whether a compaction of the table has begun. The load lock is held, so that none begins before it is given back.
    fn is_being_compacted(&self, table: &Table) -> Result<bool, IngestError> {
        let lock = compaction_of(&self.request.table);
        let what = format!("looking whether {} is compacted", table.spec.name);
        let (data_dir, database) = (&self.request.data_dir, &self.request.database);
        let taken = LoadLock::try_acquire(data_dir, database, &lock, &what)?;
        Ok(taken.is_none())
    }

    /// Appends a part that takes the place of so many of the tail.
    async fn write_and_show(
        &mut self,
        load: LoadId,
        append: &PlacedAppend,
        replaced: usize,
    ) -> Result<(), IngestError> {
        let kept = self.tail.len().saturating_sub(replaced);
        let begun = Instant::now();
        let outcome = async {
            let part = match &self.tail[kept..] {
                [] => Arc::clone(&append.part),
                replaced => {
                    let before = replaced.iter().map(|it| it.rows.as_ref());
                    Arc::new(PlacedPart::of(before.chain([append.part.as_ref()]))?)
                }
            };
            let written = self.write(load, append, Arc::clone(&part)).await?;
            let written_in = begun.elapsed();
            self.show(append, &part, &written, kept).await?;
            let (rows, shown_in) = (written.rows, begun.elapsed() - written_in);
            tracing::debug!(%load, rows, replaced, ?written_in, ?shown_in, "rows are appended");
            Ok(part)
        };
        match outcome.await {
            Ok(part) => {
                let replaced: Vec<LoadId> = self.tail[kept..].iter().map(|it| it.load).collect();
                self.indexes.forget(&replaced);
                self.parts = (append.places.table.parts.len() + 1).saturating_sub(replaced.len());
                self.tail.truncate(kept);
                self.keep(load, part);
                self.appends += 1;
                self.uncleaned = self.uncleaned.saturating_sub(1);
                Ok(())
            }
            Err(error) => {
                self.roll_back(load).await;
                Err(error)
            }
        }
    }

    /// Removes what nobody reads any more. The load lock is held, and no load is begun.
    async fn clean_up(&mut self) -> Result<(), IngestError> {
        clean_up(&self.catalog, &self.request).await?;
        self.uncleaned = LOADS_AT_ONCE;
        Ok(())
    }

    async fn next_load(&mut self) -> Result<LoadId, IngestError> {
        if let Some(load) = self.begun.pop() {
            return Ok(load);
        }
        if self.uncleaned == 0 {
            self.clean_up().await?;
        }
        let (database, table) = (&self.request.database, &self.request.table);
        Ok(self.catalog.begin_load(database, table).await?)
    }

    /// Writes the files of a part, all of which are on the disk afterwards.
    async fn write(
        &self,
        load: LoadId,
        append: &PlacedAppend,
        part: Arc<PlacedPart>,
    ) -> Result<WrittenPart, IngestError> {
        let (request, places) = (append.request.clone(), Arc::clone(&append.places));
        let runtime = Handle::current();
        blocking(move || write_part(&request, &places, &part, load, runtime)).await
    }

    /// Shows a part in the place of those of the tail from the place `kept` on.
    async fn show(
        &self,
        append: &PlacedAppend,
        part: &PlacedPart,
        written: &WrittenPart,
        kept: usize,
    ) -> Result<(), IngestError> {
        let replaces: Vec<LoadId> = self.tail[kept..].iter().map(|it| it.load).collect();
        fault::reached("before-publish")?;
        let places = &append.places;
        let append = Append {
            load: written.load,
            table: &places.table,
            contents: PartContents {
                rows: written.rows,
                bytes: written.bytes,
                null_keys: part.null_keys,
                orphan_rows: part.orphan_rows,
                source: &append.source,
                chunks: &written.chunks,
                metadata: None,
            },
            unsettled: places.family.unsettled(),
            replaces: &replaces,
        };
        self.catalog.append(append).await?;
        // The rows are visible from here on: what fails below must not undo that.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the rows are there");
        }
        Ok(())
    }

    /// Keeps the rows of a part that was shown, unless it is so large that none of its size is added to.
    fn keep(&mut self, load: LoadId, rows: Arc<PlacedPart>) {
        let bytes = rows.bytes();
        if rows.rows.num_rows() > MOST_ROWS / 2 || bytes > MOST_BYTES / 2 {
            self.tail.clear();
        } else {
            self.tail.push(TailPart { load, rows, bytes });
        }
    }

    /// Where the files of a load go.
    fn dir_of(&self, load: LoadId) -> PathBuf {
        let LoadRequest {
            data_dir,
            database,
            table,
            ..
        } = &self.request;
        table_dir(data_dir, database, table).join(load.0.to_string())
    }

    /// Takes back a load for which no part is written.
    async fn give_back(&mut self, load: LoadId) {
        match self.dir_of(load).exists() {
            true => self.roll_back(load).await,
            false => self.begun.push(load),
        }
    }

    /// Leaves nothing of a part that was not shown; what cannot be removed now is removed by the next load of the table.
    async fn roll_back(&self, load: LoadId) {
        let undone = async {
            match self.catalog.abandon(load).await {
                // Somebody has removed the load before its directory was made.
                Err(CatalogError::NotRunning { state, .. }) if state == UNKNOWN_LOAD => {}
                abandoned => abandoned?,
            }
            remove_load(&self.catalog, &self.request, load).await
        };
        if let Err(error) = undone.await {
            tracing::warn!(%error, "the next load of this table will remove what these rows left");
        }
    }
}

/// Rows that have their places, and what they are appended by.
struct PlacedAppend {
    request: LoadRequest,
    places: Arc<RowPlaces>,
    part: Arc<PlacedPart>,
    source: String,
}

fn changed(table: &str) -> IngestError {
    let table = table.to_owned();
    CatalogError::TableChanged { table }.into()
}

/// How many of the last parts a new one takes the place of, by their rows and bytes: as many as possible so that none of them is larger than
/// the others and the new one together, and all together are no more than a part may have.
fn replaced_parts(tail: &[(usize, u64)], new: (usize, u64)) -> usize {
    let counted = |bytes: u64| bytes.max(SMALLEST_PART);
    let (mut rows, mut sum, mut largest) = (new.0, counted(new.1), 0);
    let mut replaced = 0;
    for (count, (of_part, bytes)) in (1..).zip(tail.iter().rev()) {
        rows += of_part;
        sum += counted(*bytes);
        largest = largest.max(counted(*bytes));
        if rows > MOST_ROWS || sum > MOST_BYTES {
            break;
        }
        if largest <= sum - largest {
            replaced = count;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: u64 = 40;

    /// Appends of some rows each: the sizes of the parts afterwards, and how many rows were written for them.
    fn appended(appends: &[usize]) -> (Vec<usize>, usize) {
        let (mut parts, mut tail, mut written) = (Vec::new(), Vec::new(), 0);
        for rows in appends {
            let bytes = |rows: usize| rows as u64 * ROW;
            let sizes: Vec<(usize, u64)> = tail.iter().map(|it| (*it, bytes(*it))).collect();
            let replaced = replaced_parts(&sizes, (*rows, bytes(*rows)));
            let before = tail.split_off(tail.len() - replaced);
            let part = before.iter().sum::<usize>() + rows;
            written += part;
            tail.push(part);
            if part > MOST_ROWS / 2 || bytes(part) > MOST_BYTES / 2 {
                parts.append(&mut tail);
            }
        }
        parts.append(&mut tail);
        (parts, written)
    }

    #[test]
    fn parts_grow_as_a_binary_counter_does() {
        // Of 10 rows each takes 400 bytes, more than the least that counts.
        assert_eq!(appended(&[10; 7]).0, [40, 20, 10]);
        assert_eq!(appended(&[10; 8]).0, [80]);
        assert_eq!(appended(&[100, 10, 10]).0, [100, 20]);
        assert_eq!(appended(&[100, 10, 200]).0, [310]);
        assert!(appended(&[]).0.is_empty());
    }

    #[test]
    fn rows_are_written_no_more_often_than_the_logarithm() {
        for size in [1, 7, 20, 300, 5000] {
            let appends = 200_000 / size;
            let (parts, written) = appended(&vec![size; appends]);
            let rows = parts.iter().sum::<usize>();
            assert_eq!(rows, appends * size);
            assert!(parts.iter().all(|part| *part <= MOST_ROWS), "{parts:?}");
            let most = rows.div_ceil(MOST_ROWS / 2) + 15;
            assert!(parts.len() <= most, "{size}: {}", parts.len());
            let times = (MOST_ROWS as f64 / size as f64).log2() + 2.0;
            assert!(
                written as f64 <= rows as f64 * times,
                "{size}: {written} of {rows}"
            );
        }
    }
}
