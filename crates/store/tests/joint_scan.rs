//! Several files read as one stream: the rows of each, one file after another, whatever is tested and given together.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat_batches;
use arrow::datatypes::{Fields, Int64Type, SchemaRef};
use catalog::ColumnType;
use common::{column, hash, request};
use futures::{StreamExt, TryStreamExt, stream};
use meridian_store::{
    ChunkSection, DirectoryBuilder, Durability, OpenFile, RowCondition, ScanRequest, StoreError,
    arrow_schema, scan_files, write_packed_file_with,
};
use proptest::prelude::*;
use sky::{ChunkId, SubChunkId};
use vortex::expr::{col, gt_eq, lit};

fn schema() -> SchemaRef {
    arrow_schema(&[
        column("key", ColumnType::Int64, false),
        column("flux", ColumnType::Float64, true),
        column("name", ColumnType::Text, true),
    ])
}

/// Keeps keys with one remainder; of every eleventh it does not know.
#[derive(Debug)]
struct Remainder(i64, Fields);

impl RowCondition for Remainder {
    fn columns(&self) -> &[usize] {
        &[0]
    }

    fn fields(&self) -> &Fields {
        &self.1
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        let keys = columns[0].as_primitive::<Int64Type>();
        assert_eq!(keys.len(), rows);
        let keep = |key: i64| (key % 11 != 0).then_some(key % self.0 == 1);
        Ok(keys.values().iter().map(|key| keep(*key)).collect())
    }
}

/// A file of chunks with so many rows each, and its rows.
async fn write(path: &Path, number: u64, chunks: &[u64]) -> RecordBatch {
    let rows = chunks.iter().sum();
    let key = |row: u64| (hash(number * 1_000_003 + row) % 100_000) as i64;
    let flux = |row: u64| (!row.is_multiple_of(5)).then_some(key(row) as f64 / 7.0);
    let name = |row: u64| (!row.is_multiple_of(3)).then(|| format!("file {number} row {row}"));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..rows).map(key))),
        Arc::new(Float64Array::from_iter((0..rows).map(flux))),
        Arc::new(StringViewArray::from_iter((0..rows).map(name))),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    let section = |(chunk, rows): (i32, &u64)| {
        let mut directory = DirectoryBuilder::default();
        directory.push(SubChunkId(chunk), *rows, None);
        ChunkSection {
            chunk: ChunkId(chunk),
            rows: *rows,
            directory: directory.finish().unwrap(),
        }
    };
    let sections: Vec<ChunkSection> = (0..).zip(chunks).map(section).collect();
    let batches = stream::iter([Ok::<_, std::io::Error>(batch.clone())]);
    write_packed_file_with(path, schema(), batches, Durability::WithName, || {
        Ok(sections)
    })
    .await
    .unwrap();
    batch
}

fn of_store(error: StoreError) -> StoreError {
    error
}

/// What is read of files, each with its own ranges.
async fn joint(files: Vec<(Arc<OpenFile>, ScanRequest)>) -> Result<RecordBatch, StoreError> {
    let schema = Arc::clone(&files[0].1.schema);
    let requests = stream::iter(files.into_iter().map(Ok)).boxed();
    let batches: Vec<RecordBatch> = scan_files(requests, of_store).try_collect().await?;
    assert!(batches.iter().all(|batch| batch.num_rows() > 0));
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    if schema.fields().is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        return Ok(RecordBatch::try_new_with_options(schema, vec![], &options).unwrap());
    }
    Ok(concat_batches(&schema, &batches).unwrap())
}

/// The same, as a model that looks at every row by itself.
fn expected(
    rows: &[(RecordBatch, Vec<Range<u64>>)],
    request: &ScanRequest,
    keep: impl Fn(i64, Option<f64>) -> bool,
) -> RecordBatch {
    let mut kept = Vec::new();
    for (batch, ranges) in rows {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        let flux: &Float64Array = batch.column(1).as_primitive();
        let wanted = ranges.iter().flat_map(|range| range.clone()).filter(|row| {
            let row = *row as usize;
            keep(keys.value(row), flux.is_valid(row).then(|| flux.value(row)))
        });
        let wanted = UInt64Array::from_iter_values(wanted);
        kept.push(arrow::compute::take_record_batch(batch, &wanted).unwrap());
    }
    let all = concat_batches(&schema(), &kept).unwrap();
    all.project(&request.projection).unwrap()
}

