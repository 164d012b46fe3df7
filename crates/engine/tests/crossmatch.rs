//! `nearest(...)` and `crossmatch(...)`, as SQL requests them and as an operator, against loops over all pairs.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]
#![allow(
    clippy::float_cmp,
    reason = "separations are to be the same to the last bit"
)]

mod match_sky;
mod small_sky;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use insta::assert_snapshot;
use match_sky::{MatchSky, Place, Row, separation};
use small_sky::SmallSky;

/// How a crossmatch finds its pairs, written as the words say.
#[derive(Clone, Copy, Debug)]
enum Find {
    Best,
    Best1,
    Best2,
    All,
}

impl Find {
    const ALL: [(Self, &str); 4] = [
        (Self::Best, "best"),
        (Self::Best1, "best1"),
        (Self::Best2, "best2"),
        (Self::All, "all"),
    ];
}

/// For each row of one side the separation of its nearest on the other, if any is within the radius.
fn nearest_of(rows: &[Row], others: &[Row], radius: f64) -> Vec<Option<f64>> {
    let of = |row: &Row| {
        let all = others.iter().filter_map(|other| separation(row, other));
        all.filter(|s| *s <= radius).min_by(f64::total_cmp)
    };
    rows.iter().map(of).collect()
}

/// The pairs by a loop over all of them, as keys; where only one of several that are equally near is kept, all of these.
fn expected(left: &[Row], right: &[Row], radius: f64, find: Find) -> Vec<(i64, i64)> {
    let of_left = nearest_of(left, right, radius);
    let of_right = nearest_of(right, left, radius);
    let mut pairs = Vec::new();
    for (l, left_best) in left.iter().zip(&of_left) {
        for (r, right_best) in right.iter().zip(&of_right) {
            let Some(s) = separation(l, r).filter(|s| *s <= radius) else {
                continue;
            };
            let (best1, best2) = (Some(s) == *left_best, Some(s) == *right_best);
            let kept = match find {
                Find::All => true,
                Find::Best => best1 && best2,
                Find::Best1 => best1,
                Find::Best2 => best2,
            };
            if kept {
                pairs.push((l.id, r.id));
            }
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Whether the pairs are those expected, one for each key of `end` where only one is kept.
fn check(found: &[(i64, i64)], expected: &[(i64, i64)], find: Find, told: &str) {
    let end = match find {
        Find::Best | Find::All => {
            assert_eq!(found, expected, "{told}");
            return;
        }
        Find::Best1 => |pair: &(i64, i64)| pair.0,
        Find::Best2 => |pair: &(i64, i64)| pair.1,
    };
    let ends = |pairs: &[(i64, i64)]| {
        let mut ends: Vec<i64> = pairs.iter().map(end).collect();
        ends.sort_unstable();
        ends
    };
    let mut wanted = ends(expected);
    wanted.dedup();
    assert_eq!(ends(found), wanted, "{told}");
    let missed = found.iter().find(|pair| !expected.contains(pair));
    assert_eq!(missed, None, "{told}");
}

/// Zero, a clump's inner distances, about a chunk, a good part of the sky, all of it; arcseconds.
const RADII: [f64; 6] = [0.0, 7.0, 300.0, 2000.0, 50_000.0, 648_000.0];

/// Tables of every kind, of two databases that are cut otherwise.
const TABLES: [(&str, &str); 9] = [
    ("Object", "Object"),
    ("Object", "Source"),
    ("Source", "Object"),
    ("Object", "other.Star"),
    ("other.Star", "Source"),
    ("Target", "Object"),
    ("Object", "Target"),
    ("Target", "Target"),
    ("other.Star", "Target"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_find_between_tables_of_every_kind() {
    let sky = MatchSky::shared().await;
    for (number, (left, right)) in TABLES.into_iter().enumerate() {
        // The widest ones have pairs by the hundred thousand: between some of the tables.
        let radii = if number % 4 == 1 {
            &RADII[..]
        } else {
            &RADII[..3]
        };
        for arcsec in radii {
            for (find, word) in Find::ALL {
                let sql = format!(
                    "SELECT id_1, id_2 FROM crossmatch({left}, {right}, {arcsec:?}, '{word}')"
                );
                let (left, right) = (sky.rows_of(left), sky.rows_of(right));
                let wanted = expected(left, right, arcsec / 3600.0, find);
                check(&sky.pairs(&sql).await, &wanted, find, &sql);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_is_what_is_meant_if_nothing_is_said() {
    let sky = MatchSky::shared().await;
    let wanted = expected(&sky.objects, &sky.sources, 300.0 / 3600.0, Find::Best);
    for sql in [
        "SELECT id_1, id_2 FROM crossmatch(Object, Source, 300)",
        "SELECT m.id_1, m.id_2 FROM CrossMatch(sky.OBJECT, \"source\", 5 * 60) AS m",
        "SELECT crossmatch.id_1, id_2 FROM crossmatch(right => Source, radius => 300.0, left => Object)",
        "SELECT id_1, id_2 FROM crossmatch((SELECT * FROM Object), (SELECT id, decl, ra FROM Source), 300, 'BEST', '1and2')",
    ] {
        assert_eq!(sky.pairs(sql).await, wanted, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_match_are_kept_or_given_alone() {
    let sky = MatchSky::shared().await;
    for (left, right) in TABLES {
        for (find, word) in [
            (Find::Best, "best"),
            (Find::Best1, "best1"),
            (Find::All, "all"),
        ] {
            let (left_rows, right_rows) = (sky.rows_of(left), sky.rows_of(right));
            let mut wanted = expected(left_rows, right_rows, 60.0 / 3600.0, find);
            let matched = |row: &&Row| !wanted.iter().any(|(l, _)| *l == row.id);
            let alone: Vec<i64> = left_rows.iter().filter(matched).map(|row| row.id).collect();

            let sql = format!("SELECT id FROM crossmatch({left}, {right}, 60, '{word}', '1not2')");
            let mut sorted = alone.clone();
            sorted.sort_unstable();
            assert_eq!(sky.keys(&sql).await, sorted, "{sql}");

            let sql =
                format!("SELECT id_1, id_2 FROM crossmatch({left}, {right}, 60, '{word}', 'all1')");
            let found = sky.pairs(&sql).await;
            wanted.extend(alone.iter().map(|id| (*id, MatchSky::NULL)));
            wanted.sort_unstable();
            check(&found, &wanted, find, &sql);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_few_of_each_row() {
    let sky = MatchSky::shared().await;
    for (left, right) in TABLES {
        for (k, arcsec) in [(1, 300.0), (3, 300.0), (7, 5000.0), (2, 648_000.0)] {
            let sql = format!(
                "SELECT id_1, id_2, separation FROM nearest({left}, {right}, {arcsec:?}, {k})"
            );
            let (left, right) = (sky.rows_of(left), sky.rows_of(right));
            let found = sky.separations(&sql).await;
            for l in left {
                let of = |r: &Row| Some((r.id, separation(l, r)?));
                let within: Vec<(i64, f64)> = (right.iter().filter_map(of))
                    .filter(|(_, s)| *s <= arcsec / 3600.0)
                    .collect();
                let mut wanted: Vec<f64> = within.iter().map(|(_, s)| s * 3600.0).collect();
                wanted.sort_by(f64::total_cmp);
                wanted.truncate(k);
                let of_row: Vec<&(i64, i64, f64)> = found.iter().filter(|f| f.0 == l.id).collect();
                let separations: Vec<f64> = of_row.iter().map(|f| f.2).collect();
                assert_eq!(separations, wanted, "{sql}: {l:?}");
                let mut partners: Vec<i64> = of_row.iter().map(|f| f.1).collect();
                for (_, r, s) in &of_row {
                    let pair = within.iter().find(|(id, _)| id == r).unwrap();
                    assert_eq!(pair.1 * 3600.0, *s, "{sql}: {l:?}");
                }
                partners.sort_unstable();
                partners.dedup();
                assert_eq!(partners.len(), of_row.len(), "{sql}: {l:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_equally_near_rows_is_always_the_same() {
    let sky = MatchSky::shared().await;
    // Most partners of a table with itself at radius 0 are duplicates of a row.
    let sql = "SELECT id_1, id_2 FROM nearest(Object, Source, 2000)";
    let whole = sky.pairs(sql).await;
    for condition in [
        "id_1 < 400",
        "scisql_s2PtInCircle(ra_1, decl_1, 0, 0, 0.4) = 1",
        "id_1 % 7 = 3",
    ] {
        let some = sky.pairs(&format!("{sql} WHERE {condition}")).await;
        assert!(!some.is_empty(), "{condition}");
        let other = some.iter().find(|pair| !whole.contains(pair));
        assert_eq!(other, None, "{condition}");
    }
}

/// The trap: a condition on the right side is one on the rows that come out. Tested below, it would change who is nearest.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_choose_among_the_matches_and_not_who_is_matched() {
    let sky = MatchSky::shared().await;
    let radius = 2000.0 / 3600.0;
    for (find, word) in [(Find::Best, "best"), (Find::Best1, "best1")] {
        let all = expected(&sky.objects, &sky.sources, radius, find);
        type Condition = fn(&Row, &Row) -> bool;
        let conditions: [(&str, Condition); 5] = [
            ("id_2 % 3 = 0", |_, r| r.id % 3 == 0),
            ("id_1 % 3 = 0", |l, _| l.id % 3 == 0),
            ("id_1 % 2 = 0 AND id_2 % 2 = 1", |l, r| {
                l.id % 2 == 0 && r.id % 2 == 1
            }),
            ("id_1 + id_2 > 10500", |l, r| l.id + r.id > 10_500),
            (
                "scisql_s2PtInCircle(ra_1, decl_1, 0, 0, 0.3) = 1",
                |l, _| {
                    l.place
                        .is_some_and(|place| place.degrees_to(0.0, 0.0) <= 0.3)
                },
            ),
        ];
        for (condition, holds) in conditions {
            let sql = format!(
                "SELECT id_1, id_2 FROM crossmatch(Object, Source, 2000, '{word}') WHERE {condition}"
            );
            let left = |id: i64| sky.objects.iter().find(|row| row.id == id).unwrap();
            let right = |id: i64| sky.sources.iter().find(|row| row.id == id).unwrap();
            let wanted: Vec<(i64, i64)> = (all.iter().copied())
                .filter(|(l, r)| holds(left(*l), right(*r)))
                .collect();
            let found = sky.pairs(&sql).await;
            assert!(wanted.len() > 3, "{sql}");
            match find {
                Find::Best => assert_eq!(found, wanted, "{sql}"),
                _ => {
                    let all = format!(
                        "SELECT id_1, id_2 FROM crossmatch(Object, Source, 2000, '{word}')"
                    );
                    let all = sky.pairs(&all).await.into_iter();
                    let wanted: Vec<_> = all.filter(|(l, r)| holds(left(*l), right(*r))).collect();
                    assert_eq!(found, wanted, "{sql}");
                }
            }
        }
    }
}

/// A condition without columns was put on all inputs of the match, and rows were matched to what was left of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_the_matches_is_one_of_the_matches() {
    let sky = MatchSky::shared().await;
    let best = expected(&sky.objects, &sky.sources, 2000.0 / 3600.0, Find::Best);
    for _ in 0..3 {
        let found = sky
            .pairs("SELECT id_1, id_2 FROM crossmatch(Object, Source, 2000) WHERE random() < 0.5")
            .await;
        assert_eq!(found.iter().find(|pair| !best.contains(pair)), None);
        assert!(found.len() < best.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sides_that_are_queries() {
    let sky = MatchSky::shared().await;
    let radius = 300.0 / 3600.0;
    let some = |rows: &[Row], keep: fn(&Row) -> bool| -> Vec<Row> {
        rows.iter().filter(|row| keep(row)).copied().collect()
    };
    let even = some(&sky.objects, |row| row.id % 2 == 0);
    let odd = some(&sky.sources, |row| row.id % 2 == 1);
    for (left, right) in [
        // Rows of a table; rows that are put together from all over; rows that no scan gives.
        (
            "(SELECT * FROM Object WHERE id % 2 = 0)",
            "(SELECT id, ra AS raj2000, decl AS dej2000 FROM Source WHERE id % 2 = 1)",
        ),
        (
            "(SELECT id, min(ra) AS ra, max(decl) AS dec FROM Object WHERE id % 2 = 0 GROUP BY id)",
            "(SELECT * FROM Source WHERE id % 2 = 1)",
        ),
        (
            "(SELECT * FROM Object WHERE id % 2 = 0)",
            "(SELECT s.id, s.ra, s.decl FROM Source s JOIN Target t ON s.id % 2 = t.id - t.id + 1 AND t.id = 40000)",
        ),
        (
            "(SELECT * FROM Object WHERE id % 2 = 0 ORDER BY id LIMIT 100000)",
            "(SELECT id, ra + 0 AS ra, decl AS dec FROM Source WHERE id % 2 = 1)",
        ),
        (
            "(SELECT id, ra + 0 AS ra, decl AS dec FROM Object WHERE id % 2 = 0)",
            "(SELECT * FROM Source WHERE id % 2 = 1)",
        ),
    ] {
        for (find, word) in Find::ALL {
            let sql = format!("SELECT id_1, id_2 FROM crossmatch({left}, {right}, 300, '{word}')");
            let wanted = expected(&even, &odd, radius, find);
            check(&sky.pairs(&sql).await, &wanted, find, &sql);
        }
        let both = expected(&even, &odd, radius, Find::Best);
        let sql = format!(
            "SELECT id_1, id_2 FROM crossmatch({left}, {right}, 300) WHERE id_1 % 4 = 0 AND id_2 % 3 = 0"
        );
        let both = both.into_iter();
        let wanted: Vec<_> = both.filter(|(l, r)| l % 4 == 0 && r % 3 == 0).collect();
        assert_eq!(sky.pairs(&sql).await, wanted, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_around_a_crossmatch() {
    let sky = MatchSky::shared().await;
    let best = expected(&sky.objects, &sky.sources, 300.0 / 3600.0, Find::Best);
    let count = sky
        .keys("SELECT count(*) FROM crossmatch(Object, Source, 300)")
        .await;
    assert_eq!(count, [best.len() as i64]);

    let sql =
        "SELECT m.id_1, count(*) FROM crossmatch(Object, Source, 300, 'all') m GROUP BY m.id_1";
    let all = expected(&sky.objects, &sky.sources, 300.0 / 3600.0, Find::All);
    let mut counts = std::collections::BTreeMap::new();
    all.iter()
        .for_each(|(l, _)| *counts.entry(*l).or_insert(0) += 1);
    assert_eq!(sky.pairs(sql).await, counts.into_iter().collect::<Vec<_>>());

    // Joined to the children of the left end, and to a match of the match.
    let sql = "SELECT m.id_1, s.id FROM crossmatch(Object, other.Star, 300) m JOIN Source s ON s.objectId = m.id_1";
    let stars = expected(&sky.objects, &sky.stars, 300.0 / 3600.0, Find::Best);
    let mut wanted = Vec::new();
    for (l, _) in &stars {
        let children = sky.sources.iter().filter(|s| s.object == *l);
        wanted.extend(children.map(|s| (*l, s.id)));
    }
    wanted.sort_unstable();
    assert!(!wanted.is_empty());
    assert_eq!(sky.pairs(sql).await, wanted);

    let sql = "SELECT id_1, count(*) FROM (
                 SELECT id_1 FROM crossmatch(crossmatch(Object, Source, 300), other.Star, 300,
                   left_ra => ra_1, left_dec => decl_1)) t GROUP BY id_1";
    let inner: Vec<Row> = (best.iter())
        .map(|(l, _)| *sky.objects.iter().find(|row| row.id == *l).unwrap())
        .collect();
    let outer = expected(&inner, &sky.stars, 300.0 / 3600.0, Find::Best);
    let mut counts = std::collections::BTreeMap::new();
    outer
        .iter()
        .for_each(|(l, _)| *counts.entry(*l).or_insert(0) += 1);
    assert_eq!(sky.pairs(sql).await, counts.into_iter().collect::<Vec<_>>());

    let limited = sky
        .pairs("SELECT id_1, id_2 FROM crossmatch(Object, Source, 300) LIMIT 5")
        .await;
    assert_eq!(limited.len(), 5);
    assert!(limited.iter().all(|pair| best.contains(pair)));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_have_the_declared_names_and_a_number_where_both_have_them() {
    let sky = MatchSky::shared().await;
    let headings = |sql: &'static str| async move {
        let answer = sky.session.execute(sql).await.unwrap();
        let names: Vec<String> = answer
            .schema
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        names.join(" ")
    };
    assert_eq!(
        headings("SELECT * FROM crossmatch(Object, Target, 1)").await,
        "id_1 ra_1 decl_1 objectId_1 id_2 ra_2 decl_2 objectId_2 separation"
    );
    assert_eq!(
        headings("SELECT * FROM nearest(Object, (SELECT id AS Name, ra AS RA_icrs, decl AS de_icrs FROM Target), 1)").await,
        "id ra decl objectId Name RA_icrs de_icrs separation"
    );
    assert_eq!(
        headings("SELECT * FROM crossmatch(Object, Target, 1, 'best', '1not2') WHERE objectid > 3")
            .await,
        "id ra decl objectId"
    );
    // The number of a chunk is no column of `*`, not even where the statement names it.
    assert_eq!(
        headings("SELECT * FROM crossmatch(Object, (SELECT * FROM Source WHERE chunkId > 0), 1)")
            .await,
        "id_1 ra_1 decl_1 objectId_1 id_2 ra_2 decl_2 objectId_2 separation"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told() {
    let sky = MatchSky::shared().await;
    for (from, told) in [
        (
            "crossmatch(Object, Nowhere, 1)",
            "there is no table Nowhere",
        ),
        (
            "crossmatch(Object, Source, -1)",
            "crossmatch: the radius is a number of arcseconds from 0 to 648000",
        ),
        (
            "crossmatch(Object, Source, ra)",
            "the same for all rows, not ra",
        ),
        (
            "nearest(Object, (SELECT id FROM Source), 1)",
            "columns of the right side are its position: say which, as in right_ra",
        ),
        (
            "nearest(Object, (SELECT id, ra, decl, ra AS _ra, decl AS _de FROM Target), 1)",
            "could be _ra and _de, or ra and decl",
        ),
        (
            "nearest(Object, Source, 1, left_ra => x, left_dec => decl)",
            "the left side has no column x; it has id, ra, decl",
        ),
        (
            "nearest((SELECT id, 'a' AS ra, 2 AS dec FROM Object), Source, 1)",
            "no number of degrees",
        ),
        (
            "crossmatch(Object, read_csv('x.csv'), 1)",
            "read_csv is not available here",
        ),
    ] {
        let error = match sky.session.execute(&format!("SELECT * FROM {from}")).await {
            Ok(_) => panic!("{from} was answered"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(told), "{from}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_match_of_tables_runs_in_pieces_and_reads_around_them() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT id_1, id_2, separation FROM crossmatch(Object, Object, 5) WHERE scisql_s2PtInCircle(ra_1, decl_1, 3, 0, 1) = 1 AND flag_2 = 0")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_match_of_rows_from_anywhere_reads_by_cells_of_the_sky() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT flag_1, id FROM nearest((SELECT flag, min(ra) AS ra, max(decl) AS dec FROM Object GROUP BY flag), Object, 5, 2)")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pairs_and_rows_without_any_are_plain_joins() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT id_1, id_2 FROM crossmatch(Object, Object, 5, 'all')")
            .await
    );
    assert_snapshot!(
        sky.plan("SELECT * FROM crossmatch(Object, Object, 5, 'best1', '1not2')")
            .await
    );
}

/// Positions in clumps, at poles, at the seam, twice at the same place, and none.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_small_skies() {
    for seed in 0..1500 {
        let sky = match_sky::small(seed);
        for (find, wanted) in [
            (Find::Best, match_sky::MUTUAL),
            (Find::Best1, match_sky::NEAREST),
        ] {
            for spread in [false, true] {
                let told = format!("sky {seed}, {find:?}, spread {spread}: {sky:?}");
                let found = match_sky::run(&sky, wanted, spread).await;
                let within = expected(&sky.left, &sky.right, sky.radius, find);
                check(&found, &within, find, &told);
            }
        }
    }
}

/// The keys in a batch's column.
pub fn numbers(batch: &arrow::array::RecordBatch, column: usize) -> Vec<i64> {
    let column = arrow::compute::cast(batch.column(column), &arrow::datatypes::DataType::Int64);
    let column = column.unwrap();
    let column = column.as_primitive::<Int64Type>();
    let value = |row: usize| (!column.is_null(row)).then(|| column.value(row));
    (0..column.len())
        .map(|row| value(row).unwrap_or(MatchSky::NULL))
        .collect()
}

/// The doubles of a batch's column.
pub fn doubles(batch: &arrow::array::RecordBatch, column: usize) -> Vec<f64> {
    batch
        .column(column)
        .as_primitive::<Float64Type>()
        .values()
        .to_vec()
}

/// A place is where it is said to be.
#[test]
fn separations_are_those_of_the_function() {
    let place = Place { ra: 10.0, dec: 0.0 };
    assert_eq!(place.degrees_to(11.0, 0.0), 1.0);
}
