//! Files of several chunks: each chunk reads as from a file of its own; and no damage goes unseen.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{Fields, Float64Type, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use catalog::ColumnType;
use common::{column, hash, request, scan};
use futures::stream;
use meridian_store::{
    ByteSource, ChunkFile, ChunkSection, DecodedBlocks, DirectoryBuilder, Durability, Fault,
    FaultySource, Hint, LocalFile, OpenFile, OpenFiles, PackedSummary, RowCondition, ScanRequest,
    SortedColumn, StoreError, arrow_schema, write_chunk_file, write_packed_file_with,
};
use proptest::prelude::*;
use sky::{ChunkId, SubChunkId, SubChunks};
use vortex::expr::{col, gt_eq, lit};

fn schema() -> SchemaRef {
    arrow_schema(&[
        column("key", ColumnType::Int64, false),
        column("flux", ColumnType::Float64, true),
        column("name", ColumnType::Text, true),
    ])
}

const EVERY: [usize; 3] = [0, 1, 2];

/// A chunk as it is written: its section and its rows, sorted by sub-chunk and key.
#[derive(Debug, Clone)]
struct Made {
    section: ChunkSection,
    rows: RecordBatch,
}

impl Made {
    /// A chunk whose sub-chunks have so many rows.
    fn new(chunk: i32, sub_chunks: &BTreeMap<i32, u64>) -> Self {
        let mut directory = DirectoryBuilder::default();
        let (mut keys, mut flux, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (sub_chunk, rows) in sub_chunks {
            let bounds = (sub_chunk % 3 == 0).then_some([359.0, -1.0, 1.0, f64::from(chunk)]);
            directory.push(SubChunkId(*sub_chunk), *rows, bounds);
            for row in 0..*rows {
                let number = hash(chunk as u64 * 1000 + *sub_chunk as u64 * 77 + row);
                keys.push((row * 3) as i64);
                flux.push((!number.is_multiple_of(5)).then_some((number % 1000) as f64));
                names.push((!number.is_multiple_of(7)).then(|| format!("star {}", number % 13)));
            }
        }
        let rows = RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(Int64Array::from(keys)),
                Arc::new(Float64Array::from(flux)),
                Arc::new(StringViewArray::from_iter(names)),
            ],
        );
        let section = ChunkSection {
            chunk: ChunkId(chunk),
            rows: sub_chunks.values().sum(),
            directory: directory.finish().unwrap(),
        };
        let rows = rows.unwrap();
        Self { section, rows }
    }
}

fn batches(made: &[Made]) -> impl futures::Stream<Item = Result<RecordBatch, ArrowError>> + use<> {
    let rows: Vec<_> = made.iter().map(|made| Ok(made.rows.clone())).collect();
    stream::iter(rows)
}

async fn pack(path: &Path, made: &[Made]) -> Result<PackedSummary, StoreError> {
    let sections = made.iter().map(|made| made.section.clone()).collect();
    write_packed_file_with(path, schema(), batches(made), Durability::WithName, || {
        Ok(sections)
    })
    .await
}

/// The condition that the flux is known and below a number.
#[derive(Debug)]
struct Faint(f64, Fields);

impl RowCondition for Faint {
    fn columns(&self) -> &[usize] {
        &[1]
    }

    fn fields(&self) -> &Fields {
        &self.1
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        _: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        let flux = columns[0].as_primitive::<Float64Type>();
        Ok(flux
            .iter()
            .map(|flux| flux.map(|flux| flux < self.0))
            .collect())
    }
}

fn faint(limit: f64) -> Arc<dyn RowCondition> {
    let fields = schema().project(&[1]).unwrap().fields().clone();
    Arc::new(Faint(limit, fields))
}

