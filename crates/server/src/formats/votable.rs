//! VOTable: what stands around the values, values as elements of XML, and documents without a table.
//!
//! Source: VOTable 1.4 (Ochsenbein et al., IVOA Recommendation 2019); DALI 1.1, section 4.4, for `QUERY_STATUS`; Simple Cone
//! Search 1.03 for `Error`.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::Float64Type;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use result_formats::{FieldElement, attribute, escaped, nested};

use super::columns::{ItemForm, Role, TableColumn, ValueForm};
use super::{Format, TableEnd};

const HEAD: &str = concat!(
    r#"<?xml version="1.0" encoding="UTF-8"?>"#,
    "\n",
    r#"<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">"#,
    "\n"
);
const FOOT: &str = "</VOTABLE>\n";

/// Appends everything before the values.
pub(super) fn begin(
    format: Format,
    table: &str,
    columns: &[TableColumn],
    warnings: &[String],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(HEAD.as_bytes());
    let with_positions = columns
        .iter()
        .any(|column| column.role == Role::RightAscension);
    out.extend_from_slice(
        b"<RESOURCE type=\"results\">\n<INFO name=\"QUERY_STATUS\" value=\"OK\"/>\n",
    );
    for warning in warnings {
        out.extend_from_slice(b"<INFO name=\"warning\"");
        attribute("value", warning, out);
        out.extend_from_slice(b"/>\n");
    }
    if with_positions {
        out.extend_from_slice(b"<COOSYS ID=\"icrs\" system=\"ICRS\"/>\n");
    }
    out.extend_from_slice(b"<TABLE");
    attribute("name", table, out);
    out.extend_from_slice(b">\n");
    for column in columns {
        field(column, out);
    }
    out.extend_from_slice(match format {
        Format::TableData => b"<DATA><TABLEDATA>\n".as_slice(),
        _ => b"<DATA><BINARY2><STREAM encoding=\"base64\">\n".as_slice(),
    });
}

fn field(column: &TableColumn, out: &mut Vec<u8>) {
    FieldElement {
        name: &column.name,
        form: column.form,
        xtype: column.xtype.as_deref(),
        ucd: column.ucd.as_deref(),
        utype: column.utype.as_deref(),
        unit: column.unit.as_deref(),
        reference: in_system(column.role).then_some("icrs"),
        description: column.description.as_deref(),
    }
    .write(out);
}

fn in_system(role: Role) -> bool {
    matches!(role, Role::RightAscension | Role::Declination)
}

/// Appends everything after the values.
pub(super) fn end(format: Format, ending: TableEnd<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(match format {
        Format::TableData => b"</TABLEDATA></DATA>\n</TABLE>\n".as_slice(),
        _ => b"\n</STREAM></BINARY2></DATA>\n</TABLE>\n".as_slice(),
    });
    match ending {
        TableEnd::Whole => {}
        TableEnd::Overflow => {
            out.extend_from_slice(b"<INFO name=\"QUERY_STATUS\" value=\"OVERFLOW\"/>\n")
        }
        TableEnd::Failed(sentence) => {
            out.extend_from_slice(b"<INFO name=\"QUERY_STATUS\" value=\"ERROR\">");
            out.extend_from_slice(escaped(sentence).as_bytes());
            out.extend_from_slice(b"</INFO>\n");
        }
    }
    out.extend_from_slice(b"</RESOURCE>\n");
    out.extend_from_slice(FOOT.as_bytes());
}

/// A document that says what is wrong, in the ways of Simple Cone Search and of DALI.
pub(crate) fn error_document(sentence: &str) -> Vec<u8> {
    let mut out = HEAD.as_bytes().to_vec();
    out.extend_from_slice(
        b"<RESOURCE type=\"results\">\n<INFO name=\"QUERY_STATUS\" value=\"ERROR\">",
    );
    out.extend_from_slice(escaped(sentence).as_bytes());
    out.extend_from_slice(b"</INFO>\n<INFO name=\"Error\"");
    attribute("value", sentence, &mut out);
    out.extend_from_slice(b"/>\n</RESOURCE>\n");
    out.extend_from_slice(FOOT.as_bytes());
    out
}

