//! Statements that make and drop tables: CREATE TABLE ... AS and DROP TABLE.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TableCommand, TargetTable, TokenReader};
use super::user_command::without_text;
use crate::{ErrorCode, RESULT_FUNCTION, SqlError};

type Read = Result<Option<Command>, SqlError>;

impl TokenReader<'_> {
    /// `CREATE TABLE [IF NOT EXISTS] name [PARTITION BY ...] [AS] query`, `... name (columns) [PARTITION BY ...] [[AS] query]`, or `LIKE` another;
    /// nothing else that is created is known here.
    pub(super) fn read_create(&mut self) -> Read {
        if self.word("user") {
            return self
                .read_create_user()
                .map_err(|error| without_text(&error));
        }
        if self.word("role") {
            return self.read_create_role();
        }
        let replace = self.word("or");
        if replace && !self.word("replace") {
            return Err(self.expected("OR REPLACE"));
        }
        if replace || !self.word("table") {
            return self.read_create_view(replace);
        }
        let if_not_exists = self.word("if");
        if if_not_exists && !(self.word("not") && self.word("exists")) {
            return Err(self.expected("IF NOT EXISTS"));
        }
        let table = self.target()?;
        if let Some(source) = self.like()? {
            return Ok(Some(Command::Table(TableCommand::Like {
                table,
                if_not_exists,
                source,
            })));
        }
        let partition = self.partition()?;
        // A result that is stored, without running its query again.
        if self.word("from") && self.word("result") {
            let id = self.number("the number of a query")?;
            self.end()?;
            return Ok(Some(Command::Table(TableCommand::Create {
                table,
                if_not_exists,
                partition,
                query: format!("SELECT * FROM {RESULT_FUNCTION}({id})"),
            })));
        }
        let has_columns = self.peek() == Some(&Token::LParen) && !self.is_query(1);
        if has_columns && partition.is_none() {
            self.at += 1;
            let columns = self.declared_columns()?;
            let partition = self.partition()?;
            let query = match self.word("as") || !self.is_at_end() {
                true => Some(
                    self.rest_of_query()
                        .ok_or_else(|| self.expected("the end"))?,
                ),
                false => None,
            };
            return Ok(Some(Command::Table(TableCommand::Declare {
                table,
                if_not_exists,
                partition,
                columns,
                query,
            })));
        }
        let _ = self.word("as");
        let query = self.rest_of_query().ok_or_else(|| {
            let sentence =
                "a table is made of the rows of a query or with columns: CREATE TABLE name AS SELECT ..., or CREATE TABLE name (id BIGINT, mag DOUBLE)";
            SqlError::new(sentence).with_code(ErrorCode::SYNTAX)
        })?;
        Ok(Some(Command::Table(TableCommand::Create {
            table,
            if_not_exists,
            partition,
            query,
        })))
    }

    /// `LIKE table`, in parentheses or without, up to the end.
    fn like(&mut self) -> Result<Option<TargetTable>, SqlError> {
        let begin = self.at;
        let is_open = self.sign(&Token::LParen);
        if !self.word("like") {
            self.at = begin;
            return Ok(None);
        }
        let source = self.target()?;
        if is_open && !self.sign(&Token::RParen) {
            return Err(self.expected(")"));
        }
        self.end()?;
        Ok(Some(source))
    }

    /// `DROP TABLE [IF EXISTS] name, name`.
    pub(super) fn read_drop(&mut self) -> Read {
        if self.word("prepare") {
            return self.read_deallocate().map(Some);
        }
        if self.word("user") {
            return self.read_drop_user();
        }
        if self.word("role") {
            return self.read_drop_role();
        }
        if self.word("view") {
            return self.read_drop_view();
        }
        if !self.word("table") && !self.word("tables") {
            return Ok(None);
        }
        let if_exists = self.word("if");
        if if_exists && !self.word("exists") {
            return Err(self.expected("IF EXISTS"));
        }
        let mut tables = vec![self.target()?];
        while self.sign(&Token::Comma) {
            tables.push(self.target()?);
        }
        let _ = self.word("restrict") || self.word("cascade");
        self.end()?;
        Ok(Some(Command::Table(TableCommand::Drop {
            tables,
            if_exists,
        })))
    }

    pub(super) fn target(&mut self) -> Result<TargetTable, SqlError> {
        let first = self.name("the name of a table")?;
        if !self.sign(&Token::Period) {
            return Ok(TargetTable {
                database: None,
                table: first,
            });
        }
        Ok(TargetTable {
            database: Some(first),
            table: self.name("the name of a table")?,
        })
    }

    /// Whether a query begins so many tokens further on.
    pub(super) fn is_query(&self, ahead: usize) -> bool {
        let words = ["select", "with", "table"];
        let tokens = self.tokens.iter().skip(self.at + ahead);
        let first = tokens
            .map(|token| &token.token)
            .find(|token| **token != Token::LParen);
        matches!(first, Some(Token::Word(word))
            if word.quote_style.is_none() && words.iter().any(|it| word.value.eq_ignore_ascii_case(it)))
    }

    /// The text from here on, if a query begins here.
    pub(super) fn rest_of_query(&self) -> Option<String> {
        let first = self.tokens.get(self.at)?;
        self.is_query(0).then(|| self.text_from(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::command;
    use super::*;

    fn read(text: &str) -> Command {
        command(text).unwrap().unwrap()
    }

    fn table(database: Option<&str>, table: &str) -> TargetTable {
        TargetTable {
            database: database.map(str::to_owned),
            table: table.to_owned(),
        }
    }

    #[test]
    fn tables_are_made_of_queries() {
        for (text, exists) in [
            ("CREATE TABLE ann.near AS SELECT 1 AS a", false),
            ("create table if not exists ann.near (SELECT 1 AS a)", true),
            (
                "CREATE TABLE ann.near WITH w AS (SELECT 1) SELECT * FROM w;",
                false,
            ),
        ] {
            let Command::Table(TableCommand::Create {
                table: made,
                if_not_exists,
                partition: None,
                query,
            }) = read(text)
            else {
                panic!("{text}");
            };
            assert_eq!((made, if_not_exists), (table(Some("ann"), "near"), exists));
            assert!(text.contains(&query), "{query}");
        }
        for text in ["CREATE TABLE t LIKE a.b", "create table t (like a.b)"] {
            let expected = TableCommand::Like {
                table: table(None, "t"),
                if_not_exists: false,
                source: table(Some("a"), "b"),
            };
            assert_eq!(read(text), Command::Table(expected));
        }
        for wrong in [
            "CREATE TABLE t LIKE",
            "CREATE TABLE t (LIKE a",
            "CREATE TABLE t",
            "CREATE TABLE t FROM RESULT x",
            "CREATE TABLE",
            "CREATE TABLE IF EXISTS t AS SELECT 1",
            "CREATE TABLE t (a INT) AS",
            "CREATE TABLE t (a INT) AS 1",
            "CREATE TABLE t (a INT) FROM RESULT 7",
        ] {
            assert!(command(wrong).is_err(), "{wrong}");
        }
        assert_eq!(command("CREATE DATABASE d").unwrap(), None);
    }

    #[test]
    fn columns_may_stand_before_a_query() {
        for (text, rows, is_whole) in [
            (
                "CREATE TABLE t (a INT) AS SELECT 1 AS b",
                "SELECT 1 AS b",
                false,
            ),
            (
                "CREATE TABLE t (a INT) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 (SELECT 1 AS b);",
                "(SELECT 1 AS b)",
                false,
            ),
            (
                "create table t (a int) partition by none with w as (select 1) select * from w",
                "with w as (select 1) select * from w",
                true,
            ),
        ] {
            let Command::Table(TableCommand::Declare {
                columns,
                partition,
                query,
                ..
            }) = read(text)
            else {
                panic!("{text}");
            };
            assert_eq!(columns.len(), 1, "{text}");
            assert_eq!(query.as_deref(), Some(rows));
            assert_eq!(partition.is_some(), is_whole, "{text}");
        }
        for text in [
            "CREATE TABLE t (a INT) IGNORE SELECT 1 AS a",
            "CREATE TABLE t (a INT) REPLACE AS SELECT 1 AS a",
        ] {
            let error = command(text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::NOT_SUPPORTED, "{text}");
        }
    }

    #[test]
    fn tables_are_dropped() {
        let dropped = read("DROP TABLE IF EXISTS a.b, `c d`");
        let tables = vec![table(Some("a"), "b"), table(None, "c d")];
        assert_eq!(
            dropped,
            Command::Table(TableCommand::Drop {
                tables,
                if_exists: true
            })
        );
        assert!(command("DROP TABLE a b").is_err());
        assert_eq!(command("DROP DATABASE a").unwrap(), None);
    }
}
