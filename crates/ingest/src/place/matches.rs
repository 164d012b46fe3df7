//! A match table's pairs live in the chunks of both ends, once if they are the same.
//!
//! A pair's left home is the place of its left key; if the left table does not have that key, the place of its
//! right key; if neither is known, the first sub-chunk of the left table's smallest chunk. The right home is the
//! same with right and left exchanged. Each row says in two hidden columns which homes it stands for, so in all
//! chunks together each pair has one row with a left home and one with a right home.
//!
//! A pair whose ends are both known must not be wider than the overlap, or a query could not find it near both. What
//! decides is the separation of the two rows ([`PairWidths`]), once all pairs are read. Pairs of which not even the sub-chunks
//! lie within the overlap of each other are rejected at once, where these say where the rows are: those of a director do, but for
//! chunks that keep rows whose positions lie elsewhere. Where the rows of an end have no positions, the sub-chunks of their
//! directors' rows are all that is known.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use sky::ChunkId;

use super::end_rows::EndRows;
use super::pair_widths::{EndPairs, PairWidths, SHARE};
use super::{PlaceContext, PlaceRows, PlacedRows, Placement, take_rows};
use crate::error::IngestError;
use crate::key_map::{KeyMap, NOWHERE, keys_of};
use crate::report::PlacementCounts;
use crate::row_batch::{Place, RowBatch, placed_batch};
use crate::row_errors::RowErrors;
use crate::sort::{ChunkInput, ChunkSorter, SortColumns, SorterInput};

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

/// What pairs that are too wide are counted as.
pub(super) const TOO_WIDE: &str = "pair wider than the overlap";

/// One end of the pairs: the rows of a director, or of a child by its own key.
#[derive(Debug)]
pub(crate) struct MatchEnd {
    /// The column of the rows' key.
    pub key: usize,
    /// The keys of the rows; shared if both ends are of the same table.
    pub keys: Arc<KeyMap>,
    /// The smallest chunk of the rows.
    pub smallest_chunk: Option<ChunkId>,
    /// Where the rows of a place lie.
    pub extent: EndExtent,
    /// The rows, if their files can be read for their positions.
    pub rows: Option<Arc<EndRows>>,
}

/// What the place of a row says of its position.
#[derive(Debug, Clone)]
pub(crate) enum EndExtent {
    /// It is in the sub-chunk, but for rows in these chunks, which may lie elsewhere.
    SubChunk(Arc<HashSet<ChunkId>>),
    /// Nothing: a child's row is where its director's row is.
    Unknown,
}

/// The placement of a match table.
pub(crate) struct MatchPlacement {
    context: PlaceContext,
    ends: [MatchEnd; 2],
    rows: ChunkSorter,
    /// `None` where the rows of an end have no positions.
    widths: Option<PairWidths>,
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
        let rows_with_positions = |end: &MatchEnd| {
            let rows = end.rows.as_ref()?;
            rows.has_positions().then(|| Arc::clone(rows))
        };
        let widths = match ends.each_ref().map(rows_with_positions) {
            [Some(left), Some(right)] => Some(PairWidths::new(&context, [left, right])),
            _ => None,
        };
        let share = if widths.is_some() { 1.0 - SHARE } else { 1.0 };
        Self {
            rows: context.chunk_sorter("rows", &schema, by_left_key, share),
            widths,
            context,
            ends,
            pairs: AtomicU64::new(0),
            unknown: [AtomicU64::new(0), AtomicU64::new(0)],
            default_location: AtomicU64::new(0),
        }
    }

    /// One end's keys and their places, [`NOWHERE`] for those that there are not.
    fn lookup(
        &self,
        end: usize,
        columns: &RecordBatch,
    ) -> Result<(Vec<i64>, Vec<u64>), IngestError> {
        let end = &self.ends[end];
        let (keys, has_key) = keys_of(columns.column(end.key))?;
        let mut places = Vec::new();
        end.keys.lookup(&keys, &mut places)?;
        for (place, has_key) in places.iter_mut().zip(has_key) {
            if !has_key {
                *place = NOWHERE;
            }
        }
        Ok((keys, places))
    }
}

impl Placement for MatchPlacement {
    fn worker(&self) -> Box<dyn PlaceRows + '_> {
        Box::new(MatchWorker {
            placement: self,
            rows: self.rows.input(),
            widths: self.widths.as_ref().map(PairWidths::input),
            near: HashMap::new(),
        })
    }

    fn finish(self: Box<Self>, _siblings: &[PathBuf]) -> Result<PlacedRows, IngestError> {
        let [left, right] = self.unknown;
        let dropped = match &self.widths {
            Some(widths) => widths.reject_wide(&self.context)?,
            None => HashSet::new(),
        };
        Ok(PlacedRows {
            query_rows: self.pairs.into_inner() - dropped.len() as u64,
            rows: self.rows.into_chunks(),
            overlap: None,
            dropped,
            positions: None,
            bounds_in_directory: false,
            strays: HashMap::new(),
            by_sub_chunk: true,
            index_bytes: 0,
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
    widths: Option<SorterInput<'a>>,
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
        let [(left_keys, left_places), (right_keys, right_places)] = [lookup(0)?, lookup(1)?];
        let mut known = EndPairs::default();
        let mut row_errors = RowErrors::new(&placement.context.read, &batch.rows);
        let mut homes = HomeRows::default();
        let fallback = |end: usize| {
            placement
                .context
                .place_without_position(placement.ends[end].smallest_chunk)
        };
        let (mut pairs, mut unknown, mut default_location) = (0, [0, 0], 0);
        for (row, (left, right)) in left_places.iter().zip(&right_places).enumerate() {
            let (left, right) = (*left, *right);
            if left != NOWHERE && right != NOWHERE {
                if !self.within_overlap(left, right) {
                    reject_wide(&mut row_errors, row, Place(left), Place(right));
                    continue;
                }
                known.push(
                    batch.rows[row],
                    [left, right],
                    [left_keys[row], right_keys[row]],
                );
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
        if let (Some(widths), Some(input)) = (&placement.widths, &mut self.widths) {
            widths.push(input, known)?;
        }
        self.push(&batch, homes)
    }

    fn finish(self: Box<Self>) -> Result<(), IngestError> {
        if let Some(widths) = self.widths {
            widths.finish()?;
        }
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

    /// Whether the position of an end's row at this place may lie elsewhere.
    fn may_stray(&self, end: usize, place: u64) -> bool {
        match &self.placement.ends[end].extent {
            EndExtent::SubChunk(strays) => strays.contains(&Place(place).chunk()),
            // Without positions the place is all that is known.
            EndExtent::Unknown => self.placement.widths.is_some(),
        }
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
    row_errors.reject(row, TOO_WIDE.to_owned(), || {
        format!(
            "the pair is wider than the overlap: its ends lie in chunks {} and {}, too far from each other",
            left.chunk(),
            right.chunk()
        )
    });
}
