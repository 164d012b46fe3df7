//! What can go wrong with a backup, in sentences that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use catalog::CatalogError;
use store::StoreError;

/// Why a backup or a restoration failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file or a directory cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was to be done with it.
        what: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The catalog of the data directory or of a snapshot cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The files of a part cannot be kept for as long as they are copied.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody else changes the place.
    #[error("another backup into {} is under way: wait until it has ended", place.display())]
    InUse {
        /// The place of the backups.
        place: PathBuf,
    },
    /// The place has something else in it.
    #[error("{} has other files in it and is no place of backups: name an empty or a new directory", place.display())]
    NotAPlace {
        /// The directory that was named.
        place: PathBuf,
    },
    /// The place is within the data directory, or the other way round.
    #[error("{} and {} are within each other: a backup belongs on another disk", dir.display(), place.display())]
    Within {
        /// The data directory.
        dir: PathBuf,
        /// The place of the backups.
        place: PathBuf,
    },
    /// A part in the place has the number of one in the data directory, and other rows: one of them comes from a restored backup.
    #[error(
        "{} is another part of the table in {} than in {}, as after a backup was restored and loads went on: name a new directory",
        within.display(), place.display(), dir.display()
    )]
    OtherHistory {
        /// The directory of the part.
        within: PathBuf,
        /// The place of the backups.
        place: PathBuf,
        /// The data directory.
        dir: PathBuf,
    },
    /// There is no backup in the place.
    #[error("{} has no backups: `meridian backup --data DIR {}` makes one", place.display(), place.display())]
    Empty {
        /// The directory that was named.
        place: PathBuf,
    },
    /// There is no backup of the name.
    #[error("{} has no backup {name}; those that it has: {}", place.display(), names.join(", "))]
    NoSnapshot {
        /// The place of the backups.
        place: PathBuf,
        /// What was asked for.
        name: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// What a snapshot says of itself cannot be read.
    #[error("{} is damaged, or of a newer program: {why}", path.display())]
    BadSnapshot {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file of a backup is not as it was when it was written.
    #[error(
        "{} is damaged: it is not what was backed up. Nothing of it was restored; another backup may have it whole \
         (`meridian restore --list`)",
        path.display()
    )]
    Damaged {
        /// The file in the place of the backups.
        path: PathBuf,
    },
    /// Something is where a data directory is to be restored.
    #[error("{} has something in it already: restore into a new directory", dir.display())]
    NotEmpty {
        /// The directory that was named.
        dir: PathBuf,
    },
}

impl BackupError {
    /// Whether the files of a part are not there.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Store(StoreError::Missing { .. }) => true,
            Self::Store(StoreError::Io { source, .. }) => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Says what could not be done with a file.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
