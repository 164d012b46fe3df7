//! What a SHOW or DESCRIBE asks for. What there is, who holds the catalog says.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ShowCreateObject, ShowStatementFilter, ShowStatementFilterPosition,
    ShowStatementOptions, Statement, Value, visit_expressions_mut,
};

/// A list of what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Of what.
    pub of: Listed,
    /// The condition on its rows, as it is typed: `LIKE 'O%'` on the first column, or `WHERE ...`.
    pub condition: Option<String>,
}

/// What is listed. Names are folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// The databases.
    Databases,
    /// The tables of a database; of the default one if none is named. With their kinds if the list is full.
    Tables {
        /// The database.
        database: Option<String>,
        /// Whether their kinds are asked for.
        full: bool,
    },
    /// The columns of a table.
    Columns(TableName),
    /// How a table would be made.
    Create(TableName),
}

/// A table's name, with its database if that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The database.
    pub database: Option<String>,
    /// The table.
    pub table: String,
}

/// The list that a statement asks for; `None` for other statements.
pub(crate) fn listing(statement: &Statement) -> Option<Listing> {
    let plain = |of| {
        Some(Listing {
            of,
            condition: None,
        })
    };
    match statement {
        Statement::ShowDatabases { show_options, .. }
        | Statement::ShowSchemas { show_options, .. } => Some(Listing {
            of: Listed::Databases,
            condition: condition(show_options, "database"),
        }),
        Statement::ShowTables {
            show_options, full, ..
        } => Some(Listing {
            of: Listed::Tables {
                database: place(show_options).map(last_part),
                full: *full,
            },
            condition: condition(show_options, "tables"),
        }),
        Statement::ShowColumns { show_options, .. } => Some(Listing {
            of: Listed::Columns(table_name(place(show_options)?)?),
            condition: condition(show_options, "field"),
        }),
        Statement::ExplainTable {
            table_name: name, ..
        } => plain(Listed::Columns(table_name(name)?)),
        Statement::ShowCreate {
            obj_type: ShowCreateObject::Table,
            obj_name,
        } => plain(Listed::Create(table_name(obj_name)?)),
        _ => None,
    }
}

fn place(options: &ShowStatementOptions) -> Option<&ObjectName> {
    options.show_in.as_ref()?.parent_name.as_ref()
}

fn last_part(name: &ObjectName) -> String {
    parts(name).pop().unwrap_or_default()
}

fn parts(name: &ObjectName) -> Vec<String> {
    let idents = name.0.iter().filter_map(|part| part.as_ident());
    idents.map(|ident| ident.value.clone()).collect()
}

fn table_name(name: &ObjectName) -> Option<TableName> {
    let mut parts = parts(name);
    let table = parts.pop()?;
    Some(TableName {
        database: parts.pop(),
        table,
    })
}

fn condition(options: &ShowStatementOptions, first_column: &str) -> Option<String> {
    let (ShowStatementFilterPosition::Infix(filter) | ShowStatementFilterPosition::Suffix(filter)) =
        options.filter_position.as_ref()?;
    Some(match filter {
        ShowStatementFilter::Where(condition) => in_adql(condition.clone()),
        ShowStatementFilter::Like(pattern)
        | ShowStatementFilter::ILike(pattern)
        | ShowStatementFilter::NoKeyword(pattern) => {
            let pattern = pattern.replace('\'', "''");
            format!("\"{first_column}\" ILIKE '{pattern}' ESCAPE '{ESCAPE}'")
        }
    })
}

/// What MySQL's patterns have before a `%` or `_` that stands for itself.
const ESCAPE: &str = "\\";

/// The text of a condition where names stand in double quotes and patterns have no escape of their own.
fn in_adql(mut condition: Expr) -> String {
    let requote = |name: &mut Ident| name.quote_style = name.quote_style.map(|_| '"');
    // It breaks off nowhere.
    let _ = visit_expressions_mut(&mut condition, |expr| {
        match expr {
            Expr::Identifier(name) => requote(name),
            Expr::CompoundIdentifier(names) => names.iter_mut().for_each(requote),
            Expr::Like { escape_char, .. } | Expr::ILike { escape_char, .. } => {
                let escape = || Value::SingleQuotedString(ESCAPE.to_owned()).into();
                escape_char.get_or_insert_with(escape);
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    condition.to_string()
}
