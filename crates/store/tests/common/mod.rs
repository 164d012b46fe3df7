//! A file with columns of all types, for the tests of chunk files.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod range_server;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use catalog::{Column, ColumnType};
use futures::{TryStreamExt, stream};
use meridian_store::{
    ChunkFile, Directory, DirectoryBuilder, FileSummary, ScanRequest, StoreError, arrow_schema,
    write_chunk_file,
};
use sky::SubChunkId;

/// One column of each type, nullable, behind a key that is not.
pub fn all_types() -> SchemaRef {
    let types = [
        ("flag", ColumnType::Boolean),
        ("i8", ColumnType::Int8),
        ("i16", ColumnType::Int16),
        ("i32", ColumnType::Int32),
        ("i64", ColumnType::Int64),
        ("u8", ColumnType::UInt8),
        ("u16", ColumnType::UInt16),
        ("u32", ColumnType::UInt32),
        ("u64", ColumnType::UInt64),
        ("f32", ColumnType::Float32),
        ("f64", ColumnType::Float64),
        ("text", ColumnType::Text),
        ("bytes", ColumnType::Binary),
        (
            "price",
            ColumnType::Decimal {
                precision: 12,
                scale: 3,
            },
        ),
        (
            "wide",
            ColumnType::Decimal {
                precision: 38,
                scale: 10,
            },
        ),
        ("day", ColumnType::Date),
        ("time", ColumnType::Timestamp),
    ];
    let mut columns = vec![column("key", ColumnType::Int64, false)];
    columns.extend(types.map(|(name, ty)| column(name, ty, true)));
    arrow_schema(&columns)
}

pub fn column(name: &str, ty: ColumnType, nullable: bool) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        nullable,
        declared: None,
    }
}

