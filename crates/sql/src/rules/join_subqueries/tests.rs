//! Subqueries beside the same subqueries asked for by themselves, one row outside after the other, with the row's values written into them.

use std::sync::Arc;

use arrow::util::display::array_value_to_string;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::TableScan;
use datafusion::optimizer::Optimizer;
use datafusion::prelude::SessionContext;

use super::JoinSubqueries;

/// Values of the rows outside: id, x, k. Two are alike but for the id, which `t` has and `twice` has not.
const OUTER: [(i64, &str, &str); 6] = [
    (1, "1", "1"),
    (2, "5", "1"),
    (3, "NULL", "2"),
    (4, "9", "NULL"),
    (5, "5", "1"),
    (6, "-3", "7"),
];
const INNER: &str =
    "(0, 10, 1), (3, NULL, 1), (7, 20, 2), (NULL, 30, NULL), (3, NULL, 1), (8, 20, 2)";

/// Subqueries that give one value, of the row outside `{x}` and `{k}`.
const VALUES: &[&str] = &[
    "SELECT count(*) FROM u WHERE u.x < {x}",
    "SELECT count(*) FROM u WHERE u.k = {k}",
    "SELECT count(u.y) + 1 FROM u WHERE u.x <> {x} AND u.k = {k}",
    "SELECT max(y) FROM u WHERE u.x < {x}",
    "SELECT min(coalesce(y, -1)) FROM u WHERE u.x < {x} OR u.k = {k}",
    "SELECT sum(u.y + {x}) FROM u WHERE u.k >= {k}",
    "SELECT count(*) + {x} FROM u WHERE u.k = {k}",
    "SELECT count(DISTINCT y) FROM u WHERE u.x < {x}",
    "SELECT count(*) FROM u WHERE {x} > 3",
    "SELECT {x} + 1",
    "SELECT count(*) FROM u WHERE u.x < {x} HAVING count(*) > 1",
    "SELECT count(*) FROM u WHERE u.k = {k} HAVING count(*) < 1",
    "SELECT max(y) FROM u WHERE u.k = {k} HAVING count(*) = 0 OR max(y) > {x}",
    "SELECT y FROM u WHERE u.x < {x} ORDER BY y DESC NULLS LAST LIMIT 1",
    "SELECT x FROM u WHERE u.k = {k} ORDER BY x NULLS LAST, y LIMIT 1 OFFSET 1",
    "SELECT count(*) FROM u a JOIN u b ON a.k = b.k AND b.x < {x}",
    "SELECT count(*) FROM u a JOIN u b ON a.k = b.k WHERE a.x < {x} AND b.x > {k}",
    "SELECT count(b.y) FROM u a LEFT JOIN u b ON a.k = b.k AND a.x < b.x WHERE a.x < {x}",
    "SELECT count(*) FROM u WHERE u.x < {x} AND EXISTS (SELECT 1 FROM u z WHERE z.x > u.x AND z.k = {k})",
    "SELECT count(*) FROM u WHERE u.k = {k} AND u.y < (SELECT max(y) FROM u z WHERE z.x > u.x)",
    "SELECT count(*) FROM u WHERE u.x < {x} AND u.k IN (SELECT k FROM u z WHERE z.x > {x})",
    "SELECT count(*) FROM u WHERE u.x < {x} AND u.k NOT IN (SELECT k FROM u z WHERE z.x > 100)",
    "SELECT count(*) FROM u WHERE u.x < {x} AND (u.k NOT IN (SELECT k FROM u z WHERE z.x IS NULL) OR u.y = 10)",
    "SELECT count(*) FROM (SELECT sum(y) OVER (PARTITION BY k) AS s, x FROM u) u WHERE u.x < {x}",
];

