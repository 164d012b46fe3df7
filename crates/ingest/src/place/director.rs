//! A director's rows live in the chunk of their position; those near another chunk go into that one's overlap, too.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray, Int64Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt64Type};
use sky::{Angle, ChunkId, Chunker, Location, LonLat, SubChunkId};

use super::{PlaceContext, PlaceRows, PlacedRows, Placement, take_rows};
use crate::error::IngestError;
use crate::key_map::{KeyMap, NOWHERE, keys_of};
use crate::position::{PositionColumns, Positions, validate_positions};
use crate::rejected_rows::RowId;
use crate::report::PlacementCounts;
use crate::row_batch::{Place, RowBatch, placed_batch, rows_of};
use crate::row_errors::{RowErrors, class};
use crate::sort::{ChunkInput, ChunkSorter, SortColumns, Sorter, SorterInput};
use crate::text_keys::KeyNames;

/// How a thread's run buffer is shared between the rows, the overlap and the keys.
const SHARES: [f64; 3] = [0.75, 0.1, 0.15];

/// Batches of the index that wait to be written.
const WAITING_ENTRIES: usize = 4;

/// Keys with the numbers of their places.
type Entries = Vec<(i64, u64)>;

/// What is there already where a part is appended to a director.
#[derive(Debug)]
pub(crate) struct EarlierKeys {
    /// The keys of the director's parts.
    pub own: KeyMap,
    /// The keys of earlier shares of the same load.
    pub of_load: KeyMap,
    /// Keys of rows that are about to be stored before these.
    pub before: HashSet<i64>,
    /// Keys without a director row in the parts of its children: a row that comes for one of them goes to where these are.
    pub orphans: KeyMap,
}

/// The placement of a director.
pub(crate) struct DirectorPlacement {
    context: PlaceContext,
    key: usize,
    positions: PositionColumns,
    earlier: Option<EarlierKeys>,
    /// Rows whose keys were elsewhere before, by the chunk that they go to.
    strays: Mutex<HashMap<ChunkId, u64>>,
    rows: ChunkSorter,
    overlap: ChunkSorter,
    /// Every key with its place: in the order of keys it is the index, and duplicates are neighbours.
    keys: Sorter,
}

impl DirectorPlacement {
    pub(crate) fn new(
        context: PlaceContext,
        key: usize,
        positions: PositionColumns,
        earlier: Option<EarlierKeys>,
    ) -> Self {
        let columns = context.read.schema.clone();
        let by_key = SortColumns {
            key: Some(key),
            order: None,
        };
        let key_columns = Arc::new(Schema::new(vec![
            Field::new("key", DataType::Int64, false),
            Field::new("place", DataType::UInt64, false),
        ]));
        let first = SortColumns {
            key: Some(0),
            order: None,
        };
        Self {
            rows: context.chunk_sorter("rows", &columns, by_key, SHARES[0]),
            overlap: context.chunk_sorter("overlap", &columns, by_key, SHARES[1]),
            keys: context.sorter("keys", &key_columns, first, SHARES[2]),
            context,
            key,
            positions,
            earlier,
            strays: Mutex::default(),
        }
    }

    /// Rejects rows without a usable position or key; wraps right ascensions. Gives the batch as it will be stored.
    fn validate(&self, batch: RowBatch) -> Result<RowBatch, IngestError> {
        let RowBatch { columns, rows } = batch;
        let mut arrays: Vec<ArrayRef> = columns.columns().to_vec();
        let mut row_errors = RowErrors::new(&self.context.read, &rows);
        validate_positions(&mut arrays, self.positions, true, &mut row_errors)?;
        let (keys, has_key) = keys_of(&arrays[self.key])?;
        let names = KeyNames::of(&self.context.read.columns, self.key);
        for row in (0..rows.len()).filter(|row| !has_key[*row]) {
            row_errors.reject(row, class::NO_KEY.to_owned(), || names.missing());
        }
        if let Some(earlier) = &self.earlier {
            let mut places = Vec::new();
            earlier.own.lookup(&keys, &mut places)?;
            let is_known =
                |row: &usize| places[*row] != NOWHERE || earlier.before.contains(&keys[*row]);
            for row in (0..rows.len()).filter(|row| has_key[*row] && is_known(row)) {
                let known = || names.known(keys[row], &arrays, row);
                row_errors.reject(row, class::KNOWN_KEY.to_owned(), known);
            }
            earlier.of_load.lookup(&keys, &mut places)?;
            let is_repeated = |row: &usize| has_key[*row] && places[*row] != NOWHERE;
            for row in (0..rows.len()).filter(is_repeated) {
                let repeated = || names.earlier(keys[row], "in a file that comes before");
                row_errors.reject(row, class::DUPLICATE_KEY.to_owned(), repeated);
            }
        }
        let keep = row_errors.into_keep();
        let columns = arrow::array::RecordBatch::try_new(columns.schema(), arrays)?;
        RowBatch { columns, rows }.filter(&keep)
    }
}

