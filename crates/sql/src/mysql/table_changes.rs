//! Statements that change the rows and columns of tables: UPDATE, DELETE, TRUNCATE, ALTER TABLE, and CREATE TABLE with columns.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TableCommand, TokenReader};
use crate::fold::Places;
use crate::{ErrorCode, SqlError};

/// One change of an ALTER TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnChange {
    /// `ADD COLUMN name type [DEFAULT expression]`.
    Add {
        /// The column.
        column: DeclaredColumn,
        /// The expression whose value the rows get that there are.
        value: Option<String>,
    },
    /// `DROP COLUMN name`.
    Drop(String),
    /// `RENAME COLUMN from TO to`.
    Rename {
        /// The name that it has.
        from: String,
        /// The name that it gets.
        to: String,
    },
}

/// A column as it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredColumn {
    /// Its name.
    pub name: String,
    /// Its type in MySQL's words, with `NOT NULL` if that was given.
    pub ty: String,
}

/// One column of an UPDATE and the text of the expression whose value it gets.
pub type Assigned = (String, String);

/// Words of a column that would promise what tables here do not keep, and what to do instead.
const UNKEPT: [(&str, &str); 7] = [
    (
        "auto_increment",
        "give the numbers yourself, as with ROW_NUMBER() OVER ()",
    ),
    (
        "unique",
        "look for doubles with GROUP BY ... HAVING COUNT(*) > 1",
    ),
    ("primary", "a table of one's own has no keys: leave it out"),
    (
        "references",
        "a table of one's own has no keys: leave it out",
    ),
    ("generated", "compute it in the query"),
    ("check", "put the condition into the query"),
    ("on", "set the value with UPDATE"),
];
/// Words with which an item of CREATE TABLE begins that is no column.
const NO_COLUMNS: [&str; 8] = [
    "primary",
    "unique",
    "key",
    "index",
    "constraint",
    "foreign",
    "fulltext",
    "check",
];

type Read = Result<Option<Command>, SqlError>;