/// A number that looks random.
pub fn hash(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Rows of all types with a NULL in every fifth place, another one in each column.
pub fn rows_of_all_types(rows: Range<u64>) -> RecordBatch {
    let schema = all_types();
    let columns: Vec<ArrayRef> = (0..schema.fields().len() as u64)
        .map(|c| {
            let field = schema.field(c as usize);
            let value = |row: u64| {
                let wanted = !field.is_nullable() || !(row + c).is_multiple_of(5);
                wanted.then(|| hash(row * 31 + c))
            };
            make_column(
                field.data_type(),
                rows.clone().map(value).collect(),
                rows.start,
            )
        })
        .collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

pub fn make_column(ty: &DataType, values: Vec<Option<u64>>, first: u64) -> ArrayRef {
    macro_rules! numbers {
        ($array:ty, $native:ty) => {
            Arc::new(
                values
                    .iter()
                    .map(|v| v.map(|v| v as $native))
                    .collect::<$array>(),
            )
        };
    }
    let text = |v: &u64| {
        if v.is_multiple_of(3) {
            String::new()
        } else {
            format!("star {}", "*".repeat((v % 40) as usize))
        }
    };
    match ty {
        DataType::Boolean => Arc::new(
            values
                .iter()
                .map(|v| v.map(|v| v % 2 == 0))
                .collect::<BooleanArray>(),
        ),
        DataType::Int8 => numbers!(Int8Array, i8),
        DataType::Int16 => numbers!(Int16Array, i16),
        DataType::Int32 => numbers!(Int32Array, i32),
        DataType::Int64 if values.iter().all(Option::is_some) => {
            let keys = (first..).take(values.len()).map(|n| n as i64);
            Arc::new(Int64Array::from_iter_values(keys))
        }
        DataType::Int64 => numbers!(Int64Array, i64),
        DataType::UInt8 => numbers!(UInt8Array, u8),
        DataType::UInt16 => numbers!(UInt16Array, u16),
        DataType::UInt32 => numbers!(UInt32Array, u32),
        DataType::UInt64 => numbers!(UInt64Array, u64),
        DataType::Float32 => numbers!(Float32Array, f32),
        DataType::Float64 => {
            let values = values.iter().map(|v| v.map(|v| v as f64 / 1e16 - 90.0));
            Arc::new(values.collect::<Float64Array>())
        }
        DataType::Utf8View => Arc::new(
            values
                .iter()
                .map(|v| v.as_ref().map(text))
                .collect::<StringViewArray>(),
        ),
        DataType::BinaryView => {
            let values = values
                .iter()
                .map(|v| v.map(|v| v.to_le_bytes()[..(v % 9) as usize].to_vec()));
            Arc::new(values.collect::<BinaryViewArray>())
        }
        DataType::Decimal128(precision, scale) => {
            let values = values
                .iter()
                .map(|v| v.map(|v| i128::from(v % 1_000_000_000) - 500_000_000));
            let array = values.collect::<Decimal128Array>();
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Date32 => Arc::new(
            values
                .iter()
                .map(|v| v.map(|v| (v % 40_000) as i32))
                .collect::<Date32Array>(),
        ),
        DataType::Timestamp(_, _) => {
            let values = values.iter().map(|v| v.map(|v| (v % (1 << 52)) as i64));
            Arc::new(values.collect::<TimestampMicrosecondArray>())
        }
        other => panic!("{other}"),
    }
}

/// Sub-chunks of 1000 rows.
pub fn directory(rows: u64) -> Directory {
    let mut builder = DirectoryBuilder::default();
    for (id, start) in (0..).zip((0..rows).step_by(1000)) {
        let bounds = (id % 2 == 0).then_some([359.5, -1.0, 0.5, f64::from(id)]);
        builder.push(SubChunkId(id), 1000.min(rows - start), bounds);
    }
    builder.finish().unwrap()
}

pub async fn write(path: &Path, batches: Vec<RecordBatch>) -> Result<FileSummary, StoreError> {
    let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let schema = batches[0].schema();
    let batches = stream::iter(batches.into_iter().map(Ok::<_, ArrowError>));
    write_chunk_file(path, schema, batches, directory(rows)).await
}

pub struct Sample {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
    pub all: RecordBatch,
    pub summary: FileSummary,
}

/// A file of all types, written in batches of odd sizes.
pub async fn sample(rows: u64) -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_7.mrd");
    let mut batches = vec![rows_of_all_types(0..0)];
    let mut start = 0;
    while start < rows {
        let end = (start + 1 + hash(start) % 7000).min(rows);
        batches.push(rows_of_all_types(start..end));
        start = end;
    }
    let all = concat_batches(&all_types(), &batches).unwrap();
    let summary = write(&path, batches).await.unwrap();
    Sample {
        _dir: dir,
        path,
        all,
        summary,
    }
}

pub fn request(schema: &SchemaRef, projection: &[usize]) -> ScanRequest {
    ScanRequest {
        projection: projection.to_vec(),
        filter: None,
        hints: Vec::new(),
        condition: None,
        ranges: None,
        sorted: None,
        sharers: 0,
        counters: None,
        schema: Arc::new(schema.project(projection).unwrap()),
    }
}

pub async fn scan(file: &ChunkFile, request: ScanRequest) -> Result<RecordBatch, StoreError> {
    let schema = Arc::clone(&request.schema);
    let batches: Vec<RecordBatch> = file.scan(request).try_collect().await?;
    for batch in &batches {
        assert_eq!(batch.schema(), schema);
        assert_ne!(batch.num_rows(), 0);
    }
    if schema.fields().is_empty() {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        return Ok(RecordBatch::try_new_with_options(schema, vec![], &options).unwrap());
    }
    Ok(concat_batches(&schema, &batches).unwrap())
}

pub fn slices(all: &RecordBatch, ranges: &[Range<u64>]) -> RecordBatch {
    let parts: Vec<_> = ranges
        .iter()
        .map(|r| all.slice(r.start as usize, (r.end - r.start) as usize))
        .collect();
    concat_batches(&all.schema(), &parts).unwrap()
}
