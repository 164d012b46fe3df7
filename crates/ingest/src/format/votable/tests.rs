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
    let (file, rows) = table_of(document.as_bytes())?;
    assert_eq!(file.position(), Some(["RA".into(), "DEC".into()]));
    Ok(rows)
}

/// A document, and its rows.
fn table_of(document: &[u8]) -> Result<(RowFile, Vec<String>), String> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("t.vot");
    std::fs::write(&path, document).unwrap();
    let short = |error: crate::IngestError| {
        let told = error.to_string();
        told.replace(&format!("{}", dir.path().display()), "")
    };
    let file = RowFile::open(&path, FileFormat::VoTable).map_err(short)?;
    let all: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut rows = Vec::new();
    for batch in file.rows(&all).map_err(short)? {
        rows.extend(texts(&batch.map_err(short)?));
    }
    Ok((file, rows))
}

/// A document of some fields.
fn with_fields(fields: &str, data: &str) -> String {
    document(data).replace(FIELDS, fields)
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
    // Nor need it have a place for rows.
    assert_eq!(rows_of(&document("")).unwrap(), [""; 0]);
    let described = document("").replace("<DATA></DATA>", "");
    assert_eq!(rows_of(&described).unwrap(), [""; 0]);
}

/// A document in UTF-16 was taken for CSV, and one in ISO-8859-1 had other characters.
#[test]
fn documents_are_read_in_the_encoding_that_they_declare() {
    let declared = |name: &str| {
        let document = document(TABLEDATA).replace("a &lt; b", "\u{e9}");
        let declaration = format!("<?xml version=\"1.0\" encoding='{name}'?>");
        document.replace("<?xml version=\"1.0\"?>", &declaration)
    };
    let latin1 = |text: &str| -> Vec<u8> { text.chars().map(|c| c as u8).collect() };
    let utf16 = |text: &str, unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let marked = format!("\u{feff}{text}");
        marked.encode_utf16().flat_map(unit).collect()
    };
    let rows = [ROWS[0].replace("a < b", "\u{e9}"), ROWS[1].to_owned()];
    for document in [
        declared("UTF-8").into_bytes(),
        latin1(&declared("ISO-8859-1")),
        latin1(&declared("windows-1252")),
        utf16(&declared("UTF-16"), u16::to_le_bytes),
        utf16(&declared("UTF-16"), u16::to_be_bytes),
        // What is no UTF-8, though the document says so, is taken as Latin-1.
        latin1(&declared("UTF-8")),
        latin1(&declared("US-ASCII")),
    ] {
        assert_eq!(table_of(&document).unwrap().1, rows);
    }
    let told = table_of(declared("EUC-JP").as_bytes()).unwrap_err();
    assert!(told.contains("the encoding \"EUC-JP\""), "{told}");
    let mut cut = utf16(&declared("UTF-16"), u16::to_le_bytes);
    cut.truncate(cut.len() - 301);
    let told = table_of(&cut).unwrap_err();
    assert!(told.contains("no characters of UTF-16LE"), "{told}");
    // Lines are counted in characters, too.
    let wrong = utf16(&declared("UTF-16").replace("10.5", "x"), u16::to_be_bytes);
    let told = table_of(&wrong).unwrap_err();
    assert!(told.starts_with("/t.vot:14: row 1: "), "{told}");
}

const SEEN: &str = "<FIELD name='seen' datatype='char' arraysize='*' xtype='timestamp'/>";

