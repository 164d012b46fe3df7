//! Arrow columns of any type to the columns of the table, by the value rules: NaN is NULL, -0.0 is 0.0, what the
//! column's type cannot hold rejects the row.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use catalog::{Column, ColumnType};

use crate::error::IngestError;
use crate::format::ReadContext;
use crate::mysql_type;
use crate::row_batch::{RowBatch, travel_type};
use crate::row_errors::{RowErrors, ValueFault};

/// The column type for an Arrow type.
///
/// # Errors
/// A sentence that says why there is none.
pub fn column_type(data_type: &DataType) -> Result<ColumnType, String> {
    use ColumnType as T;
    Ok(match data_type {
        DataType::Boolean => T::Boolean,
        DataType::Int8 => T::Int8,
        DataType::Int16 => T::Int16,
        DataType::Int32 => T::Int32,
        DataType::Int64 => T::Int64,
        DataType::UInt8 => T::UInt8,
        DataType::UInt16 => T::UInt16,
        DataType::UInt32 => T::UInt32,
        DataType::UInt64 => T::UInt64,
        DataType::Float16 | DataType::Float32 => T::Float32,
        DataType::Float64 => T::Float64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => T::Text,
        DataType::Time32(_) | DataType::Time64(_) | DataType::Null => T::Text,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => T::Binary,
        DataType::Date32 | DataType::Date64 => T::Date,
        DataType::Timestamp(..) => T::Timestamp,
        DataType::Dictionary(_, values) => return column_type(values),
        DataType::RunEndEncoded(_, values) => return column_type(values.data_type()),
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => {
            return decimal(*p, *s);
        }
        other => {
            return Err(format!(
                "is {}: a table holds plain values only; leave the column out",
                several_values(other)
            ));
        }
    })
}

/// How an option of the command line does what the sentence of [`column_type`] says.
pub(crate) fn way_out(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => ", as by declaring it so in a --schema",
        _ => " by giving --schema",
    }
}

/// A type whose values are no plain ones, in words.
fn several_values(data_type: &DataType) -> String {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => {
            format!("a list of {}", elements(element.data_type()))
        }
        DataType::FixedSizeList(element, length) => {
            format!("a list of {length} {}", elements(element.data_type()))
        }
        DataType::Struct(_) => "a structure".to_owned(),
        DataType::Map(..) => "a map".to_owned(),
        DataType::Union(..) => "a union".to_owned(),
        DataType::Duration(_) | DataType::Interval(_) => "a span of time".to_owned(),
        _ => "of a type that tables do not have".to_owned(),
    }
}

/// Several values of a type, in words: `INT`, `lists of INT`.
fn elements(data_type: &DataType) -> String {
    match column_type(data_type) {
        Ok(ty) => mysql_type::shown(ty),
        Err(_) => match several_values(data_type).strip_prefix("a ") {
            Some(words) => match words.split_once(' ') {
                Some((kind, rest)) => format!("{kind}s {rest}"),
                None => format!("{words}s"),
            },
            None => "values of other types".to_owned(),
        },
    }
}

fn decimal(precision: u8, scale: i8) -> Result<ColumnType, String> {
    match u8::try_from(scale) {
        Ok(scale) if (1..=38).contains(&precision) && scale <= precision => {
            Ok(ColumnType::Decimal { precision, scale })
        }
        _ => Err(format!(
            "is a DECIMAL({precision},{scale}), which cannot be kept exactly: make it a DOUBLE"
        )),
    }
}

/// Turns columns as a file has them (`None`: it has not) into rows of the table; rows that do not fit are rejected.
pub(crate) fn to_rows(
    arrays: &[Option<ArrayRef>],
    rows: Vec<u64>,
    context: &ReadContext,
) -> Result<RowBatch, IngestError> {
    let mut row_errors = RowErrors::new(context, &rows);
    let mut columns = Vec::with_capacity(arrays.len());
    for (column, array) in context.columns.iter().zip(arrays) {
        let array = match array {
            Some(array) => normalise(array, column, &mut row_errors)?,
            None => new_null_array(&travel_type(column.ty), rows.len()),
        };
        reject_nulls(&array, column, &mut row_errors);
        columns.push(array);
    }
    let keep = row_errors.into_keep();
    let columns = RecordBatch::try_new(context.schema.clone(), columns)?;
    RowBatch { columns, rows }.filter(&keep)
}

