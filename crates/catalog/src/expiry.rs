//! When tables expire.

use crate::utc_text;

/// The time from which a table may be removed, and in the place of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// UTC, ISO 8601 to the second; `None` is never.
    pub(crate) after: Option<String>,
    /// Whether a table keeps the time that it has.
    pub(crate) is_default: bool,
}

impl Expiry {
    /// At these seconds since 1970, or never, whatever it was before.
    pub fn at(seconds: Option<u64>) -> Self {
        Self {
            after: seconds.map(utc_text),
            is_default: false,
        }
    }

    /// At these seconds since 1970, if the table has no time yet.
    pub fn by_default_at(seconds: u64) -> Self {
        Self {
            after: Some(utc_text(seconds)),
            is_default: true,
        }
    }

    pub(crate) fn replaces(&self, before: Option<&str>) -> bool {
        !self.is_default || before.is_none()
    }
}
