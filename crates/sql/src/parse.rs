//! One statement of SQL text, read and rewritten for the planner.

use std::borrow::Cow;

use datafusion::common::DataFusionError;
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Statement as Ast};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::areaspec::{self, TableShapes};
use crate::headings::SourceText;
use crate::limits::{self, DEEPEST_NESTING};
use crate::mysql::ShowStatement;
use crate::table_states::{mark_clauses, name_states};
use crate::{
    Connection, Dialect, ErrorCode, Headings, RepeatedColumns, SqlError, adql, cast_names,
    common_columns, connection, convex_polygons, crossmatch, distinct_order, fold_case, hidden,
    join_conditions, mysql, nested_joins, no_cache, scopes, stored_result, subquery_names,
    unsupported, windows,
};

/// Levels of the parser: each parenthesis takes a few.
const PARSER_LEVELS: usize = 4 * DEEPEST_NESTING;

/// A statement ready to be planned.
#[derive(Debug, Clone)]
pub struct ParsedStatement {
    /// The statement, names folded and area restrictions expanded.
    pub statement: Statement,
    /// How the columns are headed that are planned.
    pub headings: Headings,
    /// Which of them make up the result, where wildcards repeat some.
    pub repeated: Option<RepeatedColumns>,
    /// The list of what there is that it requests instead.
    pub show: Option<ShowStatement>,
    /// Whether it names columns that tables have beside those of `*`.
    pub names_hidden_columns: bool,
    /// Whether it is another statement where another connection asks.
    pub of_connection: bool,
    /// Whether its result may answer an equal statement later: it reads nothing of its connection, and does not say `SQL_NO_CACHE`.
    pub may_be_cached: bool,
    /// The time, in microseconds since 1970, of whose state published data are read; the latest state if there is none.
    pub as_of: Option<i64>,
    /// The times of the other states in which it reads tables ([`crate::state_catalog`]).
    pub states: Vec<i64>,
}

/// Reads the statements of a text that came by a connection, which are separated by semicolons.
///
/// # Errors
/// The text cannot be parsed, or a statement is not a query.
pub fn parse(
    dialect: Dialect,
    sql: &str,
    tables: &dyn TableShapes,
    connection: &Connection,
) -> Result<Vec<ParsedStatement>, SqlError> {
    let sql = &*match dialect {
        Dialect::MySql => mysql::executed(sql),
        Dialect::Adql => Cow::Borrowed(sql),
    };
    let statements = read(dialect, sql)?;
    // Of the whole text, once: it may have thousands of statements.
    let source = SourceText::new(dialect, sql);
    statements
        .into_iter()
        .map(|read| match read {
            Read::Show(statement) => Ok(show_query(statement)),
            Read::Statement(statement) => prepare(&source, statement, tables, connection),
        })
        .collect()
}

/// The headings of the only statement of a text in MySQL's dialect, placeholders and all; `None` where it has none.
///
/// # Errors
/// A text that cannot be read.
pub fn headings(sql: &str) -> Result<Option<Headings>, SqlError> {
    let statements = read(Dialect::MySql, sql)?;
    let [Read::Statement(Statement::Statement(ast))] = statements.as_slice() else {
        return Ok(None);
    };
    Ok(match &**ast {
        Ast::Query(query) => {
            let mut headings = Headings::of(&SourceText::new(Dialect::MySql, sql), query);
            if let Some(repeated) = RepeatedColumns::take(&mut query.clone()) {
                headings.retain(&repeated.is_kept());
            }
            Some(headings)
        }
        _ => None,
    })
}

/// The statements of a text as they are typed, names folded, and nothing rewritten; lists of what there is are none.
pub(crate) fn read_statements(dialect: Dialect, sql: &str) -> Result<Vec<Statement>, SqlError> {
    let statements = read(dialect, sql)?.into_iter();
    Ok(statements
        .filter_map(|read| match read {
            Read::Statement(statement) => Some(statement),
            Read::Show(_) => None,
        })
        .collect())
}

