//! The names of a statement, found out with the columns of its tables.
//!
//! The planner takes a name in ORDER BY, HAVING or GROUP BY for a column or for an item of the list by rules of its own, has the columns
//! that `USING` and `NATURAL` make one of two of the left side, and fails where both could be meant. Here names are made such that they mean
//! one thing:
//!
//! ```text
//!   SELECT -id AS id FROM a ORDER BY id + 0          SELECT -id AS __named_1 FROM a ORDER BY id + 0
//!   SELECT * FROM a NATURAL FULL JOIN b              SELECT coalesce(a.x, b.x) AS x, a.* EXCLUDE (x), b.* EXCLUDE (x)
//!                                                    FROM a FULL JOIN b ON a.x = b.x
//!   SELECT g, v, COUNT(*) FROM a GROUP BY g          SELECT g, first_value(v) AS v, COUNT(*) FROM a GROUP BY g
//!   SELECT n FROM (SELECT COUNT(*) FROM a) t         SELECT n FROM (SELECT COUNT(*) AS `count(*)` FROM a) t
//! ```
//!
//! A SELECT of a table whose columns are not known, such as a function's, stays: [`crate::common_columns`] does what can be done then.

mod aliases;
mod groups;
mod lists;
mod needs;
mod repeated_items;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins,
    VisitMut, VisitorMut,
};

use self::aliases::Renamed;
use self::lists::{columns_of, give_names_back, query_of, write_out_common};
use self::scope::{Scope, Source, Tables};
use crate::areaspec::{TableShapes, name_parts, shape_of};
use crate::common_columns::name_of;
use crate::crossmatch::{MatchNames, joined_sides};
use crate::error::typed;
use crate::fold::fold_word;
use crate::headings::SourceText;
use crate::mysql::build::take;
use crate::visiting::visit_mut;
use crate::{Dialect, ErrorCode, SqlError};

/// Begins the names of tables of WITH whose own name another one has.
const COMMON_TABLE: &str = "__with_";

/// Makes the names of a statement such that they mean one thing.
///
/// # Errors
/// A name means a column that a table of the FROM has twice, or items that differ.
pub(crate) fn resolve(
    source: &SourceText<'_>,
    statement: &mut Statement,
    tables: &dyn TableShapes,
) -> Result<(), SqlError> {
    let query = match statement {
        Statement::Query(query) => query,
        Statement::Explain { statement, .. } => return resolve(source, statement, tables),
        _ => return Ok(()),
    };
    let mut resolver = Resolver {
        source,
        tables: needs::columns(source.dialect, query).then_some(tables),
        common_tables: vec![],
        names_given: 0,
        mistake: None,
    };
    resolver.query(query, None, Place::Result);
    resolver.mistake.map_or(Ok(()), Err)
}

/// What becomes of a query's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// They are the result, which has headings of its own, or values without names.
    Result,
    /// They are columns of a table, which are found by their names.
    Table,
}

/// A table that WITH defines.
struct CommonTable {
    name: String,
    /// What it is called where another one that is in sight has its name.
    planned: Option<String>,
    columns: Option<Vec<String>>,
}

struct Resolver<'a> {
    source: &'a SourceText<'a>,
    /// Who knows the columns of tables; nobody where no name depends on them.
    tables: Option<&'a dyn TableShapes>,
    /// The tables of WITH that are in sight, the innermost last.
    common_tables: Vec<CommonTable>,
    /// How many names have been given.
    names_given: usize,
    /// The first name that means two things.
    mistake: Option<SqlError>,
}

