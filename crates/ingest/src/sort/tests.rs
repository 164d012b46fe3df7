//! The sorter against a plain sort of the same rows, with memory enough and with next to none.

use arrow::array::{AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use proptest::prelude::*;

use super::*;
use crate::row_batch::{placed_batch, placed_schema, places_of, rows_of};

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

fn sorted(rows: &[Row], memory: u64, batch_rows: usize) -> (Vec<(u64, Row)>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let columns = SortColumns {
        key: Some(0),
        order: Some(1),
    };
    let budget = Arc::new(MemoryBudget::new(memory, 2));
    let sorter = Sorter::new("rows", schema(), columns, budget, 1.0, dir.path().into());
    let numbered: Vec<(u64, Row)> = (0..).zip(rows.iter().cloned()).collect();
    let mut inputs = [sorter.input(), sorter.input()];
    for (i, part) in numbered.chunks(batch_rows).enumerate() {
        inputs[i % 2].push(batch(part)).unwrap();
    }
    inputs.into_iter().for_each(|input| input.finish().unwrap());
    let runs = sorter.into_runs();
    assert_eq!(runs.rows(), rows.len() as u64);
    let mut out = Vec::new();
    for size in runs.chunks() {
        let before = out.len();
        for merged in runs.merge_chunk(size.chunk).unwrap() {
            out.extend(unbatch(&merged.unwrap()));
        }
        assert_eq!((out.len() - before) as u64, size.rows);
    }
    let spilled = runs.spilled_runs();
    let all: Vec<_> = runs
        .merge_all()
        .unwrap()
        .flat_map(|b| unbatch(&b.unwrap()))
        .collect();
    assert_eq!(all, out);
    drop(runs);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "spill files are removed"
    );
    (out, spilled)
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
        prop_assert_eq!(&sorted(&rows, 1 << 30, batch_rows).0, &expected);
        prop_assert_eq!(&sorted(&rows, 1, batch_rows).0, &expected);
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
    let (out, spilled) = sorted(&rows, 1, 1000);
    assert!(spilled > 10, "{spilled}");
    assert_eq!(out, model(&rows));
}
