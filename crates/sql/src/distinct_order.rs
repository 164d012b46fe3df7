//! `SELECT DISTINCT` whose rows are ordered by expressions of its list, as in `SELECT DISTINCT a + 1 FROM t ORDER BY a + 1`. The planner
//! takes names there alone, so that such an expression gives way to the place of its column.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, VisitorMut,
};

use crate::mysql::build::{number, take};
use crate::visiting::{visit_expressions_mut, visit_mut};

/// Orders each SELECT DISTINCT of a statement by the places of the columns that its ORDER BY repeats.
pub(crate) fn order_by_places(statement: &mut Statement) {
    struct Queries;
    impl VisitorMut for Queries {
        type Break = ();
        fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            order_query_by_places(query);
            ControlFlow::Continue(())
        }
    }
    // It breaks off nowhere.
    let _ = visit_mut(statement, &mut Queries);
}

fn order_query_by_places(query: &mut Query) {
    let SetExpr::Select(select) = &*query.body else {
        return;
    };
    let Some(order) = &mut query.order_by else {
        return;
    };
    let OrderByKind::Expressions(keys) = &mut order.kind else {
        return;
    };
    if !matches!(select.distinct, Some(Distinct::Distinct)) {
        return;
    }
    let columns = columns_with_places(select);
    let is_of_one_table = matches!(select.from.as_slice(), [from] if from.joins.is_empty());
    for key in keys.iter_mut().filter(|key| !is_name_or_place(&key.expr)) {
        let wanted = comparable(&key.expr, is_of_one_table);
        let place = columns
            .iter()
            .position(|column| comparable(column, is_of_one_table) == wanted);
        // A name within an expression is a column's, also where an item is called so.
        if let Some(place) = place {
            key.expr = number(&(place + 1).to_string());
        }
    }
}

/// The expressions of the list before its first wildcard: of those after it the places are not known.
fn columns_with_places(select: &Select) -> Vec<&Expr> {
    let expressions = select.projection.iter().map_while(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    expressions.collect()
}

fn is_name_or_place(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
    )
}

/// What of an expression says which it is: how names are quoted does not, nor do parentheses, nor of one table its name.
fn comparable(expr: &Expr, is_of_one_table: bool) -> Expr {
    let mut expr = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
        match part {
            Expr::Nested(inner) => *part = take(inner),
            Expr::Identifier(name) => name.quote_style = None,
            Expr::CompoundIdentifier(names) => {
                names.iter_mut().for_each(|name| name.quote_style = None);
                if is_of_one_table && let Some(last) = names.pop() {
                    *part = Expr::Identifier(last);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    expr
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::Dialect;

    fn ordered(sql: &str) -> String {
        let mut statements = Parser::parse_sql(Dialect::MySql.grammar(), sql).unwrap();
        order_by_places(&mut statements[0]);
        statements[0].to_string()
    }

    #[test]
    fn expressions_of_the_list_become_places() {
        for (sql, expected) in [
            (
                "SELECT DISTINCT a + 1 FROM t ORDER BY a + 1 DESC",
                "SELECT DISTINCT a + 1 FROM t ORDER BY 1 DESC",
            ),
            (
                "SELECT DISTINCT b, round(t.`a`, 1) AS r FROM t ORDER BY round(a, 1), b",
                "SELECT DISTINCT b, round(t.`a`, 1) AS r FROM t ORDER BY 2, b",
            ),
            (
                "SELECT DISTINCT a + b * c FROM t ORDER BY (a + (b * c))",
                "SELECT DISTINCT a + b * c FROM t ORDER BY 1",
            ),
            (
                "SELECT DISTINCT b AS a, a + 1 FROM t ORDER BY a + 1, a",
                "SELECT DISTINCT b AS a, a + 1 FROM t ORDER BY 2, a",
            ),
            (
                "SELECT x FROM (SELECT DISTINCT -a AS x FROM t ORDER BY -a LIMIT 3) AS d",
                "SELECT x FROM (SELECT DISTINCT -a AS x FROM t ORDER BY 1 LIMIT 3) AS d",
            ),
        ] {
            assert_eq!(ordered(sql), expected);
        }
    }

    #[test]
    fn others_stay() {
        for sql in [
            "SELECT a + 1 FROM t ORDER BY a + 1",
            "SELECT DISTINCT a + 1 FROM t ORDER BY a + 2",
            "SELECT DISTINCT (a + b) * c FROM t ORDER BY a + b * c",
            "SELECT DISTINCT *, a + 1 FROM t ORDER BY a + 1",
            "SELECT DISTINCT t.a + 1 FROM t JOIN u ON t.b = u.b ORDER BY u.a + 1",
            "SELECT DISTINCT round(a, 1) FROM t ORDER BY round(a, 2)",
            "SELECT DISTINCT a FROM t ORDER BY a",
        ] {
            assert_eq!(ordered(sql), sql);
        }
    }
}