/// Subqueries of which it is asked whether they have rows.
const ROWS: &[&str] = &[
    "SELECT 1 FROM u WHERE u.x < {x}",
    "SELECT 1 FROM u WHERE u.k = {k}",
    "SELECT count(*) FROM u WHERE u.k = {k} AND u.x > 100",
    "SELECT k FROM u WHERE u.k = {k} GROUP BY k HAVING count(*) > 1",
    "SELECT k FROM u WHERE u.x < {x} GROUP BY k HAVING count(y) < 2",
    "SELECT sum(y) FROM u WHERE u.x < {x} HAVING count(*) > 2",
    "SELECT 1 FROM u WHERE u.k = 2 AND {x} IN (SELECT z.x - 2 FROM u z WHERE z.y > 10)",
    "SELECT 1 FROM u WHERE u.k < 3 AND ({x} > 8 OR EXISTS (SELECT 1 FROM u z WHERE z.x = 7 AND z.k = u.k))",
    "SELECT 1 FROM u WHERE u.x < {x} AND {x} IN (SELECT z.x - 2 FROM u z WHERE z.k > u.k)",
    "SELECT DISTINCT y FROM u WHERE u.x < {x}",
    "SELECT 1 FROM u WHERE u.k = {k} LIMIT 1",
    "SELECT 1 FROM u WHERE u.k = {k} LIMIT 1 OFFSET 1",
    "SELECT 1 FROM u WHERE u.k = {k} LIMIT 0",
    "SELECT 1 FROM (SELECT x, row_number() OVER (ORDER BY x) AS n FROM u) u WHERE u.n > {x}",
];

/// Tables of these names have the key `id`.
fn key_of(scan: &TableScan) -> Option<String> {
    (scan.table_name.table() == "t").then(|| "id".to_owned())
}

async fn context() -> SessionContext {
    let mut rules = Optimizer::new().rules;
    let place = rules
        .iter()
        .position(|rule| rule.name() == "decorrelate_predicate_subquery");
    rules.insert(place.unwrap(), Arc::new(JoinSubqueries::new(key_of)));
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_optimizer_rules(rules)
        .build();
    let context = SessionContext::new_with_state(state);
    let rows = OUTER
        .map(|(id, x, k)| format!("({id}, {x}, {k})"))
        .join(", ");
    for (table, columns, rows) in [
        ("t", "(id, x, k)", &rows),
        ("twice", "(id, x, k)", &format!("{rows}, {rows}")),
        ("u", "(x, y, k)", &INNER.to_owned()),
    ] {
        let made = format!("CREATE TABLE {table} AS SELECT * FROM (VALUES {rows}) AS v {columns}");
        context.sql(&made).await.unwrap().collect().await.unwrap();
    }
    context
}

/// The rows of a query as texts, sorted.
async fn rows(context: &SessionContext, query: &str) -> Vec<String> {
    let plan = context.sql(query).await;
    let plan = plan.unwrap_or_else(|error| panic!("{query}: {error}"));
    let batches = plan.collect().await;
    let batches = batches.unwrap_or_else(|error| panic!("{query}: {error}"));
    let mut found = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter();
            let values = values.map(|column| array_value_to_string(column, row).unwrap());
            found.push(values.collect::<Vec<_>>().join(","));
        }
    }
    found.sort();
    found
}

fn for_row(subquery: &str, x: &str, k: &str) -> String {
    let typed = |value: &str| format!("CAST({value} AS BIGINT)");
    subquery.replace("{x}", &typed(x)).replace("{k}", &typed(k))
}

fn correlated(subquery: &str) -> String {
    subquery.replace("{x}", "o.x").replace("{k}", "o.k")
}

/// What an expression with a subquery is, by the rows that the subquery has by itself.
type Meaning = fn(&[String]) -> String;

/// Whether a row outside of this number is kept, by whether an expression holds for it.
type Keeps = fn(i64, bool) -> bool;

fn first(rows: &[String]) -> String {
    // NULL is an empty text, and so is the value of no rows.
    rows.first().cloned().unwrap_or_default()
}

fn are_some(rows: &[String]) -> String {
    (!rows.is_empty()).to_string()
}

fn are_none(rows: &[String]) -> String {
    rows.is_empty().to_string()
}

fn first_is_above_two(rows: &[String]) -> String {
    first(rows)
        .parse()
        .is_ok_and(|value: i64| value > 2)
        .to_string()
}

fn have_one(rows: &[String]) -> String {
    rows.iter().any(|row| row == "1").to_string()
}

/// What a subquery means for each of the rows outside, asked for one after the other.
async fn one_by_one(
    context: &SessionContext,
    subquery: &str,
    meaning: Meaning,
) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    for (id, x, k) in OUTER {
        let asked = for_row(subquery, x, k);
        found.push((id, meaning(&rows(context, &asked).await)));
    }
    found
}

