//! Decoded blocks that are kept: the same rows as without them, within their budget, and only where that pays.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]
#![allow(
    clippy::single_range_in_vec_init,
    reason = "a list of ranges may have one"
)]

mod common;

use std::fs;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use futures::StreamExt;

use common::{Sample, all_types, request, rows_of_all_types, sample, scan, slices, write};
use meridian_store::{ChunkFile, DecodedBlocks, OpenFiles, ROWS_PER_BLOCK, ReadCounters};
use proptest::prelude::*;
use tokio::runtime::Runtime;
use vortex::expr::{col, gt_eq, lit};

const ROWS: u64 = 40_000;
const COLUMNS: usize = 18;
const PLENTY: u64 = 64 << 20;
/// Columns whose values are not of a fixed length.
const TEXT_AND_BYTES: [usize; 2] = [12, 13];

static SAMPLE: LazyLock<Sample> = LazyLock::new(|| runtime().block_on(sample(ROWS)));

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

async fn open(budget: u64) -> (Arc<ChunkFile>, Arc<DecodedBlocks>) {
    let decoded = Arc::new(DecodedBlocks::new(budget));
    let file = ChunkFile::open_keeping(&SAMPLE.path, Arc::clone(&decoded))
        .await
        .unwrap();
    (file, decoded)
}

/// Reads ranges of rows of some columns, with keys from `least` on.
#[derive(Debug, Clone)]
struct Look {
    columns: Vec<usize>,
    ranges: Vec<Range<u64>>,
    least: Option<i64>,
}

impl Look {
    async fn at(&self, file: &ChunkFile) -> RecordBatch {
        self.counted(file, 0, None).await
    }

    /// Reads them, for other scans too if they are shared.
    async fn counted(
        &self,
        file: &ChunkFile,
        sharers: u32,
        counters: Option<Arc<ReadCounters>>,
    ) -> RecordBatch {
        let mut wanted = request(&all_types(), &self.columns);
        wanted.sharers = sharers;
        wanted.counters = counters;
        wanted.ranges = Some(self.ranges.clone());
        wanted.filter = self.least.map(|least| gt_eq(col("key"), lit(least)));
        scan(file, wanted).await.unwrap()
    }

    /// What it must give: keys count rows.
    fn expected(&self) -> RecordBatch {
        let least = self.least.map_or(0, |least| least as u64);
        let ranges: Vec<_> = (self.ranges.iter())
            .map(|range| range.start.max(least).min(range.end)..range.end)
            .collect();
        let rows = slices(&SAMPLE.all, &ranges);
        rows.project(&self.columns).unwrap()
    }
}

