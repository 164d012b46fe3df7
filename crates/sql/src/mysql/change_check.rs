//! UPDATE and DELETE before they are executed: a query of their expressions, in which each mistake is found, and told where it stands in
//! the statement.
//!
//! ```text
//!   UPDATE t SET a = b + 1, c = DEFAULT WHERE d < 3       SELECT (b + 1) FROM `ann`.`t` WHERE d < 3
//! ```
//!
//! What a statement is executed as is another text, with columns and functions of the server's own: a statement whose check can be planned has
//! no mistake that the other text would tell.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::command::{Command, TableCommand, TokenReader};
use super::having::aggregate_called;
use super::insert_command::is_word;
use crate::error::typed;
use crate::fold::{Places, fold_word};
use crate::functions::RegionShape;
use crate::parse::one_expression;
use crate::{Dialect, ErrorCode, SqlError};

/// The check of an UPDATE or a DELETE.
#[derive(Debug)]
pub struct ChangeCheck<'a> {
    statement: &'a str,
    query: String,
    /// Parts of the query that are the statement's: where they are in the query, and at which byte of the statement they begin.
    parts: Vec<(Range<usize>, usize)>,
}

impl<'a> ChangeCheck<'a> {
    /// The check of a statement about a table that is named so in a query; `None` for other statements. A region restricts rows by their
    /// position, if they have one.
    ///
    /// # Errors
    /// An expression cannot be read, is an aggregate, or needs a position where there is none.
    pub fn of(
        statement: &'a str,
        table: &str,
        has_position: bool,
    ) -> Result<Option<Self>, SqlError> {
        let mut reader = TokenReader::of(statement)?;
        let command = if reader.word("update") {
            reader.read_update()?
        } else if reader.word("delete") {
            reader.read_delete()?
        } else {
            None
        };
        let (alias, condition) = match command {
            Some(Command::Table(
                TableCommand::Update {
                    alias, condition, ..
                }
                | TableCommand::Delete {
                    alias, condition, ..
                },
            )) => (alias, condition),
            _ => return Ok(None),
        };
        let mut check = Self {
            statement,
            query: "SELECT ".to_owned(),
            parts: vec![],
        };
        let mut values = std::mem::take(&mut reader.expressions);
        let condition = condition.and_then(|_| values.pop());
        values.retain(|tokens| {
            let is_default = is_word(&reader.tokens[tokens.start].token, "default");
            !(tokens.len() == 1 && is_default)
        });
        for (at, value) in values.iter().enumerate() {
            let bytes = reader.bytes(value);
            check.read(&bytes)?;
            check.query.push_str(if at == 0 { "(" } else { ", (" });
            check.add(bytes);
            check.query.push(')');
        }
        if values.is_empty() {
            check.query.push('1');
        }
        check.query.push_str(&format!(" FROM {table}"));
        if let Some(alias) = alias {
            let alias = alias.replace('`', "``");
            check.query.push_str(&format!(" AS `{alias}`"));
        }
        if let Some(condition) = condition {
            check.read(&reader.bytes(&condition))?;
            let restriction = restrictions(&reader.tokens[condition.clone()]).next();
            if let Some((at, shape)) = restriction.filter(|_| !has_position) {
                let word = &reader.tokens[condition.start + at];
                let sentence = format!(
                    "{} restricts the rows of a table that is spread over the sky, by their position, and this one is not or has none: compare columns instead, as in {}(ra, decl, ...) = 1",
                    shape.restriction(),
                    shape.function()
                );
                return Err(SqlError::at_word(statement, word.span.start, sentence));
            }
            check.query.push(' ');
            // With the WHERE before it.
            check.add(reader.bytes(&(condition.start - 1..condition.end)));
        }
        Ok(Some(check))
    }

    /// The query: it is planned, and its rows are nobody's.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// A mistake of the query at its place in the statement.
    #[must_use]
    pub fn placed(&self, error: SqlError) -> SqlError {
        error.moved(self.statement, |byte| {
            let mut parts = self.parts.iter();
            let (part, begin) = parts.find(|(part, _)| part.contains(&byte))?;
            Some(begin + byte - part.start)
        })
    }

