//! A few rows at a time of directors and children, appended from memory: each part is what a load of the same rows writes, to the last byte,
//! parts that grow are what a compaction makes of them, and a mistake is of the statement that has made it.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use catalog::{Catalog, Table};
use common::{Dice, Row, Sky, StoredRow, batch, load, stars, write_csv};
use meridian_ingest::{
    CompactRequest, IngestError, LoadRequest, MonthSort, Progress, Rejection, SmallAppends,
    SmallRows, compact_with,
};
use store::{LoadDir, PartManifest};

/// A director `Star` with its first rows, and a child `Source` with keys that it has, that it lacks, and none.
async fn made(first: &[Row], sources: &[Row]) -> (Sky, Catalog) {
    let sky = Sky::new();
    let files = [write_csv(&sky.file("stars.csv"), first)];
    load(sky.director("Star", &files)).await.unwrap();
    let files = [write_csv(&sky.file("sources.csv"), sources)];
    let mut child = sky.child("Source", "Star", &files);
    child.nullable = vec!["all".to_owned()];
    child.own_key = Some("id".to_owned());
    load(child).await.unwrap();
    let catalog = Catalog::open(&sky.data()).await.unwrap();
    (sky, catalog)
}

/// Rows of a child of these stars, more of which come later.
fn sources(of: &[Row], count: i64, seed: u64) -> Vec<Row> {
    let mut dice = Dice::new(seed);
    let row = |id: i64| {
        let star = &of[dice.below(of.len() as u64) as usize];
        let (ra, dec) = match dice.below(3) {
            0 => dice.position(),
            _ => (star.ra.unwrap(), star.dec.unwrap()),
        };
        let has_position = dice.below(5) > 0;
        Row {
            id: id + seed as i64 * 10_000,
            parent: match dice.below(12) {
                0 => None,
                // A key that no star ever has.
                1 => Some(9_000_001 + dice.below(3) as i64),
                _ => Some(star.id),
            },
            ra: has_position.then_some(ra),
            dec: has_position.then_some(dec),
            name: (id % 4 > 0).then(|| format!("source {id}")),
        }
    };
    (0..count).map(row).collect()
}

async fn table(catalog: &Catalog, name: &str) -> Table {
    catalog.table("sky", name).await.unwrap().unwrap()
}

fn small(table: &Table, rows: RecordBatch) -> SmallRows {
    SmallRows {
        rows,
        columns: table.spec.columns.clone(),
        name: "rows".to_owned(),
        source: "a test".to_owned(),
    }
}

/// Appends rows, each `together` of them as one statement.
async fn append(
    appending: &mut SmallAppends,
    table: &Table,
    rows: &[Row],
    together: usize,
) -> Vec<Result<(), IngestError>> {
    let statements = rows.chunks(together);
    let statements = statements.map(|rows| small(table, batch(rows)));
    appending.append(statements.collect()).await.unwrap()
}

/// Appends the rows by a load.
async fn load_more(sky: &Sky, name: &str, rows: &[Row]) {
    let file = write_csv(&sky.file("more.csv"), rows);
    let mut request: LoadRequest = sky.request(name, &[file]);
    request.append = true;
    (request.stripes, request.sub_stripes, request.overlap_deg) = (None, None, None);
    load(request).await.unwrap();
}

async fn compact_all(sky: &Sky, catalog: &Catalog, name: &str) {
    let request = CompactRequest {
        data_dir: sky.data(),
        database: Some("sky".to_owned()),
        table: Some(name.to_owned()),
        all: true,
        months: MonthSort::default(),
        min_parts: 0,
        dry_run: false,
        rate: None,
        memory: Some(64 << 20),
        threads: Some(1),
    };
    let report = compact_with(catalog, request, Arc::new(Progress::default()));
    assert!(report.await.unwrap().failures.is_empty());
}

/// What the manifests of all parts say, but for the numbers of loads: of each file its rows, bounds and checksum.
async fn manifests(sky: &Sky, name: &str) -> Vec<PartManifest> {
    let table = sky.table(name).await;
    let manifest = |load| {
        let dir = LoadDir::open(&sky.data(), "sky", name, load).unwrap();
        let mut manifest = PartManifest::read(dir.path()).unwrap();
        manifest.part = catalog::LoadId(0);
        for director in &mut manifest.table.directors {
            director.placement = director.placement.map(|_| catalog::LoadId(0));
        }
        manifest
    };
    table.part_numbers().into_iter().map(manifest).collect()
}

/// The indexes of all parts, byte by byte.
async fn indexes(sky: &Sky, name: &str) -> Vec<Vec<u8>> {
    let table = sky.table(name).await;
    let mut found = Vec::new();
    for load in table.part_numbers() {
        let dir = LoadDir::open(&sky.data(), "sky", name, load).unwrap();
        for entry in std::fs::read_dir(dir.index_dir()).unwrap() {
            found.push(std::fs::read(entry.unwrap().path()).unwrap());
        }
    }
    found
}

