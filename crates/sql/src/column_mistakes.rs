//! Columns that are not there: what was probably meant, and where in the text.

use std::ops::ControlFlow;

use datafusion::common::Column;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{find_word, listing, suggestion, typed};
use crate::fold::{Places, fold_word};
use crate::visiting::visit;
use crate::{ErrorCode, SqlError, mistakes};

/// None of the columns of a statement's tables has this name. `declared` gives a folded name its declared spelling.
pub(crate) fn no_column(
    sql: &str,
    column: &Column,
    columns: &[Column],
    declared: &dyn Fn(&str) -> String,
) -> SqlError {
    let table_of = |column: &Column| column.relation.as_ref().map(|it| it.table().to_owned());
    let Some(table) = table_of(column) else {
        return not_in_any(sql, &column.name, &spellings(columns, declared));
    };
    let is_of_table = |other: &&Column| table_of(other).as_ref() == Some(&table);
    let of_table: Vec<Column> = columns.iter().filter(is_of_table).cloned().collect();
    if of_table.is_empty() {
        let mut tables: Vec<String> = Vec::new();
        for name in columns.iter().filter_map(table_of) {
            let name = typed(sql, &name);
            if !tables.contains(&name) {
                tables.push(name);
            }
        }
        return no_table_of_column(sql, &table, &column.name, &tables);
    }
    let names = spellings(&of_table, declared);
    let hint = suggestion(&column.name, &names).unwrap_or_else(|| listing("columns here", &names));
    let others = columns.iter().filter(|other| other.name == column.name);
    let hint = match others.filter_map(table_of).next() {
        Some(other) => format!("{} has one", typed(sql, &other)),
        None => hint,
    };
    let place = find_qualified(sql, &table, &column.name);
    let sentence = format!(
        "there is no column {} in {}; {hint}",
        typed(sql, &column.name),
        typed(sql, &table)
    );
    SqlError::new(sentence)
        .with_code(ErrorCode::NO_COLUMN)
        .pointing_at(
            sql,
            place
                .map(|(_, at)| at)
                .or_else(|| find_word(sql, &column.name)),
            column.name.chars().count(),
        )
}

