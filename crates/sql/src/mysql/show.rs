//! Parses SHOW and DESCRIBE. The owner of the catalog produces their rows.

use std::ops::ControlFlow;

use crate::visiting::visit_expressions_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ShowStatementFilter, Statement, Value,
};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// A SHOW or DESCRIBE statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowStatement {
    /// What it lists.
    pub of: ShowKind,
    /// The condition on its rows, as typed: `LIKE 'O%'` on the first column, or `WHERE ...`.
    pub condition: Option<String>,
}

/// What a SHOW statement lists. Names are folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShowKind {
    /// The databases.
    Databases,
    /// The tables of a database, by default of the default one; with their kinds if the list is full.
    Tables {
        /// The database.
        database: Option<String>,
        /// Whether their kinds are listed.
        full: bool,
    },
    /// The tables of a database with their properties.
    TableStatus {
        /// The database; the default one if none is named.
        database: Option<String>,
    },
    /// The columns of a table.
    Columns {
        /// The table.
        table: TableName,
        /// Whether their collations and comments are listed.
        full: bool,
    },
    /// The keys of a table.
    Keys(TableName),
    /// The CREATE TABLE statement of a table.
    Create(TableName),
    /// The CREATE DATABASE statement of a database.
    CreateDatabase(String),
    /// The system variables.
    Variables {
        /// The global values.
        global: bool,
    },
    /// The server's status variables.
    Status,
    /// The process list.
    Processes {
        /// With complete statements.
        full: bool,
    },
    /// The privileges of the user.
    Grants,
    /// How much the user may take, and takes.
    Limits,
    /// The warnings of the last statement: from an offset on, at most so many.
    Warnings {
        /// The offset, from 0.
        from: usize,
        /// The maximum number; `None` for all.
        most: Option<usize>,
    },
    /// The number of warnings.
    WarningCount,
    /// A list that never changes.
    StaticList(StaticList),
}

/// Lists that never change, most of them of features that Meridian does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticList {
    /// Character sets.
    CharacterSets,
    /// Collations.
    Collations,
    /// Storage engines.
    Engines,
    /// Events.
    Events,
    /// Open tables.
    OpenTables,
    /// Plugins.
    Plugins,
    /// Privileges.
    Privileges,
    /// Stored procedures and functions.
    Routines,
    /// Triggers.
    Triggers,
    /// The errors of the last statement, which were reported already.
    Errors,
    /// Their number.
    ErrorCount,
}

/// A table's name, with its database if that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The database.
    pub database: Option<String>,
    /// The table.
    pub table: String,
}

/// Parses a SHOW. For any other statement `None`, and the parser does not advance.
pub(crate) fn read_show(parser: &mut Parser<'_>) -> Result<Option<ShowStatement>, ParserError> {
    if !word(parser, "show") {
        return Ok(None);
    }
    let _ = word(parser, "extended");
    let full = word(parser, "full");
    let global = word(parser, "global");
    let _ = word(parser, "session") || word(parser, "local") || word(parser, "storage");
    let (of, first_column) = listed(parser, full, global)?;
    let filter = parser.parse_show_statement_filter()?;
    let condition = filter.map(|filter| condition(filter, first_column));
    let of = match of {
        ShowKind::Warnings { .. } => {
            let (from, most) = limit(parser)?;
            ShowKind::Warnings { from, most }
        }
        ShowKind::StaticList(StaticList::Errors) => {
            // There are none, whichever are requested.
            limit(parser)?;
            of
        }
        of => of,
    };
    Ok(Some(ShowStatement { of, condition }))
}

