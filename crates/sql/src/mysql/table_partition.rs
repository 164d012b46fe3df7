//! `PARTITION BY` of CREATE TABLE and ALTER TABLE: how a table is spread over the sky.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{TargetTable, TokenReader};
use crate::SqlError;

/// How a table is spread over the sky, as a statement says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TablePartition {
    /// `NONE`: it is kept whole.
    Whole,
    /// `DIRECTOR (key, ra, dec)`: each row is in the chunk of its position.
    Director {
        /// The column of the unique key.
        key: String,
        /// The column of the right ascension.
        ra: String,
        /// The column of the declination.
        dec: String,
    },
    /// `CHILD OF table (key)`: each row is where the row of a director is.
    Child {
        /// The director.
        director: TargetTable,
        /// The column that holds the director's key.
        key: String,
    },
}

impl TokenReader<'_> {
    /// `PARTITION BY NONE | DIRECTOR (key, ra, dec) | CHILD OF table (key)`, if it comes.
    pub(super) fn partition(&mut self) -> Result<Option<TablePartition>, SqlError> {
        if !self.word("partition") {
            return Ok(None);
        }
        const FORMS: &str = "NONE, DIRECTOR (key, ra, dec) or CHILD OF table (key)";
        if !self.word("by") {
            return Err(self.expected("BY"));
        }
        if self.word("none") {
            return Ok(Some(TablePartition::Whole));
        }
        if self.word("director") {
            let [key, ra, dec] = self.columns_of_partition(
                "three columns: the key, the right ascension and the declination",
            )?;
            return Ok(Some(TablePartition::Director { key, ra, dec }));
        }
        if self.word("child") && self.word("of") {
            let director = self.target()?;
            let [key] = self.columns_of_partition("one column, which holds the director's key")?;
            return Ok(Some(TablePartition::Child { director, key }));
        }
        Err(self.expected(FORMS))
    }

    /// So many columns in parentheses.
    fn columns_of_partition<const N: usize>(
        &mut self,
        what: &str,
    ) -> Result<[String; N], SqlError> {
        if !self.sign(&Token::LParen) {
            return Err(self.expected(what));
        }
        let names = self.names_in_parentheses()?;
        names.try_into().map_err(|_| self.expected(what))
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::{Command, TableCommand, command};
    use super::*;

    fn read(text: &str) -> Option<TablePartition> {
        match command(text) {
            Ok(Some(Command::Table(
                TableCommand::Create { partition, .. } | TableCommand::Declare { partition, .. },
            ))) => partition,
            Ok(Some(Command::Table(TableCommand::Partition { partition, .. }))) => Some(partition),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn partitions_are_said_outright() {
        let director = TablePartition::Director {
            key: "id".to_owned(),
            ra: "ra".to_owned(),
            dec: "dec".to_owned(),
        };
        let child = TablePartition::Child {
            director: TargetTable {
                database: Some("sky".to_owned()),
                table: "Object".to_owned(),
            },
            key: "objectId".to_owned(),
        };
        for (text, expected) in [
            ("CREATE TABLE t AS SELECT 1 AS a", None),
            (
                "CREATE TABLE t PARTITION BY NONE AS SELECT 1 AS a",
                Some(TablePartition::Whole),
            ),
            (
                "CREATE TABLE t PARTITION BY DIRECTOR (id, `ra`, dec) SELECT 1",
                Some(director.clone()),
            ),
            (
                "CREATE TABLE t PARTITION BY CHILD OF sky.Object (objectId) FROM RESULT 7",
                Some(child.clone()),
            ),
            (
                "CREATE TABLE t (id BIGINT, ra DOUBLE, dec DOUBLE) ENGINE=x PARTITION BY DIRECTOR (id, ra, dec)",
                Some(director),
            ),
            (
                "CREATE TABLE t (objectId BIGINT) PARTITION BY CHILD OF sky.Object (objectId)",
                Some(child.clone()),
            ),
            (
                "ALTER TABLE t PARTITION BY CHILD OF sky.Object (objectId)",
                Some(child),
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for wrong in [
            "CREATE TABLE t PARTITION BY SELECT 1",
            "CREATE TABLE t PARTITION BY DIRECTOR (id, ra) AS SELECT 1",
            "CREATE TABLE t PARTITION BY CHILD (id) AS SELECT 1",
            "CREATE TABLE t PARTITION BY CHILD OF sky.Object AS SELECT 1",
            "CREATE TABLE t (id BIGINT) PARTITION BY HASH (id)",
            "CREATE TABLE t (id BIGINT) PARTITION BY NONE x",
            "ALTER TABLE t PARTITION BY NONE, DROP COLUMN a",
        ] {
            let error = command(wrong).unwrap_err();
            assert_eq!(error.code().number, 1064, "{wrong}");
        }
    }
}