/// The declared names of columns, each once.
fn spellings(columns: &[Column], declared: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in columns.iter().map(|column| declared(&column.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A column is said to be of a table that the FROM does not have under this name.
fn no_table_of_column(sql: &str, table: &str, column: &str, tables: &[String]) -> SqlError {
    let name = typed(sql, table);
    let hint = suggestion(table, tables).unwrap_or_else(|| listing("tables here", tables));
    let has_alias = match tables {
        [] => "",
        _ => "; a table with another name in the FROM, as in Object AS o, has that name alone",
    };
    let sentence = format!("there is no table {name} in the FROM; {hint}{has_alias}");
    let place = find_qualified(sql, table, column).map(|(at, _)| at);
    SqlError::new(sentence)
        .with_code(ErrorCode::NO_COLUMN)
        .pointing_at(
            sql,
            place.or_else(|| find_word(sql, table)),
            table.chars().count(),
        )
}

/// A name that none of the tables has as a column.
fn not_in_any(sql: &str, name: &str, names: &[String]) -> SqlError {
    let typed = typed(sql, name);
    let place = find_word(sql, name);
    let before = place.map_or("", |at| sql[..at].trim_end());
    let is_behind = |word: &str| {
        let end = before.len().saturating_sub(word.len());
        before
            .get(end..)
            .is_some_and(|it| it.eq_ignore_ascii_case(word))
    };
    if names.is_empty() && (is_behind("limit") || is_behind("offset")) {
        let sentence =
            format!("LIMIT and OFFSET take numbers of rows, as in LIMIT 10, and {typed} is none");
        return SqlError::about(sql, name, sentence).with_code(ErrorCode::SYNTAX);
    }
    if let Some(error) = misplaced_distinct(sql, name, before) {
        return error;
    }
    if let Some(error) = name_of_the_list(sql, name) {
        return error;
    }
    let mut hint = suggestion(name, names).unwrap_or_else(|| listing("columns here", names));
    if let Some(angle) = mistakes::sexagesimal_hint(name) {
        hint = angle;
    } else if typed.contains(mistakes::TYPOGRAPHIC_QUOTES) {
        let plain = typed.replace(mistakes::TYPOGRAPHIC_QUOTES, "");
        hint =
            format!("typographic quotes are none here: a text stands in plain ones, as '{plain}'");
    } else if before.ends_with(['=', '<', '>']) {
        hint.push_str(&format!("; a text stands in quotes, as '{typed}'"));
    }
    let sentence = format!("there is no column {typed}; {hint}");
    SqlError::about(sql, name, sentence).with_code(ErrorCode::NO_COLUMN)
}

/// DISTINCT behind the TOP of a SELECT, where it is read as a name. `before` is what stands before it.
fn misplaced_distinct(sql: &str, name: &str, before: &str) -> Option<SqlError> {
    let mut words = before.split_whitespace().rev();
    let number = words.next()?;
    let is_number = number.bytes().all(|it| it.is_ascii_digit());
    let is_behind_top = is_number && words.next()?.eq_ignore_ascii_case("top");
    if !is_behind_top || !matches!(name, "distinct" | "all") {
        return None;
    }
    let word = name.to_uppercase();
    let sentence = format!("{word} stands before TOP: SELECT {word} TOP {number} ...");
    Some(SqlError::about(sql, name, sentence).with_code(ErrorCode::SYNTAX))
}

/// A name that a SELECT gives to a column of its result, where it cannot be used.
fn name_of_the_list(sql: &str, name: &str) -> Option<SqlError> {
    /// Levels of a statement that are read for a hint.
    const LEVELS: usize = 50;
    let folded = fold_word(sql);
    let parser = Parser::new(&GenericDialect {}).with_recursion_limit(LEVELS);
    let statements = parser.try_with_sql(&folded).ok()?.parse_statements().ok()?;
    let mut use_of_name = UseOfName { name };
    let (clause, ident) = match visit(statements.first()?, &mut use_of_name) {
        ControlFlow::Break(found) => found,
        ControlFlow::Continue(()) => return None,
    };
    let name = typed(sql, name);
    let sentence = match clause {
        Clause::Where => format!(
            "there is no column {name}: the SELECT's list makes {name}, and WHERE decides before that which rows there are; repeat the \
             expression in WHERE, or put the condition into HAVING"
        ),
        Clause::List => format!(
            "there is no column {name}: the SELECT's list makes {name}, and the list cannot use it; repeat the expression, or select from a \
             subquery that makes it"
        ),
    };
    let at = Places::new(sql).byte(ident.span.start);
    Some(
        SqlError::new(sentence)
            .with_code(ErrorCode::NO_COLUMN)
            .pointing_at(sql, Some(at), name.chars().count()),
    )
}

/// A clause in which the names of the list cannot be used.
enum Clause {
    Where,
    List,
}

/// Looks for a SELECT that gives a column a name and uses that in its WHERE or its list.
struct UseOfName<'a> {
    name: &'a str,
}

impl Visitor for UseOfName<'_> {
    type Break = (Clause, Ident);

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        let gives_name = |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value == self.name);
        if !select.projection.iter().any(gives_name) {
            return ControlFlow::Continue(());
        }
        if let Some(used) = select
            .selection
            .as_ref()
            .and_then(|it| used_in(it, self.name))
        {
            return ControlFlow::Break((Clause::Where, used));
        }
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) = item
                && let Some(used) = used_in(expr, self.name)
            {
                return ControlFlow::Break((Clause::List, used));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Where an expression uses a name without a table's before it.
fn used_in(expr: &Expr, name: &str) -> Option<Ident> {
    struct Uses<'a>(&'a str);
    impl Visitor for Uses<'_> {
        type Break = Ident;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Ident> {
            match expr {
                Expr::Identifier(ident) if ident.value == self.0 => {
                    ControlFlow::Break(ident.clone())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match visit(expr, &mut Uses(name)) {
        ControlFlow::Break(ident) => Some(ident),
        ControlFlow::Continue(()) => None,
    }
}

/// Where a column stands behind the name of its table: the bytes at which both begin.
fn find_qualified(sql: &str, table: &str, column: &str) -> Option<(usize, usize)> {
    let quoted = ['`', '"'];
    let mut from = 0;
    while let Some(at) = find_word(&sql[from..], table).map(|at| from + at) {
        from = at + table.len();
        let rest = sql[from..].trim_start_matches(quoted).trim_start();
        let Some(rest) = rest.strip_prefix('.') else {
            continue;
        };
        let rest = rest.trim_start().trim_start_matches(quoted);
        if find_word(rest, column) == Some(0) {
            return Some((at, sql.len() - rest.len()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sql: &str, table: Option<&str>, name: &str) -> String {
        let column = |table: Option<&str>, name: &str| Column::new(table, name);
        let columns = [
            ("o", "objectid"),
            ("o", "ra"),
            ("s", "objectid"),
            ("s", "flux"),
        ];
        let columns = columns.map(|(table, name)| column(Some(table), name));
        no_column(sql, &column(table, name), &columns, &str::to_owned).to_string()
    }

    #[test]
    fn columns_are_looked_for_in_their_table() {
        let sql = "SELECT flux, o.flux FROM Object o, Source s";
        assert_eq!(
            told(sql, Some("o"), "flux"),
            format!(
                "there is no column flux in o; s has one (line 1, column 16)\n  {sql}\n{}^^^^",
                " ".repeat(17)
            )
        );
        let sql = "SELECT ra FROM Object o, Source s WHERE Object . `ra` > 1";
        let said = told(sql, Some("object"), "ra");
        assert!(
            said.starts_with(
                "there is no table Object in the FROM; tables here: o, s; a table with another name"
            ),
            "{said}"
        );
        assert!(said.contains("(line 1, column 41)"), "{said}");
    }

    #[test]
    fn names_of_the_list_are_no_columns() {
        let said = told(
            "SELECT max(ra) AS M FROM Object o\nWHERE o.m > 1 AND M > 1",
            None,
            "m",
        );
        assert!(
            said.contains("put the condition into HAVING (line 2, column 19)"),
            "{said}"
        );
        let said = told(
            "SELECT ra * 2 AS twice, twice + 1 FROM Object o",
            None,
            "twice",
        );
        assert!(
            said.contains("subquery that makes it (line 1, column 25)"),
            "{said}"
        );
        // One that another SELECT gives is none.
        let said = told(
            "SELECT 1 FROM (SELECT ra AS m FROM Object) o WHERE m2 > 1",
            None,
            "m2",
        );
        assert!(said.contains("columns here"), "{said}");
    }
}
