//! One statement of SQL text, read and rewritten for the planner.

use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::Statement as Ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::areaspec::{self, TableShapes};
use crate::headings::Typed;
use crate::limits::{self, DEEPEST_NESTING};
use crate::mysql::Listing;
use crate::{
    Dialect, ErrorCode, Headings, SqlError, adql, common_columns, crossmatch, fold_case, hidden,
    mysql,
};

/// Levels of the parser: each parenthesis takes a few.
const PARSER_LEVELS: usize = 4 * DEEPEST_NESTING;

/// A statement ready to be planned.
#[derive(Debug)]
pub struct Parsed {
    /// The statement, names folded and area restrictions expanded.
    pub statement: Statement,
    /// How its result is headed.
    pub headings: Headings,
    /// The list of what there is that it asks for instead.
    pub listing: Option<Listing>,
    /// Whether it names columns that tables have beside those of `*`.
    pub names_hidden_columns: bool,
}

/// Reads the statements of a text, which are separated by semicolons.
///
/// # Errors
/// A text that cannot be read, or a statement that is not a question: this door only answers.
pub fn parse(
    dialect: Dialect,
    sql: &str,
    tables: &dyn TableShapes,
) -> Result<Vec<Parsed>, SqlError> {
    let folded = fold_case(dialect, sql)?;
    let statements = DFParserBuilder::new(folded.as_str())
        .with_dialect(dialect.grammar())
        .with_recursion_limit(PARSER_LEVELS)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| SqlError::from_datafusion(sql, &error, &[], &str::to_owned))?;
    // Of the whole text, once: it may have thousands of statements.
    let typed = Typed::new(dialect, sql);
    statements
        .into_iter()
        .map(|statement| prepare(&typed, statement, tables))
        .collect()
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

fn prepare(
    typed: &Typed<'_>,
    mut statement: Statement,
    tables: &dyn TableShapes,
) -> Result<Parsed, SqlError> {
    let listing = match &statement {
        Statement::Statement(ast) => mysql::listing(ast),
        _ => None,
    };
    if listing.is_some() {
        return Ok(Parsed {
            statement,
            headings: Headings::default(),
            listing,
            names_hidden_columns: false,
        });
    }
    let (headings, names_hidden_columns) = rewrite(typed, &mut statement, tables)?;
    Ok(Parsed {
        statement,
        headings,
        listing,
        names_hidden_columns,
    })
}

/// Rewrites a statement in place and says how its result is headed and whether it names hidden columns; what is explained
/// gets no headings.
fn rewrite(
    typed: &Typed<'_>,
    statement: &mut Statement,
    tables: &dyn TableShapes,
) -> Result<(Headings, bool), SqlError> {
    match statement {
        Statement::Statement(ast) => {
            limits::check_and_balance(ast)?;
            let headings = match &**ast {
                Ast::Query(query) => Headings::of(typed, query),
                other if is_question(other) => Headings::default(),
                _ => return Err(only_questions()),
            };
            // First of all: its sides are tables like others for what follows.
            crossmatch::wrap_sides(typed.dialect, typed.sql, ast)?;
            // Before the areas, which put subqueries with `*` in the places of tables.
            let hidden = hidden::leave_out(typed.sql, ast, tables)?;
            common_columns::settle(typed.dialect, ast);
            areaspec::expand(typed.sql, ast, tables)?;
            match typed.dialect {
                Dialect::MySql => mysql::rewrite(typed.sql, ast)?,
                Dialect::Adql => adql::rewrite(typed.sql, ast)?,
            }
            Ok((headings, hidden))
        }
        Statement::Explain(explain) => {
            let (_, hidden) = rewrite(typed, &mut explain.statement, tables)?;
            Ok((Headings::default(), hidden))
        }
        _ => Err(only_questions()),
    }
}

fn is_question(ast: &Ast) -> bool {
    matches!(
        ast,
        Ast::ShowTables { .. }
            | Ast::ShowColumns { .. }
            | Ast::ShowVariable { .. }
            | Ast::ShowFunctions { .. }
            | Ast::ExplainTable { .. }
            | Ast::Explain { .. }
    )
}

fn only_questions() -> SqlError {
    SqlError::new(
        "only questions are answered here: SELECT, WITH, VALUES, EXPLAIN, SHOW; tables are made by `meridian load` and cannot be changed",
    )
    .with_code(ErrorCode::READ_ONLY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableShape;

    struct NoTables;
    impl TableShapes for NoTables {
        fn shape(&self, _: Option<&str>, _: &str) -> Option<TableShape> {
            None
        }
    }

    #[test]
    fn a_misspelled_keyword_is_pointed_at() {
        let error = parse(Dialect::MySql, "SELECT ra\nFORM Object WHERE", &NoTables)
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

    #[test]
    fn changes_are_refused() {
        for sql in [
            "DROP TABLE object",
            "INSERT INTO object VALUES (1)",
            "COPY (SELECT 1) TO 'x'",
        ] {
            assert!(
                parse(Dialect::MySql, sql, &NoTables)
                    .unwrap_err()
                    .to_string()
                    .contains("meridian load"),
                "{sql}"
            );
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let sql = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert!(parse(Dialect::MySql, &sql, &NoTables).is_err());
    }
}