impl Resolver<'_> {
    /// Resolves a query; gives its columns if they are known.
    fn query(
        &mut self,
        query: &mut Query,
        outer: Option<&Scope<'_>>,
        place: Place,
    ) -> Option<Vec<String>> {
        let before = self.common_tables.len();
        if let Some(with) = &mut query.with {
            for table in &mut with.cte_tables {
                self.common_table(table, with.recursive, before);
            }
        }
        let columns = match query.body.as_mut() {
            SetExpr::Select(select) => {
                let order = query.order_by.as_mut();
                let (columns, renamed) = self.select(select, order, outer, place);
                if place == Place::Table
                    && let Some(columns) = &columns
                    && !renamed.is_empty()
                {
                    give_names_back(query, columns, &renamed);
                }
                columns
            }
            body => self.body(body, outer, place),
        };
        self.common_tables.truncate(before);
        columns
    }

    /// Resolves a table of a WITH whose first one has a place among those in sight.
    fn common_table(&mut self, table: &mut Cte, recursive: bool, first_of_with: usize) {
        let name = table.alias.name.value.clone();
        let mut earlier = self.common_tables[..first_of_with].iter();
        let planned = earlier.any(|it| it.name == name).then(|| {
            self.names_given += 1;
            format!("{COMMON_TABLE}{}", self.names_given)
        });
        let typed = columns_of_alias(&table.alias);
        if let Some(planned) = &planned {
            table.alias.name = Ident::new(planned.as_str());
        }
        let mut known = CommonTable {
            name,
            planned,
            columns: typed,
        };
        let place = match known.columns {
            Some(_) => Place::Result,
            None => Place::Table,
        };
        if recursive {
            // Its columns are those of its first part, which does not read it.
            self.common_tables.push(known);
            let columns = self.query(&mut table.query, None, place);
            if let Some(own) = self.common_tables.last_mut() {
                own.columns = own.columns.take().or(columns);
            }
            return;
        }
        let columns = self.query(&mut table.query, None, place);
        known.columns = known.columns.or(columns);
        self.common_tables.push(known);
    }

    fn body(
        &mut self,
        body: &mut SetExpr,
        outer: Option<&Scope<'_>>,
        place: Place,
    ) -> Option<Vec<String>> {
        match body {
            SetExpr::Select(select) => {
                let (columns, renamed) = self.select(select, None, outer, place);
                if place == Place::Table
                    && let Some(columns) = &columns
                    && !renamed.is_empty()
                    && let Some(mut query) = query_of("SELECT 1")
                {
                    std::mem::swap(&mut *query.body, body);
                    give_names_back(&mut query, columns, &renamed);
                    *body = *query.body;
                }
                columns
            }
            SetExpr::Query(query) => self.query(query, outer, place),
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.body(left, outer, place);
                self.body(right, outer, Place::Result);
                columns
            }
            _ => None,
        }
    }

    /// Resolves a SELECT and the ORDER BY of its query; gives its columns if they are known, and the items that it has renamed.
    fn select(
        &mut self,
        select: &mut Select,
        mut order: Option<&mut OrderBy>,
        outer: Option<&Scope<'_>>,
        place: Place,
    ) -> (Option<Vec<String>>, Vec<Renamed>) {
        if self.mistake.is_none() {
            self.mistake = repeated_items::mistake(self.source, select, order.as_deref());
        }
        if place == Place::Table {
            self.name_expressions(select);
        }
        let tables = self.tables_of(&mut select.from, outer);
        if self.mistake.is_none() {
            self.mistake = tables
                .as_ref()
                .and_then(|tables| self.repeated_in_wildcards(select, tables));
        }
        let scope = Scope {
            tables: tables.as_ref(),
            outer,
        };
        let columns = columns_of(select, tables.as_ref());
        let mut renamed = vec![];
        if let Some(tables) = &tables {
            let is_table = |columns: &Vec<String>| {
                columns.iter().collect::<HashSet<_>>().len() == columns.len()
            };
            if place == Place::Result || columns.as_ref().is_some_and(is_table) {
                renamed =
                    aliases::set_apart(select, order.as_deref_mut(), tables, &mut self.names_given);
            }
            write_out_common(select, tables);
        }
        self.names(&mut select.projection, &scope);
        self.names(&mut select.selection, &scope);
        self.names(&mut select.group_by, &scope);
        self.names(&mut select.having, &scope);
        self.names(&mut select.qualify, &scope);
        self.names(&mut select.named_window, &scope);
        self.names(&mut select.distinct, &scope);
        if let Some(order) = order.as_deref_mut() {
            self.order(order, select, &scope);
        }
        if self.source.dialect == Dialect::MySql
            && let Some(tables) = &tables
        {
            groups::choose_values(select, order, tables);
        }
        (columns, renamed)
    }

    /// What is wrong with a wildcard for the columns of a table that has two of one name.
    fn repeated_in_wildcards(&self, select: &Select, tables: &Tables) -> Option<SqlError> {
        select.projection.iter().find_map(|item| {
            let mut sources = tables.sources.iter();
            let qualifiers = match item {
                SelectItem::Wildcard(_) => vec![],
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => name_parts(name),
                _ => return None,
            };
            sources.find_map(|source| {
                let mut columns = source.columns.iter();
                let is_meant = source.is_meant_by(&qualifiers);
                let repeated = columns.find(|column| is_meant && source.repeats(column))?;
                Some(self.column_twice(source, repeated))
            })
        })
    }

    /// A column that a subquery has twice has no name by which it could be meant.
    fn column_twice(&self, source: &Source, column: &str) -> SqlError {
        let sql = self.source.sql;
        let sentence = format!(
            "the subquery {} has two columns {}: give one of them another name, as in SELECT a.{1} AS other",
            typed(sql, &source.name.to_string()),
            typed(sql, column)
        );
        let error = SqlError::about(sql, column, sentence);
        error.with_code(ErrorCode::COLUMN_TWICE)
    }

    /// Gives the expressions of a table's list the names of their texts, as those of results are headed.
    fn name_expressions(&mut self, select: &mut Select) {
        let texts = self.source.items(select);
        if texts.len() != select.projection.len() {
            return;
        }
        let mut names: HashSet<String> = HashSet::new();
        for (item, text) in select.projection.iter_mut().zip(texts) {
            let SelectItem::UnnamedExpr(expr) = item else {
                continue;
            };
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
                continue;
            }
            let name = fold_word(&self.source.heading(expr, text));
            if names.insert(name.clone()) {
                *item = SelectItem::ExprWithAlias {
                    expr: take(expr),
                    alias: Ident::with_quote('`', name),
                };
            } else if self.mistake.is_none() {
                let sentence = format!(
                    "a subquery has two columns {text}: give one of them a name, as in {text} AS other"
                );
                let error = SqlError::about(self.source.sql, text, sentence);
                self.mistake = Some(error.with_code(ErrorCode::COLUMN_TWICE));
            }
        }
    }

    /// Resolves the subqueries of a part of a SELECT, and puts the values of columns in common in the places of their names.
    fn names(&mut self, part: &mut impl VisitMut, scope: &Scope<'_>) {
        let mut names = Names {
            resolver: self,
            scope,
            depth: 0,
        };
        // It breaks off nowhere.
        let _ = visit_mut(part, &mut names);
    }

    /// The same for an ORDER BY, where a name alone is an item's first.
    fn order(&mut self, order: &mut OrderBy, select: &Select, scope: &Scope<'_>) {
        let OrderByKind::Expressions(keys) = &mut order.kind else {
            return;
        };
        let is_item = |name: &Ident| {
            select.projection.iter().any(|item| match item {
                SelectItem::ExprWithAlias { alias, .. } => alias.value == name.value,
                _ => false,
            })
        };
        for key in keys {
            match aliases::plain(&key.expr) {
                Expr::Identifier(name) if is_item(name) => {}
                _ => self.names(key, scope),
            }
        }
    }

    /// The tables of a FROM, joined, if the columns of all are known.
    fn tables_of(
        &mut self,
        from: &mut [TableWithJoins],
        outer: Option<&Scope<'_>>,
    ) -> Option<Tables> {
        let mut sources = Vec::new();
        for from in from.iter_mut() {
            self.sources(from, &mut sources);
        }
        let known: Option<Vec<Source>> = sources.into_iter().collect();
        let Some(known) = known else {
            let nothing = Scope {
                tables: None,
                outer: None,
            };
            for from in from {
                self.conditions(from, &nothing);
            }
            return None;
        };
        let mut known = known.into_iter();
        let mut tables = Some(Tables::default());
        for from in from {
            let own = self.joined(from, &mut known, outer);
            tables = tables.and_then(|tables| Some(tables.and(own?)));
        }
        tables
    }

    /// Resolves the subqueries of conditions of joins.
    fn conditions(&mut self, from: &mut TableWithJoins, scope: &Scope<'_>) {
        self.conditions_within(&mut from.relation, scope);
        for join in &mut from.joins {
            self.conditions_within(&mut join.relation, scope);
            self.names(&mut join.join_operator, scope);
        }
    }

    fn conditions_within(&mut self, factor: &mut TableFactor, scope: &Scope<'_>) {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        {
            self.conditions(table_with_joins, scope);
        }
    }

    /// Resolves what stands in the places of tables, and appends each table with its columns, or nothing where those are not known.
    fn sources(&mut self, from: &mut TableWithJoins, sources: &mut Vec<Option<Source>>) {
        self.source_of(&mut from.relation, sources);
        for join in &mut from.joins {
            self.source_of(&mut join.relation, sources);
        }
    }

    fn source_of(&mut self, factor: &mut TableFactor, sources: &mut Vec<Option<Source>>) {
        let columns = match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                self.sources(table_with_joins, sources);
                if alias.is_some() {
                    sources.push(None);
                }
                return;
            }
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => self.columns_of_table(name, alias),
            TableFactor::Derived {
                subquery, alias, ..
            } => {
                let place = match alias {
                    Some(alias) if !alias.columns.is_empty() => Place::Result,
                    _ => Place::Table,
                };
                self.query(subquery, None, place)
            }
            _ => match joined_sides(factor) {
                Some((join, [left, right])) => {
                    let left = self.query(left, None, Place::Table);
                    let right = self.query(right, None, Place::Table);
                    left.zip(right)
                        .map(|(left, right)| MatchNames::of(&left, &right).given(join, &left))
                }
                None => {
                    let nothing = Scope {
                        tables: None,
                        outer: None,
                    };
                    self.names(factor, &nothing);
                    None
                }
            },
        };
        let name = name_of(factor);
        let columns = match factor {
            TableFactor::Table {
                alias: Some(alias), ..
            }
            | TableFactor::Derived {
                alias: Some(alias), ..
            } if !alias.columns.is_empty() => {
                // Another number of names is a mistake, which the planner tells.
                let count = columns.as_ref().map(Vec::len);
                columns_of_alias(alias).filter(|names| count.is_none_or(|it| it == names.len()))
            }
            _ => columns,
        };
        let source = name.zip(columns);
        sources.push(source.map(|(name, columns)| Source::new(name, columns)));
    }

    /// The columns of a table by its name; one of WITH is called what it is called there.
    fn columns_of_table(
        &self,
        name: &mut ObjectName,
        alias: &mut Option<TableAlias>,
    ) -> Option<Vec<String>> {
        let parts = name_parts(name);
        if let [only] = parts.as_slice()
            && let Some(table) = self.common_tables.iter().rfind(|it| it.name == *only)
        {
            if let Some(planned) = &table.planned {
                let typed = Ident::new(*only);
                alias.get_or_insert_with(|| alias_of(typed));
                *name = ObjectName::from(vec![Ident::new(planned.as_str())]);
            }
            return table.columns.clone();
        }
        shape_of(self.tables?, &parts)?.columns
    }

    /// Joins the next of the known tables as a FROM has them.
    fn joined(
        &mut self,
        from: &mut TableWithJoins,
        known: &mut std::vec::IntoIter<Source>,
        outer: Option<&Scope<'_>>,
    ) -> Option<Tables> {
        let mut tables = self.factor(&mut from.relation, known, outer);
        for join in &mut from.joins {
            let right = self.factor(&mut join.relation, known, outer);
            let dialect = self.source.dialect;
            tables = match (tables, right) {
                (Some(left), Some(right)) => left.joined(right, &mut join.join_operator, dialect),
                _ => None,
            };
            let scope = Scope {
                tables: tables.as_ref(),
                outer,
            };
            self.names(&mut join.join_operator, &scope);
        }
        tables
    }

    fn factor(
        &mut self,
        factor: &mut TableFactor,
        known: &mut std::vec::IntoIter<Source>,
        outer: Option<&Scope<'_>>,
    ) -> Option<Tables> {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.joined(table_with_joins, known, outer),
            _ => known.next().map(Tables::from),
        }
    }
}

