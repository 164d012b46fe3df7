//! Constants that planning looks at: special values, and those that decide a condition.

use crate::small_sky::SmallSky;
use crate::{execute, from_the_third_on};

/// What planning guards against by looking at a constant it guards against where it sees none.
#[tokio::test(flavor = "multi_thread")]
async fn special_values_get_what_they_get_when_they_are_planned() {
    let sky = SmallSky::load().await;
    for (sql, keys) in [
        (
            "SELECT id FROM Source WHERE flux / KEY > 1",
            vec!["11", "12", "13", "0", "0.0", "-0.0", "2"],
        ),
        (
            "SELECT id FROM Source WHERE flux % KEY = 0",
            vec!["11", "12", "13", "0", "1", "2"],
        ),
        (
            "SELECT id FROM Object WHERE KEY > flag",
            vec![
                "11",
                "12",
                "13",
                "0",
                "-0.0",
                "-5",
                "2.5",
                "9223372036854775807",
            ],
        ),
        (
            "SELECT id FROM Object WHERE flag = KEY",
            vec![
                "2", "3", "4", "0", "0.0", "-0.0", "1", "1.0", "-1", "2.0", "2.5",
            ],
        ),
        (
            "SELECT id FROM Object WHERE id BETWEEN KEY AND 300",
            vec!["200", "201", "202", "-1", "301", "9223372036854775807"],
        ),
        (
            "SELECT id FROM Object WHERE scisql_s2PtInCircle(ra, decl, 10.5, 0.5, KEY) = 1",
            vec!["2.5", "3.5", "4.5", "0", "0.0", "180", "60.0"],
        ),
        (
            "SELECT id FROM Object WHERE scisql_angSep(ra, decl, 10.5, 0.5) < KEY",
            vec!["2.5", "3.5", "4.5", "0", "-1", "180", "60"],
        ),
        (
            "SELECT id FROM Object WHERE ra > KEY AND decl < 5",
            vec!["200", "201", "202", "359.99", "360", "-1", "400"],
        ),
    ] {
        execute(&sky, sql, &keys).await;
    }
}

/// Once the kept plan of `id > 200 AND id > 250` was requested `id > 17` where 17 came in the place of 250.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_another_decides_is_not_forgotten() {
    let sky = SmallSky::load().await;
    for sql in [
        "SELECT id FROM Object WHERE id > 200 AND id > KEY",
        "SELECT id FROM Object WHERE id < KEY AND id < 200",
        "SELECT id FROM Object WHERE id > '200' AND id > KEY",
        "SELECT id FROM Object WHERE id > (SELECT 200) AND id > KEY",
        "SELECT id FROM Object WHERE id < KEY AND id > '200'",
        "SELECT id FROM Object WHERE id > 200 AND id >= KEY AND flag = 200",
        "SELECT id FROM (SELECT *, 200 AS lo FROM Object) o WHERE id > lo AND id > KEY",
        "SELECT id FROM (SELECT * FROM Object WHERE id > 200) o WHERE id > KEY",
        "SELECT id, count(*) FROM Object WHERE id > KEY GROUP BY id HAVING id > 200",
        "SELECT id FROM Object WHERE id = KEY AND id > 200",
        "SELECT id FROM Object WHERE id > 200 AND id < KEY",
        "SELECT id FROM Object WHERE id > KEY AND flag < 2 AND ra > 30",
        "SELECT id FROM Object WHERE id BETWEEN 200 AND KEY",
    ] {
        let kept = execute(&sky, sql, &[250, 251, 252, 17, 300, 199]).await;
        assert!(from_the_third_on(&kept), "{sql}: {kept:?}");
    }
}

/// Of a whole number that is more than 0 and less than 2 planning knows the value, and sorts and groups by it without looking.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_constant_by_chance_is_not_taken_for_one() {
    let sky = SmallSky::load().await;
    let bounds = [(0, 2), (1, 3), (3, 5), (0, 9), (-1, 7), (2, 300)];
    let bounds = bounds.map(|(low, high)| format!("flag > {low} AND flag < {high}"));
    for sql in [
        "SELECT flag, id FROM Object WHERE KEY ORDER BY flag DESC, id LIMIT 4",
        "SELECT flag, count(*), sum(id) FROM Object WHERE KEY GROUP BY flag",
        "SELECT DISTINCT flag FROM Object WHERE KEY",
        "SELECT id, sum(id) OVER (PARTITION BY flag ORDER BY id) FROM Object WHERE KEY",
    ] {
        execute(&sky, sql, &bounds).await;
    }
    for (sql, keys) in [
        (
            "SELECT id FROM Object WHERE flag = KEY ORDER BY flag, id DESC LIMIT 3",
            [4, 2, 2, 3, 5],
        ),
        (
            "SELECT id FROM Object WHERE id = KEY AND flag < 9 ORDER BY id",
            [17, 18, 19, 400, 2],
        ),
        (
            "SELECT flux FROM Source WHERE objectId = KEY AND flux > 3 ORDER BY flux",
            [17, 18, 19, 8, 9],
        ),
    ] {
        let kept = execute(&sky, sql, &keys).await;
        assert!(from_the_third_on(&kept), "{sql}: {kept:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_were_always_the_same_are_not_taken_for_free() {
    let sky = SmallSky::load().await;
    let sql = "SELECT id FROM Object WHERE id = KEY AND flag < 2 ORDER BY id LIMIT 5";
    assert!(from_the_third_on(&execute(&sky, sql, &[17, 18, 19]).await));
    for (other, kept) in [
        (
            "SELECT id FROM Object WHERE id = 20 AND flag < 1 ORDER BY id LIMIT 5",
            false,
        ),
        (
            "SELECT id FROM Object WHERE id = 20 AND flag < 2 ORDER BY id LIMIT 0",
            false,
        ),
    ] {
        let (rows, from_kept_plan) = sky.rows(other).await;
        assert_eq!((rows, from_kept_plan), (sky.rows_afresh(other).await, kept));
    }
}

/// The 48.6 of the magnitude's formula is not in the text. A plan whose flux happens to be that must not lend it to others.
#[tokio::test(flavor = "multi_thread")]
async fn a_constant_of_a_formula_is_not_mistaken_for_a_number_of_the_text() {
    let sky = SmallSky::load().await;
    let sql = "SELECT id FROM Source WHERE scisql_fluxToAbMag(flux) < -49.0 AND flux < KEY";
    for keys in [
        ["48.6", "2.5", "7.5", "48.6", "100.5", "1.5"],
        ["7.5", "48.6", "2.5", "30.5", "48.6", "49.5"],
        ["2.5", "0.4", "10.0", "1.0", "-2.5", "49.0"],
    ] {
        execute(&sky, sql, &keys).await;
    }
}
