//! Chunk files: what is written is read back, in any part; and no damage goes unseen.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, filter_record_batch, max, min};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use catalog::ColumnType;
use common::{
    all_types, column, directory, request, rows_of_all_types, sample, scan, slices, write,
};
use futures::{StreamExt, TryStreamExt, stream};
use meridian_store::{
    ChunkFile, Directory, DirectoryBuilder, Durability, OpenFiles, StoreError, arrow_schema,
    write_chunk_file, write_chunk_file_with,
};
use proptest::prelude::*;
use sky::{ChunkId, SubChunkId, SubChunks};
use vortex::expr::{Expression, and, col, gt_eq, is_null, lit, lt};

/// A file of one chunk does not say which it is.
const CHUNK: ChunkId = ChunkId(7);

#[tokio::test]
async fn all_types_come_back_from_files_of_any_size() {
    for rows in [0, 1, 2, 16_383, 16_384, 16_385, 40_000] {
        let sample = sample(rows).await;
        let file = ChunkFile::open(&sample.path).await.unwrap();
        assert_eq!(file.num_rows(), rows);
        assert_eq!(sample.summary.rows, rows);
        assert_eq!(
            sample.summary.bytes,
            fs::metadata(&sample.path).unwrap().len()
        );
        assert_eq!(sample.summary.bytes, file.num_bytes());
        assert_eq!(sample.summary.checksum, file.checksum());
        assert_eq!(file.directory(), &directory(rows));
        assert_eq!(file.schema().fields().len(), all_types().fields().len());
        file.verify().await.unwrap();
        let every: Vec<usize> = (0..all_types().fields().len()).collect();
        let read = scan(&file, request(&all_types(), &every)).await.unwrap();
        assert_eq!(read, sample.all, "{rows} rows");
        for (at, column) in read.columns().iter().enumerate() {
            let column = match column.data_type() {
                DataType::Timestamp(..) => cast(column, &DataType::Int64).unwrap(),
                _ => Arc::clone(column),
            };
            let bounds = column.as_primitive_opt::<Int64Type>();
            let bounds = bounds.and_then(|values| Some([min(values)?, max(values)?]));
            assert_eq!(file.file().integer_bounds(at), bounds, "column {at}");
        }
        assert_eq!(file.file().integer_bounds(every.len()), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_columns_in_any_order_and_any_rows() {
    let sample = sample(40_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let ranges = vec![0..1, 1..2, 100..100, 5000..9000, 9000..9010, 20_000..40_000];
    for projection in [
        vec![0],
        vec![12, 3, 0],
        vec![10, 9],
        (0..18).rev().collect(),
    ] {
        let mut wanted = request(&all_types(), &projection);
        wanted.ranges = Some(ranges.clone());
        let read = scan(&file, wanted).await.unwrap();
        assert_eq!(
            read,
            slices(&sample.all, &ranges).project(&projection).unwrap()
        );
    }
    let wanted = file
        .directory()
        .rows_of(&SubChunks::Some(vec![SubChunkId(3), SubChunkId(4)]));
    assert_eq!(wanted, vec![3000..5000]);
}

#[tokio::test]
async fn no_columns_give_row_counts() {
    let sample = sample(30_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let mut wanted = request(&all_types(), &[]);
    assert_eq!(
        scan(&file, wanted.clone()).await.unwrap().num_rows(),
        30_000
    );
    wanted.ranges = Some(vec![10..20, 25..10_000]);
    assert_eq!(scan(&file, wanted.clone()).await.unwrap().num_rows(), 9985);
    wanted.filter = Some(lt(col("key"), lit(30_i64)));
    assert_eq!(scan(&file, wanted).await.unwrap().num_rows(), 15);
}

#[tokio::test]
async fn filters_keep_the_rows_for_which_they_are_true() {
    let sample = sample(30_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let between = and(
        gt_eq(col("key"), lit(7_000_i64)),
        lt(col("key"), lit(17_000_i64)),
    );
    let bright = gt_eq(col("f64"), lit(500.0_f64));
    let f64s = sample
        .all
        .column_by_name("f64")
        .unwrap()
        .as_primitive::<arrow::datatypes::Float64Type>();
    let keys = sample.all.column(0).as_primitive::<Int64Type>();
    let in_range = |row: usize| (7_000..17_000).contains(&keys.value(row));
    let is_bright = |row: usize| f64s.is_valid(row) && f64s.value(row) >= 500.0;
    type Case<'a> = (Expression, &'a dyn Fn(usize) -> bool);
    let cases: [Case; 5] = [
        (between.clone(), &in_range),
        (bright.clone(), &is_bright),
        (and(bright, between), &|row| in_range(row) && is_bright(row)),
        (is_null(col("f64")), &|row| f64s.is_null(row)),
        (lt(col("key"), lit(-1_i64)), &|_| false),
    ];
    for (filter, keep) in cases {
        let mask = BooleanArray::from_iter((0..30_000).map(|row| Some(keep(row))));
        let expected = filter_record_batch(&sample.all, &mask).unwrap();
        let mut wanted = request(&all_types(), &[0, 11]);
        wanted.filter = Some(filter.clone());
        let read = scan(&file, wanted).await.unwrap();
        assert_eq!(read, expected.project(&[0, 11]).unwrap(), "{filter}");
    }
}

#[tokio::test]
async fn wrong_requests_are_rejected() {
    let sample = sample(100).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let mut beyond = request(&all_types(), &[0]);
    beyond.projection = vec![99];
    let mut unequal = request(&all_types(), &[0, 1]);
    unequal.projection.pop();
    let mut outside = request(&all_types(), &[0]);
    outside.ranges = Some(vec![0..5, 90..101]);
    let mut disorder = request(&all_types(), &[0]);
    disorder.ranges = Some(vec![10..20, 15..30]);
    let mut unknown = request(&all_types(), &[0]);
    unknown.filter = Some(lt(col("nonsense"), lit(1_i64)));
    for wrong in [beyond, unequal, outside, disorder, unknown] {
        let error = scan(&file, wrong).await.unwrap_err();
        assert!(error.to_string().contains("chunk_7.mrd"), "{error}");
    }
}

/// A file opened in one runtime is read in others, after the first is gone, and scans end when they
/// are dropped.
#[test]
fn files_outlive_the_runtime_that_opened_them() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let (sample, file) = runtime().block_on(async {
        let sample = sample(20_000).await;
        let file = ChunkFile::open(&sample.path).await.unwrap();
        let mut dropped = file.scan(request(&all_types(), &[0, 1, 2]));
        assert!(dropped.try_next().await.unwrap().is_some());
        (sample, file)
    });
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let file = Arc::clone(&file);
            let expected = sample.all.project(&[0, 12]).unwrap();
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let read = scan(&file, request(&all_types(), &[0, 12])).await.unwrap();
                    assert_eq!(read, expected);
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Opens and reads everything; the first error.
async fn read_all(path: &Path) -> Result<(), StoreError> {
    let file = ChunkFile::open(path).await?;
    file.verify().await?;
    let every: Vec<usize> = (0..all_types().fields().len()).collect();
    scan(&file, request(&all_types(), &every)).await.map(|_| ())
}

/// One byte is flipped in each region: the rows, the metadata, the directory, the table of checksums,
/// the trailer. `verify` finds all of them; a scan finds those in what it reads.
#[tokio::test]
async fn a_flipped_byte_is_never_read() {
    let sample = sample(20_000).await;
    let good = fs::read(&sample.path).unwrap();
    let every: Vec<usize> = (0..all_types().fields().len()).collect();
    let near_the_end = (good.len() - 600..good.len()).step_by(7);
    for at in (0..good.len())
        .step_by(good.len() / 150)
        .chain(near_the_end)
        .chain([0, good.len() - 1])
    {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&sample.path, &bad).unwrap();
        match ChunkFile::open(&sample.path).await {
            Ok(file) => {
                let error = file.verify().await.unwrap_err();
                let StoreError::Damaged { what, .. } = &error else {
                    panic!("{error}")
                };
                assert!(what.contains("block"), "byte {at}: {what}");
                // The scan may never touch the byte, but it may not give other rows.
                match scan(&file, request(&all_types(), &every)).await {
                    Ok(read) => assert_eq!(read, sample.all, "byte {at}"),
                    Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
                }
            }
            Err(StoreError::Damaged { path, .. }) => assert_eq!(path, sample.path),
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_file_cut_short_or_of_another_kind_is_rejected() {
    let sample = sample(5000).await;
    let good = fs::read(&sample.path).unwrap();
    for len in [
        0,
        1,
        8,
        63,
        64,
        65,
        good.len() / 2,
        good.len() - 64,
        good.len() - 1,
    ] {
        fs::write(&sample.path, &good[..len]).unwrap();
        let error = ChunkFile::open(&sample.path).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{len}: {error}"
        );
    }
    let mut longer = good.clone();
    longer.extend_from_slice(&good[good.len() - 64..]);
    fs::write(&sample.path, &longer).unwrap();
    assert!(ChunkFile::open(&sample.path).await.is_err());
    let missing = ChunkFile::open(&sample.path.with_extension("none"))
        .await
        .unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
}

#[tokio::test]
async fn a_file_cut_short_while_open_is_noticed() {
    let sample = sample(20_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&sample.path)
        .unwrap()
        .set_len(100)
        .unwrap();
    let error = scan(&file, request(&all_types(), &[0])).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn garbage_is_rejected(mut bytes in prop::collection::vec(any::<u8>(), 0..3000), magic in any::<bool>()) {
        if magic && bytes.len() >= 8 {
            let end = bytes.len() - 8;
            bytes[end..].copy_from_slice(b"MRDCHUNK");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("garbage.mrd");
        fs::write(&path, &bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert!(runtime.block_on(read_all(&path)).is_err());
    }

    #[test]
    fn any_ranges_give_the_rows_in_them(mut bounds in prop::collection::vec(0_u64..=25_000, 0..40)) {
        bounds.sort_unstable();
        let ranges: Vec<Range<u64>> = bounds.chunks_exact(2).map(|b| b[0]..b[1]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let schema = arrow_schema(&[column("key", ColumnType::Int64, false)]);
            let keys = Int64Array::from_iter_values(0..25_000);
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys)]).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("chunk_1.mrd");
            write(&path, vec![batch.clone()]).await.unwrap();
            let file = ChunkFile::open(&path).await.unwrap();
            let mut wanted = request(&schema, &[0]);
            wanted.ranges = Some(ranges.clone());
            assert_eq!(scan(&file, wanted.clone()).await.unwrap(), slices(&batch, &ranges));
            wanted.filter = Some(gt_eq(col("key"), lit(9_999_i64)));
            let late: Vec<Range<u64>> =
                ranges.iter().map(|r| r.start.max(9_999)..r.end.max(9_999)).collect();
            assert_eq!(scan(&file, wanted).await.unwrap(), slices(&batch, &late));
        });
    }
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

#[tokio::test]
async fn what_cannot_be_written_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_1.mrd");
    let batch = rows_of_all_types(0..3000);
    let schema = batch.schema();

    let failing = stream::iter([
        Ok(batch.clone()),
        Err(ArrowError::CsvError("line 7".into())),
    ]);
    let error = write_chunk_file(&path, schema.clone(), failing, directory(3000))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, StoreError::Input(_)) && error.to_string().contains("line 7"),
        "{error}"
    );

    let columns = stream::iter([Ok::<_, ArrowError>(batch.project(&[0, 1]).unwrap())]);
    let error = write_chunk_file(&path, schema.clone(), columns, directory(3000))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::WrongBatch { .. }), "{error}");

    let strict: SchemaRef = Arc::new(arrow::datatypes::Schema::new(
        schema
            .fields()
            .iter()
            .map(|f| f.as_ref().clone().with_nullable(false))
            .collect::<Vec<_>>(),
    ));
    let nulls = stream::iter([Ok::<_, ArrowError>(batch.clone())]);
    let error = write_chunk_file(&path, strict, nulls, directory(3000))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("flag is NOT NULL"), "{error}");

    let good = stream::iter([Ok::<_, ArrowError>(batch)]);
    let error = write_chunk_file(&path, schema, good, directory(2999))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::WrongDirectory(_)), "{error}");
    assert!(
        files_in(dir.path()).is_empty(),
        "{:?}",
        files_in(dir.path())
    );
}

