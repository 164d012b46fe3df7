//! The names of the columns that subqueries give as values.
//!
//! The engine names an expression by its parts, and a subquery by its column: two subqueries whose columns have one name are then one
//! name for two columns, where a SELECT aggregates or groups by both. And where a subquery becomes a join, its column stands beside those
//! of its tables. So each has a name that nothing else has.
//!
//! ```text
//!   SELECT MAX((SELECT MAX(a) AS m FROM t)), MAX((SELECT MIN(a) AS m FROM t)) FROM u
//!   SELECT MAX((SELECT MAX(a) AS __value_1 FROM t)), MAX((SELECT MIN(a) AS __value_2 FROM t)) FROM u
//! ```
//!
//! The same text has one name, so that what is grouped by is still found among the items. What a subquery sorts or selects its
//! groups by may be its column's name: it keeps it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::visiting::visit_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, Statement, VisitorMut,
};

/// Begins the new names.
const COLUMN: &str = "__value_";

/// Gives the columns of subqueries names of their own.
pub(crate) fn name_apart(statement: &mut Statement) {
    // It breaks off nowhere.
    let _ = visit_mut(statement, &mut Subqueries::default());
}

/// The subqueries of a statement that stand for values, from the inside out.
#[derive(Default)]
struct Subqueries {
    /// The names that were given, by the subquery's text.
    names: HashMap<String, String>,
}

impl VisitorMut for Subqueries {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Subquery(query)
            | Expr::Exists {
                subquery: query, ..
            } => self.name(query),
            // A column of a table is found by its own name when it is decided whether the two are joined within a chunk.
            Expr::InSubquery { subquery, .. } if !is_column(subquery) => self.name(subquery),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Subqueries {
    fn name(&mut self, query: &mut Query) {
        let text = query.to_string();
        let Some(item) = renamed_item(query) else {
            return;
        };
        let number = self.names.len() + 1;
        let name = self.names.entry(text);
        let name = name.or_insert_with(|| format!("{COLUMN}{number}"));
        let alias = Ident::new(name.as_str());
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let expr = expr.clone();
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// Whether a query selects a column as it is.
fn is_column(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let [SelectItem::UnnamedExpr(item)] = select.projection.as_slice() else {
        return false;
    };
    matches!(item, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// The only item of a query's SELECT, if nothing of the query can mean it by its name.
fn renamed_item(query: &mut Query) -> Option<&mut SelectItem> {
    if query.order_by.is_some() {
        return None;
    }
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    if select.having.is_some() || select.qualify.is_some() || has_groups(&select.group_by) {
        return None;
    }
    match select.projection.as_mut_slice() {
        [item @ (SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })] => Some(item),
        _ => None,
    }
}

fn has_groups(group_by: &datafusion::sql::sqlparser::ast::GroupByExpr) -> bool {
    use datafusion::sql::sqlparser::ast::GroupByExpr;
    !matches!(group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn named(sql: &str) -> String {
        let parsed = Parser::parse_sql(crate::Dialect::MySql.grammar(), sql);
        let mut statement = parsed.unwrap().remove(0);
        name_apart(&mut statement);
        statement.to_string()
    }

    #[test]
    fn different_subqueries_have_columns_of_different_names() {
        assert_eq!(
            named(
                "SELECT MAX((SELECT a AS m FROM t)), MAX((SELECT b AS m FROM t)), (SELECT a FROM u) FROM v \
                 WHERE EXISTS (SELECT 1 AS m FROM t) AND a IN (SELECT m + 1 FROM u) AND a IN (SELECT m FROM u)"
            ),
            "SELECT MAX((SELECT a AS __value_1 FROM t)), MAX((SELECT b AS __value_2 FROM t)), (SELECT a AS __value_3 FROM u) FROM v \
             WHERE EXISTS (SELECT 1 AS __value_4 FROM t) AND a IN (SELECT m + 1 AS __value_5 FROM u) AND a IN (SELECT m FROM u)"
        );
    }

    #[test]
    fn one_text_has_one_name() {
        let grouped = "SELECT (SELECT a FROM u), (SELECT a FROM v) FROM t GROUP BY (SELECT a FROM u), (SELECT a FROM v) \
                       ORDER BY (SELECT a FROM v)";
        let apart = grouped.replace("SELECT a FROM u", "SELECT a AS __value_1 FROM u");
        let apart = apart.replace("SELECT a FROM v", "SELECT a AS __value_2 FROM v");
        assert_eq!(named(grouped), apart);
    }

    #[test]
    fn one_within_another_is_named_too() {
        assert_eq!(
            named("SELECT 1 WHERE 1 IN (SELECT -a FROM t WHERE b IN (SELECT -a FROM u))"),
            "SELECT 1 WHERE 1 IN (SELECT -a AS __value_2 FROM t WHERE b IN (SELECT -a AS __value_1 FROM u))"
        );
    }

    #[test]
    fn what_a_subquery_means_by_its_name_keeps_it() {
        for sql in [
            "SELECT (SELECT b AS m FROM t ORDER BY m LIMIT 1)",
            "SELECT (SELECT MAX(b) AS m FROM t HAVING m > 1)",
            "SELECT (SELECT b AS m FROM t GROUP BY m)",
        ] {
            assert_eq!(named(sql), sql);
        }
    }
}
