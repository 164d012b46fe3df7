//! Parts of tables of each kind, merged: the rows, their places and their order are those of the parts.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Catalog, LoadId, TableKind};
use common::{OVERLAP, Row, STRIPES, SUB_STRIPES, Sky, StoredRow, load, stars, write_csv};
use meridian_ingest::{
    CompactReport, CompactRequest, IngestError, LoadRequest, MonthSort, Progress, compact,
};
use sky::{Angle, Chunker, Location, LonLat};
use store::{DirectorIndex, LoadDir};

fn request(sky: &Sky, table: Option<&str>) -> CompactRequest {
    CompactRequest {
        data_dir: sky.data(),
        database: table.map(|_| "sky".to_owned()),
        table: table.map(str::to_owned),
        all: true,
        months: MonthSort::default(),
        min_parts: 0,
        dry_run: false,
        rate: None,
        memory: Some(64 << 20),
        threads: Some(2),
    }
}

async fn run(request: CompactRequest) -> Result<CompactReport, IngestError> {
    compact(request, Arc::new(Progress::default())).await
}

async fn append(mut request: LoadRequest) {
    request.append = true;
    request.stripes = None;
    request.sub_stripes = None;
    request.overlap_deg = None;
    load(request).await.unwrap();
}

fn write_pairs(sky: &Sky, pairs: &[(i64, i64)]) -> PathBuf {
    let lines = pairs
        .iter()
        .map(|(left, right)| format!("{left},{right}\n"));
    let path = sky.file("pairs.csv");
    std::fs::write(&path, "a,b\n".to_owned() + &lines.collect::<String>()).unwrap();
    path
}

fn position(row: &Row) -> LonLat {
    LonLat::from_degrees(row.ra.unwrap(), row.dec.unwrap()).unwrap()
}

/// Pairs of neighbours in different chunks, of a star with itself, and of one with nobody.
fn pairs(stars: &[Row], chunker: &Chunker) -> Vec<(i64, i64)> {
    let mut pairs = Vec::new();
    for (at, star) in stars.iter().enumerate() {
        let (one, chunk) = (position(star), chunker.locate(position(star)).chunk);
        let near = stars[at + 1..].iter().find(|other| {
            let position = position(other);
            let is_near = sky::separation(one, position) < Angle::from_degrees(OVERLAP);
            is_near && chunker.locate(position).chunk != chunk
        });
        pairs.extend(near.map(|other| (star.id, other.id)));
        match at % 7 {
            0 => pairs.push((star.id, star.id)),
            1 => pairs.push((star.id, 5_000_000 + at as i64)),
            _ => {}
        }
    }
    pairs
}

/// Spots of the stars, of nobody, and of stars that come later.
fn spots(stars: &[Row], first: i64) -> Vec<Row> {
    let spot = |id: i64| {
        let parent = match id % 5 {
            0 => None,
            1 => Some(1_000_000 + id % 40),
            _ => Some(stars[(id * 31) as usize % stars.len()].id),
        };
        let at = &stars[(id * 17) as usize % stars.len()];
        let (ra, dec) = match id % 3 {
            0 => (None, None),
            _ => (at.ra, at.dec),
        };
        Row {
            id,
            parent,
            ra,
            dec,
            name: Some(format!("spot {id}")),
        }
    };
    (first..first + 400).map(spot).collect()
}

/// A sky with three parts of each of four tables; the director gets keys that orphans had before it.
async fn sky_of_parts(chunker: &Chunker) -> Sky {
    let sky = Sky::new();
    let all = stars(3000, 7);
    let mut later: Vec<Row> = all[2000..].to_vec();
    for (row, key) in later.iter_mut().zip(1_000_000..1_000_020) {
        row.id = key;
    }
    let file = |name: &str, rows: &[Row]| write_csv(&sky.file(name), rows);
    load(sky.director("Star", &[file("a.csv", &all[..1000])]))
        .await
        .unwrap();
    append(sky.director("Star", &[file("b.csv", &all[1000..2000])])).await;
    load(sky.child("Spot", "Star", &[file("s.csv", &spots(&all[..2000], 0))]))
        .await
        .unwrap();
    append(sky.child("Spot", "Star", &[file("s2.csv", &spots(&all[..900], 1000))])).await;
    let mut pairs_request =
        sky.request("Pairs", &[write_pairs(&sky, &pairs(&all[..1500], chunker))]);
    pairs_request.kind = Some(TableKind::Match);
    pairs_request.directors = vec!["Star".to_owned(), "Star".to_owned()];
    pairs_request.key = vec!["a".to_owned(), "b".to_owned()];
    load(pairs_request.clone()).await.unwrap();
    append(sky.director("Star", &[file("c.csv", &later)])).await;
    append(sky.child("Spot", "Star", &[file("s3.csv", &spots(&later, 2000))])).await;
    for part in [&all[500..2000], &all[..300]] {
        pairs_request.files = vec![write_pairs(&sky, &pairs(part, chunker))];
        append(pairs_request.clone()).await;
    }
    let lists = sky.request("List", &[file("l.csv", &all[..50])]);
    load(lists.clone()).await.unwrap();
    for rows in [&all[100..103], &all[20..60]] {
        append(LoadRequest {
            files: vec![file("l.csv", rows)],
            ..lists.clone()
        })
        .await;
    }
    sky
}

