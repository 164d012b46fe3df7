//! The error of a query service.

use std::fmt;
use std::time::Duration;

use engine::EngineError;
use sql::{ErrorCode, SqlError};

/// A sentence for the user, with MySQL's number and state for their program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    /// The number and the state.
    pub code: ErrorCode,
    /// What is wrong and what to do.
    pub sentence: String,
    /// After what time the same may be tried again, where a limit of the user's was reached.
    pub retry_after: Option<Duration>,
}

impl QueryError {
    /// An error with this code and sentence.
    pub fn new(code: ErrorCode, sentence: impl Into<String>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
            retry_after: None,
        }
    }
}

impl QueryError {
    /// There is no query of this number.
    pub fn no_query(id: u64) -> Self {
        let sentence =
            format!("there is no query of number {id}; information_schema.QUERIES lists them");
        Self::new(ErrorCode::NO_CONNECTION, sentence)
    }

    /// Whether somebody ended the query, rather than a mistake in it.
    pub(crate) fn is_abort(&self) -> bool {
        [ErrorCode::INTERRUPTED, ErrorCode::SERVER_ENDS].contains(&self.code)
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for QueryError {}

impl From<EngineError> for QueryError {
    fn from(error: EngineError) -> Self {
        let retry_after = match &error {
            EngineError::Sql(error) => error.retry_after(),
            _ => None,
        };
        Self {
            retry_after,
            ..Self::new(error.code(), error.to_string())
        }
    }
}

impl From<QueryError> for EngineError {
    fn from(error: QueryError) -> Self {
        let told = SqlError::new(error.sentence).with_code(error.code);
        match error.retry_after {
            Some(time) => told.with_retry_after(time).into(),
            None => told.into(),
        }
    }
}

/// The file of the queries cannot be used.
impl From<sqlx::Error> for QueryError {
    fn from(error: sqlx::Error) -> Self {
        let sentence = format!("the list of queries cannot be read or written: {error}");
        Self::new(ErrorCode::STORAGE, sentence)
    }
}
