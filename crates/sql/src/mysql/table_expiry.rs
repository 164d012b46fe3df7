//! `EXPIRE` of ALTER TABLE: until when a table is kept.

use super::command::TokenReader;
use crate::SqlError;

/// Until when a table is kept, as a statement says it. The words are those of `ALTER USER ... PASSWORD EXPIRE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableExpiry {
    /// `NEVER`: it is kept for ever.
    Never,
    /// `DEFAULT`: for as long from now on as a table that is made now.
    Default,
    /// `INTERVAL n unit`: for so many seconds from now on.
    After(u64),
}

impl TableExpiry {
    /// For so many days from now on; `None` if that is too long.
    pub fn of_days(days: u64) -> Option<Self> {
        let seconds = days.checked_mul(86_400)?;
        (seconds <= LONGEST).then_some(Self::After(seconds))
    }
}

const UNITS: [(&str, u64); 5] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("week", 7 * 86_400),
];
/// A hundred years: what lasts longer is for ever.
const LONGEST: u64 = 36_525 * 86_400;

impl TokenReader<'_> {
    /// `NEVER | DEFAULT | INTERVAL n unit`.
    pub(super) fn expiry(&mut self) -> Result<TableExpiry, SqlError> {
        if self.word("never") {
            return Ok(TableExpiry::Never);
        }
        if self.word("default") {
            return Ok(TableExpiry::Default);
        }
        if !self.word("interval") {
            return Err(self.expected("NEVER, DEFAULT or INTERVAL, as in INTERVAL 30 DAY,"));
        }
        let number = self.number("a whole number of days or another unit")?;
        for (unit, seconds) in UNITS {
            if self.word(unit) {
                let after = number.checked_mul(seconds);
                let after = after.filter(|after| *after <= LONGEST);
                let too_long =
                    || SqlError::new("a table is kept for 100 years at most: write EXPIRE NEVER");
                return after.map(TableExpiry::After).ok_or_else(too_long);
            }
        }
        Err(self.expected("SECOND, MINUTE, HOUR, DAY or WEEK"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::{Command, TableCommand, command};
    use super::*;

    #[test]
    fn expiries_are_said_in_words_of_mysql() {
        for (text, expected) in [
            ("ALTER TABLE t EXPIRE NEVER", TableExpiry::Never),
            ("alter table ann.t expire default", TableExpiry::Default),
            (
                "ALTER TABLE t EXPIRE INTERVAL 30 DAY",
                TableExpiry::After(30 * 86_400),
            ),
            (
                "ALTER TABLE t EXPIRE INTERVAL 2 week",
                TableExpiry::After(14 * 86_400),
            ),
            (
                "ALTER TABLE t EXPIRE INTERVAL 0 SECOND",
                TableExpiry::After(0),
            ),
        ] {
            match command(text) {
                Ok(Some(Command::Table(TableCommand::Expire { expiry, .. }))) => {
                    assert_eq!(expiry, expected, "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in [
            "ALTER TABLE t EXPIRE",
            "ALTER TABLE t EXPIRE INTERVAL DAY",
            "ALTER TABLE t EXPIRE INTERVAL -1 DAY",
            "ALTER TABLE t EXPIRE INTERVAL 1 YEAR",
            "ALTER TABLE t EXPIRE INTERVAL 36526 DAY",
            "ALTER TABLE t EXPIRE INTERVAL 18446744073709551615 WEEK",
            "ALTER TABLE t EXPIRE NEVER, DROP COLUMN a",
        ] {
            assert!(command(text).is_err(), "{text}");
        }
    }
}