/// What the catalog says of the rows of all parts together.
fn counts(table: &Table) -> (u64, u64, u64) {
    (table.rows(), table.null_keys(), table.orphan_rows())
}

fn in_some_order(rows: Vec<StoredRow>) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    texts.sort();
    texts
}

/// Two equal catalogues of which one gets rows by loads and the other from memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_what_a_load_writes() {
    let all = stars(900, 21);
    // Some stars come after their sources.
    let of_later = sources(&all, 300, 1);
    let (loaded, _) = made(&all[..400], &of_later).await;
    let (appended, catalog) = made(&all[..400], &of_later).await;
    for (name, rows) in [
        ("Star", all[400..].to_vec()),
        ("Source", sources(&all, 500, 2)),
    ] {
        load_more(&loaded, name, &rows).await;
        let mut appending = SmallAppends::new(&catalog, "sky", name);
        let now = table(&catalog, name).await;
        // As the rows of many statements, some of several rows.
        let outcomes = append(&mut appending, &now, &rows, 3).await;
        assert!(outcomes.iter().all(Result::is_ok));
        assert_eq!(
            manifests(&appended, name).await,
            manifests(&loaded, name).await
        );
        assert_eq!(indexes(&appended, name).await, indexes(&loaded, name).await);
        let (ours, theirs) = (appended.table(name).await, loaded.table(name).await);
        assert_eq!(counts(&ours), counts(&theirs));
        assert_eq!(ours.bytes(), theirs.bytes());
        assert!(ours.orphan_rows() > 0 || name == "Star");
    }
    let strays = |manifests: &[PartManifest]| -> u64 {
        let chunks = manifests.iter().flat_map(|part| &part.chunks);
        chunks.map(|chunk| chunk.strays).sum()
    };
    assert!(strays(&manifests(&appended, "Star").await) > 0);
    assert_eq!(appended.check().await, Vec::<String>::new());
}

/// The same of many appends, which become few parts: each row is where a load would have placed it, and a compaction leaves nothing that
/// tells how they came.
#[tokio::test(flavor = "multi_thread")]
async fn parts_that_grow_are_what_a_compaction_makes() {
    let all = stars(700, 22);
    let first = sources(&all, 200, 3);
    let (loaded, other) = made(&all[..200], &first).await;
    let (appended, catalog) = made(&all[..200], &first).await;
    let mut dice = Dice::new(9);
    let more = sources(&all, 500, 4);
    let rows = [("Star", &all[200..]), ("Source", &more[..])];
    let mut appending = rows.map(|(name, _)| SmallAppends::new(&catalog, "sky", name));
    let mut there = [0, 0];
    while rows
        .iter()
        .zip(there)
        .any(|((_, rows), there)| there < rows.len())
    {
        // In turns, so that stars come before and after their sources.
        for ((at, (name, rows)), appending) in rows.iter().enumerate().zip(&mut appending) {
            let end = rows.len().min(there[at] + 1 + dice.below(40) as usize);
            let some = &rows[there[at]..end];
            there[at] = end;
            if some.is_empty() {
                continue;
            }
            load_more(&loaded, name, some).await;
            let now = table(&catalog, name).await;
            let outcomes = append(appending, &now, some, 1 + dice.below(4) as usize).await;
            assert!(outcomes.iter().all(Result::is_ok));
            match dice.below(6) {
                0 => appending.pause().await.unwrap(),
                1 => {}
                _ => appending.prepare().await.unwrap(),
            }
        }
    }
    for (name, rows) in rows {
        let (ours, theirs) = (appended.table(name).await, loaded.table(name).await);
        assert_eq!(counts(&ours), counts(&theirs));
        assert!(
            ours.parts.len() < 10 && theirs.parts.len() > 20,
            "{}",
            rows.len()
        );
        let stored = async |sky: &Sky| in_some_order(sky.rows(name).await);
        assert_eq!(stored(&appended).await, stored(&loaded).await);
        compact_all(&loaded, &other, name).await;
        compact_all(&appended, &catalog, name).await;
        assert_eq!(
            manifests(&appended, name).await,
            manifests(&loaded, name).await
        );
        assert_eq!(indexes(&appended, name).await, indexes(&loaded, name).await);
    }
    assert_eq!(appended.check().await, Vec::<String>::new());
    // Nobody is kept from removing what was replaced.
    for it in &mut appending {
        it.pause().await.unwrap();
    }
    meridian_ingest::remove_superseded(&catalog, &appended.data())
        .await
        .unwrap();
    assert_eq!(catalog.superseded_loads().await.unwrap(), []);
}

