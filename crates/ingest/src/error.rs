//! What can go wrong with a load, each as a sentence that says what to do.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use catalog::CatalogError;
use store::StoreError;

use crate::report::grouped;
use crate::row_errors::class;

/// Why a row is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rejection {
    /// Another row of the director has its key.
    Duplicate,
    /// A director's row has no key or no position.
    Missing,
    /// The position or the key cannot be one.
    OutOfRange,
    /// A value is none of its column's type.
    #[default]
    Value,
}

impl Rejection {
    pub(crate) fn of(reason: &str) -> Self {
        match reason {
            class::KNOWN_KEY | class::DUPLICATE_KEY => Self::Duplicate,
            class::NO_KEY | class::NO_POSITION => Self::Missing,
            class::LARGE_KEY | class::DECLINATION | class::RIGHT_ASCENSION => Self::OutOfRange,
            _ => Self::Value,
        }
    }
}

/// A load (or a check) that could not be done. Nothing of a failed load is visible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// An input file does not exist.
    #[error("there is no file {}: check the name", .0.display())]
    MissingFile(PathBuf),
    /// No input file was named.
    #[error("no file to load was given: name at least one")]
    NoFiles,
    /// The disk has no room left.
    #[error("the disk is full: cannot {action} {}; nothing was loaded: free some space and load again", .path.display())]
    DiskFull {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A compressed or binary input file ends early or is damaged.
    #[error("{} is damaged or cut off ({reason}): fetch it again", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// Two columns of a file have one name.
    #[error("{}: the column {name:?} occurs twice (names are the same whatever their case)", .path.display())]
    RepeatedColumn {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// A text file does not look like the table.
    #[error("{}: {reason}{option}", .path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
        /// The end of the sentence where the command line has an option that helps; else empty.
        option: &'static str,
    },
    /// The schema file cannot be used.
    #[error("the schema {}: {reason}", .path.display())]
    Schema {
        /// The schema file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A column was named that the table does not have.
    #[error(
        "{role} {column:?} is not a column of {}{}{}",
        table_or_file(.of.as_deref()),
        near_hint(.near.as_deref()),
        found_hint(.of.as_deref(), .near.as_deref())
    )]
    NoSuchColumn {
        /// Which option or rule named it.
        role: String,
        /// The name given.
        column: String,
        /// The nearest name there is.
        near: Option<String>,
        /// The file whose columns the table is to have, if it is to have those of a file.
        of: Option<Box<FoundColumns>>,
    },
    /// Options that contradict each other, the table, or the database.
    #[error("{0}")]
    Options(String),
    /// More rows were rejected than allowed.
    #[error(
        "{} rejected, more than the {} allowed by --max-errors{}; nothing was loaded. {examples}",
        rows_were(*.count, *.is_cut),
        grouped(*.allowed),
        where_stopped(*.is_cut)
    )]
    TooManyRejected {
        /// How many were rejected before the load stopped.
        count: u64,
        /// Whether there were rows that it did not come to.
        is_cut: bool,
        /// The number allowed.
        allowed: u64,
        /// The first of them, with file and line.
        examples: String,
        /// Why the first of them was.
        why: Rejection,
    },
    /// Not one row could be used.
    #[error("{} rejected; nothing was loaded. {examples}", all_rows_were(*.count))]
    AllRejected {
        /// How many were read.
        count: u64,
        /// The first of them, with file and line.
        examples: String,
        /// Why the first of them was.
        why: Rejection,
    },
    /// There was no row to load.
    #[error(
        "there are no rows in {inputs}; nothing was loaded: give --allow-empty if the table is to have none"
    )]
    NoRows {
        /// What was read.
        inputs: String,
    },
    /// A row of a file that is read, not loaded, does not fit its columns.
    #[error("{0}")]
    Unreadable(String),
    /// A file that was sent decodes to more than it may.
    #[error("{}: {reason}", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How much that is, and what to do.
        reason: String,
    },
    /// Files that were sent take all the room that there is for them.
    #[error("{}: {reason}", .path.display())]
    Busy {
        /// The file for which there is none.
        path: PathBuf,
        /// How much there is, and what to do.
        reason: String,
    },
    /// Whoever sent a file has gone.
    #[error("nobody waits for the rows any more")]
    Abandoned,
    /// The rows to load could not be made.
    #[error("{0}; nothing was loaded")]
    Making(String),
    /// A test asked the load to stop here.
    #[error("stopped after the phase {0:?}, as MERIDIAN_FAULT asked")]
    Fault(String),
    /// The load was cancelled.
    #[error("the load was cancelled; nothing was loaded")]
    Cancelled,
    /// The compaction was cancelled.
    #[error(
        "the compaction was cancelled: what it had merged completely stays so, everything else is as it was"
    )]
    CompactionCancelled,
    /// A computation on columns failed.
    #[error("the columns could not be put together: {0}")]
    Arrow(#[from] ArrowError),
    /// The catalog rejected or failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A chunk file or index could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file at a URL could not be read.
    #[error(transparent)]
    Remote(#[from] remote_files::RemoteError),
    /// The sky rejected a partitioning or a position.
    #[error(transparent)]
    Sky(#[from] sky::SkyError),
    /// A thread of the load ended by a panic: a defect of Meridian.
    #[error("a thread of the load failed unexpectedly; nothing was loaded: please report this")]
    Internal,
}

impl IngestError {
    /// Whether the table was changed while its new rows were made of the old ones: the same may be tried again.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Catalog(CatalogError::TableChanged { .. }))
    }

    /// Whether the machine is to blame, for a disk that is full or fails or a file that it may not open: the same may succeed on another.
    pub fn is_of_machine(&self) -> bool {
        match self {
            Self::DiskFull { .. } | Self::Io { .. } => true,
            Self::Store(error) => {
                matches!(error, StoreError::Io { .. } | StoreError::DiskFull { .. })
            }
            Self::Catalog(error) => matches!(
                error,
                CatalogError::Io { .. } | CatalogError::Backend(_) | CatalogError::ReadOnly { .. }
            ),
            _ => false,
        }
    }

    /// Wraps an I/O error with what was being done to which file; a full disk gets its own sentence.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound if action == "open" => Self::MissingFile(path),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { action, path }
            }
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }

    /// Adds what was noticed about the columns, if rows were rejected: it may say why they were.
    pub(crate) fn with_hints(mut self, hints: &[String]) -> Self {
        if let Self::TooManyRejected { examples, .. } | Self::AllRejected { examples, .. } =
            &mut self
            && let Some(first) = hints.first()
        {
            examples.push_str(". Note: ");
            examples.push_str(first);
        }
        self
    }

    /// The file that the error names, if it names one.
    pub(crate) fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::MissingFile(path)
            | Self::DiskFull { path, .. }
            | Self::Io { path, .. }
            | Self::Damaged { path, .. }
            | Self::RepeatedColumn { path, .. }
            | Self::Layout { path, .. }
            | Self::Schema { path, .. } => Some(path),
            _ => None,
        }
    }

    /// An error of the layout of a text file.
    pub(crate) fn layout(path: &Path, reason: impl Into<String>) -> Self {
        Self::Layout {
            path: path.to_path_buf(),
            reason: reason.into(),
            option: "",
        }
    }

    /// The same with an end of the sentence about an option of the command line.
    pub(crate) fn or_option(mut self, words: &'static str) -> Self {
        if let Self::Layout { option, .. } = &mut self {
            *option = words;
        }
        self
    }

    /// The same for a statement that reads a file, or a file that somebody has sent: there are no options.
    pub(crate) fn without_option(self) -> Self {
        self.or_option("")
    }

    /// An error of a file that decodes to more than it may.
    pub(crate) fn too_large(path: &Path, reason: impl Into<String>) -> Self {
        Self::TooLarge {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }

    /// A column that is not there, with the nearest name that is.
    pub(crate) fn no_such_column<'a>(
        role: impl Into<String>,
        column: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::NoSuchColumn {
            role: role.into(),
            column: column.to_owned(),
            near: nearest(column, names),
            of: None,
        }
    }

    /// The same of a table that is to have the columns of a file.
    pub(crate) fn of_file(mut self, found: &FoundColumns) -> Self {
        if let Self::NoSuchColumn { of, .. } = &mut self {
            *of = Some(Box::new(found.clone()));
        }
        self
    }
}

