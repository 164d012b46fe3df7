//! Joins of rows that are near each other, as SQL requests them, against a loop over all pairs.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use arrow::array::RecordBatch;
use datafusion::physical_plan::displayable;
use futures::TryStreamExt;

mod neighbour_sky;
use neighbour_sky::{Row, Sky, degrees_between, numbers, separation};

/// The keys of all pairs that are wanted.
fn pairs(left: &[Row], right: &[Row], wanted: impl Fn(&Row, &Row) -> bool) -> Vec<Vec<i64>> {
    let mut all: Vec<Vec<i64>> = left
        .iter()
        .flat_map(|a| right.iter().map(move |b| (a, b)))
        .filter(|(a, b)| wanted(a, b))
        .map(|(a, b)| vec![a.id, b.id])
        .collect();
    all.sort_unstable();
    all
}

fn in_circle(row: &Row, ra: f64, dec: f64, radius: f64) -> bool {
    degrees_between(row.ra, row.dec, ra, dec) <= radius
}

const SEPARATION: &str = "scisql_angSep(a.ra, a.decl, b.ra, b.decl)";

#[tokio::test(flavor = "multi_thread")]
async fn pairs_of_a_table_with_itself_at_any_radius() {
    let sky = Sky::shared().await;
    // Zero, within the overlap, above it, above a chunk, half of the sky, all of it.
    for radius in [0.0, 1e-7, 0.05, 0.199, 0.7, 12.0, 90.0, 180.0] {
        let sql =
            format!("SELECT a.id, b.id FROM Object a, Object b WHERE {SEPARATION} <= {radius:?}");
        let expected = pairs(&sky.objects, &sky.objects, |a, b| {
            separation(a, b) <= radius
        });
        assert_eq!(sky.execute(&sql).await, expected, "{sql}");
        let count =
            format!("SELECT count(*) FROM Object a, Object b WHERE {SEPARATION} <= {radius:?}");
        assert_eq!(
            sky.execute(&count).await,
            [[expected.len() as i64]],
            "{count}"
        );
    }
    // To the last bit: the radius is the separation of a pair.
    let of_a_pair = separation(&sky.objects[3], &sky.objects[5]);
    for radius in [of_a_pair.next_down(), of_a_pair, of_a_pair.next_up()] {
        for (less, within) in [("<", Some(std::cmp::Ordering::Less)), ("<=", None)] {
            let sql = format!(
                "SELECT count(*) FROM Object a JOIN Object b ON {SEPARATION} {less} {radius:?}"
            );
            let expected = pairs(&sky.objects, &sky.objects, |a, b| match within {
                Some(_) => separation(a, b) < radius,
                None => separation(a, b) <= radius,
            });
            assert_eq!(sky.execute(&sql).await, [[expected.len() as i64]], "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_the_condition_is_understood() {
    let sky = Sky::shared().await;
    for (sql, wanted) in [
        (
            "SELECT a.id, b.id FROM Object a JOIN Object b ON 0.1 > qserv_angSep(b.ra, b.decl, a.ra, a.decl) AND a.id < b.id",
            (|a, b| separation(a, b) < 0.1 && a.id < b.id) as fn(&Row, &Row) -> bool,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE a.id <> b.id AND 0.05 * 2 >= scisql_angSep(a.ra, a.decl, b.ra, b.decl)",
            |a, b| separation(a, b) <= 0.1 && a.id != b.id,
        ),
        (
            "SELECT a.id, b.id FROM Object a INNER JOIN Object b ON scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.1
             AND a.radius < b.radius WHERE b.id % 3 = 0",
            |a, b| separation(a, b) < 0.1 && a.radius < b.radius && b.id % 3 == 0,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < a.radius",
            |a, b| separation(a, b) < a.radius,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < b.radius / 2",
            |a, b| separation(a, b) < b.radius / 2.0,
        ),
        // An equality beside it that leads nowhere, one of whole expressions, and one that holds for NULLs too.
        (
            "SELECT a.id, b.id FROM Object a JOIN Object b USING (objectId) WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 40",
            |a, b| separation(a, b) < 40.0 && a.object == b.object,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3
             AND a.id % 4 = b.objectId % 4 AND a.objectId % 3 IS NOT DISTINCT FROM b.id % 3",
            |a, b| separation(a, b) < 0.3 && a.id % 4 == b.object % 4 && a.object % 3 == b.id % 3,
        ),
        (
            "SELECT a.id, b.id FROM (SELECT id, ra AS lon, decl AS lat FROM Object WHERE id % 2 = 0) a,
             (SELECT decl, ra, id FROM Object) b WHERE scisql_angSep(a.lon, a.lat, b.ra, b.decl) < 0.2",
            |a, b| separation(a, b) < 0.2 && a.id % 2 == 0,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3
             AND scisql_s2PtInCircle(a.ra, a.decl, 0.0, 0.0, 0.5) = 1",
            |a, b| separation(a, b) < 0.3 && in_circle(a, 0.0, 0.0, 0.5),
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3
             AND scisql_s2PtInCircle(b.ra, b.decl, 359.9, 30.1, 0.5) = 1",
            |a, b| separation(a, b) < 0.3 && in_circle(b, 359.9, 30.1, 0.5),
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE qserv_areaspec_circle(18.0, 9.0, 0.3)
             AND scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3",
            |a, b| separation(a, b) < 0.3 && in_circle(a, 18.0, 9.0, 0.3) && in_circle(b, 18.0, 9.0, 0.3),
        ),
    ] {
        assert_eq!(sky.execute(sql).await, pairs(&sky.objects, &sky.objects, wanted), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_all_kinds_and_of_other_databases() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.25;
    for (tables, left, right) in [
        ("Object a, Source b", &sky.objects, &sky.sources),
        ("Source a, Object b", &sky.sources, &sky.objects),
        ("Source a, Source b", &sky.sources, &sky.sources),
        ("Object a, other.Star b", &sky.objects, &sky.stars),
        ("other.Star a, Source b", &sky.stars, &sky.sources),
        ("Target a, Object b", &sky.targets, &sky.objects),
        ("Object a, Target b", &sky.objects, &sky.targets),
        ("Target a, Target b", &sky.targets, &sky.targets),
        ("Target a, other.Star b", &sky.targets, &sky.stars),
    ] {
        let sql = format!("SELECT a.id, b.id FROM {tables} WHERE {SEPARATION} < 0.25");
        assert_eq!(sky.execute(&sql).await, pairs(left, right, near), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_partner() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.02;
    for (left_table, right_table, left, right) in [
        ("Object", "Source", &sky.objects, &sky.sources),
        ("Source", "other.Star", &sky.sources, &sky.stars),
        ("Target", "Object", &sky.targets, &sky.objects),
        ("Object", "Target", &sky.objects, &sky.targets),
    ] {
        let condition = "scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.02";
        let has = |a: &Row| right.iter().any(|b| near(a, b));
        let alone: Vec<i64> = left.iter().filter(|a| !has(a)).map(|a| a.id).collect();

        let sql = format!(
            "SELECT a.id, b.id FROM {left_table} a LEFT JOIN {right_table} b ON {condition}"
        );
        let mut expected = pairs(left, right, near);
        expected.extend(alone.iter().map(|id| vec![*id, -1]));
        expected.sort_unstable();
        assert_eq!(sky.execute(&sql).await, expected, "{sql}");

        let sql = format!(
            "SELECT a.id, b.id FROM {right_table} b RIGHT JOIN {left_table} a ON {condition}"
        );
        assert_eq!(sky.execute(&sql).await, expected, "{sql}");

        let exists = format!("(SELECT 1 FROM {right_table} b WHERE {condition})");
        let sql = format!("SELECT a.id FROM {left_table} a WHERE NOT EXISTS {exists}");
        let of = |ids: &[i64]| ids.iter().map(|id| vec![*id]).collect::<Vec<_>>();
        assert_eq!(sky.execute(&sql).await, of(&alone), "{sql}");

        let sql = format!("SELECT a.id FROM {left_table} a WHERE EXISTS {exists}");
        let some: Vec<i64> = left.iter().filter(|a| has(a)).map(|a| a.id).collect();
        assert_eq!(sky.execute(&sql).await, of(&some), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_above_and_beside_the_join() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| a.id != b.id && separation(a, b) < 0.1;
    let condition = format!("a.id <> b.id AND {SEPARATION} < 0.1");
    let all = pairs(&sky.objects, &sky.objects, near);

    let sql =
        format!("SELECT a.id, count(*) FROM Object a, Object b WHERE {condition} GROUP BY a.id");
    let counts: Vec<Vec<i64>> = (sky.objects.iter())
        .map(|a| {
            vec![
                a.id,
                sky.objects.iter().filter(|b| near(a, b)).count() as i64,
            ]
        })
        .filter(|row| row[1] > 0)
        .collect();
    assert_eq!(sky.execute(&sql).await, counts, "{sql}");

    let sql = format!("SELECT a.id, b.id FROM Object a, Object b WHERE {condition} LIMIT 10");
    let few = sky.execute(&sql).await;
    assert_eq!(few.len(), 10);
    assert!(few.iter().all(|pair| all.contains(pair)), "{few:?}");

    // A second join, on a key, beside it.
    let sql = format!(
        "SELECT a.id, s.id FROM Object a, Object b, Source s WHERE {condition} AND s.objectId = b.id"
    );
    let mut expected: Vec<Vec<i64>> = (all.iter())
        .flat_map(|pair| {
            let of = sky.sources.iter().filter(|s| s.object == pair[1]);
            of.map(|s| vec![pair[0], s.id])
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(sky.execute(&sql).await, expected, "{sql}");

    // Three near each other.
    let sql = format!(
        "SELECT a.id, b.id, c.id FROM Object a, Object b, Object c WHERE {condition}
         AND scisql_angSep(b.ra, b.decl, c.ra, c.decl) < 0.01"
    );
    let mut expected: Vec<Vec<i64>> = (all.iter())
        .flat_map(|pair| {
            let b = &sky.objects[pair[1] as usize];
            let near = sky.objects.iter().filter(move |c| separation(b, c) < 0.01);
            near.map(|c| vec![pair[0], pair[1], c.id])
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(sky.execute(&sql).await, expected, "{sql}");
}

/// What must not be mistaken for a join by nearness: the answers are right, by whatever plan.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_looks_like_nearness() {
    let sky = Sky::shared().await;
    for (condition, wanted) in [
        (
            "scisql_angSep(a.ra, a.decl, b.ra, b.decl) > 179.0",
            (|a, b| separation(a, b) > 179.0) as fn(&Row, &Row) -> bool,
        ),
        (
            "NOT (scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 178.5)",
            |a, b| separation(a, b) >= 178.5,
        ),
        (
            "(scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.001 OR a.id + b.id = 200)",
            |a, b| separation(a, b) < 0.001 || a.id + b.id == 200,
        ),
        (
            "scisql_angSep(a.ra, b.decl, b.ra, a.decl) < 0.01",
            |a, b| degrees_between(a.ra, b.dec, b.ra, a.dec) < 0.01,
        ),
        (
            "scisql_angSep(a.ra, a.decl, b.ra, b.decl) < a.radius * b.radius",
            |a, b| separation(a, b) < a.radius * b.radius,
        ),
    ] {
        let sql = format!("SELECT a.id, b.id FROM Object a, Object b WHERE {condition}");
        let answer = sky.session.execute(&sql).await.unwrap();
        let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
        let mut rows: Vec<Vec<i64>> = batches.iter().flat_map(numbers).collect();
        rows.sort_unstable();
        assert_eq!(rows, pairs(&sky.objects, &sky.objects, wanted), "{sql}");
    }
}

/// A pair in windows of both coordinates; the cosine is of the declination `of`.
fn in_windows(a: &Row, b: &Row, of: &Row, ra: f64, dec: f64) -> bool {
    (a.ra - b.ra).abs() < ra / of.dec.to_radians().cos() && (a.dec - b.dec).abs() < dec
}

type PairTest = fn(&Row, &Row, f64) -> bool;

/// The forms in which windows in both coordinates are written, with `{r}` for the radius.
const WINDOWS: [(&str, PairTest); 10] = [
    (
        "ABS(a.ra - b.ra) < {r} / COS(RADIANS(a.decl)) AND ABS(a.decl - b.decl) < {r}",
        |a, b, r| in_windows(a, b, a, r, r),
    ),
    (
        "{r} > ABS(b.decl - a.decl) AND {r} / COS(RADIANS(b.decl)) > ABS(b.ra - a.ra) AND a.id <> b.id",
        |a, b, r| a.id != b.id && in_windows(a, b, b, r, r),
    ),
    (
        "ABS(a.ra - b.ra) <= {r} / COS(a.decl * PI() / 180) AND ABS(a.decl - b.decl) <= 2 * {r}",
        |a, b, r| {
            let cosine = (a.dec * std::f64::consts::PI / 180.0).cos();
            (a.ra - b.ra).abs() <= r / cosine && (a.dec - b.dec).abs() <= 2.0 * r
        },
    ),
    (
        "ABS(a.ra - b.ra) * COS(RADIANS(a.decl)) < {r} AND ABS(a.decl - b.decl) < {r}",
        |a, b, r| (a.ra - b.ra).abs() * a.dec.to_radians().cos() < r && (a.dec - b.dec).abs() < r,
    ),
    (
        "ABS(COS(PI() / 180 * b.decl) * (a.ra - b.ra)) <= {r} AND {r} >= ABS(a.decl - b.decl)",
        |a, b, r| {
            let cosine = (std::f64::consts::PI / 180.0 * b.dec).cos();
            (cosine * (a.ra - b.ra)).abs() <= r && (a.dec - b.dec).abs() <= r
        },
    ),
    (
        "a.ra BETWEEN b.ra - {r} / COS(RADIANS(b.decl)) AND b.ra + {r} / COS(RADIANS(b.decl))
         AND b.decl BETWEEN a.decl - {r} AND a.decl + 3 * {r}",
        |a, b, r| {
            let wide = r / b.dec.to_radians().cos();
            (b.ra - wide..=b.ra + wide).contains(&a.ra)
                && (a.dec - r..=a.dec + 3.0 * r).contains(&b.dec)
        },
    ),
    (
        "a.ra - b.ra BETWEEN -{r} / COS(RADIANS(a.decl)) AND {r} / COS(RADIANS(a.decl))
         AND (a.decl - b.decl) BETWEEN -{r} AND {r}",
        |a, b, r| {
            let wide = r / a.dec.to_radians().cos();
            (-wide..=wide).contains(&(a.ra - b.ra)) && (-r..=r).contains(&(a.dec - b.dec))
        },
    ),
    (
        "a.ra < b.ra + {r} AND b.ra < a.ra + {r} AND a.decl - {r} <= b.decl AND b.decl - {r} <= a.decl",
        |a, b, r| {
            (a.ra < b.ra + r && b.ra < a.ra + r) && (a.dec - r <= b.dec && b.dec - r <= a.dec)
        },
    ),
    (
        "ABS(a.ra - b.ra) < {r} AND ABS(a.decl - b.decl) < {r} AND a.radius < b.radius",
        |a, b, r| a.radius < b.radius && (a.ra - b.ra).abs() < r && (a.dec - b.dec).abs() < r,
    ),
    (
        "ABS(a.ra - b.ra) < {r} / COS(RADIANS(a.decl)) AND ABS(a.decl - b.decl) < {r} AND a.id % 5 = b.id % 5",
        |a, b, r| a.id % 5 == b.id % 5 && in_windows(a, b, a, r, r),
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn windows_in_both_coordinates_are_nearness() {
    let sky = Sky::shared().await;
    let forms = |radius: f64| {
        WINDOWS
            .map(|(condition, wanted)| (condition.replace("{r}", &format!("{radius:?}")), wanted))
    };
    for radius in [0.0, 1e-7, 0.03, 3.0] {
        for (condition, wanted) in forms(radius) {
            let sql = format!("SELECT a.id, b.id FROM Object a, Object b WHERE {condition}");
            let expected = pairs(&sky.objects, &sky.objects, |a, b| wanted(a, b, radius));
            assert_eq!(sky.execute(&sql).await, expected, "{sql}");
        }
    }
    for (condition, wanted) in forms(0.25) {
        for (tables, left, right) in [
            ("Source a, Object b", &sky.sources, &sky.objects),
            ("Object a, other.Star b", &sky.objects, &sky.stars),
        ] {
            let sql = format!("SELECT a.id, b.id FROM {tables} WHERE {condition}");
            let expected = pairs(left, right, |a, b| wanted(a, b, 0.25));
            assert_eq!(sky.execute(&sql).await, expected, "{sql}");
            let (rows, _) = sky.ask_doubles_in_mysql(&sql).await;
            assert_eq!(rows.len(), expected.len(), "in MySQL's dialect: {sql}");
        }
    }
}

/// The forms in which the radius covers whatever the values are, of tables whose positions nothing is known about.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_positions_beyond_the_pole_and_of_several_turns() {
    let sky = Sky::shared().await;
    let moved = |by_ra: f64, by_dec: f64| -> Vec<Row> {
        let row = |row: &Row| Row {
            ra: row.ra + by_ra,
            dec: row.dec + by_dec,
            ..*row
        };
        sky.targets.iter().map(row).collect()
    };
    for (by_ra, by_dec) in [
        (0.0, 0.0),
        (360.0, 0.0),
        (-1000.0, 0.0),
        (3.0, 10.0),
        (0.0, 170.0),
    ] {
        let targets = moved(by_ra, by_dec);
        let target =
            format!("(SELECT id, ra + {by_ra:?} AS ra, decl + {by_dec:?} AS decl FROM Target)");
        for radius in [-0.5, 0.1, 2.0, 20.0] {
            for (cosine, of_left) in [("a.decl", true), ("b.decl", false)] {
                let sql = format!(
                    "SELECT a.id, b.id FROM {target} a, Object b
                     WHERE ABS(a.ra - b.ra) < {radius:?} / COS(RADIANS({cosine})) AND ABS(a.decl - b.decl) < ABS({radius:?})"
                );
                let expected = pairs(&targets, &sky.objects, |a, b| {
                    in_windows(a, b, if of_left { a } else { b }, radius, radius.abs())
                });
                assert_eq!(sky.execute(&sql).await, expected, "{sql}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_partner_in_their_windows() {
    let sky = Sky::shared().await;
    let condition =
        "ABS(a.ra - b.ra) < 0.02 / COS(RADIANS(a.decl)) AND ABS(a.decl - b.decl) < 0.02";
    let near = |a: &Row, b: &Row| in_windows(a, b, a, 0.02, 0.02);
    let alone = |a: &&Row| !sky.sources.iter().any(|b| near(a, b));
    let alone: Vec<i64> = sky.objects.iter().filter(alone).map(|a| a.id).collect();
    let sql = format!("SELECT a.id, b.id FROM Object a LEFT JOIN Source b ON {condition}");
    let mut expected = pairs(&sky.objects, &sky.sources, near);
    expected.extend(alone.iter().map(|id| vec![*id, -1]));
    expected.sort_unstable();
    assert_eq!(sky.execute(&sql).await, expected, "{sql}");
    let sql = format!(
        "SELECT a.id FROM Object a WHERE NOT EXISTS (SELECT 1 FROM Source b WHERE {condition})"
    );
    let expected: Vec<Vec<i64>> = alone.iter().map(|id| vec![*id]).collect();
    assert_eq!(sky.execute(&sql).await, expected, "{sql}");
}

/// A window that bounds no separation, or of which it is not known that it does, is asked of all pairs.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_looks_like_windows() {
    let sky = Sky::shared().await;
    let objects = || (&sky.objects, &sky.objects);
    for (tables, (left, right), condition, wanted) in [
        (
            "Object a, Object b",
            objects(),
            "ABS(a.ra - b.ra) < 1 / COS(a.decl) AND ABS(a.decl - b.decl) < 0.1",
            (|a, b| (a.ra - b.ra).abs() < 1.0 / a.dec.cos() && (a.dec - b.dec).abs() < 0.1)
                as fn(&Row, &Row) -> bool,
        ),
        (
            "Object a, Object b",
            objects(),
            "ABS(a.ra - b.ra) < 0.1 * COS(RADIANS(a.radius)) AND ABS(a.radius - b.radius) < 0.001",
            |a, b| {
                (a.ra - b.ra).abs() < 0.1 * a.radius.to_radians().cos()
                    && (a.radius - b.radius).abs() < 0.001
            },
        ),
        (
            "Object a, Object b",
            objects(),
            "ABS(a.ra - b.ra) > 359 / COS(RADIANS(a.decl)) AND ABS(a.decl - b.decl) < 2",
            |a, b| {
                (a.ra - b.ra).abs() > 359.0 / a.dec.to_radians().cos()
                    && (a.dec - b.dec).abs() < 2.0
            },
        ),
        (
            "Object a, Object b",
            objects(),
            "ABS(a.ra - b.decl) < 0.1 AND ABS(a.decl - b.ra) < 0.1",
            |a, b| (a.ra - b.dec).abs() < 0.1 && (a.dec - b.ra).abs() < 0.1,
        ),
        (
            "Object a, Object b",
            objects(),
            "a.ra < b.ra + 0.1 AND b.decl < a.decl + 0.1 AND a.decl < b.decl + 0.1",
            |a, b| a.ra < b.ra + 0.1 && b.dec < a.dec + 0.1 && a.dec < b.dec + 0.1,
        ),
        (
            "(SELECT id, ra, decl + 10 AS decl FROM Target) a, Object b",
            (&sky.targets, &sky.objects),
            "ABS(a.ra - b.ra) * COS(RADIANS(a.decl)) < 0.5 AND ABS(a.decl - b.decl) < 11",
            |a, b| {
                let dec = a.dec + 10.0;
                (a.ra - b.ra).abs() * dec.to_radians().cos() < 0.5 && (dec - b.dec).abs() < 11.0
            },
        ),
    ] {
        let sql = format!("SELECT a.id, b.id FROM {tables} WHERE {condition}");
        let answer = sky.session.execute(&sql).await.unwrap();
        let plan = displayable(answer.plan.as_ref()).indent(true).to_string();
        assert!(!plan.contains("NeighbourJoinExec"), "{sql}\n{plan}");
        let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
        let mut rows: Vec<Vec<i64>> = batches.iter().flat_map(numbers).collect();
        rows.sort_unstable();
        assert_eq!(rows, pairs(left, right, wanted), "{sql}");
    }
}

/// A plan from the cache has the window's widths as parameters.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_a_cached_plan() {
    let sky = Sky::shared().await;
    for radius in [0.1, 0.02, 1.5, 0.3, 0.0] {
        let sql = format!(
            "SELECT a.id, b.id FROM Object a, Source b WHERE a.ra - b.ra BETWEEN -{radius:?} AND {radius:?}
             AND ABS(a.decl - b.decl) <= {radius:?}"
        );
        let expected = pairs(&sky.objects, &sky.sources, |a, b| {
            (a.ra - b.ra).abs() <= radius && (a.dec - b.dec).abs() <= radius
        });
        assert_eq!(sky.execute(&sql).await, expected, "{sql}");
    }
}
