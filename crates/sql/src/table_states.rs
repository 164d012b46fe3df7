//! `AS OF '2026-11-20 08:00'` behind a table of a FROM: of which state the statement reads that table.
//!
//! The parser knows the clause with words before it (`FOR SYSTEM_TIME AS OF`, MariaDB's and the standard's; `TIMESTAMP AS OF`), so a text
//! that has it without them is read with one more word ([`mark_clauses`]). What is read is a table of a catalogue of that state,
//! `"as of 1763625600000000".prompt.diasource`, whose columns are qualified by `prompt.diasource` and `diasource` as always
//! ([`name_states`]).

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Ident, ObjectName, Select, Statement, TableFactor, TableVersion,
    TableWithJoins, TypedString, Value, ValueWithSpan, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};

use crate::as_of::time_of;
use crate::visiting::visit_mut;
use crate::{Connection, Dialect, ErrorCode, SqlError};

/// What the names of the catalogues of states begin with; a time in microseconds since 1970 (UTC) follows.
const STATE: &str = "as of ";

/// The name of the catalogue of a state.
pub fn state_catalog(time: i64) -> String {
    format!("{STATE}{time}")
}

/// Words that begin other clauses behind a table's name in other languages, and here may be its alias.
const ALIASES: [Keyword; 3] = [Keyword::AT, Keyword::BEFORE, Keyword::CHANGES];

/// Functions that somebody may give as the time.
const CLOCKS: [&str; 5] = [
    "now",
    "current_timestamp",
    "utc_timestamp",
    "date_sub",
    "from_unixtime",
];

/// The tokens of a text as the parser reads them: with the word that it wants before each `AS OF`.
pub(crate) fn mark_clauses(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for at in 0..tokens.len() {
        let is_alias = match &tokens[at].token {
            Token::Word(word) if ALIASES.contains(&word.keyword) => {
                // AT TIME ZONE is an operator.
                let mut behind = behind(&tokens, at);
                !behind.next().is_some_and(|it| is_word(it, "time"))
            }
            _ => false,
        };
        if is_alias && let Token::Word(word) = &mut tokens[at].token {
            word.keyword = Keyword::NoKeyword;
        }
    }
    let clauses: Vec<usize> = (0..tokens.len())
        .filter(|at| begins_clause(&tokens, *at))
        .collect();
    if clauses.is_empty() {
        return tokens;
    }
    let mut marked = Vec::with_capacity(tokens.len() + clauses.len());
    let mut clauses = clauses.into_iter().peekable();
    for (at, token) in tokens.into_iter().enumerate() {
        if clauses.next_if_eq(&at).is_some() {
            // It is called "as" in messages, which is what stands there.
            let word = Word {
                value: "as".to_owned(),
                quote_style: None,
                keyword: Keyword::TIMESTAMP,
            };
            let span = token.span;
            let token = Token::Word(word);
            marked.push(TokenWithSpan { token, span });
        }
        marked.push(token);
    }
    marked
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(it) if it.quote_style.is_none() && it.value.eq_ignore_ascii_case(word))
}

fn is_visible(token: &&Token) -> bool {
    !matches!(token, Token::Whitespace(_))
}

fn behind(tokens: &[TokenWithSpan], at: usize) -> impl Iterator<Item = &Token> {
    let rest = tokens[at + 1..].iter();
    rest.map(|it| &it.token).filter(is_visible)
}