    /// Sees that a part of the statement is one expression of the values of one row.
    fn read(&self, bytes: &Range<usize>) -> Result<(), SqlError> {
        let text = &self.statement[bytes.clone()];
        let moved = |error: SqlError| error.moved(self.statement, |byte| Some(bytes.start + byte));
        let expression = one_expression(Dialect::MySql, text).map_err(moved)?;
        let Some(name) = aggregate_called(&expression) else {
            return Ok(());
        };
        let shown = typed(text, &name);
        let sentence = format!(
            "{shown} is computed of many rows, and UPDATE and DELETE look at each row by itself: put it into a subquery, as in (SELECT {shown}(...) FROM ...)"
        );
        let error = SqlError::about(text, &name, sentence);
        Err(moved(error.with_code(ErrorCode::MISPLACED_AGGREGATE)))
    }

    fn add(&mut self, bytes: Range<usize>) {
        let begin = self.query.len();
        self.query.push_str(&self.statement[bytes.clone()]);
        self.parts.push((begin..self.query.len(), bytes.start));
    }
}

impl TokenReader<'_> {
    /// Where tokens are in the text.
    fn bytes(&self, tokens: &Range<usize>) -> Range<usize> {
        let tokens = &self.tokens[tokens.clone()];
        let places = Places::new(self.text);
        match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) => places.byte(first.span.start)..places.byte(last.span.end),
            _ => 0..0,
        }
    }
}

/// A condition of an UPDATE or a DELETE in which regions that restrict the rows are conditions on their position, whose columns are named so
/// in a query: `qserv_areaspec_circle(1, 2, 3)` is `(scisql_s2ptincircle(ra, dec, 1, 2, 3) = 1)`. Those of subqueries stay.
///
/// # Errors
/// It cannot be read.
pub fn with_position(condition: &str, ra: &str, dec: &str) -> Result<String, SqlError> {
    let reader = TokenReader::of(condition)?;
    let places = Places::new(condition);
    let (mut text, mut from) = (String::new(), 0);
    for (at, shape) in restrictions(&reader.tokens) {
        // Within another one there is none.
        let begin = places.byte(reader.tokens[at].span.start);
        let Some(end) = closing(&reader.tokens, at + 1).filter(|_| begin >= from) else {
            continue;
        };
        let arguments = places.byte(reader.tokens[at + 1].span.end);
        let end = places.byte(reader.tokens[end].span.end);
        text.push_str(&condition[from..begin]);
        let function = shape.function();
        let numbers = &condition[arguments..end];
        text.push_str(&format!("({function}({ra}, {dec}, {numbers} = 1)"));
        from = end;
    }
    text.push_str(&condition[from..]);
    Ok(text)
}

/// The regions that restrict rows outside of subqueries: the places of their names.
fn restrictions(tokens: &[TokenWithSpan]) -> impl Iterator<Item = (usize, RegionShape)> + '_ {
    // Of each parenthesis that is open, whether it is that of a subquery.
    let mut open: Vec<bool> = Vec::new();
    (0..tokens.len()).filter_map(move |at| {
        let next = tokens.get(at + 1).map(|next| &next.token);
        match &tokens[at].token {
            Token::LParen => {
                let begins = |word| next.is_some_and(|next| is_word(next, word));
                open.push(begins("select") || begins("with"));
                None
            }
            Token::RParen => {
                open.pop();
                None
            }
            Token::Word(word) if next == Some(&Token::LParen) && !open.contains(&true) => {
                let name = fold_word(&word.value);
                let mut shapes = RegionShape::ALL.into_iter();
                Some((at, shapes.find(|shape| shape.restriction() == name)?))
            }
            _ => None,
        }
    })
}