/// Columns of times stayed texts, which no time compares with.
#[test]
fn texts_with_the_xtype_of_times_are_times() {
    let cells = |cells: &[&str]| {
        let rows: String = { cells.iter() }
            .map(|cell| format!("<TR><TD>{cell}</TD></TR>\n"))
            .collect();
        format!("<TABLEDATA>\n{rows}</TABLEDATA>")
    };
    let times = [
        "2026-11-20T08:00:00",
        "2026-11-20T08:00:00.25Z",
        " 2026-11-20 ",
        "",
    ];
    let rows = [
        "2026-11-20T08:00:00",
        "2026-11-20T08:00:00.250",
        "2026-11-20T00:00:00",
        "",
    ];
    for fields in [
        SEEN.to_owned(),
        SEEN.replace("timestamp", "adql:TIMESTAMP"),
        SEEN.replace("'char'", "'unicodeChar'"),
    ] {
        let (file, found) = table_of(with_fields(&fields, &cells(&times)).as_bytes()).unwrap();
        assert_eq!(found, rows);
        assert_eq!(file.described(0).unwrap().xtype, "timestamp");
    }
    let text = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let binary = |texts: &[&str]| {
        let bytes: Vec<u8> = texts.iter().flat_map(|it| text(it)).collect();
        let stream = STANDARD.encode(bytes);
        format!("<BINARY><STREAM encoding='base64'>{stream}</STREAM></BINARY>")
    };
    let found = table_of(with_fields(SEEN, &binary(&times)).as_bytes());
    assert_eq!(found.unwrap().1, rows);
    for (data, place) in [
        (cells(&["", "yesterday"]), "/t.vot:8: row 2: "),
        (binary(&["", "yesterday"]), "/t.vot: row 2: "),
    ] {
        let told = table_of(with_fields(SEEN, &data).as_bytes()).unwrap_err();
        let sentence = format!("{place}\"yesterday\" in the column seen is no time");
        assert!(told.starts_with(&sentence), "{told}");
    }
    // Several texts in a cell are no times.
    let several = SEEN.replace("'*'", "'10x2'");
    let found = table_of(with_fields(&several, &cells(&["yesterday"])).as_bytes());
    assert_eq!(found.unwrap().1, ["yesterday"]);
}

/// A single bit was read from another place than astropy writes it in, and arrays were not the same in every serialization.
#[test]
fn bits_are_read_from_every_serialization() {
    const BITS: &str = "<FIELD name='one' datatype='bit'/><FIELD name='few' datatype='bit' arraysize='11'/>\
                        <FIELD name='many' datatype='bit' arraysize='*'/>";
    let rows = [
        "true|1 0 1 1 0 0 0 0 1 1 1|1 0 1",
        "false|0 0 0 0 0 0 0 0 0 0 1|",
    ];
    let cells = "<TABLEDATA><TR><TD>1</TD><TD>10110000111</TD><TD>1 0 1</TD></TR>\
                 <TR><TD>0</TD><TD>0 0 0 0 0 0 0 0 0 0 1</TD><TD/></TR></TABLEDATA>";
    let row = |flags: &[u8], one: u8| {
        let first = [
            &[one, 0b1011_0000, 0b1110_0000, 0, 0, 0, 3][..],
            &[0b1010_0000],
        ];
        let second = [&[0, 0, 0b0010_0000][..], &[0, 0, 0, 0]];
        [flags, &first.concat(), flags, &second.concat()].concat()
    };
    let binary = |element: &str, bytes: &[u8]| {
        let stream = STANDARD.encode(bytes);
        format!("<{element}><STREAM encoding='base64'>{stream}</STREAM></{element}>")
    };
    for data in [
        cells.to_owned(),
        binary("BINARY", &row(&[], 0x80)),
        binary("BINARY2", &row(&[0], 0x80)),
        // As astropy writes it, and others may.
        binary("BINARY2", &row(&[0], 0x08)),
        binary("BINARY2", &row(&[0], 0x01)),
    ] {
        let found = table_of(with_fields(BITS, &data).as_bytes()).unwrap().1;
        assert_eq!(found, rows, "{data}");
    }
    let told = table_of(with_fields(BITS, &cells.replace("1 0 1", "1 2")).as_bytes());
    let told = told.unwrap_err();
    assert!(told.contains("\"1 2\" in the column many"), "{told}");
}

