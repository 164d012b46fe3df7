//! The sorter against a plain sort of the same rows, with memory enough and with next to none.

use arrow::array::{AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use proptest::prelude::*;
use sky::ChunkId;

use super::*;
use crate::row_batch::{Place, placed_batch, placed_schema, places_of, rows_of};

fn schema() -> SchemaRef {
    placed_schema(&Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("time", DataType::Float64, true),
        Field::new("name", DataType::Utf8, true),
    ]))
}

type Row = (i32, i32, Option<i64>, Option<f64>, String);

fn batch(rows: &[(u64, Row)]) -> RecordBatch {
    let key: Int64Array = rows.iter().map(|(_, r)| r.2).collect();
    let time: Float64Array = rows.iter().map(|(_, r)| r.3).collect();
    let name: StringArray = rows.iter().map(|(_, r)| Some(r.4.clone())).collect();
    let place = rows
        .iter()
        .map(|(_, r)| Place::new(ChunkId(r.0), sky::SubChunkId(r.1)).0)
        .collect();
    let ids = rows.iter().map(|(id, _)| *id).collect();
    placed_batch(
        &schema(),
        &[Arc::new(key), Arc::new(time), Arc::new(name)],
        place,
        ids,
    )
    .unwrap()
}

const COLUMNS: SortColumns = SortColumns {
    key: Some(0),
    order: Some(1),
};

/// What came of sorting.
struct SortOutcome {
    rows: Vec<(u64, Row)>,
    spilled: usize,
    merged_chunks: usize,
}

fn sorted(rows: &[Row], memory: u64, batch_rows: usize) -> SortOutcome {
    let dir = tempfile::tempdir().unwrap();
    let budget = Arc::new(MemoryBudget::new(memory, 2));
    let path = || dir.path().to_path_buf();
    let by_chunk = ChunkSorter::new("rows", schema(), COLUMNS, budget.clone(), 1.0, path());
    let at_once = Sorter::new("all", schema(), COLUMNS, budget, 1.0, path());
    let numbered: Vec<(u64, Row)> = (0..).zip(rows.iter().cloned()).collect();
    let mut inputs = [by_chunk.input(), by_chunk.input()];
    let mut inputs_at_once = [at_once.input(), at_once.input()];
    for (i, part) in numbered.chunks(batch_rows).enumerate() {
        inputs[i % 2].push(batch(part)).unwrap();
        inputs_at_once[i % 2].push(batch(part)).unwrap();
    }
    inputs.into_iter().for_each(|input| input.finish().unwrap());
    inputs_at_once
        .into_iter()
        .for_each(|input| input.finish().unwrap());
    let chunks = by_chunk.into_chunks();
    assert_eq!(chunks.rows(), rows.len() as u64);
    let mut found = SortOutcome {
        rows: Vec::new(),
        spilled: chunks.spilled_parts(),
        merged_chunks: 0,
    };
    for size in chunks.sizes() {
        let before = found.rows.len();
        let sorted = chunks.take(size.chunk).unwrap();
        found.merged_chunks += usize::from(sorted.is_merged());
        for batch in sorted {
            found.rows.extend(unbatch(&batch.unwrap()));
        }
        assert_eq!((found.rows.len() - before) as u64, size.rows);
    }
    let all: Vec<_> = at_once
        .take_sorted()
        .unwrap()
        .flat_map(|b| unbatch(&b.unwrap()))
        .collect();
    assert_eq!(all, found.rows);
    drop((chunks, at_once));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "spill files are removed"
    );
    found
}

fn unbatch(batch: &RecordBatch) -> Vec<(u64, Row)> {
    let key = batch.column(0).as_primitive::<Int64Type>();
    let time = batch.column(1).as_primitive::<Float64Type>();
    let name = batch.column(2).as_string::<i32>();
    let rows = (0..batch.num_rows()).map(|i| {
        let place = Place(places_of(batch)[i]);
        let key = key.iter().nth(i).flatten();
        let time = time.iter().nth(i).flatten();
        let row = (
            place.chunk().0,
            place.sub_chunk().0,
            key,
            time,
            name.value(i).to_owned(),
        );
        (rows_of(batch)[i], row)
    });
    rows.collect()
}