/// Requests of a chunk of so many rows: whole, ranges, conditions, keys.
fn requests(file: &ChunkFile, ranges: &[Range<u64>]) -> Vec<ScanRequest> {
    let whole = request(&schema(), &EVERY);
    let in_ranges = ScanRequest {
        ranges: Some(ranges.to_vec()),
        ..whole.clone()
    };
    let sub_chunks: Vec<_> = file.directory().entries().iter().step_by(2).collect();
    let some = SubChunks::Some(sub_chunks.iter().map(|entry| entry.sub_chunk).collect());
    let of_sub_chunks = ScanRequest {
        ranges: Some(file.directory().rows_of(&some)),
        ..request(&schema(), &[2, 0])
    };
    let filtered = ScanRequest {
        filter: Some(gt_eq(col("flux"), lit(300.0_f64))),
        ..in_ranges.clone()
    };
    let conditioned = ScanRequest {
        condition: Some(faint(400.0)),
        hints: vec![Hint::new(gt_eq(col("flux"), lit(0.0_f64)), 1)],
        ..of_sub_chunks.clone()
    };
    let apart = file
        .directory()
        .entries()
        .iter()
        .map(|entry| entry.rows.clone());
    let sorted = ScanRequest {
        ranges: Some(apart.collect()),
        filter: Some(vortex::expr::eq(col("key"), lit(12_i64))),
        sorted: Some(SortedColumn {
            column: 0,
            least: 12,
            greatest: 12,
        }),
        ..whole.clone()
    };
    let counted = request(&schema(), &[]);
    vec![
        whole,
        in_ranges,
        of_sub_chunks,
        filtered,
        conditioned,
        sorted,
        counted,
    ]
}

/// Whether a chunk of several reads as a file of its own does.
async fn compare(packed: &ChunkFile, own: &ChunkFile, bounds: &[prop::sample::Index]) {
    assert_eq!(packed.num_rows(), own.num_rows());
    assert_eq!(packed.schema(), own.schema());
    assert_eq!(packed.directory(), own.directory());
    let rows = own.num_rows() as usize;
    let mut bounds: Vec<u64> = bounds.iter().map(|it| it.index(rows + 1) as u64).collect();
    bounds.sort_unstable();
    let ranges: Vec<Range<u64>> = bounds.chunks_exact(2).map(|it| it[0]..it[1]).collect();
    for request in requests(own, &ranges) {
        let expected = scan(own, request.clone()).await.unwrap();
        assert_eq!(scan(packed, request).await.unwrap(), expected);
    }
    for range in &ranges {
        let expected = own
            .read_rows(range.clone(), &EVERY, &schema())
            .await
            .unwrap();
        let read = packed.read_rows(range.clone(), &EVERY, &schema()).await;
        assert_eq!(read.unwrap(), expected);
    }
    // What is found by its key alone is found where the keys are in memory, which may be so in one file and not in the other.
    for entry in own.directory().entries() {
        for key in [0, 3, 4, 300] {
            let sorted = SortedColumn {
                column: 0,
                least: key,
                greatest: key,
            };
            let found = packed.find(entry.rows.clone(), &sorted);
            if let (Some(found), Some(expected)) = (found, own.find(entry.rows.clone(), &sorted)) {
                assert_eq!(found.clone().count(), expected.clone().count());
                assert!(found.is_empty() || found == expected);
            }
        }
    }
    let beyond = own.num_rows()..own.num_rows() + 1;
    let wanted = ScanRequest {
        ranges: Some(vec![beyond.clone()]),
        ..request(&schema(), &[0])
    };
    assert!(scan(packed, wanted).await.is_err());
    assert!(packed.read_rows(beyond, &EVERY, &schema()).await.is_err());
}

