//! The disks of a worker: where its replicas are, and which of them have failed.
//!
//! ```text
//!   DIR/replicas/worker.lock, cluster.json                          of the home alone: catalog.sqlite
//!   DIR/replicas/tables/db.table/PART/manifest.json, chunk_N.mrd
//! ```
//!
//! Each disk can be read without the others. The first that is usable when the worker starts is its home, which has the directories of
//! all parts; each file is on one of the disks. A disk that cannot be written any more is set aside until the next start, and its
//! replicas count as gone. Without its home a worker ends, and finds another one when it starts again.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::holdings::failed;
use crate::ClusterError;

/// Where the files are, in the directory of a worker.
const REPLICAS: &str = "replicas";
/// The file that a running worker locks.
const LOCK_FILE: &str = "worker.lock";
/// The file that is written to see whether a disk can be.
const PROBE_FILE: &str = "worker.probe";
/// How long a disk may take for that.
const PATIENCE: Duration = Duration::from_secs(20);

/// The disks of a worker.
#[derive(Debug)]
pub(crate) struct Disks {
    disks: Vec<Disk>,
    home: usize,
}

#[derive(Debug)]
struct Disk {
    /// The directory that was given.
    dir: PathBuf,
    replicas: PathBuf,
    /// Why it is set aside.
    failure: OnceLock<String>,
    /// Held as long as the worker runs.
    _lock: Option<File>,
}

impl Disk {
    /// A disk that may be set aside at once.
    fn open(dir: &Path) -> Result<Self, ClusterError> {
        let replicas = dir.join(REPLICAS);
        let failure = OnceLock::new();
        let lock = match lock_directory(&replicas) {
            Ok(lock) => Some(lock),
            Err(LockError::Taken) => {
                let why = "another worker uses it: give each worker directories of its own";
                return Err(failed(&replicas, why.to_owned()));
            }
            Err(LockError::Failed(error)) => {
                let _ = failure.set(error.to_string());
                None
            }
        };
        let disk = Self {
            dir: dir.to_owned(),
            replicas,
            failure,
            _lock: lock,
        };
        if disk.is_usable() {
            disk.set_aside(probe(&disk.replicas));
        }
        Ok(disk)
    }

    fn is_usable(&self) -> bool {
        self.failure.get().is_none()
    }

    /// Sets it aside if it could not be written.
    fn set_aside(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::error!(dir = %self.dir.display(), %error, "a disk is set aside: its replicas are made anew elsewhere");
            let _ = self.failure.set(error.to_string());
        }
    }
}

impl Disks {
    /// Opens directories, and makes those that are not there.
    ///
    /// # Errors
    /// Another worker uses one of them, or none can be used.
    pub fn open(dirs: &[PathBuf]) -> Result<Self, ClusterError> {
        let disks: Vec<Disk> = dirs
            .iter()
            .map(|dir| Disk::open(dir))
            .collect::<Result<_, _>>()?;
        let home = disks.iter().position(Disk::is_usable);
        let home = home.ok_or_else(|| {
            let first = disks.first();
            let dir = first.map_or(Path::new("."), |it| &it.replicas);
            let why = first.and_then(|it| it.failure.get());
            failed(
                dir,
                why.map_or("no directory was given", |it| it).to_owned(),
            )
        })?;
        Ok(Self { disks, home })
    }

    /// The replicas of the home.
    pub fn home(&self) -> &Path {
        self.disks
            .get(self.home)
            .map_or(Path::new("."), |it| &it.replicas)
    }

    /// Whether the home is set aside.
    pub fn home_failure(&self) -> Option<ClusterError> {
        let home = self.disks.get(self.home)?;
        let why = home.failure.get()?;
        Some(failed(&home.dir, why.clone()))
    }

    /// The usable disks by their numbers, the home first, each with the directory of its replicas.
    pub fn usable(&self) -> Vec<(usize, &Path)> {
        let mut usable: Vec<(usize, &Path)> = { self.disks.iter().enumerate() }
            .filter(|(_, disk)| disk.is_usable())
            .map(|(at, disk)| (at, disk.replicas.as_path()))
            .collect();
        usable.sort_by_key(|(at, _)| *at != self.home);
        usable
    }

    /// Where something is on a disk that has this path on the home.
    pub fn path(&self, at_home: &Path, disk: usize) -> PathBuf {
        let within = at_home.strip_prefix(self.home());
        match (within, self.disks.get(disk)) {
            (Ok(within), Some(disk)) => disk.replicas.join(within),
            _ => at_home.to_owned(),
        }
    }

