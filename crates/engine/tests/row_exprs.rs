//! What one row of a pair decides is computed once for it: against a loop over all pairs.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod neighbour_sky;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use neighbour_sky::{Row, Sky, separation};

const SEPARATION: &str = "scisql_angSep(a.ra, a.decl, b.ra, b.decl)";
/// Where the plan lists what it computes once for a row.
const ONCE: &str = "once a row=[";
/// From one with hardly a pair, where it is computed for these, to one with many for each row, where it is computed for all rows.
const RADII: [f64; 4] = [1e-5, 0.003, 0.3, 20.0];

fn pairs<'a>(
    left: &'a [Row],
    right: &'a [Row],
    wanted: impl Fn(&Row, &Row) -> bool + 'a,
) -> Vec<(&'a Row, &'a Row)> {
    let all = left.iter().flat_map(|a| right.iter().map(move |b| (a, b)));
    all.filter(|(a, b)| wanted(a, b)).collect()
}

/// Rows of doubles in an order of their own.
fn sorted(mut rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    rows.sort_by(|a, b| a.partial_cmp(b).unwrap());
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_on_what_each_row_says() {
    let sky = Sky::shared().await;
    for radius in RADII {
        let sql = format!(
            "SELECT a.id, b.id FROM Object a, Source b
             WHERE {SEPARATION} < {radius:?} AND abs(sqrt(a.radius) - sqrt(b.radius)) < 0.05"
        );
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(plan.contains(ONCE), "{plan}");
        let alike = |a: &Row, b: &Row| (a.radius.sqrt() - b.radius.sqrt()).abs() < 0.05;
        let expected = pairs(&sky.objects, &sky.sources, |a, b| {
            separation(a, b) < radius && alike(a, b)
        });
        let expected = expected.iter().map(|(a, b)| vec![a.id as f64, b.id as f64]);
        assert_eq!(sorted(found), sorted(expected.collect()), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_either_row_and_of_both() {
    let sky = Sky::shared().await;
    for radius in RADII {
        let sql = format!(
            "SELECT a.id, b.id, sqrt(a.radius), {SEPARATION} + b.radius * 2, sqrt(a.radius) * b.id
             FROM Object a, Source b WHERE {SEPARATION} < {radius:?}"
        );
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(plan.contains(ONCE), "{plan}");
        let expected = pairs(&sky.objects, &sky.sources, |a, b| separation(a, b) < radius);
        let expected = expected.iter().map(|(a, b)| {
            let root = a.radius.sqrt();
            let both = [separation(a, b) + b.radius * 2.0, root * b.id as f64];
            vec![a.id as f64, b.id as f64, root, both[0], both[1]]
        });
        assert_eq!(sorted(found), sorted(expected.collect()), "{sql}");
    }
}

/// What is said of a row that is not there need not be NULL.
#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_partner() {
    let sky = Sky::shared().await;
    for radius in [0.003, 0.3] {
        for (from, kept, other) in [
            ("Object a LEFT JOIN Source b", &sky.objects, &sky.sources),
            ("Source a LEFT JOIN Object b", &sky.sources, &sky.objects),
        ] {
            let sql = format!(
                "SELECT a.id, coalesce(b.radius + 1, 7) * 2, sqrt(a.radius) FROM {from}
                 ON {SEPARATION} < {radius:?} AND sqrt(b.radius) < 0.25"
            );
            let (found, plan) = sky.ask_doubles(&sql).await;
            assert!(plan.contains(ONCE), "{plan}");
            let mut expected = Vec::new();
            for a in kept {
                let near = |b: &&Row| separation(a, b) < radius && b.radius.sqrt() < 0.25;
                let row = |said: f64| vec![a.id as f64, said, a.radius.sqrt()];
                let partners = other.iter().filter(near);
                let of_pairs: Vec<_> = partners.map(|b| row((b.radius + 1.0) * 2.0)).collect();
                let unmatched = of_pairs.is_empty().then(|| row(14.0));
                expected.extend(of_pairs.into_iter().chain(unmatched));
            }
            assert_eq!(sorted(found), sorted(expected), "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_and_their_groups() {
    let sky = Sky::shared().await;
    for radius in RADII {
        let sql = format!(
            "SELECT a.id % 3, count(*), sum(sqrt(b.radius)), min(a.radius * 2 + b.radius * 3)
             FROM Object a, Source b WHERE {SEPARATION} < {radius:?} AND a.id % 5 < b.id % 5 GROUP BY a.id % 3"
        );
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(plan.contains(ONCE), "{plan}");
        let all = pairs(&sky.objects, &sky.sources, |a, b| {
            separation(a, b) < radius && a.id % 5 < b.id % 5
        });
        let mut groups = std::collections::BTreeMap::<i64, Vec<(&Row, &Row)>>::new();
        for pair in all {
            groups.entry(pair.0.id % 3).or_default().push(pair);
        }
        let expected: Vec<Vec<f64>> = groups
            .into_iter()
            .map(|(group, all)| {
                let sum = all.iter().map(|(_, b)| b.radius.sqrt()).sum();
                let of_both = all.iter().map(|(a, b)| a.radius * 2.0 + b.radius * 3.0);
                let least = of_both.fold(f64::INFINITY, f64::min);
                vec![group as f64, all.len() as f64, sum, least]
            })
            .collect();
        let found = sorted(found);
        assert_eq!(found.len(), expected.len(), "{sql}");
        for (found, expected) in found.iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                let close = (found - expected).abs() <= 1e-11 * expected.abs();
                assert!(close, "{sql}\n{found} {expected}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partners_are_counted_without_pairs_all_the_same() {
    let sky = Sky::shared().await;
    let sql = format!(
        "SELECT a.id % 3, count(*) FROM Object a, Object b WHERE {SEPARATION} < 0.3 GROUP BY a.id % 3"
    );
    let (_, plan) = sky.ask_doubles(&sql).await;
    assert!(plan.contains("count(Int64(1))[count]"), "{plan}");
    assert!(!plan.contains(ONCE), "{plan}");
}

/// What is computed under a condition of both rows, and what is another number each time, is left where it stands.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_the_same_for_all_pairs_of_a_row() {
    let sky = Sky::shared().await;
    for item in [
        "CASE WHEN a.radius > b.radius THEN sqrt(a.radius) ELSE 0 END",
        "coalesce(a.id - b.id, sqrt(a.radius))",
        "rand() + a.radius",
        "a.radius",
        "sqrt(2)",
    ] {
        let sql = format!("SELECT {item} FROM Object a, Source b WHERE {SEPARATION} < 0.1");
        let (found, plan) = sky.ask_doubles(&sql).await;
        assert!(!plan.contains(ONCE), "{item}\n{plan}");
        let expected = pairs(&sky.objects, &sky.sources, |a, b| separation(a, b) < 0.1);
        assert_eq!(found.len(), expected.len(), "{item}");
    }
}

/// What cannot be computed of a row is a mistake only where it is requested: if the row has a partner.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_for_one_row() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.3;
    let partners = |a: &Row| sky.sources.iter().filter(|b| near(a, b)).count();
    let all: usize = sky.objects.iter().map(partners).sum();
    assert!(all > sky.objects.len() + sky.sources.len());
    for unmatched in [true, false] {
        let one = sky.objects.iter().find(|a| (partners(a) == 0) == unmatched);
        let id = one.unwrap().id;
        // Beyond 64 bits for that row alone.
        let sum = format!("{} - (a.id - {id}) * (a.id - {id}) + 1", i64::MAX);
        let sql = format!(
            "SELECT count(*) FROM Object a, Source b WHERE {SEPARATION} < 0.3 AND {sum} > b.id"
        );
        let answer = sky.session.execute(&sql).await.unwrap();
        let batches: Result<Vec<_>, _> = answer.batches.try_collect().await;
        match batches {
            Ok(batches) => {
                assert!(unmatched, "{sql}");
                let count = batches[0].column(0).as_primitive::<Int64Type>().value(0);
                assert_eq!(count, all as i64, "{sql}");
            }
            Err(error) => assert!(!unmatched, "{sql}: {error}"),
        }
    }
}
