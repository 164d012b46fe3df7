//! Makes files of each format, as bytes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// A directory for files of a test.
pub struct Files(tempfile::TempDir);

impl Files {
    /// An empty one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file.
    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Some texts, one behind the other, compressed.
pub fn gzip(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for part in parts {
        packed.write_all(&part).unwrap();
    }
    packed.finish().unwrap()
}

/// A Parquet file of some columns.
pub fn parquet(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// A text that stands in many rows, as a dictionary has it.
pub fn repeated(text: &str, rows: usize) -> ArrayRef {
    let keys = Int32Array::from(vec![0; rows]);
    let values = StringArray::from(vec![text]);
    Arc::new(DictionaryArray::new(keys, Arc::new(values)))
}

/// Zstandard, as Parquet calls it.
pub fn zstd() -> Codec {
    Codec::ZSTD(ZstdLevel::try_new(3).unwrap())
}

/// A VOTable of some fields whose DATA are given.
pub fn table(fields: &str, data: &str) -> Vec<u8> {
    format!("<VOTABLE version=\"1.4\"><RESOURCE><TABLE>{fields}<DATA>{data}</DATA></TABLE></RESOURCE></VOTABLE>")
        .into_bytes()
}

/// The DATA of a VOTable as a stream in base64.
pub fn binary(kind: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    format!("<{kind}><STREAM encoding=\"base64\">{text}</STREAM></{kind}>")
}

/// A FITS file: truths, integers with one for NULL, texts, numbers, arrays in the rows and perhaps behind them.
pub fn fits(arrays_behind: bool) -> Vec<u8> {
    const ROWS: usize = 100;
    const FORMS: [&str; 6] = ["1L", "1J", "6A", "1D", "3E", "1PI(3)"];
    let (forms, row_bytes, behind) = match arrays_behind {
        true => (&FORMS[..], 1 + 4 + 6 + 8 + 12 + 8, 3 * 2 * ROWS),
        false => (&FORMS[..5], 1 + 4 + 6 + 8 + 12, 0),
    };
    let card = |text: String| format!("{text:<80}");
    let header = |cards: Vec<String>| {
        let mut text: String = cards.into_iter().map(card).collect();
        text.push_str(&card("END".to_owned()));
        text.extend(std::iter::repeat_n(
            ' ',
            text.len().next_multiple_of(2880) - text.len(),
        ));
        text.into_bytes()
    };
    let number = |keyword: &str, value: usize| format!("{keyword:<8}= {value:>20}");
    let word = |keyword: &str, value: &str| format!("{keyword:<8}= '{value:<8}'");
    let mut cards = vec![
        word("XTENSION", "BINTABLE"),
        number("BITPIX", 8),
        number("NAXIS", 2),
        number("NAXIS1", row_bytes),
        number("NAXIS2", ROWS),
        number("PCOUNT", behind),
        number("GCOUNT", 1),
        number("TFIELDS", forms.len()),
    ];
    for (at, form) in forms.iter().enumerate() {
        cards.push(word(&format!("TTYPE{}", at + 1), &format!("c{at}")));
        cards.push(word(&format!("TFORM{}", at + 1), form));
    }
    cards.push(number("TNULL2", 7));
    let mut bytes = header(vec![
        format!("{:<8}= {:>20}", "SIMPLE", "T"),
        number("BITPIX", 8),
        number("NAXIS", 0),
        format!("{:<8}= {:>20}", "EXTEND", "T"),
    ]);
    bytes.extend(header(cards));
    for row in 0..ROWS {
        bytes.push([b'T', b'F', 0][row % 3]);
        bytes.extend((row as i32).to_be_bytes());
        bytes.extend(format!("{row:<6}").into_bytes());
        bytes.extend((row as f64 / 7.0).to_be_bytes());
        for at in 0..3 {
            bytes.extend((at as f32).to_be_bytes());
        }
        if arrays_behind {
            bytes.extend(3_i32.to_be_bytes());
            bytes.extend((6 * row as i32).to_be_bytes());
        }
    }
    for number in 0..behind as i16 / 2 {
        bytes.extend(number.to_be_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(2880), 0);
    bytes
}