#[tokio::test]
async fn a_cancelled_write_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_1.mrd");
    let batch = rows_of_all_types(0..3000);
    let schema = batch.schema();
    let endless = stream::repeat(batch).map(Ok::<_, ArrowError>);
    let writing = write_chunk_file(&path, schema, endless, Directory::default());
    let outcome = tokio::time::timeout(std::time::Duration::from_millis(200), writing).await;
    assert!(outcome.is_err());
    assert!(
        files_in(dir.path()).is_empty(),
        "{:?}",
        files_in(dir.path())
    );
}

/// `/dev/full` answers every write as a full disk does.
#[tokio::test]
async fn a_full_disk_is_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_1.mrd");
    std::os::unix::fs::symlink("/dev/full", path.with_extension("mrd.tmp")).unwrap();
    let error = write(&path, vec![rows_of_all_types(0..100_000)])
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(files_in(dir.path()).is_empty());
}

#[tokio::test]
async fn the_directory_may_be_known_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk_1.mrd");
    let batch = rows_of_all_types(0..3000);
    let schema = batch.schema();
    let seen = Arc::new(std::sync::Mutex::new(DirectoryBuilder::default()));
    let builder = Arc::clone(&seen);
    let batches = stream::iter([batch.clone(), batch]).map(move |batch| {
        let mut builder = builder.lock().unwrap();
        builder.extend(std::iter::repeat_n(SubChunkId(5), batch.num_rows()));
        Ok::<_, ArrowError>(batch)
    });
    let directory = move || std::mem::take(&mut *seen.lock().unwrap()).finish();
    let summary = write_chunk_file_with(&path, schema, batches, Durability::WithName, directory)
        .await
        .unwrap();
    assert_eq!(summary.rows, 6000);
    let file = ChunkFile::open(&path).await.unwrap();
    assert_eq!(file.directory().get(SubChunkId(5)).unwrap().rows, 0..6000);
}

