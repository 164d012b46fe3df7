//! The disks of a worker: where its replicas are, and which of them have failed.
//!
//! ```text
//!   DIR/replicas/worker.lock, cluster.json                          of the home alone: catalog.sqlite
//!   DIR/replicas/tables/db.table/PART/manifest.json, chunk_N.mrd
//! ```
//!
//! Each disk can be read without the others. The first that is usable when the worker starts is its home, which has the directories of
//! all parts; each file is on one of the disks. Some may be for users' own tables alone, which are then on no other: a user who fills them leaves
//! the catalogues their room. A disk that cannot be written any more is set aside until the next start, and its
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
use crate::messages::DiskSpace;

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
    /// Whether it is for users' own tables alone.
    is_for_users: bool,
    /// Why it is set aside.
    failure: OnceLock<String>,
    /// Held as long as the worker runs.
    _lock: Option<File>,
}

impl Disk {
    /// A disk that may be set aside at once.
    fn open(dir: &Path, is_for_users: bool) -> Result<Self, ClusterError> {
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
            is_for_users,
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
    /// Opens directories, and makes those that are not there: some for users' own tables alone, if there are any.
    ///
    /// # Errors
    /// Another worker uses one of them, or none of those for catalogues can be used.
    pub fn open(dirs: &[PathBuf], user_dirs: &[PathBuf]) -> Result<Self, ClusterError> {
        let given = dirs.iter().map(|dir| (dir, false));
        let disks: Vec<Disk> = given
            .chain(user_dirs.iter().map(|dir| (dir, true)))
            .map(|(dir, is_for_users)| Disk::open(dir, is_for_users))
            .collect::<Result<_, _>>()?;
        let home = disks
            .iter()
            .position(|disk| disk.is_usable() && !disk.is_for_users);
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

    /// Whether there are disks for users' own tables alone.
    fn are_some_for_users(&self) -> bool {
        self.disks.iter().any(|disk| disk.is_for_users)
    }

    /// Whether files of users' own tables belong on a disk, or those of other tables.
    pub fn takes(&self, disk: usize, of_user: bool) -> bool {
        let is_for_users = self.disks.get(disk).is_some_and(|disk| disk.is_for_users);
        is_for_users == (of_user && self.are_some_for_users())
    }

    /// The usable disk on which a file is, or the one with the most room, of those that take it; none if none of these can be used.
    pub fn of(&self, at_home: &Path, of_user: bool) -> Option<usize> {
        let mut usable = self.usable();
        usable.retain(|(at, _)| self.takes(*at, of_user));
        let has_it = |(at, _): &&(usize, &Path)| self.path(at_home, *at).exists();
        let found = usable.iter().find(has_it);
        let roomiest = || usable.iter().max_by_key(|(_, dir)| space(dir).free);
        found.or_else(roomiest).map(|(at, _)| *at)
    }

    /// The room of all usable disks but those for users' own tables alone.
    pub fn space(&self) -> DiskSpace {
        self.space_of(false)
    }

    /// The room of the disks for users' own tables, if some are for these alone.
    pub fn user_space(&self) -> Option<DiskSpace> {
        self.are_some_for_users().then(|| self.space_of(true))
    }

    /// What this process may use of disks. Directories of one file system count once.
    fn space_of(&self, of_user: bool) -> DiskSpace {
        let (mut seen, mut total) = (Vec::new(), DiskSpace::default());
        for (_, dir) in { self.usable().into_iter() }.filter(|(at, _)| self.takes(*at, of_user)) {
            let device = fs::metadata(dir).map_or(0, |it| it.dev());
            if !seen.contains(&device) {
                seen.push(device);
                let one = space(dir);
                total.bytes += one.bytes;
                total.free += one.free;
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

/// What this process may use of the disk of a directory: what is kept for others, as by a quota, counts for nothing.
fn space(dir: &Path) -> DiskSpace {
    match rustix::fs::statvfs(dir) {
        Ok(found) => {
            let used = found.f_blocks.saturating_sub(found.f_bfree);
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            DiskSpace {
                bytes: bytes(used.saturating_add(found.f_bavail)),
                free: bytes(found.f_bavail),
            }
        }
        Err(_) => DiskSpace::default(),
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
        let disks = Disks::open(&dirs, &[]).unwrap();
        assert_eq!(disks.home(), dirs[1].join(REPLICAS));
        assert!(Disks::open(&dirs[1..], &[]).is_err(), "they are in use");
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
        assert!(Disks::open(&dirs[..1], &[]).is_err());
    }

    #[tokio::test]
    async fn disks_for_users_tables_have_these_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = ["a", "b", "users"]
            .map(|name| dir.path().join(name))
            .to_vec();
        let alike = Disks::open(&dirs, &[]).unwrap();
        assert!((0..3).all(|disk| alike.takes(disk, true) && alike.takes(disk, false)));
        assert_eq!(alike.user_space(), None);
        drop(alike);
        let disks = Disks::open(&dirs[..2], &dirs[2..]).unwrap();
        let file = dirs[0].join(REPLICAS).join("tables/x/1/chunk_1.mrd");
        assert_eq!(disks.of(&file, true), Some(2));
        assert!(disks.of(&file, false).unwrap() < 2);
        // One that is on another kind of disk is not where it shall be.
        let elsewhere = disks.path(&file, 1);
        fs::create_dir_all(elsewhere.parent().unwrap()).unwrap();
        fs::write(&elsewhere, "a replica").unwrap();
        assert_eq!(disks.of(&file, false), Some(1));
        assert_eq!(disks.of(&file, true), Some(2));
        assert!(disks.user_space().unwrap().bytes > 0);
        // Without the disk of users' tables these go nowhere else.
        fs::rename(&dirs[2], dir.path().join("gone")).unwrap();
        assert!(disks.check().await && disks.home_failure().is_none());
        assert_eq!(disks.of(&file, false), Some(1));
        assert_eq!(disks.of(&file, true), None);
        assert_eq!(disks.user_space(), Some(DiskSpace::default()));
        drop(disks);
        assert!(Disks::open(&[], &dirs[..1]).is_err(), "it has no home");
    }
}
