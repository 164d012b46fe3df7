//! The log of `meridian serve`, on standard error: lines for people, or JSON for programs.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// An object in each line.
    Json,
}

impl Form {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is no form of a log: give text or json")),
        }
    }
}

/// Logs from now on.
pub(super) fn start(filter: EnvFilter, form: Form) {
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        // Nobody may be reading any more, and saying so would end the thread that logs.
        .log_internal_errors(false);
    match form {
        Form::Text => log.init(),
        Form::Json => log.json().flatten_event(true).finish().init(),
    }
}
