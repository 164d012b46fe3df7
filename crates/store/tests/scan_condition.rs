//! Scans whose caller tests the rows: the same rows as testing them after reading everything.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef};
use common::{Sample, all_types, request, sample, scan, slices};
use meridian_store::{ChunkFile, DecodedBlocks, Hint, RowCondition, StoreError, numbers_in_file};
use proptest::prelude::*;
use tokio::runtime::Runtime;
use vortex::expr::{col, gt_eq, lit};

type Test = fn(i64) -> Option<bool>;

/// Tests the key, which is the first column it is given; the others are there to be read along.
struct KeyCondition {
    columns: Vec<usize>,
    fields: Fields,
    test: Test,
    /// The keys that it was asked about.
    asked: Mutex<Vec<i64>>,
}

impl KeyCondition {
    fn new(columns: &[usize], test: Test) -> Arc<Self> {
        Arc::new(Self {
            columns: columns.to_vec(),
            fields: all_types().project(columns).unwrap().fields().clone(),
            test,
            asked: Mutex::default(),
        })
    }

    fn asked(&self) -> Vec<i64> {
        self.asked.lock().unwrap().clone()
    }
}

impl fmt::Debug for KeyCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyCondition({:?})", self.columns)
    }
}

impl RowCondition for KeyCondition {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        assert_eq!(columns.len(), self.columns.len());
        for (column, field) in columns.iter().zip(&self.fields) {
            assert_eq!(
                (column.len(), column.data_type()),
                (rows, field.data_type())
            );
        }
        let keys = columns[0].as_primitive::<Int64Type>();
        if keys.values().contains(&6_666) {
            return Err(Arc::from(Box::<dyn Error + Send + Sync>::from(
                "six thousand and so on",
            )));
        }
        self.asked.lock().unwrap().extend(keys.values());
        Ok(keys.values().iter().map(|key| (self.test)(*key)).collect())
    }
}

/// None, all, a few far apart, runs, and unknown ones.
const TESTS: [Test; 5] = [
    |_| Some(false),
    |_| Some(true),
    |key| Some(key % 5_003 == 17),
    |key| Some(key / 700 % 2 == 0),
    |key| (key % 3 != 0).then_some(key % 2 == 0),
];

static SAMPLE: LazyLock<Sample> = LazyLock::new(|| runtime().block_on(sample(40_000)));

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap()
}

fn ranges() -> impl Strategy<Value = Option<Vec<Range<u64>>>> {
    prop::option::of(
        prop::collection::btree_set(7_000_u64..40_000, 2..12).prop_map(|cuts| {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).collect()
        }),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_rows_that_meet_it_come_in_their_order(
        which in 0..TESTS.len(),
        tested in prop::sample::subsequence((1..18_usize).collect::<Vec<_>>(), 0..4),
        projection in prop::sample::subsequence((0..18_usize).collect::<Vec<_>>(), 0..6).prop_shuffle(),
        ranges in ranges(),
    ) {
        let sample = &*SAMPLE;
        runtime().block_on(async {
            let file = ChunkFile::open(&sample.path).await.unwrap();
            let columns: Vec<usize> = std::iter::once(0).chain(tested).collect();
            let condition = KeyCondition::new(&columns, TESTS[which]);
            let mut wanted = request(&all_types(), &projection);
            // The row with the key that fails the condition is before these.
            wanted.ranges = Some(ranges.unwrap_or_else(|| Vec::from([Range {
                start: 7_000,
                end: 40_000,
            }])));
            wanted.condition = Some(condition.clone());
            let rows = slices(&sample.all, wanted.ranges.as_ref().unwrap());
            let keys = rows.column(0).as_primitive::<Int64Type>();
            let keep: BooleanArray = keys.values().iter().map(|key| (TESTS[which])(*key)).collect();
            let expected = filter_record_batch(&rows, &keep).unwrap().project(&projection).unwrap();
            let read = scan(&file, wanted).await.unwrap();
            assert_eq!(read.num_rows(), expected.num_rows());
            assert_eq!(read, expected);
            assert_eq!(condition.asked(), keys.values().to_vec());
        });
    }
}