/// Sees that a text is one expression, and nothing after it: what stands between parentheses in a statement must not close them.
///
/// # Errors
/// It is none, or more than one.
pub fn check_one_expression(dialect: Dialect, text: &str) -> Result<(), SqlError> {
    one_expression(dialect, text).map(drop)
}

/// The only expression of a text, its names folded.
///
/// # Errors
/// It is none, or more than one.
pub(crate) fn one_expression(dialect: Dialect, text: &str) -> Result<Expr, SqlError> {
    let text = &*match dialect {
        Dialect::MySql => mysql::executed(text),
        Dialect::Adql => Cow::Borrowed(text),
    };
    let folded = fold_case(dialect, text)?;
    let parser = parser_of(dialect, &folded);
    let parsed = parser.and_then(|mut parser| {
        let expression = parser.parser.parse_expr()?;
        let next = parser.parser.peek_token_ref();
        if next.token != Token::EOF {
            parser
                .parser
                .expected_ref::<()>("the end of the expression", next)?;
        }
        Ok(expression)
    });
    parsed.map_err(|error| SqlError::from_datafusion(text, &error, &[], &str::to_owned))
}

/// A statement as it is typed.
enum Read {
    Show(ShowStatement),
    Statement(Statement),
}

fn read(dialect: Dialect, sql: &str) -> Result<Vec<Read>, SqlError> {
    let folded = fold_case(dialect, sql)?;
    let parser = parser_of(dialect, &folded);
    let statements = parser.and_then(|mut parser| read_all(&mut parser));
    statements.map_err(|error| SqlError::from_datafusion(sql, &error, &[], &str::to_owned))
}

/// The parser of a folded text.
fn parser_of(dialect: Dialect, folded: &str) -> Result<DFParser<'static>, DataFusionError> {
    let tokens = dialect.tokenizer(folded).tokenize_with_location();
    let mut tokens = tokens.map_err(ParserError::from)?;
    if dialect == Dialect::MySql {
        tokens = mysql::known_beginnings(tokens);
    }
    nested_joins::write_parentheses(dialect, &mut tokens);
    DFParserBuilder::new(mark_clauses(tokens))
        .with_dialect(dialect.grammar())
        .with_recursion_limit(PARSER_LEVELS)
        .build()
}

fn read_all(parser: &mut DFParser<'_>) -> Result<Vec<Read>, DataFusionError> {
    let mut statements = Vec::new();
    loop {
        // There may be nothing between two semicolons.
        while parser.parser.consume_token(&Token::SemiColon) {}
        if parser.parser.peek_token_ref().token == Token::EOF {
            return Ok(statements);
        }
        statements.push(match mysql::read_show(&mut parser.parser)? {
            Some(statement) => Read::Show(statement),
            None => match parser.parse_statement()? {
                Statement::Statement(ast) => match mysql::described(&ast, &mut parser.parser) {
                    Some(statement) => Read::Show(statement),
                    None => Read::Statement(Statement::Statement(ast)),
                },
                other => Read::Statement(other),
            },
        });
        let next = parser.parser.peek_token_ref();
        if !matches!(next.token, Token::SemiColon | Token::EOF) {
            parser.parser.expected_ref::<()>("end of statement", next)?;
        }
    }
}

/// Whether a text ends with the semicolon of its last statement: one that is not part of a string or a comment.
pub fn ends_statement(dialect: Dialect, text: &str) -> bool {
    // Without these nothing in it can be part of a string, a quoted name or a comment.
    let quoted = text.contains(['\'', '"', '`', '#', '$']);
    if !quoted && !text.contains("--") && !text.contains("/*") {
        return text.trim_end().ends_with(';');
    }
    let tokens = dialect.tokenizer(text).tokenize();
    // A string that is still open cannot be read yet.
    tokens.is_ok_and(|tokens| {
        let last = tokens
            .iter()
            .rfind(|token| !matches!(token, Token::Whitespace(_)));
        last == Some(&Token::SemiColon)
    })
}

