//! Collects the errors of a batch's rows while its columns are parsed: which rows are rejected, and why.

use catalog::Column;

use crate::format::ReadContext;
use crate::mysql_type;
use crate::rejected_rows::RowId;

/// The error of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueFault {
    /// It cannot be parsed as the column's type.
    NotOfType,
    /// It is a number (or a time) out of the range of the column's type.
    OutOfRange,
}

/// Why a row is rejected, in the words by which such rows are counted.
pub(crate) mod class {
    pub(crate) const NO_KEY: &str = "no key";
    pub(crate) const LARGE_KEY: &str = "key too large";
    pub(crate) const KNOWN_KEY: &str = "key that the table has already";
    pub(crate) const DUPLICATE_KEY: &str = "duplicate key";
    pub(crate) const NO_POSITION: &str = "no position (NULL or NaN)";
    pub(crate) const DECLINATION: &str = "declination outside [-90, 90]";
    pub(crate) const RIGHT_ASCENSION: &str = "right ascension is infinite";
}

/// The rows of a batch, and which of them are still accepted.
pub(crate) struct RowErrors<'a> {
    context: &'a ReadContext,
    rows: &'a [u64],
    keep: Vec<bool>,
}

impl<'a> RowErrors<'a> {
    pub(crate) fn new(context: &'a ReadContext, rows: &'a [u64]) -> Self {
        Self {
            context,
            rows,
            keep: vec![true; rows.len()],
        }
    }

    /// For each row whether it is accepted.
    pub(crate) fn into_keep(self) -> Vec<bool> {
        self.keep
    }

    /// Rejects a row, unless it was rejected already: a row is counted once, by its first error.
    pub(crate) fn reject(&mut self, row: usize, class: String, detail: impl FnOnce() -> String) {
        if std::mem::replace(&mut self.keep[row], false) {
            self.context
                .rejected_rows
                .reject(RowId(self.rows[row]), class, detail);
        }
    }

    #[cold]
    pub(crate) fn reject_value(
        &mut self,
        row: usize,
        column: &Column,
        value: &[u8],
        fault: ValueFault,
    ) {
        let (name, ty) = (&column.name, type_name(column));
        let (class, verb) = match fault {
            ValueFault::NotOfType => (
                format!("column {name:?}: not a valid {ty}"),
                "is not a valid",
            ),
            ValueFault::OutOfRange => (
                format!("column {name:?}: out of range for {ty}"),
                "is out of range for",
            ),
        };
        self.reject(row, class, || {
            format!("column {name:?}: {} {verb} {ty}", excerpt(value))
        });
    }

    #[cold]
    pub(crate) fn reject_null(&mut self, row: usize, column: &Column) {
        let name = &column.name;
        let class = format!("column {name:?}: NULL or NaN where it is NOT NULL");
        self.reject(row, class, || {
            format!("column {name:?} is NULL or NaN but declared NOT NULL (--nullable {name} would accept it)")
        });
    }
}

/// The type as the schema declares it, or else as one would.
fn type_name(column: &Column) -> String {
    match &column.declared {
        Some(declared) => declared
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_uppercase(),
        None => mysql_type::shown(column.ty),
    }
}

/// A quoted value, truncated if it is long.
pub(crate) fn excerpt(value: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(value);
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start:?}...")
}
