//! JSON: `{"metadata": [{"name": ..., "datatype": ..., ...}, ...], "data": [[...], ...]}`, as archives' TAP services write it.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};
use serde_json::{Map, Value};

use super::TableEnd;
use super::columns::TableColumn;

/// Words that are null where a column has none: astroquery ends with an error where they are not there.
const ALWAYS_TOLD: [&str; 2] = ["unit", "description"];

/// Appends everything before the rows.
pub(super) fn begin(columns: &[TableColumn], out: &mut Vec<u8>) {
    let described: Vec<Value> = columns.iter().map(described).collect();
    out.extend_from_slice(b"{\"metadata\": ");
    out.extend_from_slice(Value::Array(described).to_string().as_bytes());
    out.extend_from_slice(b",\n\"data\": [");
}

fn described(column: &TableColumn) -> Value {
    let array = column.form.array_size();
    let words = [
        ("name", Some(column.name.as_str())),
        ("datatype", Some(column.form.datatype())),
        ("arraysize", array.as_deref()),
        ("xtype", column.xtype.as_deref()),
        ("ucd", column.ucd.as_deref()),
        ("unit", column.unit.as_deref()),
        ("utype", column.utype.as_deref()),
        ("description", column.description.as_deref()),
    ];
    let told = words.into_iter().filter_map(|(name, word)| match word {
        None if !ALWAYS_TOLD.contains(&name) => None,
        word => Some((name.to_owned(), word.into())),
    });
    Value::Object(told.collect::<Map<_, _>>())
}

/// Appends rows. Values have the forms of VOTable, so that a key is a text, which no reader rounds.
pub(super) fn rows(
    columns: &[TableColumn],
    batch: &RecordBatch,
    first: bool,
    out: &mut Vec<u8>,
) -> Result<(), ArrowError> {
    let arrays = super::votable::in_form(columns, batch)?;
    let options = EncoderOptions::default();
    let fields: Vec<_> = columns.iter().map(TableColumn::arrow_field).collect();
    let mut encoders = fields
        .iter()
        .zip(&arrays)
        .map(|(field, array)| make_encoder(field, array.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        out.extend_from_slice(if first && row == 0 { b"\n[" } else { b",\n[" });
        for (at, encoder) in encoders.iter_mut().enumerate() {
            if at > 0 {
                out.extend_from_slice(b", ");
            }
            if encoder.is_null(row) {
                out.extend_from_slice(b"null");
            } else {
                encoder.encode(row, out);
            }
        }
        out.push(b']');
    }
    Ok(())
}

/// Appends everything after the rows; of a table that failed nothing, so that it cannot be taken for a whole one.
pub(super) fn end(ending: TableEnd<'_>, out: &mut Vec<u8>) {
    match ending {
        TableEnd::Whole => out.extend_from_slice(b"\n]}\n"),
        TableEnd::Overflow => out.extend_from_slice(b"\n],\n\"overflow\": true}\n"),
        TableEnd::Failed(_) => {}
    }
}
