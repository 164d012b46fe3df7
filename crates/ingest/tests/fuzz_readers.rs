//! Strange bytes at the readers of foreign formats: whatever comes, they end with rows or with a sentence that names the file, and take no
//! more memory than their budget says.
//!
//! Files are made of real ones, mutated and cut; bombs are files of a few kilobytes that stand for gigabytes. Each file has a number
//! of its own, from which it is made again. `MERIDIAN_MUTATIONS` says how many there are of each format, `MERIDIAN_MUTATION` which is the
//! first; `scripts/mutations` runs many.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here is the test, and how long it took is for whoever runs it"
)]

use std::io::Write;
use std::panic::UnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StringViewArray,
};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use meridian_ingest::{
    BytePool, DecodeBudget, DecodeLimits, FileFormat, FitsHeaders, IngestError, RowFile, RowSource,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

const LIMITS: DecodeLimits = DecodeLimits {
    bytes: 16 << 20,
    row_bytes: 2 << 20,
    columns: 500,
};
/// Bytes of memory that a reader may take beside what it decodes.
const MEMORY: u64 = 160 << 20;
/// The processor time that a reader may take for a file, without optimisation.
const LONGEST: Duration = Duration::from_secs(20);
/// Mutated files of an ordinary run, of each format.
const USUAL_MUTATIONS: usize = 1500;

/// What reading a file comes to: how many rows and bytes, or why not.
fn read(path: &Path, format: FileFormat) -> Result<(usize, usize), IngestError> {
    let budget = DecodeBudget::new(LIMITS, &BytePool::new(LIMITS.bytes));
    let file = RowFile::open_within(path, format, None, &budget)?;
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut read = (0, 0);
    for batch in file.rows(&columns)? {
        let batch = batch?;
        read.0 += batch.num_rows();
        let bytes = batch
            .columns()
            .iter()
            .map(|it| it.to_data().get_slice_memory_size().unwrap());
        read.1 += bytes.sum::<usize>();
        assert!(read.1 as u64 <= LIMITS.bytes, "it gave {} bytes", read.1);
    }
    Ok(read)
}

/// The processor time that this thread has taken.
fn taken() -> Duration {
    let fields = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = fields.split(' ').next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

/// The largest memory that this process has held so far, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kibibytes: u64 = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kibibytes << 10
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn gzip(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for part in parts {
        packed.write_all(&part).unwrap();
    }
    packed.finish().unwrap()
}

fn parquet(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// A text that stands in many rows, as a dictionary has it.
fn repeated(text: &str, rows: usize) -> ArrayRef {
    let keys = Int32Array::from(vec![0; rows]);
    let values = StringArray::from(vec![text]);
    Arc::new(DictionaryArray::new(keys, Arc::new(values)))
}

fn zstd() -> Codec {
    Codec::ZSTD(ZstdLevel::try_new(3).unwrap())
}

fn table(fields: &str, data: &str) -> Vec<u8> {
    format!("<VOTABLE version=\"1.4\"><RESOURCE><TABLE>{fields}<DATA>{data}</DATA></TABLE></RESOURCE></VOTABLE>")
        .into_bytes()
}

fn binary(kind: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    format!("<{kind}><STREAM encoding=\"base64\">{text}</STREAM></{kind}>")
}

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

/// A file as people have it: a name, how it is written, its bytes, and whether it is taken of clients too.
struct Usual {
    name: &'static str,
    format: FileFormat,
    bytes: Vec<u8>,
    of_clients: bool,
}

impl Usual {
    fn new(name: &'static str, format: FileFormat, bytes: Vec<u8>) -> Self {
        Self {
            name,
            format,
            bytes,
            of_clients: true,
        }
    }

    /// One that is read of the operator's own disk alone.
    fn own(name: &'static str, format: FileFormat, bytes: Vec<u8>) -> Self {
        Self {
            of_clients: false,
            ..Self::new(name, format, bytes)
        }
    }

    fn read(&self, path: &Path) -> Result<(usize, usize), IngestError> {
        match self.of_clients {
            true => read(path, self.format),
            false => read_own(path, self.format),
        }
    }
}

/// What reading a file of the operator's comes to, and its headers if it is one of FITS.
fn read_own(path: &Path, format: FileFormat) -> Result<(usize, usize), IngestError> {
    if format == FileFormat::Fits {
        let headers = FitsHeaders::of(&[path.to_path_buf()], &[])?;
        for part in 0..headers.parts() {
            for batch in headers.make_part(part) {
                // What is wrong with a header, the rows are read all the same.
                let _ = batch;
            }
        }
    }
    let file = RowFile::open(path, format)?;
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut read = (0, 0);
    for batch in file.rows(&columns)? {
        let batch = batch?;
        read.0 += batch.num_rows();
        read.1 += batch.get_array_memory_size();
    }
    Ok(read)
}

/// Files as people have them, of every format.
fn usual() -> Vec<Usual> {
    [
        usual_parquet(),
        usual_arrow(),
        usual_text(),
        usual_votable(),
        usual_fits(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Some columns, NULLs among their values.
fn usual_columns() -> Vec<(&'static str, ArrayRef)> {
    let ra = (0..500).map(|it| Some(f64::from(it) / 2.0));
    let name = (0..500).map(|it| format!("s{}", it % 7));
    let count = (0..500).map(|it| (it % 5 > 0).then_some(it << 40));
    let flag = (0..500).map(|it| (it % 3 > 0).then_some(it % 2 == 0));
    vec![
        ("ra", Arc::new(Float64Array::from_iter(ra))),
        ("name", Arc::new(StringArray::from_iter_values(name))),
        ("kind", repeated("long enough for a view", 500)),
        ("n", Arc::new(Int64Array::from_iter(count))),
        ("ok", Arc::new(BooleanArray::from_iter(flag))),
    ]
}

fn usual_parquet() -> Vec<Usual> {
    let with = |codec| {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_max_row_group_row_count(Some(200));
        parquet(usual_columns(), properties.build())
    };
    let gzip = Codec::GZIP(parquet::basic::GzipLevel::default());
    // As catalogues in the Virtual Observatory have them.
    let votable = "<VOTABLE><RESOURCE><TABLE><FIELD name=\"ra\" datatype=\"double\" unit=\"deg\" ucd=\"pos.eq.ra\">\
         <DESCRIPTION>right &amp; left</DESCRIPTION></FIELD></TABLE></RESOURCE></VOTABLE>";
    let described = [KeyValue::new(
        "IVOA.VOTable-Parquet.content".to_owned(),
        votable.to_owned(),
    )];
    let described = WriterProperties::builder().set_key_value_metadata(Some(described.to_vec()));
    let described = parquet(usual_columns(), described.build());
    let new = |name, bytes| Usual::new(name, FileFormat::Parquet, bytes);
    vec![
        new("plain.parquet", with(Codec::UNCOMPRESSED)),
        new("zstd.parquet", with(zstd())),
        new("snappy.parquet", with(Codec::SNAPPY)),
        new("gzip.parquet", with(gzip)),
        new("described.parquet", described.clone()),
        Usual::own("own.parquet", FileFormat::Parquet, described),
    ]
}

fn usual_arrow() -> Vec<Usual> {
    let mut columns = usual_columns();
    let views =
        StringViewArray::from_iter_values((0..500).map(|it| format!("a text as a view {it}")));
    columns.push(("view", Arc::new(views)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let parts = [batch.slice(0, 200), batch.slice(200, 300)];
    let options = |packed| {
        let options = IpcWriteOptions::default();
        options.try_with_compression(packed).unwrap()
    };
    let file = |packed| {
        let (mut bytes, schema) = (Vec::new(), batch.schema());
        let mut writer =
            FileWriter::try_new_with_options(&mut bytes, &schema, options(packed)).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        drop(writer);
        bytes
    };
    let stream = |packed| {
        let (mut bytes, schema) = (Vec::new(), batch.schema());
        let mut writer =
            StreamWriter::try_new_with_options(&mut bytes, &schema, options(packed)).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        drop(writer);
        bytes
    };
    let own = |name, bytes| Usual::own(name, FileFormat::Arrow, bytes);
    vec![
        own("plain.arrow", file(None)),
        own("zstd.arrow", file(Some(CompressionType::ZSTD))),
        own("plain.arrows", stream(None)),
        own("lz4.arrows", stream(Some(CompressionType::LZ4_FRAME))),
    ]
}

fn usual_text() -> Vec<Usual> {
    let csv: String = (0..500)
        .map(|it| format!("{it},{},\"n{it}\"\n", f64::from(it) / 3.0))
        .collect();
    let csv = format!("id,ra,name\n{csv}");
    let ecsv = "# %ECSV 1.0\n# ---\n# datatype:\n# - {name: id, datatype: int64}\n# - {name: ra, unit: deg, datatype: float64, description: where}\n\
         # - {name: name, datatype: string}\n# meta: !!omap\n# - {a: b}\n# schema: astropy-2.0\n";
    let times: String = (0..300)
        .map(|it| {
            let day = it % 28 + 1;
            format!(
                "2026-01-{day:02}T00:00:{:02}.5|{}|{}|NULL\r\n",
                it % 60,
                it % 2 == 0,
                -f64::from(it) * 1e-7
            )
        })
        .collect();
    let new = |name, bytes| Usual::new(name, FileFormat::Text, bytes);
    vec![
        new("plain.tsv", csv.replace(',', "\t").into_bytes()),
        new("plain.csv.gz", gzip([csv.clone().into_bytes()])),
        new("times.txt", format!("t|ok|x|no\r\n{times}").into_bytes()),
        new(
            "plain.ecsv",
            format!("{ecsv}{}", csv.replace(',', " ")).into_bytes(),
        ),
        new("plain.csv", csv.clone().into_bytes()),
        Usual::own("own.csv", FileFormat::Text, csv.into_bytes()),
    ]
}

fn usual_votable() -> Vec<Usual> {
    let fields = "<FIELD name=\"id\" datatype=\"int\"/><FIELD name=\"t\" datatype=\"char\" arraysize=\"*\"/><FIELD name=\"d\" datatype=\"double\" arraysize=\"2\"/>";
    let row = |number: u8| {
        [
            &[0, 0, 0, number, 0, 0, 0, 2, b'a', b'b'][..],
            &1.5_f64.to_be_bytes(),
            &(-2.0_f64).to_be_bytes(),
        ]
        .concat()
    };
    let rows: Vec<u8> = (0..100).flat_map(row).collect();
    let flagged: Vec<u8> = (0..100)
        .flat_map(|it| [vec![0x40], row(it)].concat())
        .collect();
    let cells: String = (0..100)
        .map(|it| format!("<TR><TD>{it}</TD><TD>a &amp; b</TD><TD>1 2</TD></TR>"))
        .collect();
    let more = "<FIELD name=\"u\" datatype=\"unicodeChar\" arraysize=\"3\" ucd=\"meta.id\"><DESCRIPTION>a &lt; b</DESCRIPTION><VALUES null=\"-1\"/></FIELD>\
         <FIELD name=\"bits\" datatype=\"bit\" arraysize=\"11\"/><FIELD name=\"c\" datatype=\"floatComplex\" arraysize=\"*\"/><FIELD name=\"b\" datatype=\"boolean\"/>\
         <FIELD name=\"s\" datatype=\"short\"><VALUES null=\"7\"/></FIELD><FIELD name=\"f\" datatype=\"float\" arraysize=\"2x*\"/>";
    let wide = |number: u8| {
        let mut row = vec![0, b'x', 0, b'y', 0, number, 0xff, 0x80, 0, 0, 0, 1];
        row.extend(1.0_f32.to_be_bytes());
        row.extend(2.0_f32.to_be_bytes());
        row.extend([b'T', 0, 7, 0, 0, 0, 2]);
        row.extend(3.0_f32.to_be_bytes());
        row.extend(4.0_f32.to_be_bytes());
        row
    };
    let wide: Vec<u8> = (0..100).flat_map(wide).collect();
    let cells = table(fields, &format!("<TABLEDATA>{cells}</TABLEDATA>"));
    let new = |name, bytes| Usual::new(name, FileFormat::VoTable, bytes);
    vec![
        new("cells.vot", cells.clone()),
        new("binary.vot", table(fields, &binary("BINARY", &rows))),
        new("binary2.vot", table(fields, &binary("BINARY2", &flagged))),
        new("wide.vot", table(more, &binary("BINARY", &wide))),
        Usual::own("cells.vot.gz", FileFormat::VoTable, gzip([cells])),
        Usual::own(
            "own.vot",
            FileFormat::VoTable,
            table(fields, &binary("BINARY2", &flagged)),
        ),
    ]
}

fn usual_fits() -> Vec<Usual> {
    vec![
        Usual::new("plain.fits", FileFormat::Fits, fits(true)),
        Usual::own("own.fits", FileFormat::Fits, fits(true)),
        Usual::own("own.fits.gz", FileFormat::Fits, gzip([fits(false)])),
    ]
}

#[test]
fn files_as_people_have_them_are_read_within_a_budget() {
    let files = Files::new();
    for usual in usual() {
        let name = usual.name;
        let path = files.put(name, &usual.bytes);
        let (rows, _) = (usual.read(&path)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = RowFile::open(&path, usual.format).unwrap();
        let all: Vec<usize> = (0..file.schema().fields().len()).collect();
        let without: usize = file
            .rows(&all)
            .unwrap()
            .map(|it| it.unwrap().num_rows())
            .sum();
        assert_eq!((rows, rows > 0), (without, true), "{name}");
    }
}

/// A long text in rows of a Parquet file is copied a few rows at a time, and every row is there.
#[test]
fn texts_that_are_repeated_are_read_whole() {
    let files = Files::new();
    let columns = vec![("t", repeated(&"x".repeat(100_000), 130))];
    let path = files.put("t", &parquet(columns, WriterProperties::default()));
    let (rows, bytes) = read(&path, FileFormat::Parquet).unwrap();
    assert_eq!(rows, 130);
    assert!(bytes >= 13_000_000, "{bytes}");
}

/// Chances that follow from a number (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Bytes with some of them changed, lost, doubled or added; often near the end, where Parquet has its footer.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let length = changed.len();
            let near_end = self.below(3) == 0;
            let at = if near_end {
                length.saturating_sub(1 + self.below(700))
            } else {
                self.below(length)
            };
            match self.below(7) {
                0 if at < length => changed[at] = self.next() as u8,
                1 if at < length => changed[at] ^= 1 << self.below(8),
                2 if at < length => changed[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][self.below(6)],
                3 => changed.truncate(at.max(length / 2)),
                4 => drop(changed.splice(at..at, [0xff; 5])),
                5 => drop(changed.splice(at..(at + 9).min(length), [])),
                _ => {
                    let end = (at + 50).min(length);
                    changed.extend_from_within(at.min(end)..end);
                }
            }
        }
        changed
    }
}

/// A FITS file: truths, integers with one for NULL, texts, numbers, arrays in the rows and perhaps behind them.
fn fits(arrays_behind: bool) -> Vec<u8> {
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

fn from_environment(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A length in a message that was changed ended the process: the library allocates what it says.
#[test]
fn lengths_in_arrow_are_looked_at() {
    const WORD: usize = 8;
    let files = Files::new();
    for usual in usual_arrow() {
        let mut rejected = 0;
        for (at, word) in usual.bytes.chunks_exact(WORD).enumerate() {
            // What may be a length, and not a value.
            let number = i64::from_le_bytes(word.try_into().unwrap());
            if !(64..usual.bytes.len() as i64).contains(&number) {
                continue;
            }
            let mut bytes = usual.bytes.clone();
            bytes[at * WORD..][..WORD].copy_from_slice(&(1_i64 << 60).to_le_bytes());
            let path = files.put(usual.name, &bytes);
            rejected += usize::from(usual.read(&path).is_err());
        }
        assert!(rejected > 0, "{}", usual.name);
    }
}

/// A HATS catalogue as a directory: its properties, those of a collection, and two files of cells.
struct Catalogue {
    properties: Vec<u8>,
    collection: Vec<u8>,
    cells: [Vec<u8>; 2],
}

/// The names of the files of a catalogue's cells.
const CELLS: [&str; 2] = [
    "Norder=0/Dir=0/Npix=4.parquet",
    "Norder=1/Dir=0/Npix=47.parquet",
];

impl Catalogue {
    fn usual() -> Self {
        let cell = |from: i64| {
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 50));
            let degrees: ArrayRef =
                Arc::new(Float64Array::from_iter_values((0..50).map(f64::from)));
            let columns = vec![
                ("_healpix_29", Arc::clone(&ids)),
                ("id", ids),
                ("ra", Arc::clone(&degrees)),
                ("dec", degrees),
            ];
            parquet(columns, WriterProperties::default())
        };
        let properties = "#HATS catalog\nobs_collection=star\ndataproduct_type=object\nhats_nrows=100\nhats_col_ra=ra\nhats_col_dec=dec\n\
             hats_col_healpix=_healpix_29\nhats_col_healpix_order=29\nhats_npix_suffix=.parquet\nhats_order=1\nmoc_sky_fraction=0.5\n\
             hats_builder=hats-import v0.11.1\nhats_version=v1.0\n";
        let collection = "#HATS Collection\nobs_collection=stars\nhats_primary_table_url=star\nall_margins=star_margin\ndefault_margin=star_margin\n";
        Self {
            properties: properties.into(),
            collection: collection.into(),
            cells: [cell(0), cell(50)],
        }
    }

    /// Writes it with one of its files or names mutated, below a directory that is made anew. Gives the directory to read.
    fn put_mutated(&self, dir: &Path, chance: &mut Chance) -> PathBuf {
        let _ = std::fs::remove_dir_all(dir);
        let in_collection = chance.below(3) == 0;
        let catalogue = if in_collection {
            dir.join("star")
        } else {
            dir.to_path_buf()
        };
        let changed = chance.below(6);
        let mut bytes = |part: usize, bytes: &[u8]| match part == changed {
            true => chance.mutated(bytes),
            false => bytes.to_vec(),
        };
        let put = |path: PathBuf, bytes: &[u8]| {
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::write(path, bytes))
        };
        let (collection, properties) = (bytes(0, &self.collection), bytes(1, &self.properties));
        if in_collection {
            put(dir.join("collection.properties"), &collection).unwrap();
        }
        put(catalogue.join("hats.properties"), &properties).unwrap();
        for (at, name) in CELLS.into_iter().enumerate() {
            let cell = bytes(2 + at, &self.cells[at]);
            let name = String::from_utf8_lossy(&bytes(4 + at, name.as_bytes())).into_owned();
            // A name that leads out of the directory is none that a listing of it has.
            let name: PathBuf = name
                .split('/')
                .filter(|part| !matches!(*part, "" | "." | "..") && !part.contains('\0'))
                .collect();
            let path = catalogue.join("dataset").join(name);
            // One that no file can have is passed over: that file is missing.
            let _ = put(path, &cell);
        }
        dir.to_path_buf()
    }
}

/// What mutated files of a format came to.
#[derive(Default)]
struct Outcomes {
    whole: usize,
    longest: Duration,
}

impl Outcomes {
    /// Reads a file, of which `what` tells how it is made again, and `name` how an error calls it.
    fn add(
        &mut self,
        (what, name): (&str, &str),
        read: impl FnOnce() -> Result<(usize, usize), IngestError> + UnwindSafe,
    ) {
        let begun = taken();
        let outcome = std::panic::catch_unwind(read);
        let outcome = outcome.unwrap_or_else(|_| Err(IngestError::Internal));
        self.longest = self.longest.max(taken() - begun);
        match outcome {
            Ok(_) => self.whole += 1,
            Err(IngestError::Internal) => fail(&format!("a reader panics over {what}")),
            Err(error) => {
                let told = error.to_string();
                if !told.contains(name) {
                    fail(&format!("{what} is told as {told}"));
                }
            }
        }
        if self.longest >= LONGEST {
            fail(&format!("{what} took {:?}", self.longest));
        }
    }

    fn tell(&self, format: &str, count: usize, before: u64) {
        let (whole, longest) = (self.whole, self.longest);
        let grown = peak().saturating_sub(before) >> 20;
        println!("{format}: {whole} of {count} can be read, {longest:.1?} at most, {grown} MiB");
    }
}

/// Fails a test that has silenced panics.
fn fail(sentence: &str) -> ! {
    drop(std::panic::take_hook());
    panic!("{sentence}");
}

/// A column of a Parquet file that began before the file ended a load: what is read ahead was computed of a negative number.
#[test]
fn places_in_parquet_are_looked_at() {
    // The number -1 as the footer writes it.
    const MINUS_ONE: u8 = 1;
    let files = Files::new();
    let usual = usual().into_iter().find(|it| it.name == "own.parquet");
    let bytes = usual.unwrap().bytes;
    let ends = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[ends..][..4].try_into().unwrap());
    let mut rejected = 0;
    for at in ends - footer as usize..ends {
        let mut changed = bytes.clone();
        changed[at] = MINUS_ONE;
        // Whatever it comes to, it does not panic.
        let outcome = read_own(&files.put("own.parquet", &changed), FileFormat::Parquet);
        let told = outcome.err().map(|error| error.to_string());
        rejected += usize::from(told.is_some_and(|it| it.contains("bytes that it does not have")));
    }
    assert!(rejected > 0);
}

#[test]
fn strange_files_do_no_harm() {
    let first = from_environment("MERIDIAN_MUTATION", 0);
    let count = from_environment("MERIDIAN_MUTATIONS", USUAL_MUTATIONS);
    // What a library panics over is damage, and told as such. Who reads one file wants to see where.
    if count > 1 {
        std::panic::set_hook(Box::new(|panic| {
            if panic.location().is_some_and(|it| it.file() == file!()) {
                println!("{panic}");
            }
        }));
    }
    let (files, before) = (Files::new(), peak());
    for format in FileFormat::ALL {
        let mut of_format = usual();
        of_format.retain(|usual| usual.format == format);
        let mut outcomes = Outcomes::default();
        for number in first..first + count {
            let usual = &of_format[number % of_format.len()];
            let what = format!("{}: MERIDIAN_MUTATION={number}", usual.name);
            let path = files.put(usual.name, &Chance(number as u64).mutated(&usual.bytes));
            outcomes.add((&what, usual.name), || usual.read(&path));
        }
        outcomes.tell(format.name(), count, before);
    }
    let (catalogue, dir) = (Catalogue::usual(), files.0.path().join("hats"));
    let mut outcomes = Outcomes::default();
    for number in first..first + count {
        let what = format!("a HATS catalogue: MERIDIAN_MUTATION={number}");
        let dir = catalogue.put_mutated(&dir, &mut Chance(number as u64));
        outcomes.add((&what, "hats"), || read_own(&dir, FileFormat::Parquet));
    }
    outcomes.tell("HATS", count, before);
    drop(std::panic::take_hook());
    let grown = peak().saturating_sub(before);
    assert!(
        grown < MEMORY + LIMITS.bytes,
        "memory grew by {} MiB",
        grown >> 20
    );
}
