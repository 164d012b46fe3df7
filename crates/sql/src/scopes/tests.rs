//! What becomes of the names of statements over tables whose columns are known.

use datafusion::sql::sqlparser::parser::Parser;

use super::*;
use crate::{TableShape, fold_case};

/// Tables a (x, v), b (x, w), c (x, w, z) and d (y).
struct Known;

impl TableShapes for Known {
    fn shape(&self, _: Option<&str>, table: &str) -> Option<TableShape> {
        let columns = match table {
            "a" => "x v",
            "b" => "x w",
            "c" => "x w z",
            "d" => "y",
            _ => return None,
        };
        Some(TableShape {
            partitioned: false,
            position: None,
            hidden: vec![],
            columns: Some(columns.split(' ').map(str::to_owned).collect()),
        })
    }

    fn all_hidden(&self) -> &'static [&'static str] {
        &[]
    }
}

fn resolved(dialect: Dialect, sql: &str) -> String {
    let folded = fold_case(dialect, sql).unwrap();
    let parsed = Parser::parse_sql(dialect.grammar(), &folded);
    let mut statement = parsed.unwrap().remove(0);
    let outcome = resolve(&SourceText::new(dialect, sql), &mut statement, &Known);
    outcome.map_or_else(|error| error.to_string(), |()| statement.to_string())
}

fn in_mysql(sql: &str) -> String {
    resolved(Dialect::MySql, sql)
}

#[test]
fn columns_in_common_come_first_and_have_the_values_of_the_kept_side() {
    for (sql, expected) in [
        (
            "SELECT * FROM a NATURAL FULL JOIN b WHERE x > 1",
            "SELECT coalesce(a.x, b.x) AS x, a.* EXCLUDE (x), b.* EXCLUDE (x) FROM a FULL JOIN b ON a.x = b.x \
             WHERE coalesce(a.x, b.x) > 1",
        ),
        (
            "SELECT * FROM a NATURAL JOIN b NATURAL JOIN c",
            "SELECT a.x AS x, b.w AS w, a.* EXCLUDE (x), c.* EXCLUDE (x, w) FROM a JOIN b ON a.x = b.x \
             JOIN c ON a.x = c.x AND b.w = c.w",
        ),
        (
            "SELECT x FROM a FULL JOIN b USING (x) FULL JOIN c USING (x)",
            "SELECT coalesce(coalesce(a.x, b.x), c.x) AS x FROM a FULL JOIN b ON a.x = b.x \
             FULL JOIN c ON coalesce(a.x, b.x) = c.x",
        ),
        (
            "SELECT * FROM a RIGHT JOIN b USING (x)",
            "SELECT b.x AS x, b.* EXCLUDE (x), a.* EXCLUDE (x) FROM a RIGHT JOIN b ON a.x = b.x",
        ),
        (
            "SELECT * FROM c NATURAL RIGHT JOIN (SELECT w, x FROM b) t",
            "SELECT t.w AS w, t.x AS x, c.* EXCLUDE (w, x) FROM c RIGHT JOIN (SELECT w, x FROM b) t ON c.w = t.w AND c.x = t.x",
        ),
        (
            "SELECT * FROM a NATURAL JOIN d",
            "SELECT * FROM a CROSS JOIN d",
        ),
        (
            "SELECT * FROM a NATURAL LEFT JOIN d",
            "SELECT * FROM a LEFT JOIN d ON true",
        ),
        (
            "SELECT v FROM a JOIN b USING (x) WHERE EXISTS (SELECT 1 FROM d WHERE y = x) AND v IN (SELECT x FROM c)",
            "SELECT v FROM a JOIN b ON a.x = b.x WHERE EXISTS (SELECT 1 FROM d WHERE y = a.x) AND v IN (SELECT x FROM c)",
        ),
        (
            "SELECT t.* FROM (SELECT * FROM a JOIN b USING (x)) t NATURAL JOIN d s JOIN c ON c.x = t.x",
            "SELECT t.* FROM (SELECT a.x AS x, a.* EXCLUDE (x), b.* EXCLUDE (x) FROM a JOIN b ON a.x = b.x) t \
             CROSS JOIN d s JOIN c ON c.x = t.x",
        ),
    ] {
        assert_eq!(in_mysql(sql), expected, "{sql}");
    }
    assert_eq!(
        resolved(Dialect::Adql, "SELECT * FROM a RIGHT JOIN b USING (x)"),
        "SELECT b.x AS x, a.* EXCLUDE (x), b.* EXCLUDE (x) FROM a RIGHT JOIN b ON a.x = b.x"
    );
}

#[test]
fn joins_stay_where_the_columns_are_not_known_or_are_not_one_of_each_side() {
    for sql in [
        "SELECT * FROM a NATURAL JOIN unknown",
        "SELECT x FROM a JOIN b USING(nothing)",
        "SELECT x FROM a JOIN b ON a.v = b.w JOIN c USING(x)",
        "SELECT * FROM a JOIN b ON a.x = b.x",
    ] {
        assert_eq!(in_mysql(sql), sql);
    }
}