impl Placement for DirectorPlacement {
    fn worker(&self) -> Box<dyn PlaceRows + '_> {
        Box::new(DirectorWorker {
            placement: self,
            rows: self.rows.input(),
            overlap: self.overlap.input(),
            keys: self.keys.input(),
            locations: Vec::new(),
        })
    }

    fn finish(self: Box<Self>, _siblings: &[PathBuf]) -> Result<PlacedRows, IngestError> {
        let (dropped, index_bytes, entries) = write_index(&self.context, self.key, &self.keys)?;
        let strays = (self.strays.into_inner()).unwrap_or_else(PoisonError::into_inner);
        let counts = PlacementCounts {
            duplicate_keys: dropped.len() as u64,
            stray_rows: strays.values().sum(),
            ..PlacementCounts::default()
        };
        Ok(PlacedRows {
            rows: self.rows.into_chunks(),
            overlap: Some(self.overlap.into_chunks()),
            dropped,
            positions: Some(self.positions),
            bounds_in_directory: counts.stray_rows > 0,
            strays,
            by_sub_chunk: true,
            index_bytes,
            query_rows: entries,
            counts,
        })
    }
}

struct DirectorWorker<'a> {
    placement: &'a DirectorPlacement,
    rows: ChunkInput<'a>,
    overlap: ChunkInput<'a>,
    keys: SorterInput<'a>,
    locations: Vec<Location>,
}

impl PlaceRows for DirectorWorker<'_> {
    fn place(&mut self, batch: RowBatch) -> Result<(), IngestError> {
        let batch = self.placement.validate(batch)?;
        if batch.rows.is_empty() {
            return Ok(());
        }
        let arrays = batch.columns.columns();
        let positions = Positions::read(arrays, self.placement.positions)?;
        let chunker = &self.placement.context.chunker;
        chunker.locate_degrees(&positions.ra, &positions.dec, &mut self.locations);
        self.keep_homes(&batch)?;
        let places: Vec<u64> = self.locations.iter().map(|l| Place::from(*l).0).collect();
        self.place_overlap(&batch, &positions)?;
        self.place_keys(&batch, &places)?;
        let placed = placed_batch(self.placement.rows.schema(), arrays, places, batch.rows)?;
        self.rows.push(placed)
    }

    fn finish(self: Box<Self>) -> Result<(), IngestError> {
        self.rows.finish()?;
        self.overlap.finish()?;
        self.keys.finish()
    }
}

impl DirectorWorker<'_> {
    /// Gives keys that children have had before the place that they have there.
    fn keep_homes(&mut self, batch: &RowBatch) -> Result<(), IngestError> {
        let placement = self.placement;
        let earlier = placement.earlier.as_ref();
        let Some(earlier) = earlier.filter(|it| !it.orphans.is_empty()) else {
            return Ok(());
        };
        let (keys, _) = keys_of(batch.columns.column(placement.key))?;
        let mut homes = Vec::new();
        earlier.orphans.lookup(&keys, &mut homes)?;
        for (location, home) in self.locations.iter_mut().zip(homes) {
            if home == NOWHERE || Place::from(*location).0 == home {
                continue;
            }
            *location = Place(home).location();
            let mut strays = (placement.strays.lock()).unwrap_or_else(PoisonError::into_inner);
            *strays.entry(location.chunk).or_default() += 1;
        }
        Ok(())
    }

    /// Copies of the rows that lie within the overlap radius of other chunks, one for each of these.
    fn place_overlap(
        &mut self,
        batch: &RowBatch,
        positions: &Positions,
    ) -> Result<(), IngestError> {
        let PlaceContext {
            chunker, overlap, ..
        } = &self.placement.context;
        let own = |row: usize| self.locations[row].chunk;
        let NearRows { rows: near, places } = near_other_chunks(chunker, *overlap, positions, own)?;
        if near.is_empty() {
            return Ok(());
        }
        let rows = near.iter().map(|row| batch.rows[*row as usize]).collect();
        let taken = take_rows(batch.columns.columns(), &near)?;
        self.overlap.push(placed_batch(
            self.placement.overlap.schema(),
            &taken,
            places,
            rows,
        )?)
    }

    fn place_keys(&mut self, batch: &RowBatch, places: &[u64]) -> Result<(), IngestError> {
        let (keys, _) = keys_of(batch.columns.column(self.placement.key))?;
        let columns: [ArrayRef; 2] = [
            Arc::new(Int64Array::from(keys)),
            Arc::new(UInt64Array::from(places.to_vec())),
        ];
        // All in one place, so that they are sorted by key alone.
        let nowhere = vec![0; places.len()];
        self.keys.push(placed_batch(
            self.placement.keys.schema(),
            &columns,
            nowhere,
            batch.rows.clone(),
        )?)
    }
}

