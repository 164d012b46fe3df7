//! Queries in ADQL that join two tables by position: the same pairs as a loop over all of them, by the same plan.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use insta::assert_snapshot;

mod neighbour_sky;
use neighbour_sky::{Row, Sky, separation};

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

const POINTS: &str = "POINT(a.ra, a.decl), POINT(b.ra, b.decl)";

/// `Sky::execute` sees to it that they are joins of neighbours.
#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_ask_for_near_rows_is_a_join_of_neighbours() {
    let sky = Sky::shared().await;
    let from = "SELECT a.id, b.id FROM Object a, Object b WHERE";
    for condition in [
        format!("DISTANCE({POINTS}) <= 0.1"),
        format!("0.1 >= DISTANCE({POINTS})"),
        "DISTANCE(a.ra, a.decl, b.ra, b.decl) <= 0.1".to_owned(),
        "1 = CONTAINS(POINT('ICRS', a.ra, a.decl), CIRCLE('ICRS', b.ra, b.decl, 0.1))".to_owned(),
        "CONTAINS(POINT(b.ra, b.decl), CIRCLE(POINT(a.ra, a.decl), 0.1)) = 1".to_owned(),
        "0 <> INTERSECTS(CIRCLE(a.ra, a.decl, 0.1), POINT(b.ra, b.decl))".to_owned(),
        "1 = INTERSECTS(CIRCLE(a.ra, a.decl, 0.05), CIRCLE(b.ra, b.decl, 0.05))".to_owned(),
    ] {
        let sql = format!("{from} {condition}");
        let expected = pairs(&sky.objects, &sky.objects, |a, b| separation(a, b) <= 0.1);
        assert_eq!(sky.execute(&sql).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn radii_of_rows_joins_and_subqueries() {
    let sky = Sky::shared().await;
    for (sql, left, right, wanted) in [
        (
            "SELECT a.id, b.id FROM Object a JOIN Object b
             ON 1 = CONTAINS(POINT(a.ra, a.decl), CIRCLE(b.ra, b.decl, b.radius))",
            &sky.objects,
            &sky.objects,
            (|a, b| separation(a, b) <= b.radius) as fn(&Row, &Row) -> bool,
        ),
        (
            "SELECT a.id, b.id FROM (SELECT id, POINT(ra, decl) AS place FROM Object WHERE id > 7) a
             JOIN (SELECT id, POINT(ra, decl) AS place FROM other.Star) b ON DISTANCE(a.place, b.place) < 0.3",
            &sky.objects,
            &sky.stars,
            |a, b| separation(a, b) < 0.3 && a.id > 7,
        ),
        (
            "SELECT a.id, b.id FROM Object a JOIN other.Star b
             ON 1 = CONTAINS(POINT(a.ra, a.decl), CIRCLE(b.ra, b.decl, 0.3)) AND a.id % 2 = b.id % 2",
            &sky.objects,
            &sky.stars,
            |a, b| separation(a, b) <= 0.3 && a.id % 2 == b.id % 2,
        ),
    ] {
        assert_eq!(sky.execute(sql).await, pairs(left, right, wanted), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_by_contains_is_planned_as_one_by_distance() {
    let sky = Sky::shared().await;
    let (_, by_distance) = sky
        .ask_doubles(&format!(
            "SELECT a.id, b.id FROM Object a JOIN other.Star b ON DISTANCE({POINTS}) <= 0.1"
        ))
        .await;
    let (_, by_contains) = sky
        .ask_doubles(
            "SELECT a.id, b.id FROM Object a, other.Star b
             WHERE 1 = CONTAINS(POINT(a.ra, a.decl), CIRCLE(b.ra, b.decl, 0.1))",
        )
        .await;
    assert_eq!(by_distance, by_contains);
    assert_snapshot!(by_distance);
}
