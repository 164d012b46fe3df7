//! When tables expire.

use crate::utc_text;

/// The time from which a table may be removed, and in the place of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// UTC, ISO 8601 to the second; `None` is never.
    pub(crate) after: Option<String>,
    replaced: Replaced,
}

/// The times that another one takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    All,
    /// That of a table which has none.
    Missing,
    /// Earlier ones.
    Earlier,
}

impl Expiry {
    /// Seconds for which the owner of a table is warned before it goes.
    pub const NOTICE: u64 = 7 * 86_400;

    /// At these seconds since 1970, or never, whatever it was before.
    pub fn at(seconds: Option<u64>) -> Self {
        Self {
            after: seconds.map(utc_text),
            replaced: Replaced::All,
        }
    }

    /// At these seconds since 1970, if the table has no time yet.
    pub fn by_default_at(seconds: u64) -> Self {
        Self {
            after: Some(utc_text(seconds)),
            replaced: Replaced::Missing,
        }
    }

    /// At these seconds since 1970, if it would be earlier.
    pub fn not_before(seconds: u64) -> Self {
        Self {
            after: Some(utc_text(seconds)),
            replaced: Replaced::Earlier,
        }
    }

    pub(crate) fn replaces(&self, before: Option<&str>) -> bool {
        match self.replaced {
            Replaced::All => true,
            Replaced::Missing => before.is_none(),
            Replaced::Earlier => before.is_some_and(|before| Some(before) < self.after.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_place_of_others() {
        let (early, late) = (utc_text(1_000_000_000), utc_text(2_000_000_000));
        let between = 1_500_000_000;
        for (expiry, replaced) in [
            (Expiry::at(None), [true, true, true]),
            (Expiry::at(Some(between)), [true, true, true]),
            (Expiry::by_default_at(between), [true, false, false]),
            (Expiry::not_before(between), [false, true, false]),
        ] {
            let before = [None, Some(early.as_str()), Some(late.as_str())];
            assert_eq!(before.map(|it| expiry.replaces(it)), replaced, "{expiry:?}");
        }
    }
}
