//! The order of rows: place, key, order column, and where the row stood in the input.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, UInt64Type};

use crate::error::IngestError;
use crate::row_batch::{places_of, rows_of};

/// The columns by which rows are sorted behind their place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SortColumns {
    /// The key column, of an integer type.
    pub key: Option<usize>,
    /// The third column: an integer, a number, or a time.
    pub order: Option<usize>,
}

/// A row's rank; derived order is the order of the rows. No two rows have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey {
    pub place: u64,
    pub key: u64,
    pub order: u64,
    pub row: u64,
}

/// Numbers that sort as the values of the two columns do; `None` where there is no such column.
pub(super) struct Ranks {
    pub keys: Option<Vec<u64>>,
    pub orders: Option<Vec<u64>>,
}

impl SortColumns {
    /// The ranks of a placed batch's values.
    pub(super) fn ranks(&self, batch: &RecordBatch) -> Result<Ranks, IngestError> {
        let rank = |column: Option<usize>| column.map(|c| ranks(batch.column(c))).transpose();
        Ok(Ranks {
            keys: rank(self.key)?,
            orders: rank(self.order)?,
        })
    }

    /// The ranks of a placed batch's rows.
    pub(crate) fn keys(&self, batch: &RecordBatch) -> Result<Vec<SortKey>, IngestError> {
        let Ranks { keys, orders } = self.ranks(batch)?;
        let (places, rows) = (places_of(batch), rows_of(batch));
        let at = |ranks: &Option<Vec<u64>>, i: usize| ranks.as_ref().map_or(0, |r| r[i]);
        let key = |i| SortKey {
            place: places[i],
            key: at(&keys, i),
            order: at(&orders, i),
            row: rows[i],
        };
        Ok((0..batch.num_rows()).map(key).collect())
    }
}

/// Whether rows can be ordered by a column of this type.
pub(crate) fn is_sortable(data_type: &DataType) -> bool {
    data_type.is_numeric() || matches!(data_type, DataType::Timestamp(..) | DataType::Date32)
}

/// Maps values to numbers that sort as the values do; NULL sorts first.
fn ranks(array: &ArrayRef) -> Result<Vec<u64>, IngestError> {
    const SIGN: u64 = 1 << 63;
    let values: Vec<u64> = match array.data_type() {
        DataType::UInt64 => array.as_primitive::<UInt64Type>().values().to_vec(),
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => {
            let floats = cast(array, &DataType::Float64)?;
            let ranked = floats
                .as_primitive::<Float64Type>()
                .values()
                .iter()
                .map(|v| {
                    let bits = v.to_bits();
                    if bits & SIGN == 0 { bits | SIGN } else { !bits }
                });
            ranked.collect()
        }
        _ => {
            let array = match array.data_type() {
                DataType::Timestamp(..) => {
                    cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?
                }
                DataType::Date32 => cast(array, &DataType::Int32)?,
                _ => array.clone(),
            };
            let integers = cast(&array, &DataType::Int64)?;
            let ranked = integers.as_primitive::<Int64Type>().values().iter();
            ranked.map(|v| (*v as u64) ^ SIGN).collect()
        }
    };
    Ok(nulls_first(array, values))
}

fn nulls_first(array: &ArrayRef, mut values: Vec<u64>) -> Vec<u64> {
    if let Some(nulls) = array.nulls().filter(|n| n.null_count() > 0) {
        for (row, value) in values.iter_mut().enumerate() {
            if nulls.is_null(row) {
                *value = 0;
            }
        }
    }
    values
}
