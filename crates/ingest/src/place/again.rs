//! Rows that have their places already: those of parts that become one, read from files (a compaction) or still in memory (small appends).
//!
//! Every row keeps its chunk and sub-chunk, whatever the directors have become since. What is near another chunk becomes a part of that one's
//! overlap, and what is elsewhere than its position is counted, as when rows get their places.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use catalog::{Table, TableKind};
use sky::{Angle, ChunkId, Chunker};

use super::director::near_other_chunks;
use super::matches::home_fields;
use super::{PlacedRows, take_rows};
use crate::error::IngestError;
use crate::memory::MemoryBudget;
use crate::plan::Roles;
use crate::position::{PositionColumns, Positions};
use crate::repartition::roles_of;
use crate::report::PlacementCounts;
use crate::row_batch::{Place, batch_bytes, placed_batch, placed_schema, travel_schema};
use crate::sort::{ChunkInput, ChunkSorter, SortColumns};

/// How the buffers are shared between the rows and the overlap.
const SHARES: [f64; 2] = [0.9, 0.1];

/// Strays by the chunk that they are in.
pub(crate) type Strays = HashMap<ChunkId, u64>;

/// Takes the rows of several parts of a table, in the order of the list.
pub(crate) struct PlacedAgain {
    kind: TableKind,
    positions: Option<PositionColumns>,
    chunker: Chunker,
    radius: Angle,
    travel: SchemaRef,
    rows: ChunkSorter,
    overlap: ChunkSorter,
}

impl PlacedAgain {
    /// Of a table, within a budget, beyond which rows go into files of a directory.
    pub(crate) fn new(
        table: &Table,
        chunker: Chunker,
        budget: &Arc<MemoryBudget>,
        spill_dir: &Path,
    ) -> Result<Self, IngestError> {
        let (key, positions) = match table.spec.kind {
            TableKind::Replicated => (None, None),
            _ => match roles_of(table)? {
                Roles::Director { key, positions } => (Some(key), Some(positions)),
                Roles::Child(columns) => (Some(columns.key), columns.positions),
                Roles::Match { keys: [left, _] } => (Some(left), None),
                Roles::Replicated => (None, None),
            },
        };
        // Rows of one key stay in the order of the list, and in it in that of each part.
        let sort = SortColumns { key, order: None };
        let travel = travel_schema_of(table);
        let sorter = |name, share| {
            let (budget, spill_dir) = (Arc::clone(budget), spill_dir.to_owned());
            ChunkSorter::new(name, placed_schema(&travel), sort, budget, share, spill_dir)
        };
        Ok(Self {
            kind: table.spec.kind,
            positions,
            chunker,
            radius: Angle::from_degrees(table.database.overlap_deg),
            rows: sorter("rows", SHARES[0]),
            overlap: sorter("overlap", SHARES[1]),
            travel,
        })
    }

    /// The columns of the rows, as they travel.
    pub(crate) fn travel(&self) -> &SchemaRef {
        &self.travel
    }

    /// The end through which they are pushed.
    pub(crate) fn input(&self) -> PlacedAgainInput<'_> {
        PlacedAgainInput {
            of: self,
            rows: self.rows.input(),
            overlap: self.overlap.input(),
            strays: HashMap::new(),
            next_row: 0,
        }
    }

    /// All rows, which a query counts as so many.
    pub(crate) fn finish(self, strays: Strays, query_rows: u64) -> PlacedRows {
        let is_director = self.kind == TableKind::Director;
        PlacedRows {
            rows: self.rows.into_chunks(),
            overlap: is_director.then(|| self.overlap.into_chunks()),
            dropped: Default::default(),
            positions: self.positions,
            bounds_in_directory: self.kind == TableKind::Child || !strays.is_empty(),
            strays,
            by_sub_chunk: self.kind != TableKind::Replicated,
            index_bytes: 0,
            query_rows,
            counts: PlacementCounts::default(),
        }
    }
}

/// The columns of a table's files as they travel.
fn travel_schema_of(table: &Table) -> SchemaRef {
    let declared = travel_schema(&table.spec.columns);
    if table.spec.kind != TableKind::Match {
        return declared;
    }
    let fields = declared.fields().iter().cloned();
    let fields = fields.chain(home_fields().map(Arc::new));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The end of [`PlacedAgain`] through which rows are pushed.
pub(crate) struct PlacedAgainInput<'a> {
    of: &'a PlacedAgain,
    rows: ChunkInput<'a>,
    overlap: ChunkInput<'a>,
    strays: Strays,
    /// Rows of one key and sub-chunk keep the order in which they come: that of the list.
    next_row: u64,
}

impl PlacedAgainInput<'_> {
    /// Takes rows with their places. Gives their bytes.
    pub(crate) fn push(
        &mut self,
        arrays: &[ArrayRef],
        places: Vec<u64>,
    ) -> Result<u64, IngestError> {
        let end = self.next_row + places.len() as u64;
        let rows: Vec<u64> = (self.next_row..end).collect();
        self.next_row = end;
        let is_director = self.of.kind == TableKind::Director;
        if let Some(columns) = self.of.positions.filter(|_| is_director) {
            let positions = Positions::read(arrays, columns)?;
            self.count_strays(&positions, &places);
            self.push_overlap(arrays, &positions, &places, &rows)?;
        }
        let placed = placed_batch(self.of.rows.schema(), arrays, places, rows)?;
        let bytes = batch_bytes(&placed);
        self.rows.push(placed)?;
        Ok(bytes)
    }

    /// Counts rows that are elsewhere than their positions: their keys were there before.
    fn count_strays(&mut self, positions: &Positions, places: &[u64]) {
        let mut own = Vec::with_capacity(places.len());
        let chunker = &self.of.chunker;
        chunker.locate_degrees(&positions.ra, &positions.dec, &mut own);
        for (own, place) in own.iter().zip(places) {
            if Place::from(*own).0 != *place {
                *self.strays.entry(Place(*place).chunk()).or_default() += 1;
            }
        }
    }

    fn push_overlap(
        &mut self,
        arrays: &[ArrayRef],
        positions: &Positions,
        places: &[u64],
        rows: &[u64],
    ) -> Result<(), IngestError> {
        let own = |row: usize| Place(places[row]).chunk();
        let near = near_other_chunks(&self.of.chunker, self.of.radius, positions, own)?;
        if near.rows.is_empty() {
            return Ok(());
        }
        let taken = take_rows(arrays, &near.rows)?;
        let rows = near.rows.iter().map(|row| rows[*row as usize]).collect();
        let placed = placed_batch(self.of.overlap.schema(), &taken, near.places, rows)?;
        self.overlap.push(placed)
    }

    /// Hands over what is left. Gives the strays.
    pub(crate) fn finish(self) -> Result<Strays, IngestError> {
        self.rows.finish()?;
        self.overlap.finish()?;
        Ok(self.strays)
    }
}
