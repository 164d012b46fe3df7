//! Questions about one key that are answered without planning them again.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod small_sky;
use small_sky::SmallSky;

/// Asks the same with one key after another; each answer must be that of a session that plans it.
async fn ask(sky: &SmallSky, sql: &str, keys: &[i64]) -> Vec<bool> {
    let mut kept = Vec::new();
    for key in keys {
        let sql = sql.replace("KEY", &key.to_string());
        let (rows, from_kept_plan) = sky.rows(&sql).await;
        assert_eq!(rows, sky.rows_afresh(&sql).await, "{sql}");
        kept.push(from_kept_plan);
    }
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn the_third_key_needs_no_planning() {
    let sky = SmallSky::load().await;
    for sql in [
        "SELECT * FROM Object WHERE id = KEY",
        "select ID, Flag from object o where (o.id = KEY and o.flag < 2);",
        "SELECT scisql_fluxToAbMag(flux) AS mag, filterId FROM sky.Source s WHERE s.objectId = KEY",
        "SELECT flux * 2 FROM Source WHERE objectId = KEY AND scisql_fluxToAbMag(flux) < -49",
    ] {
        // A key that nobody has, an orphan's, the first again.
        let kept = ask(&sky, sql, &[17, 100, 101, 100_000, 0, 7, 17, 345]).await;
        assert_eq!(
            kept,
            [false, false, true, true, true, true, true, true],
            "{sql}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_the_key_in_another_way_is_planned() {
    let sky = SmallSky::load().await;
    for sql in [
        // The number means something else as well, or stands for something else.
        "SELECT id, KEY AS n FROM Object WHERE id = KEY",
        "SELECT id FROM Object WHERE flag = KEY",
        "SELECT id FROM Object WHERE id = KEY OR flag = 0",
        "SELECT id FROM Object WHERE NOT (id = KEY)",
        // Another answer tomorrow.
        "SELECT id, current_date() AS today FROM Object WHERE id = KEY",
        "SELECT id FROM Object WHERE id = KEY AND now() > TIMESTAMP '2020-01-01 00:00:00'",
        // More than reading rows of one table.
        "SELECT count(*) FROM Source WHERE objectId = KEY",
        "SELECT s.flux FROM Object o JOIN Source s ON o.id = s.objectId WHERE o.id = KEY",
        "SELECT sep FROM ObjectPair WHERE leftId = KEY",
        "SELECT name FROM Filter WHERE id = KEY",
        "SELECT DISTINCT flux FROM Source WHERE objectId = KEY",
        "SELECT flux FROM Source WHERE objectId = KEY ORDER BY flux LIMIT 1",
        "SELECT flux FROM Source WHERE objectId = KEY UNION ALL SELECT flux FROM Source WHERE id = 3",
    ] {
        let kept = ask(&sky, sql, &[17, 100, 101, 1, 2, 17]).await;
        assert_eq!(kept, [false; 6], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_kept_for_one_load_of_the_table() {
    let sky = SmallSky::load().await;
    let sql = "SELECT flux FROM Source WHERE objectId = KEY";
    assert_eq!(ask(&sky, sql, &[17, 18, 19]).await, [false, false, true]);
    sky.replace_sources().await;
    assert_eq!(
        ask(&sky, sql, &[19, 17, 18, 19]).await,
        [false, false, true, true]
    );
    let (rows, _) = sky
        .rows("SELECT flux FROM Source WHERE objectId = 19")
        .await;
    assert!(rows.contains("19.75"), "{rows}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headings_follow_the_words_that_were_typed() {
    let sky = SmallSky::load().await;
    for (sql, heading) in [
        ("SELECT ID FROM Object WHERE id = KEY", "id"),
        ("SELECT id AS theOne FROM Object WHERE id = KEY", "theOne"),
        ("SELECT flag AS TheOne FROM Object WHERE id = KEY", "TheOne"),
    ] {
        for key in [17, 18, 19, 20] {
            let sql = sql.replace("KEY", &key.to_string());
            let (rows, _) = sky.rows(&sql).await;
            assert!(rows.contains(&format!("| {heading} ")), "{rows}");
            assert_eq!(rows, sky.rows_afresh(&sql).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_goes_on_between_questions() {
    let sky = SmallSky::load().await;
    let (before, _) = sky.rows("SELECT now() AS moment").await;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let (after, _) = sky.rows("SELECT now() AS moment").await;
    assert_ne!(
        before, after,
        "the same planner was used with its old clock"
    );
}
