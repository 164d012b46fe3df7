//! Region files against a loop over the same rows: every region gives exactly its rows, and what is cut off or damaged is told.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use made::{Row, Rows};
use proptest::prelude::*;
use region_files::{
    Partitioning, RegionFiles, RegionFilesError, RegionWriter, RegionsReport, Search, Source,
    TableDescription, Verification,
};
use sky::{Angle, Chunker, LonLat, Region, separation};
use tempfile::TempDir;

/// Rows of known positions, from a generator that needs no crate.
mod made {
    /// A position and its number.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Row {
        pub id: i64,
        pub ra: f64,
        pub dec: f64,
    }

    /// A linear congruential generator (D. Knuth's MMIX).
    pub struct Rows(pub u64);

    impl Rows {
        pub fn unit(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Rows over the sky, on the poles, on the seam, and many in a small field across it.
        pub fn rows(&mut self, count: i64) -> Vec<Row> {
            let row = |id: i64| {
                let (a, b) = (self.unit(), self.unit());
                let (ra, dec) = match id % 8 {
                    0 => (360.0 * a, 90.0),
                    1 => (360.0 * a, -90.0),
                    2 => (0.0, 180.0 * b - 90.0),
                    3 | 4 => (360.0 * a, (2.0 * b - 1.0).asin().to_degrees()),
                    _ => ((4.0 * a - 2.0).rem_euclid(360.0), 4.0 * b - 2.0),
                };
                Row { id, ra, dec }
            };
            (0..count).map(row).collect()
        }
    }
}

fn schema() -> SchemaRef {
    let unit = [
        ("unit".to_owned(), "deg".to_owned()),
        ("other".to_owned(), "x".to_owned()),
    ];
    let degrees =
        |name| Field::new(name, DataType::Float64, false).with_metadata(unit.clone().into());
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        degrees("ra"),
        degrees("dec"),
        Field::new("name", DataType::Utf8View, true),
        Field::new("flag", DataType::Boolean, true),
    ]))
}

fn batch_of(rows: &[Row]) -> RecordBatch {
    let name = |row: &Row| (row.id % 5 != 0).then(|| format!("the object of number {}", row.id));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| Some(row.id)).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|row| Some(row.ra))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            rows.iter()
                .map(|row| Some(row.dec))
                .collect::<Float64Array>(),
        ),
        Arc::new(rows.iter().map(name).collect::<StringViewArray>()),
        Arc::new(
            rows.iter()
                .map(|row| (row.id % 3 != 0).then_some(row.id % 2 == 0))
                .collect::<BooleanArray>(),
        ),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn described(stripes: u32, sub_stripes: u32) -> TableDescription {
    TableDescription {
        source: Source {
            database: "sky".to_owned(),
            table: "Star".to_owned(),
            parts: vec![1, 4],
            ..Source::default()
        },
        partitioning: Partitioning {
            stripes,
            sub_stripes,
        },
        key: Some("id".to_owned()),
        position: ["ra".to_owned(), "dec".to_owned()],
    }
}

fn place(row: &Row) -> LonLat {
    LonLat::from_degrees(row.ra, row.dec).unwrap()
}

/// Writes rows, in batches of some size.
fn write(dir: &Path, rows: &[Row], cut: (u32, u32), at_a_time: usize) -> RegionsReport {
    let chunker = Chunker::new(cut.0, cut.1).unwrap();
    let mut sorted = rows.to_vec();
    sorted.sort_by_key(|row| (chunker.locate(place(row)), row.id));
    let mut writer = RegionWriter::begin(dir, &schema(), described(cut.0, cut.1)).unwrap();
    for rows in sorted.chunks(at_a_time) {
        writer.write(&batch_of(rows)).unwrap();
    }
    writer.finish().unwrap()
}

