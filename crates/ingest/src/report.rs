//! What a load did, for the person who started it.

use std::fmt;
use std::time::Duration;

use catalog::{Database, LoadId, TableKind};
use serde::{Deserialize, Serialize};

use crate::rejected_rows::RejectionSummary;

/// What was noticed while rows found their places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementCounts {
    /// Director: rows rejected because an earlier row has their key.
    pub duplicate_keys: u64,
    /// Director: rows of an appended part that go to where children have had their keys before, not to where their positions
    /// are (an upper bound).
    pub stray_rows: u64,
    /// Child: rows whose director key is NULL.
    pub null_keys: u64,
    /// Child: rows whose key the director does not have.
    pub orphan_rows: u64,
    /// Child: different keys of those rows.
    pub orphan_keys: u64,
    /// Child: rows whose own position lies in another chunk than their director's row.
    pub displaced_rows: u64,
    /// Match: pairs whose left key the left director does not have (or that is NULL).
    pub unknown_left_keys: u64,
    /// Match: pairs whose right key the right director does not have (or that is NULL).
    pub unknown_right_keys: u64,
    /// Match: pairs of which neither key is known.
    pub default_location_pairs: u64,
}

impl PlacementCounts {
    /// Pairs with an unknown key, of the left and of the right end.
    pub(crate) fn unknown_ends(&self) -> [u64; 2] {
        [self.unknown_left_keys, self.unknown_right_keys]
    }

    /// The same for the manifest of a part of such a table.
    pub(crate) fn unknown_ends_of(&self, kind: TableKind) -> Option<[u64; 2]> {
        (kind == TableKind::Match).then(|| self.unknown_ends())
    }
}

/// How the sky of the database is cut.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Partitioning {
    /// Stripes of equal height.
    pub stripes: u32,
    /// Sub-stripes of each stripe.
    pub sub_stripes: u32,
    /// The overlap radius in degrees.
    pub overlap_deg: f64,
    /// Whether the loader chose it (true) or it was given by options or the database.
    pub chosen: bool,
}

impl Partitioning {
    /// That of a database.
    pub(crate) fn of(database: &Database) -> Self {
        Self {
            stripes: database.stripes,
            sub_stripes: database.sub_stripes,
            overlap_deg: database.overlap_deg,
            chosen: false,
        }
    }
}

/// What a finished load did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadReport {
    /// The database.
    pub database: String,
    /// The table.
    pub table: String,
    /// Its kind.
    pub kind: TableKind,
    /// The load, by whose number the part is called.
    pub load: LoadId,
    /// Whether the rows were added to what the table had.
    pub appended: bool,
    /// How the database is cut.
    pub partitioning: Partitioning,
    /// Rows read from the files.
    pub rows_read: u64,
    /// Rows that a query sees.
    pub rows_loaded: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
    /// Why, with examples.
    pub rejected_rows: Vec<RejectionSummary>,
    /// What was noticed while rows found their places.
    pub counts: PlacementCounts,
    /// Text values that were not UTF-8 and were taken as Latin-1.
    pub latin1_values: u64,
    /// Comment lines among the rows of text files.
    pub comment_lines: u64,
    /// Chunks that have rows.
    pub chunks: u64,
    /// Rows in overlap files.
    pub overlap_rows: u64,
    /// Bytes of the chunk files.
    pub chunk_bytes: u64,
    /// Bytes of the overlap files.
    pub overlap_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes decoded from the input.
    pub input_bytes: u64,
    /// Parts of chunks that did not fit into the memory budget and went to disk for a while.
    pub spilled_parts: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// What else is worth knowing: children placed by a replaced director, replaced files still in use.
    pub notes: Vec<String>,
    /// Of a dry run: the columns as a schema file declares them.
    pub schema: Option<String>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            database,
            table,
            kind,
            partitioning: cut,
            ..
        } = self;
        match self.appended {
            _ if self.schema.is_some() => writeln!(
                f,
                "Nothing is loaded: so {database}.{table} would be, as a {kind} table."
            )?,
            true => writeln!(
                f,
                "Part {} is appended to the {kind} table {database}.{table}.",
                self.load
            )?,
            false => writeln!(f, "{database}.{table} is loaded as a {kind} table.")?,
        }
        if *kind != TableKind::Replicated {
            let how = if cut.chosen {
                "chosen for these rows"
            } else {
                "as given"
            };
            writeln!(
                f,
                "  partitioning  {} stripes, {} sub-stripes, overlap {:.4} degrees ({how})",
                cut.stripes, cut.sub_stripes, cut.overlap_deg
            )?;
        }
        writeln!(f, "  rows read     {}", grouped(self.rows_read))?;
        writeln!(f, "  rows loaded   {}", grouped(self.rows_loaded))?;
        self.write_rejections(f)?;
        self.write_counts(f)?;
        if self.latin1_values > 0 {
            let values = grouped(self.latin1_values);
            writeln!(f, "  not UTF-8     {values} text values, taken as Latin-1")?;
        }
        if self.comment_lines > 0 {
            let lines = grouped(self.comment_lines);
            writeln!(f, "  comments      {lines} lines among the rows, left out")?;
        }
        self.write_sizes(f)?;
        let seconds = self.elapsed.as_secs_f64();
        let rate = self.rows_read as f64 / seconds.max(1e-3);
        writeln!(
            f,
            "  time          {seconds:.1} s ({} rows/s)",
            grouped(rate as u64)
        )?;
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