#[test]
fn shapes_are_known_by_their_xtypes() {
    const FIELDS: &str = "<FIELD name='p' datatype='double' arraysize='2' xtype='point'/>\
                          <FIELD name='c' datatype='double' arraysize='3' xtype='circle'/>\
                          <FIELD name='s' datatype='double' arraysize='*' xtype='polygon'/>\
                          <FIELD name='f' datatype='float' arraysize='2' xtype='point'/>\
                          <FIELD name='other' datatype='double' arraysize='3' xtype='point'/>\
                          <FIELD name='stcs' datatype='char' arraysize='*' xtype='adql:POINT'/>";
    let cells = "<TABLEDATA><TR><TD>1.5 -2</TD><TD>1 2 3</TD><TD>1 1 2 1 2 2</TD>\
                 <TD>1.1 2.5</TD><TD>x</TD><TD>Position ICRS 1 2</TD></TR>\
                 <TR><TD/><TD/><TD/><TD/><TD/><TD/></TR></TABLEDATA>";
    let (file, rows) = table_of(with_fields(FIELDS, cells).as_bytes()).unwrap();
    let shapes: Vec<Option<&str>> = (0..7).map(|at| file.shape(at)).collect();
    let known = [
        Some("point"),
        Some("circle"),
        Some("polygon"),
        // Floats were texts.
        Some("point"),
        None,
        None,
        None,
    ];
    assert_eq!(shapes, known);
    assert_eq!(
        rows[0],
        "1.5 -2|1 2 3|1 1 2 1 2 2|1.1 2.5|x|Position ICRS 1 2"
    );
    assert_eq!(rows[1], "|||||");
    for (wrong, told) in [("1.5", "\"1.5\" in the column p"), ("1.5 b", "\"1.5 b\"")] {
        let cells = cells.replace("1.5 -2", wrong);
        let error = table_of(with_fields(FIELDS, &cells).as_bytes()).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

/// The number that stands for none was one of integers alone.
#[test]
fn a_number_that_stands_for_none_may_have_a_fraction() {
    let fields = "<FIELD name='f' datatype='float'><VALUES null='-99.1'/></FIELD>\
                  <FIELD name='d' datatype='double'><VALUES null=' 1e300 '/></FIELD>\
                  <FIELD name='n' datatype='int'><VALUES null='0x10'/></FIELD>\
                  <FIELD name='b' datatype='boolean'><VALUES null='F'/></FIELD>";
    let cells = "<TABLEDATA><TR><TD>-99.1</TD><TD>1e300</TD><TD>16</TD><TD>F</TD></TR>\
                 <TR><TD>-99.10</TD><TD>-99.1</TD><TD>-99</TD><TD>T</TD></TR></TABLEDATA>";
    let expected = ["|||false", "|-99.1|-99|true"];
    let found = table_of(with_fields(fields, cells).as_bytes());
    assert_eq!(found.unwrap().1, expected);
    let mut bytes = Vec::new();
    for (f, d, n, b) in [
        (-99.1_f32, 1e300_f64, 16_i32, b'F'),
        (-99.1, -99.1, -99, b'T'),
    ] {
        bytes.extend(f.to_be_bytes());
        bytes.extend(d.to_be_bytes());
        bytes.extend(n.to_be_bytes());
        bytes.push(b);
    }
    let found = table_of(stream("BINARY", &bytes).replace(FIELDS, fields).as_bytes());
    assert_eq!(found.unwrap().1, expected);
}

/// A parameter that says which of its values stands for none said so of the column before it.
#[test]
fn values_of_parameters_are_not_those_of_columns() {
    let fields = "<FIELD name='n' datatype='int'/>\
                  <PARAM name='p' datatype='int' value='1'><VALUES null='5'/></PARAM>";
    let cells = "<TABLEDATA><TR><TD>5</TD></TR></TABLEDATA>";
    let found = table_of(with_fields(fields, cells).as_bytes());
    assert_eq!(found.unwrap().1, ["5"]);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let cut = |text: String, at: &str| text[..text.find(at).unwrap()].to_owned();
    for (document, told) in [
        (
            document(&TABLEDATA.replace("10.5", "10;5")),
            "/t.vot:14: row 1: \"10;5\" in the column RA is no value of its type",
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
        (
            "<VOTABLE><INFO name='QUERY_STATUS' value='ERROR'/></VOTABLE>".to_owned(),
            "has no VOTable with columns in it",
        ),
        (
            cut(document(""), "</TABLE"),
            "it ends before its table does",
        ),
        (
            with_fields("", "<TABLEDATA/>"),
            "its table has no FIELD, and so no columns",
        ),
        (
            "<!DOCTYPE html>\n<html><head><meta charset='utf-8'></head></html>".to_owned(),
            "/t.vot:1: it is a page of HTML",
        ),
        (
            "\n<HTML><body>Not <br> found</body></HTML>".to_owned(),
            "/t.vot:2: it is a page of HTML",
        ),
        (
            "<gpx><trk/></gpx>".to_owned(),
            "it begins with the element \"gpx\", and a VOTable does with VOTABLE: send the table as VOTable",
        ),
        (
            stream("BINARY2", &bytes(true)).replace("</STREAM>", "<!-- more -->AAAA</STREAM>"),
            "there is something else than base64 among them",
        ),
        (
            cut(stream("BINARY2", &bytes(true)), "</STREAM"),
            "the table ends in the middle of it",
        ),
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
