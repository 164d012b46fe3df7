//! Files of a few kilobytes that stand for gigabytes.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringArray};
use meridian_ingest::{FileFormat, IngestError};
use parquet::basic::Encoding;
use parquet::file::properties::WriterProperties;

use crate::measured::{LIMITS, LONGEST, MEMORY, peak, read, taken};
use crate::written::{Files, binary, gzip, parquet, repeated, table, zstd};

/// Whether a file is rejected for what it decodes to.
fn is_too_large(outcome: &Result<(usize, usize), IngestError>) -> bool {
    matches!(
        outcome,
        Err(IngestError::TooLarge { .. } | IngestError::Layout { .. })
    )
}

/// A column whose cells have no elements.
const NO_BYTES: &str = "<FIELD name=\"a\" datatype=\"int\" arraysize=\"0\"/>";

/// A name, how it is written, and the bytes.
type Bomb = (&'static str, FileFormat, Vec<u8>);

fn parquet_bombs() -> Vec<Bomb> {
    let numbers = |rows: usize| -> ArrayRef { Arc::new(Float64Array::from(vec![1.0; rows])) };
    let plain = || WriterProperties::builder().set_compression(zstd()).build();
    let long = "x".repeat(50_000);
    let delta = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BYTE_ARRAY)
        .build();
    let texts: ArrayRef = Arc::new(StringArray::from(vec![long.as_str(); 200]));
    let undivided = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(zstd())
        .build();
    let page: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(20 << 20)]));
    vec![
        (
            "a long text in many rows",
            FileFormat::Parquet,
            parquet(
                vec![("ra", numbers(200_000)), ("t", repeated(&long, 200_000))],
                plain(),
            ),
        ),
        (
            "many rows of one number",
            FileFormat::Parquet,
            parquet(vec![("ra", numbers(2_200_000))], plain()),
        ),
        (
            "texts by what they share with those before",
            FileFormat::Parquet,
            parquet(vec![("t", texts)], delta),
        ),
        (
            "a large page",
            FileFormat::Parquet,
            parquet(vec![("t", page)], undivided),
        ),
    ]
}

fn text_bombs() -> Vec<Bomb> {
    let spread = |count: usize, separator: &str| {
        let names: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
        names.join(separator)
    };
    vec![
        (
            "many columns",
            FileFormat::Text,
            format!("{}\n", spread(8000, ",")).into_bytes(),
        ),
        (
            "a header without end",
            FileFormat::Text,
            spread(400_000, ",").into_bytes(),
        ),
        (
            "a row without end",
            FileFormat::Text,
            [b"ra,dec\n1,".to_vec(), vec![b'2'; 5 << 20]].concat(),
        ),
        (
            "a quote without end",
            FileFormat::Text,
            [b"ra,dec\n1,\"".to_vec(), vec![b'\n'; 5 << 20]].concat(),
        ),
        (
            "rows of nothing",
            FileFormat::Text,
            [
                spread(400, ",").into_bytes(),
                b"\n".to_vec(),
                [vec![b','; 399], b"\n".to_vec()].concat().repeat(11_000),
            ]
            .concat(),
        ),
        (
            "a gzip stream of zeros",
            FileFormat::Text,
            gzip((0..12).map(|_| vec![0; 1 << 20])),
        ),
        (
            "a gzip stream of lines",
            FileFormat::Text,
            gzip(
                [b"ra,dec\n".to_vec()]
                    .into_iter()
                    .chain((0..12).map(|_| b"1,2\n".repeat(1 << 18))),
            ),
        ),
    ]
}

fn votable_bombs() -> Vec<Bomb> {
    let many_fields: String = (0..8000)
        .map(|number| format!("<FIELD name=\"f{number}\" datatype=\"int\"/>"))
        .collect();
    let array = "<FIELD name=\"a\" datatype=\"double\" arraysize=\"*\"/>";
    let bits = "<FIELD name=\"a\" datatype=\"bit\" arraysize=\"100000000\"/>";
    let text = "<FIELD name=\"a\" datatype=\"char\" arraysize=\"*\"/>";
    vec![
        (
            "many fields",
            FileFormat::VoTable,
            table(&many_fields, "<TABLEDATA></TABLEDATA>"),
        ),
        (
            "an attribute without end",
            FileFormat::VoTable,
            [b"<VOTABLE a=\"".to_vec(), vec![b'x'; 5 << 20]].concat(),
        ),
        (
            "elements within elements",
            FileFormat::VoTable,
            [b"<VOTABLE>".to_vec(), b"<a>".repeat(2 << 20)].concat(),
        ),
        (
            "a cell without end",
            FileFormat::VoTable,
            table(text, &format!("<TABLEDATA><TR><TD>{}", "x".repeat(5 << 20))),
        ),
        (
            "cells within a cell",
            FileFormat::VoTable,
            table(
                text,
                &format!("<TABLEDATA><TR><TD>{}", "<b>".repeat(1 << 20)),
            ),
        ),
        (
            "a long array",
            FileFormat::VoTable,
            table(
                array,
                &binary(
                    "BINARY",
                    &[&[0x0f, 0xff, 0xff, 0xff][..], &[0; 1 << 20]].concat(),
                ),
            ),
        ),
        (
            "many bits",
            FileFormat::VoTable,
            table(bits, &binary("BINARY2", &vec![0xff; 11 << 20])),
        ),
        (
            "texts that add up",
            FileFormat::VoTable,
            table(
                text,
                &format!(
                    "<TABLEDATA>{}</TABLEDATA>",
                    format!("<TR><TD>{}</TD></TR>", "x".repeat(1 << 19)).repeat(40)
                ),
            ),
        ),
    ]
}

#[test]
fn bombs_are_rejected_before_they_go_off() {
    let files = Files::new();
    let bombs = [parquet_bombs(), text_bombs(), votable_bombs()];
    // Making them takes more than reading them may: the kernel counts from here on.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    for (name, format, bytes) in bombs.into_iter().flatten() {
        let begun = taken();
        let outcome = read(&files.put("bomb.csv", &bytes), format);
        println!(
            "{name}: {} bytes, {:.1?}, {outcome:?}",
            bytes.len(),
            (taken() - begun)
        );
        assert!(is_too_large(&outcome), "{name}: {outcome:?}");
        assert!(
            (taken() - begun) < LONGEST,
            "{name} took {:?}",
            (taken() - begun)
        );
    }
    // A row of no bytes would be followed by another one for ever.
    let endless = files.put("t", &table(NO_BYTES, &binary("BINARY", &[1, 2, 3, 4])));
    let outcome = read(&endless, FileFormat::VoTable);
    assert!(
        matches!(outcome, Err(IngestError::Unreadable(_))),
        "{outcome:?}"
    );
    let grown = peak().saturating_sub(before);
    assert!(
        grown < MEMORY + LIMITS.bytes,
        "memory grew by {} MiB",
        grown >> 20
    );
}