/// The parenthesis that closes the one at a place.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth <= 1 => return Some(at),
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(statement: &str) -> ChangeCheck<'_> {
        let check = ChangeCheck::of(statement, "`ann`.`t`", true);
        check.unwrap().unwrap()
    }

    #[test]
    fn expressions_become_a_query() {
        for (statement, expected) in [
            (
                "UPDATE t SET a = b + 1, c=DEFAULT WHERE d < 3",
                "SELECT (b + 1) FROM `ann`.`t` WHERE d < 3",
            ),
            (
                "update low_priority t AS `x``y` set t.a = (SELECT MAX(a) FROM u), b = `default`",
                "SELECT ((SELECT MAX(a) FROM u)), (`default`) FROM `ann`.`t` AS `x``y`",
            ),
            ("UPDATE t SET a = DEFAULT", "SELECT 1 FROM `ann`.`t`"),
            (
                "DELETE FROM t u\nwhere\n u.a = ')'",
                "SELECT 1 FROM `ann`.`t` AS `u` where\n u.a = ')'",
            ),
            ("DELETE FROM t", "SELECT 1 FROM `ann`.`t`"),
        ] {
            assert_eq!(check(statement).query(), expected, "{statement}");
        }
        assert!(ChangeCheck::of("SELECT 1", "t", true).unwrap().is_none());
    }

    /// "there is no column nope; columns here: id, #matched, #row (line 1, column 255)", and 255 columns of the query that was executed.
    #[test]
    fn mistakes_are_told_where_they_stand_in_the_statement() {
        let statement = "UPDATE t\nSET a = nope + 1\nWHERE flaw < 3";
        let check = check(statement);
        for (name, place) in [
            (
                "nope",
                "(line 2, column 9)\n  SET a = nope + 1\n          ^^^^",
            ),
            ("flaw", "(line 3, column 7)\n  WHERE flaw < 3\n        ^^^^"),
        ] {
            let error = check.placed(SqlError::about(check.query(), name, "no"));
            assert_eq!(error.to_string(), format!("no {place}"));
        }
        let elsewhere = SqlError::about(check.query(), "ann", "no");
        assert_eq!(check.placed(elsewhere).to_string(), "no");
    }

    #[test]
    fn each_expression_is_one_of_a_row() {
        for (statement, code, place) in [
            ("UPDATE t SET a = SUM(a)", 1111, "(line 1, column 18)"),
            (
                "UPDATE t SET a = 1 + group_concat(a)",
                1111,
                "(line 1, column 22)",
            ),
            (
                "DELETE FROM t WHERE a < avg(a)",
                1111,
                "(line 1, column 25)",
            ),
            ("UPDATE t SET a = b AS c", 1064, "(line 1, column 20)"),
            (
                "UPDATE t SET a = b +\n WHERE a = 1",
                1064,
                "(line 1, column 21)",
            ),
            (
                "DELETE FROM t WHERE a = 1 GROUP BY a",
                1064,
                "(line 1, column 27)",
            ),
        ] {
            let error = ChangeCheck::of(statement, "t", true).unwrap_err();
            assert_eq!(error.code().number, code, "{statement}: {error}");
            assert!(error.to_string().contains(place), "{statement}: {error}");
        }
        for statement in [
            "UPDATE t SET a = (SELECT SUM(a) FROM t)",
            "UPDATE t SET a = SUM(a) OVER (ORDER BY b)",
        ] {
            assert!(ChangeCheck::of(statement, "t", true).is_ok(), "{statement}");
        }
    }

    #[test]
    fn regions_are_conditions_on_a_position() {
        for (condition, expected) in [
            (
                "a > 1 AND QSERV_areaspec_circle(1, -2, (3 + 4)) AND b = 2",
                "a > 1 AND (scisql_s2ptincircle(`t`.`ra`, `t`.`dec`, 1, -2, (3 + 4)) = 1) AND b = 2",
            ),
            (
                "NOT qserv_areaspec_box(0, 0, 1, 1) = 1",
                "NOT (scisql_s2ptinbox(`t`.`ra`, `t`.`dec`, 0, 0, 1, 1) = 1) = 1",
            ),
            (
                "id IN (SELECT id FROM o WHERE (a OR qserv_areaspec_circle(1, 2, 3)))",
                "id IN (SELECT id FROM o WHERE (a OR qserv_areaspec_circle(1, 2, 3)))",
            ),
            ("qserv_areaspec_circle = '('", "qserv_areaspec_circle = '('"),
        ] {
            let written = with_position(condition, "`t`.`ra`", "`t`.`dec`");
            assert_eq!(written.unwrap(), expected);
        }
        let statement = "DELETE FROM t WHERE a = 1 OR qserv_areaspec_circle(1, 2, 3)";
        assert!(ChangeCheck::of(statement, "t", true).is_ok());
        let error = ChangeCheck::of(statement, "t", false).unwrap_err();
        assert!(error.to_string().contains("(line 1, column 30)"), "{error}");
    }
}