/// The list that is requested, and the column to which a LIKE applies.
fn listed(
    parser: &mut Parser<'_>,
    full: bool,
    global: bool,
) -> Result<(ShowKind, &'static str), ParserError> {
    if word(parser, "table") {
        return match word(parser, "status") {
            true => {
                let database = database(parser)?;
                Ok((ShowKind::TableStatus { database }, "name"))
            }
            false => parser.expected_ref("STATUS", parser.peek_token_ref()),
        };
    }
    if word(parser, "databases") || word(parser, "schemas") {
        return Ok((ShowKind::Databases, "database"));
    }
    if word(parser, "tables") {
        let database = database(parser)?;
        return Ok((ShowKind::Tables { database, full }, "tables"));
    }
    if word(parser, "columns") || word(parser, "fields") {
        let table = table(parser)?;
        return Ok((ShowKind::Columns { table, full }, "field"));
    }
    if word(parser, "index") || word(parser, "indexes") || word(parser, "keys") {
        return Ok((ShowKind::Keys(table(parser)?), "key_name"));
    }
    if word(parser, "create") {
        return Ok((created(parser)?, ""));
    }
    if word(parser, "variables") {
        return Ok((ShowKind::Variables { global }, "variable_name"));
    }
    if word(parser, "status") {
        return Ok((ShowKind::Status, "variable_name"));
    }
    if word(parser, "processlist") {
        return Ok((ShowKind::Processes { full }, "user"));
    }
    if word(parser, "grants") {
        if word(parser, "for") {
            // Another user's are no list, but a command.
            while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
                parser.advance_token();
            }
        }
        return Ok((ShowKind::Grants, ""));
    }
    if word(parser, "limits") {
        return Ok((ShowKind::Limits, "name"));
    }
    if word(parser, "warnings") {
        let (from, most) = (0, None);
        return Ok((ShowKind::Warnings { from, most }, "message"));
    }
    if word(parser, "count") {
        return Ok((counted(parser)?, ""));
    }
    let (static_lists, first_column) = static_lists(parser)?;
    Ok((ShowKind::StaticList(static_lists), first_column))
}

/// `COUNT(*) WARNINGS`, or of errors.
fn counted(parser: &mut Parser<'_>) -> Result<ShowKind, ParserError> {
    for token in [Token::LParen, Token::Mul, Token::RParen] {
        parser.expect_token(&token)?;
    }
    if word(parser, "warnings") {
        Ok(ShowKind::WarningCount)
    } else if word(parser, "errors") {
        Ok(ShowKind::StaticList(StaticList::ErrorCount))
    } else {
        parser.expected_ref("WARNINGS or ERRORS", parser.peek_token_ref())
    }
}

fn created(parser: &mut Parser<'_>) -> Result<ShowKind, ParserError> {
    if word(parser, "table") || word(parser, "view") {
        return Ok(ShowKind::Create(named(parser)?));
    }
    if !word(parser, "database") && !word(parser, "schema") {
        return parser.expected_ref("TABLE or DATABASE", parser.peek_token_ref());
    }
    let _ = word(parser, "if") && word(parser, "not") && word(parser, "exists");
    Ok(ShowKind::CreateDatabase(parser.parse_identifier()?.value))
}

fn static_lists(parser: &mut Parser<'_>) -> Result<(StaticList, &'static str), ParserError> {
    let found = if word(parser, "charset") || (word(parser, "character") && word(parser, "set")) {
        (StaticList::CharacterSets, "charset")
    } else if word(parser, "collation") {
        (StaticList::Collations, "collation")
    } else if word(parser, "engines") {
        (StaticList::Engines, "engine")
    } else if word(parser, "events") {
        database(parser)?;
        (StaticList::Events, "name")
    } else if word(parser, "open") && word(parser, "tables") {
        database(parser)?;
        (StaticList::OpenTables, "table")
    } else if word(parser, "plugins") {
        (StaticList::Plugins, "name")
    } else if word(parser, "privileges") {
        (StaticList::Privileges, "privilege")
    } else if (word(parser, "procedure") || word(parser, "function")) && word(parser, "status") {
        (StaticList::Routines, "name")
    } else if word(parser, "triggers") {
        database(parser)?;
        (StaticList::Triggers, "table")
    } else if word(parser, "errors") {
        (StaticList::Errors, "message")
    } else {
        let lists = "what to list: DATABASES, TABLES, COLUMNS, INDEX, CREATE TABLE, TABLE STATUS, VARIABLES, STATUS, \
                     PROCESSLIST, WARNINGS, ENGINES, COLLATION or CHARACTER SET";
        return parser.expected_ref(lists, parser.peek_token_ref());
    };
    Ok(found)
}