/// Whether `AS OF` and a time begin at a token, with no other word before them that the parser wants. `AS of` alone is an alias.
fn begins_clause(tokens: &[TokenWithSpan], at: usize) -> bool {
    if !is_word(&tokens[at].token, "as") {
        return false;
    }
    let mut behind = behind(tokens, at);
    if !behind.next().is_some_and(|it| is_word(it, "of")) {
        return false;
    }
    let mut before = tokens[..at].iter().rev().map(|it| &it.token);
    let before = before.find(is_visible);
    let is_marked =
        |word: &&str| before.is_some_and(|it| is_word(it, word)) && !is_name(tokens, at, word);
    if ["system_time", "timestamp", "version"]
        .iter()
        .any(is_marked)
    {
        return false;
    }
    match (behind.next(), behind.next()) {
        (Some(Token::Word(word)), next) if word.quote_style.is_none() => {
            let is = |name: &str| word.value.eq_ignore_ascii_case(name);
            word.value.starts_with('@')
                || is("null")
                || (is("timestamp") && next.is_some_and(is_text))
                || (CLOCKS.iter().any(|name| is(name)) && next == Some(&Token::LParen))
        }
        (Some(Token::Number(..) | Token::Placeholder(_)), _) => true,
        (Some(value), _) => is_text(value),
        (None, _) => false,
    }
}

/// Whether the word before a token is a table's name: what stands before it says so.
fn is_name(tokens: &[TokenWithSpan], at: usize, word: &str) -> bool {
    let before = tokens[..at].iter().rev().map(|it| &it.token);
    let mut before = before.filter(is_visible).skip(1);
    word != "system_time"
        && before.next().is_some_and(|it| {
            matches!(it, Token::Comma | Token::Period | Token::LParen)
                || is_word(it, "from")
                || is_word(it, "join")
        })
}

fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_)
    )
}

/// Gives the tables of a folded statement that have a time the names of the states that they are read in; these times, in
/// microseconds since 1970 (UTC).
///
/// # Errors
/// A time is none, or what it stands behind is no table of a database.
pub(crate) fn name_states(
    dialect: Dialect,
    sql: &str,
    statement: &mut Statement,
    connection: &Connection,
) -> Result<Vec<i64>, SqlError> {
    let mut states = States {
        dialect,
        sql,
        connection,
        times: Vec::new(),
    };
    match visit_mut(statement, &mut states) {
        ControlFlow::Continue(()) => Ok(states.times),
        ControlFlow::Break(error) => Err(error),
    }
}

struct States<'a> {
    dialect: Dialect,
    sql: &'a str,
    connection: &'a Connection,
    times: Vec<i64>,
}

