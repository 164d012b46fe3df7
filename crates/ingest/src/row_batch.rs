//! The shape in which rows travel through a load: declared columns in plain Arrow types, then two hidden ones.
//!
//! Text and bytes travel as `Utf8` and `Binary`, not as views: a few rows taken from a view array would keep (and
//! spill) all of its buffers. The types of the chunk files come only when a file is written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use catalog::{Column, ColumnType};
use sky::{ChunkId, Location, SubChunkId};

use crate::error::IngestError;

/// The name of the hidden column of places.
const PLACE: &str = "__place";
/// The name of the hidden column of input rows.
const ROW: &str = "__row";

/// Where a row goes, as a number that sorts by chunk, then sub-chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(pub u64);

impl Place {
    pub(crate) fn new(chunk: ChunkId, sub_chunk: SubChunkId) -> Self {
        Self(u64::from(ordered(chunk.0)) << 32 | u64::from(ordered(sub_chunk.0)))
    }

    pub(crate) fn chunk(self) -> ChunkId {
        ChunkId(unordered((self.0 >> 32) as u32))
    }

    pub(crate) fn sub_chunk(self) -> SubChunkId {
        SubChunkId(unordered(self.0 as u32))
    }

    pub(crate) fn location(self) -> Location {
        Location {
            chunk: self.chunk(),
            sub_chunk: self.sub_chunk(),
        }
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self::new(location.chunk, location.sub_chunk)
    }
}

/// Maps i32 to u32 so that the order stays.
fn ordered(id: i32) -> u32 {
    (id as u32) ^ (1 << 31)
}

fn unordered(id: u32) -> i32 {
    (id ^ (1 << 31)) as i32
}

/// Rows as a reader gives them: the declared columns, and where each row was read.
#[derive(Debug, Clone)]
pub(crate) struct RowBatch {
    /// The declared columns, in [`travel_schema`].
    pub columns: RecordBatch,
    /// For each row its [`crate::rejected_rows::RowId`].
    pub rows: Vec<u64>,
}

impl RowBatch {
    /// Keeps the rows whose mark is true.
    pub(crate) fn filter(self, keep: &[bool]) -> Result<Self, IngestError> {
        if keep.iter().all(|kept| *kept) {
            return Ok(self);
        }
        let mask = arrow::array::BooleanArray::from(keep.to_vec());
        let columns = arrow::compute::filter_record_batch(&self.columns, &mask)?;
        let rows = self.rows.iter().zip(keep).filter(|(_, kept)| **kept);
        Ok(Self {
            columns,
            rows: rows.map(|(row, _)| *row).collect(),
        })
    }
}

/// The Arrow type in which a column's values travel.
pub(crate) fn travel_type(ty: ColumnType) -> DataType {
    match ty {
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Int8 => DataType::Int8,
        ColumnType::Int16 => DataType::Int16,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::UInt8 => DataType::UInt8,
        ColumnType::UInt16 => DataType::UInt16,
        ColumnType::UInt32 => DataType::UInt32,
        ColumnType::UInt64 => DataType::UInt64,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Text => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
    }
}

/// The schema in which rows of these columns travel. Every field is nullable here: NOT NULL is enforced by rejecting rows.
pub(crate) fn travel_schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns
        .iter()
        .map(|c| Field::new(&c.name, travel_type(c.ty), true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// The schema of placed rows: that of the columns, then place and row.
pub(crate) fn placed_schema(columns: &Schema) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = columns.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(PLACE, DataType::UInt64, false)));
    fields.push(Arc::new(Field::new(ROW, DataType::UInt64, false)));
    Arc::new(Schema::new(fields))
}

/// Puts the two hidden columns behind a batch.
pub(crate) fn placed_batch(
    schema: &SchemaRef,
    columns: &[ArrayRef],
    places: Vec<u64>,
    rows: Vec<u64>,
) -> Result<RecordBatch, IngestError> {
    let mut arrays = columns.to_vec();
    arrays.push(Arc::new(UInt64Array::from(places)));
    arrays.push(Arc::new(UInt64Array::from(rows)));
    Ok(RecordBatch::try_new(schema.clone(), arrays)?)
}

/// The places of a placed batch.
pub(crate) fn places_of(batch: &RecordBatch) -> &[u64] {
    hidden(batch, 2)
}

/// The input rows of a placed batch.
pub(crate) fn rows_of(batch: &RecordBatch) -> &[u64] {
    hidden(batch, 1)
}

fn hidden(batch: &RecordBatch, from_end: usize) -> &[u64] {
    let column = batch.column(batch.num_columns() - from_end);
    match column.as_any().downcast_ref::<UInt64Array>() {
        Some(values) => values.values(),
        None => &[],
    }
}

/// The bytes that the rows of a batch take, slices counted as slices.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    let bytes = batch
        .columns()
        .iter()
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0));
    bytes.sum::<usize>() as u64
}

/// A batch with its text and bytes as views and NOT NULL as declared: what a chunk file takes.
pub(crate) fn to_file_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, IngestError> {
    let arrays: Result<Vec<ArrayRef>, _> = (schema.fields().iter().zip(batch.columns()))
        .map(|(field, array)| {
            if array.data_type() == field.data_type() {
                Ok(array.clone())
            } else {
                arrow::compute::cast(array, field.data_type())
            }
        })
        .collect();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        arrays?,
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_as_locations_do() {
        let mut places = Vec::new();
        for chunk in [-1, 0, 1, 7, i32::MAX - 1] {
            for sub_chunk in [-1, 0, 5, i32::MAX] {
                places.push(Place::new(ChunkId(chunk), SubChunkId(sub_chunk)));
            }
        }
        assert!(places.is_sorted());
        for place in places {
            assert_eq!(Place::from(place.location()), place);
        }
    }
}
