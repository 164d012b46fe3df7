//! Appends of a few rows at a time to a table that is kept whole: INSERTs of single rows, stored as fast as a disk can be written to.
//!
//! A load reads files, sorts what does not fit into memory and syncs every file when it is complete. Here the rows are in memory, and what a
//! part consists of is written first and synced at once:
//!
//! ```text
//!   rows ──► value rules ──► chunk file, manifest ──► one sync of all ──► one transaction of the catalog: the part is there
//! ```
//!
//! So that a table does not get a part for every few rows, a new part takes the place of those before it that are no larger than it: it has
//! their rows too, which are still in memory. Sizes of the parts at the end of the list fall by half each time, as in a
//! binary counter, and a row is written no more often than the logarithm of [`MOST_ROWS`]. What is larger than that is merged by a compaction.
//!
//! What a kill leaves is what a killed load leaves: a running load and its directory, which the next load of the table removes. Loads are begun
//! before they are needed, several at once, where appends follow each other.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use catalog::{
    Append, Catalog, CatalogError, Chunk, LoadId, LoadLock, PartContents, REPLICATED_CHUNK, Table,
    TableKind, UNKNOWN_LOAD,
};
use store::{LoadDir, PartManifest, PartPartitioning, arrow_schema, write_rows_unsynced};

use crate::compact::compaction_of;
use crate::directors::wait_for_lock;
use crate::error::IngestError;
use crate::fault;
use crate::format::ReadContext;
use crate::leftovers::{clean_up, remove_load};
use crate::load::blocking;
use crate::normalise;
use crate::progress::Progress;
use crate::rejected_rows::{RejectedRows, RowId};
use crate::request::LoadRequest;
use crate::row_batch::{batch_bytes, to_file_batch};

/// Rows of a part that others are added to, and their bytes.
const MOST_ROWS: usize = 16_384;
const MOST_BYTES: u64 = 1 << 20;
/// Bytes that every part counts at least where sizes are compared.
const SMALLEST_PART: u64 = 256;
/// Appends that each begin their own load before several are begun at once, and how many then.
const PATIENCE: usize = 4;
const LOADS_AT_ONCE: usize = 32;

/// The rows of an append.
#[derive(Debug, Clone)]
pub struct SmallRows {
    /// The rows: columns of the table's names, in any of their types.
    pub rows: RecordBatch,
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
}

/// A part whose rows are still in memory.
#[derive(Debug)]
struct TailPart {
    load: LoadId,
    rows: RecordBatch,
    bytes: u64,
}

