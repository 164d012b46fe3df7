//! The rejected rows of a load: counted by reason, with the first of each as examples with file and line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::error::{IngestError, Rejection};

/// Identifies a row of the input: the file's index in the request and the line (text) or row (Parquet), from 1.
///
/// Ordered like the input: first by file, then by line. 24 bits hold the file, 40 the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowId(pub u64);

pub(crate) const LINE_BITS: u32 = 40;

impl RowId {
    pub(crate) fn new(file: usize, line: u64) -> Self {
        Self((file as u64) << LINE_BITS | line)
    }

    pub(crate) fn file(self) -> usize {
        (self.0 >> LINE_BITS) as usize
    }

    pub(crate) fn line(self) -> u64 {
        self.0 & ((1 << LINE_BITS) - 1)
    }
}

/// A rejected row, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedRow {
    /// The file it was read from.
    pub file: PathBuf,
    /// Its line in a text file (that of its first byte), or its row in another; from 1.
    pub line: u64,
    /// Why it was rejected.
    pub reason: String,
}

impl std::fmt::Display for RejectedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.reason)
    }
}

/// A reason for rejection: what is wrong and in which column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reason {
    /// A short text without the row's values, by which rejections are counted.
    pub class: String,
}

/// Examples kept for each reason.
pub(crate) const EXAMPLES: usize = 3;
/// Examples in the error message of a load.
const EXAMPLES_IN_A_SENTENCE: usize = 2;

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    /// The earliest rows, so that the report does not depend on the order of the threads.
    first: BTreeMap<RowId, String>,
}

/// The rows that all threads of a load have rejected.
#[derive(Debug)]
pub(crate) struct RejectedRows {
    files: Vec<PathBuf>,
    allowed: u64,
    total: AtomicU64,
    tallies: Mutex<BTreeMap<Reason, Tally>>,
}

impl RejectedRows {
    pub(crate) fn new(files: Vec<PathBuf>, allowed: u64) -> Self {
        Self {
            files,
            allowed,
            total: AtomicU64::new(0),
            tallies: Mutex::default(),
        }
    }

    /// Records a rejected row. `class` is the reason, `detail` the message for this row.
    pub(crate) fn reject(&self, row: RowId, class: String, detail: impl FnOnce() -> String) {
        self.total.fetch_add(1, Relaxed);
        let mut tallies = self.lock();
        let tally = tallies.entry(Reason { class }).or_default();
        tally.count += 1;
        let later = tally
            .first
            .last_key_value()
            .is_none_or(|(last, _)| row > *last);
        if tally.first.len() >= EXAMPLES && later {
            return;
        }
        tally.first.insert(row, detail());
        if tally.first.len() > EXAMPLES {
            tally.first.pop_last();
        }
    }

    /// The inputs of the load, in a few words.
    pub(crate) fn inputs(&self) -> String {
        match self.files.as_slice() {
            [] => "the input".to_owned(),
            [only] => only.display().to_string(),
            [first, _] => format!("{} and another file", first.display()),
            [first, others @ ..] => {
                format!("{} and {} other files", first.display(), others.len())
            }
        }
    }

    /// The number of rejected rows so far.
    pub(crate) fn count(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Fails if more rows were rejected than the request allows, of all rows.
    pub(crate) fn check(&self) -> Result<(), IngestError> {
        self.check_so_far(false)
    }

    /// The same where there may be more rows: whether there are.
    pub(crate) fn check_so_far(&self, are_more: bool) -> Result<(), IngestError> {
        let count = self.count();
        if count <= self.allowed {
            return Ok(());
        }
        Err(IngestError::TooManyRejected {
            count,
            is_cut: are_more,
            allowed: self.allowed,
            examples: self.first_examples(),
            why: self.first_rejection(),
        })
    }

    /// The first rejected row, with file and line.
    pub(crate) fn first_example(&self) -> String {
        let examples = self.examples();
        let first = examples.into_iter().next();
        first.map_or_else(String::new, |(row, why)| {
            self.describe(row, why).to_string()
        })
    }

    /// The first few examples in one line, in the order of the input.
    pub(crate) fn first_examples(&self) -> String {
        let shown: Vec<String> = (self.examples().into_iter().take(EXAMPLES_IN_A_SENTENCE))
            .map(|(row, reason)| self.describe(row, reason).to_string())
            .collect();
        format!("First: {}", shown.join("; "))
    }

    /// Why the first row was rejected.
    pub(crate) fn first_rejection(&self) -> Rejection {
        let tallies = self.lock();
        let first = tallies
            .iter()
            .min_by_key(|(_, tally)| tally.first.keys().next().copied());
        first
            .map(|(reason, _)| Rejection::of(&reason.class))
            .unwrap_or_default()
    }

    /// All examples, in the order of the input.
    fn examples(&self) -> Vec<(RowId, String)> {
        let mut rows: Vec<(RowId, String)> = Vec::new();
        for tally in self.lock().values() {
            rows.extend(tally.first.iter().map(|(row, why)| (*row, why.clone())));
        }
        rows.sort();
        rows
    }

    /// Counts and examples by reason, the most frequent first.
    pub(crate) fn summary(&self) -> Vec<RejectionSummary> {
        let mut all: Vec<RejectionSummary> = (self.lock().iter())
            .map(|(reason, tally)| RejectionSummary {
                reason: reason.class.clone(),
                rows: tally.count,
                examples: (tally.first.iter())
                    .map(|(row, why)| self.describe(*row, why.clone()))
                    .collect(),
            })
            .collect();
        all.sort_by(|a, b| b.rows.cmp(&a.rows).then(a.reason.cmp(&b.reason)));
        all
    }

    /// A row's file and line, as text.
    pub(crate) fn locate(&self, row: RowId) -> String {
        let file = self.files.get(row.file()).map(|f| f.display().to_string());
        format!("{}:{}", file.unwrap_or_default(), row.line())
    }

    fn describe(&self, row: RowId, reason: String) -> RejectedRow {
        RejectedRow {
            file: self.files.get(row.file()).cloned().unwrap_or_default(),
            line: row.line(),
            reason,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Reason, Tally>> {
        // Only counts are behind the lock: a panic in another thread leaves them usable.
        self.tallies
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The rows rejected for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectionSummary {
    /// The reason, without any row's own values.
    pub reason: String,
    /// How many rows.
    pub rows: u64,
    /// The first of them in the order of the input.
    pub examples: Vec<RejectedRow>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_the_first_rows_whatever_the_order_of_arrival() {
        let rejected_rows = RejectedRows::new(vec!["a.csv".into(), "b.csv".into()], 3);
        for line in [9, 4, 7, 2, 8] {
            rejected_rows.reject(RowId::new(1, line), "bad".into(), || format!("bad {line}"));
        }
        rejected_rows.reject(RowId::new(0, 100), "worse".into(), || "worse".into());
        let summary = rejected_rows.summary();
        assert_eq!(summary[0].rows, 5);
        let lines: Vec<u64> = summary[0].examples.iter().map(|e| e.line).collect();
        assert_eq!(lines, [2, 4, 7]);
        assert!(rejected_rows.check().is_err());
        assert!(
            rejected_rows
                .first_examples()
                .starts_with("First: a.csv:100: worse; b.csv:2: bad 2")
        );
    }
}