#[tokio::test]
async fn hints_spare_reading_and_drop_no_row() {
    let sample = sample(60_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let condition = KeyCondition::new(&[0], |key| Some(key >= 59_990));
    let mut wanted = request(&all_types(), &[0, 11]);
    wanted.hints = vec![Hint::new(gt_eq(col("key"), lit(59_990_i64)), 0)];
    wanted.condition = Some(condition.clone());
    let read = scan(&file, wanted).await.unwrap();
    assert_eq!(
        read,
        sample.all.slice(59_990, 10).project(&[0, 11]).unwrap()
    );
    // Only the last block was read, and all of it was tested: a hint is no condition.
    assert_eq!(condition.asked(), (49_152..60_000).collect::<Vec<_>>());
    let mut hinted = request(&all_types(), &[0]);
    hinted.hints = vec![Hint::new(gt_eq(col("key"), lit(59_990_i64)), 0)];
    assert_eq!(
        scan(&file, hinted).await.unwrap().num_rows(),
        60_000 - 49_152
    );
}

#[tokio::test]
async fn a_condition_that_fails_ends_the_scan_with_its_words() {
    let sample = sample(10_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let mut wanted = request(&all_types(), &[1]);
    wanted.condition = Some(KeyCondition::new(&[0], |_| Some(true)));
    let error = scan(&file, wanted).await.unwrap_err();
    assert!(matches!(error, StoreError::Condition(_)), "{error:?}");
    assert_eq!(error.to_string(), "six thousand and so on");
}

#[tokio::test]
async fn a_hint_that_excludes_nothing_is_given_up_and_another_is_not() {
    let sample = sample(60_000).await;
    let file = ChunkFile::open(&sample.path).await.unwrap();
    let useless = Hint::new(gt_eq(col("key"), lit(0_i64)), 0);
    let useful = Hint::new(gt_eq(col("key"), lit(59_000_i64)), 0);
    for _ in 0..30 {
        let mut wanted = request(&all_types(), &[0]);
        wanted.hints = vec![Arc::clone(&useless), Arc::clone(&useful)];
        // The last block, every time.
        assert_eq!(
            scan(&file, wanted).await.unwrap().num_rows(),
            60_000 - 49_152
        );
    }
    assert_eq!((useless.times_asked(), useful.times_asked()), (6, 30));
}

/// A condition on two columns that the files of the table had not got, the first of which is wanted to be NULL.
#[derive(Debug)]
struct OfLaterColumns {
    fields: Fields,
    may_be_null: bool,
}

impl RowCondition for OfLaterColumns {
    fn columns(&self) -> &[usize] {
        &[18, 0, 19]
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        assert!(self.may_be_null, "a file is read of which no row is wanted");
        for at in [0, 2] {
            assert_eq!(columns[at].len(), rows);
            assert_eq!(columns[at].logical_null_count(), rows);
        }
        let keys = columns[1].as_primitive::<Int64Type>();
        Ok(keys.values().iter().map(|key| Some(key % 7 == 0)).collect())
    }

    fn may_keep_without(&self, from: usize) -> bool {
        assert_eq!(from, 18);
        self.may_be_null
    }
}

/// The columns of all types, and after them two that a table has got later.
fn with_later_columns(nullable: bool) -> SchemaRef {
    let later = [
        Field::new("later", DataType::Utf8View, true),
        Field::new("latest", DataType::Float32, nullable),
    ];
    let mut fields = all_types().fields().to_vec();
    fields.extend(later.map(Arc::new));
    Arc::new(Schema::new(fields))
}

#[tokio::test]
async fn columns_that_a_file_lacks_are_null() {
    let sample = sample(60_000).await;
    let nulls = |rows| -> [ArrayRef; 2] {
        [
            new_null_array(&DataType::Utf8View, rows),
            new_null_array(&DataType::Float32, rows),
        ]
    };
    let expected = |rows: RecordBatch| {
        let [later, latest] = nulls(rows.num_rows());
        let columns = vec![latest, Arc::clone(rows.column(0)), later];
        let schema = with_later_columns(true).project(&[19, 0, 18]).unwrap();
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    };
    let decoded = Arc::new(DecodedBlocks::new(64 << 20));
    for file in [
        ChunkFile::open(&sample.path).await.unwrap(),
        ChunkFile::open_keeping(&sample.path, decoded)
            .await
            .unwrap(),
    ] {
        let columns = [19, 0, 18];
        let mut wanted = request(&with_later_columns(true), &columns);
        // It would drop all rows, and names what the file lacks.
        wanted.hints = vec![Hint::new(gt_eq(col("latest"), lit(1_f32)), 19)];
        let read = scan(&file, wanted.clone()).await.unwrap();
        assert_eq!(read, expected(sample.all.clone()));
        let only = scan(&file, request(&with_later_columns(true), &[18])).await;
        assert_eq!(only.unwrap().num_rows(), 60_000);
        // Once from the disk, once from memory.
        for _ in 0..3 {
            let schema = Arc::clone(&wanted.schema);
            let few = file.read_rows(8_000..8_100, &columns, &schema).await;
            assert_eq!(few.unwrap(), expected(sample.all.slice(8_000, 100)));
        }
        for may_be_null in [true, false] {
            let fields = with_later_columns(true).project(&[18, 0, 19]).unwrap();
            wanted.condition = Some(Arc::new(OfLaterColumns {
                fields: fields.fields().clone(),
                may_be_null,
            }));
            let read = scan(&file, wanted.clone()).await.unwrap();
            let keys = sample.all.column(0).as_primitive::<Int64Type>();
            let keep = |key: &i64| Some(may_be_null && key % 7 == 0);
            let keep: BooleanArray = keys.values().iter().map(keep).collect();
            let rows = filter_record_batch(&sample.all, &keep).unwrap();
            assert_eq!(read, expected(rows));
        }
        // A file that lacks what has to be there is the wrong one.
        let error = scan(&file, request(&with_later_columns(false), &[0, 19])).await;
        let error = error.unwrap_err();
        assert!(matches!(error, StoreError::WrongScan { .. }), "{error:?}");
    }
}

#[test]
fn the_last_columns_alone_may_be_missing() {
    let table = with_later_columns(true);
    let numbers = numbers_in_file(&table, &all_types()).unwrap();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    let other = all_types().project(&[1, 0, 2]).unwrap();
    let numbers = numbers_in_file(&all_types().project(&[0, 1, 2, 3]).unwrap(), &other);
    assert_eq!(numbers.unwrap(), [1, 0, 2, 3]);
    numbers_in_file(&all_types(), &all_types().project(&[0, 2, 3]).unwrap()).unwrap_err();
}
