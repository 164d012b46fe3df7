//! Comma- and tab-separated values (RFC 4180, but that lines end with a line feed alone).

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use result_formats::nested;

use super::columns::TableColumn;

/// Appends the line of names.
pub(super) fn begin(delimiter: u8, columns: &[TableColumn], out: &mut Vec<u8>) {
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(delimiter);
        }
        put_name(delimiter, &column.name, out);
    }
    out.push(b'\n');
}

/// Names are quoted where they could be misread.
fn put_name(delimiter: u8, name: &str, out: &mut Vec<u8>) {
    let special = |c: char| c == char::from(delimiter) || matches!(c, '"' | '\n' | '\r');
    if name.contains(special) {
        out.extend_from_slice(format!("\"{}\"", name.replace('"', "\"\"")).as_bytes());
    } else {
        out.extend_from_slice(name.as_bytes());
    }
}

/// Appends rows; NULL is an empty field.
pub(super) fn rows(
    delimiter: u8,
    columns: &[TableColumn],
    batch: &RecordBatch,
    out: &mut Vec<u8>,
) -> Result<(), ArrowError> {
    debug_assert_eq!(columns.len(), batch.num_columns());
    let builder = WriterBuilder::new()
        .with_header(false)
        .with_delimiter(delimiter);
    // Lists are texts.
    let flat = (batch.columns().iter())
        .map(nested::flat)
        .collect::<Result<Vec<_>, _>>()?;
    let fields = (batch.schema().fields().iter().zip(&flat))
        .map(|(field, array)| Field::new(field.name(), array.data_type().clone(), true))
        .collect::<Vec<_>>();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    let flat = RecordBatch::try_new_with_options(schema, flat, &options)?;
    builder.build(out).write(&flat)
}
