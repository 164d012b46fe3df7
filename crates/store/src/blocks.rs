//! Cuts batches of any size into blocks of [`ROWS_PER_BLOCK`] rows.
//!
//! Vortex would do it, too, column by column, but the statistics that are noted with an array do not survive that.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use crate::write::ROWS_PER_BLOCK;

/// The rows that are not a whole block yet.
pub(crate) struct Blocks {
    schema: SchemaRef,
    pending: Vec<RecordBatch>,
    rows: usize,
}

impl Blocks {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            pending: Vec::new(),
            rows: 0,
        }
    }

    /// Takes a batch with the columns of the schema; gives the blocks that are whole with it.
    pub(crate) fn push(&mut self, mut batch: RecordBatch) -> Result<Vec<RecordBatch>, ArrowError> {
        let mut whole = Vec::new();
        while self.rows + batch.num_rows() >= ROWS_PER_BLOCK {
            let room = ROWS_PER_BLOCK - self.rows;
            self.pending.push(batch.slice(0, room));
            batch = batch.slice(room, batch.num_rows() - room);
            whole.extend(self.finish()?);
        }
        if batch.num_rows() > 0 {
            self.rows += batch.num_rows();
            self.pending.push(batch);
        }
        Ok(whole)
    }

    /// What is left, as the last block.
    pub(crate) fn finish(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let pending = std::mem::take(&mut self.pending);
        self.rows = 0;
        match pending.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => concat_batches(&self.schema, several).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_row_comes_once_and_in_order(sizes in proptest::collection::vec(
            prop_oneof![Just(0), Just(ROWS_PER_BLOCK), 1..3 * ROWS_PER_BLOCK], 0..12,
        )) {
            let batch = |rows: std::ops::Range<i64>| {
                let column = Arc::new(Int64Array::from_iter_values(rows));
                RecordBatch::try_from_iter([("row", column as _)]).unwrap()
            };
            let mut blocks = Blocks::new(batch(0..0).schema());
            let (mut cut, mut next) = (Vec::new(), 0);
            for size in &sizes {
                let rows = next..next + *size as i64;
                next = rows.end;
                cut.extend(blocks.push(batch(rows)).unwrap());
            }
            prop_assert!(cut.iter().all(|block| block.num_rows() == ROWS_PER_BLOCK));
            cut.extend(blocks.finish().unwrap());
            prop_assert_eq!(cut.len(), (next as usize).div_ceil(ROWS_PER_BLOCK));
            let all = concat_batches(&batch(0..0).schema(), &cut).unwrap();
            prop_assert_eq!(all, batch(0..next));
        }
    }
}
