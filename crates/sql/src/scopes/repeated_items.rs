//! Names that several items of a list have, where one of these is meant.
//!
//! A name alone in ORDER BY is an item. Where two that differ have it, MySQL's choice depends on which of them are columns, and the planner's on which
//! comes first; nobody wants either. In GROUP BY and HAVING, where a name may be a column as well, MySQL rejects what means two columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, Visitor,
};

use super::aliases::{is_aggregate_call, plain};
use crate::error::typed;
use crate::headings::SourceText;
use crate::visiting::visit;
use crate::{Dialect, ErrorCode, SqlError};

/// What is wrong with the names in the clauses of a SELECT, if one means several items that differ.
pub(super) fn mistake(
    source: &SourceText<'_>,
    select: &Select,
    order: Option<&OrderBy>,
) -> Option<SqlError> {
    let unclear = in_order(select, order).map(|name| (name, "ORDER BY"));
    let unclear = unclear.or_else(|| match source.dialect {
        Dialect::MySql => in_groups(select),
        Dialect::Adql => None,
    });
    let (name, clause) = unclear?;
    let shown = typed(source.sql, &name);
    let sentence = format!(
        "{shown} in {clause} may be several columns of the result that are called so: give all of them but one another name, as in {shown} AS other"
    );
    let error = SqlError::about(source.sql, &name, sentence);
    Some(error.with_code(ErrorCode::AMBIGUOUS_COLUMN))
}

fn in_order(select: &Select, order: Option<&OrderBy>) -> Option<String> {
    let Some(OrderByKind::Expressions(keys)) = order.map(|order| &order.kind) else {
        return None;
    };
    let names = keys.iter().filter_map(|key| match plain(&key.expr) {
        Expr::Identifier(name) => Some(name.value.as_str()),
        _ => None,
    });
    let mut names = names.filter(|name| is_of_several(select, name, |_| true));
    names.next().map(str::to_owned)
}

fn in_groups(select: &Select) -> Option<(String, &'static str)> {
    let columns = |name: &str| is_of_several(select, name, is_column);
    if let GroupByExpr::Expressions(groups, _) = &select.group_by {
        for group in groups {
            if let Expr::Identifier(name) = plain(group)
                && columns(&name.value)
            {
                return Some((name.value.clone(), "GROUP BY"));
            }
        }
    }
    let mut names = NamesInHaving {
        is_unclear: &columns,
        depth: 0,
    };
    match visit(select.having.as_ref()?, &mut names) {
        ControlFlow::Break(name) => Some((name, "HAVING")),
        ControlFlow::Continue(()) => None,
    }
}

/// Whether several items of these have a name, and are not the same.
fn is_of_several(select: &Select, name: &str, counts: impl Fn(&Expr) -> bool) -> bool {
    let items = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => (alias.value == name).then_some(expr),
        SelectItem::UnnamedExpr(expr) => {
            let own = column_parts(expr).and_then(<[Ident]>::last)?;
            (own.value == name).then_some(expr)
        }
        _ => None,
    });
    let mut items = items.map(plain).filter(|item| counts(item));
    let Some(first) = items.next() else {
        return false;
    };
    items.any(|item| !are_same(first, item))
}

fn is_column(expr: &Expr) -> bool {
    column_parts(expr).is_some()
}

/// The parts of a column's name.
fn column_parts(expr: &Expr) -> Option<&[Ident]> {
    match plain(expr) {
        Expr::Identifier(name) => Some(std::slice::from_ref(name)),
        Expr::CompoundIdentifier(names) => Some(names),
        _ => None,
    }
}

/// Whether two expressions are the same. A column may be named with its table or without.
fn are_same(one: &Expr, other: &Expr) -> bool {
    match (column_parts(one), column_parts(other)) {
        (Some(one), Some(other)) => {
            let mut parts = one.iter().rev().zip(other.iter().rev());
            parts.all(|(one, other)| one.value == other.value)
        }
        (None, None) => one.to_string() == other.to_string(),
        _ => false,
    }
}

/// Looks for an unclear name outside of aggregates and subqueries.
struct NamesInHaving<'a> {
    is_unclear: &'a dyn Fn(&str) -> bool,
    /// How many aggregates and subqueries the visit is in.
    depth: usize,
}

impl Visitor for NamesInHaving<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        self.depth += usize::from(is_aggregate_call(expr));
        match expr {
            Expr::Identifier(name) if self.depth == 0 && (self.is_unclear)(&name.value) => {
                ControlFlow::Break(name.value.clone())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        self.depth -= usize::from(is_aggregate_call(expr));
        ControlFlow::Continue(())
    }
}
