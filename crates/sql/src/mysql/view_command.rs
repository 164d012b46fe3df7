//! Statements that make and drop views: CREATE VIEW and DROP VIEW.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TargetTable, TokenReader};
use crate::{ErrorCode, SqlError};

/// A statement about views.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewStatement {
    /// `CREATE [OR REPLACE] VIEW name [(column, column)] AS query`.
    Create {
        /// The view.
        view: TargetTable,
        /// The names of its columns; none where the query names them.
        columns: Vec<String>,
        /// Whether it may take the place of a view.
        replace: bool,
        /// The text of its query.
        query: String,
    },
    /// `DROP VIEW [IF EXISTS] name, name`.
    Drop {
        /// The views.
        views: Vec<TargetTable>,
        /// Whether it is no mistake that there is none.
        if_exists: bool,
    },
}

type Read = Result<Option<Command>, SqlError>;

impl TokenReader<'_> {
    /// The rest of a CREATE VIEW, after OR REPLACE if that is there.
    pub(super) fn read_create_view(&mut self, replace: bool) -> Read {
        if !self.word("view") {
            return match replace {
                true => Err(self.expected("VIEW")),
                false => Ok(None),
            };
        }
        let view = self.target()?;
        let mut columns = Vec::new();
        if self.sign(&Token::LParen) {
            columns.push(self.name("a column")?);
            while self.sign(&Token::Comma) {
                columns.push(self.name("a column")?);
            }
            if !self.sign(&Token::RParen) {
                return Err(self.expected(", or )"));
            }
        }
        if !self.word("as") {
            return Err(self.expected("AS"));
        }
        let query = self.rest_of_query().ok_or_else(|| {
            let sentence = "a view is made of a query: CREATE VIEW name AS SELECT ...";
            SqlError::new(sentence).with_code(ErrorCode::SYNTAX)
        })?;
        Ok(Some(Command::View(ViewStatement::Create {
            view,
            columns,
            replace,
            query,
        })))
    }

    /// The rest of a DROP VIEW.
    pub(super) fn read_drop_view(&mut self) -> Read {
        let if_exists = self.word("if");
        if if_exists && !self.word("exists") {
            return Err(self.expected("IF EXISTS"));
        }
        let mut views = vec![self.target()?];
        while self.sign(&Token::Comma) {
            views.push(self.target()?);
        }
        let _ = self.word("restrict") || self.word("cascade");
        self.end()?;
        Ok(Some(Command::View(ViewStatement::Drop {
            views,
            if_exists,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::command;
    use super::*;

    fn target(database: Option<&str>, table: &str) -> TargetTable {
        TargetTable {
            database: database.map(str::to_owned),
            table: table.to_owned(),
        }
    }

    #[test]
    fn views_are_made_and_dropped() {
        for (text, replace, list) in [
            ("CREATE VIEW sky.v AS SELECT 1 AS a", false, &[][..]),
            (
                "create or replace view sky.v as (SELECT 1 AS a);",
                true,
                &[],
            ),
            (
                "CREATE VIEW sky.v (x, `y z`) AS SELECT 1, 2",
                false,
                &["x", "y z"],
            ),
        ] {
            let Some(Command::View(ViewStatement::Create {
                view,
                columns,
                replace: told,
                query,
            })) = command(text).unwrap()
            else {
                panic!("{text}");
            };
            assert_eq!((view, told), (target(Some("sky"), "v"), replace));
            assert_eq!(columns, list);
            assert!(text.contains(query.trim_end_matches(';')), "{query}");
        }
        let dropped = command("DROP VIEW IF EXISTS a.b, `c d`").unwrap().unwrap();
        let views = vec![target(Some("a"), "b"), target(None, "c d")];
        let if_exists = true;
        assert_eq!(
            dropped,
            Command::View(ViewStatement::Drop { views, if_exists })
        );
        for wrong in [
            "CREATE VIEW v",
            "CREATE VIEW v (a",
            "CREATE VIEW v () AS SELECT 1",
            "CREATE VIEW v (a b) AS SELECT 1",
            "CREATE VIEW v SELECT 1",
            "CREATE VIEW v AS DROP TABLE t",
            "CREATE OR REPLACE TABLE t AS SELECT 1",
            "DROP VIEW",
            "DROP VIEW a b",
        ] {
            assert!(command(wrong).is_err(), "{wrong}");
        }
    }
}
