//! Text files through the reader: dialects, blocks of any size, what is rejected.

use std::io::Write;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use catalog::ColumnType;
use proptest::prelude::*;

use super::*;
use crate::progress::Progress;
use crate::rejected_rows::{RejectedRows, RejectionSummary, RowId};

fn column(name: &str, ty: ColumnType) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        nullable: true,
        declared: None,
    }
}

fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

fn open(
    path: &Path,
    layout: &TextLayout,
    columns: Option<&[Column]>,
) -> Result<TextFile, IngestError> {
    let gzip = crate::format::magic(path)? == crate::format::Magic::Gzip;
    TextFile::open(path, gzip, layout, columns, &DecodeBudget::unlimited())
}

/// A record: its line, and its text fields.
type Record = (u64, Vec<Option<String>>);

/// All records as text, read in blocks of about `block` bytes, and what was rejected.
fn read(
    path: &Path,
    layout: &TextLayout,
    columns: &[Column],
    block: usize,
) -> Result<(Vec<Record>, Vec<RejectionSummary>), IngestError> {
    let file = open(path, layout, Some(columns))?;
    let rejected_rows = RejectedRows::new(vec![path.to_path_buf()], u64::MAX);
    let context = Arc::new(ReadContext::new(
        columns.to_vec(),
        rejected_rows,
        Arc::new(Progress::default()),
    ));
    let map = file.head.map_columns(path, &file.dialect, columns)?;
    let mut reader = file.reader()?;
    file.head.skip(&mut reader)?;
    let mut records = Vec::new();
    while let Some(block) = reader.next_block(&file.dialect, block)? {
        let mut part = file.part(block, 0, &map, &context);
        while let Some(batch) = part.next_batch()? {
            for row in 0..batch.rows.len() {
                let texts = batch
                    .columns
                    .columns()
                    .iter()
                    .map(|c| text_of(c, row))
                    .collect();
                records.push((batch.rows[row] - RowId::new(0, 0).0, texts));
            }
        }
    }
    Ok((records, context.rejected_rows.summary()))
}

fn text_of(array: &arrow::array::ArrayRef, row: usize) -> Option<String> {
    let text = arrow::compute::cast(array, &arrow::datatypes::DataType::Utf8).unwrap();
    let text = text.as_string::<i32>();
    text.is_valid(row).then(|| text.value(row).to_owned())
}

fn texts(names: &[&str]) -> Vec<Column> {
    names
        .iter()
        .map(|name| column(name, ColumnType::Text))
        .collect()
}

fn some(fields: &[&str]) -> Vec<Option<String>> {
    fields.iter().map(|f| Some((*f).to_owned())).collect()
}

#[test]
fn quotes_line_ends_and_blank_lines() {
    let content = b"a,b\r\n\"x, \"\"y\"\"\",1\r\n\r\n\"two\nlines\",2\r\nplain,\"\"\r\n";
    let (_dir, path) = file("t.csv", content);
    let (records, rejected) = read(&path, &TextLayout::default(), &texts(&["a", "b"]), 4).unwrap();
    let expected: Vec<Record> = vec![
        (2, some(&["x, \"y\"", "1"])),
        (4, some(&["two\nlines", "2"])),
        (6, some(&["plain", ""])),
    ];
    assert_eq!(records, expected);
    assert!(rejected.is_empty());
}

#[test]
fn a_dump_is_recognised_by_its_nulls() {
    let content = b"1\t\\N\tsay \"hi\n2\tline\\\nbreak\ttab\\\there \\\\\n";
    let (_dir, path) = file("t.tsv", content);
    let (records, _) = read(&path, &TextLayout::default(), &texts(&["a", "b", "c"]), 3).unwrap();
    assert_eq!(
        records[0],
        (1, vec![Some("1".into()), None, Some("say \"hi".into())])
    );
    assert_eq!(records[1], (2, some(&["2", "line\nbreak", "tab\there \\"])));
}

