//! A child's rows live where their director's row lives; orphans of one key live together.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::{ArrayRef, RecordBatch};
use sky::{ChunkId, Location};
use store::DirectorIndex;

use super::{PlaceContext, PlaceRows, PlacedRows, Placement, placed_rows};
use crate::error::IngestError;
use crate::key_map::{KeyMap, NOWHERE, keys_of, reject_large_keys};
use crate::position::{PositionColumns, Positions, validate_positions};
use crate::report::PlacementCounts;
use crate::row_batch::{Place, RowBatch, placed_batch, rows_of};
use crate::row_errors::RowErrors;
use crate::sort::{ChunkInput, ChunkSorter, SortColumns, Sorter, SorterInput};

const SHARES: [f64; 2] = [0.9, 0.1];

/// Which of a child's columns matter for its places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildColumns {
    /// The director's key.
    pub key: usize,
    /// The child's own key: the orphan with the smallest decides where its fellows go.
    pub own_key: Option<usize>,
    /// What the rows of one object are ordered by.
    pub order: Option<usize>,
    /// The rows' own positions.
    pub positions: Option<PositionColumns>,
}

/// What is known of the director.
#[derive(Debug)]
pub(crate) struct Parent {
    /// The director's keys.
    pub director: KeyMap,
    /// The director's smallest chunk, for rows without key and position.
    pub smallest_chunk: Option<ChunkId>,
}

/// The placement of a child.
pub(crate) struct ChildPlacement {
    context: PlaceContext,
    columns: ChildColumns,
    parent: Arc<Parent>,
    rows: ChunkSorter,
    /// Rows whose key the director does not have, by key and own key.
    orphans: Sorter,
    null_keys: AtomicU64,
    displaced: AtomicU64,
}

impl ChildPlacement {
    pub(crate) fn new(context: PlaceContext, columns: ChildColumns, parent: Arc<Parent>) -> Self {
        let schema = context.read.schema.clone();
        let by = |order| SortColumns {
            key: Some(columns.key),
            order,
        };
        Self {
            rows: context.chunk_sorter("rows", &schema, by(columns.order), SHARES[0]),
            orphans: context.sorter("orphans", &schema, by(columns.own_key), SHARES[1]),
            context,
            columns,
            parent,
            null_keys: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
        }
    }

    fn validate(&self, batch: RowBatch) -> Result<RowBatch, IngestError> {
        let RowBatch { columns, rows } = batch;
        let mut arrays: Vec<ArrayRef> = columns.columns().to_vec();
        let mut row_errors = RowErrors::new(&self.context.read, &rows);
        if let Some(positions) = self.columns.positions {
            validate_positions(&mut arrays, positions, false, &mut row_errors)?;
        }
        reject_large_keys(&arrays[self.columns.key], &mut row_errors)?;
        let keep = row_errors.into_keep();
        let columns = RecordBatch::try_new(columns.schema(), arrays)?;
        RowBatch { columns, rows }.filter(&keep)
    }

    fn positions(&self, arrays: &[ArrayRef]) -> Result<Option<Positions>, IngestError> {
        self.columns
            .positions
            .map(|columns| Positions::read(arrays, columns))
            .transpose()
    }

    /// Where a row goes by its own position, or by having none.
    fn own_place(&self, positions: Option<&Positions>, row: usize) -> Result<Place, IngestError> {
        match positions.filter(|p| p.has(row)) {
            Some(p) => self.context.place_at(p.ra[row], p.dec[row]),
            None => Ok(self
                .context
                .place_without_position(self.parent.smallest_chunk)),
        }
    }

    /// Gives every orphan key its place, writes the keys into the child's own index, and pushes the rows.
    fn place_orphans(&self, siblings: &[PathBuf]) -> Result<OrphanCounts, IngestError> {
        let siblings: Vec<DirectorIndex> = siblings
            .iter()
            .map(|dir| DirectorIndex::open(dir))
            .collect::<Result<_, _>>()?;
        let mut index = self.context.index.begin()?;
        let mut input = self.rows.input();
        let mut last: Option<(i64, Place)> = None;
        let mut counts = OrphanCounts::default();
        for batch in self.orphans.take_sorted()? {
            let batch = batch?;
            let arrays = &batch.columns()[..batch.num_columns() - 2];
            let (keys, _) = keys_of(&arrays[self.columns.key])?;
            let positions = self.positions(arrays)?;
            let mut places = Vec::with_capacity(keys.len());
            for (row, key) in keys.iter().enumerate() {
                let place = match last {
                    Some((previous, place)) if previous == *key => place,
                    _ => {
                        let place = match placed_by_sibling(&siblings, *key)? {
                            Some(place) => place,
                            None => self.own_place(positions.as_ref(), row)?,
                        };
                        index.push(*key, place.location(), true)?;
                        last = Some((*key, place));
                        counts.keys += 1;
                        place
                    }
                };
                places.push(place.0);
            }
            counts.rows += keys.len() as u64;
            let rows = rows_of(&batch).to_vec();
            input.push(placed_batch(self.rows.schema(), arrays, places, rows)?)?;
        }
        input.finish()?;
        counts.index_bytes = index.finish()?;
        Ok(counts)
    }
}

