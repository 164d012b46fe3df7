//! In which bucket a row is.
//!
//! Invariant: rows that are equal in the columns have the same hash on every machine, whatever its processor: it is XXH3 of the bytes by which Arrow
//! compares rows. Zeros of both signs, and all NaNs, are alike: where the engine takes them for different they are in one bucket all the same.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use xxhash_rust::xxh3::xxh3_64;

/// Says in which buckets rows are.
#[derive(Debug)]
pub(super) struct BucketHash {
    converter: RowConverter,
    columns: Vec<usize>,
    buckets: u64,
}

impl BucketHash {
    /// Shares rows out by these columns.
    ///
    /// # Errors
    /// There is no such column, or rows cannot be compared by one.
    pub fn new(schema: &Schema, columns: &[usize], buckets: u32) -> Result<Self, ArrowError> {
        let fields = columns.iter().map(|at| {
            let field = schema.fields().get(*at);
            let field = field.ok_or_else(|| {
                ArrowError::InvalidArgumentError(format!(
                    "there is no column {at} to share rows out by"
                ))
            });
            Ok(SortField::new(field?.data_type().clone()))
        });
        Ok(Self {
            converter: RowConverter::new(fields.collect::<Result<_, ArrowError>>()?)?,
            columns: columns.to_vec(),
            buckets: u64::from(buckets.max(1)),
        })
    }

    /// The bucket of each row.
    ///
    /// # Errors
    /// The rows have other columns.
    pub fn buckets_of(&self, batch: &RecordBatch) -> Result<Vec<u32>, ArrowError> {
        let columns: Vec<ArrayRef> = { self.columns.iter() }
            .map(|at| with_plain_floats(batch.column(*at)))
            .collect();
        let rows = self.converter.convert_columns(&columns)?;
        let bucket = |row: arrow::row::Row<'_>| (xxh3_64(row.data()) % self.buckets) as u32;
        Ok(rows.iter().map(bucket).collect())
    }
}

/// The same numbers, whose zeros are positive and whose NaNs are one.
fn with_plain_floats(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let plain = |value: f32| {
                if value.is_nan() {
                    f32::NAN
                } else {
                    value + 0.0
                }
            };
            Arc::new(
                column
                    .as_primitive::<Float32Type>()
                    .unary::<_, Float32Type>(plain),
            )
        }
        DataType::Float64 => {
            let plain = |value: f64| {
                if value.is_nan() {
                    f64::NAN
                } else {
                    value + 0.0
                }
            };
            Arc::new(
                column
                    .as_primitive::<Float64Type>()
                    .unary::<_, Float64Type>(plain),
            )
        }
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringArray, StringViewArray};

    use super::*;

    fn buckets(columns: Vec<ArrayRef>, buckets: u32) -> Vec<u32> {
        let named = columns.into_iter().enumerate();
        let batch = RecordBatch::try_from_iter_with_nullable(
            named.map(|(at, column)| (at.to_string(), column, true)),
        );
        let batch = batch.unwrap();
        let all: Vec<usize> = (0..batch.num_columns()).collect();
        let hash = BucketHash::new(&batch.schema(), &all, buckets).unwrap();
        hash.buckets_of(&batch).unwrap()
    }

    /// Members of a cluster may be built for different processors, and an archive's front end may be of another machine than its workers.
    #[test]
    fn buckets_are_the_same_on_every_machine() {
        let numbers = Int64Array::from(vec![Some(0), Some(1), None, Some(-7), Some(i64::MAX)]);
        let texts = StringArray::from(vec![
            Some("a"),
            Some(""),
            None,
            Some("é"),
            Some("long".repeat(9).as_str()),
        ]);
        let found = buckets(vec![Arc::new(numbers), Arc::new(texts)], 1000);
        assert_eq!(found, KNOWN);
    }

    const KNOWN: [u32; 5] = [639, 808, 996, 102, 776];

    #[test]
    fn what_compares_equal_is_in_one_bucket() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 1);
        let floats = Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, odd]);
        let found = buckets(vec![Arc::new(floats)], 1 << 30);
        assert_eq!(found[0], found[1]);
        assert_eq!((found[2], found[2]), (found[3], found[4]));
        assert_ne!(found[0], found[2]);
        let texts = ["a", "b", "a text that is longer than a view holds"];
        let plain = buckets(vec![Arc::new(StringArray::from(texts.to_vec()))], 1 << 30);
        let views = buckets(
            vec![Arc::new(StringViewArray::from(texts.to_vec()))],
            1 << 30,
        );
        assert_eq!(plain, views);
    }

    #[test]
    fn rows_are_spread_evenly() {
        let numbers = Int64Array::from_iter_values(0..100_000);
        let mut rows = vec![0_usize; 10];
        for bucket in buckets(vec![Arc::new(numbers)], 10) {
            rows[bucket as usize] += 1;
        }
        assert!(
            rows.iter().all(|rows| (9_500..10_500).contains(rows)),
            "{rows:?}"
        );
    }
}