#[tokio::test]
async fn open_files_are_shared_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let files = OpenFiles::new(8);
    let mut paths = Vec::new();
    for chunk in 0..20 {
        let path = dir.path().join(format!("chunk_{chunk}.mrd"));
        write(&path, vec![rows_of_all_types(0..chunk)])
            .await
            .unwrap();
        paths.push(path);
    }
    for path in &paths {
        let (a, b) = tokio::join!(files.get(path, CHUNK), files.get(path, CHUNK));
        assert!(Arc::ptr_eq(a.unwrap().file(), b.unwrap().file()));
        assert!(files.len() <= 8);
    }
    let before = files.get(&paths[19], CHUNK).await.unwrap();
    let after = files.get(&paths[19], CHUNK).await.unwrap();
    assert!(Arc::ptr_eq(before.file(), after.file()));
    let missing = dir.path().join("chunk_99.mrd");
    assert!(files.get(&missing, CHUNK).await.is_err());
    files.forget(dir.path());
    assert!(files.is_empty());
    assert_eq!(before.num_rows(), 19);
}

#[tokio::test]
async fn a_restored_file_is_found_without_a_restart() {
    let sample = sample(40_000).await;
    let files = OpenFiles::new(8);
    let good = fs::read(&sample.path).unwrap();
    let mut bad = good.clone();
    bad[5000] ^= 1;
    fs::write(&sample.path, &bad).unwrap();
    let file = files.get(&sample.path, CHUNK).await.unwrap();
    let every: Vec<usize> = (0..all_types().fields().len()).collect();
    assert!(scan(&file, request(&all_types(), &every)).await.is_err());
    fs::write(&sample.path, &good).unwrap();
    let file = files.get(&sample.path, CHUNK).await.unwrap();
    assert_eq!(
        scan(&file, request(&all_types(), &every)).await.unwrap(),
        sample.all
    );
}
