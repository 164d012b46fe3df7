//! Writes the database before the names of tables: for a text that is read elsewhere than where it was typed.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ObjectName, Query, TableFactor, Visitor};
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::Dialect;
use crate::fold::Places;
use crate::parse::read_statements;
use crate::visiting::visit;

/// The text with the database written before each table that it names without one; `None` if there is none, or the text cannot be read.
pub fn with_database(sql: &str, database: &str) -> Option<String> {
    let statements = read_statements(Dialect::MySql, sql).ok()?;
    let [datafusion::sql::parser::Statement::Statement(statement)] = statements.as_slice() else {
        return None;
    };
    let mut common_tables = CommonTables::default();
    // Neither breaks off.
    let _ = visit(statement, &mut common_tables);
    let mut names = Names {
        common_tables: common_tables.0,
        found: vec![],
    };
    let _ = visit(statement, &mut names);
    let places = Places::new(sql);
    let mut places: Vec<usize> = (names.found.iter()).map(|at| places.byte(*at)).collect();
    places.sort_unstable();
    places.dedup();
    if places.is_empty() {
        return None;
    }
    let prefix = format!("`{}`.", database.replace('`', "``"));
    let mut written = String::with_capacity(sql.len() + places.len() * prefix.len());
    let mut from = 0;
    for at in places {
        written.push_str(sql.get(from..at)?);
        written.push_str(&prefix);
        from = at;
    }
    written.push_str(sql.get(from..)?);
    Some(written)
}

/// The names that WITH gives, which are no tables.
#[derive(Default)]
struct CommonTables(HashSet<String>);

impl Visitor for CommonTables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0
            .extend(with.map(|table| table.alias.name.value.clone()));
        ControlFlow::Continue(())
    }
}

/// Where tables are named without a database.
struct Names {
    common_tables: HashSet<String>,
    found: Vec<Location>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name: ObjectName(parts),
            args: None,
            ..
        } = factor
            && let [part] = parts.as_slice()
            && let Some(name) = part.as_ident()
            && !self.common_tables.contains(&name.value)
            && name.span.start.line > 0
        {
            self.found.push(name.span.start);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_written_before_tables_alone() {
        for (text, expected) in [
            (
                "SELECT Star.ra, 'Star' FROM Star WHERE id IN (SELECT id FROM `Odd``One`)",
                Some(
                    "SELECT Star.ra, 'Star' FROM `my``sky`.Star WHERE id IN (SELECT id FROM `my``sky`.`Odd``One`)",
                ),
            ),
            (
                "WITH near AS (SELECT * FROM Star s JOIN other.Star t ON s.id = t.id) SELECT * FROM Near",
                Some(
                    "WITH near AS (SELECT * FROM `my``sky`.Star s JOIN other.Star t ON s.id = t.id) SELECT * FROM Near",
                ),
            ),
            (
                "SELECT 'é' AS x FROM Größe\n-- FROM Star\nLIMIT 1",
                Some("SELECT 'é' AS x FROM `my``sky`.Größe\n-- FROM Star\nLIMIT 1"),
            ),
            ("SELECT * FROM other.Star", None),
            ("SELECT 1", None),
            ("SELECT FROM", None),
        ] {
            let written = with_database(text, "my`sky");
            assert_eq!(written.as_deref(), expected, "{text}");
        }
    }
}
