//! Submitted statements that make a table: `SUBMIT CREATE TABLE ... AS SELECT`.
//!
//! The query of such a statement runs as any submitted one, journal and all. When its result is stored, the server makes the table of it.
//! A process that is killed in between has the result already: the next one makes the table, or finds that it was made.

use engine::StoredRows;
use sql::mysql::{Command, TableCommand, TablePartition, TargetTable, command};
use sql::{Dialect, ErrorCode};

use crate::QueryError;
use crate::record::QueryRecord;

/// A table that a submitted query makes.
#[derive(Debug, Clone)]
pub struct MadeTable {
    /// The query's number.
    pub query: u64,
    /// Who has submitted it.
    pub user: String,
    /// The default database.
    pub database: Option<String>,
    /// The table.
    pub table: TargetTable,
    /// Whether it is no mistake that there is one already.
    pub if_not_exists: bool,
    /// How it is spread, if that is said.
    pub partition: Option<TablePartition>,
    /// Its rows; none before the query has run.
    pub rows: Option<StoredRows>,
}

impl QueryRecord {
    /// The query that is planned, and the table that is made of its rows.
    ///
    /// # Errors
    /// The statement is about a table, and none that can be submitted.
    pub(crate) fn planned(&self) -> Result<(String, Option<MadeTable>), QueryError> {
        let query = (self.statement.clone(), None);
        if self.dialect != Dialect::MySql {
            return Ok(query);
        }
        match command(&self.statement) {
            Ok(Some(Command::Table(TableCommand::Create {
                table,
                if_not_exists,
                partition,
                query,
            }))) => {
                let made = MadeTable {
                    query: self.id,
                    user: self.user.clone(),
                    database: self.database.clone(),
                    table,
                    if_not_exists,
                    partition,
                    rows: None,
                };
                Ok((query, Some(made)))
            }
            Ok(Some(Command::Table(_))) => {
                let sentence = "queries and CREATE TABLE ... AS SELECT are submitted: execute other statements about tables without SUBMIT";
                Err(QueryError::new(ErrorCode::READ_ONLY, sentence))
            }
            Err(error) => Err(QueryError::new(error.code(), error.to_string())),
            _ => Ok(query),
        }
    }
}