fn ids(files: &RegionFiles, search: &Search) -> Vec<i64> {
    let mut found = Vec::new();
    for batch in files.rows(search, Some(&["ID"])).unwrap() {
        let batch = batch.unwrap();
        assert_eq!(batch.num_columns(), 1);
        found.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    found.sort_unstable();
    found
}

fn search(region: &str, padding: f64) -> Search {
    Search::new(region.parse().unwrap(), Angle::from_degrees(padding)).unwrap()
}

#[test]
fn regions_give_their_rows() {
    let rows = Rows(7).rows(40_000);
    for (cut, at_a_time) in [((18, 6), 1_000), ((2, 1), 8_192), ((1, 1), 50_000)] {
        let dir = TempDir::new().unwrap();
        let written = write(dir.path(), &rows, cut, at_a_time);
        assert_eq!(written.rows, 40_000);
        let files = RegionFiles::open(dir.path(), Verification::Checksums).unwrap();
        files.verify().unwrap();
        assert_eq!(files.index().chunks.len(), written.files);
        for region in [
            "circle 0 0 1",
            "circle 359.5 0.5 0.7",
            "circle 10 90 3",
            "circle 77 -90 0",
            "circle 0 0 180",
            "circle 0 0 100",
            "circle 1.5 1.5 1e-9",
            "box 359 -1 1 1",
            "box 0 -90 360 90",
            "box 10 80 20 90",
            "box 0 0 0 0",
            "polygon 359 -1 1 -1 1 1 359 1",
            "polygon 0 80 120 80 240 80",
            "polygon 1 -1 1 1 359 0",
        ] {
            for padding in [0.0, 0.25] {
                let wanted = search(region, padding);
                let inside = rows.iter().filter(|row| wanted.contains(place(row)));
                let inside: Vec<i64> = inside.map(|row| row.id).collect();
                assert_eq!(ids(&files, &wanted), inside, "{region} {padding} {cut:?}");
            }
        }
    }
}

#[test]
fn rows_come_with_their_values_and_in_the_columns_that_are_named() {
    let rows = Rows(3).rows(20_000);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (3, 2), 700);
    let files = RegionFiles::open(dir.path(), Verification::Sizes).unwrap();
    let everything = search("box 0 -90 360 90", 0.0);
    let mut seen = 0;
    for batch in files.rows(&everything, None).unwrap() {
        let batch = batch.unwrap();
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let given: Vec<Row> = ids.values().iter().map(|id| rows[*id as usize]).collect();
        for (column, wanted) in batch.columns().iter().zip(batch_of(&given).columns()) {
            let wanted = arrow::compute::cast(wanted, column.data_type()).unwrap();
            assert_eq!(column, &wanted);
        }
        seen += batch.num_rows();
    }
    assert_eq!(seen, rows.len());
    // What is said of columns, and nothing else.
    let ra = files.schema().field(1);
    assert_eq!(ra.metadata().len(), 1);
    assert_eq!(files.index().columns[1].unit.as_deref(), Some("deg"));
    assert_eq!(files.index().columns[3].data_type, "Utf8");

    let chosen = files.rows(&everything, Some(&["Name", "dec"])).unwrap();
    let names: Vec<String> = chosen
        .schema()
        .fields()
        .iter()
        .map(|it| it.name().clone())
        .collect();
    assert_eq!(names, ["name", "dec"]);
    for batch in chosen {
        assert_eq!(*batch.unwrap().column(1).data_type(), DataType::Float64);
    }
    let error = files
        .rows(&everything, Some(&["colour"]))
        .map(drop)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the region files have no column colour; they have id, ra, dec, name, flag"
    );
    let error = files
        .rows(&everything, Some(&["id", "ID"]))
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, RegionFilesError::ColumnTwice(_)), "{error}");
}

