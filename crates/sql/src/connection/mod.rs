//! What a statement may ask of the connection that it comes by: who asks, of which database, with which settings.

mod asked;
mod variables;

use std::fmt;
use std::sync::Arc;

pub(crate) use asked::answer;
pub use variables::{VariableValue, Variables};

use crate::Warning;

/// The version as clients of MySQL read it: what they may expect, and of whom.
pub const SERVER_VERSION: &str = concat!("8.0.36-meridian-", env!("CARGO_PKG_VERSION"));

/// A connection, as its statements see it.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its number.
    pub id: u32,
    /// Who asks, by the name that was given.
    pub user: String,
    /// From where.
    pub host: String,
    /// The database that is chosen, in its declared spelling.
    pub database: Option<String>,
    /// Its settings.
    pub variables: Variables,
    /// Rows of the last answer.
    pub found_rows: u64,
    /// Rows that the last statement changed: -1 after an answer of rows.
    pub row_count: i64,
    /// What was odd about the last statement.
    pub warnings: Vec<Warning>,
    /// What there is besides.
    pub surroundings: Arc<dyn Surroundings>,
}

impl Connection {
    /// The only connection of a program that answers by itself.
    pub fn alone(database: Option<String>) -> Self {
        Self {
            id: 0,
            user: "meridian".to_owned(),
            host: "localhost".to_owned(),
            database,
            variables: Variables::default(),
            found_rows: 0,
            row_count: 0,
            warnings: vec![],
            surroundings: Arc::new(Nothing),
        }
    }

    /// `name@host`, as MySQL writes who asks.
    pub fn account(&self) -> String {
        format!("{}@{}", self.user, self.host)
    }
}

/// What a server knows beside its data, where there is one.
pub trait Surroundings: fmt::Debug + Send + Sync {
    /// The value of a system variable that the server decides; `None` for all others.
    fn variable(&self, name: &str) -> Option<VariableValue>;

    /// What SHOW STATUS lists: names and values.
    fn status(&self) -> Vec<(&'static str, String)>;

    /// What SHOW PROCESSLIST lists: the connections and what they do.
    fn processes(&self) -> Vec<Process>;
}

/// A connection and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The connection's number.
    pub id: u32,
    /// Who is connected.
    pub user: String,
    /// From where.
    pub host: String,
    /// The database that is chosen.
    pub database: Option<String>,
    /// The kind of what it does, `Query` or `Sleep`.
    pub command: &'static str,
    /// Since how many seconds.
    pub seconds: u64,
    /// More about it.
    pub state: &'static str,
    /// The statement that is answered.
    pub statement: Option<String>,
}

/// No server.
#[derive(Debug)]
struct Nothing;

impl Surroundings for Nothing {
    fn variable(&self, _: &str) -> Option<VariableValue> {
        None
    }

    fn status(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn processes(&self) -> Vec<Process> {
        Vec::new()
    }
}
