//! What can go wrong, in sentences that say what to do.

use std::io;
use std::path::PathBuf;

use crate::published::NeededRows;

/// Why an operation on an alert database failed. Nothing of it was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlertsError {
    /// The request makes no sense: a column that is not in the schema, a value that does not fit.
    #[error("{0}")]
    Invalid(String),
    /// Something that the request names is not there.
    #[error("{0}")]
    Missing(String),
    /// The request contradicts what is stored: a row that is there already, a time before the latest.
    #[error("{0}")]
    Conflict(String),
    /// There is no such database.
    #[error(
        "there is no alert database {name}: `meridian alerts create` makes one, `meridian alerts list` lists those that there are"
    )]
    NoDatabase {
        /// The name that was given.
        name: String,
    },
    /// There is one of the name.
    #[error("there is an alert database {name} already, in {}", path.display())]
    Exists {
        /// The name.
        name: String,
        /// Its directory.
        path: PathBuf,
    },
    /// The schema cannot be used.
    #[error("the schema cannot be used: {0}")]
    Schema(String),
    /// Another process writes into the database.
    #[error(
        "another server has opened the alert database {name} for storing: one does at a time; ask that one, or stop it"
    )]
    InUse {
        /// The database's name.
        name: String,
    },
    /// The database is of a newer program.
    #[error(
        "the alert database {name} is of a newer version of this program, {found} where this one knows {known}: use the newer one"
    )]
    Newer {
        /// The database's name.
        name: String,
        /// Its version.
        found: String,
        /// The newest version known here.
        known: i64,
    },
    /// The database below fails.
    #[error("the alert database cannot be read or changed now: {0}")]
    Storage(#[from] StorageError),
    /// The database that is followed fails, or is not what can be followed.
    #[error("the database that is followed cannot be read: {0}")]
    Followed(String),
    /// A file fails.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Rows have a layout that came later than what is known of the database here.
    #[error("rows have the unknown layout {number}")]
    UnknownLayout {
        /// The layout's number.
        number: i64,
    },
    /// More rows were found than are read at a time.
    #[error(
        "more than {most} rows were found: ask for a smaller region, fewer objects or a shorter time"
    )]
    TooMany {
        /// How many are read.
        most: usize,
    },
    /// What is stored contradicts itself.
    #[error("the alert database is damaged: {0}")]
    Damaged(String),
    /// An operation needs rows that only the archive has.
    #[error("rows that are needed are only in the archive, which cannot be read here")]
    OnlyPublished(Box<NeededRows>),
    /// The archive, in which rows are published, fails.
    #[error("what is published of it cannot be read: {0}")]
    Archive(String),
    /// A release is being put in the place of what is stored.
    #[error(
        "it is being reseeded with a release: until that is done rows can be stored and read, and not be changed; send it again later"
    )]
    Reseeding,
    /// The server ends.
    #[error("the server ends: send it again when it is back")]
    Ending,
}

/// What the database below says of its failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// PostgreSQL, or the connection to it.
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
    /// SQLite.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// It is told in a sentence alone.
    #[error("{0}")]
    Told(String),
}

impl From<sqlx::Error> for AlertsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Storage(error.into())
    }
}

impl From<rusqlite::Error> for AlertsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(error.into())
    }
}

/// A list of numbers in a sentence, shortened.
pub(crate) fn listed(ids: &[i64]) -> String {
    const MOST: usize = 10;
    let shown: Vec<String> = ids.iter().take(MOST).map(i64::to_string).collect();
    match ids.len().checked_sub(MOST) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

pub(crate) type Result<T> = std::result::Result<T, AlertsError>;
