//! Columns beside groups: as MySQL has it, a column that is neither grouped by nor aggregated has the value of some row of its group.
//!
//! ```text
//!   SELECT o.*, ROUND(mag) + id FROM Object o GROUP BY ROUND(mag)
//!   SELECT first_value(o.id) AS id, first_value(o.mag) AS mag, ROUND(mag) + first_value(id) FROM Object o GROUP BY ROUND(mag)
//! ```
//!
//! Groups WITH ROLLUP are keys of an ORDER BY as well, and so written that they mean the same there.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, GroupByWithModifier, Ident, OrderBy, OrderByKind, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, VisitorMut, WildcardAdditionalOptions,
};

use super::aliases::{is_aggregate_call, plain};
use super::scope::Tables;
use crate::areaspec::name_parts;
use crate::common_columns::column_of;
use crate::mysql::build::{call, take};
use crate::visiting::{visit_expressions, visit_mut};

/// Gives the columns in a list and its ORDER BY that are not grouped by the value of some row of their group.
pub(super) fn choose_values(select: &mut Select, order: Option<&mut OrderBy>, tables: &Tables) {
    let GroupByExpr::Expressions(typed, modifiers) = &mut select.group_by else {
        return;
    };
    let is_plain = matches!(modifiers.as_slice(), [] | [GroupByWithModifier::Rollup]);
    if typed.is_empty() || !is_plain {
        return;
    }
    for group in typed.iter_mut() {
        take_from_list(group, &select.projection, tables);
        if !modifiers.is_empty() {
            write_out_columns(group, &select.projection, tables);
        }
    }
    let typed = typed.clone();
    write_out_wildcards(&mut select.projection, tables);
    let grouped = typed.iter().map(|group| {
        let meant = meant_by_group(group, &select.projection, tables);
        canonical(meant.unwrap_or(group), tables)
    });
    let grouped: HashSet<String> = grouped.collect();
    let mut choice = Choice {
        grouped: &grouped,
        tables,
        kept: 0,
    };
    for item in &mut select.projection {
        choice.choose_in_item(item);
    }
    let names = aliases(&select.projection);
    if let Some(OrderByKind::Expressions(keys)) = order.map(|order| &mut order.kind) {
        for key in keys {
            let is_item = matches!(plain(&key.expr), Expr::Identifier(name) if names.contains(&name.value))
                || matches!(plain(&key.expr), Expr::Value(_));
            if !is_item {
                choice.choose_in(&mut key.expr);
            }
        }
    }
}

/// A name that several tables have means the column of that name in the list, if there is one.
fn take_from_list(group: &mut Expr, items: &[SelectItem], tables: &Tables) {
    let Expr::Identifier(name) = plain(group) else {
        return;
    };
    if tables.value(&name.value).is_some() {
        return;
    }
    let columns = items.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(names)) => {
            (names.last()?.value == name.value).then_some(expr)
        }
        _ => None,
    });
    let columns: HashSet<&Expr> = columns.collect();
    if let [only] = columns.into_iter().collect::<Vec<_>>().as_slice() {
        *group = (*only).clone();
    }
}

/// Makes of a member of GROUP BY an expression of columns with the names of their tables, which means the same in the ORDER BY that
/// WITH ROLLUP gets: there a name alone is the list's.
fn write_out_columns(group: &mut Expr, items: &[SelectItem], tables: &Tables) {
    let mut meant = meant_by_group(group, items, tables)
        .unwrap_or(group)
        .clone();
    if matches!(plain(&meant), Expr::Value(_)) || has_subquery(&meant) {
        return;
    }
    // It breaks off nowhere.
    let _ = visit_mut(&mut meant, &mut WithTables(tables));
    *group = meant;
}

/// Puts the names of tables before those of columns.
struct WithTables<'a>(&'a Tables);

