//! Places of backups: directories, and prefixes of names in buckets.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use remote_files::Client;

use crate::bucket::{Bucket, BucketSource, BucketTarget};
use crate::directory;
use crate::part_files::PartFile;
use crate::snapshot::{Snapshot, SnapshotFile, SnapshotList};
use crate::take::BackupProgress;
use crate::{BackupError, Result};

/// Where backups are.
#[derive(Debug, Clone)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A prefix of names in a bucket.
    Bucket(Bucket),
}

impl Place {
    /// The place that a URL names.
    ///
    /// # Errors
    /// It is not in a bucket.
    pub fn at_url(client: Client, url: &str) -> Result<Self> {
        Bucket::new(client, url).map(Self::Bucket)
    }

    /// What messages call it.
    pub fn name(&self) -> &Path {
        match self {
            Self::Directory(path) => path,
            Self::Bucket(bucket) => bucket.name(),
        }
    }

    /// The snapshots of the place.
    ///
    /// # Errors
    /// The place cannot be read.
    pub async fn snapshots(&self) -> Result<SnapshotList> {
        match self {
            Self::Directory(path) => directory::snapshots(path),
            Self::Bucket(bucket) => bucket.snapshots().await,
        }
    }

    /// Begins to change the place, which nobody else does meanwhile.
    pub(crate) async fn begin(&self, data_dir: &Path) -> Result<Target<'_>> {
        let held = match self {
            Self::Directory(path) => Held::Directory {
                _lock: directory::begin(data_dir, path)?,
            },
            Self::Bucket(bucket) => Held::Bucket(Box::new(bucket.begin().await?)),
        };
        Ok(Target { place: self, held })
    }

    /// Looks for the files of snapshots, before they are read.
    pub(crate) async fn source(&self, snapshots: &[Snapshot]) -> Result<Source> {
        Ok(match self {
            Self::Directory(path) => Source::Directory(path.clone()),
            Self::Bucket(bucket) => Source::Bucket(bucket.source(snapshots).await?),
        })
    }
}

/// Where the files of snapshots come from.
#[derive(Clone)]
pub(crate) enum Source {
    Directory(PathBuf),
    Bucket(BucketSource),
}

/// A place that is being changed.
pub(crate) struct Target<'a> {
    place: &'a Place,
    held: Held,
}

enum Held {
    Directory { _lock: File },
    Bucket(Box<BucketTarget>),
}

impl Target<'_> {
    pub fn place(&self) -> &Place {
        self.place
    }

    /// The directory in which the snapshot's own files are put together.
    pub fn unfinished(&self) -> PathBuf {
        match &self.held {
            Held::Directory { .. } => directory::unfinished(self.place.name()),
            Held::Bucket(target) => target.unfinished(),
        }
    }

    /// Copies the files of parts that the place does not have. Adds all to `files`, and gives the number and the bytes of those that were
    /// copied.
    pub async fn copy_parts(
        &self,
        wanted: Vec<PartFile>,
        known: &HashMap<&PathBuf, &SnapshotFile>,
        files: &mut Vec<SnapshotFile>,
        tell: &mut impl FnMut(BackupProgress),
    ) -> Result<(u64, u64)> {
        match &self.held {
            Held::Directory { .. } => {
                let place = self.place.name();
                directory::copy_parts(place, wanted, known, files, tell).await
            }
            Held::Bucket(target) => target.copy_parts(wanted, known, files, tell).await,
        }
    }

    /// Makes a snapshot visible, whose own files are in the unfinished directory.
    pub async fn publish(&self, snapshot: &Snapshot) -> Result<()> {
        match &self.held {
            Held::Directory { .. } => directory::publish(self.place.name(), snapshot),
            Held::Bucket(target) => target.publish(snapshot).await,
        }
    }

    /// Removes all but the newest snapshots, and the files of parts that only those had, unless one that cannot be read may have them.
    pub async fn remove_oldest(&self, keep: usize) -> Result<Vec<String>> {
        match &self.held {
            Held::Directory { .. } => directory::remove_oldest(self.place.name(), keep),
            Held::Bucket(target) => target.remove_oldest(keep).await,
        }
    }

    /// Waits until somebody wants it to end, where it can then: copies into directories do not wait for anything.
    pub async fn cancelled(&self) {
        let waits = matches!(self.held, Held::Bucket(_));
        if !waits || tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Lets others change the place.
    pub async fn end(self) {
        if let Held::Bucket(target) = self.held {
            target.end().await;
        }
    }
}

/// The URL of a file in a bucket, where that is no place of backups.
pub(crate) fn no_bucket(place: &str) -> BackupError {
    BackupError::NoBucket {
        place: place.to_owned(),
    }
}