impl TokenReader<'_> {
    /// `UPDATE name SET column = expression, ... [WHERE condition]`.
    pub(super) fn read_update(&mut self) -> Read {
        let _ = self.word("low_priority");
        let table = self.target()?;
        let alias = self.alias("set")?;
        if !self.word("set") {
            return Err(self.expected("SET"));
        }
        let mut assigned: Vec<Assigned> = Vec::new();
        loop {
            let mut column = self.name("the name of a column")?;
            if self.sign(&Token::Period) {
                column = self.name("the name of a column")?;
            }
            if !self.sign(&Token::Eq) && !self.sign(&Token::Assignment) {
                return Err(self.expected("="));
            }
            let value = self.expression(&["where", "order", "limit"], true)?;
            assigned.push((column, value));
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        let condition = self.condition("UPDATE")?;
        Ok(Some(Command::Table(TableCommand::Update {
            table,
            alias,
            assigned,
            condition,
        })))
    }

    /// `DELETE FROM name [WHERE condition]`.
    pub(super) fn read_delete(&mut self) -> Read {
        let _ = self.word("low_priority") || self.word("quick");
        if !self.word("from") {
            return Err(self.expected("FROM"));
        }
        let table = self.target()?;
        let alias = self.alias("where")?;
        let condition = self.condition("DELETE")?;
        Ok(Some(Command::Table(TableCommand::Delete {
            table,
            alias,
            condition,
        })))
    }

    /// `TRUNCATE [TABLE] name`.
    pub(super) fn read_truncate(&mut self) -> Read {
        let _ = self.word("table");
        let table = self.target()?;
        self.end()?;
        Ok(Some(Command::Table(TableCommand::Truncate(table))))
    }

    /// `ALTER TABLE name ADD|DROP|RENAME COLUMN ..., ...`.
    pub(super) fn read_alter_table(&mut self) -> Read {
        let table = self.target()?;
        let mut changes = Vec::new();
        loop {
            changes.push(self.column_change()?);
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        Ok(Some(Command::Table(TableCommand::Alter { table, changes })))
    }

    fn column_change(&mut self) -> Result<ColumnChange, SqlError> {
        if self.word("add") {
            let _ = self.word("column");
            self.reject_no_column()?;
            let column = self.declared_column()?;
            let value = match self.word("default") {
                true => Some(self.expression(&["first", "after"], true)?),
                false => None,
            };
            if self.word("first") || self.word("after") {
                let sentence = "a column is added behind the others: leave out FIRST and AFTER";
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
            return Ok(ColumnChange::Add { column, value });
        }
        if self.word("drop") {
            let _ = self.word("column");
            self.reject_no_column()?;
            return Ok(ColumnChange::Drop(self.name("the name of a column")?));
        }
        if self.word("rename") && self.word("column") {
            let from = self.name("the name of a column")?;
            if !self.word("to") {
                return Err(self.expected("TO"));
            }
            let to = self.name("the name of a column")?;
            return Ok(ColumnChange::Rename { from, to });
        }
        let sentence = "ALTER TABLE takes ADD COLUMN, DROP COLUMN and RENAME COLUMN here; for all else make another table: CREATE TABLE new AS SELECT ... FROM old";
        Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
    }

    /// The columns of a CREATE TABLE, behind the parenthesis that begins them, and options without effect.
    pub(super) fn declared_columns(&mut self) -> Result<Vec<DeclaredColumn>, SqlError> {
        let mut columns = Vec::new();
        loop {
            self.reject_no_column()?;
            columns.push(self.declared_column()?);
            if self.word("default") {
                let sentence = "DEFAULT of a column is not kept here: give a value for each column with INSERT";
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
            if self.sign(&Token::RParen) {
                break;
            }
            if !self.sign(&Token::Comma) {
                return Err(self.expected(", or )"));
            }
        }
        // ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 and their like.
        while let Some(token) = self.peek() {
            let is_option = matches!(
                token,
                Token::Word(_) | Token::Eq | Token::Number(..) | Token::Comma
            ) || matches!(token, Token::SingleQuotedString(_));
            if !is_option || self.is_query(0) {
                return Err(self.expected("the end"));
            }
            self.at += 1;
        }
        Ok(columns)
    }

    fn reject_no_column(&self) -> Result<(), SqlError> {
        match self.peek() {
            Some(Token::Word(word))
                if word.quote_style.is_none()
                    && NO_COLUMNS
                        .iter()
                        .any(|it| word.value.eq_ignore_ascii_case(it)) =>
            {
                let sentence = format!(
                    "tables of one's own have no keys and indexes: leave {} out",
                    word.value
                );
                Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
            }
            _ => Ok(()),
        }
    }

    /// A name and a type, up to a comma, a parenthesis or DEFAULT.
    fn declared_column(&mut self) -> Result<DeclaredColumn, SqlError> {
        let name = self.name("the name of a column")?;
        let ty = self.expression(&["default", "first", "after", "comment"], true)?;
        for word in ty.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let unkept = UNKEPT.iter().find(|(it, _)| word.eq_ignore_ascii_case(it));
            if let Some((word, instead)) = unkept {
                let word = word.to_uppercase();
                let sentence = format!("{word} of the column {name} is not kept here: {instead}");
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
        }
        if self.word("comment") {
            self.at += 1;
        }
        Ok(DeclaredColumn { name, ty })
    }

    /// Another name of the table, up to a word.
    fn alias(&mut self, next: &str) -> Result<Option<String>, SqlError> {
        let has_as = self.word("as");
        let is_next = matches!(self.peek(), Some(Token::Word(word))
            if word.quote_style.is_none()
                && [next, "where", "order", "limit"].iter().any(|it| word.value.eq_ignore_ascii_case(it)));
        match self.peek() {
            Some(Token::Word(_)) if has_as || !is_next => self.name("a name").map(Some),
            Some(Token::Comma) => {
                let sentence = "one table is changed at a time";
                Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
            }
            _ => Ok(None),
        }
    }

    /// The text of the WHERE, if there is one, up to the statement's end.
    fn condition(&mut self, statement: &str) -> Result<Option<String>, SqlError> {
        let condition = match self.word("where") {
            true => Some(self.expression(&["order", "limit"], false)?),
            false => None,
        };
        if self.word("order") || self.word("limit") {
            let sentence = format!(
                "{statement} takes all rows of its condition here: write which ones into WHERE instead of ORDER BY and LIMIT"
            );
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        self.end()?;
        Ok(condition)
    }

    /// The text up to one of these words, to a comma where it ends at one, or to a parenthesis that it does not begin.
    fn expression(&mut self, before: &[&str], to_comma: bool) -> Result<String, SqlError> {
        let start = self.at;
        let mut depth = 0_usize;
        // ORDER BY and its like within CASE ... END need no parentheses, but no such words stand there.
        while let Some(token) = self.peek() {
            match token {
                Token::Comma if depth == 0 && to_comma => break,
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => break,
                Token::RParen => depth -= 1,
                Token::Word(word)
                    if depth == 0
                        && word.quote_style.is_none()
                        && before.iter().any(|it| word.value.eq_ignore_ascii_case(it)) =>
                {
                    break;
                }
                _ => {}
            }
            self.at += 1;
        }
        let tokens = &self.tokens[start..self.at];
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return Err(self.expected("an expression"));
        };
        let places = Places::new(self.text);
        Ok(self.text[places.byte(first.span.start)..places.byte(last.span.end)].to_owned())
    }
}

/// The new values of an UPDATE, each of the values that the row had before: MySQL assigns from left to right, so that a later expression
/// sees what the earlier ones have given.
///
/// # Errors
/// A later expression has a subquery, in which the name may be another table's.
pub fn from_left_to_right(assigned: &[Assigned], table: &str) -> Result<Vec<Assigned>, SqlError> {
    let mut values: Vec<Assigned> = Vec::with_capacity(assigned.len());
    for (column, expression) in assigned {
        let value = with_values(expression, &values, table)?;
        // A column that is assigned twice has the last value.
        values.retain(|(known, _)| !known.eq_ignore_ascii_case(column));
        values.push((column.clone(), value));
    }
    Ok(values)
}

/// An expression with values in the places of the columns that have got them.
fn with_values(expression: &str, values: &[Assigned], table: &str) -> Result<String, SqlError> {
    if values.is_empty() {
        return Ok(expression.to_owned());
    }
    let reader = TokenReader::of(expression)?;
    let places = Places::new(expression);
    let (mut text, mut from) = (String::new(), 0);
    let has_subquery = reader.tokens.iter().any(|token| {
        matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("select"))
    });
    for (at, token) in reader.tokens.iter().enumerate() {
        let Token::Word(word) = &token.token else {
            continue;
        };
        let known = values
            .iter()
            .find(|(column, _)| column.eq_ignore_ascii_case(&word.value));
        let Some((column, value)) = known else {
            continue;
        };
        let near = |offset: isize| {
            let at = at.checked_add_signed(offset)?;
            reader.tokens.get(at).map(|token| &token.token)
        };
        if near(1) == Some(&Token::LParen) || near(1) == Some(&Token::Period) {
            continue;
        }
        if has_subquery {
            let sentence = format!(
                "{column} has got another value before this expression, which has a subquery: write it as an UPDATE of its own"
            );
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        let mut begin = token.span.start;
        if near(-1) == Some(&Token::Period) {
            match near(-2) {
                Some(Token::Word(of)) if of.value.eq_ignore_ascii_case(table) => {
                    begin = reader.tokens[at - 2].span.start;
                }
                _ => continue,
            }
        }
        text.push_str(&expression[from..places.byte(begin)]);
        text.push_str(&format!("({value})"));
        from = places.byte(token.span.end);
    }
    text.push_str(&expression[from..]);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::command::{TargetTable, command};
    use super::*;

    fn read(text: &str) -> TableCommand {
        match command(text) {
            Ok(Some(Command::Table(command))) => command,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn table(name: &str) -> TargetTable {
        TargetTable {
            database: None,
            table: name.to_owned(),
        }
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<Assigned> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn rows_are_updated_and_deleted() {
        assert_eq!(
            read(
                "UPDATE t AS x SET a = IF(b > 1, 2, 3), x.`c d` = 'where', e = DEFAULT_VALUE WHERE a IN (1, 2) AND b = ','"
            ),
            TableCommand::Update {
                table: table("t"),
                alias: Some("x".to_owned()),
                assigned: pairs(&[
                    ("a", "IF(b > 1, 2, 3)"),
                    ("c d", "'where'"),
                    ("e", "DEFAULT_VALUE")
                ]),
                condition: Some("a IN (1, 2) AND b = ','".to_owned()),
            }
        );
        assert_eq!(
            read("DELETE FROM t"),
            TableCommand::Delete {
                table: table("t"),
                alias: None,
                condition: None
            }
        );
        assert_eq!(
            read("delete from t where (a, b) in (select 1, 2)"),
            TableCommand::Delete {
                table: table("t"),
                alias: None,
                condition: Some("(a, b) in (select 1, 2)".to_owned())
            }
        );
        assert_eq!(read("TRUNCATE TABLE t"), TableCommand::Truncate(table("t")));
    }

    #[test]
    fn columns_are_declared_and_changed() {
        let column = |name: &str, ty: &str| DeclaredColumn {
            name: name.to_owned(),
            ty: ty.to_owned(),
        };
        let made = "CREATE TABLE IF NOT EXISTS t (id BIGINT NOT NULL, `a b` DECIMAL(10, 2), c VARCHAR(20) COMMENT 'it') ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
        assert_eq!(
            read(made),
            TableCommand::Declare {
                table: table("t"),
                if_not_exists: true,
                columns: vec![
                    column("id", "BIGINT NOT NULL"),
                    column("a b", "DECIMAL(10, 2)"),
                    column("c", "VARCHAR(20)")
                ],
            }
        );
        assert_eq!(
            read(
                "ALTER TABLE t ADD COLUMN a INT DEFAULT 1 + 2, ADD b DOUBLE, DROP c, RENAME COLUMN d TO e"
            ),
            TableCommand::Alter {
                table: table("t"),
                changes: vec![
                    ColumnChange::Add {
                        column: column("a", "INT"),
                        value: Some("1 + 2".to_owned())
                    },
                    ColumnChange::Add {
                        column: column("b", "DOUBLE"),
                        value: None
                    },
                    ColumnChange::Drop("c".to_owned()),
                    ColumnChange::Rename {
                        from: "d".to_owned(),
                        to: "e".to_owned()
                    },
                ],
            }
        );
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        for (text, number) in [
            ("CREATE TABLE t (id INT PRIMARY KEY)", 1235),
            ("CREATE TABLE t (id INT AUTO_INCREMENT)", 1235),
            ("CREATE TABLE t (id INT, KEY (id))", 1235),
            ("CREATE TABLE t (id INT DEFAULT 1)", 1235),
            ("CREATE TABLE t (id)", 1064),
            ("CREATE TABLE t ()", 1064),
            ("CREATE TABLE t (id INT) AS SELECT 1", 1064),
            ("UPDATE t SET a = 1 LIMIT 5", 1235),
            ("UPDATE a, b SET a.x = 1", 1235),
            ("UPDATE t SET a", 1064),
            ("UPDATE t WHERE a = 1", 1064),
            ("DELETE FROM t ORDER BY a LIMIT 1", 1235),
            ("DELETE t WHERE a = 1", 1064),
            ("ALTER TABLE t ENGINE = InnoDB", 1235),
            ("ALTER TABLE t ADD INDEX (a)", 1235),
            ("ALTER TABLE t ADD a INT FIRST", 1235),
            ("TRUNCATE TABLE t x", 1064),
        ] {
            let error = command(text).unwrap_err();
            assert_eq!(error.code().number, number, "{text}: {error}");
        }
    }

    #[test]
    fn values_are_assigned_from_left_to_right() {
        let assigned = pairs(&[
            ("a", "a + 1"),
            ("b", "t.a * A + x.a + a(1)"),
            ("a", "b"),
            ("c", "`b`"),
        ]);
        let values = from_left_to_right(&assigned, "t").unwrap();
        assert_eq!(
            values,
            pairs(&[
                ("b", "(a + 1) * (a + 1) + x.a + a(1)"),
                ("a", "((a + 1) * (a + 1) + x.a + a(1))"),
                ("c", "((a + 1) * (a + 1) + x.a + a(1))"),
            ])
        );
        let with_subquery = pairs(&[("a", "1"), ("b", "(SELECT MAX(a) FROM u)")]);
        assert!(from_left_to_right(&with_subquery, "t").is_err());
    }
}
