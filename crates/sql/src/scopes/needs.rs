//! Whether what a statement means depends on the columns of its tables: only then are they looked up.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, JoinConstraint, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, TableWithJoins, Visit, Visitor,
};

use super::aliases::plain;
use crate::Dialect;
use crate::common_columns::kept_side;
use crate::visiting::{visit, visit_expressions};

/// Whether the columns of tables decide what a query means.
pub(super) fn columns(dialect: Dialect, query: &Query) -> bool {
    visit(query, &mut Needs { dialect }).is_break()
}

struct Needs {
    dialect: Dialect,
}

impl Visitor for Needs {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        if with.into_iter().any(|table| may_repeat(&table.query.body)) {
            return ControlFlow::Break(());
        }
        let SetExpr::Select(select) = query.body.as_ref() else {
            return ControlFlow::Continue(());
        };
        let Some(OrderByKind::Expressions(keys)) = query.order_by.as_ref().map(|order| &order.kind)
        else {
            return ControlFlow::Continue(());
        };
        let aliases = aliases(select);
        let mut keys = keys.iter().map(|key| plain(&key.expr));
        found(keys.any(|key| !matches!(key, Expr::Identifier(_)) && names_one(key, &aliases)))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let groups = match &select.group_by {
            GroupByExpr::Expressions(groups, _) => groups.as_slice(),
            GroupByExpr::All(_) => &[],
        };
        // MySQL has columns beside groups.
        let has_groups = !groups.is_empty() && self.dialect == Dialect::MySql;
        found(
            has_groups
                || select.from.iter().any(has_common_columns)
                || names_one(&select.having, &aliases(select))
                || groups
                    .iter()
                    .any(|group| names_one(group, &aliases(select))),
        )
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        found(match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => has_common_columns(table_with_joins),
            TableFactor::Derived { subquery, .. } => may_repeat(&subquery.body),
            _ => false,
        })
    }
}

fn found(is_it: bool) -> ControlFlow<()> {
    if is_it {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

fn has_common_columns(from: &TableWithJoins) -> bool {
    let mut constraints = from.joins.iter();
    constraints.any(|join| {
        matches!(
            kept_side(&join.join_operator),
            Some((_, JoinConstraint::Using(_) | JoinConstraint::Natural))
        )
    })
}

/// Whether a subquery may have two columns of one name.
fn may_repeat(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            let mut names = HashSet::new();
            if item_names(select).any(|name| !names.insert(name)) {
                return true;
            }
            let wildcards = select.projection.iter().filter(|item| {
                matches!(
                    item,
                    SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
                )
            });
            let is_of_one = matches!(select.from.as_slice(), [from] if from.joins.is_empty());
            wildcards.count() > 0 && (select.projection.len() > 1 || !is_of_one)
        }
        SetExpr::SetOperation { left, .. } => may_repeat(left),
        SetExpr::Query(query) => may_repeat(&query.body),
        _ => false,
    }
}

/// The names of the columns that items of a list are, or are given.
fn item_names(select: &Select) -> impl Iterator<Item = &str> {
    let names = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last(),
        _ => None,
    });
    names.map(|name| name.value.as_str())
}

/// The names that items of a list are given.
fn aliases(select: &Select) -> HashSet<&str> {
    let named = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.as_str()),
        _ => None,
    });
    named.collect()
}

/// Whether a part names a column as one of these items is named.
fn names_one(part: &impl Visit, aliases: &HashSet<&str>) -> bool {
    if aliases.is_empty() {
        return false;
    }
    let found = visit_expressions(part, |expr| {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        found(name.is_some_and(|name| aliases.contains(name.value.as_str())))
    });
    found.is_break()
}
