//! Casts beside what they cast.
//!
//! The engine names an expression without its casts: `SUM(a)` and `SUM(CAST(a AS REAL))` are one name for two columns, where a SELECT
//! aggregates or groups by both. Casts of such a SELECT are given a name, by a function that gives its first argument:
//!
//! ```text
//!   SELECT SUM(a), SUM(CAST(a AS REAL)) FROM t
//!   SELECT SUM(a), SUM(meridian_apart(CAST(a AS REAL), 'REAL')) FROM t
//! ```
//!
//! The same cast has one name wherever it stands in the SELECT, so that what is grouped by is still found among the items. A SELECT of other
//! expressions is left as it is.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, ObjectNamePart, OrderBy, Query, Select, SelectItem, SetExpr,
    Statement, Value, VisitorMut,
};

use crate::functions::APART;
use crate::mysql::build::{call, take};
use crate::mysql::is_aggregate;
use crate::visiting::{visit_expressions, visit_expressions_mut, visit_mut};

/// Names the casts that the planner would take for what they cast.
pub(crate) fn name_apart(statement: &mut Statement) {
    // It breaks off nowhere.
    let _ = visit_mut(statement, &mut Queries);
}

struct Queries;

impl VisitorMut for Queries {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        name_in(&mut query.body, &mut query.order_by);
        ControlFlow::Continue(())
    }
}

/// Subqueries in parentheses are queries of their own.
fn name_in(body: &mut SetExpr, order: &mut Option<OrderBy>) {
    match body {
        SetExpr::Select(select) => {
            let mut parts = Parts { select, order };
            if parts.have_casts() && parts.share_names() {
                parts.name_casts();
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            name_in(left, &mut None);
            name_in(right, &mut None);
        }
        _ => {}
    }
}

/// What is computed of the rows of a SELECT, or of its groups.
struct Parts<'a> {
    select: &'a mut Select,
    order: &'a mut Option<OrderBy>,
}

impl Parts<'_> {
    fn visit<E>(&self, mut f: impl FnMut(&Expr) -> ControlFlow<E>) -> ControlFlow<E> {
        visit_expressions(&self.select.projection, &mut f)?;
        visit_expressions(&self.select.group_by, &mut f)?;
        visit_expressions(&self.select.having, &mut f)?;
        visit_expressions(&self.select.qualify, &mut f)?;
        visit_expressions(&*self.order, &mut f)
    }

    fn have_casts(&self) -> bool {
        let found = self.visit(|expr| match expr {
            Expr::Cast { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        found.is_break()
    }

    /// Whether two aggregates or windows, or two expressions beside groups, differ in casts alone. Other calls are not looked at: they may be
    /// as deep as they are long.
    fn share_names(&self) -> bool {
        let mut known = HashMap::new();
        let mut is_known = |expr: &Expr| {
            let typed = expr.to_string();
            let other = known.entry(without_casts(expr)).or_insert(typed.clone());
            *other != typed
        };
        let groups = match &self.select.group_by {
            GroupByExpr::Expressions(groups, _) => groups.as_slice(),
            GroupByExpr::All(_) => &[],
        };
        let items = self.select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        });
        let items = items.filter(|_| !groups.is_empty());
        let calls = |expr: &Expr| match expr {
            Expr::Function(call) if is_column(call) && is_known(expr) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        self.visit(calls).is_break() || groups.iter().chain(items).any(is_known)
    }

    fn name_casts(&mut self) {
        let mut name = |expr: &mut Expr| {
            if let Expr::Cast { data_type, .. } = expr {
                let name = Value::SingleQuotedString(data_type.to_string());
                *expr = call(APART, vec![take(expr), Expr::Value(name.into())]);
            }
            ControlFlow::<()>::Continue(())
        };
        // They break off nowhere.
        let _ = visit_expressions_mut(&mut self.select.projection, &mut name);
        let _ = visit_expressions_mut(&mut self.select.group_by, &mut name);
        let _ = visit_expressions_mut(&mut self.select.having, &mut name);
        let _ = visit_expressions_mut(&mut self.select.qualify, &mut name);
        let _ = visit_expressions_mut(self.order, &mut name);
    }
}

/// Whether a call is a column of its own before what it stands in is computed.
fn is_column(call: &Function) -> bool {
    let name = call.name.0.last().and_then(ObjectNamePart::as_ident);
    call.over.is_some() || name.is_some_and(|name| is_aggregate(&name.value))
}

/// The text of an expression without its casts, its parentheses, and the tables of its columns.
fn without_casts(expr: &Expr) -> String {
    let mut expr = expr.clone();
    let _ = visit_expressions_mut(&mut expr, |expr| {
        match expr {
            Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => *expr = take(inner),
            Expr::CompoundIdentifier(names) => {
                if let Some(column) = names.pop() {
                    *expr = Expr::Identifier(column);
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    expr.to_string()
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::rewritten_in;

    fn rewritten(sql: &str) -> String {
        rewritten_in(Dialect::Adql, sql)
    }

    /// They were rejected: "two columns have the name sum(a)".
    #[test]
    fn a_cast_is_named_beside_what_it_casts() {
        for (sql, wanted) in [
            (
                "SELECT SUM(a), SUM(CAST(a AS REAL)) FROM t ORDER BY SUM(CAST(a AS REAL))",
                "SELECT SUM(a), SUM(meridian_apart(CAST(a AS REAL), 'REAL')) AS __column_1 FROM t ORDER BY SUM(meridian_apart(CAST(a AS REAL), 'REAL'))",
            ),
            (
                "SELECT MAX(CAST(t.a AS REAL)), MAX(CAST(a AS INTEGER)) FROM t",
                "SELECT MAX(meridian_apart(CAST(t.a AS REAL), 'REAL')), MAX(meridian_apart(CAST(a AS INTEGER), 'INTEGER')) FROM t",
            ),
            (
                "SELECT a, CAST(a AS REAL) AS r FROM t GROUP BY a, CAST(a AS REAL) UNION ALL SELECT a, CAST(a AS REAL) FROM u",
                "SELECT a, meridian_apart(CAST(a AS REAL), 'REAL') AS r FROM t GROUP BY a, meridian_apart(CAST(a AS REAL), 'REAL') \
                 UNION ALL SELECT a, CAST(a AS REAL) AS __column_1 FROM u",
            ),
        ] {
            assert_eq!(
                rewritten(sql)
                    .replace("sum(", "SUM(")
                    .replace("max(", "MAX("),
                wanted
            );
        }
    }

    #[test]
    fn other_casts_are_left_alone() {
        for sql in [
            "SELECT a, CAST(a AS REAL) FROM t WHERE CAST(a AS REAL) > 1",
            "SELECT SUM(CAST(a AS REAL)), AVG(a) FROM t",
            "SELECT ABS(a), ABS(CAST(a AS REAL)) FROM t",
            "SELECT CAST(a AS REAL) FROM t GROUP BY CAST(a AS REAL) HAVING COUNT(*) > 1",
            "SELECT SUM(a) FROM t WHERE a > (SELECT SUM(CAST(a AS REAL)) FROM u)",
        ] {
            assert!(!rewritten(sql).contains("apart"), "{sql}");
        }
    }
}