#[test]
fn an_item_gives_up_its_name_where_the_column_is_meant_as_well() {
    for (sql, expected) in [
        (
            "SELECT 1 AS x, 1.5 AS x, v FROM a ORDER BY a.x",
            "SELECT 1 AS __named_1, 1.5 AS __named_2, v FROM a ORDER BY a.x",
        ),
        (
            "SELECT -x AS x FROM a ORDER BY x + 0",
            "SELECT -x AS __named_1 FROM a ORDER BY x + 0",
        ),
        (
            "SELECT -x AS x FROM a ORDER BY x, a.x",
            "SELECT -x AS __named_1 FROM a ORDER BY __named_1, a.x",
        ),
        (
            "SELECT avg(v) AS v FROM a HAVING avg(v) > 1 AND v < 5 ORDER BY avg(v)",
            "SELECT avg(v) AS __named_1 FROM a HAVING avg(v) > 1 AND __named_1 < 5 ORDER BY avg(v)",
        ),
        (
            "SELECT max(v) AS v FROM a GROUP BY x HAVING v < 5",
            "SELECT max(v) AS __named_1 FROM a GROUP BY x HAVING __named_1 < 5",
        ),
        (
            "SELECT n FROM (SELECT v, -x AS x FROM a ORDER BY x * 2 LIMIT 3) t",
            "SELECT n FROM (SELECT `v` AS `v`, __named_1 AS `x` FROM (SELECT v, -x AS __named_1 FROM a ORDER BY x * 2 LIMIT 3) AS __renamed) t",
        ),
    ] {
        assert_eq!(in_mysql(sql), expected, "{sql}");
    }
    for sql in [
        "SELECT -x AS x FROM a ORDER BY x",
        "SELECT -x AS y FROM a ORDER BY y + 0",
        "SELECT x AS x FROM a ORDER BY x + 0",
        "SELECT a.x AS x FROM a ORDER BY a.x",
    ] {
        assert_eq!(in_mysql(sql), sql);
    }
}

#[test]
fn columns_beside_groups_are_those_of_some_row() {
    for (sql, expected) in [
        (
            "SELECT a.*, count(*) FROM a GROUP BY x",
            "SELECT a.x, first_value(a.v) AS v, count(*) FROM a GROUP BY x",
        ),
        (
            "SELECT v + 1 AS y, v, x, count(*) FROM a GROUP BY y, 3, v * 2, 'k' WITH ROLLUP",
            "SELECT v + 1 AS y, first_value(v) AS v, x, count(*) FROM a GROUP BY a.v + 1, a.x, a.v * 2, 'k' WITH ROLLUP",
        ),
        (
            "SELECT x + v, (v + 1) * 2 FROM a GROUP BY v + 1 ORDER BY x, max(v)",
            "SELECT first_value(x) + first_value(v), (v + 1) * 2 FROM a GROUP BY v + 1 ORDER BY first_value(x), max(v)",
        ),
        (
            "SELECT a.x, b.x, s.v FROM a JOIN b ON a.x = b.x JOIN a s ON s.x = b.x GROUP BY a.x",
            "SELECT a.x, first_value(b.x) AS x, first_value(s.v) AS v FROM a JOIN b ON a.x = b.x JOIN a s ON s.x = b.x GROUP BY a.x",
        ),
        (
            "SELECT a.x, v + b.x FROM a JOIN b ON a.x = b.x GROUP BY x",
            "SELECT a.x, first_value(v) + first_value(b.x) FROM a JOIN b ON a.x = b.x GROUP BY a.x",
        ),
        (
            "SELECT v DIV 2 AS half, v FROM a GROUP BY half",
            "SELECT v DIV 2 AS half, first_value(v) AS v FROM a GROUP BY half",
        ),
    ] {
        assert_eq!(in_mysql(sql), expected, "{sql}");
    }
    let adql = "SELECT x, v FROM a GROUP BY x";
    assert_eq!(resolved(Dialect::Adql, adql), adql);
}

#[test]
fn expressions_of_tables_are_called_by_their_texts() {
    assert_eq!(
        in_mysql("SELECT * FROM (SELECT count(*), x+ 1, x FROM a) t"),
        "SELECT * FROM (SELECT count(*) AS `count(*)`, x + 1 AS `x+ 1`, x FROM a) t"
    );
    assert_eq!(
        in_mysql("WITH t AS (SELECT x+1 FROM a), u (n) AS (SELECT x+1 FROM a) SELECT x+1 FROM t"),
        "WITH t AS (SELECT x + 1 AS `x+1` FROM a), u (n) AS (SELECT x + 1 FROM a) SELECT x + 1 FROM t"
    );
}

