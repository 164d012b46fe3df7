//! How wide pairs are: the separation of the rows that their keys stand for.
//!
//! The rows' positions are in the chunk files of their tables, and pairs come in any order. So they are sorted by the place of their left
//! end, whose positions are read chunk by chunk, and then by that of their right end:
//!
//! ```text
//!   pairs ──► by left place ──► left positions ──► by right place ──► right positions ──► separations
//! ```
//!
//! At any time the positions of one chunk are in memory, and of the pairs what the budget allows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, UInt64Type};
use sky::{ChunkId, LonLat, separation};

use super::PlaceContext;
use super::end_rows::EndRows;
use crate::error::IngestError;
use crate::rejected_rows::RowId;
use crate::row_batch::{Place, placed_batch, places_of, rows_of};
use crate::sort::{SortColumns, Sorter, SorterInput};

/// The share of the run buffers for pairs by their left end, while the pairs themselves are sorted.
pub(super) const SHARE: f64 = 0.15;

/// The pairs of a load of which both ends are known and have positions.
pub(super) struct PairWidths {
    ends: [Arc<EndRows>; 2],
    by_left: Sorter,
}

/// Pairs of a batch: their rows in the input, the places of their ends, and their keys.
#[derive(Default)]
pub(super) struct EndPairs {
    rows: Vec<u64>,
    places: [Vec<u64>; 2],
    keys: [Vec<i64>; 2],
}

impl EndPairs {
    pub(super) fn push(&mut self, row: u64, places: [u64; 2], keys: [i64; 2]) {
        self.rows.push(row);
        for end in [0, 1] {
            self.places[end].push(places[end]);
            self.keys[end].push(keys[end]);
        }
    }
}

impl PairWidths {
    pub(super) fn new(context: &PlaceContext, ends: [Arc<EndRows>; 2]) -> Self {
        let columns = Arc::new(Schema::new(vec![
            Field::new("left", DataType::Int64, false),
            Field::new("right", DataType::Int64, false),
            Field::new("right_place", DataType::UInt64, false),
        ]));
        Self {
            by_left: context.sorter("pairs-by-left", &columns, SortColumns::default(), SHARE),
            ends,
        }
    }

    /// One thread's end.
    pub(super) fn input(&self) -> SorterInput<'_> {
        self.by_left.input()
    }

    /// Takes pairs of a batch.
    pub(super) fn push(
        &self,
        input: &mut SorterInput<'_>,
        pairs: EndPairs,
    ) -> Result<(), IngestError> {
        let [left, right] = pairs.keys;
        let [left_places, right_places] = pairs.places;
        let columns: [ArrayRef; 3] = [
            Arc::new(Int64Array::from(left)),
            Arc::new(Int64Array::from(right)),
            Arc::new(UInt64Array::from(right_places)),
        ];
        input.push(placed_batch(
            self.by_left.schema(),
            &columns,
            left_places,
            pairs.rows,
        )?)
    }

    /// Rejects the pairs that are wider than the overlap, and gives their rows in the input. Every input must have been finished.
    pub(super) fn reject_wide(&self, context: &PlaceContext) -> Result<HashSet<u64>, IngestError> {
        let by_right = self.with_left_positions(context)?;
        let mut positions = ChunkPositions::new(&self.ends[1]);
        let mut dropped = HashSet::new();
        let mut batches = by_right.take_sorted()?.peekable();
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let keys = batch.column(0).as_primitive::<Int64Type>().values();
            let [ra, dec] =
                [1, 2].map(|at| batch.column(at).as_primitive::<Float64Type>().values());
            for (pair, (place, row)) in places_of(&batch).iter().zip(rows_of(&batch)).enumerate() {
                let Some(right) = positions.get(*place, keys[pair])? else {
                    continue;
                };
                let left = LonLat::from_degrees(ra[pair], dec[pair])?;
                let width = separation(left, right).degrees();
                if width > context.overlap.degrees() {
                    reject(context, RowId(*row), width);
                    dropped.insert(*row);
                }
            }
            let are_more = batches.peek().is_some();
            context.read.rejected_rows.check_so_far(are_more)?;
        }
        Ok(dropped)
    }

    /// The pairs by their right end, each with the position of its left end; without those whose left row has none.
    fn with_left_positions(&self, context: &PlaceContext) -> Result<Sorter, IngestError> {
        let columns = Arc::new(Schema::new(vec![
            Field::new("right", DataType::Int64, false),
            Field::new("left_ra", DataType::Float64, false),
            Field::new("left_dec", DataType::Float64, false),
        ]));
        let by_right = context.sorter("pairs-by-right", &columns, SortColumns::default(), SHARE);
        let mut input = by_right.input();
        let mut positions = ChunkPositions::new(&self.ends[0]);
        for batch in self.by_left.take_sorted()? {
            let batch = batch?;
            let [left, right] =
                [0, 1].map(|at| batch.column(at).as_primitive::<Int64Type>().values());
            let right_places = batch.column(2).as_primitive::<UInt64Type>().values();
            let (mut keys, mut ra, mut dec) = (Vec::new(), Vec::new(), Vec::new());
            let (mut places, mut rows) = (Vec::new(), Vec::new());
            for (pair, (place, row)) in places_of(&batch).iter().zip(rows_of(&batch)).enumerate() {
                if let Some(position) = positions.get(*place, left[pair])? {
                    keys.push(right[pair]);
                    ra.push(position.ra().degrees());
                    dec.push(position.dec().degrees());
                    places.push(right_places[pair]);
                    rows.push(*row);
                }
            }
            let columns: [ArrayRef; 3] = [
                Arc::new(Int64Array::from(keys)),
                Arc::new(Float64Array::from(ra)),
                Arc::new(Float64Array::from(dec)),
            ];
            input.push(placed_batch(by_right.schema(), &columns, places, rows)?)?;
        }
        input.finish()?;
        Ok(by_right)
    }
}

/// The positions of one chunk at a time, asked in the order of chunks.
struct ChunkPositions<'a> {
    rows: &'a EndRows,
    chunk: Option<ChunkId>,
    by_key: HashMap<i64, LonLat>,
}

impl<'a> ChunkPositions<'a> {
    fn new(rows: &'a EndRows) -> Self {
        Self {
            rows,
            chunk: None,
            by_key: HashMap::new(),
        }
    }

    fn get(&mut self, place: u64, key: i64) -> Result<Option<LonLat>, IngestError> {
        let chunk = Place(place).chunk();
        if self.chunk != Some(chunk) {
            self.by_key = self.rows.positions(chunk)?;
            self.chunk = Some(chunk);
        }
        Ok(self.by_key.get(&key).copied())
    }
}

fn reject(context: &PlaceContext, row: RowId, width: f64) {
    let overlap = context.overlap.degrees();
    let rejected_rows = &context.read.rejected_rows;
    rejected_rows.reject(row, super::matches::TOO_WIDE.to_owned(), || {
        format!(
            "the pair is wider than the overlap: its ends are {width:.6}° apart, and the overlap of the database is {overlap}°"
        )
    });
}