/// Resolves the subqueries of an expression, and puts the values of columns in common in the places of their names.
struct Names<'r, 'a, 's> {
    resolver: &'r mut Resolver<'a>,
    scope: &'s Scope<'s>,
    /// How many subqueries the visit is in: they have been resolved.
    depth: usize,
}

impl VisitorMut for Names<'_, '_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            self.resolver.query(query, Some(self.scope), Place::Result);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if self.resolver.mistake.is_none() {
            self.resolver.mistake = self.repeated(expr);
        }
        if let Expr::Identifier(name) = expr
            && let Some(value) = self.scope.common_value(&name.value)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}

impl Names<'_, '_, '_> {
    /// What is wrong with a column that its table has twice: MySQL has no such table, and the planner would take the first of them.
    fn repeated(&self, expr: &Expr) -> Option<SqlError> {
        let tables = self.scope.tables?;
        let names = match expr {
            Expr::Identifier(name) => std::slice::from_ref(name),
            Expr::CompoundIdentifier(names) => names.as_slice(),
            _ => return None,
        };
        let (column, qualifiers) = names.split_last()?;
        let qualifiers: Vec<&str> = qualifiers.iter().map(|it| it.value.as_str()).collect();
        let mut meant = tables
            .sources
            .iter()
            .filter(|source| source.is_meant_by(&qualifiers));
        let source = meant.find(|source| source.repeats(&column.value))?;
        Some(self.resolver.column_twice(source, &column.value))
    }
}

fn columns_of_alias(alias: &TableAlias) -> Option<Vec<String>> {
    let names = alias.columns.iter().map(|column| column.name.value.clone());
    (!alias.columns.is_empty()).then(|| names.collect())
}

fn alias_of(name: Ident) -> TableAlias {
    TableAlias {
        explicit: true,
        name,
        columns: vec![],
        at: None,
    }
}