#[test]
fn bytes_that_are_not_utf8_are_latin1_in_text_and_themselves_in_binary() {
    let (_dir, path) = file("t.tsv", b"caf\xe9\t\xff\\0\xfe\n");
    let columns = vec![
        column("t", ColumnType::Text),
        column("b", ColumnType::Binary),
    ];
    let layout = TextLayout {
        escapes: Some(true),
        ..TextLayout::default()
    };
    let file = open(&path, &layout, Some(&columns)).unwrap();
    let rejected_rows = RejectedRows::new(Vec::new(), 0);
    let context = Arc::new(ReadContext::new(columns, rejected_rows, Arc::default()));
    let mut source = file.open(0, &context).unwrap();
    let batch = source
        .next_part()
        .unwrap()
        .unwrap()
        .next_batch()
        .unwrap()
        .unwrap();
    assert_eq!(batch.columns.column(0).as_string::<i32>().value(0), "café");
    assert_eq!(
        batch.columns.column(1).as_binary::<i32>().value(0),
        b"\xff\0\xfe"
    );
    assert_eq!(
        context
            .latin1_values
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[test]
fn rejected_rows_have_their_line_and_reason() {
    let content = b"id,x\n1,1.5\n2,abc\n3\n99999999999999999999,2\n5,nan\n6,1e999\n7,8,9\n";
    let (_dir, path) = file("t.csv", content);
    let columns = vec![
        column("id", ColumnType::Int64),
        column("x", ColumnType::Float64),
    ];
    let (records, rejected) = read(&path, &TextLayout::default(), &columns, 1 << 20).unwrap();
    assert_eq!(records.iter().map(|r| r.0).collect::<Vec<_>>(), [2, 6]);
    assert_eq!(records[1].1[1], None, "NaN is NULL");
    let mut lines: Vec<(u64, String)> = rejected
        .iter()
        .flat_map(|r| r.examples.iter().map(|e| (e.line, e.reason.clone())))
        .collect();
    lines.sort();
    let expected = [
        (3, "column \"x\": \"abc\" is not a valid DOUBLE"),
        (4, "1 fields where 2 are expected"),
        (
            5,
            "column \"id\": \"99999999999999999999\" is out of range for BIGINT",
        ),
        (7, "column \"x\": \"1e999\" is out of range for DOUBLE"),
        (8, "3 fields where 2 are expected"),
    ];
    assert_eq!(
        lines,
        expected.map(|(line, reason)| (line, reason.to_owned()))
    );
}

#[test]
fn headers_are_told_from_rows() {
    let columns = vec![
        column("id", ColumnType::Int64),
        column("name", ColumnType::Text),
    ];
    let layout = TextLayout::default();
    for (content, header) in [
        ("id,name\n1,a\n", true),
        ("NAME,ID\na,1\n", true),
        ("1,a\n2,b\n", false),
        ("x,y\n", false),
    ] {
        let (_dir, path) = file("t.csv", content.as_bytes());
        assert_eq!(
            open(&path, &layout, Some(&columns)).unwrap().head.is_header,
            header,
            "{content}"
        );
    }
    let (_dir, path) = file("t.csv", b"NAME,ID\na,1\n");
    let (records, _) = read(&path, &layout, &columns, 100).unwrap();
    assert_eq!(records, [(2, some(&["1", "a"]))], "fields go by name");
    let (_dir, path) = file("t.csv", b"id,nam\n1,a\n");
    let sentence = read(&path, &layout, &columns, 100).unwrap_err().to_string();
    assert!(
        sentence.contains("\"nam\"") && sentence.contains("is it \"name\""),
        "{sentence}"
    );
}

#[test]
fn the_wrong_delimiter_is_noticed() {
    let columns = texts(&["a", "b", "c"]);
    let (_dir, path) = file("t.csv", b"1;2;3\n4;5;6\n");
    let sentence = read(&path, &TextLayout::default(), &columns, 100)
        .unwrap_err()
        .to_string();
    assert!(
        sentence.contains("only one field") && sentence.contains("semicolon"),
        "{sentence}"
    );
}

#[test]
fn types_are_inferred() {
    let content = b"i,u,f,d,t,s,b,n\n1,18446744073709551615,1.0,2020-01-02,2020-01-02 03:04:05,x,true,\n-2,1,2,2021-01-01,2021-01-01,3,false,\n";
    let (_dir, path) = file("t.csv", content);
    let columns = open(&path, &TextLayout::default(), None)
        .unwrap()
        .columns()
        .unwrap();
    let types: Vec<ColumnType> = columns.iter().map(|c| c.ty).collect();
    use ColumnType as T;
    assert_eq!(
        types,
        [
            T::Int64,
            T::UInt64,
            T::Float64,
            T::Date,
            T::Timestamp,
            T::Text,
            T::Boolean,
            T::Text
        ]
    );
    let (_dir, path) = file("t.csv", b"");
    assert!(
        open(&path, &TextLayout::default(), None)
            .unwrap()
            .columns()
            .is_err()
    );
}

#[test]
fn gzip_members_in_a_row_are_one_file_and_a_cut_is_noticed() {
    let mut bytes = Vec::new();
    for part in ["1,2\n3,", "4\n"] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(part.as_bytes()).unwrap();
        bytes.extend(gzip.finish().unwrap());
    }
    let columns = vec![
        column("a", ColumnType::Int64),
        column("b", ColumnType::Float64),
    ];
    let (_dir, path) = file("t.csv.gz", &bytes);
    let opened = open(&path, &TextLayout::default(), Some(&columns)).unwrap();
    let context = Arc::new(ReadContext::new(
        columns.clone(),
        RejectedRows::new(Vec::new(), 0),
        Arc::default(),
    ));
    let mut source = opened.open(0, &context).unwrap();
    let batch = source
        .next_part()
        .unwrap()
        .unwrap()
        .next_batch()
        .unwrap()
        .unwrap();
    assert_eq!(
        batch.columns.column(0).as_primitive::<Int64Type>().values(),
        &[1, 3]
    );
    assert_eq!(
        batch
            .columns
            .column(1)
            .as_primitive::<Float64Type>()
            .values(),
        &[2.0, 4.0]
    );
    let (_dir, path) = file("t.csv.gz", &bytes[..bytes.len() - 4]);
    let sentence = open(&path, &TextLayout::default(), Some(&columns))
        .unwrap_err()
        .to_string();
    assert!(sentence.contains("damaged or cut off"), "{sentence}");
}

#[test]
fn sampling_survives_landing_inside_quotes() {
    // Every record is mostly one long quoted field with line ends in it, so nearly every sample begins in one.
    let record = |i: u32| format!("{i},\"{}\"\n", "long text,\n".repeat(40));
    let content: String = (0..6000).map(record).collect();
    let (_dir, path) = file("t.csv", content.as_bytes());
    let columns = vec![
        column("id", ColumnType::Int64),
        column("text", ColumnType::Text),
    ];
    let opened = open(&path, &TextLayout::default(), Some(&columns)).unwrap();
    let rejected_rows = RejectedRows::new(Vec::new(), u64::MAX);
    let context = Arc::new(ReadContext::new(columns, rejected_rows, Arc::default()));
    let sampled: usize = opened
        .sample(&context)
        .unwrap()
        .iter()
        .map(|b| b.rows.len())
        .sum();
    assert!(sampled > 0);
    let estimate = opened.estimated_rows();
    assert!((5500..6500).contains(&estimate), "{estimate}");
}

fn any_field() -> impl Strategy<Value = Option<String>> {
    proptest::option::weighted(0.8, "[ab,\"\\\\\t\n\rNé0]{0,6}")
}

fn dump_field(field: &Option<String>) -> String {
    let Some(text) = field else {
        return "\\N".to_owned();
    };
    let escape = |c: char| match c {
        '\\' | '\t' | '\n' => format!("\\{c}"),
        '\0' => "\\0".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

fn csv_field(field: &Option<String>) -> String {
    match field {
        Some(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        None => "NULL".to_owned(),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        rows in proptest::collection::vec((any_field(), any_field()), 1..30), block in 1..60usize,
    ) {
        let columns = texts(&["a", "b"]);
        let expected: Vec<Vec<Option<String>>> =
            rows.iter().map(|(a, b)| vec![a.clone(), b.clone()]).collect();
        let dump: String = rows.iter().map(|(a, b)| format!("{}\t{}\n", dump_field(a), dump_field(b))).collect();
        let csv: String = rows.iter().map(|(a, b)| format!("{},{}\n", csv_field(a), csv_field(b))).collect();
        let dump_layout = TextLayout { nulls: vec!["\\N".into()], header: Some(false), ..TextLayout::default() };
        let csv_layout = TextLayout {
            nulls: vec!["NULL".into()], header: Some(false), quote: Some(Some(b'"')), ..TextLayout::default()
        };
        for (name, content, layout) in [("t.tsv", dump, dump_layout), ("t.csv", csv, csv_layout)] {
            // A first line that ends in CR says that all lines do: not what is meant here.
            if content.split('\n').next().is_some_and(|line| line.ends_with('\r')) {
                continue;
            }
            let (_dir, path) = file(name, content.as_bytes());
            let (records, rejected) = read(&path, &layout, &columns, block).unwrap();
            prop_assert!(rejected.is_empty(), "{:?}", rejected);
            let mut line = 1;
            for ((at, _), text) in records.iter().zip(record_texts(&rows, name)) {
                prop_assert_eq!(*at, line);
                line += text.matches('\n').count() as u64;
            }
            prop_assert_eq!(records.into_iter().map(|r| r.1).collect::<Vec<_>>(), expected.clone());
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic_or_hang(
        content in proptest::collection::vec(proptest::sample::select(b"ab1,\"\\N\n\r\t.\xe9".to_vec()), 0..200), block in 1..40usize,
    ) {
        for name in ["t.csv", "t.tsv"] {
            let (_dir, path) = file(name, &content);
            let _ = read(&path, &TextLayout::default(), &texts(&["a", "b"]), block);
            let _ = open(&path, &TextLayout::default(), None).and_then(|f| f.columns());
        }
    }
}

/// Each record as it is written.
fn record_texts(rows: &[(Option<String>, Option<String>)], name: &str) -> Vec<String> {
    let write = |(a, b): &(Option<String>, Option<String>)| {
        if name == "t.tsv" {
            format!("{}\t{}\n", dump_field(a), dump_field(b))
        } else {
            format!("{},{}\n", csv_field(a), csv_field(b))
        }
    };
    rows.iter().map(write).collect()
}

/// The only line of a file was taken for a row if it had no end.
#[test]
fn a_header_without_an_end_of_line_is_no_row() {
    for content in [
        "id,ra",
        "id,ra\n",
        "id,ra\r\n",
        "\u{feff}id,ra",
        "# c\nid,ra",
    ] {
        let (_dir, path) = file("t.csv", content.as_bytes());
        let opened = open(&path, &TextLayout::default(), None).unwrap();
        let columns = opened.columns().unwrap();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!((names, opened.estimated_rows()), (vec!["id", "ra"], 0));
        let (records, rejected) = read(&path, &TextLayout::default(), &columns, 4).unwrap();
        assert!(records.is_empty() && rejected.is_empty(), "{content:?}");
    }
    // A row without an end is one.
    let (_dir, path) = file("t.csv", b"id,ra\n1,2");
    let (records, _) = read(&path, &TextLayout::default(), &texts(&["id", "ra"]), 4).unwrap();
    assert_eq!(records, [(2, some(&["1", "2"]))]);
}
