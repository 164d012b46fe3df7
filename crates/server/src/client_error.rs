//! The error that a client receives.

use std::fmt;
use std::time::Duration;

use engine::EngineError;
use sql::{ErrorCode, SqlError};

/// A message for the user, with MySQL's error number and SQL state for their program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The error number and the SQL state.
    pub code: ErrorCode,
    /// The message: what is wrong and what to do.
    pub sentence: String,
    /// After what time the same may be tried again, where a limit of the user's was reached.
    pub retry_after: Option<Duration>,
}

impl ClientError {
    /// An error with this code and message.
    pub fn new(code: ErrorCode, sentence: impl Into<String>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
            retry_after: None,
        }
    }

    /// The same, of a limit under which the user is again after some time.
    #[must_use]
    pub(crate) fn retried_after(self, time: Duration) -> Self {
        Self {
            retry_after: Some(time),
            ..self
        }
    }

    /// The error for a packet that cannot be parsed.
    pub(crate) fn malformed(what: &str) -> Self {
        let sentence = format!("the packet cannot be read: {what}");
        Self::new(ErrorCode::MALFORMED_PACKET, sentence)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.sentence)
    }
}

impl From<SqlError> for ClientError {
    fn from(error: SqlError) -> Self {
        Self {
            retry_after: error.retry_after(),
            ..Self::new(error.code(), error.to_string())
        }
    }
}

impl From<EngineError> for ClientError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Sql(error) => error.into(),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}
