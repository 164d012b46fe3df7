//! Where rows go, against models that look at every row by itself.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use common::{
    Dice, OVERLAP, Row, STRIPES, SUB_STRIPES, Sky, StoredRow, load, load_error, stars, write_csv,
    write_parquet,
};
use meridian_ingest::LoadRequest;
use sky::{Angle, Chunker, Location, LonLat};
use store::{DirectorIndex, LoadDir, PartManifest};

fn chunker() -> Chunker {
    Chunker::new(STRIPES, SUB_STRIPES).unwrap()
}

fn locate(row: &Row) -> Location {
    chunker().locate(LonLat::from_degrees(row.ra.unwrap(), row.dec.unwrap()).unwrap())
}

fn place_of(stored: &StoredRow) -> Location {
    Location {
        chunk: stored.chunk,
        sub_chunk: stored.sub_chunk,
    }
}

/// The rows of a director, in the order in which they must lie.
fn director_model(rows: &[Row]) -> Vec<(Location, Row)> {
    let mut placed: Vec<(Location, Row)> =
        rows.iter().map(|row| (locate(row), row.clone())).collect();
    placed.sort_by_key(|(l, row)| (l.chunk, l.sub_chunk, row.id));
    placed
}

fn placed(rows: &[StoredRow]) -> Vec<(Location, Row)> {
    rows.iter()
        .map(|stored| (place_of(stored), stored.row()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_director_is_the_same_from_any_file_and_with_any_budget() {
    let rows = stars(4000, 1);
    let expected = director_model(&rows);
    let sky = Sky::new();
    let half = rows.len() / 3;
    let files = [
        write_csv(&sky.file("a.csv"), &rows[..half]),
        write_parquet(&sky.file("b.parquet"), &common::batch(&rows[half..]), 500),
    ];
    for (table, memory) in [("Roomy", 1 << 30), ("Tiny", 1)] {
        let mut request = sky.director(table, &files);
        request.memory = Some(memory);
        let report = load(request).await.unwrap();
        assert_eq!(
            (report.rows_read, report.rows_loaded, report.rows_rejected),
            (4000, 4000, 0)
        );
        assert_eq!(report.spilled_parts > 0, memory == 1, "{report}");
        assert_eq!(placed(&sky.rows(table).await), expected, "{table}");
        let table = sky.table(table).await;
        assert_eq!(table.rows(), 4000);
        let dir = LoadDir::open(&sky.data(), "sky", &table.spec.name, table.placement).unwrap();
        assert!(!dir.path().join("spill").exists());
    }
    assert_eq!(sky.check().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn overlaps_hold_every_row_near_a_chunk_once() {
    let rows = stars(3000, 2);
    let sky = Sky::new();
    let file = write_parquet(&sky.file("a.parquet"), &common::batch(&rows), 700);
    load(sky.director("Star", &[file])).await.unwrap();
    let (chunker, own): (Chunker, BTreeSet<_>) =
        (chunker(), rows.iter().map(|r| locate(r).chunk).collect());
    let mut expected = BTreeSet::new();
    for row in &rows {
        let position = LonLat::from_degrees(row.ra.unwrap(), row.dec.unwrap()).unwrap();
        for chunk in own.iter().filter(|chunk| **chunk != locate(row).chunk) {
            let distance = chunker.chunk_box(*chunk).unwrap().separation(position);
            if distance <= Angle::from_degrees(OVERLAP) {
                expected.insert((*chunk, row.id));
            }
        }
    }
    let stored = sky.overlap("Star").await;
    let found: BTreeSet<_> = stored
        .iter()
        .map(|s| (s.chunk, s.int("id").unwrap()))
        .collect();
    assert_eq!(found.len(), stored.len(), "each once");
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
}

/// Children of stars: some of no star, some without key, some without position.
fn spots(stars: &[Row], count: i64, first_orphan: i64, seed: u64) -> Vec<Row> {
    let mut dice = Dice::new(seed);
    let one = |id| {
        let parent = match dice.below(10) {
            0 => None,
            1 => Some(first_orphan + dice.below(20) as i64),
            _ => Some(stars[dice.below(stars.len() as u64) as usize].id),
        };
        let position = (dice.below(8) != 0).then(|| dice.position());
        Row {
            id,
            parent,
            ra: position.map(|p| p.0),
            dec: position.map(|p| p.1),
            name: None,
        }
    };
    let mut rows: Vec<Row> = (0..count).map(one).collect();
    rows.reverse();
    rows
}

/// Where the rows of a child must be; `taken` are orphan keys that a sibling has placed.
fn child_model(
    stars: &[Row],
    spots: &[Row],
    taken: &HashMap<i64, Location>,
) -> BTreeMap<i64, Location> {
    let director: HashMap<i64, Location> =
        stars.iter().map(|star| (star.id, locate(star))).collect();
    let smallest = director.values().map(|l| l.chunk).min().unwrap();
    let default_location = Location {
        chunk: smallest,
        sub_chunk: chunker().sub_chunks_of(smallest)[0],
    };
    let by_position = |row: &Row| row.ra.map_or(default_location, |_| locate(row));
    let mut first: HashMap<i64, &Row> = HashMap::new();
    for row in spots.iter().filter(|row| row.parent.is_some()) {
        let entry = first.entry(row.parent.unwrap()).or_insert(row);
        if row.id < entry.id {
            *entry = row;
        }
    }
    let place = |row: &Row| match row.parent {
        None => by_position(row),
        Some(key) => match director.get(&key).or(taken.get(&key)) {
            Some(place) => *place,
            None => by_position(first[&key]),
        },
    };
    spots.iter().map(|row| (row.id, place(row))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn children_follow_their_director_and_orphans_stay_together() {
    let stars = stars(500, 3);
    let sky = Sky::new();
    let file = write_parquet(&sky.file("stars.parquet"), &common::batch(&stars), 100);
    load(sky.director("Star", &[file])).await.unwrap();
    let mut taken = HashMap::new();
    // The second child shares orphan keys with the first and has further ones of its own.
    for (table, first_orphan, seed) in [("Spot", 1_000_000, 4), ("Blink", 1_000_010, 5)] {
        let spots = spots(&stars, 3000, first_orphan, seed);
        let expected = child_model(&stars, &spots, &taken);
        let file = write_csv(&sky.file("spots.csv"), &spots);
        let mut request = sky.child(table, "Star", &[file]);
        request.memory = Some(if table == "Spot" { 1 } else { 1 << 30 });
        let report = load(request).await.unwrap();
        let stored = sky.rows(table).await;
        let found: BTreeMap<i64, Location> = stored
            .iter()
            .map(|s| (s.int("id").unwrap(), place_of(s)))
            .collect();
        assert_eq!(found, expected, "{table}");
        let order: Vec<_> = stored
            .iter()
            .map(|s| (s.chunk, s.sub_chunk, s.int("parent"), s.int("id")))
            .collect();
        assert!(order.is_sorted());
        let orphans: Vec<&Row> = spots
            .iter()
            .filter(|r| r.parent.is_some_and(|k| k >= 1_000_000))
            .collect();
        assert_eq!(report.counts.orphan_rows, orphans.len() as u64);
        assert_eq!(
            report.counts.null_keys,
            spots.iter().filter(|r| r.parent.is_none()).count() as u64
        );
        let keys: BTreeSet<i64> = orphans.iter().filter_map(|r| r.parent).collect();
        assert_eq!(report.counts.orphan_keys, keys.len() as u64);
        let stored = sky.table(table).await;
        assert_eq!(
            (stored.orphan_rows(), stored.null_keys()),
            (report.counts.orphan_rows, report.counts.null_keys)
        );
        taken.extend(orphans.iter().map(|r| (r.parent.unwrap(), expected[&r.id])));
        let load = sky.table(table).await.placement;
        let dir = LoadDir::open(&sky.data(), "sky", table, load).unwrap();
        let index = DirectorIndex::open(&dir.index_dir()).unwrap();
        assert_eq!(index.len(), keys.len() as u64);
        for key in keys {
            let entry = index.get(key).unwrap().unwrap();
            assert!(entry.orphan && entry.location == taken[&key]);
        }
    }
    assert_eq!(sky.check().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pair_has_one_left_and_one_right_home() {
    let sky = Sky::new();
    let left = stars(400, 6);
    // The right catalogue: the left one's stars, a little moved, with other keys; some are missing.
    let mut dice = Dice::new(7);
    let right: Vec<Row> = (left.iter().filter(|star| star.id % 5 != 0))
        .map(|star| Row {
            id: 1_000_000 + star.id,
            ra: star.ra.map(|ra| (ra + dice.unit() * 0.2).rem_euclid(360.0)),
            dec: star
                .dec
                .map(|dec| (dec + dice.unit() * 0.4 - 0.2).clamp(-90.0, 90.0)),
            ..star.clone()
        })
        .collect();
    for (table, rows) in [("L", &left), ("R", &right)] {
        let file = write_parquet(&sky.file(table), &common::batch(rows), 1000);
        load(sky.director(table, &[file])).await.unwrap();
    }
    // Pairs of a star with itself; keys that no director has; NULL; and one pair across the sky.
    let mut pairs: Vec<(Option<i64>, Option<i64>)> = left
        .iter()
        .map(|star| (Some(star.id), Some(1_000_000 + star.id)))
        .collect();
    pairs.extend([
        (Some(-99), Some(right[3].id)),
        (Some(-98), Some(-97)),
        (None, Some(right[5].id)),
        (None, None),
    ]);
    let far = (
        Some(left[0].id),
        right
            .iter()
            .find(|r| (r.dec.unwrap() - left[0].dec.unwrap()).abs() > 60.0)
            .map(|r| r.id),
    );
    pairs.push(far);
    let batch = RecordBatch::try_from_iter_with_nullable([
        (
            "l",
            Arc::new(pairs.iter().map(|p| p.0).collect::<Int64Array>()) as ArrayRef,
            true,
        ),
        (
            "r",
            Arc::new(pairs.iter().map(|p| p.1).collect::<Int64Array>()),
            true,
        ),
        (
            "n",
            Arc::new((0..pairs.len() as i32).collect::<Int32Array>()),
            false,
        ),
    ])
    .unwrap();
    let mut request = sky.request("Pair", &[write_parquet(&sky.file("pairs"), &batch, 100)]);
    request.key = vec!["l".to_owned(), "r".to_owned()];
    request.directors = vec!["L".to_owned(), "R".to_owned()];
    assert!(
        load_error(request.clone())
            .await
            .contains("wider than the overlap")
    );
    request.max_errors = 1;
    let report = load(request).await.unwrap();
    assert_eq!(report.rows_loaded, pairs.len() as u64 - 1);
    assert_eq!(sky.table("Pair").await.rows(), pairs.len() as u64 - 1);
    check_homes(
        &sky.rows("Pair").await,
        &pairs[..pairs.len() - 1],
        &left,
        &right,
    );
    assert_eq!(sky.check().await, Vec::<String>::new());
}

fn check_homes(
    stored: &[StoredRow],
    pairs: &[(Option<i64>, Option<i64>)],
    left: &[Row],
    right: &[Row],
) {
    let places = |rows: &[Row]| -> HashMap<i64, Location> {
        rows.iter().map(|r| (r.id, locate(r))).collect()
    };
    let default_location = |places: &HashMap<i64, Location>| {
        let chunk = places.values().map(|l| l.chunk).min().unwrap();
        let sub_chunk = chunker().sub_chunks_of(chunk)[0];
        Location { chunk, sub_chunk }
    };
    let (left, right) = (places(left), places(right));
    let mut expected = Vec::new();
    for (number, (l, r)) in pairs.iter().enumerate() {
        let l_place = l.and_then(|key| left.get(&key));
        let r_place = r.and_then(|key| right.get(&key));
        let l_home = l_place
            .or(r_place)
            .copied()
            .unwrap_or_else(|| default_location(&left));
        let r_home = r_place
            .or(l_place)
            .copied()
            .unwrap_or_else(|| default_location(&right));
        let number = number as i64;
        if l_home.chunk == r_home.chunk {
            expected.push((
                l_home.chunk,
                number,
                i64::from(l_home.sub_chunk.0),
                i64::from(r_home.sub_chunk.0),
            ));
        } else {
            expected.push((l_home.chunk, number, i64::from(l_home.sub_chunk.0), -1));
            expected.push((r_home.chunk, number, -1, i64::from(r_home.sub_chunk.0)));
        }
    }
    expected.sort();
    assert!(expected.len() > pairs.len(), "some pairs must cross chunks");
    let home = |s: &StoredRow, column| s.int(column).unwrap();
    let mut found: Vec<_> = stored
        .iter()
        .map(|s| {
            (
                s.chunk,
                home(s, "n"),
                home(s, "__left_sub_chunk"),
                home(s, "__right_sub_chunk"),
            )
        })
        .collect();
    found.sort();
    assert_eq!(found, expected);
    for s in stored {
        let (l, r) = (home(s, "__left_sub_chunk"), home(s, "__right_sub_chunk"));
        assert_eq!(i64::from(s.sub_chunk.0), if l >= 0 { l } else { r });
    }
    let order: Vec<_> = stored
        .iter()
        .map(|s| (s.chunk, s.sub_chunk, s.int("l")))
        .collect();
    assert!(order.is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_over_chunks_are_rejected_and_the_first_of_the_input_stays() {
    let mut rows = stars(300, 8);
    let twins: Vec<Row> = (0..5)
        .map(|i| Row {
            ra: rows[i + 50].ra,
            dec: rows[i + 50].dec,
            ..rows[i].clone()
        })
        .collect();
    let sky = Sky::new();
    let first = write_csv(&sky.file("a.csv"), &rows);
    let second = write_csv(&sky.file("b.csv"), &twins);
    let request = sky.director("Star", &[first, second]);
    let sentence = load_error(request.clone()).await;
    assert!(
        sentence.contains("unique") && sentence.contains("b.csv:2") && sentence.contains("a.csv:2"),
        "{sentence}"
    );
    let report = load(LoadRequest {
        max_errors: 5,
        ..request
    })
    .await
    .unwrap();
    assert_eq!((report.counts.duplicate_keys, report.rows_loaded), (5, 300));
    rows.sort_by_key(|row| row.id);
    let mut found: Vec<Row> = sky.rows("Star").await.iter().map(StoredRow::row).collect();
    found.sort_by_key(|row| row.id);
    for (found, row) in found.iter().zip(&rows) {
        assert_eq!((found.id, found.ra, found.dec), (row.id, row.ra, row.dec));
    }
    assert_eq!(sky.check().await, Vec::<String>::new());
}

/// A pair was judged by the chunks of its ends alone, so that one of two rows of neighbouring chunks passed however wide it was, and
/// pairs were of directors only.
#[tokio::test(flavor = "multi_thread")]
async fn pairs_of_children_live_where_their_rows_do_and_are_as_wide_as_these_are_apart() {
    let sky = Sky::new();
    let stars = stars(300, 11);
    let file = write_parquet(&sky.file("stars"), &common::batch(&stars), 1000);
    load(sky.director("Star", &[file])).await.unwrap();
    // Two spots of each star, the second 0.1 degrees to the north; of every tenth star it is 0.6 degrees away, and has the same chunk.
    let spot = |star: &Row, id: i64, north: f64| Row {
        id,
        parent: Some(star.id),
        ra: star.ra,
        dec: star
            .dec
            .map(|dec| if dec > 0.0 { dec - north } else { dec + north }),
        name: None,
    };
    let is_wide = |number: usize| number % 10 == 3;
    let mut spots = Vec::new();
    for (number, star) in stars.iter().enumerate() {
        let north = if is_wide(number) { 0.6 } else { 0.1 };
        spots.push(spot(star, 10_000 + number as i64, 0.0));
        spots.push(spot(star, 20_000 + number as i64, north));
    }
    let file = write_parquet(&sky.file("spots"), &common::batch(&spots), 1000);
    load(sky.child("Spot", "Star", &[file])).await.unwrap();

    let pairs: Vec<(i64, i64)> = (0..300).map(|n| (20_000 + n, 10_000 + n)).collect();
    let columns: [(&str, ArrayRef); 2] = [
        (
            "l",
            Arc::new(pairs.iter().map(|p| p.0).collect::<Int64Array>()),
        ),
        (
            "r",
            Arc::new(pairs.iter().map(|p| p.1).collect::<Int64Array>()),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = write_parquet(&sky.file("pairs"), &batch, 100);
    let mut request = sky.request("Pair", &[file]);
    request.key = vec!["l".to_owned(), "r".to_owned()];
    request.directors = vec!["Spot".to_owned(), "Spot".to_owned()];
    let error = load_error(request.clone()).await;
    assert!(
        error.contains("its ends are 0.600000° apart, and the overlap of the database is 0.5°"),
        "{error}"
    );
    request.max_errors = 30;
    let report = load(request).await.unwrap();
    assert_eq!((report.rows_loaded, report.rows_rejected), (270, 30));
    let table = sky.table("Pair").await;
    let spot_placement = Some(sky.table("Spot").await.placement);
    let placed_by = table.spec.directors.iter().map(|d| d.placement);
    assert!(placed_by.eq([spot_placement, spot_placement]));
    // Both ends are where the star is, as one row.
    let mut found: Vec<_> = (sky.rows("Pair").await.iter())
        .map(|s| {
            (
                s.int("r").unwrap(),
                place_of(s),
                s.int("__left_sub_chunk"),
                s.int("__right_sub_chunk"),
            )
        })
        .collect();
    found.sort();
    let kept = stars
        .iter()
        .enumerate()
        .filter(|(number, _)| !is_wide(*number));
    let mut expected: Vec<_> = kept
        .map(|(number, star)| {
            let place = locate(star);
            let home = Some(i64::from(place.sub_chunk.0));
            (10_000 + number as i64, place, home, home)
        })
        .collect();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(sky.check().await, Vec::<String>::new());
}

/// Appends rows to a director; gives the notes of the report.
async fn append(sky: &Sky, table: &str, rows: &[Row]) -> String {
    let mut request = sky.director(table, &[write_csv(&sky.file("more.csv"), rows)]);
    request.append = true;
    request.stripes = None;
    request.sub_stripes = None;
    request.overlap_deg = None;
    load(request).await.unwrap().notes.join("; ")
}

/// Whether a table is taken for placed by each of its directors.
async fn placed_by(sky: &Sky, table: &str) -> Vec<bool> {
    let directors = sky.table(table).await.spec.directors;
    directors.iter().map(|it| it.placement.is_some()).collect()
}

/// Pairs that lacked left ends alone were no more taken for placed by their right ends once the table of these had more rows.
#[tokio::test(flavor = "multi_thread")]
async fn pairs_are_settled_by_the_end_that_they_lack() {
    let sky = Sky::new();
    let stars = stars(60, 21);
    for table in ["Star", "Ref"] {
        let file = write_csv(&sky.file("first.csv"), &stars[..40]);
        load(sky.director(table, &[file])).await.unwrap();
    }
    let (first, second) = (stars[0].id, stars[1].id);
    let pairs = format!("star,ref\n{first},{first}\n999999,{second}\n");
    std::fs::write(sky.file("pairs.csv"), pairs).unwrap();
    let mut request = sky.request("Pair", &[sky.file("pairs.csv")]);
    request.key = vec!["star".to_owned(), "ref".to_owned()];
    request.directors = vec!["Star".to_owned(), "Ref".to_owned()];
    load(request).await.unwrap();
    let part = sky.table("Pair").await.placement;
    let dir = LoadDir::open(&sky.data(), "sky", "Pair", part).unwrap();
    let manifest = PartManifest::read(dir.path()).unwrap();
    assert_eq!(manifest.unknown_ends, Some([1, 0]));
    let note = "Pair has pairs with keys that the director did not have";
    assert!(!append(&sky, "Ref", &stars[40..50]).await.contains(note));
    assert_eq!(placed_by(&sky, "Pair").await, [true, true]);
    assert!(append(&sky, "Star", &stars[40..50]).await.contains(note));
    assert_eq!(placed_by(&sky, "Pair").await, [false, true]);
    // A part of an older version does not say which end it is.
    let older = manifest.with_unknown_ends(None);
    older.write(dir.path()).unwrap();
    assert!(append(&sky, "Ref", &stars[50..]).await.contains(note));
    assert_eq!(placed_by(&sky, "Pair").await, [false, false]);
}

/// Where one own key is in two places, a pair of it has the first as its home, and is not taken for placed by the child.
#[tokio::test(flavor = "multi_thread")]
async fn pairs_of_a_child_with_one_key_in_two_places_are_not_placed_by_it() {
    let sky = Sky::new();
    let stars = stars(50, 12);
    let file = write_parquet(&sky.file("stars"), &common::batch(&stars), 1000);
    load(sky.director("Star", &[file])).await.unwrap();
    let spot = |id: i64, star: &Row| Row {
        id,
        parent: Some(star.id),
        ..star.clone()
    };
    let far = stars
        .iter()
        .find(|star| locate(star).chunk != locate(&stars[0]).chunk);
    let spots = [
        spot(1, &stars[0]),
        spot(2, &stars[1]),
        spot(1, far.unwrap()),
    ];
    let file = write_parquet(&sky.file("spots"), &common::batch(&spots), 1000);
    load(sky.child("Spot", "Star", &[file])).await.unwrap();
    let columns: [(&str, ArrayRef); 2] = [
        ("star", Arc::new(Int64Array::from(vec![stars[1].id]))),
        ("spot", Arc::new(Int64Array::from(vec![2]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut request = sky.request("Pair", &[write_parquet(&sky.file("pairs"), &batch, 100)]);
    request.key = vec!["star".to_owned(), "spot".to_owned()];
    request.directors = vec!["Star".to_owned(), "Spot".to_owned()];
    load(request.clone()).await.unwrap();
    let spec = sky.table("Pair").await.spec;
    assert!(spec.directors[0].placement.is_some());
    assert_eq!(spec.directors[1].placement, None);
    // What cannot be an end of a pair.
    (request.table, request.directors) = (
        "Other".to_owned(),
        vec!["Star".to_owned(), "Pair".to_owned()],
    );
    let error = load_error(request).await;
    assert!(
        error.contains("--director of a match table must name directors, or children of them"),
        "{error}"
    );
}