/// The rows of sub-chunks follow each other, and their bounds hold them.
#[test]
fn chunks_have_their_own_rows_sorted() {
    let rows = Rows(11).rows(5_000);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (18, 6), 333);
    let chunker = Chunker::new(18, 6).unwrap();
    let files = RegionFiles::open(dir.path(), Verification::Sizes).unwrap();
    let mut seen = 0;
    for chunk in &files.index().chunks {
        let path = dir
            .path()
            .join(format!("chunks/chunk_{}.arrow", chunk.chunk));
        let file = fs::File::open(path).unwrap();
        let reader = arrow::ipc::reader::FileReader::try_new(file, None).unwrap();
        let mut last = None;
        for batch in reader {
            let batch = batch.unwrap();
            let [ra, dec] = [1, 2].map(|at| batch.column(at).as_primitive::<Float64Type>());
            for row in 0..batch.num_rows() {
                let location =
                    chunker.locate(LonLat::from_degrees(ra.value(row), dec.value(row)).unwrap());
                assert_eq!(location.chunk.0, chunk.chunk);
                let id = batch.column(0).as_primitive::<Int64Type>().value(row);
                let order = Some((location.sub_chunk, id));
                assert!(order > last);
                last = order;
                seen += 1;
            }
        }
    }
    assert_eq!(seen, rows.len());
}

#[test]
fn what_cannot_be_written_is_rejected() {
    let row = |id, ra, dec| Row { id, ra, dec };
    let dir = TempDir::new().unwrap();
    let begin = |name: &str, schema: &Schema| {
        let dir = dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        RegionWriter::begin(&dir, schema, described(18, 6))
    };
    let empty = begin("empty", &schema()).unwrap().finish().unwrap_err();
    assert!(matches!(empty, RegionFilesError::Empty), "{empty}");
    // North comes after south.
    let mut writer = begin("chunks", &schema()).unwrap();
    writer.write(&batch_of(&[row(1, 10.0, 60.0)])).unwrap();
    let late = writer.write(&batch_of(&[row(2, 10.0, -60.0)])).unwrap_err();
    assert!(matches!(late, RegionFilesError::Order { .. }), "{late}");
    let mut writer = begin("sub_chunks", &schema()).unwrap();
    let late = batch_of(&[row(1, 10.0, 9.9), row(2, 10.0, 0.1)]);
    let late = writer.write(&late).unwrap_err();
    assert!(matches!(late, RegionFilesError::Order { .. }), "{late}");
    let mut writer = begin("places", &schema()).unwrap();
    let nowhere = writer.write(&batch_of(&[row(1, 10.0, 91.0)])).unwrap_err();
    assert!(nowhere.to_string().contains("declination 91"), "{nowhere}");
    let list = Field::new_list("list", Field::new("item", DataType::Float64, true), true);
    let mut fields = schema().fields().to_vec();
    fields.push(Arc::new(list));
    let unfit = begin("types", &Schema::new(fields)).map(drop).unwrap_err();
    assert!(
        unfit
            .to_string()
            .contains("the column list has values of the type"),
        "{unfit}"
    );
    let without = begin("columns", &schema().project(&[0, 1]).unwrap())
        .map(drop)
        .unwrap_err();
    assert!(without.to_string().contains("no column dec"), "{without}");
}

fn opened(dir: &Path, verification: Verification) -> Result<Vec<i64>, RegionFilesError> {
    let files = RegionFiles::open(dir, verification)?;
    let everything = search("box 0 -90 360 90", 0.0);
    let mut found = Vec::new();
    for batch in files.rows(&everything, None)? {
        found.extend(batch?.column(0).as_primitive::<Int64Type>().values());
    }
    Ok(found)
}

