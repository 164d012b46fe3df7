//! Statements that change the rows and columns of tables: UPDATE, DELETE, TRUNCATE, ALTER TABLE, and CREATE TABLE with columns.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TableCommand, TargetTable, TokenReader};
use super::insert_command::{is_word, no_ignore, reject_default_calls};
use super::pieces::first_word;
use crate::connection::user_variable;
use crate::fold::{Places, fold_word};
use crate::{ErrorCode, SqlError};

/// One change of an ALTER TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnChange {
    /// `ADD COLUMN name type [DEFAULT value]`.
    Add(DeclaredColumn),
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
    /// The expression of its default, if one was given that is not NULL: in parentheses unless it is one value.
    pub default: Option<String>,
}

/// One column of an UPDATE and the text of the expression whose value it gets.
pub type ColumnAssignment = (String, String);

/// Words of a column that would promise what tables here do not keep, and what to do instead.
const UNKEPT: [(&str, &str); 11] = [
    (
        "auto_increment",
        "give the numbers yourself, as with ROW_NUMBER() OVER ()",
    ),
    (
        "unique",
        "look for doubles with GROUP BY ... HAVING COUNT(*) > 1",
    ),
    ("primary", "a table of one's own has no keys: leave it out"),
    ("key", "a table of one's own has no keys: leave it out"),
    (
        "references",
        "a table of one's own has no keys: leave it out",
    ),
    ("generated", "compute it in the query"),
    ("as", "compute it in the query"),
    ("check", "put the condition into the query"),
    ("on", "set the value with UPDATE"),
    ("invisible", "name the columns in the query"),
    ("visible", "it is so anyway: leave it out"),
];
/// Types whose promises are not kept, and what to declare instead.
const UNKEPT_TYPES: [(&str, &str); 3] = [
    ("enum", "VARCHAR, and put the condition into the query"),
    ("set", "VARCHAR, or an integer of bits"),
    ("year", "SMALLINT"),
];
/// Words that follow the type of a column, or its default.
const ATTRIBUTES: [&str; 15] = [
    "default",
    "comment",
    "not",
    "null",
    "first",
    "after",
    "auto_increment",
    "unique",
    "primary",
    "key",
    "references",
    "generated",
    "check",
    "on",
    "as",
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
        if self.word("ignore") {
            return Err(no_ignore());
        }
        let table = self.target()?;
        let alias = self.alias("set")?;
        if !self.word("set") {
            return Err(self.expected("SET"));
        }
        let assigned = self.assignments(&["where", "order", "limit"])?;
        let condition = self.condition("UPDATE")?;
        Ok(Some(Command::Table(TableCommand::Update {
            table,
            alias,
            assigned,
            condition,
        })))
    }

    /// `column = expression, ...`, up to one of these words.
    pub(super) fn assignments(
        &mut self,
        before: &[&str],
    ) -> Result<Vec<ColumnAssignment>, SqlError> {
        let mut assigned = Vec::new();
        loop {
            if self.user_variable().is_some() {
                self.at -= 1;
                return Err(self.expected("the name of a column"));
            }
            let mut column = self.name("the name of a column")?;
            while self.sign(&Token::Period) {
                column = self.name("the name of a column")?;
            }
            if !self.sign(&Token::Eq) && !self.sign(&Token::Assignment) {
                return Err(self.expected("="));
            }
            let begin = self.at;
            let value = self.expression(before, true)?;
            if self.at > begin + 1 {
                reject_default_calls(&self.tokens[begin..self.at])?;
            }
            assigned.push((column, value));
            if !self.sign(&Token::Comma) {
                return Ok(assigned);
            }
        }
    }

    /// `DELETE FROM name [WHERE condition]`.
    pub(super) fn read_delete(&mut self) -> Read {
        let _ = self.word("low_priority") || self.word("quick");
        if self.word("ignore") {
            return Err(no_ignore());
        }
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

    /// `RENAME TABLE name TO name`.
    pub(super) fn read_rename(&mut self) -> Read {
        if !self.word("table") && !self.word("tables") {
            return Ok(None);
        }
        let from = self.target()?;
        if !self.word("to") {
            return Err(self.expected("TO"));
        }
        self.renamed(from)
    }

    /// The new name of a table, which is the end.
    fn renamed(&mut self, from: TargetTable) -> Read {
        let to = self.target()?;
        if self.peek() == Some(&Token::Comma) {
            let sentence = "one table is renamed at a time: write a statement for each";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        self.end()?;
        Ok(Some(Command::Table(TableCommand::Rename { from, to })))
    }

    /// `ALTER TABLE name ADD|DROP|RENAME COLUMN ..., ...`, and `RENAME [TO|AS] name` alone.
    pub(super) fn read_alter_table(&mut self) -> Read {
        let table = self.target()?;
        let next = self.tokens.get(self.at + 1);
        let is_column = next.is_some_and(|next| is_word(&next.token, "column"));
        if !is_column && self.word("rename") {
            let _ = self.word("to") || self.word("as");
            return self.renamed(table);
        }
        if self.word("expire") {
            let expiry = self.expiry()?;
            self.end()?;
            return Ok(Some(Command::Table(TableCommand::Expire { table, expiry })));
        }
        if self.word("release") {
            return self.read_release(table);
        }
        if let Some(partition) = self.partition()? {
            self.end()?;
            return Ok(Some(Command::Table(TableCommand::Partition {
                table,
                partition,
            })));
        }
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
            if self.word("first") || self.word("after") {
                let sentence = "a column is added behind the others: leave out FIRST and AFTER";
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
            return Ok(ColumnChange::Add(column));
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

    /// The columns of a CREATE TABLE, behind the parenthesis that begins them, and options without effect, up to the end, PARTITION or a query.
    pub(super) fn declared_columns(&mut self) -> Result<Vec<DeclaredColumn>, SqlError> {
        let mut columns = Vec::new();
        loop {
            self.reject_no_column()?;
            columns.push(self.declared_column()?);
            if self.sign(&Token::RParen) {
                break;
            }
            if !self.sign(&Token::Comma) {
                return Err(self.expected(", or )"));
            }
        }
        // ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 and their like.
        while let Some(token) = self.peek() {
            let is_end = ["partition", "as", "from"]
                .iter()
                .any(|it| is_word(token, it));
            if is_end || self.is_query(0) {
                break;
            }
            if is_word(token, "ignore") || is_word(token, "replace") {
                let sentence = "IGNORE and REPLACE are not known here: tables of one's own have no keys, so that no row is a duplicate; leave them out";
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
            let is_option = matches!(
                token,
                Token::Word(_) | Token::Eq | Token::Number(..) | Token::Comma
            ) || matches!(token, Token::SingleQuotedString(_));
            if !is_option {
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

    /// A name, a type and attributes, up to a comma, a parenthesis, FIRST or AFTER.
    fn declared_column(&mut self) -> Result<DeclaredColumn, SqlError> {
        let name = self.name("the name of a column")?;
        let mut ty = self.expression(&ATTRIBUTES, true)?;
        let unkept =
            { UNKEPT_TYPES.iter() }.find(|(it, _)| first_word(&ty).eq_ignore_ascii_case(it));
        if let Some((kind, instead)) = unkept {
            let kind = kind.to_uppercase();
            let sentence = format!(
                "the column {name}: the type {kind} is not kept here: declare it {instead}"
            );
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        reject_rounded_floats(&name, &ty)?;
        let mut default = None;
        let (mut is_not_null, mut has_null_default) = (false, false);
        loop {
            self.reject_unkept(&name)?;
            if self.word("not") {
                if !self.word("null") {
                    return Err(self.expected("NULL"));
                }
                is_not_null = true;
                ty.push_str(" NOT NULL");
            } else if self.word("comment") {
                self.at += 1;
            } else if self.word("default") {
                default = self.default_value()?;
                has_null_default = default.is_none();
            } else if !self.word("null") {
                break;
            }
        }
        if is_not_null && has_null_default {
            let sentence = format!(
                "the default of the column {name} is NULL, which it cannot hold: leave out DEFAULT NULL, or NOT NULL"
            );
            return Err(SqlError::new(sentence).with_code(ErrorCode::INVALID_DEFAULT));
        }
        Ok(DeclaredColumn { name, ty, default })
    }

    fn reject_unkept(&self, column: &str) -> Result<(), SqlError> {
        let unkept = UNKEPT
            .iter()
            .find(|(it, _)| self.peek().is_some_and(|token| is_word(token, it)));
        match unkept {
            Some((word, instead)) => {
                let word = word.to_uppercase();
                let sentence = format!("{word} of the column {column} is not kept here: {instead}");
                Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
            }
            None => Ok(()),
        }
    }

    /// The expression behind DEFAULT; `None` if it is NULL.
    fn default_value(&mut self) -> Result<Option<String>, SqlError> {
        if self.word("null") {
            return Ok(None);
        }
        let begin = self.at;
        let text = self.expression(&ATTRIBUTES, true)?;
        let tokens = &self.tokens[begin..self.at];
        for token in tokens {
            let unsteady = ["rand", "uuid", "select", "sleep"];
            if let Some(word) = unsteady.iter().find(|word| is_word(&token.token, word)) {
                let word = word.to_uppercase();
                let sentence = format!(
                    "a default is one value for all rows of a statement: leave out {word}, and give the values with INSERT or UPDATE"
                );
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
        }
        let is_one = match tokens {
            [_] => true,
            [sign, number] => {
                matches!(sign.token, Token::Minus | Token::Plus)
                    && matches!(number.token, Token::Number(..))
            }
            // CURRENT_TIMESTAMP(6), or what has parentheses already.
            [word, open, .., close] => {
                let is_word = matches!(&word.token, Token::Word(_));
                let inner = &tokens[2..tokens.len() - 1];
                is_word
                    && open.token == Token::LParen
                    && close.token == Token::RParen
                    && !inner.iter().any(|it| it.token == Token::RParen)
            }
            _ => false,
        };
        // Written so that its end is seen.
        let is_one = is_one && (tokens.len() == 1 || !text.contains(char::is_whitespace));
        Ok(Some(match is_one {
            true => text,
            false => format!("({text})"),
        }))
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
    pub(super) fn expression(
        &mut self,
        before: &[&str],
        to_comma: bool,
    ) -> Result<String, SqlError> {
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
        let typed = &self.text[places.byte(first.span.start)..places.byte(last.span.end)];
        self.expressions.push(start..self.at);
        Ok(typed.to_owned())
    }
}

/// Rejects `FLOAT(7,4)`, whose values would have to be rounded to so many digits.
fn reject_rounded_floats(column: &str, ty: &str) -> Result<(), SqlError> {
    let kind = first_word(ty).to_uppercase();
    if ["FLOAT", "DOUBLE", "REAL"].contains(&kind.as_str()) && ty.contains(',') {
        let sentence = format!(
            "the column {column}: {kind} does not round to digits after the point here: declare it {kind}, or DECIMAL(...)"
        );
        return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
    }
    Ok(())
}

/// Whether an expression may mean one of these columns, by its words: it may say so of one that does not, never the other way round.
///
/// # Errors
/// It cannot be read.
pub fn may_mention(expression: &str, columns: &[&str]) -> Result<bool, SqlError> {
    let reader = TokenReader::of(expression)?;
    let columns: Vec<String> = columns.iter().map(|column| fold_word(column)).collect();
    let mentions = |word: &str| columns.contains(&fold_word(word));
    Ok(reader.tokens.iter().any(|token| match &token.token {
        Token::Word(word) => mentions(&word.value),
        Token::DoubleQuotedString(name) | Token::SingleQuotedString(name) => mentions(name),
        _ => false,
    }))
}

/// An expression in which columns of these names stand for variables: pairs of a variable, without `@`, and a column.
///
/// # Errors
/// It cannot be read.
pub fn with_columns_of_variables(
    expression: &str,
    columns: &[(String, String)],
) -> Result<String, SqlError> {
    let reader = TokenReader::of(expression)?;
    let places = Places::new(expression);
    let (mut text, mut from) = (String::new(), 0);
    for token in &reader.tokens {
        let variable = user_variable(&token.token);
        let column = variable.and_then(|variable| {
            let mut named = columns.iter();
            named.find(|(it, _)| it.eq_ignore_ascii_case(variable))
        });
        if let Some((_, column)) = column {
            text.push_str(&expression[from..places.byte(token.span.start)]);
            text.push_str(&format!("`{}`", column.replace('`', "``")));
            from = places.byte(token.span.end);
        }
    }
    text.push_str(&expression[from..]);
    Ok(text)
}

/// An expression in which columns of a table are not named with its database any more: `t.a` of `db.t.a`.
///
/// # Errors
/// It cannot be read.
pub fn without_database(expression: &str, database: &str, table: &str) -> Result<String, SqlError> {
    let reader = TokenReader::of(expression)?;
    let places = Places::new(expression);
    let names = |at: usize, name: &str| {
        matches!(reader.tokens.get(at).map(|it| &it.token), Some(Token::Word(word))
            if fold_word(&word.value) == fold_word(name))
    };
    let is_period = |at: usize| {
        reader
            .tokens
            .get(at)
            .is_some_and(|it| it.token == Token::Period)
    };
    let (mut text, mut from) = (String::new(), 0);
    for at in 0..reader.tokens.len() {
        let is_column = names(at, database)
            && is_period(at + 1)
            && names(at + 2, table)
            && is_period(at + 3)
            && !(at > 0 && is_period(at - 1));
        if is_column {
            text.push_str(&expression[from..places.byte(reader.tokens[at].span.start)]);
            from = places.byte(reader.tokens[at + 2].span.start);
        }
    }
    text.push_str(&expression[from..]);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::command::command;
    use super::*;

    #[test]
    fn columns_stand_for_variables() {
        let columns = [("a".to_owned(), "@a".to_owned())];
        for (text, expected) in [
            ("@a + @A / @b", "`@a` + `@a` / @b"),
            (
                "CONCAT('@a', \"@a\", `@a`, a)",
                "CONCAT('@a', \"@a\", `@a`, a)",
            ),
            ("(@a)", "(`@a`)"),
            ("@@a", "@@a"),
        ] {
            assert_eq!(with_columns_of_variables(text, &columns).unwrap(), expected);
        }
    }

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

    fn pairs(pairs: &[(&str, &str)]) -> Vec<ColumnAssignment> {
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
            default: None,
        };
        let with_default = |name: &str, ty: &str, default: &str| DeclaredColumn {
            default: Some(default.to_owned()),
            ..column(name, ty)
        };
        let made = "CREATE TABLE IF NOT EXISTS t (id BIGINT NOT NULL, `a b` DECIMAL(10, 2), c VARCHAR(20) DEFAULT 'not null' COMMENT 'it', d INT DEFAULT -1 NOT NULL, e INT DEFAULT NULL, f DATETIME NULL DEFAULT NOW()) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4";
        assert_eq!(
            read(made),
            TableCommand::Declare {
                table: table("t"),
                if_not_exists: true,
                partition: None,
                columns: vec![
                    column("id", "BIGINT NOT NULL"),
                    column("a b", "DECIMAL(10, 2)"),
                    with_default("c", "VARCHAR(20)", "'not null'"),
                    with_default("d", "INT NOT NULL", "-1"),
                    column("e", "INT"),
                    with_default("f", "DATETIME", "NOW()"),
                ],
                query: None,
            }
        );
        assert_eq!(
            read(
                "ALTER TABLE t ADD COLUMN a INT DEFAULT 1 + 2, ADD b DOUBLE, DROP c, RENAME COLUMN d TO e"
            ),
            TableCommand::Alter {
                table: table("t"),
                changes: vec![
                    ColumnChange::Add(with_default("a", "INT", "(1 + 2)")),
                    ColumnChange::Add(column("b", "DOUBLE")),
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
    fn tables_are_renamed() {
        for text in [
            "RENAME TABLE t TO u",
            "ALTER TABLE t RENAME TO u",
            "alter table t rename as u",
            "ALTER TABLE t RENAME u",
        ] {
            let renamed = TableCommand::Rename {
                from: table("t"),
                to: table("u"),
            };
            assert_eq!(read(text), renamed, "{text}");
        }
        for (text, number) in [
            ("RENAME TABLE t TO u, u TO t", 1235),
            ("ALTER TABLE t RENAME TO u, ADD a INT", 1235),
            ("RENAME TABLE t u", 1064),
            ("RENAME TABLE t TO", 1064),
        ] {
            assert_eq!(command(text).unwrap_err().code().number, number, "{text}");
        }
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        for (text, number) in [
            ("CREATE TABLE t (id INT PRIMARY KEY)", 1235),
            ("CREATE TABLE t (id INT AUTO_INCREMENT)", 1235),
            ("CREATE TABLE t (id INT, KEY (id))", 1235),
            ("CREATE TABLE t (id INT DEFAULT RAND())", 1235),
            ("CREATE TABLE t (id ENUM('a', 'b'))", 1235),
            ("CREATE TABLE t (id INT DEFAULT 1 ON UPDATE NOW())", 1235),
            ("UPDATE IGNORE t SET a = 1", 1235),
            ("UPDATE t SET a = DEFAULT(a)", 1235),
            ("CREATE TABLE t (id)", 1064),
            ("CREATE TABLE t ()", 1064),
            ("CREATE TABLE t (id INT) IGNORE AS SELECT 1", 1235),
            ("CREATE TABLE t (id INT NOT NULL DEFAULT NULL)", 1067),
            ("ALTER TABLE t ADD a INT DEFAULT NULL NOT NULL", 1067),
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
    fn words_tell_which_columns_an_expression_may_mean() {
        for (expression, expected) in [
            ("a + 1", true),
            ("t.`A` * 2", true),
            ("f(b)", false),
            ("NOW() + INTERVAL 1 a", true),
            ("'it is a'", false),
        ] {
            assert_eq!(
                may_mention(expression, &["x", "a"]),
                Ok(expected),
                "{expression}"
            );
        }
        assert_eq!(
            without_database("Ann.T.a + t.a + ann.u.a + `ann`.`t`.`a b`", "ann", "t").unwrap(),
            "T.a + t.a + ann.u.a + `t`.`a b`"
        );
    }
}