/// Of two statements with one key the first has it; a statement of several rows is there as a whole or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_of_its_statement() {
    let all = stars(60, 23);
    let (sky, catalog) = made(&all[..20], &sources(&all, 20, 5)).await;
    let mut appending = SmallAppends::new(&catalog, "sky", "Star");
    let now = table(&catalog, "Star").await;
    let of = |row: &Row, change: fn(&mut Row)| {
        let mut row = row.clone();
        change(&mut row);
        row
    };
    let statements = [
        vec![all[20].clone(), all[21].clone()],
        // The key of the statement before.
        vec![all[22].clone(), of(&all[21], |row| row.dec = Some(1.0))],
        // A key that the table has.
        vec![all[3].clone()],
        vec![of(&all[23], |row| row.dec = Some(91.0))],
        vec![of(&all[24], |row| row.ra = None)],
        // One key twice.
        vec![all[25].clone(), all[26].clone(), all[25].clone()],
        vec![all[22].clone()],
        vec![all[27].clone()],
    ];
    let mut given: Vec<SmallRows> = { statements.iter() }
        .map(|rows| small(&now, batch(rows)))
        .collect();
    let mut other = given[7].clone();
    other.columns[0].name = "number".to_owned();
    given.push(other);
    let outcomes = appending.append(given).await.unwrap();
    let told: Vec<Option<(Rejection, String)>> = { outcomes.iter() }
        .map(|outcome| match outcome {
            Err(IngestError::TooManyRejected { why, examples, .. }) => {
                Some((*why, examples.clone()))
            }
            _ => None,
        })
        .collect();
    let is_told = |at: usize, expected: Rejection, words: &[String]| {
        let (why, examples) = told[at].as_ref().unwrap();
        assert_eq!(*why, expected, "{at}: {examples}");
        assert!(words.iter().all(|it| examples.contains(it)), "{examples}");
    };
    let known = |row: &Row| format!("the table has the key {} already", row.id);
    is_told(
        1,
        Rejection::Duplicate,
        &[known(&all[21]), "rows:2:".to_owned()],
    );
    is_told(
        2,
        Rejection::Duplicate,
        &[known(&all[3]), "rows:1:".to_owned()],
    );
    is_told(3, Rejection::OutOfRange, &["rows:1:".to_owned()]);
    is_told(4, Rejection::Missing, &["rows:1:".to_owned()]);
    let twice = format!("the key {} occurs before, at rows:1", all[25].id);
    is_told(5, Rejection::Duplicate, &["rows:3:".to_owned(), twice]);
    assert!(outcomes[8].as_ref().unwrap_err().is_change());
    assert!([0, 6, 7].iter().all(|at| outcomes[*at].is_ok()));
    let stored = sky.rows("Star").await;
    let ids: BTreeSet<i64> = stored.iter().map(|row| row.int("id").unwrap()).collect();
    let expected = all[..23].iter().chain([&all[27]]).map(|row| row.id);
    assert_eq!(ids, expected.collect());
    assert_eq!(table(&catalog, "Star").await.parts.len(), 2);
    // Where none is right, nothing is left.
    let outcomes = append(&mut appending, &now, &all[..2], 1).await;
    assert!(outcomes.iter().all(Result::is_err));
    appending.pause().await.unwrap();
    assert_eq!(catalog.unpublished_loads("sky", "Star").await.unwrap(), []);
    assert_eq!(table(&catalog, "Star").await.parts.len(), 2);
    assert_eq!(sky.check().await, Vec::<String>::new());
}

/// A child finds the keys that its director has got a moment ago, whoever has stored them.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_follows_its_director() {
    let all = stars(120, 24);
    let (sky, catalog) = made(&all[..20], &sources(&all[..20], 20, 6)).await;
    let mut of_stars = SmallAppends::new(&catalog, "sky", "Star");
    let mut of_sources = SmallAppends::new(&catalog, "sky", "Source");
    let mut dice = Dice::new(3);
    for (n, stars) in all[20..].chunks(10).enumerate() {
        match dice.below(4) {
            0 => load_more(&sky, "Star", stars).await,
            _ => {
                let now = table(&catalog, "Star").await;
                append(&mut of_stars, &now, stars, 1).await;
            }
        }
        if dice.below(4) == 0 {
            compact_all(&sky, &catalog, "Star").await;
        }
        let mut rows = sources(stars, 10, 100 + n as u64);
        for row in &mut rows {
            row.parent = Some(stars[0].id);
        }
        let now = table(&catalog, "Source").await;
        let before = now.orphan_rows();
        append(&mut of_sources, &now, &rows, 2).await;
        assert_eq!(table(&catalog, "Source").await.orphan_rows(), before);
    }
    let stars = sky.rows("Star").await;
    let sources = sky.rows("Source").await;
    for source in &sources {
        let home = stars
            .iter()
            .find(|star| star.int("id") == source.int("parent"));
        if let Some(star) = home {
            assert_eq!(
                (source.chunk, source.sub_chunk),
                (star.chunk, star.sub_chunk)
            );
        }
    }
    assert_eq!(sky.check().await, Vec::<String>::new());
}