impl LoadReport {
    fn write_rejections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  rows rejected {}", grouped(self.rows_rejected))?;
        for rejection in &self.rejected_rows {
            writeln!(
                f,
                "    {} because: {}",
                grouped(rejection.rows),
                rejection.reason
            )?;
            for example in &rejection.examples {
                writeln!(f, "      {example}")?;
            }
        }
        Ok(())
    }

    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counts;
        match self.kind {
            TableKind::Child => {
                let (rows, keys) = (grouped(c.orphan_rows), grouped(c.orphan_keys));
                writeln!(
                    f,
                    "  orphans       {rows} rows with {keys} keys that the director does not have"
                )?;
                writeln!(f, "  NULL keys     {} rows", grouped(c.null_keys))?;
                let displaced = grouped(c.displaced_rows);
                writeln!(
                    f,
                    "  displaced     {displaced} rows lie in another chunk than their director's row"
                )
            }
            TableKind::Match => {
                let (left, right) = (grouped(c.unknown_left_keys), grouped(c.unknown_right_keys));
                let neither = grouped(c.default_location_pairs);
                writeln!(
                    f,
                    "  unknown keys  {left} left, {right} right, {neither} pairs with neither known"
                )
            }
            TableKind::Director if c.stray_rows > 0 => {
                let rows = grouped(c.stray_rows);
                writeln!(
                    f,
                    "  kept homes    {rows} rows go to where rows of children with their keys are already"
                )
            }
            TableKind::Director | TableKind::Replicated => Ok(()),
        }
    }

    fn write_sizes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = grouped(self.chunks);
        writeln!(f, "  chunks        {chunks}, {}", size(self.chunk_bytes))?;
        if self.kind == TableKind::Director {
            writeln!(
                f,
                "  overlap       {} rows, {}",
                grouped(self.overlap_rows),
                size(self.overlap_bytes)
            )?;
        }
        if self.index_bytes > 0 {
            writeln!(f, "  index         {}", size(self.index_bytes))?;
        }
        if self.spilled_parts > 0 {
            let parts = grouped(self.spilled_parts);
            writeln!(
                f,
                "  spilled       {parts} parts of chunks went through disk to stay within the memory budget"
            )?;
        }
        Ok(())
    }
}

/// What is said of a catalog that was of an older version.
pub(crate) fn upgraded_note(version: i64) -> String {
    let change = match version {
        ..2 => "its checksums were computed of what it said",
        2 => "each table has a list of parts now",
        3 => "its publications are counted now",
        _ => "each part says what it was merged from",
    };
    format!("the catalog was of version {version} and is brought up to date: {change}")
}

/// A number with commas between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a unit that suits them.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!(grouped(123), "123");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_450_000_000), "1.4 GB");
    }
}
