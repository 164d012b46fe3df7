//! What the log says of a statement that has ended: one line, whichever door it came by.
//!
//! The numbers of statement and connection are fields of the spans that the line is in.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::Refusal;
use crate::metrics::Ending;

/// Bytes of a statement that a line of the log has room for.
const SHOWN: usize = 2000;

/// A statement that has ended.
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) ending: Ending,
    pub(crate) took: Duration,
    pub(crate) rows: u64,
    pub(crate) user: &'a str,
    pub(crate) database: Option<&'a str>,
    /// Why it was not answered.
    pub(crate) refusal: Option<&'a Refusal>,
}

impl Ended<'_> {
    /// Writes it down. With its text where that is needed to find out more: where the server could not, or it was slow.
    pub(crate) fn log(&self, slow: Option<Duration>, text: impl FnOnce() -> String) {
        let (user, database, rows) = (self.user, self.database, self.rows);
        let (outcome, refusal) = (
            self.ending.label(),
            self.refusal.map(tracing::field::display),
        );
        let milliseconds = self.took.as_micros() as f64 / 1000.0;
        let is_slow = slow.is_some_and(|slow| self.took >= slow);
        if self.ending == Ending::Failed {
            let text = shortened(text());
            warn!(
                user,
                database, milliseconds, rows, outcome, refusal, text, "a statement failed"
            );
        } else if is_slow {
            let text = shortened(text());
            info!(
                user,
                database, milliseconds, rows, outcome, refusal, text, "a slow statement"
            );
        } else {
            debug!(
                user,
                database, milliseconds, rows, outcome, refusal, "a statement ended"
            );
        }
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
