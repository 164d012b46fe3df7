//! Rows of one chunk as they wait: their hidden columns in half the bytes.
//!
//! A place is a chunk and a sub-chunk, and the chunk is that of all rows; input rows of one part lie near each other nearly
//! always, so that the distance from the first of them fits into 32 bits. A narrow table's rows are a tenth smaller so.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};

use crate::error::IngestError;
use crate::row_batch::{places_of, rows_of};

/// The hidden columns stand behind the others.
const HIDDEN: usize = 2;

/// What is taken out of the hidden columns of packed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Common {
    /// The bits of the chunk, in the place where they are in a place.
    chunk: u64,
    first_row: u64,
}

/// The schema of packed rows.
pub(super) fn packed_schema(schema: &Schema) -> SchemaRef {
    let mut fields = schema.fields().to_vec();
    let visible = fields.len() - HIDDEN;
    for field in &mut fields[visible..] {
        *field = Arc::new(Field::new(field.name(), DataType::UInt32, false));
    }
    Arc::new(Schema::new(fields))
}

/// Packs placed rows of one chunk; `None` where input rows are too far apart.
pub(super) fn pack(
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> Result<Option<(RecordBatch, Common)>, IngestError> {
    let (places, rows) = (places_of(batch), rows_of(batch));
    let (mut first_row, mut last_row) = (u64::MAX, 0);
    for row in rows {
        (first_row, last_row) = (first_row.min(*row), last_row.max(*row));
    }
    if last_row.saturating_sub(first_row) > u64::from(u32::MAX) {
        return Ok(None);
    }
    let common = Common {
        chunk: places.first().copied().unwrap_or(0) & !u64::from(u32::MAX),
        first_row,
    };
    let sub_chunks: UInt32Array = places.iter().map(|place| *place as u32).collect();
    let distances: UInt32Array = rows.iter().map(|row| (*row - first_row) as u32).collect();
    let batch = with_hidden(schema, batch, Arc::new(sub_chunks), Arc::new(distances))?;
    Ok(Some((batch, common)))
}

/// The placed rows that were packed.
pub(super) fn unpack(
    schema: &SchemaRef,
    batch: &RecordBatch,
    common: Common,
) -> Result<RecordBatch, IngestError> {
    let hidden = |at: usize, base: u64| -> ArrayRef {
        let packed = batch.column(batch.num_columns() - HIDDEN + at);
        let values = packed.as_primitive::<UInt32Type>().values().iter();
        Arc::new(UInt64Array::from_iter_values(
            values.map(|value| base + u64::from(*value)),
        ))
    };
    let (places, rows) = (hidden(0, common.chunk), hidden(1, common.first_row));
    with_hidden(schema, batch, places, rows)
}

fn with_hidden(
    schema: &SchemaRef,
    batch: &RecordBatch,
    places: ArrayRef,
    rows: ArrayRef,
) -> Result<RecordBatch, IngestError> {
    let visible = batch.num_columns() - HIDDEN;
    let mut columns = batch.columns()[..visible].to_vec();
    columns.extend([places, rows]);
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int16Array;
    use proptest::prelude::*;

    use super::*;
    use crate::row_batch::{placed_batch, placed_schema};

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            chunk in 0_u32..,
            rows in proptest::collection::vec((0_u32.., 0_u64..1 << 34), 1..50),
            file in 0_u64..1 << 24,
        ) {
            let columns = Schema::new(vec![Field::new("x", DataType::Int16, true)]);
            let schema = placed_schema(&columns);
            let x: ArrayRef = Arc::new(Int16Array::from_iter(rows.iter().map(|row| Some(row.0 as i16))));
            let places = rows.iter().map(|row| u64::from(chunk) << 32 | u64::from(row.0)).collect();
            let numbers: Vec<u64> = rows.iter().map(|row| file << 40 | row.1).collect();
            let spread = numbers.iter().max().unwrap() - numbers.iter().min().unwrap();
            let batch = placed_batch(&schema, &[x], places, numbers).unwrap();
            match pack(&packed_schema(&schema), &batch).unwrap() {
                Some((packed, common)) => {
                    prop_assert_eq!(unpack(&schema, &packed, common).unwrap(), batch);
                }
                None => prop_assert!(spread > u64::from(u32::MAX)),
            }
        }
    }
}
