//! What can go wrong with homes of chunk files, in sentences that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use catalog::CatalogError;
use remote_files::RemoteError;
use store::StoreError;

use crate::BackupError;

/// Why files cannot be copied home, or brought back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
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
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A file of a part cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be copied.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The store does not do what it is asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The file of the data directory makes no sense.
    #[error("{} makes no sense ({why}): remove it, and set the home again", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no home.
    #[error(
        "the chunk files of {} have no home: `meridian home set s3://BUCKET/PREFIX --data {}` gives them one",
        dir.display(), dir.display()
    )]
    NotSet {
        /// The data directory.
        dir: PathBuf,
    },
    /// There is another one.
    #[error(
        "the chunk files of {} have their home at {url}: `meridian home unset --data {}` brings them back first",
        dir.display(), dir.display()
    )]
    OtherHome {
        /// The data directory.
        dir: PathBuf,
        /// Where it is.
        url: String,
    },
    /// The URL is none of a place in a bucket.
    #[error("{url} is no home of chunk files: they are in buckets, as s3://BUCKET/PREFIX")]
    NoBucket {
        /// What was given.
        url: String,
    },
    /// Several front ends may use the directory.
    #[error(
        "the catalog of {} is in PostgreSQL, so that several front ends may serve it: chunk files have a home in an object store only where \
         the catalog is in SQLite (`meridian catalog copy --to sqlite`)",
        dir.display()
    )]
    SharedCatalog {
        /// The data directory.
        dir: PathBuf,
    },
    /// Workers hold files of the directory.
    #[error(
        "{} is the directory of a cluster's front end, whose files are at workers: they have no home in an object store besides. If no \
         `meridian serve --cluster` runs on it any more and all files are back (`--keep-files all`), remove cluster.files there",
        dir.display()
    )]
    OfCluster {
        /// The data directory.
        dir: PathBuf,
    },
    /// The directory is another one than that for which the home was set.
    #[error(
        "{} was copied, or moved to another disk, since its home at {url} was set, and changes nothing there: if the other directory is gone, \
         `meridian home set {url} --moved --data {}`; if it is still used, `meridian home unset --data {}` makes this one independent",
        dir.display(), dir.display(), dir.display()
    )]
    Moved {
        /// The data directory.
        dir: PathBuf,
        /// Where the home is.
        url: String,
    },
    /// The files are coming back.
    #[error(
        "the chunk files of {} are coming back from {url}: `meridian home unset --data {}` goes on with that, `meridian home set {url}` ends it",
        dir.display(), dir.display()
    )]
    Ending {
        /// The data directory.
        dir: PathBuf,
        /// Where the home is.
        url: String,
    },
    /// What was written cannot be read as it was.
    #[error(
        "{url} is not what was just written: another program has changed it, or the store is not to be relied on"
    )]
    NotAsWritten {
        /// The object.
        url: String,
    },
    /// An object has other bytes than those that were copied there.
    #[error(
        "{url} is damaged: its bytes are not those that were copied there. Load the table again, or restore the file from a backup"
    )]
    Damaged {
        /// The object.
        url: String,
    },
    /// Some files are damaged here; all others are done.
    #[error("{count} files are not copied, all others are; the first: {first}")]
    NotCopied {
        /// How many.
        count: usize,
        /// What is wrong with the first.
        first: String,
    },
    /// Files are not here although they should be.
    #[error("{} did not come back: run `meridian home unset` again", path.display())]
    NotBack {
        /// The first of them.
        path: PathBuf,
    },
}

impl HomeError {
    /// Says what could not be done with a file.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// What a reader is told of a store that does not give an object.
pub(super) fn unreadable(error: &RemoteError) -> String {
    match error {
        RemoteError::Changed { url } => format!(
            "{url} is not the object any more that was copied there: load the table again, or restore the file from a backup"
        ),
        RemoteError::Missing { url } => format!(
            "{url} is gone from the store: load the table again, or restore the file from a backup"
        ),
        error => format!(
            "{error}; `meridian home status` says whether the store can be used, and statements on files that are here go on"
        ),
    }
}
