//! A few rows at a time, appended from memory beside other appends and compactions: the table has the rows of all of them in their order, in
//! few parts, and nothing is left of what failed.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use catalog::{Catalog, LoadLock, Table, TableKind};
use common::{Dice, Row, Sky, batch, load, stars, write_csv};
use meridian_ingest::{
    CompactRequest, IngestError, LoadRequest, MANY_PARTS, MonthSort, Progress, Rejection,
    SmallAppends, SmallRows, compact_with,
};

/// A table `Spot` that is kept whole, with the first of these rows.
async fn spots(sky: &Sky, first: &[Row]) -> Catalog {
    load(request(sky, first)).await.unwrap();
    Catalog::open(&sky.data()).await.unwrap()
}

fn request(sky: &Sky, rows: &[Row]) -> LoadRequest {
    let mut request = sky.request("Spot", &[write_csv(&sky.file("spots.csv"), rows)]);
    request.kind = Some(TableKind::Replicated);
    request.nullable = vec!["all".to_owned()];
    request
}

async fn table(catalog: &Catalog) -> Table {
    catalog.table("sky", "Spot").await.unwrap().unwrap()
}

fn small(table: &Table, rows: RecordBatch) -> SmallRows {
    SmallRows {
        rows,
        columns: table.spec.columns.clone(),
        name: "rows".to_owned(),
        source: "a test".to_owned(),
    }
}

/// Appends the rows of one statement, made for a table as it is here.
async fn append(
    appending: &mut SmallAppends,
    table: &Table,
    rows: RecordBatch,
) -> Result<(), IngestError> {
    let outcomes = appending.append(vec![small(table, rows)]).await?;
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().collect()
}

fn compaction(sky: &Sky) -> CompactRequest {
    CompactRequest {
        data_dir: sky.data(),
        database: Some("sky".to_owned()),
        table: Some("Spot".to_owned()),
        all: false,
        months: MonthSort::default(),
        min_parts: 0,
        dry_run: false,
        rate: None,
        memory: Some(64 << 20),
        threads: Some(1),
    }
}

async fn rows_of(sky: &Sky) -> Vec<Row> {
    let stored = sky.rows("Spot").await;
    stored.iter().map(common::StoredRow::row).collect()
}

