//! The query log: one line for each statement that has ended, whatever its protocol.
//!
//! The spans of the line have the numbers of the statement and of the connection.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::ClientError;
use crate::audit::{AuditEntry, AuditLog};
use crate::listener::Peer;
use crate::metrics::QueryOutcome;

/// Bytes of a statement's text in the log.
const SHOWN: usize = 2000;

/// A statement that has ended.
#[derive(Debug)]
pub(crate) struct QueryLogEntry<'a> {
    pub(crate) ending: QueryOutcome,
    pub(crate) took: Duration,
    pub(crate) rows: u64,
    pub(crate) user: &'a str,
    /// Where the client is, by which protocol, on which connection.
    pub(crate) client: (Peer, &'static str, u64),
    pub(crate) database: Option<&'a str>,
    /// The error, if it failed.
    pub(crate) error: Option<&'a ClientError>,
}

impl QueryLogEntry<'_> {
    /// Logs the statement; with its text if the server failed to execute it or it was slow. And writes it into the audit log, if there is
    /// one.
    pub(crate) fn log(
        &self,
        slow: Option<Duration>,
        audit: Option<&AuditLog>,
        text: impl Fn() -> String,
    ) {
        if let Some(audit) = audit {
            self.add_to(audit, &text());
        }
        let (user, database, rows) = (self.user, self.database, self.rows);
        let (outcome, error) = (self.ending.label(), self.error.map(tracing::field::display));
        let milliseconds = self.took.as_micros() as f64 / 1000.0;
        let is_slow = slow.is_some_and(|slow| self.took >= slow);
        if self.ending == QueryOutcome::Failed {
            let text = shortened(text());
            warn!(
                user,
                database, milliseconds, rows, outcome, error, text, "a statement failed"
            );
        } else if is_slow {
            let text = shortened(text());
            info!(
                user,
                database, milliseconds, rows, outcome, error, text, "a slow statement"
            );
        } else {
            debug!(
                user,
                database, milliseconds, rows, outcome, error, "a statement ended"
            );
        }
    }
}

impl QueryLogEntry<'_> {
    fn add_to(&self, audit: &AuditLog, text: &str) {
        let (peer, protocol, connection) = self.client;
        audit.add(&AuditEntry {
            event: "statement",
            user: self.user,
            from: Some(peer),
            protocol,
            id: Some(connection),
            database: self.database,
            text: Some(text),
            rows: Some(self.rows),
            outcome: self.ending.label(),
            code: self.error.map(|error| error.code.number),
            seconds: self.took,
        });
    }
}

fn shortened(mut text: String) -> String {
    let end = text.floor_char_boundary(SHOWN);
    if end < text.len() {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(shortened("SELECT 1".to_owned()), "SELECT 1");
        assert_eq!(shortened("é".repeat(1000)), "é".repeat(1000));
        let cut = shortened(format!("x{}", "é".repeat(1000)));
        assert_eq!(cut, format!("x{}...", "é".repeat(999)));
    }
}
