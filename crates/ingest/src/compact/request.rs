//! What a compaction is asked to do, and what it tells.

use std::path::PathBuf;
use std::time::Duration;

use catalog::{LoadId, Part, Table};

use super::full_name;
use super::months::{Month, MonthSort};
use crate::error::IngestError;

/// The request of a compaction.
#[derive(Debug, Clone)]
pub struct CompactRequest {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The database; all of them if absent.
    pub database: Option<String>,
    /// The table; all of the database if absent.
    pub table: Option<String>,
    /// Whether all parts of each table become one, whatever their sizes.
    pub all: bool,
    /// Of which databases the parts of each month become one.
    pub months: MonthSort,
    /// Of tables with fewer parts none are merged.
    pub min_parts: usize,
    /// Whether it is only told what would be merged.
    pub dry_run: bool,
    /// Bytes of rows that are read, and as many that are written, a second; as fast as it goes if absent.
    pub rate: Option<u64>,
    /// The memory budget in bytes.
    pub memory: Option<u64>,
    /// Threads that write; one if absent.
    pub threads: Option<usize>,
}

/// What a compaction did, or would do.
#[derive(Debug)]
pub struct CompactReport {
    /// The tables that it looked at.
    pub tables: Vec<CompactedTable>,
    /// Tables that could not be compacted, as `database.table`, with the reason.
    pub failures: Vec<(String, IngestError)>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What became of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactedTable {
    /// The table, as `database.table`.
    pub name: String,
    /// How many parts it had.
    pub parts_before: usize,
    /// The merges, in their order.
    pub merges: Vec<Merge>,
    /// Whether queries still read some of the files, which are removed by a later load, drop or compaction then.
    pub in_use: bool,
}

impl CompactedTable {
    /// How many parts it has, if none was added meanwhile.
    pub fn parts_after(&self) -> usize {
        let merged = self.merges.iter().map(|merge| merge.parts.len() - 1);
        self.parts_before.saturating_sub(merged.sum())
    }
}

/// Parts that became one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// The parts, at least two.
    pub parts: Vec<LoadId>,
    /// The part that they became; `None` where that is only told.
    pub into: Option<LoadId>,
    /// The month of which they are all parts, if they became one for that.
    pub month: Option<Month>,
    /// Their rows.
    pub rows: u64,
    /// Bytes of their files.
    pub bytes_before: u64,
    /// Bytes of its files.
    pub bytes_after: Option<u64>,
}

impl CompactedTable {
    pub(super) fn of(table: &Table) -> Self {
        Self {
            name: full_name(table),
            parts_before: table.parts.len(),
            merges: Vec::new(),
            in_use: false,
        }
    }
}

impl Merge {
    pub(super) fn of(parts: &[Part], month: Option<Month>) -> Self {
        Self {
            month,
            parts: parts.iter().map(|part| part.load).collect(),
            into: None,
            rows: parts.iter().map(|part| part.rows).sum(),
            bytes_before: parts.iter().map(|part| part.bytes).sum(),
            bytes_after: None,
        }
    }
}