/// A document of the columns alone, without rows.
pub(crate) fn metadata_document(table: &str, columns: &[TableColumn]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(Format::TableData, table, columns, &[], &mut out);
    end(Format::TableData, TableEnd::Whole, &mut out);
    out
}

/// The columns of a batch in the Arrow types of their forms.
pub(super) fn in_form(
    columns: &[TableColumn],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let arrays = columns.iter().zip(batch.columns()).map(|(column, array)| {
        if let ValueForm::Numbers(item, _) = column.form {
            return numbers(array, item);
        }
        let wanted = column.form.arrow();
        if *array.data_type() == wanted {
            return Ok(ArrayRef::clone(array));
        }
        cast(&nested::flat(array)?, &wanted)
    });
    arrays.collect()
}

/// Lists of numbers none of which is NULL.
fn numbers(array: &ArrayRef, item: ItemForm) -> Result<ArrayRef, ArrowError> {
    let lists = nested::lists_of(array, item.arrow())?;
    if lists.values().null_count() == 0 {
        return Ok(Arc::new(lists));
    }
    let (item, offsets, values, nulls) = lists.into_parts();
    let values: ArrayRef = match values.as_primitive_opt::<Float64Type>() {
        Some(values) => {
            let numbers = values.iter().map(|value| value.unwrap_or(f64::NAN));
            Arc::new(Float64Array::from_iter_values(numbers))
        }
        None => values,
    };
    Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?))
}

const SHOWN: FormatOptions<'static> = FormatOptions::new();

/// Appends rows as elements of XML. NULL is an empty cell.
pub(super) fn rows(
    columns: &[TableColumn],
    batch: &RecordBatch,
    out: &mut Vec<u8>,
) -> Result<(), ArrowError> {
    let arrays = in_form(columns, batch)?;
    let flat = (arrays.iter())
        .map(nested::flat)
        .collect::<Result<Vec<_>, _>>()?;
    let formatters = flat
        .iter()
        .map(|array| ArrayFormatter::try_new(array, &SHOWN))
        .collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        out.extend_from_slice(b"<TR>");
        for ((column, array), formatter) in columns.iter().zip(&arrays).zip(&formatters) {
            out.extend_from_slice(b"<TD>");
            if array.is_valid(row) {
                cell(column.form, array, formatter, row, out);
            }
            out.extend_from_slice(b"</TD>");
        }
        out.extend_from_slice(b"</TR>\n");
    }
    Ok(())
}

fn cell(
    form: ValueForm,
    array: &ArrayRef,
    formatter: &ArrayFormatter<'_>,
    row: usize,
    out: &mut Vec<u8>,
) {
    match form {
        ValueForm::Unicode | ValueForm::Text | ValueForm::Timestamp => {
            out.extend_from_slice(escaped(array.as_string::<i32>().value(row)).as_bytes());
        }
        ValueForm::Bytes => {
            for (at, byte) in array.as_binary::<i32>().value(row).iter().enumerate() {
                let space = if at == 0 { "" } else { " " };
                // A Vec takes whatever is written.
                let _ = write!(out, "{space}{byte}");
            }
        }
        _ => {
            let begin = out.len();
            let _ = write!(out, "{}", formatter.value(row));
            // Of all numbers infinities alone have the letter; truths do not.
            if out[begin..].contains(&b'i') {
                spell_infinities(begin, out);
            }
        }
    }
}

