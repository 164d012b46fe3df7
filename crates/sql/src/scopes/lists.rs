//! The list of a SELECT: its columns, those that joins have made one of two, and items that have given up their names.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableFactor, TableWithJoins, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::aliases::Renamed;
use super::scope::Tables;
use crate::areaspec::name_parts;
use crate::common_columns::named;

/// The columns of a SELECT's list, if all of them are known.
pub(super) fn columns_of(select: &Select, tables: Option<&Tables>) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let plain = WildcardAdditionalOptions::default();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => columns.push(alias.value.clone()),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => columns.push(name.value.clone()),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
                columns.push(names.last()?.value.clone());
            }
            SelectItem::Wildcard(options) if *options == plain => columns.extend(tables?.names()),
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                options,
            ) if *options == plain => {
                let source = tables?.meant_by(&name_parts(name))?;
                columns.extend(source.columns.iter().cloned());
            }
            _ => return None,
        }
    }
    Some(columns)
}

/// Writes out a `*` over tables that have columns in common, and names such columns where they stand alone.
pub(super) fn write_out_common(select: &mut Select, tables: &Tables) {
    if !tables.has_common() {
        return;
    }
    let plain = WildcardAdditionalOptions::default();
    let mut projection = Vec::with_capacity(select.projection.len());
    for item in select.projection.drain(..) {
        match item {
            SelectItem::Wildcard(options) if options == plain => projection.extend(tables.all()),
            SelectItem::UnnamedExpr(Expr::Identifier(name))
                if tables.common_value(&name.value).is_some() =>
            {
                projection.push(named(name));
            }
            other => projection.push(other),
        }
    }
    select.projection = projection;
}

/// Makes a query whose items have been renamed a table with their names.
pub(super) fn give_names_back(query: &mut Query, columns: &[String], renamed: &[Renamed]) {
    let items = columns.iter().map(|column| {
        let name = Ident::with_quote('`', column.as_str());
        let of_it = renamed.iter().find(|it| it.name == *column);
        let expr = Expr::Identifier(match of_it {
            Some(renamed) => Ident::new(renamed.planned.as_str()),
            None => name.clone(),
        });
        SelectItem::ExprWithAlias { expr, alias: name }
    });
    let Some(mut around) = query_of("SELECT 1 FROM (SELECT 1) AS __renamed") else {
        return;
    };
    if let SetExpr::Select(select) = around.body.as_mut()
        && let [TableWithJoins { relation, .. }] = select.from.as_mut_slice()
        && let TableFactor::Derived { subquery, .. } = relation
    {
        select.projection = items.collect();
        std::mem::swap(&mut **subquery, query);
        *query = *around;
    }
}

/// The query of a text that is one.
pub(super) fn query_of(text: &str) -> Option<Box<Query>> {
    let mut statements = Parser::parse_sql(&GenericDialect {}, text).ok()?;
    match statements.pop()? {
        Statement::Query(query) => Some(query),
        _ => None,
    }
}
