//! Fields of text to columns: one tight loop for each type.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanBuilder, NullBufferBuilder, PrimitiveArray, StringArray,
    new_null_array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use catalog::{Column, ColumnType};

use super::super::ReadContext;
use super::record::Fields;
use super::{number, time};
use crate::error::IngestError;
use crate::row_batch::travel_type;
use crate::row_errors::{RowErrors, ValueFault};

/// The fields of one column.
pub(super) struct Cells<'a> {
    pub block: &'a [u8],
    pub fields: &'a Fields,
    /// Fields of a record.
    pub width: usize,
    /// The column's field in each record; none if the file does not have the column.
    pub field: Option<usize>,
    pub rows: usize,
}

impl<'a> Cells<'a> {
    /// The field of a row; `None` is NULL.
    #[inline]
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        let field = self.field?;
        self.fields.bytes(self.block, row * self.width + field)
    }
}

/// A parsed value, `None` for NULL (an empty field, a NaN, MySQL's zero date).
pub(super) type ParsedValue<T> = Result<Option<T>, ValueFault>;

/// Makes a column; rows whose value does not fit are rejected and hold NULL or zero in it.
pub(super) fn parse_column(
    column: &Column,
    cells: &Cells<'_>,
    row_errors: &mut RowErrors<'_>,
    context: &ReadContext,
) -> Result<ArrayRef, IngestError> {
    if cells.field.is_none() {
        return Ok(new_null_array(&travel_type(column.ty), cells.rows));
    }
    Ok(match column.ty {
        ColumnType::Boolean => booleans(column, cells, row_errors),
        ColumnType::Int8 => integers::<Int8Type>(column, cells, row_errors),
        ColumnType::Int16 => integers::<Int16Type>(column, cells, row_errors),
        ColumnType::Int32 => integers::<Int32Type>(column, cells, row_errors),
        ColumnType::Int64 => integers::<Int64Type>(column, cells, row_errors),
        ColumnType::UInt8 => integers::<UInt8Type>(column, cells, row_errors),
        ColumnType::UInt16 => integers::<UInt16Type>(column, cells, row_errors),
        ColumnType::UInt32 => integers::<UInt32Type>(column, cells, row_errors),
        ColumnType::UInt64 => primitives::<UInt64Type>(column, cells, row_errors, number::unsigned),
        ColumnType::Float32 => {
            primitives::<Float32Type>(column, cells, row_errors, number::float32)
        }
        ColumnType::Float64 => {
            primitives::<Float64Type>(column, cells, row_errors, number::float64)
        }
        ColumnType::Date => primitives::<Date32Type>(column, cells, row_errors, time::date),
        ColumnType::Timestamp => {
            primitives::<TimestampMicrosecondType>(column, cells, row_errors, time::timestamp)
        }
        ColumnType::Decimal { precision, scale } => {
            let parse = |text: &[u8]| number::decimal(text, precision, scale);
            let array = primitives_of::<Decimal128Type>(column, cells, row_errors, parse);
            Arc::new(array.with_precision_and_scale(precision, scale as i8)?)
        }
        ColumnType::Binary => Arc::new(bytes(column, cells, row_errors)),
        ColumnType::Text => Arc::new(text(column, cells, row_errors, context)?),
    })
}

fn integers<T>(column: &Column, cells: &Cells<'_>, row_errors: &mut RowErrors<'_>) -> ArrayRef
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    primitives::<T>(column, cells, row_errors, |text| {
        match number::signed(text)? {
            None => Ok(None),
            Some(value) => T::Native::try_from(value)
                .map(Some)
                .map_err(|_| ValueFault::OutOfRange),
        }
    })
}

fn primitives<T: ArrowPrimitiveType>(
    column: &Column,
    cells: &Cells<'_>,
    row_errors: &mut RowErrors<'_>,
    parse: impl Fn(&[u8]) -> ParsedValue<T::Native>,
) -> ArrayRef {
    Arc::new(primitives_of::<T>(column, cells, row_errors, parse))
}

fn primitives_of<T: ArrowPrimitiveType>(
    column: &Column,
    cells: &Cells<'_>,
    row_errors: &mut RowErrors<'_>,
    parse: impl Fn(&[u8]) -> ParsedValue<T::Native>,
) -> PrimitiveArray<T> {
    let mut values: Vec<T::Native> = Vec::with_capacity(cells.rows);
    let mut nulls = NullBufferBuilder::new(cells.rows);
    for row in 0..cells.rows {
        let cell = cells.get(row);
        match cell.map_or(Ok(None), &parse) {
            Ok(Some(value)) => {
                values.push(value);
                nulls.append_non_null();
                continue;
            }
            Ok(None) if column.nullable => {}
            Ok(None) => row_errors.reject_null(row, column),
            Err(fault) => row_errors.reject_value(row, column, cell.unwrap_or_default(), fault),
        }
        values.push(T::Native::default());
        nulls.append_null();
    }
    PrimitiveArray::new(values.into(), nulls.finish())
}

fn booleans(column: &Column, cells: &Cells<'_>, row_errors: &mut RowErrors<'_>) -> ArrayRef {
    let mut values = BooleanBuilder::with_capacity(cells.rows);
    for row in 0..cells.rows {
        let cell = cells.get(row);
        match cell.map_or(Ok(None), number::boolean) {
            Ok(Some(value)) => {
                values.append_value(value);
                continue;
            }
            Ok(None) if column.nullable => {}
            Ok(None) => row_errors.reject_null(row, column),
            Err(fault) => row_errors.reject_value(row, column, cell.unwrap_or_default(), fault),
        }
        values.append_null();
    }
    Arc::new(values.finish())
}

fn bytes(column: &Column, cells: &Cells<'_>, row_errors: &mut RowErrors<'_>) -> BinaryArray {
    let mut ends: Vec<i32> = Vec::with_capacity(cells.rows + 1);
    let mut values: Vec<u8> = Vec::new();
    let mut nulls = NullBufferBuilder::new(cells.rows);
    ends.push(0);
    for row in 0..cells.rows {
        match cells.get(row) {
            Some(cell) => {
                values.extend_from_slice(cell);
                nulls.append_non_null();
            }
            None => {
                if !column.nullable {
                    row_errors.reject_null(row, column);
                }
                nulls.append_null();
            }
        }
        // A block is far smaller than 2 GiB, so the ends fit.
        ends.push(values.len() as i32);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    BinaryArray::new(offsets, Buffer::from_vec(values), nulls.finish())
}

fn text(
    column: &Column,
    cells: &Cells<'_>,
    row_errors: &mut RowErrors<'_>,
    context: &ReadContext,
) -> Result<StringArray, IngestError> {
    let raw = bytes(column, cells, row_errors);
    // Checks all values at once; single ones are looked at only if that fails.
    match StringArray::try_from_binary(raw.clone()) {
        Ok(text) => Ok(text),
        Err(_) => {
            let mut latin1 = 0;
            let values: StringArray = raw
                .iter()
                .map(|value| {
                    let (text, is_latin1) = utf8_or_latin1(value?);
                    latin1 += u64::from(is_latin1);
                    Some(text)
                })
                .collect();
            context.note_latin1(latin1);
            Ok(values)
        }
    }
}

/// A text of bytes: those that are no UTF-8 are taken as Latin-1, which is told with it.
pub(crate) fn utf8_or_latin1(value: &[u8]) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(value) {
        Ok(text) => (text.into(), false),
        Err(_) => (value.iter().map(|byte| char::from(*byte)).collect(), true),
    }
}