/// A part that is written, and not shown yet.
struct WrittenPart {
    load: LoadId,
    _dir: LoadDir,
    /// Its rows, as they are kept.
    rows: RecordBatch,
    chunk: Chunk,
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
        }
    }

    /// Whether rows are appended to a table so: to one that is kept whole.
    pub fn suits(table: &Table) -> bool {
        table.spec.kind == TableKind::Replicated
    }

    /// Appends rows to the table as it is now, or none of them.
    ///
    /// # Errors
    /// A row cannot be stored; [`IngestError::is_change`] of the error if the table is not the one that was given.
    pub async fn append(&mut self, table: &Table, given: &SmallRows) -> Result<(), IngestError> {
        if !Self::suits(table) {
            return Err(changed(table));
        }
        let rows = normalised(table, given)?;
        let _lock = wait_for_lock(&self.request, &self.request.table).await?;
        self.forget_other_parts(table);
        let replaced = self.replaced(table, &rows)?;
        match self.write_and_show(table, given, &rows, replaced).await {
            // Somebody has merged or replaced parts since the table was looked up, or removed the loads that were begun.
            Err(IngestError::Catalog(
                CatalogError::TableChanged { .. } | CatalogError::NotRunning { .. },
            )) => {
                self.tail.clear();
                // Those that are there still are cleaned up.
                self.begun.clear();
                self.uncleaned = 0;
                self.write_and_show(table, given, &rows, 0).await
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

    /// Gives loads back that are not needed now.
    ///
    /// # Errors
    /// The catalog cannot be written: the next load of the table does it.
    pub async fn pause(&mut self) -> Result<(), IngestError> {
        self.appends = 0;
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
    fn replaced(&self, table: &Table, rows: &RecordBatch) -> Result<usize, IngestError> {
        let sizes = self.tail.iter().map(|it| (it.rows.num_rows(), it.bytes));
        let sizes: Vec<(usize, u64)> = sizes.collect();
        let most = replaced_parts(&sizes, (rows.num_rows(), batch_bytes(rows)));
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
        table: &Table,
        given: &SmallRows,
        rows: &RecordBatch,
        replaced: usize,
    ) -> Result<(), IngestError> {
        let kept = self.tail.len().saturating_sub(replaced);
        let before = self.tail[kept..].iter().map(|it| &it.rows);
        let rows = concat_batches(&rows.schema(), before.chain([rows]))?;
        let load = self.next_load().await?;
        let begun = Instant::now();
        let outcome = async {
            let written = self.write(table, load, rows).await?;
            let written_in = begun.elapsed();
            self.show(table, given, &written, kept).await?;
            let (rows, shown_in) = (written.chunk.rows, begun.elapsed() - written_in);
            tracing::debug!(%load, rows, replaced, ?written_in, ?shown_in, "rows are appended");
            Ok(written)
        };
        match outcome.await {
            Ok(written) => {
                self.tail.truncate(kept);
                self.keep(written);
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
        table: &Table,
        load: LoadId,
        rows: RecordBatch,
    ) -> Result<WrittenPart, IngestError> {
        let LoadRequest {
            data_dir,
            database,
            table: name,
            ..
        } = &self.request;
        let dir = LoadDir::create_unsynced(data_dir, database, name, load)?;
        fault::reached("begun")?;
        let in_file = to_file_batch(&rows, &arrow_schema(&table.spec.columns))?;
        let written = write_rows_unsynced(&dir.chunk_path(REPLICATED_CHUNK), in_file).await?;
        fault::reached("chunks-written")?;
        let chunk = Chunk {
            chunk: REPLICATED_CHUNK,
            file: REPLICATED_CHUNK,
            rows: written.rows,
            strays: 0,
            bytes: written.bytes,
            checksum: written.checksum,
            overlap: None,
            bounds: None,
        };
        let cut = &table.database;
        let partitioning = PartPartitioning {
            stripes: cut.stripes,
            sub_stripes: cut.sub_stripes,
            overlap_deg: cut.overlap_deg,
        };
        let chunks = std::slice::from_ref(&chunk);
        let spec = table.spec.clone();
        let manifest = PartManifest::new(load, spec, partitioning, written.rows, chunks);
        let dir = blocking(move || {
            manifest.write_unsynced(dir.path())?;
            dir.sync()?;
            Ok(dir)
        });
        let dir = dir.await?;
        fault::reached("manifest-written")?;
        Ok(WrittenPart {
            load,
            _dir: dir,
            rows,
            chunk,
        })
    }

    /// Shows a part in the place of those of the tail from the place `kept` on.
    async fn show(
        &self,
        table: &Table,
        given: &SmallRows,
        written: &WrittenPart,
        kept: usize,
    ) -> Result<(), IngestError> {
        let replaces: Vec<LoadId> = self.tail[kept..].iter().map(|it| it.load).collect();
        fault::reached("before-publish")?;
        let append = Append {
            load: written.load,
            table,
            contents: PartContents {
                rows: written.chunk.rows,
                bytes: written.chunk.bytes,
                null_keys: 0,
                orphan_rows: 0,
                source: &given.source,
                chunks: std::slice::from_ref(&written.chunk),
                metadata: None,
            },
            unsettled: &[],
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
    fn keep(&mut self, written: WrittenPart) {
        let part = TailPart {
            load: written.load,
            bytes: batch_bytes(&written.rows),
            rows: written.rows,
        };
        if part.rows.num_rows() > MOST_ROWS / 2 || part.bytes > MOST_BYTES / 2 {
            self.tail.clear();
        } else {
            self.tail.push(part);
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

fn changed(table: &Table) -> IngestError {
    let table = table.spec.full_name();
    CatalogError::TableChanged { table }.into()
}

/// The rows by the value rules; an error if one of them cannot be stored.
fn normalised(table: &Table, given: &SmallRows) -> Result<RecordBatch, IngestError> {
    let names = vec![Path::new(&given.name).to_owned()];
    let context = ReadContext::new(
        table.spec.columns.clone(),
        RejectedRows::new(names, 0),
        Arc::new(Progress::default()),
    );
    let arrays = (context.columns.iter()).map(|it| given.rows.column_by_name(&it.name).cloned());
    let arrays: Vec<_> = arrays.collect();
    let first = RowId::new(0, 1).0;
    let numbers = (first..first + given.rows.num_rows() as u64).collect();
    let rows = normalise::to_rows(&arrays, numbers, &context)?;
    context.rejected_rows.check()?;
    Ok(rows.columns)
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
