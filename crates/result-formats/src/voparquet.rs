//! What the footer of a Parquet file says of its columns besides their types: a VOTable without rows, whose FIELDs are the columns in
//! their order.
//!
//! Source: the convention VOParquet, version 1.0 (IVOA Note "Parquet in the VO"). Where types differ, those of Parquet are meant.

use arrow::datatypes::{Field, Schema};
use parquet::file::metadata::KeyValue;

use crate::field_element::{FieldElement, escaped};
use crate::{ValueForm, attribute};

/// The key of the convention's version.
const VERSION_KEY: &str = "IVOA.VOTable-Parquet.version";
/// The key of the VOTable.
const CONTENT_KEY: &str = "IVOA.VOTable-Parquet.content";
const VERSION: &str = "1.0";

/// A table as its files tell of it.
#[derive(Debug, Clone, Copy)]
pub struct TableWords<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it has, in words.
    pub description: Option<&'a str>,
}

/// The keys and values of the footer of a file with these columns, which have what is said of them in their metadata.
pub fn votable_metadata(table: Option<TableWords<'_>>, schema: &Schema) -> Vec<KeyValue> {
    let content = document(table, schema);
    [(VERSION_KEY, VERSION.to_owned()), (CONTENT_KEY, content)]
        .map(|(key, value)| KeyValue::new(key.to_owned(), value))
        .to_vec()
}

fn document(table: Option<TableWords<'_>>, schema: &Schema) -> String {
    let mut out = br#"<?xml version="1.0" encoding="UTF-8"?>
<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">
<RESOURCE>
<TABLE"#
        .to_vec();
    if let Some(table) = table {
        attribute("name", table.name, &mut out);
    }
    out.extend_from_slice(b">\n");
    if let Some(description) = table.and_then(|table| table.description) {
        out.extend_from_slice(b"<DESCRIPTION>");
        out.extend_from_slice(escaped(description).as_bytes());
        out.extend_from_slice(b"</DESCRIPTION>\n");
    }
    for field in schema.fields() {
        element(field).write(&mut out);
    }
    out.extend_from_slice(b"</TABLE>\n</RESOURCE>\n</VOTABLE>\n");
    String::from_utf8_lossy(&out).into_owned()
}

fn element(field: &Field) -> FieldElement<'_> {
    let word = |name: &str| field.metadata().get(name).map(String::as_str);
    let form = ValueForm::of(field.data_type());
    FieldElement {
        name: field.name(),
        form,
        xtype: form.xtype().or_else(|| word("xtype")),
        ucd: word("ucd"),
        utype: word("utype"),
        unit: word("unit"),
        reference: None,
        description: word("description"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, TimeUnit};

    use super::*;

    #[test]
    fn columns_are_fields_with_what_is_said_of_them() {
        let said = [
            ("unit", "deg"),
            ("ucd", "pos.eq.ra;meta.main"),
            ("description", "a < b & c"),
            ("table", "Star"),
        ];
        let said = said.map(|(word, text)| (word.to_owned(), text.to_owned()));
        let schema = Schema::new(vec![
            Field::new("ra", DataType::Float64, true).with_metadata(said.into()),
            Field::new(
                "seen",
                DataType::Timestamp(TimeUnit::Microsecond, None),
                true,
            ),
            Field::new("\"q\"", DataType::Utf8, true),
        ]);
        let table = TableWords {
            name: "Star",
            description: Some("stars > 1"),
        };
        let document = document(Some(table), &schema);
        let known = [
            "<TABLE name=\"Star\">\n<DESCRIPTION>stars &gt; 1</DESCRIPTION>\n",
            "<FIELD name=\"ra\" datatype=\"double\" ucd=\"pos.eq.ra;meta.main\" unit=\"deg\"><DESCRIPTION>a &lt; b &amp; c</DESCRIPTION></FIELD>\n",
            "<FIELD name=\"seen\" datatype=\"char\" arraysize=\"*\" xtype=\"timestamp\"/>\n",
            "<FIELD name=\"&quot;q&quot;\" datatype=\"unicodeChar\" arraysize=\"*\"/>\n</TABLE>",
        ];
        assert!(document.contains(&known.concat()), "{document}");
    }
}
