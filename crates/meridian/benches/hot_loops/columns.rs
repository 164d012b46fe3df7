//! Decoding a block of a column of a chunk file.

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{Fields, SchemaRef};
use arrow::error::ArrowError;
use catalog::{Column, ColumnType};
use criterion::{Criterion, Throughput};
use futures::{TryStreamExt, stream};
use store::{
    ChunkFile, DirectoryBuilder, ROWS_PER_BLOCK, RowCondition, ScanRequest, arrow_schema,
    write_chunk_file,
};
use tokio::runtime::{Builder, Runtime};

use crate::made::{self, Positions};

const BLOCKS: usize = 4;
/// A block with others on both sides.
const BLOCK: Range<u64> = ROWS_PER_BLOCK as u64..2 * ROWS_PER_BLOCK as u64;
/// A few rows are each that is the first of so many.
const FEW: usize = 1024;

/// A block of each type of column, from pages in the page cache to Arrow: all of its rows, and 16 that a condition
/// chooses without looking at any column. An element is a row of the block, read or not.
pub fn decode(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Builder::new_current_thread().build().unwrap();
    let file = runtime.block_on(write_and_open(&dir.path().join("chunk.mrd")));
    let mut group = criterion.benchmark_group("decode a block");
    group.throughput(Throughput::Elements(ROWS_PER_BLOCK as u64));
    for (column, name) in ["i64 keys", "f64 positions", "f32 noisy fluxes"]
        .into_iter()
        .enumerate()
    {
        let all = request(&file, column, None);
        assert_eq!(rows(&runtime, &file, &all), ROWS_PER_BLOCK);
        group.bench_function(format!("{name}, all rows"), |bencher| {
            bencher.iter(|| rows(&runtime, &file, &all));
        });
        let few = request(&file, column, Some(Arc::new(FewRows::new())));
        assert_eq!(rows(&runtime, &file, &few), ROWS_PER_BLOCK / FEW);
        group.bench_function(format!("{name}, few rows"), |bencher| {
            bencher.iter(|| rows(&runtime, &file, &few));
        });
    }
    group.finish();
}

/// Scans, and counts the rows that come.
fn rows(runtime: &Runtime, file: &ChunkFile, request: &ScanRequest) -> usize {
    let batches = file.scan(request.clone());
    let count = batches.try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) });
    runtime.block_on(count).unwrap()
}

fn request(
    file: &ChunkFile,
    column: usize,
    condition: Option<Arc<dyn RowCondition>>,
) -> ScanRequest {
    ScanRequest {
        projection: vec![column],
        filter: None,
        hints: Vec::new(),
        condition,
        ranges: Some(vec![BLOCK]),
        sorted: None,
        sharers: 0,
        counters: None,
        schema: Arc::new(file.schema().project(&[column]).unwrap()),
    }
}

/// A condition that costs nothing by itself: what it answers was made beforehand.
#[derive(Debug)]
struct FewRows {
    fields: Fields,
    kept: BooleanArray,
}

impl FewRows {
    fn new() -> Self {
        let kept: Vec<bool> = (0..ROWS_PER_BLOCK).map(|row| row % FEW == 0).collect();
        Self {
            fields: Fields::empty(),
            kept: kept.into(),
        }
    }
}

impl RowCondition for FewRows {
    fn columns(&self) -> &[usize] {
        &[]
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn keep(
        &self,
        _columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        Ok(self.kept.slice(0, rows))
    }
}

/// A chunk file of stars, in the order in which a load sorts them: by sub-chunk, then by key.
async fn write_and_open(path: &Path) -> Arc<ChunkFile> {
    let count = BLOCKS * ROWS_PER_BLOCK;
    let positions = Positions::over_a_chunk(count, 8);
    let mut locations = Vec::new();
    made::chunker().locate_degrees(&positions.ra, &positions.dec, &mut locations);
    let keys = made::keys(count, 9);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|row| (locations[*row].sub_chunk, keys[*row]));
    let mut directory = DirectoryBuilder::default();
    directory.extend(order.iter().map(|row| locations[*row].sub_chunk));

    let batch = RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(
                order.iter().map(|row| keys[*row]),
            )),
            Arc::new(Float64Array::from_iter_values(
                order.iter().map(|row| positions.ra[*row]),
            )),
            Arc::new(Float32Array::from(made::noisy_fluxes(count, 10))),
        ],
    );
    let batches = stream::iter([Ok::<_, ArrowError>(batch.unwrap())]);
    write_chunk_file(path, schema(), batches, directory.finish().unwrap())
        .await
        .unwrap();
    ChunkFile::open(path).await.unwrap()
}

fn schema() -> SchemaRef {
    let column = |name: &str, ty, nullable| Column {
        name: name.to_owned(),
        ty,
        nullable,
        declared: None,
    };
    arrow_schema(&[
        column("objectId", ColumnType::Int64, false),
        column("ra_PS", ColumnType::Float64, false),
        column("zFlux_PS", ColumnType::Float32, true),
    ])
}