fn normalise(
    array: &ArrayRef,
    column: &Column,
    row_errors: &mut RowErrors<'_>,
) -> Result<ArrayRef, IngestError> {
    let wanted = travel_type(column.ty);
    let array = if *array.data_type() == wanted {
        array.clone()
    } else {
        converted(array, &wanted, column, row_errors)?
    };
    Ok(match array.data_type() {
        DataType::Float32 => clean_floats::<Float32Type>(&array, |v| v.is_nan(), |v| v + 0.0),
        DataType::Float64 => clean_floats::<Float64Type>(&array, |v| v.is_nan(), |v| v + 0.0),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            reject_far_times(&array, column, row_errors);
            array
        }
        _ => array,
    })
}

/// Casts; a value that becomes NULL by that is rejected.
fn converted(
    array: &ArrayRef,
    wanted: &DataType,
    column: &Column,
    row_errors: &mut RowErrors<'_>,
) -> Result<ArrayRef, IngestError> {
    let array = &unwrapped(array, wanted)?;
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let cast_array = cast_with_options(array, wanted, &options)?;
    if cast_array.null_count() > array.logical_null_count() || loses_fractions(array, wanted) {
        let lossless = |row: usize| is_same_number(array, &cast_array, row);
        let nulls = array.logical_nulls();
        let was_null = |row: usize| nulls.as_ref().is_some_and(|n| n.is_null(row));
        let fault = match array.data_type().is_string() {
            true => ValueFault::NotOfType,
            false => ValueFault::OutOfRange,
        };
        for row in (0..array.len()).filter(|row| !was_null(*row)) {
            if cast_array.is_null(row) || !lossless(row) {
                let shown = shown_value(array, row)?;
                row_errors.reject_value(row, column, shown.as_bytes(), fault);
            }
        }
    }
    Ok(cast_array)
}

/// The times, in microseconds since 1970, that chunk files can hold: from -9999-01-02 01:59:59 to 9999-12-30 22:00:00, as
/// Vortex's do.
pub(crate) const TIMES: RangeInclusive<i64> = -377_705_023_201_000_000..=253_402_207_200_999_999;

fn reject_far_times(array: &ArrayRef, column: &Column, row_errors: &mut RowErrors<'_>) {
    let times = array.as_primitive::<TimestampMicrosecondType>();
    if times.values().iter().all(|time| TIMES.contains(time)) {
        return;
    }
    for (row, time) in times.iter().enumerate() {
        if let Some(time) = time.filter(|time| !TIMES.contains(time)) {
            // One so far off that it has no name is shown as its number.
            let shown = shown_value(array, row).unwrap_or_else(|_| time.to_string());
            row_errors.reject_value(row, column, shown.as_bytes(), ValueFault::OutOfRange);
        }
    }
}

/// Dictionaries, run-ends and views as plain arrays; times with a zone as times in UTC.
fn unwrapped(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, IngestError> {
    Ok(match array.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone)
            if zone.is_some() || matches!(wanted, DataType::Timestamp(..)) =>
        {
            whole_microseconds(array)
        }
        DataType::Dictionary(_, values) => cast(array, values)?,
        DataType::RunEndEncoded(_, values) => cast(array, values.data_type())?,
        DataType::Timestamp(unit, Some(_)) => {
            // Seen as UTC first: a cast straight to "no zone" would give local times.
            let utc = cast(array, &DataType::Timestamp(*unit, Some("+00:00".into())))?;
            cast(&utc, &DataType::Timestamp(TimeUnit::Microsecond, None))?
        }
        DataType::Date64 => cast(array, &DataType::Date32)?,
        _ => array.clone(),
    })
}

/// Times in nanoseconds as the microseconds in which they are, as the digits of a text are cut: a cast would round those before 1970 up.
fn whole_microseconds(array: &ArrayRef) -> ArrayRef {
    let nanoseconds = array.as_primitive::<TimestampNanosecondType>();
    let floored = |time: i64| time.div_euclid(1000);
    Arc::new(nanoseconds.unary::<_, TimestampMicrosecondType>(floored))
}

