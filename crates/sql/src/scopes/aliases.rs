//! Items of a list that have the name of a column of the tables.
//!
//! As MySQL has it, a name alone in ORDER BY is the item, and one within an expression the column; GROUP BY is about the column; HAVING
//! about the item, but within aggregates, and where the column is grouped by. The planner has rules of its own, and takes no statement
//! that means both, so that an item gives up its name where the column is meant as well.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, ObjectNamePart, OrderBy, OrderByKind, Query, Select,
    SelectItem, VisitMut, VisitorMut,
};

use super::scope::Tables;
use crate::mysql::is_aggregate;
use crate::visiting::visit_mut;

/// Begins the names that items are given.
const NAMED: &str = "__named_";

/// An item of a list under another name than its own.
#[derive(Debug)]
pub(super) struct Renamed {
    pub name: String,
    pub planned: String,
}

/// Renames the items of a list where their names mean columns as well; `names_given` counts names.
pub(super) fn set_apart(
    select: &mut Select,
    mut order: Option<&mut OrderBy>,
    tables: &Tables,
    names_given: &mut usize,
) -> Vec<Renamed> {
    let mut renamed = Vec::new();
    for (at, name) in aliases(select) {
        if !tables.has(&name) || is_column_of_the_name(select, at, &name, tables) {
            continue;
        }
        let mut find = Names {
            name: &name,
            put: None,
            is_unclear: false,
        };
        find.visit(select, order.as_deref_mut());
        if !find.is_unclear {
            continue;
        }
        *names_given += 1;
        let planned = format!("{NAMED}{names_given}");
        let mut put = Names {
            name: &name,
            put: Some(Ident::new(planned.as_str())),
            is_unclear: false,
        };
        put.visit(select, order.as_deref_mut());
        if let SelectItem::ExprWithAlias { alias, .. } = &mut select.projection[at] {
            *alias = Ident::new(planned.as_str());
        }
        renamed.push(Renamed { name, planned });
    }
    renamed
}

/// The names that items are given, with the places of the items.
fn aliases(select: &Select) -> Vec<(usize, String)> {
    let items = select.projection.iter().enumerate();
    let named = items.filter_map(|(at, item)| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some((at, alias.value.clone())),
        _ => None,
    });
    named.collect()
}

/// Whether an item is the column itself that its name means.
fn is_column_of_the_name(select: &Select, at: usize, name: &str, tables: &Tables) -> bool {
    match &select.projection[at] {
        SelectItem::ExprWithAlias { expr, .. } => match plain(expr) {
            Expr::Identifier(own) => own.value == name,
            own @ Expr::CompoundIdentifier(_) => tables.value(name).as_ref() == Some(own),
            _ => false,
        },
        _ => false,
    }
}

/// An expression without parentheses around it.
pub(super) fn plain(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => plain(inner),
        other => other,
    }
}

/// The last part of a column's name.
fn column_name(expr: &Expr) -> Option<&Ident> {
    match plain(expr) {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    }
}

/// Looks for where a name in what follows a list means a column, or an item where the planner has the column, or puts another name where
/// it means the item.
struct Names<'a> {
    name: &'a str,
    put: Option<Ident>,
    /// Whether the planner would not have it as it is meant.
    is_unclear: bool,
}

impl Names<'_> {
    fn visit(&mut self, select: &mut Select, order: Option<&mut OrderBy>) {
        let mut groups_by_column = false;
        if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
            let is_it = |group: &Expr| column_name(group).is_some_and(|it| it.value == self.name);
            groups_by_column = groups.iter().any(is_it);
            self.columns_in(groups, true);
        }
        if let Some(having) = &mut select.having {
            self.columns_in(having, groups_by_column);
        }
        if let Some(OrderByKind::Expressions(keys)) = order.map(|order| &mut order.kind) {
            for key in keys {
                match plain(&key.expr) {
                    Expr::Identifier(name) if name.value == self.name => {
                        if let Some(put) = &self.put {
                            key.expr = Expr::Identifier(put.clone());
                        }
                    }
                    _ => self.columns_in(&mut key.expr, true),
                }
            }
        }
    }

    /// Visits a part in which the name means the column within aggregates, and elsewhere if `everywhere`.
    fn columns_in(&mut self, part: &mut impl VisitMut, everywhere: bool) {
        let mut visit = Visit {
            names: self,
            everywhere,
            aggregates: 0,
            queries: 0,
        };
        // It breaks off nowhere.
        let _ = visit_mut(part, &mut visit);
    }
}

struct Visit<'v, 'a> {
    names: &'v mut Names<'a>,
    everywhere: bool,
    /// How many aggregates the visit is in.
    aggregates: usize,
    /// How many subqueries the visit is in: names there have another list before them.
    queries: usize,
}

impl VisitorMut for Visit<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.aggregates += usize::from(is_aggregate_call(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.aggregates -= usize::from(is_aggregate_call(expr));
        if self.queries > 0 || column_name(expr).is_none_or(|it| it.value != self.names.name) {
            return ControlFlow::Continue(());
        }
        let is_column = self.everywhere
            || self.aggregates > 0
            || matches!(plain(expr), Expr::CompoundIdentifier(_));
        match &self.names.put {
            Some(put) if !is_column => *expr = Expr::Identifier(put.clone()),
            _ => self.names.is_unclear = true,
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression is a call of an aggregate that is not one of a window.
pub(super) fn is_aggregate_call(expr: &Expr) -> bool {
    let Expr::Function(Function {
        name, over: None, ..
    }) = expr
    else {
        return false;
    };
    let name = name.0.last().and_then(ObjectNamePart::as_ident);
    name.is_some_and(|name| is_aggregate(&name.value))
}
