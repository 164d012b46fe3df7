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

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Fields, Int64Type};
use common::{Sample, all_types, request, sample, scan, slices};
use meridian_store::{ChunkFile, Hint, RowCondition, StoreError};
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
    wanted.hints = vec![Hint::new(gt_eq(col("key"), lit(59_990_i64)))];
    wanted.condition = Some(condition.clone());
    let read = scan(&file, wanted).await.unwrap();
    assert_eq!(
        read,
        sample.all.slice(59_990, 10).project(&[0, 11]).unwrap()
    );
    // Only the last block was read, and all of it was tested: a hint is no condition.
    assert_eq!(condition.asked(), (49_152..60_000).collect::<Vec<_>>());
    let mut hinted = request(&all_types(), &[0]);
    hinted.hints = vec![Hint::new(gt_eq(col("key"), lit(59_990_i64)))];
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
    let useless = Hint::new(gt_eq(col("key"), lit(0_i64)));
    let useful = Hint::new(gt_eq(col("key"), lit(59_000_i64)));
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