#[derive(Debug, Default)]
struct OrphanCounts {
    keys: u64,
    rows: u64,
    index_bytes: u64,
}

fn placed_by_sibling(siblings: &[DirectorIndex], key: i64) -> Result<Option<Place>, IngestError> {
    for sibling in siblings {
        if let Some(entry) = sibling.get(key)? {
            return Ok(Some(entry.location.into()));
        }
    }
    Ok(None)
}

impl Placement for ChildPlacement {
    fn worker(&self) -> Box<dyn PlaceRows + '_> {
        Box::new(ChildWorker {
            placement: self,
            rows: self.rows.input(),
            orphans: self.orphans.input(),
            places: Vec::new(),
            locations: Vec::new(),
        })
    }

    fn finish(self: Box<Self>, siblings: &[PathBuf]) -> Result<PlacedRows, IngestError> {
        let orphans = self.place_orphans(siblings)?;
        let rows = self.rows.into_chunks();
        Ok(PlacedRows {
            query_rows: rows.rows(),
            rows,
            overlap: None,
            dropped: Default::default(),
            positions: self.columns.positions,
            bounds_in_directory: true,
            strays: HashMap::new(),
            by_sub_chunk: true,
            index_bytes: orphans.index_bytes,
            counts: PlacementCounts {
                null_keys: self.null_keys.into_inner(),
                orphan_rows: orphans.rows,
                orphan_keys: orphans.keys,
                displaced_rows: self.displaced.into_inner(),
                ..PlacementCounts::default()
            },
        })
    }
}

struct ChildWorker<'a> {
    placement: &'a ChildPlacement,
    rows: ChunkInput<'a>,
    orphans: SorterInput<'a>,
    places: Vec<u64>,
    locations: Vec<Location>,
}

impl PlaceRows for ChildWorker<'_> {
    fn place(&mut self, batch: RowBatch) -> Result<(), IngestError> {
        let placement = self.placement;
        let batch = placement.validate(batch)?;
        let arrays = batch.columns.columns();
        let (keys, has_key) = keys_of(&arrays[placement.columns.key])?;
        let positions = placement.positions(arrays)?;
        placement.parent.director.lookup(&keys, &mut self.places)?;
        let (mut at_home, mut orphans) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut null_keys = 0;
        for (row, has_key) in has_key.iter().enumerate() {
            if !has_key {
                self.places[row] = placement.own_place(positions.as_ref(), row)?.0;
                null_keys += 1;
            } else if self.places[row] == NOWHERE {
                orphans.push(row as u32);
                continue;
            }
            at_home.push(row as u32);
        }
        placement.null_keys.fetch_add(null_keys, Relaxed);
        self.count_displaced(positions.as_ref(), &has_key);
        if !orphans.is_empty() {
            let nowhere = vec![0; keys.len()];
            let schema = placement.orphans.schema();
            self.orphans.push(placed_rows(
                schema,
                arrays,
                &nowhere,
                &batch.rows,
                &orphans,
            )?)?;
        }
        let schema = placement.rows.schema();
        self.rows.push(placed_rows(
            schema,
            arrays,
            &self.places,
            &batch.rows,
            &at_home,
        )?)
    }

    fn finish(self: Box<Self>) -> Result<(), IngestError> {
        self.rows.finish()?;
        self.orphans.finish()
    }
}

impl ChildWorker<'_> {
    /// Counts rows whose own position lies in another chunk than their director's row.
    fn count_displaced(&mut self, positions: Option<&Positions>, has_key: &[bool]) {
        let Some(positions) = positions else {
            return;
        };
        // Rows without position get some location, and are passed over.
        let chunker = &self.placement.context.chunker;
        chunker.locate_degrees(&positions.ra, &positions.dec, &mut self.locations);
        let elsewhere = (0..has_key.len()).filter(|row| {
            let place = self.places[*row];
            has_key[*row]
                && place != NOWHERE
                && positions.has(*row)
                && Place(place).chunk() != self.locations[*row].chunk
        });
        self.placement
            .displaced
            .fetch_add(elsewhere.count() as u64, Relaxed);
    }
}
