//! INSERT: the rows of VALUES, of SET, or of a query.
//!
//! Values that are typed keep their digits: they are stored as they stand, each by itself. All others are expressions.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::command::{Command, TableCommand, TokenReader};
use crate::fold::Places;
use crate::{ErrorCode, SqlError};

/// Where the rows of an INSERT come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertedRows {
    /// A query.
    Query(String),
    /// The rows of VALUES.
    Values(Vec<Vec<InsertedValue>>),
}

/// A value of a row of VALUES.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertedValue {
    /// NULL.
    Null,
    /// The column's default.
    Default,
    /// A text.
    Text(String),
    /// A number as it is typed, with its sign.
    Number(String),
    /// The bytes of a hexadecimal literal.
    Bits(Vec<u8>),
    /// Anything else: its text.
    Expression(String),
}

const NO_IGNORE: &str = "IGNORE is not known here: a row that cannot be stored is told and nothing is inserted; leave IGNORE out, and CAST or leave out in the query \
     what its column cannot hold";
const NO_DUPLICATES: &str = "ON DUPLICATE KEY UPDATE is not known here: tables of one's own have no keys, so that no row is a duplicate; leave it out, or UPDATE the rows \
     that there are and INSERT the others";
const NO_RETURNING: &str = "RETURNING is not known here: SELECT the rows after the INSERT";
const NO_REPLACE: &str = "REPLACE is not known here: tables of one's own have no keys by which a row would replace another; DELETE the old rows, then INSERT the new ones";

