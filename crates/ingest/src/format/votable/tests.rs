//! Documents as clients write them, and broken ones.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use crate::{FileFormat, RowFile};

const FIELDS: &str = r#"<FIELD name="id" datatype="long"/>
<FIELD name="RA" datatype="double" ucd="pos.eq.ra;meta.main" unit="deg"/>
<FIELD name="DEC" datatype="double" ucd="POS.EQ.DEC; META.MAIN"/>
<FIELD name="n" datatype="short"><VALUES null="-99"/></FIELD>
<FIELD name="mag" datatype="float"/>
<FIELD name="ok" datatype="boolean"/>
<FIELD name="name" datatype="char" arraysize="*"/>
<FIELD name="pair" datatype="int" arraysize="2"/>"#;

fn document(data: &str) -> String {
    format!(
        r#"<?xml version="1.0"?>
<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">
<!-- a comment -->
<RESOURCE type="results"><INFO name="QUERY_STATUS" value="OK"/><TABLE name="t">
{FIELDS}
<DATA>{data}</DATA></TABLE></RESOURCE></VOTABLE>"#
    )
}

const TABLEDATA: &str = "<TABLEDATA>
<TR><TD>1</TD><TD>10.5</TD><TD>-2e0</TD><TD>-99</TD><TD>NaN</TD><TD>T</TD><TD>a &lt; b &#38; &amp;</TD><TD>1 2</TD></TR>
<TR><TD>9223372036854775807</TD><TD/><TD></TD><TD>7</TD><TD>1.5</TD><TD>?</TD><TD/><TD><![CDATA[3 4]]></TD></TR>
</TABLEDATA>";

/// What both rows are, NULL as nothing.
const ROWS: [&str; 2] = [
    "1|10.5|-2.0|||true|a < b & &|1 2",
    "9223372036854775807|||7|1.5|||3 4",
];

fn rows_of(document: &str) -> Result<Vec<String>, String> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("t.vot");
    std::fs::write(&path, document).unwrap();
    let short = |error: crate::IngestError| {
        let told = error.to_string();
        told.replace(&format!("{}", dir.path().display()), "")
    };
    let file = RowFile::open(&path, FileFormat::VoTable).map_err(short)?;
    assert_eq!(file.position(), Some(["RA".into(), "DEC".into()]));
    let all: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut rows = Vec::new();
    for batch in file.rows(&all).map_err(short)? {
        rows.extend(texts(&batch.map_err(short)?));
    }
    Ok(rows)
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let cell =
        |column: usize, row: usize| array_value_to_string(batch.column(column), row).unwrap();
    let row = |row: usize| {
        let cells: Vec<String> = (0..batch.num_columns()).map(|c| cell(c, row)).collect();
        cells.join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}

/// The rows as bytes; with flags for NULL before each in the second version.
fn bytes(flagged: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut row = |flags: u8,
                   id: i64,
                   ra: f64,
                   dec: f64,
                   n: i16,
                   mag: f32,
                   ok: u8,
                   name: &str,
                   pair: [i32; 2]| {
        if flagged {
            bytes.push(flags);
        }
        bytes.extend(id.to_be_bytes());
        bytes.extend(ra.to_be_bytes());
        bytes.extend(dec.to_be_bytes());
        bytes.extend(n.to_be_bytes());
        bytes.extend(mag.to_be_bytes());
        bytes.push(ok);
        bytes.extend((name.len() as u32).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(pair.map(i32::to_be_bytes).concat());
    };
    row(0, 1, 10.5, -2.0, -99, f32::NAN, b'T', "a < b & &", [1, 2]);
    // In the second version the flags say what NaN says in the first.
    let (flags, missing) = if flagged {
        (0b0110_0000, 0.0)
    } else {
        (0, f64::NAN)
    };
    row(flags, i64::MAX, missing, missing, 7, 1.5, b'?', "", [3, 4]);
    bytes
}

fn stream(element: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    // In lines, as most write it.
    let lines: Vec<&str> = (0..text.len())
        .step_by(20)
        .map(|at| &text[at..(at + 20).min(text.len())])
        .collect();
    let lines = lines.join("\n  ");
    document(&format!(
        "<{element}><STREAM encoding='base64'>\n  {lines}\n</STREAM></{element}>"
    ))
}

#[test]
fn all_ways_of_writing_rows_give_the_same() {
    assert_eq!(rows_of(&document(TABLEDATA)).unwrap(), ROWS);
    assert_eq!(rows_of(&stream("BINARY", &bytes(false))).unwrap(), ROWS);
    assert_eq!(rows_of(&stream("BINARY2", &bytes(true))).unwrap(), ROWS);
    let prefixed = document(TABLEDATA)
        .replace("</", "</v:")
        .replace("<FIELD", "<v:FIELD");
    let prefixed = [
        "VOTABLE",
        "RESOURCE",
        "INFO",
        "TABLEDATA",
        "DATA",
        "TABLE ",
        "TR>",
        "TD>",
        "TD/>",
        "VALUES",
    ]
    .iter()
    .fold(prefixed, |text, tag| {
        text.replace(&format!("<{tag}"), &format!("<v:{tag}"))
    });
    assert_eq!(rows_of(&prefixed).unwrap(), ROWS);
}

#[test]
fn a_table_without_rows_has_columns() {
    assert_eq!(rows_of(&document("<TABLEDATA/>")).unwrap(), [""; 0]);
    assert_eq!(rows_of(&stream("BINARY2", &[])).unwrap(), [""; 0]);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let cut = |text: String, at: &str| text[..text.find(at).unwrap()].to_owned();
    for (document, told) in [
        (
            document(&TABLEDATA.replace("10.5", "10;5")),
            "/t.vot:14: \"10;5\" in the column RA is no value of its type",
        ),
        (
            document(&TABLEDATA.replace("<TD><![CDATA[3 4]]></TD>", "")),
            "/t.vot:15: a row has 7 cells in place of 8",
        ),
        (
            document(&TABLEDATA.replace("</TR>\n</TABLE", "<TD/></TR></TABLE")),
            "/t.vot:15: a row has more cells",
        ),
        (
            document(&TABLEDATA.replace("&lt;", "&nix;")),
            "there is no character &nix;",
        ),
        (
            cut(document(TABLEDATA), "</TABLEDATA"),
            "middle of the table",
        ),
        (
            document("<FITS><STREAM href='x.fits'/></FITS>"),
            "its rows are a FITS file",
        ),
        (
            document("<BINARY><STREAM href='x.bin'/></BINARY>"),
            "in another file",
        ),
        (document(""), "has no VOTable with rows in it"),
        (
            stream("BINARY2", &bytes(true)[..40]),
            "/t.vot: row 1: the table ends in the middle of it",
        ),
        (
            document("<BINARY><STREAM encoding='base64'>AAAA!AAA</STREAM></BINARY>"),
            "row 1: its bytes cannot be read",
        ),
        (
            document(TABLEDATA).replace("datatype=\"short\"", "datatype=\"tiny\""),
            "the column n is of the datatype \"tiny\"",
        ),
    ] {
        let error = rows_of(&document).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    let missing = RowFile::open(Path::new("/nowhere/t.vot"), FileFormat::VoTable);
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("there is no file")
    );
}