/// Takes a word, if it is the next.
fn word(parser: &mut Parser<'_>, wanted: &str) -> bool {
    let is_next = matches!(&parser.peek_token_ref().token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted));
    if is_next {
        parser.advance_token();
    }
    is_next
}

fn from(parser: &mut Parser<'_>) -> bool {
    word(parser, "from") || word(parser, "in")
}

fn database(parser: &mut Parser<'_>) -> Result<Option<String>, ParserError> {
    match from(parser) {
        true => Ok(Some(parser.parse_identifier()?.value)),
        false => Ok(None),
    }
}

/// `FROM table`, `FROM database.table` or `FROM table FROM database`.
fn table(parser: &mut Parser<'_>) -> Result<TableName, ParserError> {
    if !from(parser) {
        return parser.expected_ref("FROM and a table", parser.peek_token_ref());
    }
    let mut name = named(parser)?;
    if let Some(database) = database(parser)? {
        name.database = Some(database);
    }
    Ok(name)
}

fn named(parser: &mut Parser<'_>) -> Result<TableName, ParserError> {
    let name = parser.parse_object_name(false)?;
    match table_name(&name) {
        Some(name) => Ok(name),
        None => parser.expected_ref("a table's name", parser.peek_token_ref()),
    }
}

/// `LIMIT 10` or `LIMIT 5, 10`, behind a list that has no rows.
fn limit(parser: &mut Parser<'_>) -> Result<(usize, Option<usize>), ParserError> {
    if !word(parser, "limit") {
        return Ok((0, None));
    }
    let number = |parser: &mut Parser<'_>| {
        let number = parser.parse_literal_uint()?;
        Ok::<_, ParserError>(usize::try_from(number).unwrap_or(usize::MAX))
    };
    let first = number(parser)?;
    if !parser.consume_token(&Token::Comma) {
        return Ok((0, Some(first)));
    }
    Ok((first, Some(number(parser)?)))
}

/// The list that a DESCRIBE requests, and behind it a column or a pattern of columns' names if there is one; `None` for other statements.
pub(crate) fn described(statement: &Statement, parser: &mut Parser<'_>) -> Option<ShowStatement> {
    let Statement::ExplainTable {
        table_name: name, ..
    } = statement
    else {
        return None;
    };
    let pattern = match &parser.peek_token_ref().token {
        // A name has no wildcards.
        Token::Word(word) => Some(word.value.replace('_', "\\_")),
        Token::SingleQuotedString(pattern) | Token::DoubleQuotedString(pattern) => {
            Some(pattern.clone())
        }
        _ => None,
    };
    if pattern.is_some() {
        parser.advance_token();
    }
    Some(ShowStatement {
        of: ShowKind::Columns {
            table: table_name(name)?,
            full: false,
        },
        condition: pattern.map(|it| condition(ShowStatementFilter::Like(it), "field")),
    })
}

fn table_name(name: &ObjectName) -> Option<TableName> {
    let idents = name.0.iter().filter_map(|part| part.as_ident());
    let mut parts: Vec<String> = idents.map(|ident| ident.value.clone()).collect();
    let table = parts.pop()?;
    Some(TableName {
        database: parts.pop(),
        table,
    })
}

