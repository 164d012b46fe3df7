//! Small catalogues, their files, and a way to read back what was loaded, without any query engine.
#![allow(dead_code, reason = "each test program uses its part of these")]
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use catalog::{Catalog, Table};
use futures::TryStreamExt;
use meridian_ingest::{IngestError, LoadReport, LoadRequest, Progress};
use parquet::arrow::ArrowWriter;
use sky::{ChunkId, SubChunkId};
use store::{ChunkFile, LoadDir, OpenFiles, ScanRequest};

/// A generator of numbers that are the same on every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Anywhere on the sky, now and then at a pole or at RA 0.
    pub fn position(&mut self) -> (f64, f64) {
        let ra = self.unit() * 360.0;
        let dec = (2.0 * self.unit() - 1.0).asin().to_degrees();
        match self.below(20) {
            0 => (ra, 90.0 - self.unit() * 0.01),
            1 => (ra, -90.0 + self.unit() * 0.01),
            2 => (self.unit() * 0.02, dec),
            3 => (360.0 - self.unit() * 0.02 - 1e-9, dec),
            _ => (ra, dec),
        }
    }
}

/// A row of a director or a child.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The own key (of a director: its key).
    pub id: i64,
    /// A child's key of its director.
    pub parent: Option<i64>,
    pub ra: Option<f64>,
    pub dec: Option<f64>,
    pub name: Option<String>,
}

/// Rows with different keys, in no order.
pub fn stars(count: i64, seed: u64) -> Vec<Row> {
    let mut dice = Dice::new(seed);
    let mut rows: Vec<Row> = (0..count)
        .map(|i| {
            let (ra, dec) = dice.position();
            Row {
                id: i * 7 - 1000,
                parent: Some(i % 11),
                ra: Some(ra),
                dec: Some(dec),
                name: (i % 3 != 0).then(|| format!("star, \"{i}\"\n\\x")),
            }
        })
        .collect();
    for i in (1..rows.len()).rev() {
        rows.swap(i, dice.below(i as u64 + 1) as usize);
    }
    rows
}

/// The rows as a batch with columns id, parent, ra, dec, name.
pub fn batch(rows: &[Row]) -> RecordBatch {
    let id: Int64Array = rows.iter().map(|r| Some(r.id)).collect();
    let parent: Int64Array = rows.iter().map(|r| r.parent).collect();
    let ra: Float64Array = rows.iter().map(|r| r.ra).collect();
    let dec: Float64Array = rows.iter().map(|r| r.dec).collect();
    let name: StringArray = rows.iter().map(|r| r.name.clone()).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(id) as ArrayRef, false),
        ("parent", Arc::new(parent), true),
        ("ra", Arc::new(ra), true),
        ("dec", Arc::new(dec), true),
        ("name", Arc::new(name), true),
    ])
    .unwrap()
}

pub fn write_parquet(path: &Path, batch: &RecordBatch, group_rows: usize) -> PathBuf {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    path.to_path_buf()
}

/// RFC 4180 with a header.
pub fn write_csv(path: &Path, rows: &[Row]) -> PathBuf {
    let number = |v: Option<String>| v.unwrap_or_default();
    let mut text = "id,parent,ra,dec,name\n".to_owned();
    for r in rows {
        let name = r.name.as_ref().map_or("\\N".to_owned(), |n| {
            format!("\"{}\"", n.replace('"', "\"\""))
        });
        text.push_str(&format!(
            "{},{},{},{},{name}\n",
            r.id,
            number(r.parent.map(|v| v.to_string())),
            number(r.ra.map(|v| v.to_string())),
            number(r.dec.map(|v| v.to_string())),
        ));
    }
    std::fs::write(path, text).unwrap();
    path.to_path_buf()
}

/// A data directory and what is done with it.
pub struct Sky {
    pub dir: tempfile::TempDir,
}

pub const STRIPES: u32 = 6;
pub const SUB_STRIPES: u32 = 4;
pub const OVERLAP: f64 = 0.5;

impl Sky {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A request into the database `sky` with the cut of these tests.
    pub fn request(&self, table: &str, files: &[PathBuf]) -> LoadRequest {
        let mut request = LoadRequest::new(self.data(), "sky", table);
        request.stripes = Some(STRIPES);
        request.sub_stripes = Some(SUB_STRIPES);
        request.overlap_deg = Some(OVERLAP);
        request.memory = Some(64 << 20);
        request.threads = Some(2);
        request.text.nulls = vec!["\\N".to_owned()];
        request.text.quote = Some(Some(b'"'));
        request.files = files.to_vec();
        request
    }

    pub fn director(&self, table: &str, files: &[PathBuf]) -> LoadRequest {
        let mut request = self.request(table, files);
        request.key = vec!["id".to_owned()];
        request.ra = Some("ra".to_owned());
        request.dec = Some("dec".to_owned());
        request
    }

    pub fn child(&self, table: &str, director: &str, files: &[PathBuf]) -> LoadRequest {
        let mut request = self.director(table, files);
        request.key = vec!["parent".to_owned()];
        request.directors = vec![director.to_owned()];
        request
    }

