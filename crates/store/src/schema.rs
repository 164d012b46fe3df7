//! The Arrow types in which the columns of a table are stored and read.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use catalog::{Column, ColumnType};

/// The Arrow schema of a table with these columns, in this order: text and bytes as views, dates as
/// days, timestamps as microseconds without a time zone.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    let fields = columns
        .iter()
        .map(|column| Field::new(&column.name, arrow_type(column.ty), column.nullable))
        .collect::<Vec<_>>();
    Arc::new(Schema::new(fields))
}

/// The numbers of a table's columns in a file of its rows, for a scan. A file from before the table had its last columns has those that were
/// there then: the others follow them, and are NULL in all of its rows.
///
/// # Errors
/// The file lacks a column that is not behind all of those that it has.
pub fn numbers_in_file(table: &Schema, file: &Schema) -> Result<Vec<usize>, ArrowError> {
    let own = file.fields().len();
    let columns = table.fields().iter().enumerate();
    let number = |(at, field): (usize, &Arc<Field>)| match file.index_of(field.name()) {
        Err(_) if at >= own => Ok(at),
        found => found,
    };
    columns.map(number).collect()
}

fn arrow_type(ty: ColumnType) -> DataType {
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
        ColumnType::Text => DataType::Utf8View,
        ColumnType::Binary => DataType::BinaryView,
        // Precision is at most 38 and scale at most the precision, so the scale fits.
        ColumnType::Decimal { precision, scale } => {
            DataType::Decimal128(precision, i8::try_from(scale).unwrap_or(i8::MAX))
        }
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_and_nullability_are_kept() {
        let column = |name: &str, ty, nullable| Column {
            name: name.to_owned(),
            ty,
            nullable,
            declared: None,
        };
        let schema = arrow_schema(&[
            column("objectId", ColumnType::Int64, false),
            column("note", ColumnType::Text, true),
            column(
                "price",
                ColumnType::Decimal {
                    precision: 10,
                    scale: 2,
                },
                true,
            ),
        ]);
        assert_eq!(
            schema.field(0),
            &Field::new("objectId", DataType::Int64, false)
        );
        assert_eq!(
            schema.field(1),
            &Field::new("note", DataType::Utf8View, true)
        );
        assert_eq!(
            schema.field(2),
            &Field::new("price", DataType::Decimal128(10, 2), true)
        );
    }
}
