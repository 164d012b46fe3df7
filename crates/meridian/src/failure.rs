//! How a command ends badly: one sentence on standard error and an exit status.

use std::fmt::Display;
use std::process::ExitCode;

use crate::console::remark;

/// A command's failure: what is wrong and what to do, in words for the person who typed it.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    status: u8,
}

impl Failure {
    /// The command failed (exit status 1).
    pub fn new(sentence: impl Display) -> Self {
        Self {
            sentence: sentence.to_string(),
            status: 1,
        }
    }

    /// A failure with an exit status of its own.
    pub fn with_status(sentence: impl Display, status: u8) -> Self {
        Self {
            sentence: sentence.to_string(),
            status,
        }
    }

    /// The same, of the report on something that is done.
    pub fn when_reporting(self, done: impl Display) -> Self {
        Self {
            sentence: format!("{done}, but the report is lost: {}", self.sentence),
            ..self
        }
    }

    /// What is wrong.
    #[cfg(test)]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Prints the sentence and gives the exit status.
    pub fn report(self) -> ExitCode {
        remark(&format!("meridian: {}", self.sentence));
        ExitCode::from(self.status)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