    /// The usable disk on which a file is, or the one with the most room.
    pub fn of(&self, at_home: &Path) -> usize {
        let usable = self.usable();
        let has_it = |(at, _): &&(usize, &Path)| self.path(at_home, *at).exists();
        let found = usable.iter().find(has_it);
        let roomiest = || usable.iter().max_by_key(|(_, dir)| space(dir).1);
        found.or_else(roomiest).map_or(self.home, |(at, _)| *at)
    }

    /// Bytes of all usable disks that this process may use, and those of them that are free. Directories of one file system count once.
    pub fn space(&self) -> (u64, u64) {
        let (mut seen, mut total) = (Vec::new(), (0, 0));
        for (_, dir) in self.usable() {
            let device = fs::metadata(dir).map_or(0, |it| it.dev());
            if !seen.contains(&device) {
                seen.push(device);
                let (bytes, free) = space(dir);
                total = (total.0 + bytes, total.1 + free);
            }
        }
        total
    }

    /// Sets disks aside that cannot be written any more. Whether there are new ones.
    pub async fn check(&self) -> bool {
        let mut has_failed = false;
        for disk in self.disks.iter().filter(|disk| disk.is_usable()) {
            let dir = disk.replicas.clone();
            let probed = timeout(PATIENCE, spawn_blocking(move || probe(&dir))).await;
            let written = match probed {
                Ok(Ok(written)) => written,
                Ok(Err(error)) => Err(io::Error::other(error)),
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "it does not answer",
                )),
            };
            disk.set_aside(written);
            has_failed |= !disk.is_usable();
        }
        has_failed
    }

    /// Which disks are set aside, and why, in words; `None` if there are none.
    pub fn trouble(&self) -> Option<String> {
        let told = self.disks.iter().filter_map(|disk| {
            let why = disk.failure.get()?;
            Some(format!(
                "the disk of {} is set aside: {why}",
                disk.dir.display()
            ))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

enum LockError {
    Taken,
    Failed(io::Error),
}

/// Makes the directory, and locks it for this worker.
fn lock_directory(replicas: &Path) -> Result<File, LockError> {
    fs::create_dir_all(replicas).map_err(LockError::Failed)?;
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(replicas.join(LOCK_FILE))
        .map_err(LockError::Failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(LockError::Taken),
        Err(TryLockError::Error(error)) => Err(LockError::Failed(error)),
    }
}

/// Whether files can be written there. One that is full is not broken.
fn probe(replicas: &Path) -> io::Result<()> {
    let path = replicas.join(PROBE_FILE);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(b"it can be written\n")?;
        file.sync_all()
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Ok(()),
        written => written,
    }
}

/// Bytes of the disk of a directory that this process may use, and those of them that are free: what is kept for others, as by a quota, counts
/// for nothing.
fn space(dir: &Path) -> (u64, u64) {
    match rustix::fs::statvfs(dir) {
        Ok(found) => {
            let used = found.f_blocks.saturating_sub(found.f_bfree);
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            (
                bytes(used.saturating_add(found.f_bavail)),
                bytes(found.f_bavail),
            )
        }
        Err(_) => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_disk_that_is_gone_is_set_aside_and_the_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = ["a", "b", "c"].map(|name| dir.path().join(name)).to_vec();
        fs::write(&dirs[0], "no directory").unwrap();
        let disks = Disks::open(&dirs).unwrap();
        assert_eq!(disks.home(), dirs[1].join(REPLICAS));
        assert!(Disks::open(&dirs[1..]).is_err(), "they are in use");
        assert!(!disks.check().await);
        let file = dirs[1].join(REPLICAS).join("tables/x/1/chunk_1.mrd");
        let other = dirs[2].join(REPLICAS).join("tables/x/1/chunk_1.mrd");
        assert_eq!(disks.path(&file, 2), other);
        fs::rename(&dirs[2], dir.path().join("gone")).unwrap();
        assert!(disks.check().await && disks.home_failure().is_none());
        assert!(!disks.check().await, "it is known");
        assert_eq!(disks.usable().len(), 1);
        let trouble = disks.trouble().unwrap();
        assert!(trouble.contains("/a is set aside") && trouble.contains("/c is set aside"));
        fs::rename(&dirs[1], dir.path().join("gone too")).unwrap();
        assert!(disks.check().await && disks.home_failure().is_some());
        assert!(Disks::open(&dirs[..1]).is_err());
    }
}
