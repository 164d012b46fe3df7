//! A connection as SQL statements see it: user, default database, settings.

mod character_set;
mod session_values;
mod statement_limits;
mod user_variables;
mod variables;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use character_set::{CHARACTER_SETS, CharacterSet};
pub(crate) use session_values::substitute;
pub use statement_limits::StatementLimits;
pub(crate) use user_variables::user_variable;
pub use user_variables::{MOST_BYTES, UserValue, UserVariables};
pub use variables::{VariableValue, Variables};

use crate::Warning;

/// The version as MySQL clients parse it.
pub const SERVER_VERSION: &str = concat!("8.0.36-meridian-", env!("CARGO_PKG_VERSION"));

/// The state of a connection that statements can read.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its number.
    pub id: u32,
    /// The name of the user.
    pub user: String,
    /// The host of the client.
    pub host: String,
    /// The default database, in its declared spelling.
    pub database: Option<String>,
    /// Its settings.
    pub variables: Variables,
    /// The variables of the user's own.
    pub user_variables: UserVariables,
    /// The most rows that a result may have; one with more ends with an error.
    pub most_rows: Option<u64>,
    /// The same for its bytes.
    pub most_bytes: Option<u64>,
    /// Whether the rows of its statement go into a table: constants with a point are the decimals as which they are typed then.
    pub inserts: bool,
    /// Rows of the last result.
    pub found_rows: u64,
    /// Rows that the last statement changed: -1 after a result with rows.
    pub row_count: i64,
    /// The warnings of the last statement.
    pub warnings: Vec<Warning>,
    /// The server's information.
    pub server_info: Arc<dyn ServerInfo>,
}

impl Connection {
    /// The only connection of a program that runs without a server.
    pub fn alone(database: Option<String>) -> Self {
        Self {
            id: 0,
            user: "meridian".to_owned(),
            host: "localhost".to_owned(),
            database,
            variables: Variables::default(),
            user_variables: UserVariables::default(),
            most_rows: None,
            most_bytes: None,
            inserts: false,
            found_rows: 0,
            row_count: 0,
            warnings: vec![],
            server_info: Arc::new(NoServer),
        }
    }

    /// `name@host`, as MySQL writes an account.
    pub fn account(&self) -> String {
        format!("{}@{}", self.user, self.host)
    }
}

/// Information about a server, for statements.
pub trait ServerInfo: fmt::Debug + Send + Sync {
    /// The value of a system variable that the server determines; `None` for all others.
    fn variable(&self, name: &str) -> Option<VariableValue>;

    /// The names and values of SHOW STATUS.
    fn status(&self) -> Vec<(&'static str, String)>;

    /// The connections of SHOW PROCESSLIST.
    fn processes(&self) -> Vec<ProcessInfo>;

    /// The limits of SHOW LIMITS.
    fn limits(&self) -> Vec<LimitInfo>;

    /// The groups to which the user belongs.
    fn groups(&self) -> Vec<String>;

    /// The databases whose tables the user changes: the own one, and those of the groups.
    fn own_databases(&self) -> Vec<String>;
}

/// A limit of a user in SHOW LIMITS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitInfo {
    /// Its name.
    pub name: &'static str,
    /// How much the user may take; `None` if there is no limit.
    pub most: Option<u64>,
    /// How much is taken now, where that is known.
    pub used: Option<u64>,
    /// The database of whose tables the bytes are what is taken, if it is that.
    pub stored_in: Option<String>,
    /// What is limited.
    pub meaning: Cow<'static, str>,
}

/// A connection, or a query that runs without one, in SHOW PROCESSLIST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The number of the connection or the query.
    pub id: u64,
    /// The name of the user.
    pub user: String,
    /// The host of the client.
    pub host: String,
    /// The default database.
    pub database: Option<String>,
    /// The kind of command, `Query` or `Sleep`.
    pub command: &'static str,
    /// For how many seconds.
    pub seconds: u64,
    /// The state of the statement.
    pub state: String,
    /// The running statement.
    pub statement: Option<String>,
}

/// A program without a server.
#[derive(Debug)]
struct NoServer;

impl ServerInfo for NoServer {
    fn variable(&self, _: &str) -> Option<VariableValue> {
        None
    }

    fn status(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn processes(&self) -> Vec<ProcessInfo> {
        Vec::new()
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn groups(&self) -> Vec<String> {
        Vec::new()
    }

    fn own_databases(&self) -> Vec<String> {
        Vec::new()
    }
}