fn loses_fractions(array: &ArrayRef, wanted: &DataType) -> bool {
    array.data_type().is_floating() && wanted.is_integer()
}

/// Whether an integer made of a float is still the same number; true where there is nothing to compare.
fn is_same_number(array: &ArrayRef, cast_array: &ArrayRef, row: usize) -> bool {
    if !loses_fractions(array, cast_array.data_type()) {
        return true;
    }
    let back = cast(&cast_array.slice(row, 1), array.data_type());
    back.is_ok_and(|back| back.to_data() == array.slice(row, 1).to_data())
}

fn shown_value(array: &ArrayRef, row: usize) -> Result<String, IngestError> {
    let options = FormatOptions::default();
    Ok(ArrayFormatter::try_new(array, &options)?
        .value(row)
        .to_string())
}

/// NaN to NULL, -0.0 to 0.0. A column without NaN keeps its nulls as they are.
fn clean_floats<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    is_nan: impl Fn(T::Native) -> bool,
    positive_zero: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let floats = array.as_primitive::<T>();
    let has_nan = floats.values().iter().any(|v| is_nan(*v));
    if has_nan {
        let cleaned: PrimitiveArray<T> =
            floats.unary_opt::<_, T>(|v| (!is_nan(v)).then(|| positive_zero(v)));
        return Arc::new(cleaned);
    }
    Arc::new(floats.unary::<_, T>(positive_zero))
}

fn reject_nulls(array: &ArrayRef, column: &Column, row_errors: &mut RowErrors<'_>) {
    if column.nullable || array.null_count() == 0 {
        return;
    }
    for row in (0..array.len()).filter(|row| array.is_null(*row)) {
        row_errors.reject_null(row, column);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, TimestampNanosecondArray};
    use arrow::datatypes::{Field, Fields, IntervalUnit};

    use super::*;

    /// Rust's names of types were told.
    #[test]
    fn types_that_tables_do_not_have_are_told_in_words() {
        let list = |of: DataType| DataType::new_list(of, true);
        let pair = |of: DataType| DataType::FixedSizeList(Arc::new(Field::new("x", of, true)), 2);
        let fields = Fields::from(vec![Field::new("a", DataType::Int64, true)]);
        for (data_type, words) in [
            (list(DataType::Int32), "is a list of INT:"),
            (pair(DataType::Float64), "is a list of 2 DOUBLE:"),
            (list(list(DataType::Utf8)), "is a list of lists of TEXT:"),
            (
                list(pair(DataType::Int16)),
                "is a list of lists of 2 SMALLINT:",
            ),
            (DataType::Struct(fields.clone()), "is a structure:"),
            (list(DataType::Struct(fields)), "is a list of structures:"),
            (
                DataType::Interval(IntervalUnit::YearMonth),
                "is a span of time:",
            ),
            (
                list(DataType::Duration(TimeUnit::Second)),
                "is a list of spans of time:",
            ),
            (DataType::Decimal256(76, 2), "is a DECIMAL(76,2), which"),
        ] {
            let told = column_type(&data_type).unwrap_err();
            assert!(told.starts_with(words) && !told.contains("--"), "{told}");
        }
    }

    /// Times before 1970 were rounded up, and others down.
    #[test]
    fn nanoseconds_are_cut_to_the_microsecond_before_them() {
        let times = vec![-1500, -1000, -1, 0, 999, 1999];
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let expected = Int64Array::from(vec![-2, -1, -1, 0, 0, 1]);
        for zone in [None, Some("+02:00")] {
            let mut array = TimestampNanosecondArray::from(times.clone());
            if let Some(zone) = zone {
                array = array.with_timezone(zone);
            }
            let array: ArrayRef = Arc::new(array);
            let found = unwrapped(&array, &micros).unwrap();
            assert_eq!(*found.data_type(), micros);
            let found = cast(&found, &DataType::Int64).unwrap();
            assert_eq!(found.as_ref(), &expected as &dyn Array);
        }
        // A text has them all.
        let array: ArrayRef = Arc::new(TimestampNanosecondArray::from(times));
        let kept = unwrapped(&array, &DataType::Utf8).unwrap();
        assert_eq!(kept.data_type(), array.data_type());
    }
}
