//! Why a client does not get what it asked for.

use std::fmt;

use engine::EngineError;
use sql::{ErrorCode, SqlError};

/// A sentence for whoever asked, with MySQL's number and state for their program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The number and the state.
    pub code: ErrorCode,
    /// What is wrong, and what to do.
    pub sentence: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: ErrorCode, sentence: impl Into<String>) -> Self {
        Self {
            code,
            sentence: sentence.into(),
        }
    }

    /// A packet that cannot be read.
    pub(crate) fn malformed(what: &str) -> Self {
        let sentence = format!("the packet cannot be read: {what}");
        Self::new(ErrorCode::MALFORMED_PACKET, sentence)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.sentence)
    }
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