#[tokio::test]
async fn each_row_has_its_own_value() {
    let context = context().await;
    let forms: [(&str, &[&str], Meaning); 3] = [
        ("({})", VALUES, first),
        ("EXISTS ({})", ROWS, are_some),
        ("NOT EXISTS ({})", ROWS, are_none),
    ];
    for (form, subqueries, meaning) in forms {
        for subquery in subqueries {
            let values = one_by_one(&context, subquery, meaning).await;
            let asked = correlated(&form.replace("{}", subquery));
            for (table, times) in [("t", 1), ("twice", 2)] {
                let of_row = |(id, value): &(i64, String)| {
                    std::iter::repeat_n(format!("{id},{value}"), times)
                };
                let expected: Vec<String> = values.iter().flat_map(of_row).collect();
                let as_item = format!("SELECT o.id, {asked} FROM {table} o");
                assert_eq!(rows(&context, &as_item).await, expected, "{as_item}");
                let twice = format!(
                    "SELECT o.id, {asked} AS a, {asked} AS b FROM (SELECT * FROM {table} WHERE id > 1) o"
                );
                let of_row = |(id, value): &(i64, String)| {
                    std::iter::repeat_n(format!("{id},{value},{value}"), times)
                };
                let pairs: Vec<String> = values[1..].iter().flat_map(of_row).collect();
                assert_eq!(rows(&context, &twice).await, pairs, "{twice}");
            }
        }
    }
}

#[tokio::test]
async fn conditions_hold_for_their_rows_alone() {
    let context = context().await;
    let forms: [(&str, &[&str], Meaning); 5] = [
        ("({}) > 2", VALUES, first_is_above_two),
        ("EXISTS ({})", ROWS, are_some),
        ("NOT EXISTS ({})", ROWS, are_none),
        ("1 IN ({})", ROWS, have_one),
        ("1 IN ({})", VALUES, have_one),
    ];
    let conditions: [(&str, Keeps); 3] = [
        ("{}", |_, holds| holds),
        ("o.id < 5 AND {}", |id, holds| id < 5 && holds),
        ("o.id = 6 OR {}", |id, holds| id == 6 || holds),
    ];
    for (form, subqueries, meaning) in forms {
        for subquery in subqueries {
            let values = one_by_one(&context, subquery, meaning).await;
            let expression = form.replace("{}", subquery);
            for (condition, keeps) in conditions {
                let kept = values
                    .iter()
                    .filter(|(id, value)| keeps(*id, value == "true"));
                let expected: Vec<String> = kept.map(|(id, _)| id.to_string()).collect();
                let condition = correlated(&condition.replace("{}", &expression));
                let asked = format!("SELECT o.id FROM t o WHERE {condition}");
                assert_eq!(rows(&context, &asked).await, expected, "{asked}");
            }
        }
    }
}

/// The names of tables within a subquery hide those outside, and a subquery's subquery may name either.
#[tokio::test]
async fn names_are_of_the_nearest_query_that_has_them() {
    let context = context().await;
    let hidden = "SELECT id, (SELECT count(*) FROM t WHERE t.x < o.x) FROM t o WHERE id < 4";
    assert_eq!(rows(&context, hidden).await, ["1,1", "2,2", "3,0"]);
    let within = "SELECT id, (SELECT count(*) FROM u WHERE u.x < t.x AND (SELECT count(*) FROM u z WHERE z.x < u.x AND z.k <> t.k) >= 0)
                  FROM t WHERE id < 3";
    assert_eq!(rows(&context, within).await, ["1,1", "2,3"]);
}

/// A plan in which each piece of the rows outside is by itself, since a key tells its rows apart.
#[tokio::test]
async fn rows_with_a_key_are_not_numbered() {
    let context = context().await;
    for (table, is_numbered) in [("t", false), ("twice", true)] {
        let query = format!("SELECT id, (SELECT max(y) FROM u WHERE u.x < o.x) FROM {table} o");
        let plan = context
            .sql(&query)
            .await
            .unwrap()
            .into_optimized_plan()
            .unwrap();
        let plan = plan.display_indent().to_string();
        assert_eq!(plan.contains("row_number()"), is_numbered, "{plan}");
        assert!(plan.contains("Left Join"), "{plan}");
    }
}

#[tokio::test]
async fn what_cannot_be_joined_is_rejected() {
    let context = context().await;
    let query = "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.x < t.x UNION ALL SELECT 2 FROM u WHERE u.k = t.k) FROM t";
    let error = context
        .sql(query)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("within a UNION is not supported"),
        "{error}"
    );
}
