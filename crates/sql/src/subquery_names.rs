//! The names of the columns that subqueries give as values.
//!
//! The engine names an expression by its parts, and a subquery by its column: two subqueries whose columns have one name are then one
//! name for two columns, where a SELECT aggregates or groups by both.
//!
//! ```text
//!   SELECT MAX((SELECT MAX(a) AS m FROM t)), MAX((SELECT MIN(a) AS m FROM t)) FROM u
//!   SELECT MAX((SELECT MAX(a) AS m FROM t)), MAX((SELECT MIN(a) AS __value_1 FROM t)) FROM u
//! ```
//!
//! The same text keeps one name, so that what is grouped by is still found among the items. What a subquery sorts or selects its
//! groups by may be its column's name: it keeps it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, Statement, VisitMut, VisitorMut,
};

/// Begins the new names.
const COLUMN: &str = "__value_";

/// Gives the columns of different subqueries of a SELECT different names.
pub(crate) fn name_apart(statement: &mut Statement) {
    // It breaks off nowhere.
    let _ = statement.visit(&mut Queries);
}

struct Queries;

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut values = Values::default();
        if let SetExpr::Select(select) = query.body.as_mut() {
            // It breaks off nowhere.
            let _ = select.projection.visit(&mut values);
            let _ = select.group_by.visit(&mut values);
            let _ = select.having.visit(&mut values);
            let _ = query.order_by.visit(&mut values);
        }
        ControlFlow::Continue(())
    }
}

/// The subqueries of one SELECT, but not those within them.
#[derive(Default)]
struct Values {
    /// The texts of the subqueries whose column has a name.
    texts: HashMap<String, Vec<String>>,
    /// How many columns have a new name.
    renamed: usize,
    new_names: HashMap<String, String>,
    depth: usize,
}

impl VisitorMut for Values {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Subquery(query) = expr
        {
            self.name(query);
        }
        ControlFlow::Continue(())
    }
}

impl Values {
    fn name(&mut self, query: &mut Query) {
        let text = query.to_string();
        let Some(item) = renamed_item(query) else {
            return;
        };
        let name = match &*item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            other => other.to_string(),
        };
        let texts = self.texts.entry(name).or_default();
        if texts.is_empty() {
            texts.push(text);
            return;
        }
        if texts[0] == text {
            return;
        }
        let renamed = &mut self.renamed;
        let name = self.new_names.entry(text).or_insert_with(|| {
            *renamed += 1;
            format!("{COLUMN}{renamed}")
        });
        let alias = Ident::new(name.as_str());
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let expr = expr.clone();
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
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
                "SELECT MAX((SELECT a AS m FROM t)), MAX((SELECT b AS m FROM t)), (SELECT a FROM u), (SELECT a FROM v)"
            ),
            "SELECT MAX((SELECT a AS m FROM t)), MAX((SELECT b AS __value_1 FROM t)), (SELECT a FROM u), \
             (SELECT a AS __value_2 FROM v)"
        );
    }

    #[test]
    fn one_text_keeps_one_name() {
        let grouped = "SELECT (SELECT a FROM u), (SELECT a FROM v) FROM t GROUP BY (SELECT a FROM u), (SELECT a FROM v) \
                       ORDER BY (SELECT a FROM v)";
        let name = "SELECT a AS __value_1 FROM v";
        assert_eq!(named(grouped), grouped.replace("SELECT a FROM v", name));
        let same = "SELECT MAX((SELECT a AS m FROM t)), MIN((SELECT a AS m FROM t)) FROM u";
        assert_eq!(named(same), same);
    }

    #[test]
    fn what_a_subquery_means_by_its_name_keeps_it() {
        for sql in [
            "SELECT (SELECT a AS m FROM t), (SELECT b AS m FROM t ORDER BY m LIMIT 1)",
            "SELECT (SELECT a AS m FROM t), (SELECT MAX(b) AS m FROM t HAVING m > 1)",
            "SELECT (SELECT a AS m FROM t), (SELECT b AS m FROM t GROUP BY m)",
        ] {
            assert_eq!(named(sql), sql);
        }
    }
}