async fn compare(sizes: &[Vec<u64>], bounds: &[prop::sample::Index]) {
    let dir = tempfile::tempdir().unwrap();
    let (mut files, mut rows) = (Vec::new(), Vec::new());
    for (number, chunks) in sizes.iter().enumerate() {
        let path = dir.path().join(format!("chunk_{number}.mrd"));
        let batch = write(&path, number as u64, chunks).await;
        let mut bounds: Vec<u64> = (bounds.iter())
            .map(|it| it.index(batch.num_rows() + 1) as u64)
            .collect();
        bounds.sort_unstable();
        let ranges: Vec<_> = bounds.chunks_exact(2).map(|it| it[0]..it[1]).collect();
        files.push(OpenFile::open(&path).await.unwrap());
        rows.push((batch, ranges));
    }
    let fields = schema().project(&[0]).unwrap().fields().clone();
    let remainder =
        |number| Some(Arc::new(Remainder(number, fields.clone())) as Arc<dyn RowCondition>);
    let all = request(&schema(), &[2, 0, 1]);
    let with = |request: &ScanRequest| {
        let of_file = |(file, (_, ranges)): (&Arc<OpenFile>, &(RecordBatch, Vec<Range<u64>>))| {
            let ranges = Some(ranges.clone());
            (
                Arc::clone(file),
                ScanRequest {
                    ranges,
                    ..request.clone()
                },
            )
        };
        joint(files.iter().zip(&rows).map(of_file).collect())
    };
    assert_eq!(
        with(&all).await.unwrap(),
        expected(&rows, &all, |_, _| true)
    );
    let counted = request(&schema(), &[]);
    let count = with(&counted).await.unwrap().num_rows();
    assert_eq!(count, expected(&rows, &all, |_, _| true).num_rows());
    for number in [2, 50, 3000] {
        let conditioned = ScanRequest {
            condition: remainder(number),
            ..request(&schema(), &[1, 2])
        };
        let keep = |key: i64, _| key % 11 != 0 && key % number == 1;
        let model = expected(&rows, &conditioned, keep);
        assert_eq!(with(&conditioned).await.unwrap(), model, "{number}");
        let filtered = ScanRequest {
            filter: Some(gt_eq(col("flux"), lit(900.0_f64))),
            ..conditioned
        };
        let keep = |key, flux: Option<f64>| keep(key, flux) && flux.is_some_and(|it| it >= 900.0);
        let model = expected(&rows, &filtered, keep);
        assert_eq!(with(&filtered).await.unwrap(), model, "{number}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn files_are_read_one_after_another(
        sizes in prop::collection::vec(
            prop::collection::vec(prop_oneof![4 => 1_u64..60, 1 => 1..12_000_u64], 1..5), 1..9
        ),
        bounds in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        runtime().block_on(compare(&sizes, &bounds));
    }
}

#[test]
fn an_error_is_the_last_item() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chunk_0.mrd");
        let batch = write(&path, 1, &[5, 6]).await;
        let file = OpenFile::open(&path).await.unwrap();
        assert_eq!(file.rows_of(ChunkId(1)).unwrap(), 5..11);
        assert!(file.rows_of(ChunkId(2)).is_err());
        let good = request(&schema(), &[0]);
        let beyond = ScanRequest {
            ranges: Some(std::iter::once(3..12).collect()),
            ..good.clone()
        };
        let files = [good.clone(), beyond, good].map(|it| (Arc::clone(&file), it));
        let requests = stream::iter(files.into_iter().map(Ok)).boxed();
        let items: Vec<_> = scan_files(requests, of_store).collect().await;
        let (last, before) = items.split_last().unwrap();
        assert!(matches!(last, Err(StoreError::WrongScan { .. })));
        let rows: usize = before
            .iter()
            .map(|it| it.as_ref().unwrap().num_rows())
            .sum();
        assert!(rows <= batch.num_rows());
    });
}

/// A filter of keys says no of none that are there.
#[test]
fn an_index_tells_from_memory_what_it_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = meridian_store::IndexWriter::create(dir.path()).unwrap();
    let keys: BTreeMap<i64, i32> = (0..5000)
        .map(|n| ((hash(n) >> 20) as i64, n as i32))
        .collect();
    for (key, n) in &keys {
        let location = sky::Location {
            chunk: ChunkId(*n),
            sub_chunk: SubChunkId(1),
        };
        index.push(*key, location, false).unwrap();
    }
    index.finish().unwrap();
    let index = meridian_store::DirectorIndex::open(dir.path()).unwrap();
    assert!(keys.keys().all(|key| index.may_have(*key)));
    let others = (5000..10_000).map(|n| (hash(n) >> 20) as i64);
    let passed = others.filter(|key| index.may_have(*key)).count();
    assert!(passed < 100, "{passed} of 5,000");
}
