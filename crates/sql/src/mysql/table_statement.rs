//! Statements that change tables, as they are read.

use super::insert_command::InsertedRows;
use super::load_command::LoadedFile;
use super::table_changes::{ColumnAssignment, ColumnChange, DeclaredColumn};
use super::table_expiry::TableExpiry;
use super::table_partition::TablePartition;

/// A statement that changes a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableCommand {
    /// `CREATE TABLE ... AS SELECT`.
    Create {
        /// The table.
        table: TargetTable,
        /// Whether it is no mistake that there is one already.
        if_not_exists: bool,
        /// How it is spread, if that is said.
        partition: Option<TablePartition>,
        /// The query whose rows it gets.
        query: String,
    },
    /// `CREATE TABLE` with a list of columns.
    Declare {
        /// The table.
        table: TargetTable,
        /// Whether it is no mistake that there is one already.
        if_not_exists: bool,
        /// How it is spread, if that is said.
        partition: Option<TablePartition>,
        /// Its columns.
        columns: Vec<DeclaredColumn>,
        /// The query whose rows it gets, and more columns, if there is one.
        query: Option<String>,
    },
    /// `CREATE TABLE ... LIKE`.
    Like {
        /// The table.
        table: TargetTable,
        /// Whether it is no mistake that there is one already.
        if_not_exists: bool,
        /// The table whose columns it gets, without rows.
        source: TargetTable,
    },
    /// `UPDATE`.
    Update {
        /// The table.
        table: TargetTable,
        /// Another name for it in the expressions.
        alias: Option<String>,
        /// The columns that get values, and the expressions of these.
        assigned: Vec<ColumnAssignment>,
        /// The rows; all without it.
        condition: Option<String>,
    },
    /// `DELETE`.
    Delete {
        /// The table.
        table: TargetTable,
        /// Another name for it in the condition.
        alias: Option<String>,
        /// The rows; all without it.
        condition: Option<String>,
    },
    /// `TRUNCATE TABLE`.
    Truncate(TargetTable),
    /// `ALTER TABLE`.
    Alter {
        /// The table.
        table: TargetTable,
        /// What becomes of its columns, one after another.
        changes: Vec<ColumnChange>,
    },
    /// `ALTER TABLE ... PARTITION BY`.
    Partition {
        /// The table.
        table: TargetTable,
        /// How it is to be spread.
        partition: TablePartition,
    },
    /// `ALTER TABLE ... EXPIRE`.
    Expire {
        /// The table.
        table: TargetTable,
        /// Until when it is kept.
        expiry: TableExpiry,
    },
    /// `INSERT INTO ... SELECT` or `VALUES`.
    Insert {
        /// The table.
        table: TargetTable,
        /// The columns that get values, in their order; all if none are named.
        columns: Vec<String>,
        /// The rows.
        rows: InsertedRows,
    },
    /// `LOAD DATA LOCAL INFILE`.
    LoadFile(Box<LoadedFile>),
    /// `RENAME TABLE`, and `ALTER TABLE ... RENAME TO`.
    Rename {
        /// The table.
        from: TargetTable,
        /// What it is to be called.
        to: TargetTable,
    },
    /// `DROP TABLE`.
    Drop {
        /// The tables.
        tables: Vec<TargetTable>,
        /// Whether it is no mistake that there is none.
        if_exists: bool,
    },
}

/// A table that a statement changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTable {
    /// The database, if it is named.
    pub database: Option<String>,
    /// The table's name.
    pub table: String,
}
