//! The databases below: SQLite and PostgreSQL, behind one trait, with the same statements.
//!
//! A statement works on many rows at a time: `{rows}` in it stands for a table of values, which each database is given in the way that is
//! fast there (several rows of parameters, or arrays). It is used as `WITH r(a, b) AS ({rows}) ...`.

mod hosts;
mod postgres;
mod sqlite;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

pub(crate) use postgres::{PostgresStore, open_foreign as open_foreign_postgres};
pub(crate) use sqlite::{SqliteStore, open_foreign as open_foreign_sqlite};

use crate::error::{AlertsError, Result};

/// The type of a column of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Real,
    Bytes,
    Text,
}

/// A column of values, of rows that go into a statement or come from one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    Int(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Text(Vec<Option<String>>),
}

impl Values {
    pub(crate) fn ints(values: impl IntoIterator<Item = i64>) -> Self {
        Self::Int(values.into_iter().map(Some).collect())
    }

    pub(crate) fn reals(values: impl IntoIterator<Item = f64>) -> Self {
        Self::Real(values.into_iter().map(Some).collect())
    }

    pub(crate) fn bytes(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::Bytes(values.into_iter().map(Some).collect())
    }

    pub(crate) fn texts(values: impl IntoIterator<Item = String>) -> Self {
        Self::Text(values.into_iter().map(Some).collect())
    }

    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Int => Self::Int(Vec::new()),
            Kind::Real => Self::Real(Vec::new()),
            Kind::Bytes => Self::Bytes(Vec::new()),
            Kind::Text => Self::Text(Vec::new()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// The numbers; none if these are others.
    pub(crate) fn into_ints(self) -> Vec<Option<i64>> {
        match self {
            Self::Int(values) => values,
            _ => Vec::new(),
        }
    }

    pub(crate) fn into_reals(self) -> Vec<Option<f64>> {
        match self {
            Self::Real(values) => values,
            _ => Vec::new(),
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<Option<Vec<u8>>> {
        match self {
            Self::Bytes(values) => values,
            _ => Vec::new(),
        }
    }

    pub(crate) fn into_texts(self) -> Vec<Option<String>> {
        match self {
            Self::Text(values) => values,
            _ => Vec::new(),
        }
    }
}

/// Where rows are kept.
#[async_trait]
pub(crate) trait Store: Send + Sync + fmt::Debug {
    /// The only connection that changes anything.
    ///
    /// # Errors
    /// Another process has it.
    async fn writer(&self) -> Result<Box<dyn Connection>>;

    /// A connection to read with.
    async fn reader(&self) -> Result<Box<dyn Connection>>;

    /// A connection whose reads are all of one moment.
    async fn snapshot(&self) -> Result<Box<dyn Connection>>;

    /// A turn at being the writer: whoever is, lets go of it soon, and gets it back when this is dropped.
    ///
    /// # Errors
    /// Another process has its turn for long.
    async fn turn(&self) -> Result<Box<dyn StoreTurn>>;

    /// Whether somebody has a turn. The connection is the writer's.
    async fn is_wanted(&self, connection: &mut dyn Connection) -> Result<bool>;
}

/// A turn at being the writer, which ends when this is dropped.
pub(crate) trait StoreTurn: Send {}

/// How long one waits for a turn, or for the writer's place in one.
pub(crate) const LONGEST_TURN: Duration = Duration::from_secs(30);
/// How often one looks meanwhile.
pub(crate) const TURN_LOOK: Duration = Duration::from_millis(20);

/// A connection.
#[async_trait]
pub(crate) trait Connection: Send {
    /// Runs a statement that changes rows, and tells how many it changed. Without rows to give, nothing is run.
    async fn change(&mut self, statement: &str, rows: &[Values]) -> Result<u64>;

    /// Runs a statement that returns columns of these kinds. With `{rows}` and without rows to give, nothing is run.
    async fn fetch(
        &mut self,
        statement: &str,
        rows: &[Values],
        kinds: &[Kind],
    ) -> Result<Vec<Values>>;

    /// Runs statements without values, as BEGIN.
    async fn run(&mut self, statements: &str) -> Result<()>;
}

/// What stands for the rows in a statement.
const ROWS: &str = "{rows}";
/// Rows that are read at a time: a gigabyte or so.
const MOST_FOUND: usize = 2_000_000;

/// Counts a row that was found.
fn count_found(rows: &mut usize) -> Result<()> {
    *rows += 1;
    match *rows > MOST_FOUND {
        true => Err(AlertsError::TooMany { most: MOST_FOUND }),
        false => Ok(()),
    }
}

/// The first column of a result.
pub(crate) fn first(mut columns: Vec<Values>) -> Values {
    match columns.is_empty() {
        true => Values::empty(Kind::Int),
        false => columns.swap_remove(0),
    }
}