/// Rows of a batch that belong to the overlap of other chunks than their own; a row that does to several is there for each.
#[derive(Debug, Default)]
pub(crate) struct NearRows {
    /// Their numbers within the batch.
    pub rows: Vec<u32>,
    /// Their places in the overlap.
    pub places: Vec<u64>,
}

/// Finds the rows that lie within the overlap radius of other chunks than the one that they are in.
pub(crate) fn near_other_chunks(
    chunker: &Chunker,
    radius: Angle,
    positions: &Positions,
    own: impl Fn(usize) -> ChunkId,
) -> Result<NearRows, IngestError> {
    let (mut found, mut near) = (NearRows::default(), Vec::new());
    for (row, (ra, dec)) in positions.ra.iter().zip(&positions.dec).enumerate() {
        let position = LonLat::from_degrees(*ra, *dec)?;
        near.clear();
        chunker.chunks_within(position, radius, &mut near);
        for chunk in near.iter().filter(|chunk| **chunk != own(row)) {
            found.rows.push(row as u32);
            found.places.push(overlap_place(*chunk).0);
        }
    }
    Ok(found)
}

/// The rows of an overlap file are sorted by key alone: they belong to no sub-chunk of the chunk.
fn overlap_place(chunk: ChunkId) -> Place {
    Place::new(chunk, SubChunkId(0))
}

/// Writes the index and rejects every row whose key an earlier row of the input has. Gives the rejected rows, the bytes of the index
/// and its entries.
fn write_index(
    context: &PlaceContext,
    key: usize,
    keys: &Sorter,
) -> Result<(HashSet<u64>, u64, u64), IngestError> {
    let mut index = context.index.begin()?;
    let (sender, receiver) = mpsc::sync_channel::<Entries>(WAITING_ENTRIES);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            for (key, place) in receiver.into_iter().flatten() {
                index.push(key, Place(place).location(), false)?;
            }
            Ok::<_, IngestError>(index)
        });
        let dropped = go_through_keys(context, key, keys, &sender);
        drop(sender);
        let index = writing.join().unwrap_or(Err(IngestError::Internal))?;
        let dropped = dropped?;
        let entries = index.entries();
        Ok((dropped, index.finish()?, entries))
    })
}

/// Hands over every key with its place, in the order of keys, each once; gives the rows of the others, which are rejected.
fn go_through_keys(
    context: &PlaceContext,
    key: usize,
    keys: &Sorter,
    entries: &SyncSender<Entries>,
) -> Result<HashSet<u64>, IngestError> {
    let names = KeyNames::of(&context.read.columns, key);
    let mut dropped = HashSet::new();
    let mut previous: Option<(i64, u64)> = None;
    let mut batches = keys.take_sorted()?.peekable();
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let keys = batch.column(0).as_primitive::<Int64Type>().values();
        let places = batch.column(1).as_primitive::<UInt64Type>().values();
        context.read.progress.advance(keys.len() as u64);
        let mut unique = Vec::with_capacity(keys.len());
        for ((key, place), row) in keys.iter().zip(places).zip(rows_of(&batch)) {
            match previous {
                Some((last, first_row)) if last == *key => {
                    reject_duplicate(context, &names, *key, [*row, first_row]);
                    dropped.insert(*row);
                }
                _ => {
                    previous = Some((*key, *row));
                    unique.push((*key, *place));
                }
            }
        }
        let are_more = batches.peek().is_some();
        context.read.rejected_rows.check_so_far(are_more)?;
        if entries.send(unique).is_err() {
            // The writer has failed, and says why.
            break;
        }
    }
    Ok(dropped)
}

fn reject_duplicate(context: &PlaceContext, names: &KeyNames<'_>, key: i64, rows: [u64; 2]) {
    let rejected_rows = &context.read.rejected_rows;
    let [row, first] = rows.map(RowId);
    rejected_rows.reject(row, class::DUPLICATE_KEY.to_owned(), || {
        names.repeated(key, &rejected_rows.locate(first))
    });
}