    pub async fn table(&self, name: &str) -> Table {
        let catalog = Catalog::open(&self.data()).await.unwrap();
        catalog.table("sky", name).await.unwrap().unwrap()
    }

    pub async fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let data = self.data();
        let checked = meridian_ingest::check(&data, meridian_ingest::CheckScope::default(), |t| {
            problems.extend(t.problems.iter().map(|p| format!("{}: {p}", t.table)));
        });
        checked.await.unwrap();
        problems
    }

    /// Every row of a table's own files with its chunk and sub-chunk, part by part in the order of the files.
    pub async fn rows(&self, table: &str) -> Vec<StoredRow> {
        self.stored(table, false).await
    }

    /// Every row of the overlap files with the chunk near which it is.
    pub async fn overlap(&self, table: &str) -> Vec<StoredRow> {
        self.stored(table, true).await
    }

    async fn stored(&self, name: &str, overlap: bool) -> Vec<StoredRow> {
        let catalog = Catalog::open(&self.data()).await.unwrap();
        let table = self.table(name).await;
        let files = OpenFiles::new(8);
        let mut stored = Vec::new();
        for part in table.part_numbers() {
            let dir = LoadDir::open(&self.data(), "sky", name, part).unwrap();
            for chunk in catalog.chunks(part).await.unwrap() {
                if overlap && chunk.overlap.is_none() {
                    continue;
                }
                let path = if overlap {
                    dir.overlap_path(chunk.file)
                } else {
                    dir.chunk_path(chunk.file)
                };
                let file = files.get(&path, chunk.chunk).await.unwrap();
                let rows = stored_rows(&file, chunk.chunk).await;
                let said = match overlap {
                    true => chunk.overlap.unwrap().rows,
                    false => chunk.rows,
                };
                assert_eq!(rows.len() as u64, said);
                stored.extend(rows);
            }
        }
        stored
    }
}

/// Every row of a file that holds a chunk, which is verified.
pub async fn stored_rows(file: &ChunkFile, chunk: ChunkId) -> Vec<StoredRow> {
    file.verify().await.unwrap();
    let request = ScanRequest {
        projection: (0..file.schema().fields().len()).collect(),
        filter: None,
        hints: Vec::new(),
        condition: None,
        ranges: None,
        sorted: None,
        sharers: 0,
        counters: None,
        schema: file.schema().clone(),
    };
    let batches: Vec<RecordBatch> = file.scan(request).try_collect().await.unwrap();
    let mut stored = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let entry = file.directory().entry_of_row(stored.len() as u64);
            stored.push(StoredRow {
                chunk,
                sub_chunk: entry.map_or(SubChunkId(-1), |e| e.sub_chunk),
                values: values(&batch, row),
            });
        }
    }
    stored
}

/// A row as it lies in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRow {
    pub chunk: ChunkId,
    pub sub_chunk: SubChunkId,
    pub values: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
}

impl StoredRow {
    pub fn int(&self, column: &str) -> Option<i64> {
        match self.values[column] {
            Value::Int(value) => Some(value),
            Value::Null => None,
            ref other => panic!("{column} is {other:?}"),
        }
    }

    pub fn float(&self, column: &str) -> Option<f64> {
        match self.values[column] {
            Value::Float(value) => Some(value),
            Value::Null => None,
            ref other => panic!("{column} is {other:?}"),
        }
    }

    pub fn row(&self) -> Row {
        let name = match &self.values["name"] {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        Row {
            id: self.int("id").unwrap(),
            parent: self.int("parent"),
            ra: self.float("ra"),
            dec: self.float("dec"),
            name,
        }
    }
}

fn values(batch: &RecordBatch, row: usize) -> BTreeMap<String, Value> {
    let schema = batch.schema();
    let value = |(field, column): (&Arc<arrow::datatypes::Field>, &ArrayRef)| {
        let cell = column.slice(row, 1);
        let value = if cell.null_count() > 0 {
            Value::Null
        } else if field.data_type().is_integer() {
            Value::Int(
                cast(&cell, &DataType::Int64)
                    .unwrap()
                    .as_primitive::<Int64Type>()
                    .value(0),
            )
        } else if field.data_type().is_floating() {
            Value::Float(
                cast(&cell, &DataType::Float64)
                    .unwrap()
                    .as_primitive::<Float64Type>()
                    .value(0),
            )
        } else {
            Value::Text(
                cast(&cell, &DataType::Utf8)
                    .unwrap()
                    .as_string::<i32>()
                    .value(0)
                    .to_owned(),
            )
        };
        (field.name().clone(), value)
    };
    schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(value)
        .collect()
}

/// Loads and gives the report.
pub async fn load(request: LoadRequest) -> Result<LoadReport, IngestError> {
    meridian_ingest::load(request, Arc::new(Progress::default())).await
}

/// The sentence of a load that must fail.
pub async fn load_error(request: LoadRequest) -> String {
    load(request).await.unwrap_err().to_string()
}
