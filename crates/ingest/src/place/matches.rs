//! A match table's pairs live in the chunks of both ends, once if they are the same.
//!
//! A pair's left home is the place of its left key; if the left director does not have that key, the place of its
//! right key; if neither is known, the first sub-chunk of the left director's smallest chunk. The right home is the
//! same with right and left exchanged. Each row says in two hidden columns which homes it stands for, so in all
//! chunks together each pair has one row with a left home and one with a right home.
//!
//! A pair whose ends are both known must not be wider than the overlap, or a query could not find it near both. The
//! ends' positions are not at hand here, only their sub-chunks: a pair is rejected when not even these lie within the
//! overlap of each other. A narrower pair that is still too wide passes, and so does one with an end in a chunk that keeps rows whose
//! positions lie elsewhere: their places say nothing of how wide a pair is.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use sky::ChunkId;

use super::{PlaceContext, PlaceRows, PlacedRows, Placement, take_rows};
use crate::error::IngestError;
use crate::key_map::{KeyMap, NOWHERE, keys_of};
use crate::report::PlacementCounts;
use crate::row_batch::{Place, RowBatch, placed_batch};
use crate::row_errors::RowErrors;
use crate::sort::{ChunkInput, ChunkSorter, SortColumns};

/// The hidden columns: the sub-chunk of the pair's left and right home if it is in the row's chunk, else -1.
pub const HOME_COLUMNS: [&str; 2] = ["__left_sub_chunk", "__right_sub_chunk"];

/// The hidden columns as fields.
pub(crate) fn home_fields() -> [Field; 2] {
    HOME_COLUMNS.map(|name| Field::new(name, DataType::Int32, false))
}

/// Stands for "the home is in another chunk".
pub(crate) const ELSEWHERE: i32 = -1;

/// Remembered answers for pairs of sub-chunks; more than a batch ever needs.
const REMEMBERED_PAIRS: usize = 1 << 16;

/// One end of the pairs.
#[derive(Debug)]
pub(crate) struct MatchEnd {
    /// The column of the director's key.
    pub key: usize,
    /// The director's keys; shared if both ends have the same director.
    pub director: Arc<KeyMap>,
    /// The director's smallest chunk.
    pub smallest_chunk: Option<ChunkId>,
    /// Chunks of the director with rows whose positions lie elsewhere.
    pub stray_chunks: Arc<HashSet<ChunkId>>,
}

/// The placement of a match table.
pub(crate) struct MatchPlacement {
    context: PlaceContext,
    ends: [MatchEnd; 2],
    rows: ChunkSorter,
    pairs: AtomicU64,
    unknown: [AtomicU64; 2],
    default_location: AtomicU64,
}

impl MatchPlacement {
    pub(crate) fn new(context: PlaceContext, ends: [MatchEnd; 2]) -> Self {
        let mut fields: Vec<Arc<Field>> = context.read.schema.fields().iter().cloned().collect();
        fields.extend(home_fields().map(Arc::new));
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let by_left_key = SortColumns {
            key: Some(ends[0].key),
            order: None,
        };
        Self {
            rows: context.chunk_sorter("rows", &schema, by_left_key, 1.0),
            context,
            ends,
            pairs: AtomicU64::new(0),
            unknown: [AtomicU64::new(0), AtomicU64::new(0)],
            default_location: AtomicU64::new(0),
        }
    }

    /// The places of one end's keys, [`NOWHERE`] for those that the director does not have.
    fn lookup(&self, end: usize, columns: &RecordBatch) -> Result<Vec<u64>, IngestError> {
        let MatchEnd { key, director, .. } = &self.ends[end];
        let (keys, has_key) = keys_of(columns.column(*key))?;
        let mut places = Vec::new();
        director.lookup(&keys, &mut places)?;
        for (place, has_key) in places.iter_mut().zip(has_key) {
            if !has_key {
                *place = NOWHERE;
            }
        }
        Ok(places)
    }
}

impl Placement for MatchPlacement {
    fn worker(&self) -> Box<dyn PlaceRows + '_> {
        Box::new(MatchWorker {
            placement: self,
            rows: self.rows.input(),
            near: HashMap::new(),
        })
    }

    fn finish(self: Box<Self>, _siblings: &[PathBuf]) -> Result<PlacedRows, IngestError> {
        let [left, right] = self.unknown;
        Ok(PlacedRows {
            rows: self.rows.into_chunks(),
            overlap: None,
            dropped: Default::default(),
            positions: None,
            bounds_in_directory: false,
            strays: HashMap::new(),
            by_sub_chunk: true,
            index_bytes: 0,
            query_rows: self.pairs.into_inner(),
            counts: PlacementCounts {
                unknown_left_keys: left.into_inner(),
                unknown_right_keys: right.into_inner(),
                default_location_pairs: self.default_location.into_inner(),
                ..PlacementCounts::default()
            },
        })
    }
}