/// The directories of the table's parts.
fn directories(sky: &Sky) -> Vec<PathBuf> {
    let found = std::fs::read_dir(sky.data().join("tables/sky.spot")).unwrap();
    let mut found: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_there_in_their_order_whoever_appends() {
    let sky = Sky::new();
    let all = stars(6000, 11);
    let mut dice = Dice::new(5);
    let catalog = spots(&sky, &all[..3]).await;
    // Two of them, as of two servers, and now and then a load or a compaction.
    let mut appending = [(); 2].map(|()| SmallAppends::new(&catalog, "sky", "Spot"));
    let (mut there, mut appends) = (3, 0);
    while there < all.len() {
        let count = match dice.below(10) {
            0 => 1 + dice.below(400) as usize,
            _ => 1 + dice.below(30) as usize,
        };
        let end = all.len().min(there + count);
        let rows = &all[there..end];
        there = end;
        let who = usize::from(dice.below(8) == 0);
        match dice.below(40) {
            0 => {
                let mut request = request(&sky, rows);
                (request.append, request.kind) = (true, None);
                request.nullable.clear();
                (request.stripes, request.sub_stripes, request.overlap_deg) = (None, None, None);
                load(request).await.unwrap();
            }
            1 => {
                // What was looked up before is not the table any more.
                let then = table(&catalog).await;
                let progress = Arc::new(Progress::default());
                compact_with(&catalog, compaction(&sky), progress)
                    .await
                    .unwrap();
                append(&mut appending[who], &then, batch(rows))
                    .await
                    .unwrap();
            }
            _ => {
                let now = table(&catalog).await;
                append(&mut appending[who], &now, batch(rows))
                    .await
                    .unwrap();
            }
        }
        match dice.below(9) {
            0 => appending[who].pause().await.unwrap(),
            1..5 => appending[who].prepare().await.unwrap(),
            _ => {}
        }
        appends += 1;
    }
    assert!(appends > 100);
    assert_eq!(rows_of(&sky).await, all);
    let now = table(&catalog).await;
    assert_eq!(now.rows(), all.len() as u64);
    assert!(now.parts.len() <= MANY_PARTS, "{}", now.parts.len());
    assert_eq!(sky.check().await, Vec::<String>::new());
    // Nothing is left of the parts that were replaced, nor of loads that were begun.
    for it in &mut appending {
        it.pause().await.unwrap();
    }
    meridian_ingest::remove_superseded(&catalog, &sky.data())
        .await
        .unwrap();
    assert_eq!(directories(&sky).len(), now.parts.len());
    assert_eq!(catalog.unpublished_loads("sky", "Spot").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_appends_leave_few_parts() {
    let sky = Sky::new();
    let all = stars(1000, 3);
    let catalog = spots(&sky, &all[..40]).await;
    let mut appending = SmallAppends::new(&catalog, "sky", "Spot");
    for rows in all[40..].chunks(10) {
        let now = table(&catalog).await;
        append(&mut appending, &now, batch(rows)).await.unwrap();
        appending.prepare().await.unwrap();
        let parts = table(&catalog).await.parts;
        assert!(parts.len() <= 9, "{parts:?}");
    }
    assert_eq!(rows_of(&sky).await, all);
    // Files of replaced parts do not pile up.
    assert!(directories(&sky).len() < 60, "{}", directories(&sky).len());
}

/// A compaction has chosen parts, and is not at its end.
#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_being_merged_are_left_alone() {
    let sky = Sky::new();
    let all = stars(60, 3);
    let catalog = spots(&sky, &all[..10]).await;
    let mut appending = SmallAppends::new(&catalog, "sky", "Spot");
    let mut append = async |rows: &[Row]| {
        let now = table(&catalog).await;
        append(&mut appending, &now, batch(rows)).await.unwrap();
        table(&catalog).await.part_numbers()
    };
    let first = append(&all[10..20]).await;
    let compacts = LoadLock::acquire(&sky.data(), "sky", "Spot\0compaction", "a test").unwrap();
    let beside = append(&all[20..30]).await;
    assert!(
        beside.starts_with(&first) && beside.len() == 3,
        "{beside:?}"
    );
    let beside = append(&all[30..40]).await;
    assert!(
        beside.starts_with(&first) && beside.len() == 4,
        "{beside:?}"
    );
    drop(compacts);
    let after = append(&all[40..60]).await;
    assert_eq!((after.len(), after[0]), (2, first[0]));
    assert_eq!(rows_of(&sky).await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_leaves_nothing() {
    let sky = Sky::new();
    let all = stars(20, 3);
    let catalog = spots(&sky, &all[..10]).await;
    let mut appending = SmallAppends::new(&catalog, "sky", "Spot");
    let now = table(&catalog).await;
    let id = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let texts = Arc::new(StringArray::from(vec!["1", "many"])) as ArrayRef;
    let wrong = RecordBatch::try_from_iter([("id", texts)]);
    let before = directories(&sky);
    let error = append(&mut appending, &now, wrong.unwrap())
        .await
        .unwrap_err();
    let IngestError::TooManyRejected { why, examples, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*why, Rejection::Value);
    assert!(examples.contains("rows:2:"), "{examples}");
    // The table is another one meanwhile.
    let mut other = now.clone();
    other.spec.columns[1].name = "father".to_owned();
    let error = append(&mut appending, &other, batch(&all[10..]))
        .await
        .unwrap_err();
    assert!(error.is_change(), "{error}");
    assert_eq!(table(&catalog).await, now);
    assert_eq!(directories(&sky), before);
    // The load that was begun is kept for the next rows till then.
    appending.pause().await.unwrap();
    assert_eq!(catalog.unpublished_loads("sky", "Spot").await.unwrap(), []);
    // The next ones are stored, by the value rules.
    let values = [
        ("id", id(vec![Some(9)])),
        (
            "ra",
            Arc::new(Float64Array::from(vec![f64::NAN])) as ArrayRef,
        ),
    ];
    let rows = RecordBatch::try_from_iter(values).unwrap();
    append(&mut appending, &now, rows).await.unwrap();
    let expected = Row {
        id: 9,
        parent: None,
        ra: None,
        dec: None,
        name: None,
    };
    assert_eq!(rows_of(&sky).await.last(), Some(&expected));
}

/// Somebody else's load of the table takes loads that were begun, and not used yet, for what a killed one left.
#[tokio::test(flavor = "multi_thread")]
async fn loads_that_were_begun_may_be_removed_by_others() {
    let sky = Sky::new();
    let all = stars(80, 3);
    let catalog = spots(&sky, &all[..10]).await;
    let mut appending = SmallAppends::new(&catalog, "sky", "Spot");
    for rows in all[10..60].chunks(10) {
        let now = table(&catalog).await;
        append(&mut appending, &now, batch(rows)).await.unwrap();
        appending.prepare().await.unwrap();
    }
    assert!(
        !catalog
            .unpublished_loads("sky", "Spot")
            .await
            .unwrap()
            .is_empty()
    );
    let mut more = request(&sky, &all[60..70]);
    (more.append, more.kind) = (true, None);
    more.nullable.clear();
    (more.stripes, more.sub_stripes, more.overlap_deg) = (None, None, None);
    load(more).await.unwrap();
    assert_eq!(catalog.unpublished_loads("sky", "Spot").await.unwrap(), []);
    let now = table(&catalog).await;
    append(&mut appending, &now, batch(&all[70..]))
        .await
        .unwrap();
    assert_eq!(rows_of(&sky).await, all);
    assert_eq!(sky.check().await, Vec::<String>::new());
}