fn model(rows: &[Row]) -> Vec<(u64, Row)> {
    let mut rows: Vec<(u64, Row)> = (0..).zip(rows.iter().cloned()).collect();
    rows.sort_by(|(i, a), (j, b)| {
        let times = || match (a.3, b.3) {
            (Some(x), Some(y)) => x.total_cmp(&y),
            (x, y) => x.is_some().cmp(&y.is_some()),
        };
        (a.0, a.1, a.2)
            .cmp(&(b.0, b.1, b.2))
            .then_with(times)
            .then(i.cmp(j))
    });
    rows
}

fn any_row() -> impl Strategy<Value = Row> {
    let key = proptest::option::of(-3i64..20);
    let time = proptest::option::of(-2.0..2.0f64);
    (0..6i32, -1..3i32, key, time, "[a-z]{0,12}")
}

proptest! {
    #[test]
    fn any_rows_come_out_sorted_with_any_budget(
        rows in proptest::collection::vec(any_row(), 0..300), batch_rows in 1..50usize,
    ) {
        let expected = model(&rows);
        prop_assert_eq!(&sorted(&rows, 1 << 30, batch_rows).rows, &expected);
        prop_assert_eq!(&sorted(&rows, 1, batch_rows).rows, &expected);
    }
}

#[test]
fn many_rows_in_one_chunk_are_spilled_and_merged() {
    let row = |i: i64| {
        (
            3,
            0,
            Some((i * 7919) % 50_021),
            Some(0.0),
            format!("name {i}"),
        )
    };
    let rows: Vec<Row> = (0..50_000).map(row).collect();
    let found = sorted(&rows, 1, 1000);
    assert!(found.spilled > 10, "{}", found.spilled);
    assert_eq!(found.merged_chunks, 1);
    assert_eq!(found.rows, model(&rows));
}

/// Rows of many chunks, a chunk's together or all mixed.
fn rows_of_chunks(chunks: i64, rows_each: i64, together: bool) -> Vec<Row> {
    let row = |i: i64| {
        let chunk = if together { i / rows_each } else { i % chunks };
        let sub_chunk = (i * 31) % 7;
        let key = (i * 7919) % 50_021;
        let time = Some(((i * 13) % 5) as f64);
        (
            chunk as i32,
            sub_chunk as i32,
            Some(key),
            time,
            i.to_string(),
        )
    };
    (0..chunks * rows_each).map(row).collect()
}

#[test]
fn chunks_that_went_to_disk_are_sorted_whole_if_they_fit() {
    for together in [true, false] {
        let rows = rows_of_chunks(60, 1500, together);
        let found = sorted(&rows, 2 << 20, 1500);
        assert!(found.spilled > 10, "{}", found.spilled);
        assert_eq!(found.merged_chunks, 0);
        assert_eq!(found.rows, model(&rows));
    }
}

#[test]
fn nothing_goes_to_disk_that_fits_into_memory() {
    for together in [true, false] {
        let rows = rows_of_chunks(20, 1100, together);
        let found = sorted(&rows, 1 << 30, 1100);
        assert_eq!((found.spilled, found.merged_chunks), (0, 0));
        assert_eq!(found.rows, model(&rows));
    }
}

#[test]
fn sub_chunks_with_far_apart_numbers_are_sorted() {
    let row = |i: i32| {
        let sub_chunk = [-1, i32::MAX, 0, i32::MIN + 1, 77_000_000][i as usize % 5];
        (
            5,
            sub_chunk,
            Some(i64::from(i * 7 % 11)),
            None,
            String::new(),
        )
    };
    let rows: Vec<Row> = (0..500).map(row).collect();
    assert_eq!(sorted(&rows, 1 << 30, 100).rows, model(&rows));
}
