//! The number of publications, where a process can see it without asking SQLite.
//!
//! The row `publications` has the number; every transaction that changes what readers see raises it. A query for it takes a hundred
//! times as long as a plan cache may, so it is also in a small file beside the catalog, `meridian.publications`:
//!
//! ```text
//!   bytes  0..8    "MRDNPUB1"
//!   bytes  8..16   begun: the number that the last change of what readers see will have, little-endian
//!   bytes 16..24   ended: the number of the last change that is known to be committed, or to have failed
//! ```
//!
//! A writer writes `begun` while it holds SQLite's write lock, before it commits, and `ended` after the commit. So there is no moment at
//! which a change can be seen while both numbers are those of before, and whoever finds different ones asks the catalog. A writer that is
//! killed in between leaves them different: that is slow, not wrong. The next change, and whoever opens the catalog then or has it
//! open, takes the write lock and puts the row's number into both ([`Publications::settle`]). While a writer is at work the lock is not to
//! be had, and the file is left alone.
//!
//! Two writers may be after their commits at once. `ended` only grows but for that, and the last of them may write it first; then the
//! numbers differ until they are settled.
//!
//! The file is not synced to the disk: after a power failure no process is left that has kept anything, and one that opens the catalog
//! settles it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::connections::{Mode, options};
use crate::CatalogError;
use crate::access::writable_file;
use crate::statements::from_stored;

pub(crate) const FILE_NAME: &str = "meridian.publications";
const MAGIC: [u8; 8] = *b"MRDNPUB1";
const BEGUN_AT: u64 = 8;
const ENDED_AT: u64 = 16;
const LEN: usize = 24;

/// How often a process tries to settle a file whose numbers differ.
const PATIENCE: Duration = Duration::from_millis(500);

const NUMBER: &str = "SELECT counter FROM publications";

/// The file with the number.
#[derive(Debug)]
pub(super) struct Publications {
    path: PathBuf,
    /// When it was last tried to settle the file.
    tried: Mutex<Option<Instant>>,
}

impl Publications {
    /// The file beside the catalog at this path.
    pub(super) fn beside(database: &Path) -> Self {
        Self {
            path: database.with_file_name(FILE_NAME),
            tried: Mutex::new(None),
        }
    }

    /// The number of publications; `None` if it is not known.
    pub(super) fn number(&self) -> Option<u64> {
        let (begun, ended) = self.read()?;
        (begun == ended).then_some(ended)
    }

    /// The file is opened each time: somebody may have removed it, and a writer made it anew.
    fn read(&self) -> Option<(u64, u64)> {
        numbers_in(&File::open(&self.path).ok()?)
    }

    /// Says that a change with this number is about to be committed. The caller holds the write lock.
    pub(super) fn begin(&self, number: u64) -> Result<(), CatalogError> {
        self.write(BEGUN_AT, number)
    }

    /// Says that it is committed.
    pub(super) fn end(&self, number: u64) -> Result<(), CatalogError> {
        match self.read() {
            // Another one has been committed since.
            Some((begun, ended)) if ended >= number && ended <= begun => Ok(()),
            _ => self.write(ENDED_AT, number),
        }
    }

    fn write(&self, at: u64, number: u64) -> Result<(), CatalogError> {
        let written = self
            .open_for_writing()
            .and_then(|file| file.write_all_at(&number.to_le_bytes(), at));
        written.map_err(CatalogError::io("write", &self.path))
    }

    /// The file, made if it is not there or is none of ours: its numbers are then such as no catalog has, and differ.
    fn open_for_writing(&self) -> io::Result<File> {
        let mut options = writable_file();
        let file = options
            .read(true)
            .create(true)
            .truncate(false)
            .open(&self.path)?;
        if numbers_in(&file).is_none() || file.metadata()?.len() != LEN as u64 {
            let mut bytes = [0xff; LEN];
            bytes[..BEGUN_AT as usize].copy_from_slice(&MAGIC);
            bytes[BEGUN_AT as usize..ENDED_AT as usize].fill(0xfe);
            file.write_all_at(&bytes, 0)?;
            file.set_len(LEN as u64)?;
        }
        Ok(file)
    }

    /// Puts the row's number into the file if it is not there and no writer is at work; tries that only now and then.
    pub(super) async fn settle_if_due(&self, database: &Path) {
        if self.number().is_some() {
            return;
        }
        {
            let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
            if tried.is_some_and(|tried| tried.elapsed() < PATIENCE) {
                return;
            }
            *tried = Some(Instant::now());
        }
        self.try_to_settle(database).await;
    }

    /// Puts the row's number into the file if no writer is at work.
    pub(super) async fn try_to_settle(&self, database: &Path) {
        if let Err(error) = self.settle(database).await {
            // Somebody writes, or may write and we may not: the catalog itself is asked meanwhile.
            tracing::debug!(%error, "the number of publications is not settled");
        }
    }

    /// Puts the row's number into the file, under the write lock.
    async fn settle(&self, database: &Path) -> Result<(), CatalogError> {
        let mut connection = options(database, Mode::Shared)
            .busy_timeout(Duration::ZERO)
            .connect()
            .await?;
        let settled = self.settle_by(&mut connection).await;
        connection.close().await?;
        settled
    }

    async fn settle_by(&self, connection: &mut SqliteConnection) -> Result<(), CatalogError> {
        let mut locked = connection.begin_with("BEGIN IMMEDIATE").await?;
        let number: i64 = sqlx::query_scalar(NUMBER).fetch_one(&mut *locked).await?;
        let number = from_stored("the number of publications", number)?;
        self.write(BEGUN_AT, number)?;
        self.write(ENDED_AT, number)?;
        locked.rollback().await?;
        Ok(())
    }

    /// Whether the file has this number, which the catalog has.
    pub(super) async fn agrees(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<bool, CatalogError> {
        let number: i64 = sqlx::query_scalar(NUMBER).fetch_one(connection).await?;
        Ok(self.number() == Some(from_stored("the number of publications", number)?))
    }
}

/// The numbers of the changes that were begun and ended; `None` if the file is none of ours.
fn numbers_in(file: &File) -> Option<(u64, u64)> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = |at: u64| {
        let at = at as usize;
        let number = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(number.try_into().ok()?))
    };
    bytes
        .starts_with(&MAGIC)
        .then_some((number(BEGUN_AT)?, number(ENDED_AT)?))
}