impl TokenReader<'_> {
    /// `INSERT [INTO] name [(columns)] query`, `VALUES (...), (...)`, or `SET column = value, ...`.
    pub(super) fn read_insert(&mut self) -> Result<Option<Command>, SqlError> {
        let _ = self.word("low_priority") || self.word("high_priority") || self.word("delayed");
        if self.word("ignore") {
            return Err(unsupported(NO_IGNORE));
        }
        let _ = self.word("into");
        let table = self.target()?;
        let mut columns = Vec::new();
        let is_list = self.peek() == Some(&Token::LParen) && !self.is_query(1);
        if is_list && self.sign(&Token::LParen) {
            columns = self.names_in_parentheses()?;
        }
        self.reject_clauses()?;
        let rows = if self.word("values") || self.word("value") {
            InsertedRows::Values(self.values()?)
        } else if columns.is_empty() && self.word("set") {
            let (names, row) = self.set_values()?;
            columns = names;
            InsertedRows::Values(vec![row])
        } else {
            let query = self.rest_of_query();
            InsertedRows::Query(query.ok_or_else(|| self.expected("VALUES or a query"))?)
        };
        Ok(Some(Command::Table(TableCommand::Insert {
            table,
            columns,
            rows,
        })))
    }

    /// `REPLACE`, which there is not.
    pub(super) fn read_replace(&mut self) -> Result<Option<Command>, SqlError> {
        Err(unsupported(NO_REPLACE))
    }

    /// The rest of a list of names, up to its parenthesis.
    pub(super) fn names_in_parentheses(&mut self) -> Result<Vec<String>, SqlError> {
        let mut names = Vec::new();
        loop {
            names.push(self.name("the name of a column")?);
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        match self.sign(&Token::RParen) {
            true => Ok(names),
            false => Err(self.expected(")")),
        }
    }

    /// Rejects clauses behind the rows that would change what happens to them, wherever they are outside of parentheses.
    fn reject_clauses(&self) -> Result<(), SqlError> {
        let mut depth = 0_usize;
        let rest = self.tokens.get(self.at..).unwrap_or_default();
        for (at, token) in rest.iter().enumerate() {
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                word if depth == 0 && is_word(word, "on") => {
                    let next = |ahead: usize, word| {
                        let next = rest.get(at + ahead);
                        next.is_some_and(|next| is_word(&next.token, word))
                    };
                    if next(1, "duplicate") && next(2, "key") {
                        return Err(unsupported(NO_DUPLICATES));
                    }
                }
                word if depth == 0 && is_word(word, "returning") => {
                    return Err(unsupported(NO_RETURNING));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The rows of VALUES.
    fn values(&mut self) -> Result<Vec<Vec<InsertedValue>>, SqlError> {
        let places = Places::new(self.text);
        let mut rows = Vec::new();
        loop {
            let _ = self.word("row");
            if !self.sign(&Token::LParen) {
                return Err(self.expected("( and the values of a row"));
            }
            if self.peek() == Some(&Token::RParen) {
                let sentence = "a row of VALUES has no values: write one for each column, or NULL";
                return Err(SqlError::new(sentence).with_code(ErrorCode::SYNTAX));
            }
            let mut row = Vec::new();
            loop {
                let value = self.value_tokens()?;
                row.push(inserted(self.text, &places, &self.tokens[value])?);
                if !self.sign(&Token::Comma) {
                    break;
                }
            }
            if !self.sign(&Token::RParen) {
                return Err(self.expected(")"));
            }
            rows.push(row);
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        Ok(rows)
    }

    /// `column = value, ...`.
    fn set_values(&mut self) -> Result<(Vec<String>, Vec<InsertedValue>), SqlError> {
        let places = Places::new(self.text);
        let (mut names, mut row) = (Vec::new(), Vec::new());
        loop {
            names.push(self.name("the name of a column")?);
            if !self.sign(&Token::Eq) && !self.sign(&Token::Assignment) {
                return Err(self.expected("="));
            }
            let value = self.value_tokens()?;
            row.push(inserted(self.text, &places, &self.tokens[value])?);
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        Ok((names, row))
    }

    /// The tokens up to a comma or a parenthesis that they do not begin: at least one.
    fn value_tokens(&mut self) -> Result<std::ops::Range<usize>, SqlError> {
        let start = self.at;
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Comma if depth == 0 => break,
                Token::RParen if depth == 0 => break,
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        if start == self.at {
            return Err(self.expected("a value"));
        }
        Ok(start..self.at)
    }
}

fn unsupported(sentence: &str) -> SqlError {
    SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED)
}

pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(it) if it.quote_style.is_none() && it.value.eq_ignore_ascii_case(word))
}

/// The error for IGNORE of a statement that has it elsewhere.
pub(super) fn no_ignore() -> SqlError {
    unsupported(NO_IGNORE)
}

/// The value that these tokens of a text are, of which there is at least one.
fn inserted(
    text: &str,
    places: &Places<'_>,
    tokens: &[TokenWithSpan],
) -> Result<InsertedValue, SqlError> {
    if let [only] = tokens {
        match &only.token {
            Token::SingleQuotedString(value) | Token::DoubleQuotedString(value) => {
                return Ok(InsertedValue::Text(value.clone()));
            }
            Token::HexStringLiteral(digits) => {
                if let Some(bytes) = bytes_of(digits) {
                    return Ok(InsertedValue::Bits(bytes));
                }
            }
            word if is_word(word, "null") => return Ok(InsertedValue::Null),
            word if is_word(word, "default") => return Ok(InsertedValue::Default),
            word if is_word(word, "true") => return Ok(InsertedValue::Number("1".to_owned())),
            word if is_word(word, "false") => return Ok(InsertedValue::Number("0".to_owned())),
            _ => {}
        }
    }
    if let Some(number) = typed_number(tokens) {
        return Ok(InsertedValue::Number(number));
    }
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
        return Ok(InsertedValue::Null);
    };
    reject_default_calls(tokens)?;
    let text = &text[places.byte(first.span.start)..places.byte(last.span.end)];
    Ok(InsertedValue::Expression(text.to_owned()))
}

/// The value that the expression of a column's default is.
///
/// # Errors
/// It cannot be read.
pub fn default_value(text: &str) -> Result<InsertedValue, SqlError> {
    let reader = TokenReader::of(text)?;
    inserted(text, &Places::new(text), &reader.tokens)
}

/// Rejects `DEFAULT(column)` and DEFAULT within an expression.
pub(super) fn reject_default_calls(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    if tokens.iter().any(|token| is_word(&token.token, "default")) {
        let sentence = "DEFAULT stands for a whole value here, as in VALUES (1, DEFAULT): DEFAULT(column) and expressions with it are not known; SHOW COLUMNS tells \
             the default, write it out";
        return Err(unsupported(sentence));
    }
    Ok(())
}

/// The digits of a number that stands alone, with its sign: `-1.5` of `-1.5`, `(-1.5)` and `- (1.5)`.
fn typed_number(tokens: &[TokenWithSpan]) -> Option<String> {
    let (mut rest, mut negative) = (tokens, false);
    loop {
        rest = match rest {
            [sign, rest @ ..] if sign.token == Token::Minus => {
                negative = !negative;
                rest
            }
            [sign, rest @ ..] if sign.token == Token::Plus => rest,
            [first, inner @ .., last]
                if first.token == Token::LParen && last.token == Token::RParen =>
            {
                inner
            }
            [only] => match &only.token {
                Token::Number(digits, _) => {
                    let sign = if negative { "-" } else { "" };
                    return Some(format!("{sign}{digits}"));
                }
                _ => return None,
            },
            _ => return None,
        };
    }
}

/// The bytes of hexadecimal digits, of which the first may be left out.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let padded = match digits.len() % 2 {
        0 => digits.to_owned(),
        _ => format!("0{digits}"),
    };
    let byte = |at| u8::from_str_radix(padded.get(at..at + 2)?, 16).ok();
    (0..padded.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::super::command::{TargetTable, command};
    use super::*;

    fn read(text: &str) -> (TargetTable, Vec<String>, InsertedRows) {
        match command(text) {
            Ok(Some(Command::Table(TableCommand::Insert {
                table,
                columns,
                rows,
            }))) => (table, columns, rows),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn values(text: &str) -> Vec<InsertedValue> {
        match read(&format!("INSERT INTO t VALUES ({text})")).2 {
            InsertedRows::Values(mut rows) if rows.len() == 1 => rows.remove(0),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn values_are_kept_as_they_are_typed() {
        use InsertedValue::{Bits, Default, Expression, Null, Number, Text};
        let number = |digits: &str| Number(digits.to_owned());
        assert_eq!(
            values("9007199254740993, -1.50, +(.5), - (-2), (1e-3), 0x41, X'0aFF', 0x1"),
            [
                number("9007199254740993"),
                number("-1.50"),
                number(".5"),
                number("2"),
                number("1e-3"),
                Bits(vec![0x41]),
                Bits(vec![0x0a, 0xff]),
                Bits(vec![1]),
            ]
        );
        assert_eq!(
            values(r#"NULL, default, 'it''s', "a\\b", TRUE, False"#),
            [
                Null,
                Default,
                Text("it's".to_owned()),
                Text("a\\b".to_owned()),
                number("1"),
                number("0")
            ]
        );
        let expression = |text: &str| Expression(text.to_owned());
        assert_eq!(
            values("1 + 2, (1) + (2), CONCAT('x)', (2), ','), `null`, 'a' 'b', -'5'"),
            [
                expression("1 + 2"),
                expression("(1) + (2)"),
                expression("CONCAT('x)', (2), ',')"),
                expression("`null`"),
                expression("'a' 'b'"),
                expression("-'5'"),
            ]
        );
    }

    #[test]
    fn rows_are_inserted() {
        let (into, columns, rows) = read("INSERT INTO t (`a b`, c) VALUES (1, 2), ROW(-3, NULL)");
        assert_eq!(into.table, "t");
        assert_eq!(columns, ["a b", "c"]);
        let InsertedRows::Values(rows) = rows else {
            panic!("no VALUES");
        };
        assert_eq!(rows.len(), 2);
        let (_, columns, rows) = read("INSERT LOW_PRIORITY t SET a = 1, `b` = f(1, 2)");
        assert_eq!(columns, ["a", "b"]);
        let row = vec![
            InsertedValue::Number("1".to_owned()),
            InsertedValue::Expression("f(1, 2)".to_owned()),
        ];
        assert_eq!(rows, InsertedRows::Values(vec![row]));
        let (_, columns, rows) = read("INSERT INTO t (SELECT 1)");
        assert!(columns.is_empty());
        assert_eq!(rows, InsertedRows::Query("(SELECT 1)".to_owned()));
        for wrong in [
            "INSERT INTO t",
            "INSERT INTO t VALUES",
            "INSERT INTO t VALUES ()",
            "INSERT INTO t VALUES (1",
            "INSERT INTO t VALUES (1,)",
            "INSERT INTO t VALUES (1) x",
            "INSERT INTO t (a VALUES (1)",
            "INSERT INTO t SET a",
        ] {
            let error = command(wrong).unwrap_err();
            assert_eq!(error.code().number, 1064, "{wrong}");
        }
    }

    #[test]
    fn what_would_need_keys_is_rejected() {
        for (text, word) in [
            ("INSERT IGNORE INTO t VALUES (1)", "IGNORE"),
            ("REPLACE INTO t VALUES (1)", "REPLACE"),
            (
                "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 2",
                "ON DUPLICATE",
            ),
            (
                "INSERT INTO t SELECT 1 ON DUPLICATE KEY UPDATE a = 2",
                "ON DUPLICATE",
            ),
            ("INSERT INTO t VALUES (1) RETURNING a", "RETURNING"),
            ("INSERT INTO t VALUES (DEFAULT(a))", "DEFAULT"),
            ("INSERT INTO t VALUES (DEFAULT + 1)", "DEFAULT"),
        ] {
            let error = command(text).unwrap_err();
            assert_eq!(error.code().number, 1235, "{text}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
