//! The error that a client receives.

use std::fmt;

use engine::EngineError;
use sql::{ErrorCode, SqlError};

/// A message for the user, with MySQL's error number and SQL state for their program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The error number and the SQL state.
    pub code: ErrorCode,
    /// The message: what is wrong and what to do.
    pub sentence: String,
}

impl ClientError {
    /// An error with this code and message.
    pub fn new(code: ErrorCode, sentence: impl Into<String>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
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
        Self::new(error.code(), error.to_string())
    }
}

impl From<EngineError> for ClientError {
    fn from(error: EngineError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