#[test]
fn what_is_cut_off_is_always_found_and_what_is_damaged_where_that_is_wanted() {
    let rows = Rows(5).rows(3_000);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (6, 2), 500);
    assert_eq!(
        opened(dir.path(), Verification::Sizes).unwrap().len(),
        rows.len()
    );
    let index = RegionFiles::open(dir.path(), Verification::Sizes).unwrap();
    let last = index.index().chunks.last().unwrap().chunk;
    for name in [
        "directory.arrow".to_owned(),
        format!("chunks/chunk_{last}.arrow"),
    ] {
        let path = dir.path().join(&name);
        let whole = fs::read(&path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(whole.len() as u64 - 9).unwrap();
        for verification in [Verification::Sizes, Verification::Checksums] {
            let error = opened(dir.path(), verification).unwrap_err();
            assert!(matches!(error, RegionFilesError::Size { .. }), "{error}");
            assert!(error.to_string().contains(&name), "{error}");
        }
        for at in [whole.len() / 2, whole.len() - 20, 100] {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, &flipped).unwrap();
            let error = opened(dir.path(), Verification::Checksums).unwrap_err();
            assert!(matches!(error, RegionFilesError::Damaged { .. }), "{error}");
            let error = index.verify().unwrap_err();
            assert!(error.to_string().contains(&name), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let error = opened(dir.path(), Verification::Sizes).unwrap_err();
        assert!(matches!(error, RegionFilesError::Io { .. }), "{error}");
        fs::write(&path, &whole).unwrap();
    }
    index.verify().unwrap();
}

/// Arrow's reader panics at some footers and messages that a disk has changed, and once did where nobody had asked to verify.
#[test]
fn no_flipped_byte_makes_a_reader_panic() {
    let rows = Rows(5).rows(60);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (1, 1), 25);
    let index = RegionFiles::open(dir.path(), Verification::Sizes).unwrap();
    let [chunk] = &index.index().chunks[..] else {
        panic!("one chunk has all rows")
    };
    let all: Vec<i64> = opened(dir.path(), Verification::Sizes).unwrap();
    let of_chunk = format!("chunks/chunk_{}.arrow", chunk.chunk);
    let path = dir.path().join(&of_chunk);
    let whole = fs::read(&path).unwrap();
    // What it says of itself: the messages, then the footer.
    let footer_length = i32::from_le_bytes(whole[whole.len() - 10..][..4].try_into().unwrap());
    let footer = whole.len() - 10 - footer_length as usize..whole.len();
    let parsed = arrow::ipc::root_as_footer(&whole[footer.start..footer.end - 10]).unwrap();
    let blocks = parsed.recordBatches().unwrap();
    let messages = blocks.iter().map(|block| {
        let at = block.offset() as usize;
        at..at + block.metaDataLength() as usize
    });
    let told: Vec<_> = messages.chain([footer]).collect();
    let first_message = told[0].start;
    let (mut damaged, mut unnoticed) = (0, 0);
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        let found = opened(dir.path(), Verification::Sizes);
        if told.iter().any(|range| range.contains(&at)) {
            let error = found.unwrap_err();
            assert!(matches!(error, RegionFilesError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(&of_chunk), "{error}");
            damaged += 1;
        } else if at < first_message {
            // What is before them nobody reads.
            assert_eq!(found.unwrap(), all);
        } else {
            unnoticed += usize::from(found.is_ok());
        }
        let error = opened(dir.path(), Verification::Checksums).unwrap_err();
        assert!(matches!(error, RegionFilesError::Damaged { .. }), "{error}");
    }
    let of_told: usize = told.iter().map(|range| range.len()).sum();
    assert_eq!(damaged, of_told);
    assert!(
        unnoticed > 0,
        "values have no checksum that is always compared"
    );
    fs::write(&path, &whole).unwrap();
    assert_eq!(opened(dir.path(), Verification::Sizes).unwrap(), all);
}

#[test]
fn no_flipped_byte_of_the_directory_or_the_index_makes_a_reader_panic() {
    let rows = Rows(5).rows(30);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (1, 1), 25);
    let path = dir.path().join("directory.arrow");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        let error = opened(dir.path(), Verification::Sizes).unwrap_err();
        assert!(matches!(error, RegionFilesError::Damaged { .. }), "{error}");
    }
    fs::write(&path, &whole).unwrap();
    let path = dir.path().join("index.json");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        // Digits become other digits, too.
        for bit in [at % 8, 0] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&path, &flipped).unwrap();
            // Some of it (descriptions, the program's name) is for people alone.
            let _ = opened(dir.path(), Verification::Sizes);
        }
    }
}