impl VisitorMut for States<'_> {
    type Break = SqlError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        match self.twice(&select.from) {
            Some(error) => ControlFlow::Break(error),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        let TableFactor::Table {
            name,
            args,
            version: version @ Some(_),
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let named = match version.take() {
            Some(TableVersion::ForSystemTimeAsOf(time) | TableVersion::TimestampAsOf(time)) => {
                self.name_state(name, args.is_some(), &time)
            }
            // Others are refused before.
            _ => Ok(()),
        };
        match named {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl States<'_> {
    fn name_state(
        &mut self,
        name: &mut ObjectName,
        is_function: bool,
        time: &Expr,
    ) -> Result<(), SqlError> {
        let idents: Vec<Ident> = name
            .0
            .iter()
            .filter_map(|part| part.as_ident())
            .cloned()
            .collect();
        let Some((table, before)) = idents.split_last() else {
            return Ok(());
        };
        let start = table.span.start;
        let time = self.time(time, start)?;
        let is_file = match table.quote_style {
            Some('\'') => true,
            Some('"') => self.dialect == Dialect::MySql,
            _ => false,
        };
        if is_file || is_function {
            let what = if is_file { "a file" } else { "a function" };
            let sentence = format!(
                "{what} has no states of former times: AS OF stands behind the name of a table of a nightly alert database"
            );
            let error = SqlError::at_word(self.sql, start, sentence);
            return Err(error.with_code(ErrorCode::NOT_VERSIONED));
        }
        let database = match before.last() {
            Some(database) => database.clone(),
            None => {
                let default = self.connection.database.as_deref().unwrap_or_default();
                Ident::with_quote('"', crate::fold_word(default))
            }
        };
        let catalog = Ident::with_quote('"', state_catalog(time));
        *name = ObjectName::from(vec![catalog, database, table.clone()]);
        if !self.times.contains(&time) {
            self.times.push(time);
        }
        Ok(())
    }

    /// The time that an expression stands for.
    fn time(&self, expr: &Expr, table: Location) -> Result<i64, SqlError> {
        let (text, place) = match expr {
            Expr::Value(value) => (text_of(value), value.span.start),
            Expr::TypedString(TypedString {
                data_type: DataType::Timestamp(..) | DataType::Datetime(_),
                value,
                ..
            }) => (text_of(value), value.span.start),
            _ => (None, Location::empty()),
        };
        // What a variable stood for has no place.
        let place = if place.line > 0 { place } else { table };
        let wrong = |sentence: String| {
            SqlError::at_word(self.sql, place, sentence).with_code(ErrorCode::WRONG_VALUE)
        };
        let Some(text) = text else {
            return Err(wrong(
                "AS OF takes a time in UTC as a text, such as AS OF '2026-11-20 08:00:00'; the latest state is read without it"
                    .to_owned(),
            ));
        };
        match time_of(text) {
            Ok(Some(time)) => Ok(time),
            Ok(None) => Err(wrong(
                "AS OF '' is no time: give one in UTC, such as AS OF '2026-11-20 08:00:00', or leave it out to read the latest state".to_owned(),
            )),
            Err(mistake) => Err(wrong(mistake.of("AS OF", text))),
        }
    }

    /// The error of a table of a state that has the name of another table of its FROM.
    fn twice(&self, from: &[TableWithJoins]) -> Option<SqlError> {
        let factors = from.iter().flat_map(|from| {
            let joined = from.joins.iter().map(|join| &join.relation);
            std::iter::once(&from.relation).chain(joined)
        });
        let mut plain = factors.filter_map(|factor| match factor {
            TableFactor::Table {
                name,
                alias: None,
                version,
                ..
            } => Some((name.0.last()?.as_ident()?, version.is_some())),
            _ => None,
        });
        let mut before: HashMap<&str, bool> = HashMap::new();
        let (table, _) = plain.find(|(table, is_state)| {
            let other = before.insert(&table.value, *is_state);
            other.is_some_and(|other| other || *is_state)
        })?;
        let place = table.span.start;
        let name = crate::error::typed(self.sql, &table.value);
        let sentence = format!(
            "two of the tables are called {name}: give each state another name, as in {name} AS OF '2026-11-20' AS before"
        );
        let error = SqlError::at_word(self.sql, place, sentence);
        Some(error.with_code(ErrorCode::TABLE_TWICE))
    }
}

fn text_of(value: &ValueWithSpan) -> Option<&str> {
    match &value.value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement as ParsedStatement;

    use super::*;
    use crate::parse::tests::parse_in;

    /// The statement as it is planned, and its times.
    fn planned(dialect: Dialect, sql: &str) -> (String, Vec<i64>) {
        let parsed = parse_in(dialect, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let [parsed] = parsed.as_slice() else {
            panic!("{sql}: not one statement");
        };
        let text = match &parsed.statement {
            ParsedStatement::Statement(ast) => ast.to_string(),
            other => other.to_string(),
        };
        (text, parsed.states.clone())
    }

    const DAY: i64 = 86_400_000_000;

    #[test]
    fn a_table_is_read_in_the_catalogue_of_its_state() {
        for dialect in Dialect::ALL {
            for clause in [
                "AS OF '1970-01-02'",
                "as of '1970-01-02 00:00'",
                "AS OF TIMESTAMP '1970-01-02T00:00:00Z'",
                "FOR SYSTEM_TIME AS OF '1970-01-02'",
                "FOR SYSTEM_TIME AS OF TIMESTAMP '1970-01-02 00:00:00'",
            ] {
                for alias in ["", " s", " AS s", " AS of"] {
                    let sql = format!("SELECT 1 AS one FROM prompt.DiaSource {clause}{alias}");
                    let (text, times) = planned(dialect, &sql);
                    let table = format!("\"as of {DAY}\".prompt.diasource");
                    assert!(text.contains(&table), "{sql}: {text}");
                    assert_eq!(times, [DAY], "{sql}");
                    assert_eq!(text.ends_with(" s"), alias.ends_with('s'), "{sql}: {text}");
                }
            }
        }
    }

    #[test]
    fn each_table_has_its_own_time() {
        let sql = "SELECT a.x FROM p.t AS OF '1970-01-02' a JOIN p.t AS OF '1970-01-03' AS b ON a.x = b.x JOIN p.t c ON c.x = b.x \
                   WHERE a.x IN (SELECT x FROM p.u AS OF '1970-01-02') AND EXISTS (SELECT 1 FROM p.u AS OF '1970-01-04')";
        let (text, times) = planned(Dialect::MySql, sql);
        assert_eq!(times, [DAY, 2 * DAY, 3 * DAY]);
        assert_eq!(text.matches("\"as of ").count(), 4, "{text}");
        assert!(text.contains("JOIN p.t"), "{text}");
    }

    #[test]
    fn words_of_the_clause_remain_names() {
        for sql in [
            "SELECT a AS of FROM p.t AS of JOIN p.u AS at ON of.a = at.a",
            "SELECT * FROM p.t at JOIN p.u before ON at.a = before.a JOIN p.v changes ON at.a = changes.a",
            "SELECT timestamp.a FROM p.timestamp JOIN p.version ON timestamp.a = version.a",
            "SELECT 'x AS OF ''1970-01-02''' FROM p.t -- AS OF '1970-01-02'",
            "SELECT of FROM p.t",
        ] {
            assert_eq!(planned(Dialect::MySql, sql).1, [0_i64; 0], "{sql}");
        }
        let (text, times) = planned(
            Dialect::MySql,
            "SELECT * FROM p.timestamp AS OF '1970-01-02', version AS OF '1970-01-02' v",
        );
        assert_eq!(times, [DAY]);
        assert_eq!(text.matches("\"as of ").count(), 2, "{text}");
    }

    #[test]
    fn mistakes_are_told_where_they_are() {
        let cases = [
            (
                "FROM p.t AS OF 'yesterday'",
                1525,
                "AS OF 'yesterday' is no time",
            ),
            ("FROM p.t AS OF ''", 1525, "leave it out"),
            ("FROM p.t AS OF 12", 1525, "takes a time in UTC as a text"),
            (
                "FROM p.t AS OF NULL s",
                1525,
                "takes a time in UTC as a text",
            ),
            (
                "FROM p.t AS OF NOW()",
                1525,
                "takes a time in UTC as a text",
            ),
            ("FROM p.t AS OF '2200-01-01'", 1525, "still to come"),
            ("FROM p.t VERSION AS OF 5", 1235, "a time"),
            ("FROM p.t s AS OF '1970-01-02'", 1064, "before its alias"),
            (
                "FROM (SELECT 1) AS OF '1970-01-02'",
                1064,
                "behind the name of a table",
            ),
            (
                "FROM 'x.csv' AS OF '1970-01-02'",
                4124,
                "a file has no states",
            ),
            (
                "FROM p.t AS OF '1970-01-02', p.t",
                1066,
                "give each state another name",
            ),
            (
                "FROM p.t AS OF '1970-01-02' JOIN q.t AS OF '1970-01-03'",
                1066,
                "two of the tables",
            ),
        ];
        for (from, number, sentence) in cases {
            let sql = format!("SELECT *\n  {from}");
            let error = parse_in(Dialect::MySql, &sql).expect_err(&sql);
            let told = error.to_string();
            assert!(told.contains(sentence), "{sql}: {told}");
            assert_eq!(error.code().number, number, "{sql}: {told}");
            // A file's name has no place.
            let is_told = told.contains("line 2") && told.contains('^');
            assert!(is_told || from.contains(".csv"), "{sql}: {told}");
        }
        // The table that a WITH is made of may have its name.
        let with = "WITH t AS (SELECT * FROM p.t AS OF '1970-01-02') SELECT * FROM t";
        assert_eq!(planned(Dialect::MySql, with).1, [DAY]);
    }
}