/// A list: who holds the catalog puts the query that it stands for in its place.
fn show_query(statement: ShowStatement) -> ParsedStatement {
    ParsedStatement {
        statement: Statement::Statement(Box::new(Ast::ShowVariable { variable: vec![] })),
        headings: Headings::default(),
        repeated: None,
        show: Some(statement),
        names_hidden_columns: false,
        of_connection: true,
        may_be_cached: false,
        as_of: None,
        states: vec![],
    }
}

fn prepare(
    source: &SourceText<'_>,
    mut statement: Statement,
    tables: &dyn TableShapes,
    connection: &Connection,
) -> Result<ParsedStatement, SqlError> {
    let as_of = connection.variables.as_of();
    let mut parsed = ParsedStatement {
        headings: Headings::default(),
        repeated: None,
        show: None,
        names_hidden_columns: false,
        of_connection: limit_rows(&mut statement, connection) || as_of.is_some(),
        may_be_cached: !no_cache::is_said(&statement) && as_of.is_none(),
        as_of,
        states: vec![],
        statement,
    };
    rewrite(source, &mut parsed, tables, connection)?;
    Ok(parsed)
}

/// Cuts a SELECT without a limit of its own to the rows that the connection wants at most; says whether there is such a limit.
fn limit_rows(statement: &mut Statement, connection: &Connection) -> bool {
    let Some(rows) = connection.variables.row_limit() else {
        return false;
    };
    if let Statement::Statement(ast) = statement
        && let Ast::Query(query) = &mut **ast
        && query.limit_clause.is_none()
        && query.fetch.is_none()
    {
        query.limit_clause = Some(LimitClause::LimitOffset {
            limit: Some(mysql::build::number(&rows.to_string())),
            offset: None,
            limit_by: vec![],
        });
    }
    true
}

/// Rewrites a statement in place and notes how its result is headed and what it names; what is explained gets no headings.
fn rewrite(
    source: &SourceText<'_>,
    parsed: &mut ParsedStatement,
    tables: &dyn TableShapes,
    connection: &Connection,
) -> Result<(), SqlError> {
    let mut statement = &mut parsed.statement;
    let mut explained = false;
    while let Statement::Explain(explain) = statement {
        (statement, explained) = (&mut *explain.statement, true);
    }
    let Statement::Statement(ast) = statement else {
        return Err(only_queries(source.sql));
    };
    limits::check_and_balance(ast)?;
    unsupported::reject(source.dialect, source.sql, ast)?;
    match &mut **ast {
        Ast::Query(query) if !explained => {
            parsed.headings = Headings::of(source, query);
            if source.dialect == Dialect::MySql
                && let Some(repeated) = RepeatedColumns::take(query)
            {
                parsed.headings.retain(&repeated.is_kept());
                parsed.repeated = Some(repeated);
            }
        }
        Ast::Query(_) | Ast::Explain { .. } => {}
        _ => return Err(only_queries(source.sql)),
    }
    distinct_order::order_by_places(ast);
    let mut reads_connection = false;
    if source.dialect == Dialect::MySql {
        reads_connection |= connection::substitute(source.sql, ast, connection)?;
    }
    reads_connection |= stored_result::add_user(source.sql, ast, connection)?;
    parsed.of_connection |= reads_connection;
    parsed.may_be_cached &= !reads_connection;
    // Behind variables, which may be the times.
    parsed.states = name_states(source.dialect, source.sql, ast, connection)?;
    convex_polygons::write_out(source.sql, ast)?;
    windows::write_out(source.sql, ast)?;
    join_conditions::move_subqueries(ast);
    // Before all others: its sides are tables like others for what follows.
    crossmatch::wrap_sides(source.dialect, source.sql, ast)?;
    // Before the areas, which put subqueries with `*` in the places of tables.
    parsed.names_hidden_columns = hidden::leave_out(source.sql, ast, tables)?;
    scopes::resolve(source, ast, tables)?;
    common_columns::resolve(source.dialect, ast);
    areaspec::expand(source.sql, ast, tables)?;
    match source.dialect {
        Dialect::MySql => {
            if connection.inserts
                && let Ast::Query(query) = &mut **ast
            {
                mysql::store_constants(&mut query.body);
            }
            mysql::rewrite(source.sql, ast)
        }
        Dialect::Adql => adql::rewrite(source.sql, ast),
    }?;
    subquery_names::name_apart(ast);
    cast_names::name_apart(ast);
    Ok(())
}

