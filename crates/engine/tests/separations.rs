//! What neighbour joins hand on of the separations, and what is known of partners without pairs, against a loop over all pairs.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod neighbour_sky;
use neighbour_sky::{Row, Sky, separation};

const SEPARATION: &str = "scisql_angSep(a.ra, a.decl, b.ra, b.decl)";

/// A column of the join where no pairs are made: the partial result of a count.
const WITHOUT_PAIRS: &str = "count(Int64(1))[count]";

/// Compares rows of doubles: exactly, or within some units of the last place where sums are added up in another order.
fn assert_same(sql: &str, found: &[Vec<f64>], expected: &[Vec<f64>], relative: f64) {
    assert_eq!(found.len(), expected.len(), "{sql}");
    for (found, expected) in found.iter().zip(expected) {
        let same = found
            .iter()
            .zip(expected)
            .all(|(a, b)| (a.is_nan() && b.is_nan()) || (a - b).abs() <= relative * b.abs());
        assert!(same, "{sql}\n{found:?}\n{expected:?}");
    }
}

fn separations<'a>(a: &'a Row, others: &'a [Row], radius: f64) -> Vec<f64> {
    let all = others.iter().map(|b| separation(a, b));
    all.filter(|separation| *separation < radius).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn separations_are_those_of_the_function_to_the_last_bit() {
    let sky = Sky::shared().await;
    for radius in [1e-4, 0.05, 0.3, 20.0] {
        let sql = format!(
            "SELECT a.id, b.id, angSep(b.ra, b.decl, a.ra, a.decl) * 3600 FROM Object a, Source b WHERE {SEPARATION} < {radius:?}"
        );
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(!plan.contains("angsep(ra@"), "computed again:\n{plan}");
        let mut expected: Vec<Vec<f64>> = Vec::new();
        for a in &sky.objects {
            for b in sky.sources.iter().filter(|b| separation(a, b) < radius) {
                expected.push(vec![a.id as f64, b.id as f64, separation(a, b) * 3600.0]);
            }
        }
        assert_same(&sql, &found, &expected, 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_is_decided_by_the_separation_at_hand() {
    let sky = Sky::shared().await;
    let sql = format!(
        "SELECT a.id, b.id FROM Object a, Source b WHERE {SEPARATION} BETWEEN 0.05 AND 0.2 AND a.id <> b.id - 10000"
    );
    let (found, plan) = sky.ask_doubles(&sql).await;
    assert!(plan.contains("separation@"), "{plan}");
    let mut expected = Vec::new();
    for a in &sky.objects {
        let in_ring = |b: &&Row| (0.05..=0.2).contains(&separation(a, b)) && a.id != b.id - 10_000;
        for b in sky.sources.iter().filter(in_ring) {
            expected.push(vec![a.id as f64, b.id as f64]);
        }
    }
    assert!(!expected.is_empty());
    assert_same(&sql, &found, &expected, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_of_all_pairs_are_made_without_pairs() {
    let sky = Sky::shared().await;
    for (radius, relative) in [
        (1e-4, 1e-13),
        (0.01, 1e-13),
        (0.05, 1e-11),
        (0.7, 1e-11),
        (30.0, 1e-11),
    ] {
        let sql = format!(
            "SELECT count(*), count(b.id), sum({SEPARATION}), avg({SEPARATION}), min({SEPARATION})
             FROM Source a, Object b WHERE {SEPARATION} < {radius:?}"
        );
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(plan.contains(WITHOUT_PAIRS), "{plan}");
        let (in_mysql, plan) = sky.ask_doubles_in_mysql(&sql).await;
        assert!(plan.contains(WITHOUT_PAIRS), "{plan}");
        assert_same(&sql, &in_mysql, &found, 1e-13);
        let all: Vec<f64> = (sky.objects.iter())
            .flat_map(|a| separations(a, &sky.sources, radius))
            .collect();
        let (count, sum) = (all.len() as f64, all.iter().sum::<f64>());
        let least = all.iter().copied().fold(f64::NAN, f64::min);
        assert_same(
            &sql,
            &found,
            &[vec![count, count, sum, sum / count, least]],
            relative,
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_the_probe_side_are_made_without_pairs() {
    let sky = Sky::shared().await;
    for (group, of) in [
        ("a.id", (|a: &Row| a.id as f64) as fn(&Row) -> f64),
        ("a.id % 7", |a| (a.id % 7) as f64),
        ("a.id % 3 + a.objectId % 2", |a| {
            (a.id % 3 + a.object % 2) as f64
        }),
    ] {
        let sql = format!(
            "SELECT {group}, count(*), sum({SEPARATION}), min({SEPARATION})
             FROM Object a JOIN Object b ON {SEPARATION} < 0.3 GROUP BY {group}"
        );
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(plan.contains(WITHOUT_PAIRS), "{plan}");
        let mut groups = std::collections::BTreeMap::<i64, Vec<f64>>::new();
        for a in &sky.objects {
            let of_row = separations(a, &sky.objects, 0.3);
            groups.entry(of(a) as i64).or_default().extend(of_row);
        }
        let expected: Vec<Vec<f64>> = groups
            .into_iter()
            .map(|(group, all)| {
                let least = all.iter().copied().fold(f64::NAN, f64::min);
                vec![group as f64, all.len() as f64, all.iter().sum(), least]
            })
            .collect();
        assert_same(&sql, &found, &expected, 1e-11);
    }
}

/// Rows without a partner count as one row, as no partner, and have no separation.
#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_partner_are_counted_as_such() {
    let sky = Sky::shared().await;
    let sql = format!(
        "SELECT a.id, count(*), count({SEPARATION}), count(b.id), avg({SEPARATION}), min({SEPARATION})
         FROM Object a LEFT JOIN Source b ON {SEPARATION} < 0.02 GROUP BY a.id"
    );
    let (found, _) = sky.ask_doubles(&sql).await;
    let expected: Vec<Vec<f64>> = (sky.objects.iter())
        .map(|a| {
            let all = separations(a, &sky.sources, 0.02);
            let (count, sum) = (all.len() as f64, all.iter().sum::<f64>());
            let mean = if all.is_empty() {
                f64::NAN
            } else {
                sum / count
            };
            let least = all.iter().copied().fold(f64::NAN, f64::min);
            vec![a.id as f64, count.max(1.0), count, count, mean, least]
        })
        .collect();
    assert!(expected.iter().any(|row| row[2] == 0.0) && expected.iter().any(|row| row[2] > 1.0));
    assert_same(&sql, &found, &expected, 1e-11);
}

/// Each of these needs pairs, or the other side's rows: the answers are right, by whatever plan.
#[tokio::test(flavor = "multi_thread")]
async fn what_needs_pairs_gets_them() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.1;
    let all: Vec<(&Row, &Row)> = (sky.objects.iter())
        .flat_map(|a| sky.sources.iter().map(move |b| (a, b)))
        .filter(|(a, b)| near(a, b))
        .collect();
    let sum = |of: &dyn Fn(&Row, &Row) -> f64| all.iter().map(|(a, b)| of(a, b)).sum::<f64>();
    let distinct = |of: &dyn Fn(&(&Row, &Row)) -> i64| {
        all.iter()
            .map(of)
            .collect::<std::collections::BTreeSet<_>>()
            .len() as f64
    };
    let greatest = all
        .iter()
        .map(|(a, b)| separation(a, b))
        .fold(0.0, f64::max);
    for (columns, expected) in [
        ("sum(b.radius)", sum(&|_, b| b.radius)),
        ("sum(a.radius)", sum(&|a, _| a.radius)),
        ("max(angSep(a.ra, a.decl, b.ra, b.decl))", greatest),
        ("count(DISTINCT a.id)", distinct(&|(a, _)| a.id)),
        ("count(DISTINCT b.id)", distinct(&|(_, b)| b.id)),
        (
            "sum(angSep(a.ra, b.decl, b.ra, a.decl))",
            sum(&|a, b| neighbour_sky::degrees_between(a.ra, b.dec, b.ra, a.dec)),
        ),
        (
            "sum(angSep(a.ra, a.decl, b.ra, b.decl) * a.radius)",
            sum(&|a, b| separation(a, b) * a.radius),
        ),
        (
            "count(*) FILTER (WHERE a.id % 2 = 0)",
            sum(&|a, _| f64::from(a.id % 2 == 0)),
        ),
        (
            "sum(CASE WHEN b.id % 2 = 0 THEN 1 ELSE 0 END)",
            sum(&|_, b| f64::from(b.id % 2 == 0)),
        ),
    ] {
        let sql = format!("SELECT {columns} FROM Object a, Source b WHERE {SEPARATION} < 0.1");
        let (found, _) = sky.ask_doubles(&sql).await;
        assert_same(&sql, &found, &[vec![expected]], 1e-11);
    }
}

/// Whichever side the groups are of is the one whose rows are taken one after another, be it the smaller one.
#[tokio::test(flavor = "multi_thread")]
async fn groups_of_either_side_are_made_without_pairs() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.1;
    let count = |of: &Row, others: &[Row]| others.iter().filter(|b| near(of, b)).count() as f64;
    let groups = |rows: &[Row], others: &[Row]| -> Vec<Vec<f64>> {
        let all = rows.iter().map(|of| vec![of.id as f64, count(of, others)]);
        all.filter(|row| row[1] > 0.0).collect()
    };
    for (group, expected) in [
        ("a.id", groups(&sky.objects, &sky.sources)),
        ("b.id", groups(&sky.sources, &sky.objects)),
    ] {
        for tables in ["Object a, Source b", "Source b, Object a"] {
            let sql = format!(
                "SELECT {group}, count(*) FROM {tables} WHERE {SEPARATION} < 0.1 GROUP BY {group}"
            );
            let (found, plan) = sky.ask_doubles(&sql).await;
            assert!(plan.contains(WITHOUT_PAIRS), "{sql}\n{plan}");
            assert_same(&sql, &found, &expected, 0.0);
        }
    }
    let sql = format!(
        "SELECT a.id % 2, b.id % 3, count(*) FROM Object a, Source b WHERE {SEPARATION} < 0.1 GROUP BY a.id % 2, b.id % 3"
    );
    let (found, _) = sky.ask_doubles(&sql).await;
    let mut expected = std::collections::BTreeMap::<(i64, i64), f64>::new();
    for a in &sky.objects {
        for b in sky.sources.iter().filter(|b| near(a, b)) {
            *expected.entry((a.id % 2, b.id % 3)).or_default() += 1.0;
        }
    }
    let expected: Vec<Vec<f64>> = expected
        .into_iter()
        .map(|((a, b), count)| vec![a as f64, b as f64, count])
        .collect();
    assert_same(&sql, &found, &expected, 0.0);
}

/// Reading around the rows of a replicated table gives the same in every piece: it is done once, beside the pieces.
#[tokio::test(flavor = "multi_thread")]
async fn neighbours_of_a_small_table_are_found_once() {
    let sky = Sky::shared().await;
    let condition = "scisql_angSep(t.ra, t.decl, a.ra, a.decl) < 0.25";
    let sql = format!(
        "SELECT t.id, a.id, s.id FROM Target t, Object a, Source s WHERE {condition} AND s.objectId = a.id"
    );
    let mut expected: Vec<Vec<f64>> = Vec::new();
    for t in &sky.targets {
        for a in sky.objects.iter().filter(|a| separation(t, a) < 0.25) {
            for s in sky.sources.iter().filter(|s| s.object == a.id) {
                expected.push([t.id, a.id, s.id].map(|id| id as f64).to_vec());
            }
        }
    }
    assert!(!expected.is_empty());
    let (found, plan) = sky.ask_doubles(&sql).await;
    assert_same(&sql, &found, &expected, 0.0);
    // It stands in a phase of one piece, not in that of the sources.
    let phase_of_join = plan
        .split("NeighbourJoinExec")
        .next()
        .unwrap()
        .rfind("ChunkPhaseExec");
    let phase = &plan[phase_of_join.unwrap()..];
    assert!(
        phase.lines().next().unwrap().contains("whole of Target"),
        "{plan}"
    );

    let sql = format!(
        "SELECT t.id, a.id FROM (SELECT id, ra, decl FROM Object ORDER BY id LIMIT 50) t, Object a WHERE {condition}"
    );
    let mut expected = Vec::new();
    for t in sky.objects.iter().take(50) {
        for a in sky.objects.iter().filter(|a| separation(t, a) < 0.25) {
            expected.push(vec![t.id as f64, a.id as f64]);
        }
    }
    let (found, _) = sky.ask_doubles(&sql).await;
    assert_same(&sql, &found, &expected, 0.0);
}