fn looks() -> impl Strategy<Value = Look> {
    let few = (0..ROWS, 1..40_u64).prop_map(|(at, rows)| vec![at..(at + rows).min(ROWS)]);
    let scattered = prop::collection::btree_set(0..ROWS, 2..60).prop_map(|cuts| {
        let cuts: Vec<u64> = cuts.into_iter().collect();
        cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).collect()
    });
    let ranges = prop_oneof![Just(vec![0..ROWS]), few, scattered];
    let columns = prop::sample::subsequence((0..COLUMNS).collect::<Vec<_>>(), 1..6).prop_shuffle();
    (columns, ranges, prop::option::of(0..ROWS as i64)).prop_map(|(columns, ranges, least)| Look {
        columns,
        ranges,
        least,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_are_the_same_in_whatever_order_they_are_asked_for(
        looks in prop::collection::vec(looks(), 1..12),
        budget in prop::sample::select(vec![0, 300_000, 2_000_000, PLENTY]),
    ) {
        LazyLock::force(&SAMPLE);
        runtime().block_on(async {
            let (file, decoded) = open(budget).await;
            // A second time, when blocks are kept, and a third, when others have taken their place.
            for look in looks.iter().chain(&looks).chain(looks.iter().rev()) {
                assert_eq!(look.at(&file).await, look.expected(), "{look:?}");
                assert!(decoded.num_bytes() <= budget, "{decoded:?}");
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn few_rows_are_the_same_from_memory_and_from_the_file(
        looks in prop::collection::vec((few_rows(), prop::sample::subsequence((0..COLUMNS).collect::<Vec<_>>(), 1..6)), 1..12),
        budget in prop::sample::select(vec![0, 300_000, PLENTY]),
    ) {
        LazyLock::force(&SAMPLE);
        runtime().block_on(async {
            let (file, _) = open(budget).await;
            for _ in 0..3 {
                for (rows, columns) in &looks {
                    let schema = Arc::new(all_types().project(columns).unwrap());
                    let read = file.read_rows(rows.clone(), columns, &schema).await.unwrap();
                    let expected = slices(&SAMPLE.all, std::slice::from_ref(rows));
                    assert_eq!(read, expected.project(columns).unwrap(), "{rows:?} {columns:?}");
                }
                // Whole blocks are kept by this; every column of some is.
                let everything = Look { columns: (0..COLUMNS).collect(), ranges: vec![0..ROWS / 2], least: None };
                everything.at(&file).await;
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Several scans at once, on two threads, each with others that want the same or not.
    #[test]
    fn shared_rows_are_the_same_as_without(
        looks in prop::collection::vec((looks(), 0..4_u32), 2..10),
        budget in prop::sample::select(vec![0, 300_000, 2_000_000, PLENTY]),
    ) {
        LazyLock::force(&SAMPLE);
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        threads.block_on(async {
            let (file, decoded) = open(budget).await;
            for _ in 0..2 {
                let scans = looks.iter().cloned().map(|(look, sharers)| {
                    let file = Arc::clone(&file);
                    tokio::spawn(async move {
                        assert_eq!(look.counted(&file, sharers, None).await, look.expected(), "{look:?}");
                    })
                });
                for scan in scans.collect::<Vec<_>>() {
                    scan.await.unwrap();
                }
                assert!(decoded.num_bytes() <= budget, "{decoded:?}");
            }
        });
    }
}

/// Of more columns than there is room for, whoever comes to a block decodes it for the others.
#[tokio::test]
async fn scans_that_share_decode_a_block_once() {
    scans_in_turns(2_000_000, vec![1, 5]).await;
}

/// Texts, too, which are not kept for longer.
#[tokio::test]
async fn texts_are_shared() {
    scans_in_turns(PLENTY, TEXT_AND_BYTES.into()).await;
}

/// Ten scans of these columns that come to each block one after another, beside one scan alone.
async fn scans_in_turns(budget: u64, columns: Vec<usize>) {
    let sample = sample(ROWS).await;
    let decoded = Arc::new(DecodedBlocks::new(budget));
    let file = ChunkFile::open_keeping(&sample.path, Arc::clone(&decoded));
    let file = file.await.unwrap();
    let wanted = |columns: &[usize], counters: &Arc<ReadCounters>| {
        let mut wanted = request(&all_types(), columns);
        wanted.counters = Some(Arc::clone(counters));
        wanted
    };
    // Other columns take the lasting room.
    let others: Vec<usize> = (0..COLUMNS).filter(|it| !columns.contains(it)).collect();
    let (alone, together) = (Arc::<ReadCounters>::default(), Arc::default());
    scan(&file, wanted(&others, &alone)).await.unwrap();
    let before = alone.decoded();
    scan(&file, wanted(&columns, &alone)).await.unwrap();
    let alone = alone.decoded() - before;
    let mut streams: Vec<_> = (0..10)
        .map(|number| {
            let mut wanted = wanted(&columns, &together);
            wanted.sharers = 9 - number;
            (file.scan(wanted), Vec::new())
        })
        .collect();
    let mut is_over = false;
    while !is_over {
        for (stream, batches) in &mut streams {
            match stream.next().await {
                Some(batch) => batches.push(batch.unwrap()),
                None => is_over = true,
            }
        }
    }
    for (_, batches) in &streams {
        let all = concat_batches(&batches[0].schema(), batches).unwrap();
        assert_eq!(all, sample.all.project(&columns).unwrap());
    }
    assert!(
        together.decoded() <= alone * 6 / 5,
        "{together:?}, alone {alone}"
    );
    assert!(together.shared() > alone * 4, "{together:?}, alone {alone}");
    assert_eq!(decoded.num_shared_bytes(), 0, "all have read all");
    assert!(decoded.num_bytes() <= budget);
}

/// About the ends of blocks, too.
fn few_rows() -> impl Strategy<Value = Range<u64>> {
    let block = ROWS_PER_BLOCK as u64;
    let starts = prop_oneof![0..ROWS - 1, block - 20..block, 2 * block - 1..2 * block + 1];
    (starts, 1..40_u64).prop_map(|(start, rows)| start..(start + rows).min(ROWS))
}

#[tokio::test]
async fn a_scan_is_kept_and_then_needs_no_file() {
    let sample = sample(ROWS).await;
    let decoded = Arc::new(DecodedBlocks::new(PLENTY));
    let file = ChunkFile::open_keeping(&sample.path, Arc::clone(&decoded))
        .await
        .unwrap();
    let numbers: Vec<usize> = (0..COLUMNS)
        .filter(|column| !TEXT_AND_BYTES.contains(column))
        .collect();
    scan(&file, request(&all_types(), &numbers)).await.unwrap();
    let blocks = (ROWS as usize).div_ceil(ROWS_PER_BLOCK);
    assert_eq!(decoded.len(), blocks * numbers.len());
    fs::write(&sample.path, b"gone").unwrap();
    let again = scan(&file, request(&all_types(), &numbers)).await.unwrap();
    assert_eq!(again, sample.all.project(&numbers).unwrap());
    // Text is read each time.
    let text = scan(&file, request(&all_types(), &TEXT_AND_BYTES)).await;
    assert!(text.is_err(), "{text:?}");
}

#[test]
fn one_look_at_a_row_decodes_no_whole_block() {
    LazyLock::force(&SAMPLE);
    runtime().block_on(async {
        let (file, decoded) = open(PLENTY).await;
        let look = |at| Look {
            columns: vec![0, 10],
            ranges: vec![at..at + 1],
            least: None,
        };
        look(10).at(&file).await;
        assert_eq!(decoded.len(), 0);
        look(11).at(&file).await;
        assert_eq!(
            decoded.len(),
            2,
            "the second look at a block finds it worth keeping"
        );
    });
}

#[test]
fn what_is_used_outlasts_scans_of_more_than_there_is_room_for() {
    LazyLock::force(&SAMPLE);
    runtime().block_on(async {
        // Room for a few of the blocks of the sample.
        let (file, decoded) = open(1_000_000).await;
        let every: Vec<usize> = (0..COLUMNS).collect();
        let all = Look {
            columns: every,
            ranges: vec![0..ROWS],
            least: None,
        };
        all.at(&file).await;
        let kept = decoded.len();
        assert!(kept > 0, "{decoded:?}");
        for _ in 0..20 {
            assert_eq!(all.at(&file).await, all.expected());
            assert!(decoded.num_bytes() <= decoded.budget());
        }
    });
}

#[tokio::test]
async fn files_that_share_a_budget_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let files = OpenFiles::new(2).keeping(DecodedBlocks::new(PLENTY));
    let numbers = [0, 5, 10, 11];
    for _ in 0..3 {
        // More files than stay open, the first twice: opened again, it finds its blocks.
        for chunk in [0, 1, 2, 3, 0] {
            let path = dir.path().join(format!("chunk_{chunk}.mrd"));
            let rows = rows_of_all_types(chunk * 1000..chunk * 1000 + 20_000);
            if !path.exists() {
                write(&path, vec![rows.clone()]).await.unwrap();
            }
            let file = files.get(&path, sky::ChunkId(0)).await.unwrap();
            let read = scan(&file, request(&all_types(), &numbers)).await.unwrap();
            assert_eq!(read, rows.project(&numbers).unwrap());
        }
    }
}