/// Indexes of before there was a checksum of footers and messages: all of a file is compared then.
#[test]
fn files_without_a_checksum_of_their_metadata_are_compared_as_a_whole() {
    let rows = Rows(5).rows(60);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (1, 1), 25);
    let path = dir.path().join("index.json");
    let mut index: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let chunk = index["chunks"][0].as_object_mut().unwrap();
    assert!(chunk.remove("metadata_sha256").is_some());
    let name = format!("chunks/chunk_{}.arrow", chunk["chunk"]);
    fs::write(&path, serde_json::to_vec(&index).unwrap()).unwrap();
    assert_eq!(opened(dir.path(), Verification::Sizes).unwrap().len(), 60);
    let path = dir.path().join(name);
    let mut flipped = fs::read(&path).unwrap();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(&path, &flipped).unwrap();
    let error = opened(dir.path(), Verification::Sizes).unwrap_err();
    assert!(matches!(error, RegionFilesError::Damaged { .. }), "{error}");
}

#[test]
fn an_index_that_does_not_fit_is_rejected() {
    let rows = Rows(5).rows(100);
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (18, 6), 500);
    let path = dir.path().join("index.json");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, words) in [
        (
            "\"rows\":100",
            "\"rows\":101",
            "its numbers do not fit together",
        ),
        (
            "\"version\":1",
            "\"version\":2",
            "need another version of the reader",
        ),
        ("meridian-region-files", "other-files", "but of other-files"),
        (
            "\"first_sub_chunk\":0",
            "\"first_sub_chunk\":1",
            "its chunks do not fit",
        ),
        ("\"id\"", "\"ID\"", "other columns than the index"),
        ("}", "", "no index of region files"),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let error = opened(dir.path(), Verification::Sizes).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let error = opened(dir.path(), Verification::Sizes).unwrap_err();
    assert!(
        error.to_string().contains("no index of region files"),
        "{error}"
    );
    fs::remove_file(&path).unwrap();
    let error = opened(dir.path(), Verification::Sizes).unwrap_err();
    assert!(
        error.to_string().contains("there are no region files"),
        "{error}"
    );
}

#[test]
fn right_ascensions_that_are_not_wrapped_are_found_where_they_are() {
    let row = |id, ra, dec| Row { id, ra, dec };
    let rows = [
        row(0, -0.5, 0.5),
        row(1, 360.25, 0.5),
        row(2, 719.0, 0.5),
        row(3, 360.0, -0.5),
    ];
    let dir = TempDir::new().unwrap();
    write(dir.path(), &rows, (18, 6), 10);
    let files = RegionFiles::open(dir.path(), Verification::Sizes).unwrap();
    assert_eq!(ids(&files, &search("box 359.2 -1 0.3 1", 0.0)), [0, 1, 3]);
    assert_eq!(ids(&files, &search("circle 359 0.5 0.01", 0.0)), [2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Circles against the separation function, on any cut of the sky.
    #[test]
    fn circles_have_what_is_within_the_radius(
        seed in any::<u64>(), stripes in 1_u32..40, sub_stripes in 1_u32..8,
        circles in prop::collection::vec((0.0_f64..360.0, -90.0_f64..=90.0, 0.0_f64..30.0), 1..12),
    ) {
        let rows = Rows(seed).rows(600);
        let dir = TempDir::new().unwrap();
        write(dir.path(), &rows, (stripes, sub_stripes), 100);
        let files = RegionFiles::open(dir.path(), Verification::Sizes).unwrap();
        for (ra, dec, radius) in circles {
            let centre = LonLat::from_degrees(ra, dec).unwrap();
            let circle = Region::circle_degrees(ra, dec, radius).unwrap();
            let within = rows.iter().filter(|row| separation(centre, place(row)).degrees() <= radius);
            let within: Vec<i64> = within.map(|row| row.id).collect();
            prop_assert_eq!(ids(&files, &Search::new(circle, Angle::ZERO).unwrap()), within);
        }
    }
}
