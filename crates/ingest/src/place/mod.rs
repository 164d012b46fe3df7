//! Where rows go, by the kind of the table.
//!
//! While files are read, each thread hands its batches to a [`PlaceRows`] of its own, which pushes them with their
//! places into sorters. When all rows are in, [`Placement::finish`] settles what depends on all of them: duplicate
//! keys of a director, homes of a child's orphans.

pub(crate) mod again;
pub(crate) mod child;
pub(crate) mod director;
pub(crate) mod end_rows;
pub(crate) mod key_run;
pub(crate) mod matches;
mod pair_widths;
pub(crate) mod replicated;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use sky::{Angle, ChunkId, Chunker, LonLat, SubChunkId};

use self::key_run::IndexTarget;
use crate::error::IngestError;
use crate::format::ReadContext;
use crate::memory::MemoryBudget;
use crate::position::PositionColumns;
use crate::report::PlacementCounts;
use crate::row_batch::{Place, RowBatch, placed_schema};
use crate::sort::{ChunkSorter, Chunks, SortColumns, Sorter};

/// What placements work with.
#[derive(Debug, Clone)]
pub(crate) struct PlaceContext {
    pub read: Arc<ReadContext>,
    pub budget: Arc<MemoryBudget>,
    pub chunker: Arc<Chunker>,
    pub overlap: Angle,
    /// Where rows go that do not fit into the budget.
    pub spill_dir: PathBuf,
    /// Where the table's index goes: a director's keys, a child's orphans.
    pub index: IndexTarget,
}

impl PlaceContext {
    /// A sorter, chunk by chunk, of rows with these columns that takes `share` of the buffers.
    fn chunk_sorter(
        &self,
        name: &'static str,
        columns: &SchemaRef,
        sort: SortColumns,
        share: f64,
    ) -> ChunkSorter {
        let (budget, spill_dir) = (self.budget.clone(), self.spill_dir.clone());
        ChunkSorter::new(name, placed_schema(columns), sort, budget, share, spill_dir)
    }

    /// A sorter that brings all rows into one order.
    fn sorter(
        &self,
        name: &'static str,
        columns: &SchemaRef,
        sort: SortColumns,
        share: f64,
    ) -> Sorter {
        let (budget, spill_dir) = (self.budget.clone(), self.spill_dir.clone());
        Sorter::new(name, placed_schema(columns), sort, budget, share, spill_dir)
    }

    /// The place of a position.
    fn place_at(&self, ra: f64, dec: f64) -> Result<Place, IngestError> {
        Ok(self.chunker.locate(LonLat::from_degrees(ra, dec)?).into())
    }

    /// Where rows go that have no place of their own: the first sub-chunk of this chunk, or, if the director has no
    /// chunks at all, of the sky's first chunk.
    fn place_without_position(&self, smallest: Option<ChunkId>) -> Place {
        let chunk = smallest
            .or_else(|| self.chunker.all_chunks().next())
            .unwrap_or(ChunkId(0));
        let sub_chunk = self.chunker.sub_chunks_of(chunk).first().copied();
        Place::new(chunk, sub_chunk.unwrap_or(SubChunkId(0)))
    }
}

/// How the rows of one kind of table find their places.
pub(crate) trait Placement: Sync {
    /// One thread's end.
    fn worker(&self) -> Box<dyn PlaceRows + '_>;

    /// All rows are in: settles what is open. Every worker has finished. `siblings` are the indexes of keys that the load has
    /// not met in the director: its latest parts, and orphans that its children have placed.
    fn finish(self: Box<Self>, siblings: &[PathBuf]) -> Result<PlacedRows, IngestError>;
}

/// One thread's end of a [`Placement`].
pub(crate) trait PlaceRows {
    /// Places the rows of a batch.
    fn place(&mut self, batch: RowBatch) -> Result<(), IngestError>;

    /// Hands over what is still gathered.
    fn finish(self: Box<Self>) -> Result<(), IngestError>;
}

/// All rows of a table, in place.
pub(crate) struct PlacedRows {
    /// The rows of the chunk files.
    pub rows: Chunks,
    /// The rows of the overlap files, by the chunk near which they are.
    pub overlap: Option<Chunks>,
    /// Rows (by their place in the input) that turned out to be rejected after they were placed.
    pub dropped: HashSet<u64>,
    /// The columns whose positions are bounded in the catalog.
    pub positions: Option<PositionColumns>,
    /// Whether bounds go into the files' directories, too: where rows may lie outside of their sub-chunk.
    pub bounds_in_directory: bool,
    /// Rows whose positions lie elsewhere than in their chunk and sub-chunk, by chunk.
    pub strays: HashMap<ChunkId, u64>,
    /// Whether the files have a directory of sub-chunks.
    pub by_sub_chunk: bool,
    /// Bytes of the index, if there is one.
    pub index_bytes: u64,
    /// Rows as a query counts them.
    pub query_rows: u64,
    /// What the report tells of.
    pub counts: PlacementCounts,
}

/// The rows of `columns` with these numbers.
pub(crate) fn take_rows(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>, IngestError> {
    let indices = UInt32Array::from(rows.to_vec());
    let taken = columns
        .iter()
        .map(|column| arrow::compute::take(column, &indices, None));
    Ok(taken.collect::<Result<_, _>>()?)
}

/// The rows of a batch that are marked, with the marked of `places`; the whole batch if all are.
fn placed_rows(
    schema: &SchemaRef,
    columns: &[ArrayRef],
    places: &[u64],
    rows: &[u64],
    chosen: &[u32],
) -> Result<RecordBatch, IngestError> {
    if chosen.len() == rows.len() {
        return crate::row_batch::placed_batch(schema, columns, places.to_vec(), rows.to_vec());
    }
    let pick = |from: &[u64]| chosen.iter().map(|row| from[*row as usize]).collect();
    let taken = take_rows(columns, chosen)?;
    crate::row_batch::placed_batch(schema, &taken, pick(places), pick(rows))
}