/// The columns that a file was found to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundColumns {
    /// What messages call the file.
    pub file: PathBuf,
    /// Their names.
    pub names: Vec<String>,
    /// Whether they are numbered, since no line of the file names them.
    pub is_header_missing: bool,
    /// Why it is hardly a table, if anything says so.
    pub doubt: Option<&'static str>,
}

impl FoundColumns {
    /// Names that a message shows.
    const SHOWN: usize = 20;

    /// What is said of the file where it has no column of a name.
    fn in_words(&self) -> String {
        if let Some(doubt) = self.doubt {
            return doubt.to_owned();
        }
        let shown = { self.names.iter().take(Self::SHOWN) }.map(|name| shortened(name));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = match self.names.len().saturating_sub(Self::SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let has = match self.is_header_missing {
            true => "no line of it names its columns, which are",
            false => "its columns are",
        };
        format!("{has} {shown}{more}")
    }
}

/// A name as a message shows it, which has room for some letters of a line that is none.
fn shortened(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(64) {
        Some((end, _)) => format!("{}...", &name[..end]).into(),
        None => name.into(),
    }
}

fn table_or_file(of: Option<&FoundColumns>) -> String {
    match of {
        Some(found) => found.file.display().to_string(),
        None => "the table".to_owned(),
    }
}

fn found_hint(of: Option<&FoundColumns>, near: Option<&str>) -> String {
    match (of, near) {
        (None, _) => String::new(),
        (Some(found), None) => format!(": {}", found.in_words()),
        (Some(found), Some(_)) => format!(" ({})", found.in_words()),
    }
}

fn rows_were(count: u64, is_cut: bool) -> String {
    let least = if is_cut { "at least " } else { "" };
    match count {
        1 => format!("{least}1 row was"),
        count => format!("{least}{} rows were", grouped(count)),
    }
}

fn where_stopped(is_cut: bool) -> &'static str {
    match is_cut {
        true => ", and the load stopped there",
        false => "",
    }
}

