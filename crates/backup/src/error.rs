//! What can go wrong with a backup, in sentences that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use catalog::CatalogError;
use remote_files::RemoteError;
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
    /// Somebody else changes the place, in a bucket.
    #[error(
        "another backup into {} is under way, or was killed in the last {minutes} minutes: wait, or remove {lock} if there is none",
        place.display()
    )]
    InUseInBucket {
        /// The place of the backups.
        place: PathBuf,
        /// The object that says so.
        lock: String,
        /// How long it says so after a backup was killed.
        minutes: u64,
    },
    /// Somebody wants it to end.
    #[error(
        "the backup was cancelled: there is none, and what was copied is of use to the next one"
    )]
    Cancelled,
    /// This process stood still for so long that another backup may have begun.
    #[error("the lock of {} is lost: this backup took no notice of it for too long; take another one", place.display())]
    LostLock {
        /// The place of the backups.
        place: PathBuf,
    },
    /// An object store does not do what it is asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A place is at a URL where no backups are taken.
    #[error(
        "{place} is no place of backups: they are in directories, or in buckets as s3://BUCKET/PREFIX"
    )]
    NoBucket {
        /// What was given.
        place: String,
    },
    /// A file that a snapshot names is not in the bucket.
    #[error(
        "{url} is missing, so that the backup is not whole. Nothing of it was restored; another one may be (`meridian restore --list`)"
    )]
    MissingObject {
        /// The object.
        url: String,
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
    /// The place has backups of another data directory.
    #[error(
        "{backup}, the newest backup in {}, is of another data directory than {}, as where both went on after a backup was restored: name a new directory",
        place.display(), dir.display()
    )]
    OtherDirectory {
        /// The newest backup.
        backup: String,
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
    #[error(
        "{} is damaged, or of a newer program: {why}. Other backups can be restored with --at (`meridian restore --list`)",
        path.display()
    )]
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

    /// Whether a file of a backup is damaged, missing or cannot be read.
    pub(crate) fn is_of_file_in(&self, place: &Path) -> bool {
        match self {
            Self::Damaged { .. } | Self::MissingObject { .. } => true,
            Self::Io { path, .. } => path.starts_with(place),
            _ => false,
        }
    }

    /// Says what could not be done with a file.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
