//! Gathers rows that lie scattered in several batches into one batch.
//!
//! Arrow's `interleave` asks each value whether it is NULL. Here values are copied, whatever they are, and the bitmaps of
//! validity are gathered by themselves, for columns that have NULLs.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    downcast_primitive,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;

use crate::error::IngestError;

/// Where a row lies: the number of its batch, and its own number in it.
pub(super) type RowAt = (u32, u32);

/// These rows of the batches, in this order. All batches have the columns of the schema.
pub(super) fn gather(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    rows: &[RowAt],
) -> Result<RecordBatch, IngestError> {
    let column = |number: usize| {
        let arrays: Vec<&dyn Array> = batches
            .iter()
            .map(|batch| batch.column(number).as_ref())
            .collect();
        gather_column(&arrays, rows)
    };
    let columns = (0..schema.fields().len()).map(column);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns.collect::<Result<_, IngestError>>()?,
        &options,
    )?)
}

fn gather_column(arrays: &[&dyn Array], rows: &[RowAt]) -> Result<ArrayRef, IngestError> {
    macro_rules! of_type {
        ($t:ty) => {
            Ok(Arc::new(gather_primitive::<$t>(arrays, rows)))
        };
    }
    let Some(first) = arrays.first() else {
        return Err(IngestError::Internal);
    };
    downcast_primitive! {
        first.data_type() => (of_type),
        _ => {
            let rows: Vec<(usize, usize)> =
                rows.iter().map(|(batch, row)| (*batch as usize, *row as usize)).collect();
            Ok(interleave(arrays, &rows)?)
        }
    }
}

fn gather_primitive<T: ArrowPrimitiveType>(
    arrays: &[&dyn Array],
    rows: &[RowAt],
) -> PrimitiveArray<T> {
    let values: Vec<&[T::Native]> = arrays
        .iter()
        .map(|array| array.as_primitive::<T>().values().as_ref())
        .collect();
    let gathered: Vec<T::Native> = rows
        .iter()
        .map(|(batch, row)| values[*batch as usize][*row as usize])
        .collect();
    let gathered = PrimitiveArray::new(gathered.into(), gather_validity(arrays, rows));
    match arrays.first() {
        // Decimals and timestamps are more than their values.
        Some(first) => gathered.with_data_type(first.data_type().clone()),
        None => gathered,
    }
}

/// `None` if none of the rows is NULL.
fn gather_validity(arrays: &[&dyn Array], rows: &[RowAt]) -> Option<NullBuffer> {
    let nulls: Vec<Option<&NullBuffer>> = arrays
        .iter()
        .map(|array| array.nulls().filter(|nulls| nulls.null_count() > 0))
        .collect();
    if nulls.iter().all(Option::is_none) {
        return None;
    }
    let valid = BooleanBuffer::collect_bool(rows.len(), |i| {
        let (batch, row) = rows[i];
        nulls[batch as usize].is_none_or(|nulls| nulls.is_valid(row as usize))
    });
    Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Decimal128Array, Float32Array, Int64Array, StringArray,
        TimestampMicrosecondArray,
    };
    use proptest::prelude::*;

    use super::*;

    fn batch(values: &[Option<i64>], slice: usize) -> RecordBatch {
        let price = Decimal128Array::from_iter(values.iter().map(|v| v.map(i128::from)));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", Arc::new(Int64Array::from(values.to_vec()))),
            (
                "flux",
                Arc::new(Float32Array::from_iter(
                    values.iter().map(|v| v.map(|v| v as f32)),
                )),
            ),
            (
                "time",
                Arc::new(TimestampMicrosecondArray::from(values.to_vec())),
            ),
            (
                "price",
                Arc::new(price.with_precision_and_scale(12, 3).unwrap()),
            ),
            (
                "flag",
                Arc::new(BooleanArray::from_iter(
                    values.iter().map(|v| v.map(|v| v > 0)),
                )),
            ),
            (
                "name",
                Arc::new(StringArray::from_iter(
                    values.iter().map(|v| v.map(|v| v.to_string())),
                )),
            ),
        ];
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        batch.slice(slice, values.len() - slice)
    }

    proptest! {
        #[test]
        fn it_gives_what_interleave_gives(
            parts in proptest::collection::vec(
                proptest::collection::vec(proptest::option::weighted(0.8, -9..9i64), 2..80), 1..5),
            wanted in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..200),
            without_null: bool,
        ) {
            let fill = |part: &Vec<Option<i64>>| -> Vec<Option<i64>> {
                part.iter().map(|v| if without_null { v.or(Some(0)) } else { *v }).collect()
            };
            let batches: Vec<RecordBatch> = parts.iter().map(|part| batch(&fill(part), 1)).collect();
            let rows: Vec<RowAt> = wanted
                .iter()
                .map(|(b, r)| {
                    let b = *b as usize % batches.len();
                    (b as u32, *r % batches[b].num_rows() as u32)
                })
                .collect();
            let gathered = gather(&batches[0].schema(), &batches, &rows).unwrap();
            let indices: Vec<(usize, usize)> =
                rows.iter().map(|(b, r)| (*b as usize, *r as usize)).collect();
            let all: Vec<&RecordBatch> = batches.iter().collect();
            let expected = arrow::compute::interleave_record_batch(&all, &indices).unwrap();
            prop_assert_eq!(&gathered, &expected);
            prop_assert!(!without_null || gathered.columns().iter().all(|c| c.null_count() == 0));
        }
    }
}
