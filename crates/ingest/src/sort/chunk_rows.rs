//! The rows of one chunk in order: sorted at once, or merged from runs.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::gather::{RowAt, gather};
use super::key::{Ranks, SortColumns};
use super::merge::{MERGED_ROWS, Merge};
use super::run::rows_per_batch;
use crate::error::IngestError;
use crate::row_batch::{places_of, rows_of};

/// Sub-chunks are counted in a table if it takes no more entries than this for each row.
const ENTRIES_PER_ROW: u64 = 4;
/// A table with so many entries is small for any number of rows.
const SMALL_TABLE: u64 = 1 << 16;

/// An iterator over batches of a chunk's rows, in order.
pub(crate) struct ChunkRows(Rows);

enum Rows {
    Sorted(SortedChunk),
    Merged(Merge),
}

impl ChunkRows {
    pub(super) fn merged(merge: Merge) -> Self {
        Self(Rows::Merged(merge))
    }

    /// Sorts the rows of all batches; `bytes` is what they take.
    pub(super) fn sorted(
        schema: &SchemaRef,
        columns: &SortColumns,
        batches: Vec<RecordBatch>,
        bytes: u64,
    ) -> Result<Self, IngestError> {
        let order = order(columns, &batches)?;
        Ok(Self(Rows::Sorted(SortedChunk {
            schema: schema.clone(),
            batches,
            output_rows: rows_per_batch(bytes, order.len() as u64, MERGED_ROWS),
            order,
            next: 0,
        })))
    }
}

#[cfg(test)]
impl ChunkRows {
    pub(super) fn is_merged(&self) -> bool {
        matches!(self.0, Rows::Merged(_))
    }
}

impl Iterator for ChunkRows {
    type Item = Result<RecordBatch, IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Rows::Sorted(rows) => rows.next(),
            Rows::Merged(rows) => rows.next(),
        }
    }
}

struct SortedChunk {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    order: Vec<RankedRow>,
    output_rows: usize,
    next: usize,
}

impl SortedChunk {
    fn next(&mut self) -> Option<Result<RecordBatch, IngestError>> {
        let rest = self
            .order
            .get(self.next..)
            .filter(|rest| !rest.is_empty())?;
        let part = &rest[..rest.len().min(self.output_rows)];
        self.next += part.len();
        let rows: Vec<RowAt> = part.iter().map(|row| row.at).collect();
        Some(gather(&self.schema, &self.batches, &rows))
    }
}

/// A row of a sub-chunk.
#[derive(Debug, Clone, Copy, Default)]
struct RankedRow {
    key: u64,
    order: u64,
    at: RowAt,
}

/// The order of rows of one chunk: counted by sub-chunk, then sorted within each.
fn order(columns: &SortColumns, batches: &[RecordBatch]) -> Result<Vec<RankedRow>, IngestError> {
    let mut order = vec![RankedRow::default(); batches.iter().map(RecordBatch::num_rows).sum()];
    let places = || {
        batches
            .iter()
            .flat_map(|batch| places_of(batch).iter().copied())
    };
    let table = SubChunks::count(places);
    let mut next = table.starts.clone();
    for (number, batch) in batches.iter().enumerate() {
        let Ranks { keys, orders } = columns.ranks(batch)?;
        let rank = |ranks: &Option<Vec<u64>>, row: usize| ranks.as_ref().map_or(0, |r| r[row]);
        for (row, place) in places_of(batch).iter().enumerate() {
            let next = &mut next[table.of(*place)];
            order[*next] = RankedRow {
                key: rank(&keys, row),
                order: rank(&orders, row),
                at: (number as u32, row as u32),
            };
            *next += 1;
        }
    }
    let places: Vec<&[u64]> = batches.iter().map(places_of).collect();
    let rows: Vec<&[u64]> = batches.iter().map(rows_of).collect();
    let look_up =
        |columns: &[&[u64]], row: &RankedRow| columns[row.at.0 as usize][row.at.1 as usize];
    for bounds in table.starts.windows(2) {
        let together = &mut order[bounds[0]..bounds[1]];
        if table.shift > 0 {
            together.sort_unstable_by_key(|row| (look_up(&places, row), row.key));
        } else {
            together.sort_unstable_by_key(|row| row.key);
        }
        // Rows of one key are few: comparing keys alone first is quicker than comparing all.
        for same in together.chunk_by_mut(|a, b| a.key == b.key) {
            same.sort_unstable_by_key(|row| {
                let place = if table.shift > 0 {
                    look_up(&places, row)
                } else {
                    0
                };
                (place, row.order, look_up(&rows, row))
            });
        }
    }
    Ok(order)
}

/// Where the rows of each sub-chunk begin. Sub-chunks share an entry, and are told apart by sorting, where their
/// numbers lie so far apart that the table would be larger than the rows.
pub(super) struct SubChunks {
    first: u64,
    shift: u32,
    /// One more than there are entries: the last is the number of rows.
    pub starts: Vec<usize>,
}

impl SubChunks {
    /// Counts the rows by their places.
    pub(super) fn count<P: Iterator<Item = u64>>(places: impl Fn() -> P) -> Self {
        let (mut first, mut last, mut rows) = (u64::MAX, 0, 0);
        for place in places() {
            (first, last, rows) = (first.min(place), last.max(place), rows + 1);
        }
        let most = (rows * ENTRIES_PER_ROW).max(SMALL_TABLE);
        let mut shift = 0;
        while last.saturating_sub(first) >> shift >= most {
            shift += 1;
        }
        let entries = (last.saturating_sub(first) >> shift) as usize + 1;
        let mut table = Self {
            first,
            shift,
            starts: vec![0; entries + 1],
        };
        for place in places() {
            let entry = table.of(place);
            table.starts[entry + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut table.starts {
            sum += *start;
            *start = sum;
        }
        table
    }

    pub(super) fn of(&self, place: u64) -> usize {
        ((place - self.first) >> self.shift) as usize
    }
}