struct MatchWorker<'a> {
    placement: &'a MatchPlacement,
    rows: ChunkInput<'a>,
    /// Whether two sub-chunks are within the overlap of each other, as far as asked.
    near: HashMap<(u64, u64), bool>,
}

/// The rows that the pairs of a batch become.
#[derive(Default)]
struct HomeRows {
    pair: Vec<u32>,
    place: Vec<u64>,
    homes: [Vec<i32>; 2],
}

impl HomeRows {
    fn push(&mut self, pair: usize, place: Place, homes: [i32; 2]) {
        self.pair.push(pair as u32);
        self.place.push(place.0);
        self.homes[0].push(homes[0]);
        self.homes[1].push(homes[1]);
    }

    /// The rows of the pair with these homes.
    fn push_pair(&mut self, pair: usize, left: Place, right: Place) {
        let [l, r] = [left.sub_chunk().0, right.sub_chunk().0];
        if left.chunk() == right.chunk() {
            self.push(pair, left, [l, r]);
        } else {
            self.push(pair, left, [l, ELSEWHERE]);
            self.push(pair, right, [ELSEWHERE, r]);
        }
    }
}

impl PlaceRows for MatchWorker<'_> {
    fn place(&mut self, batch: RowBatch) -> Result<(), IngestError> {
        let placement = self.placement;
        let lookup = |end| placement.lookup(end, &batch.columns);
        let ends = [lookup(0)?, lookup(1)?];
        let mut row_errors = RowErrors::new(&placement.context.read, &batch.rows);
        let mut homes = HomeRows::default();
        let fallback = |end: usize| {
            placement
                .context
                .place_of_the_homeless(placement.ends[end].smallest_chunk)
        };
        let (mut pairs, mut unknown, mut default_location) = (0, [0, 0], 0);
        for (row, (left, right)) in ends[0].iter().zip(&ends[1]).enumerate() {
            let (left, right) = (*left, *right);
            if left != NOWHERE && right != NOWHERE && !self.within_overlap(left, right) {
                reject_wide(&mut row_errors, row, Place(left), Place(right));
                continue;
            }
            pairs += 1;
            for (count, place) in unknown.iter_mut().zip([left, right]) {
                *count += u64::from(place == NOWHERE);
            }
            let (left, right) = match (left, right) {
                (NOWHERE, NOWHERE) => {
                    default_location += 1;
                    (fallback(0), fallback(1))
                }
                (NOWHERE, known) | (known, NOWHERE) => (Place(known), Place(known)),
                (left, right) => (Place(left), Place(right)),
            };
            homes.push_pair(row, left, right);
        }
        placement.pairs.fetch_add(pairs, Relaxed);
        placement
            .default_location
            .fetch_add(default_location, Relaxed);
        for (sum, count) in placement.unknown.iter().zip(unknown) {
            sum.fetch_add(count, Relaxed);
        }
        self.push(&batch, homes)
    }

    fn finish(self: Box<Self>) -> Result<(), IngestError> {
        self.rows.finish()
    }
}

impl MatchWorker<'_> {
    fn push(&mut self, batch: &RowBatch, homes: HomeRows) -> Result<(), IngestError> {
        let mut arrays = take_rows(batch.columns.columns(), &homes.pair)?;
        let rows = homes
            .pair
            .iter()
            .map(|pair| batch.rows[*pair as usize])
            .collect();
        arrays.extend(
            homes
                .homes
                .map(|home| Arc::new(Int32Array::from(home)) as ArrayRef),
        );
        self.rows.push(placed_batch(
            self.placement.rows.schema(),
            &arrays,
            homes.place,
            rows,
        )?)
    }

    /// Whether the position of a row at this place of one end's director may lie elsewhere.
    fn may_stray(&self, end: usize, place: u64) -> bool {
        let strays = &self.placement.ends[end].stray_chunks;
        strays.contains(&Place(place).chunk())
    }

    /// Whether the sub-chunks of two places may hold positions within the overlap of each other.
    fn within_overlap(&mut self, left: u64, right: u64) -> bool {
        if left == right || self.may_stray(0, left) || self.may_stray(1, right) {
            return true;
        }
        if self.near.len() > REMEMBERED_PAIRS {
            self.near.clear();
        }
        let PlaceContext {
            chunker, overlap, ..
        } = &self.placement.context;
        *self.near.entry((left, right)).or_insert_with(|| {
            let area = |place| chunker.sub_chunk_box(Place(place).location());
            match (area(left), area(right)) {
                (Some(left), Some(right)) => left.dilated(*overlap).intersects(&right),
                _ => true,
            }
        })
    }
}

fn reject_wide(row_errors: &mut RowErrors<'_>, row: usize, left: Place, right: Place) {
    row_errors.reject(row, "pair wider than the overlap".to_owned(), || {
        format!(
            "the pair is wider than the overlap: its ends lie in chunks {} and {}, too far from each other",
            left.chunk(),
            right.chunk()
        )
    });
}