/// Writes the infinities among the numbers from a byte on as VOTable has them, `+Inf` and `-Inf` (VOTable 1.4, section 6), where
/// they are `inf` and `-inf`.
fn spell_infinities(begin: usize, out: &mut Vec<u8>) {
    let numbers = String::from_utf8_lossy(&out[begin..]).into_owned();
    out.truncate(begin);
    for (at, number) in numbers.split(' ').enumerate() {
        let space = if at == 0 { "" } else { " " };
        let spelled = match number {
            "inf" => "+Inf",
            "-inf" => "-Inf",
            other => other,
        };
        // A Vec takes whatever is written.
        let _ = write!(out, "{space}{spelled}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BooleanArray, FixedSizeListArray, Float32Array, StringArray, UInt64Array,
    };
    use arrow::datatypes::{DataType, Field, Float32Type, Schema};

    use super::*;

    #[test]
    fn values_are_elements() {
        let fields = vec![
            Field::new("big", DataType::UInt64, false),
            Field::new("x", DataType::Float64, true),
            Field::new("text", DataType::Utf8, true),
            Field::new("flag", DataType::Boolean, true),
            Field::new("raw", DataType::Binary, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let columns: Vec<TableColumn> = schema
            .fields()
            .iter()
            .map(|field| TableColumn::new(field, Role::Other))
            .collect();
        let batch = RecordBatch::try_new(
            schema,
            vec![
                Arc::new(UInt64Array::from(vec![u64::MAX, 0])),
                Arc::new(Float64Array::from(vec![Some(1e-300), None])),
                Arc::new(StringArray::from(vec!["a<b & \"c\"\0\r", ""])),
                Arc::new(BooleanArray::from(vec![Some(true), None])),
                Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None])),
            ],
        )
        .unwrap();
        let mut out = Vec::new();
        rows(&columns, &batch, &mut out).unwrap();
        let known = "<TR><TD>18446744073709551615</TD><TD>1e-300</TD><TD>a&lt;b &amp; &quot;c&quot;\u{fffd}&#13;</TD><TD>true</TD>\
                     <TD>0 255</TD></TR>\n<TR><TD>0</TD><TD></TD><TD></TD><TD></TD><TD></TD></TR>\n";
        assert_eq!(String::from_utf8(out).unwrap(), known);
    }

    /// They were written as `inf` and `-inf`, which STILTS read as blanks.
    #[test]
    fn infinities_are_spelled_as_in_the_standard() {
        let singles = Float32Array::from(vec![f32::INFINITY, f32::NEG_INFINITY, 1.5]);
        let doubles = Float64Array::from(vec![f64::NEG_INFINITY, f64::NAN, f64::INFINITY]);
        let points = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(
            [
                Some([Some(f64::INFINITY), Some(-2.5)]),
                Some([None, Some(f64::NEG_INFINITY)]),
                None,
            ],
            2,
        );
        let lists = ListArray::from_iter_primitive::<Float32Type, _, _>([
            Some(vec![Some(f32::NEG_INFINITY), Some(f32::INFINITY), None]),
            Some(vec![]),
            Some(vec![Some(f32::INFINITY)]),
        ]);
        let truths = BooleanArray::from(vec![true, false, true]);
        let texts = StringArray::from(vec!["inf", "-inf", "in"]);
        let arrays: [(&str, ArrayRef); 6] = [
            ("singles", Arc::new(singles)),
            ("doubles", Arc::new(doubles)),
            ("points", Arc::new(points)),
            ("lists", Arc::new(lists)),
            ("truths", Arc::new(truths)),
            ("texts", Arc::new(texts)),
        ];
        let batch = RecordBatch::try_from_iter(arrays).unwrap();
        let columns: Vec<TableColumn> = (batch.schema().fields().iter())
            .map(|field| TableColumn::new(field, Role::Other))
            .collect();
        let mut out = Vec::new();
        rows(&columns, &batch, &mut out).unwrap();
        let row = |cells: [&str; 6]| format!("<TR><TD>{}</TD></TR>\n", cells.join("</TD><TD>"));
        let known = [
            ["+Inf", "-Inf", "+Inf -2.5", "-Inf +Inf NaN", "true", "inf"],
            ["-Inf", "NaN", "NaN -Inf", "", "false", "-inf"],
            ["1.5", "+Inf", "", "+Inf", "true", "in"],
        ];
        assert_eq!(String::from_utf8(out).unwrap(), known.map(row).concat());
    }

    #[test]
    fn an_error_is_said_to_old_and_new_clients() {
        let document = String::from_utf8(error_document("RA \"x\" is < no number")).unwrap();
        let sentence = "RA &quot;x&quot; is &lt; no number";
        assert!(document.contains(&format!("value=\"ERROR\">{sentence}</INFO>")));
        assert!(document.contains(&format!("name=\"Error\" value=\"{sentence}\"/>")));
        assert!(!document.contains("TABLE>\n<"));
    }
}