fn all_rows_were(count: u64) -> String {
    match count {
        1 => "the only row was".to_owned(),
        count => format!("every one of the {} rows was", grouped(count)),
    }
}

fn near_hint(near: Option<&str>) -> String {
    match near {
        Some(name) => format!(": did you mean {name:?}?"),
        None => String::new(),
    }
}

/// The name most like `wanted`, if one is alike enough to be worth suggesting.
pub(crate) fn nearest<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let wanted = wanted.to_lowercase();
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the option and the name were told, and not which file lacks it.
    #[test]
    fn a_column_that_a_file_lacks_is_told_with_those_that_it_has() {
        let found = FoundColumns {
            file: "o.csv".into(),
            names: vec!["objId".to_owned(), "ra".to_owned()],
            is_header_missing: false,
            doubt: None,
        };
        let told = |wanted: &str, found: &FoundColumns| {
            let names = found.names.iter().map(String::as_str);
            let error = IngestError::no_such_column("--key", wanted, names);
            error.of_file(found).to_string()
        };
        assert_eq!(
            told("zzz", &found),
            "--key \"zzz\" is not a column of o.csv: its columns are objId, ra"
        );
        assert_eq!(
            told("objectId", &found),
            "--key \"objectId\" is not a column of o.csv: did you mean \"objId\"? (its columns are objId, ra)"
        );
        let numbered = FoundColumns {
            names: (1..=30).map(|number| format!("column{number}")).collect(),
            is_header_missing: true,
            ..found.clone()
        };
        let sentence = told("id", &numbered);
        assert!(sentence.contains("no line of it names its columns, which are column1, column2"));
        assert!(sentence.ends_with("column20 and 10 more"), "{sentence}");
        let long = FoundColumns {
            names: vec!["ä".repeat(1000)],
            ..found.clone()
        };
        let sentence = told("id", &long);
        assert!(sentence.ends_with(&format!("are {}...", "ä".repeat(64))));
        let doubted = FoundColumns {
            doubt: Some("its bytes are no text"),
            ..found
        };
        assert!(told("id", &doubted).ends_with("o.csv: its bytes are no text"));
    }

    #[test]
    fn a_load_that_stopped_says_so() {
        let told = |count, is_cut| {
            let error = IngestError::TooManyRejected {
                count,
                is_cut,
                allowed: 1000,
                examples: "First: a.csv:2: bad".to_owned(),
                why: Rejection::Value,
            };
            error.to_string()
        };
        assert_eq!(
            told(8192, true),
            "at least 8,192 rows were rejected, more than the 1,000 allowed by --max-errors, and the load stopped there; nothing was \
             loaded. First: a.csv:2: bad"
        );
        assert_eq!(
            told(1, false),
            "1 row was rejected, more than the 1,000 allowed by --max-errors; nothing was loaded. First: a.csv:2: bad"
        );
    }
}