/// Writes chunks together and apart, and compares what is read.
async fn together_and_apart(made: &[Made], bounds: &[prop::sample::Index]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_0.mrd");
    let summary = pack(&path, made).await.unwrap();
    assert_eq!(summary.file.bytes, fs::metadata(&path).unwrap().len());
    let shares = summary.chunks.iter().map(|(_, chunk)| chunk.bytes);
    assert_eq!(shares.sum::<u64>(), summary.file.bytes);
    let file = OpenFile::open(&path).await.unwrap();
    file.verify().await.unwrap();
    let chunks: Vec<ChunkId> = made.iter().map(|made| made.section.chunk).collect();
    assert_eq!(file.chunks(), chunks);
    assert_eq!(summary.chunks.len(), chunks.len());
    let keys = made.iter().flat_map(|made| {
        let keys = made.rows.column(0).as_primitive::<Int64Type>();
        keys.values().to_vec()
    });
    let (least, greatest) = (keys.clone().min().unwrap(), keys.max().unwrap());
    assert_eq!(file.integer_bounds(0), Some([least, greatest]));
    assert_eq!(file.integer_bounds(1), None);
    let files = OpenFiles::new(8).keeping(DecodedBlocks::new(1 << 30));
    for (made, (chunk, written)) in made.iter().zip(&summary.chunks) {
        assert_eq!(*chunk, made.section.chunk);
        let own = dir.path().join("own.mrd");
        let directory = made.section.directory.clone();
        let rows = batches(std::slice::from_ref(made));
        write_chunk_file(&own, schema(), rows, directory)
            .await
            .unwrap();
        let own = ChunkFile::open_keeping(&own, Arc::new(DecodedBlocks::new(1 << 30)));
        let own = own.await.unwrap();
        let packed = file.chunk(*chunk).unwrap();
        assert_eq!(packed.num_rows(), written.rows);
        assert_eq!(packed.num_bytes(), written.bytes);
        assert_eq!(packed.checksum(), summary.file.checksum);
        compare(&packed, &own, bounds).await;
        // Again with what is kept of earlier chunks' reads.
        let kept = files.get(&path, *chunk).await.unwrap();
        for _ in 0..3 {
            compare(&kept, &own, bounds).await;
        }
    }
    assert_eq!(files.len(), 1);
    assert!(file.chunk(ChunkId(i32::MAX)).is_err());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

fn any_chunks(most: u64) -> impl Strategy<Value = Vec<Made>> {
    let rows = prop_oneof![4 => 1_u64..40, 1 => 1..most];
    let sub_chunks = prop::collection::btree_map(0..500, rows, 1..5);
    prop::collection::btree_map(0..10_000, sub_chunks, 1..9).prop_map(|chunks| {
        let chunks = chunks.iter();
        chunks.map(|(chunk, sub)| Made::new(*chunk, sub)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_chunk_of_several_reads_as_a_file_of_its_own(
        made in any_chunks(9_000), bounds in prop::collection::vec(any::<prop::sample::Index>(), 6)
    ) {
        runtime().block_on(together_and_apart(&made, &bounds));
    }
}

/// Chunks whose rows are in many blocks, none of which begins with one: zone maps are asked.
#[tokio::test]
async fn blocks_that_span_chunks_are_excluded_for_none_of_them_wrongly() {
    let sizes = [10, 60_000, 16_380, 16_384, 70_000, 1];
    let made: Vec<Made> = (0..)
        .zip(sizes)
        .map(|(chunk, rows)| {
            Made::new(
                chunk,
                &BTreeMap::from([(1, rows / 2), (2, rows - rows / 2)]),
            )
        })
        .map(|made| match made.section.rows {
            // A sub-chunk of no rows is none.
            1 => Made::new(9, &BTreeMap::from([(2, 1)])),
            _ => made,
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_0.mrd");
    pack(&path, &made).await.unwrap();
    let file = OpenFile::open(&path).await.unwrap();
    for made in &made {
        let chunk = file.chunk(made.section.chunk).unwrap();
        for least in [0_i64, 30_000, 80_000, 104_000, 1 << 40] {
            let keys = made.rows.column(0).as_primitive::<Int64Type>();
            let wanted = BooleanArray::from_unary(keys, |key| key >= least);
            let expected = arrow::compute::filter_record_batch(&made.rows, &wanted).unwrap();
            let bound = gt_eq(col("key"), lit(least));
            let filtered = ScanRequest {
                filter: Some(bound.clone()),
                hints: vec![Hint::new(bound, 0)],
                ..request(&schema(), &EVERY)
            };
            assert_eq!(scan(&chunk, filtered).await.unwrap(), expected, "{least}");
        }
    }
}

fn sample() -> Vec<Made> {
    let sub_chunks = |n: i32| BTreeMap::from([(n, 300), (n + 4, 1), (n + 9, 2500)]);
    (0..8)
        .map(|n| Made::new(3 + n * 5, &sub_chunks(n)))
        .collect()
}

/// Every row of every chunk is right, or there is an error that names the file.
async fn right_or_rejected(source: Arc<dyn ByteSource>, made: &[Made]) -> bool {
    let rejected = |error: StoreError| {
        assert!(error.to_string().contains("chunk_3.mrd"), "{error}");
        true
    };
    let file = match OpenFile::open_source(source, None).await {
        Ok(file) => file,
        Err(error) => return rejected(error),
    };
    let mut any = false;
    for made in made {
        let chunk = match file.chunk(made.section.chunk) {
            Ok(chunk) => chunk,
            Err(error) => return rejected(error),
        };
        assert_eq!(chunk.directory(), &made.section.directory);
        match scan(&chunk, request(&schema(), &EVERY)).await {
            Ok(rows) => assert_eq!(rows, made.rows),
            Err(error) => any |= rejected(error),
        }
    }
    any
}

#[tokio::test]
async fn a_flipped_byte_of_a_packed_file_is_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_3.mrd");
    let made = sample();
    pack(&path, &made).await.unwrap();
    let good = fs::read(&path).unwrap();
    let near_the_end = (good.len() - 1500..good.len()).step_by(11);
    let step = good.len() / 100;
    for at in (0..good.len()).step_by(step).chain(near_the_end) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        right_or_rejected(Arc::new(LocalFile::open(&path).unwrap()), &made).await;
        if let Ok(file) = OpenFile::open(&path).await {
            assert!(file.verify().await.is_err(), "byte {at}");
        }
    }
    for len in [0, 63, 64, 1000, good.len() / 2, good.len() - 1] {
        fs::write(&path, &good[..len]).unwrap();
        let error = OpenFile::open(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_fault_within_a_packed_file_gives_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_3.mrd");
    let made = sample();
    pack(&path, &made).await.unwrap();
    let mut rejected = 0;
    for fault in [
        Fault::Fails(std::io::ErrorKind::ConnectionReset),
        Fault::CutShort,
        Fault::HalfRead,
        Fault::FlippedByte(1234),
    ] {
        for number in 0..20 {
            let local = Arc::new(LocalFile::open(&path).unwrap());
            let source = Arc::new(FaultySource::new(local, fault, number..number + 1));
            rejected += u32::from(right_or_rejected(source, &made).await);
        }
    }
    assert!(rejected >= 40, "{rejected}");
}

#[tokio::test]
async fn what_is_not_in_order_is_not_packed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_3.mrd");
    let made = sample();
    let mut disorder = made.clone();
    disorder.swap(1, 2);
    let mut uncovered = made.clone();
    uncovered[7].section.rows += 1;
    for wrong in [disorder, uncovered, vec![]] {
        let error = pack(&path, &wrong).await.unwrap_err();
        assert!(matches!(error, StoreError::WrongDirectory(_)), "{error}");
    }
    let sections = || Ok(made[1..].iter().map(|made| made.section.clone()).collect());
    let fewer = write_packed_file_with(
        &path,
        schema(),
        batches(&made),
        Durability::WithName,
        sections,
    )
    .await;
    assert!(matches!(fewer, Err(StoreError::WrongDirectory(_))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_chunk_that_is_not_there_is_told_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_3.mrd");
    pack(&path, &sample()).await.unwrap();
    let files = OpenFiles::new(2);
    let missing = files.get(&path, ChunkId(4)).await.unwrap_err().to_string();
    assert!(
        missing.contains("chunk_3.mrd") && missing.contains("chunk 4"),
        "{missing}"
    );
    let several = ChunkFile::open(&path).await.unwrap_err().to_string();
    assert!(several.contains("8 chunks"), "{several}");
    files.get(&path, ChunkId(8)).await.unwrap();
}

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Files of each version as they were once written: every later program reads them.
#[tokio::test]
async fn files_of_all_versions_are_read() {
    let sub_chunks = |n: i32| BTreeMap::from([(n, 60), (n + 4, 1)]);
    let made: Vec<Made> = (3..6).map(|n| Made::new(n, &sub_chunks(n))).collect();
    let first = OpenFile::open(&stored("version_1.mrd")).await.unwrap();
    assert!(first.chunks().is_empty());
    let second = OpenFile::open(&stored("version_2.mrd")).await.unwrap();
    // Version 1 does not say which chunk it is.
    let mut chunks = vec![(first.chunk(ChunkId(77)).unwrap(), &made[0])];
    for made in &made {
        chunks.push((second.chunk(made.section.chunk).unwrap(), made));
    }
    for (chunk, made) in chunks {
        chunk.verify().await.unwrap();
        assert_eq!(chunk.directory(), &made.section.directory);
        let rows = scan(&chunk, request(&schema(), &EVERY)).await.unwrap();
        assert_eq!(rows, made.rows);
    }
    let version = |name| fs::read(stored(name)).unwrap().into_iter().rev().nth(27);
    assert_eq!(version("version_1.mrd"), Some(1));
    assert_eq!(version("version_2.mrd"), Some(2));
}
