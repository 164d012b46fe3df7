//! Statements that come again with other numbers, and are answered from a plan that was kept.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod constants;
mod random;
#[path = "../small_sky/mod.rs"]
mod small_sky;

use futures::TryStreamExt;
use small_sky::SmallSky;

/// Asks the same with one number after another in the place of KEY; each answer must be that of a session that plans it.
async fn execute(sky: &SmallSky, sql: &str, keys: &[impl ToString]) -> Vec<bool> {
    let mut kept = Vec::new();
    for key in keys {
        let sql = sql.replace("KEY", &key.to_string());
        let (rows, from_kept_plan) = sky.rows(&sql).await;
        assert_eq!(rows, sky.rows_afresh(&sql).await, "{sql}");
        kept.push(from_kept_plan);
    }
    kept
}

/// After two that were planned, all were answered from the kept plan.
fn from_the_third_on(kept: &[bool]) -> bool {
    !kept[0] && !kept[1] && kept[2..].iter().all(|kept| *kept)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_third_key_needs_no_planning() {
    let sky = SmallSky::load().await;
    for sql in [
        "SELECT * FROM Object WHERE id = KEY",
        "select ID, Flag from object o where (o.id = KEY and o.flag < 2);",
        "SELECT scisql_fluxToAbMag(flux) AS mag, filterId FROM sky.Source s WHERE s.objectId = KEY",
        "SELECT flux * 2 FROM Source WHERE objectId = KEY AND scisql_fluxToAbMag(flux) < -49",
        "SELECT count(*), sum(flux) FROM Source WHERE objectId = KEY",
        "SELECT flux FROM Source WHERE objectId = KEY ORDER BY flux DESC LIMIT 1",
        "SELECT DISTINCT flux FROM Source WHERE objectId = KEY",
        "SELECT id FROM Object WHERE NOT (id = KEY)",
        "SELECT count(*) FROM Object WHERE ra BETWEEN 5 AND 305.5 AND decl BETWEEN -1.5 AND 2 AND id > KEY AND (ra - decl) * -0.5 < 3e0",
        "SELECT count(*) FROM Source WHERE objectId > KEY AND scisql_fluxToAbMag(flux) - scisql_fluxToAbMag(flux + 1) BETWEEN -0.5 AND 0.25",
    ] {
        // A key that nobody has, an orphan's, the first again.
        let kept = execute(&sky, sql, &[17, 100, 101, 100_000, 2, 7, 17, 345]).await;
        assert!(from_the_third_on(&kept), "{sql}: {kept:?}");
    }
}

/// What is in memory after a few queries is looked up without a plan: the same rows, whichever key.
#[tokio::test(flavor = "multi_thread")]
async fn every_key_has_its_rows_however_they_are_found() {
    let sky = SmallSky::load().await;
    let keys: Vec<i64> = (0..90).map(|n| n * 37 % 401).collect();
    for sql in [
        "SELECT * FROM Object WHERE id = KEY",
        "SELECT flag, ra, id FROM Object WHERE KEY = id",
        "SELECT scisql_fluxToAbMag(flux) AS mag, 2 * flux AS twice, filterId FROM Source WHERE objectId = KEY",
    ] {
        execute(&sky, sql, &keys).await;
        assert!(sky.is_looked_up(&sql.replace("KEY", "91")).await, "{sql}");
    }
    for sql in [
        // Keys that the director does not have lie beside rows without any.
        "SELECT flux, id FROM Source WHERE objectId = -KEY",
        // Not of the key alone.
        "SELECT * FROM Source WHERE objectId = KEY AND flux > 0",
        "SELECT * FROM Source WHERE id = KEY",
        "SELECT * FROM Source WHERE objectId = KEY OR objectId = 5",
        "SELECT flux FROM Source WHERE objectId = KEY LIMIT 1",
    ] {
        execute(&sky, sql, &keys).await;
    }
}

/// Whoever requests one object after another waits for no disk: the index is in memory after a few.
#[tokio::test(flavor = "multi_thread")]
async fn the_index_is_read_once_for_many_keys() {
    let sky = SmallSky::load().await;
    let text = |key: i64| format!("SELECT * FROM Object WHERE id = {key}");
    let mut before = Vec::new();
    for key in 0..40 {
        before.push(sky.rows(&text(key)).await.0);
    }
    sky.empty_index("object");
    for (key, rows) in (0..40).zip(before) {
        assert_eq!(sky.rows(&text(key)).await.0, rows, "{key}");
        assert_eq!(sky.rows_afresh(&text(key)).await, rows, "{key}");
    }
}

/// What the network's thread may answer itself is what surely takes no longer than handing it over.
#[tokio::test(flavor = "multi_thread")]
async fn short_is_what_reads_few_rows_and_computes_numbers_of_them() {
    let sky = SmallSky::load().await;
    for (sql, short) in [
        ("SELECT * FROM Object WHERE id = KEY", true),
        (
            "SELECT sqrt(flux) AS s, flux > 3 AS b FROM Source WHERE objectId = KEY",
            true,
        ),
        (
            "SELECT id FROM Object WHERE id = KEY AND flag + 1 < 3",
            true,
        ),
        ("SELECT COUNT(*) FROM Object", true),
        // A text that is made may be long, and is none of a row's own.
        (
            "SELECT CAST(id AS VARCHAR) || 'x' AS t FROM Object WHERE id = KEY",
            false,
        ),
        (
            "SELECT id FROM Object WHERE id = KEY AND CAST(flag AS VARCHAR) || 'x' > 'a'",
            false,
        ),
        (
            "SELECT COUNT(*), LPAD('x', 2000, 'y') AS t FROM Object",
            false,
        ),
        (
            "SELECT id, LPAD('x', 2000, 'y') AS t FROM Object WHERE id = KEY",
            false,
        ),
        // Of all pieces, or of no known number of rows.
        ("SELECT id FROM Object WHERE id > KEY", false),
        ("SELECT count(*) FROM Source WHERE objectId = KEY", false),
        (
            "SELECT flux FROM Source WHERE objectId = KEY ORDER BY flux",
            false,
        ),
    ] {
        execute(&sky, sql, &[17, 101, 23, 91]).await;
        let known = sql.replace("KEY", "93");
        assert_eq!(sky.is_short(&known, 100).await, short, "{sql}");
        let none = short && sql.contains("COUNT");
        assert_eq!(sky.is_short(&known, 0).await, none, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_does_the_third_place_in_the_sky() {
    let sky = SmallSky::load().await;
    // A sign is part of the wording.
    let north = [
        "10.5, 20.25, 30.125",
        "200.75, 45.5, 47.0",
        "359.9, 0.5, 2.5",
        "0.1, 89.9, 4.5",
        "10.5, 20.25, 30.125",
        "120.5, 0.5, 0.125",
    ];
    let south = [
        "10.5, -0.25, 3.125",
        "200.75, -45.5, 48.0",
        "0.25, -10.5, 25.75",
        "77.0, -89.5, 12.25",
        "120.5, -0.5, 1.5",
    ];
    for sql in [
        "SELECT * FROM Object WHERE scisql_s2PtInCircle(ra, decl, KEY) = 1",
        "SELECT count(*) FROM Object WHERE qserv_areaspec_circle(KEY)",
        "SELECT id, ra FROM Object WHERE qserv_areaspec_circle(KEY) AND flag < 3",
        "SELECT chunkId, count(*) FROM Object WHERE scisql_s2PtInCircle(ra, decl, KEY) = 1 GROUP BY chunkId",
    ] {
        for places in [&north[..], &south[..]] {
            let kept = execute(&sky, sql, places).await;
            assert!(from_the_third_on(&kept), "{sql}: {kept:?}");
        }
    }
    let boxes = "SELECT count(*), min(id) FROM Object WHERE ra BETWEEN KEY AND flag >= 0";
    let bounds = [
        "10.5 AND 40.25 AND decl BETWEEN -30.0 AND 5.5",
        "200.5 AND 240.75 AND decl BETWEEN -80.5 AND 20.25",
        "0.25 AND 359.5 AND decl BETWEEN -60.5 AND 89.75",
        // Nothing is in it.
        "20.5 AND 10.5 AND decl BETWEEN -30.5 AND 5.5",
        "100.5 AND 170.5 AND decl BETWEEN -0.25 AND 0.125",
    ];
    let kept = execute(&sky, boxes, &bounds).await;
    assert!(from_the_third_on(&kept), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_planning_makes_something_else_of_are_planned() {
    let sky = SmallSky::load().await;
    for sql in [
        // The number is part of the statement.
        "SELECT id, KEY AS n FROM Object WHERE id = KEY",
        "SELECT id + KEY AS n FROM Object WHERE id < 4",
        "SELECT id FROM Object WHERE id < 200 ORDER BY id LIMIT KEY",
        "SELECT id FROM Object WHERE id = KEY + 1",
        "SELECT id FROM Object WHERE id = 'KEY'",
        // Another answer tomorrow.
        "SELECT id, current_date() AS today FROM Object WHERE id = KEY",
        "SELECT id FROM Object WHERE id = KEY AND now() > TIMESTAMP '2020-01-01 00:00:00'",
        // Pairs are read by the end that the number leads to.
        "SELECT sep FROM ObjectPair WHERE leftId = KEY",
        // A join has its radius and what it tests of pairs for good.
        "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < KEY AND a.id < 30",
        "SELECT o.id, s.flux FROM Object o LEFT JOIN Source s ON o.id = s.objectId AND s.id + o.id < KEY WHERE o.id < 30",
    ] {
        let kept = execute(&sky, sql, &[17, 100, 101, 250, 2, 18]).await;
        assert_eq!(kept, [false; 6], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_about_several_tables_are_kept() {
    let sky = SmallSky::load().await;
    for sql in [
        "SELECT id FROM Object WHERE id > 200 AND id > KEY",
        "SELECT id FROM Object WHERE id IN (KEY, 5, 6, 7, 8, 9, 10)",
        "SELECT id FROM Object WHERE id NOT IN (KEY, 5, 6, 7, 8, 9, 10) AND id < 30",
        "SELECT s.flux FROM Object o JOIN Source s ON o.id = s.objectId WHERE o.id = KEY",
        "SELECT s.flux FROM Object o JOIN Source s ON o.id = s.objectId WHERE o.id = KEY AND s.flux > o.flag",
        "SELECT o.id, s.id FROM Object o LEFT JOIN Source s ON o.id = s.objectId WHERE o.id > KEY AND o.flag < 3",
        "SELECT id FROM Object o WHERE id > KEY AND EXISTS (SELECT 2 FROM Source s WHERE s.objectId = o.id AND flux > 3)",
        "SELECT id FROM Object WHERE id > KEY AND id NOT IN (SELECT objectId FROM Source WHERE flux > 3 AND objectId IS NOT NULL)",
        "SELECT name FROM Filter WHERE id = KEY",
        "SELECT f.name, count(*) FROM Source s JOIN Filter f ON s.filterId = f.id WHERE s.objectId > KEY GROUP BY f.name",
        "SELECT flux FROM Source WHERE objectId = KEY UNION ALL SELECT flux FROM Source WHERE id = 3",
        "SELECT (SELECT max(flux) FROM Source WHERE objectId = KEY) AS most",
        "SELECT id, flux FROM Source WHERE objectId = KEY AND flux = (SELECT max(flux) FROM Source WHERE objectId = KEY)",
        "SELECT id FROM Object WHERE flag > (SELECT avg(flag) FROM Object WHERE id < KEY) AND id > (SELECT min(id) + 3 FROM Object)",
        "WITH few AS (SELECT * FROM Object WHERE id < KEY) SELECT a.id FROM few a JOIN few b ON a.id = b.id WHERE b.flag > 2",
        "SELECT flag, count(*) FROM Object WHERE id > KEY GROUP BY flag HAVING count(*) > 3",
        "SELECT id, row_number() OVER (PARTITION BY flag ORDER BY id) AS n FROM Object WHERE id < KEY",
    ] {
        let kept = execute(&sky, sql, &[17, 100, 101, 250, 2, 18]).await;
        assert!(from_the_third_on(&kept), "{sql}: {kept:?}");
    }
}

/// Each statement has results of its subqueries to itself, however many run at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn statements_of_one_plan_run_side_by_side() {
    let sky = SmallSky::load().await;
    let text = |key: usize| {
        format!(
            "SELECT id FROM Source WHERE objectId = {key} AND flux = (SELECT max(flux) FROM Source WHERE objectId = {key})"
        )
    };
    let mut expected = Vec::new();
    for key in 2..40 {
        expected.push(sky.rows_afresh(&text(key)).await);
    }
    execute(&sky, &text(2), &[""; 3]).await;
    for _ in 0..5 {
        let given = futures::future::join_all((2..40).map(|key| {
            let sky = &sky;
            async move { sky.rows(&text(key)).await }
        }));
        for (given, expected) in given.await.into_iter().zip(&expected) {
            assert_eq!((&given.0, given.1), (expected, true));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_kept_for_one_load_of_the_table() {
    let sky = SmallSky::load().await;
    let sql = "SELECT flux FROM Source WHERE objectId = KEY";
    assert_eq!(
        execute(&sky, sql, &[17, 18, 19]).await,
        [false, false, true]
    );
    sky.replace_sources().await;
    assert_eq!(
        execute(&sky, sql, &[19, 17, 18, 19]).await,
        [false, false, true, true]
    );
    let (rows, _) = sky
        .rows("SELECT flux FROM Source WHERE objectId = 19")
        .await;
    assert!(rows.contains("19.75"), "{rows}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_catalog_answers_is_planned_once_for_each_state_of_it() {
    let sky = SmallSky::load().await;
    for sql in ["SELECT count(*) FROM Source", "SELECT 1 + KEY AS n"] {
        // Another number is another statement.
        let kept = execute(&sky, sql, &[17, 17, 17]).await;
        assert_eq!(kept, [false, false, true], "{sql}");
    }
    let sql = "SELECT 1 + KEY AS n";
    assert_eq!(
        execute(&sky, sql, &[18, 18, 17]).await,
        [false, false, true]
    );
    // The same number is another heading, where it is typed otherwise.
    let kept = execute(&sky, "SELECT 1 + KEY", &["2.5", "2.5", "2.50", "25e-1"]).await;
    assert_eq!(kept, [false; 4]);
    let sql = "SELECT flux * KEY FROM Source WHERE objectId = 17";
    let kept = execute(&sky, sql, &["2.5", "2.5", "2.50", "2.5"]).await;
    assert_eq!(kept, [false, false, false, true]);
    let (before, _) = sky.rows("SELECT count(*) FROM Source").await;
    sky.replace_sources().await;
    let (after, kept) = sky.rows("SELECT count(*) FROM Source").await;
    assert!(!kept);
    assert_ne!(before, after, "the number of rows before the load");
    for sql in ["SELECT random() AS n", "SELECT now() AS n"] {
        let kept = [sky.rows(sql).await.1, sky.rows(sql).await.1];
        assert_eq!(kept, [false; 2], "{sql}");
    }
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
async fn time_goes_on_between_queries() {
    let sky = SmallSky::load().await;
    let (before, _) = sky.rows("SELECT now() AS moment").await;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let (after, _) = sky.rows("SELECT now() AS moment").await;
    assert_ne!(
        before, after,
        "the same planner was used with its old clock"
    );
}

/// A cone about a declination of 95 degrees was answered by formula once other cones had been asked, and rejected before.
#[tokio::test(flavor = "multi_thread")]
async fn what_planning_rejects_is_rejected_where_a_plan_is_cached() {
    let sky = SmallSky::load().await;
    let session = sky.session_of(sql::Dialect::Adql).await;
    let cone = |numbers: &str| {
        format!("SELECT id FROM Object WHERE 1 = CONTAINS(POINT(ra, decl), CIRCLE({numbers}))")
    };
    for numbers in ["10.5, 0.5, 3.0", "20.5, 1.5, 4.0", "30.5, 2.5, 5.0"] {
        let answer = session.execute(&cone(numbers)).await.unwrap();
        let rows: Vec<_> = answer.batches.try_collect().await.unwrap();
        assert!(!rows.is_empty(), "{numbers}");
    }
    assert!(
        session
            .execute_cached(&cone("40.5, 3.5, 6.0"))
            .await
            .unwrap()
            .is_some(),
        "no plan is cached for it"
    );
    for numbers in ["10.5, 95.5, 3.0", "10.5, 0.5, 300.0"] {
        let rows = async {
            let answer = session.execute(&cone(numbers)).await?;
            answer.batches.try_collect::<Vec<_>>().await
        };
        let sentence = rows.await.expect_err(numbers).to_string();
        assert!(!sentence.contains("Execution"), "{sentence}");
    }
}

/// Of a polygon planning finds out whether it is convex, and which way round it goes.
#[tokio::test(flavor = "multi_thread")]
async fn polygons_are_planned_each_time() {
    let sky = SmallSky::load().await;
    for corners in [
        "5.5, -2.5, 15.5, -2.5, 10.5, 8.5",
        "25.5, -2.5, 35.5, -2.5, 30.5, 8.5",
        "45.5, -2.5, 55.5, -2.5, 50.5, 8.5",
        "45.5, -2.5, 50.5, 8.5, 55.5, -2.5",
    ] {
        let sql = format!(
            "SELECT id FROM Object WHERE 1 = CONTAINS(POINT(ra, decl), POLYGON({corners}))"
        );
        let (rows, kept) = sky.rows(&sql).await;
        assert_eq!(rows, sky.rows_afresh(&sql).await, "{sql}");
        assert!(!kept, "{sql}");
        assert!(rows.lines().count() > 5, "{rows}");
    }
}
