//! Texts that a file's xtype says are times.

use crate::row_errors::excerpt;

/// The xtype of times (DALI 1.1, section 3.3.3).
pub(super) const TIMESTAMP: &str = "timestamp";

/// Whether an xtype says that texts are times: DALI's, or that of TAP 1.0.
pub(super) fn is_timestamp(xtype: &str) -> bool {
    xtype == TIMESTAMP || xtype.eq_ignore_ascii_case("adql:TIMESTAMP")
}

/// Says that a text of a column of times is none.
pub(super) fn no_time(text: &str, column: &str) -> String {
    format!(
        "{} in the column {column} is no time, as its xtype says that all are: write times as 2026-11-20T08:00:00, or \
         leave the xtype out",
        excerpt(text.as_bytes())
    )
}