/// The rows of several parts as they lie in one.
fn in_one_part(mut rows: Vec<StoredRow>, key: Option<&str>) -> Vec<StoredRow> {
    rows.sort_by_key(|row| (row.chunk, row.sub_chunk, key.map(|key| row.int(key))));
    rows
}

/// The keys of all runs of a table's index, each once.
async fn index(sky: &Sky, table: &str) -> BTreeMap<i64, Location> {
    let mut keys = BTreeMap::new();
    for part in sky.table(table).await.part_numbers() {
        let dir = LoadDir::open(&sky.data(), "sky", table, part).unwrap();
        let run = DirectorIndex::open(&dir.index_dir()).unwrap();
        run.verify().unwrap();
        keys.extend(
            run.iter()
                .map(|it| it.map(|(key, it)| (key, it.location)).unwrap()),
        );
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_parts_have_the_rows_of_their_parts() {
    let chunker = Chunker::new(STRIPES, SUB_STRIPES).unwrap();
    let sky = sky_of_parts(&chunker).await;
    let tables = [
        ("Star", Some("id")),
        ("Spot", Some("parent")),
        ("Pairs", Some("a")),
        ("List", None),
    ];
    let mut expected = Vec::new();
    for (name, key) in tables {
        let table = sky.table(name).await;
        assert_eq!(table.parts.len(), 3);
        expected.push((table, in_one_part(sky.rows(name).await, key)));
    }
    let (stars, orphans) = (index(&sky, "Star").await, index(&sky, "Spot").await);
    assert!(stars.len() == 3000 && orphans.len() > 5);
    let pairs = sky.rows("Pairs").await;
    let apart = pairs
        .iter()
        .filter(|row| row.int("__left_sub_chunk") == Some(-1));
    assert!(apart.count() > 5, "pairs with ends in two chunks");
    let report = run(request(&sky, None)).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let merged: BTreeSet<&str> = report.tables.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(merged.len(), 4);
    for ((name, _), (before, rows)) in tables.into_iter().zip(expected) {
        let now = sky.table(name).await;
        assert_eq!(sky.rows(name).await, rows, "{name}");
        assert_eq!(now.parts.len(), 1, "{name}");
        assert_eq!(now.parts[0].merged_from, before.part_numbers());
        assert_eq!(
            (
                now.rows(),
                now.null_keys(),
                now.orphan_rows(),
                now.placement
            ),
            (
                before.rows(),
                before.null_keys(),
                before.orphan_rows(),
                before.placement
            )
        );
        assert_eq!(now.spec, before.spec);
        let dirs = std::fs::read_dir(store::table_dir(&sky.data(), "sky", name)).unwrap();
        assert_eq!(dirs.count(), 1, "the files of {name}'s parts are gone");
    }
    assert_eq!(index(&sky, "Star").await, stars);
    assert_eq!(index(&sky, "Spot").await, orphans);
    assert_eq!(sky.check().await, Vec::<String>::new());
    assert_overlap(&sky, &chunker).await;
    assert_strays(&sky, &chunker).await;
    // A merged table takes more rows, by the homes of its keys.
    let more = write_csv(&sky.file("s4.csv"), &spots(&sky_rows(&sky).await, 3000));
    append(sky.child("Spot", "Star", &[more])).await;
    assert_eq!(sky.check().await, Vec::<String>::new());
}

async fn sky_rows(sky: &Sky) -> Vec<Row> {
    sky.rows("Star").await.iter().map(StoredRow::row).collect()
}

/// Rows of one part near a chunk in which only another part had rows are in its overlap.
async fn assert_overlap(sky: &Sky, chunker: &Chunker) {
    let rows = sky.rows("Star").await;
    let chunks: BTreeSet<_> = rows.iter().map(|row| row.chunk).collect();
    let mut expected = BTreeSet::new();
    for row in &rows {
        let position = position(&row.row());
        for chunk in chunks.iter().filter(|chunk| **chunk != row.chunk) {
            let distance = chunker.chunk_box(*chunk).unwrap().separation(position);
            if distance <= Angle::from_degrees(OVERLAP) {
                expected.insert((*chunk, row.int("id").unwrap()));
            }
        }
    }
    let stored = sky.overlap("Star").await;
    let found: BTreeSet<_> = (stored.iter())
        .map(|row| (row.chunk, row.int("id").unwrap()))
        .collect();
    assert_eq!(found.len(), stored.len(), "each once");
    assert_eq!(found, expected);
}

/// The catalog counts the rows that are elsewhere than their positions, by chunk.
async fn assert_strays(sky: &Sky, chunker: &Chunker) {
    let mut strays = BTreeMap::new();
    for row in sky.rows("Star").await {
        let own = chunker.locate(position(&row.row()));
        let here = (row.chunk, row.sub_chunk);
        *strays.entry(row.chunk).or_insert(0) += u64::from((own.chunk, own.sub_chunk) != here);
    }
    assert!(strays.values().sum::<u64>() > 0);
    let part = sky.table("Star").await.part_numbers()[0];
    let catalog = Catalog::open(&sky.data()).await.unwrap();
    let chunks = catalog.chunks(part).await.unwrap();
    let counted: BTreeMap<_, _> = chunks.iter().map(|it| (it.chunk, it.strays)).collect();
    assert_eq!(counted, strays);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_not_worth_it_are_left_and_told() {
    let sky = Sky::new();
    let rows = stars(60, 3);
    let file = |rows: &[Row]| write_csv(&sky.file("a.csv"), rows);
    load(sky.director("Star", &[file(&rows[..10])]))
        .await
        .unwrap();
    append(sky.director("Star", &[file(&rows[10..20])])).await;
    let by_size = |dry_run| CompactRequest {
        all: false,
        months: MonthSort::default(),
        dry_run,
        ..request(&sky, Some("star"))
    };
    let report = run(by_size(false)).await.unwrap();
    assert!(report.tables[0].merges.is_empty(), "{report:?}");
    for part in rows[20..].chunks(10) {
        append(sky.director("Star", &[file(part)])).await;
    }
    let numbers = sky.table("Star").await.part_numbers();
    let planned = run(by_size(true)).await.unwrap();
    assert_eq!(planned.tables[0].merges[0].parts, numbers);
    assert_eq!(planned.tables[0].merges[0].into, None);
    assert_eq!(
        sky.table("Star").await.part_numbers(),
        numbers,
        "nothing is changed"
    );
    let done = run(by_size(false)).await.unwrap();
    let into = done.tables[0].merges[0].into.unwrap();
    assert_eq!(sky.table("Star").await.part_numbers(), [into]);
    assert!(into > LoadId(numbers[5].0));
    for (table, words) in [("Nova", "there is no table sky.Nova")] {
        let error = run(request(&sky, Some(table))).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut elsewhere = request(&sky, None);
    elsewhere.database = Some("ski".to_owned());
    let error = run(elsewhere).await.unwrap_err().to_string();
    assert!(error.contains("there is no database ski"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_is_not_merged_and_does_not_stop_the_others() {
    let sky = Sky::new();
    let rows = stars(60, 3);
    for table in ["Broken", "Sound"] {
        let first = write_csv(&sky.file("a.csv"), &rows[..30]);
        load(sky.director(table, &[first])).await.unwrap();
        let second = write_csv(&sky.file("a.csv"), &rows[30..]);
        append(sky.director(table, &[second])).await;
    }
    let table = sky.table("Broken").await;
    let dir = LoadDir::open(&sky.data(), "sky", "Broken", table.placement).unwrap();
    let mut files = std::fs::read_dir(dir.path()).unwrap();
    let chunk = files.find_map(|file| {
        let path = file.unwrap().path();
        path.file_name()?
            .to_str()?
            .starts_with("chunk_")
            .then_some(path)
    });
    let chunk = chunk.unwrap();
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&chunk, bytes).unwrap();
    let report = run(request(&sky, None)).await.unwrap();
    let [(name, error)] = report.failures.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(name, "sky.Broken");
    assert!(error.to_string().contains("chunk_"), "{error}");
    assert_eq!(
        sky.table("Broken").await.part_numbers(),
        table.part_numbers()
    );
    assert_eq!(sky.table("Sound").await.parts.len(), 1);
    let dirs = std::fs::read_dir(store::table_dir(&sky.data(), "sky", "Broken")).unwrap();
    assert_eq!(dirs.count(), 2, "nothing is left of the failed merge");
}