impl VisitorMut for WithTables<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => {
                if let Some(value) = self.0.value(&name.value) {
                    *expr = value;
                }
            }
            Expr::CompoundIdentifier(names) => {
                let parts: Vec<&str> = names.iter().map(|name| name.value.as_str()).collect();
                if let Some((column, qualifiers)) = parts.split_last()
                    && let Some(source) = self.0.meant_by(qualifiers)
                {
                    *expr = column_of(&source.name, &Ident::new(*column));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Puts the columns of tables in the places of their wildcards.
fn write_out_wildcards(items: &mut Vec<SelectItem>, tables: &Tables) {
    let plain = WildcardAdditionalOptions::default();
    let mut written = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        match &item {
            SelectItem::Wildcard(options) if *options == plain && !tables.has_common() => {
                let all = tables.sources.iter();
                written.extend(all.flat_map(|source| columns_of(&source.name, &source.columns)));
            }
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                options,
            ) if *options == plain => match tables.meant_by(&name_parts(name)) {
                Some(source) => written.extend(columns_of(&source.name, &source.columns)),
                None => written.push(item),
            },
            _ => written.push(item),
        }
    }
    *items = written;
}

fn columns_of<'a>(
    table: &'a datafusion::sql::sqlparser::ast::ObjectName,
    columns: &'a [String],
) -> impl Iterator<Item = SelectItem> + 'a {
    let columns = columns.iter();
    columns.map(|name| SelectItem::UnnamedExpr(column_of(table, &Ident::new(name))))
}

/// The item that a member of GROUP BY means by its place or its name, if it is one.
fn meant_by_group<'a>(group: &Expr, items: &'a [SelectItem], tables: &Tables) -> Option<&'a Expr> {
    match plain(group) {
        Expr::Identifier(name) if !tables.has(&name.value) => {
            items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if alias.value == name.value => {
                    Some(expr)
                }
                _ => None,
            })
        }
        place @ Expr::Value(_) => {
            let place: usize = place.to_string().parse().ok()?;
            match items.get(place.checked_sub(1)?)? {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    Some(expr)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn aliases(items: &[SelectItem]) -> HashSet<String> {
    let names = items.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    });
    names.collect()
}

/// The text of an expression in which every column has one name, without parentheses around parts.
fn canonical(expr: &Expr, tables: &Tables) -> String {
    struct Plain<'a>(WithTables<'a>);
    impl VisitorMut for Plain<'_> {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::Nested(inner) => {
                    *expr = take(inner);
                    ControlFlow::Continue(())
                }
                _ => self.0.post_visit_expr(expr),
            }
        }
    }
    let mut expr = expr.clone();
    // It breaks off nowhere.
    let _ = visit_mut(&mut expr, &mut Plain(WithTables(tables)));
    expr.to_string().replace('`', "")
}

/// Puts a value of the group in the places of columns, outside of aggregates, of what is grouped by and of subqueries.
struct Choice<'a> {
    grouped: &'a HashSet<String>,
    tables: &'a Tables,
    /// How deep the visit is in something that stays.
    kept: usize,
}

impl Choice<'_> {
    fn choose_in_item(&mut self, item: &mut SelectItem) {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = column_name(expr).cloned();
                let before = name.is_some().then(|| expr.clone());
                self.choose_in(expr);
                // A column goes on being called what it is called.
                if let Some(alias) = name
                    && before.as_ref() != Some(expr)
                {
                    let expr = take(expr);
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
            }
            SelectItem::ExprWithAlias { expr, .. } => self.choose_in(expr),
            _ => {}
        }
    }

    fn choose_in(&mut self, expr: &mut Expr) {
        if !has_window(expr) {
            // It breaks off nowhere.
            let _ = visit_mut(expr, self);
        }
    }

    fn stays(&self, expr: &Expr) -> bool {
        self.kept > 0
            || is_aggregate_call(expr)
            || self.grouped.contains(&canonical(expr, self.tables))
    }

    /// Whether it is a column of the tables, rather than of a query around this one.
    fn is_own_column(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Identifier(name) => self.tables.has(&name.value),
            Expr::CompoundIdentifier(names) => {
                let parts: Vec<&str> = names.iter().map(|name| name.value.as_str()).collect();
                let Some((column, qualifiers)) = parts.split_last() else {
                    return false;
                };
                let meant = self.tables.meant_by(qualifiers);
                meant.is_some_and(|source| source.has(column))
            }
            _ => false,
        }
    }
}

impl VisitorMut for Choice<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.kept += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.kept -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.stays(expr) {
            self.kept += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.kept > 0 {
            self.kept -= 1;
        } else if self.is_own_column(expr) {
            *expr = call("first_value", vec![take(expr)]);
        }
        ControlFlow::Continue(())
    }
}

fn column_name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    }
}

fn has_subquery(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn has_window(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Function(Function { over: Some(_), .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}