fn condition(filter: ShowStatementFilter, first_column: &str) -> String {
    match filter {
        ShowStatementFilter::Where(condition) => in_adql(condition),
        ShowStatementFilter::Like(pattern)
        | ShowStatementFilter::ILike(pattern)
        | ShowStatementFilter::NoKeyword(pattern) => {
            let pattern = pattern.replace('\'', "''");
            format!("\"{first_column}\" ILIKE '{pattern}' ESCAPE '{ESCAPE}'")
        }
    }
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
            Expr::Value(value) => {
                if let Value::DoubleQuotedString(text) = &value.value {
                    value.value = Value::SingleQuotedString(text.clone());
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn read(text: &str) -> Result<Option<ShowStatement>, ParserError> {
        let mut parser = Parser::new(Dialect::MySql.grammar()).try_with_sql(text)?;
        let listing = read_show(&mut parser)?;
        assert!(
            listing.is_none() || parser.peek_token_ref().token == Token::EOF,
            "{text}"
        );
        Ok(listing)
    }

    fn of(text: &str) -> ShowKind {
        read(text).unwrap().unwrap().of
    }

    fn named(database: Option<&str>, table: &str) -> TableName {
        TableName {
            database: database.map(str::to_owned),
            table: table.to_owned(),
        }
    }

    #[test]
    fn lists_are_read_in_all_their_spellings() {
        let star = || named(Some("sky"), "star");
        for (text, listed) in [
            (
                "show tables",
                ShowKind::Tables {
                    database: None,
                    full: false,
                },
            ),
            (
                "show full tables in sky",
                ShowKind::Tables {
                    database: Some("sky".to_owned()),
                    full: true,
                },
            ),
            (
                "show extended full columns from star from sky",
                ShowKind::Columns {
                    table: star(),
                    full: true,
                },
            ),
            (
                "show fields in `sky`.`star`",
                ShowKind::Columns {
                    table: star(),
                    full: false,
                },
            ),
            ("show keys from star in sky", ShowKind::Keys(star())),
            ("show create table sky.star", ShowKind::Create(star())),
            (
                "show create schema if not exists sky",
                ShowKind::CreateDatabase("sky".to_owned()),
            ),
            (
                "show table status from sky",
                ShowKind::TableStatus {
                    database: Some("sky".to_owned()),
                },
            ),
            (
                "show session variables",
                ShowKind::Variables { global: false },
            ),
            (
                "show global variables",
                ShowKind::Variables { global: true },
            ),
            ("show full processlist", ShowKind::Processes { full: true }),
            ("show grants for current_user()", ShowKind::Grants),
            ("show limits", ShowKind::Limits),
            (
                "show warnings limit 10, 5",
                ShowKind::Warnings {
                    from: 10,
                    most: Some(5),
                },
            ),
            (
                "show warnings limit 3",
                ShowKind::Warnings {
                    from: 0,
                    most: Some(3),
                },
            ),
            ("show count(*) warnings", ShowKind::WarningCount),
            ("show errors", ShowKind::StaticList(StaticList::Errors)),
            (
                "show storage engines",
                ShowKind::StaticList(StaticList::Engines),
            ),
            (
                "show character set",
                ShowKind::StaticList(StaticList::CharacterSets),
            ),
            (
                "show procedure status",
                ShowKind::StaticList(StaticList::Routines),
            ),
        ] {
            assert_eq!(of(text), listed, "{text}");
        }
    }

    #[test]
    fn conditions_are_in_the_engines_words() {
        let condition = |text: &str| read(text).unwrap().unwrap().condition.unwrap();
        assert_eq!(
            condition("show variables where `variable_name` = \"a'b\""),
            "\"variable_name\" = 'a''b'"
        );
        assert_eq!(
            condition("show index from t where key_name = 'PRIMARY'"),
            "key_name = 'PRIMARY'"
        );
        assert_eq!(
            condition("show variables like 'sql\\_%'"),
            "\"variable_name\" ILIKE 'sql\\_%' ESCAPE '\\'"
        );
    }

    #[test]
    fn what_is_not_listed_is_said() {
        let error = read("show nonsense").unwrap_err().to_string();
        assert!(error.contains("DATABASES"), "{error}");
        assert_eq!(read("select 1"), Ok(None));
    }
}