#[test]
fn an_inner_table_of_with_may_have_the_name_of_an_outer_one() {
    assert_eq!(
        in_mysql(
            "WITH t AS (SELECT x FROM a) SELECT * FROM t WHERE x IN (WITH t AS (SELECT x FROM t) SELECT t.x FROM t)"
        ),
        "WITH t AS (SELECT x FROM a) SELECT * FROM t WHERE x IN \
         (WITH __with_1 AS (SELECT x FROM t) SELECT t.x FROM __with_1 AS t)"
    );
}

#[test]
fn a_name_of_items_that_differ_has_no_meaning() {
    let told = |dialect, sql: &str| resolved(dialect, sql).contains("may be several columns");
    for sql in [
        "SELECT x AS n, v AS n FROM a ORDER BY n",
        "SELECT 1 AS n, v AS n FROM a ORDER BY x, (n) DESC",
        "SELECT x, v + 1 AS X FROM a ORDER BY x",
        "SELECT a.x, b.x FROM a JOIN b ON a.x = b.x ORDER BY x",
        "SELECT y FROM (SELECT x AS y, v AS y, w FROM a ORDER BY y LIMIT 1) t (y, z)",
    ] {
        assert!(Dialect::ALL.into_iter().all(|it| told(it, sql)), "{sql}");
    }
    for sql in [
        "SELECT x AS n, v AS n FROM a GROUP BY n",
        "SELECT x, v AS x FROM a HAVING x > 1",
    ] {
        assert!(told(Dialect::MySql, sql), "{sql}");
    }
    for sql in [
        "SELECT x AS n, a.x AS n FROM a ORDER BY n",
        "SELECT x, x FROM a ORDER BY x",
        "SELECT x + 1 AS n, x+1 AS n FROM a ORDER BY n",
        "SELECT x AS n, v AS n FROM a ORDER BY 2, x, (SELECT 1 AS n ORDER BY n)",
        "SELECT x, COUNT(*) AS x FROM a GROUP BY x HAVING x > 1",
        "SELECT max(x) AS x, max(v) AS x FROM a HAVING x > 1 AND max(x) > 2",
    ] {
        assert!(!Dialect::ALL.into_iter().any(|it| told(it, sql)), "{sql}");
    }
}

/// The planner took the first of them.
#[test]
fn a_column_that_a_subquery_has_twice_has_no_name() {
    for sql in [
        "SELECT x FROM (SELECT a.x, b.x FROM a, b) t",
        "SELECT t.x FROM (SELECT * FROM a, b) t",
        "WITH t AS (SELECT a.*, b.* FROM a, b) SELECT 1 FROM t, d WHERE x > y",
        "SELECT * FROM (SELECT a.x, b.x FROM a, b) t",
        "SELECT t.* FROM d, (SELECT a.x, v AS x FROM a) t",
        "WITH t AS (SELECT a.*, b.* FROM a, b) SELECT d.v, t.* FROM t, d",
    ] {
        for dialect in Dialect::ALL {
            let told = resolved(dialect, sql);
            assert!(
                told.contains("the subquery t has two columns x: give"),
                "{told}"
            );
        }
    }
    for sql in [
        "SELECT count(*) FROM (SELECT a.x, b.x FROM a, b) t",
        "SELECT d.* FROM d, (SELECT a.x, b.x FROM a, b) t",
        "SELECT v FROM (SELECT * FROM a, b) t",
        "SELECT x FROM (SELECT a.x, b.x FROM a, b) t (x, other)",
        "SELECT * FROM (SELECT x + 1, x + 1 FROM a) t (x, other)",
    ] {
        assert_eq!(resolved(Dialect::Adql, sql), sql);
    }
}

/// Nothing was known of a SELECT with a crossmatch: what a name means was left to the planner.
#[test]
fn crossmatches_have_the_columns_of_their_sides() {
    let calls = "crossmatch((SELECT * FROM a), (SELECT * FROM b), 1, 'best', ";
    for (sql, expected) in [
        (
            format!(
                "SELECT x FROM a JOIN b USING (x) WHERE EXISTS (SELECT 1 FROM {calls}'1and2') AS m WHERE w = x AND v = x_2)"
            ),
            format!(
                "SELECT a.x AS x FROM a JOIN b ON a.x = b.x \
                 WHERE EXISTS (SELECT 1 FROM {calls}'1and2') AS m WHERE w = a.x AND v = x_2)"
            ),
        ),
        (
            format!("SELECT -v AS v FROM d JOIN {calls}'1not2') AS m ORDER BY m.v + 0"),
            format!("SELECT -v AS __named_1 FROM d JOIN {calls}'1not2') AS m ORDER BY m.v + 0"),
        ),
        (
            format!("SELECT * FROM c NATURAL JOIN {calls}'1not2') AS m"),
            format!(
                "SELECT c.x AS x, c.* EXCLUDE (x), m.* EXCLUDE (x) FROM c JOIN {calls}'1not2') AS m ON c.x = m.x"
            ),
        ),
    ] {
        assert_eq!(in_mysql(&sql), expected);
    }
}