fn only_queries(sql: &str) -> SqlError {
    SqlError::about(
        sql,
        mysql::first_word(sql),
        "only queries can be executed: SELECT, WITH, VALUES, EXPLAIN, SHOW; `meridian load` creates tables, and users of a server make tables of \
         their own by MySQL's protocol: CREATE TABLE ... AS SELECT, INSERT, DROP TABLE",
    )
    .with_code(ErrorCode::READ_ONLY)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::TableShape;

    struct NoTables;
    impl TableShapes for NoTables {
        fn shape(&self, _: Option<&str>, _: &str) -> Option<TableShape> {
            None
        }

        fn all_hidden(&self) -> &'static [&'static str] {
            &[]
        }
    }

    fn parse_alone(sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        parse_in(Dialect::MySql, sql)
    }

    pub(crate) fn parse_in(dialect: Dialect, sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        parse(dialect, sql, &NoTables, &Connection::alone(None))
    }

    /// The only statement of a text as it is given to the planner.
    pub(crate) fn rewritten_in(dialect: Dialect, sql: &str) -> String {
        parse_in(dialect, sql).unwrap()[0].statement.to_string()
    }

    #[test]
    fn a_misspelled_keyword_is_pointed_at() {
        let error = parse_alone("SELECT ra\nFORM Object WHERE")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(error.contains('^'), "{error}");
    }

    #[test]
    fn a_semicolon_in_a_string_or_comment_ends_nothing() {
        for (text, ends) in [
            ("SELECT 1;", true),
            ("SELECT 1; -- done", true),
            ("SELECT 1 -- not yet;", false),
            ("SELECT 1 /* nor\nhere; */", false),
            ("SELECT ';'", false),
            ("SELECT 'open;", false),
            ("SELECT 1", false),
        ] {
            assert_eq!(ends_statement(Dialect::MySql, text), ends, "{text}");
        }
    }

    /// "mag < 3) OR (1 = 1" between parentheses is a condition, and another one than it looks.
    #[test]
    fn an_expression_ends_with_its_text() {
        let is_one = |text: &str| check_one_expression(Dialect::MySql, text).is_ok();
        for text in [
            "mag < 3",
            "(mag < 3) OR (1 = 1)",
            "name = ') OR (1 = 1' -- said so",
            "mag < 3 /* ) */ AND `a)b` > 2",
            "a BETWEEN 1 AND 2 AND NOT b <=> NULL",
            "seen < NOW() - INTERVAL 1 YEAR",
            "a DIV 2 = 1 XOR b RLIKE 'x'",
        ] {
            assert!(is_one(text), "{text}");
        }
        for text in [
            "mag < 3) OR (1 = 1",
            "mag < 3) ORDER BY (id",
            "mag < 3; SELECT 1",
            "mag < 3, 1 = 1",
            "mag < 3 AS released",
            "mag < 3 ORDER BY id",
            "mag < 3 UNION SELECT 1",
            "mag < 3 /*!50000 ) OR (1 = 1 */",
            "mag <",
            "(mag < 3",
            "",
            "-- nothing",
        ] {
            assert!(!is_one(text), "{text}");
        }
    }

    #[test]
    fn changes_are_rejected() {
        for sql in [
            "DROP TABLE object",
            "INSERT INTO object VALUES (1)",
            "COPY (SELECT 1) TO 'x'",
        ] {
            assert!(
                parse_alone(sql)
                    .unwrap_err()
                    .to_string()
                    .contains("meridian load"),
                "{sql}"
            );
        }
    }

    #[test]
    fn deep_nesting_is_rejected() {
        let sql = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert!(parse_alone(&sql).is_err());
    }
}
