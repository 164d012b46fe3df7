//! A replicated table's rows stay together, in the order of the input.

use std::collections::HashMap;
use std::path::PathBuf;

use catalog::REPLICATED_CHUNK;
use sky::SubChunkId;

use super::{PlaceContext, PlaceRows, PlacedRows, Placement};
use crate::error::IngestError;
use crate::report::PlacementCounts;
use crate::row_batch::{Place, RowBatch, placed_batch};
use crate::sort::{ChunkInput, ChunkSorter, SortColumns};

/// The placement of a replicated table.
pub(crate) struct ReplicatedPlacement {
    rows: ChunkSorter,
}

impl ReplicatedPlacement {
    pub(crate) fn new(context: PlaceContext) -> Self {
        let columns = context.read.schema.clone();
        Self {
            rows: context.chunk_sorter("rows", &columns, SortColumns::default(), 1.0),
        }
    }
}

impl Placement for ReplicatedPlacement {
    fn worker(&self) -> Box<dyn PlaceRows + '_> {
        Box::new(ReplicatedWorker {
            placement: self,
            rows: self.rows.input(),
        })
    }

    fn finish(self: Box<Self>, _siblings: &[PathBuf]) -> Result<PlacedRows, IngestError> {
        let rows = self.rows.into_chunks();
        Ok(PlacedRows {
            query_rows: rows.rows(),
            rows,
            overlap: None,
            dropped: Default::default(),
            positions: None,
            bounds_in_directory: false,
            strays: HashMap::new(),
            by_sub_chunk: false,
            index_bytes: 0,
            counts: PlacementCounts::default(),
        })
    }
}

struct ReplicatedWorker<'a> {
    placement: &'a ReplicatedPlacement,
    rows: ChunkInput<'a>,
}

impl PlaceRows for ReplicatedWorker<'_> {
    fn place(&mut self, batch: RowBatch) -> Result<(), IngestError> {
        let places = vec![Place::new(REPLICATED_CHUNK, SubChunkId(0)).0; batch.rows.len()];
        let schema = self.placement.rows.schema();
        self.rows.push(placed_batch(
            schema,
            batch.columns.columns(),
            places,
            batch.rows,
        )?)
    }

    fn finish(self: Box<Self>) -> Result<(), IngestError> {
        self.rows.finish()
    }
}
