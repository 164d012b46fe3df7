//! `SQL_NO_CACHE`: whether a statement says that it wants no stored result, and that its own be not stored.

use std::ops::ControlFlow;

use crate::visiting::visit;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Visitor};

/// Whether one of the SELECTs of a statement says it.
pub(crate) fn is_said(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(ast) => visit(ast, &mut Selects).is_break(),
        Statement::Explain(explain) => is_said(&explain.statement),
        _ => false,
    }
}

struct Selects;

impl Visitor for Selects {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match says(&query.body) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Whether one of the SELECTs that a query combines says it. Subqueries are visited by themselves.
fn says(body: &SetExpr) -> bool {
    let mut bodies = vec![body];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::Select(select) => {
                let modifiers = select.select_modifiers.as_ref();
                if modifiers.is_some_and(|modifiers| modifiers.sql_no_cache) {
                    return true;
                }
            }
            SetExpr::SetOperation { left, right, .. } => bodies.extend([&**left, &**right]),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::parse_in;

    fn may_be_cached(sql: &str) -> bool {
        parse_in(Dialect::MySql, sql).unwrap()[0].may_be_cached
    }

    #[test]
    fn statements_that_say_so_are_not_cached() {
        for sql in [
            "SELECT SQL_NO_CACHE a FROM t",
            "SELECT sql_no_cache 1",
            "SELECT DISTINCT SQL_NO_CACHE a FROM t",
            "SELECT /*!40001 SQL_NO_CACHE */ a FROM t",
            "SELECT a FROM t UNION SELECT SQL_NO_CACHE a FROM u",
            "SELECT a FROM (SELECT SQL_NO_CACHE a FROM t) x",
            "SELECT a FROM t WHERE a IN (SELECT SQL_NO_CACHE b FROM u)",
            "WITH x AS (SELECT SQL_NO_CACHE 1 AS a) SELECT a FROM x",
        ] {
            assert!(!may_be_cached(sql), "{sql}");
        }
    }

    /// The word was read as a column, whose alias was the column that was meant.
    #[test]
    fn sql_cache_is_a_modifier_too() {
        for (sql, plain) in [
            ("SELECT SQL_CACHE a FROM t", "SELECT a FROM t"),
            ("select sql_cache * from t", "SELECT * FROM t"),
            (
                "SELECT DISTINCT SQL_CACHE a FROM t",
                "SELECT DISTINCT a FROM t",
            ),
            ("SELECT /*!40001 SQL_CACHE */ a FROM t", "SELECT a FROM t"),
            ("SELECT /* x */ SQL_CACHE 'b' FROM t", "SELECT 'b' FROM t"),
            ("SELECT SQL_CACHE (a + 1) FROM t", "SELECT (a + 1) FROM t"),
            ("SELECT SQL_CACHE `a` FROM t", "SELECT `a` FROM t"),
            (
                "SELECT 1 FROM (SELECT SQL_CACHE a FROM t) x",
                "SELECT 1 FROM (SELECT a FROM t) x",
            ),
        ] {
            let parsed = |sql: &str| parse_in(Dialect::MySql, sql).unwrap().remove(0);
            let (with, without) = (parsed(sql), parsed(plain));
            assert_eq!(with.statement.to_string(), without.statement.to_string());
            assert!(with.may_be_cached, "{sql}");
        }
    }

    #[test]
    fn a_column_may_be_named_sql_cache() {
        for sql in [
            "SELECT sql_cache FROM t",
            "SELECT sql_cache, a FROM t",
            "SELECT sql_cache AS a FROM t",
            "SELECT t.sql_cache a FROM t",
            "SELECT sql_cache + 1 FROM t",
            "SELECT a, sql_cache b FROM t",
            "SELECT `sql_cache` a FROM t",
            "SELECT a FROM t WHERE sql_cache = 1",
        ] {
            let parsed = parse_in(Dialect::MySql, sql).unwrap().remove(0);
            assert!(parsed.statement.to_string().contains("sql_cache"), "{sql}");
        }
        let quoted = "SELECT 'select sql_cache a' FROM t";
        let parsed = parse_in(Dialect::MySql, quoted).unwrap().remove(0);
        assert!(parsed.statement.to_string().contains("select sql_cache a"));
    }

    #[test]
    fn what_reads_the_connection_is_not_cached() {
        for sql in [
            "SELECT CONNECTION_ID()",
            "SELECT a FROM t WHERE a > @a",
            "SELECT USER(), a FROM t",
            "SELECT DATABASE()",
            "SELECT @@sql_mode",
            "SELECT FOUND_ROWS()",
            "SELECT * FROM qserv_result(17)",
        ] {
            assert!(!may_be_cached(sql), "{sql}");
        }
        assert!(may_be_cached("SELECT a FROM t WHERE a > 5"));
    }
}
