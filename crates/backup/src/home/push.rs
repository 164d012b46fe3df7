//! The copying of files to their home, and the giving up of copies.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use catalog::Catalog;
use remote_files::Client;
use sky::ChunkId;
use store::{
    HomeObject, LoadDir, LocalFile, OpenFile, StoreError, has_home, name_in_data_dir,
    remove_abandoned_copies,
};
use tokio::task::JoinSet;

use super::cache::{copies, give_up};
use super::clean_up::clean_up;
use super::config::{Home, HomeLock};
use super::parts::{self, ShownPart};
use super::source::bare_object;
use super::{HomeError, HomeProgress, Result, client};
use crate::bucket::NOTE;
use crate::copy::content_of;
use crate::snapshot::checksum_text;

/// Files that are copied side by side.
const FILES_AHEAD: usize = 4;

/// How files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushOptions {
    /// Bytes a second; as fast as it goes if there is none.
    pub rate: Option<u64>,
    /// Whether objects of parts that are gone are looked for and removed, which lists the place.
    pub cleans_up: bool,
    /// Whether it waits while another process does the same; else there is nothing to do then.
    pub waits: bool,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PushReport {
    /// Files that are at home now and were not before.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Copies here that were given up.
    pub given_up_files: u64,
    /// Their bytes.
    pub given_up_bytes: u64,
    /// Objects of parts that are gone, which were removed.
    pub removed_objects: u64,
    /// Whether another process was doing the same, and nothing was done.
    pub is_busy: bool,
}

/// Copies the chunk files of all tables home that are not there, verifies them, gives up copies beyond the cache's size, and removes objects
/// of parts that are gone.
///
/// # Errors
/// No home is set, the store does not do what it is asked, or files are damaged here; all others are copied then. What was copied counts.
pub async fn push(
    data_dir: &Path,
    options: PushOptions,
    mut tell: impl FnMut(HomeProgress),
) -> Result<PushReport> {
    let mut report = PushReport::default();
    expect_usable(data_dir)?;
    let lock = match options.waits {
        true => HomeLock::take(data_dir).await?,
        false => match HomeLock::try_take(data_dir)? {
            Some(lock) => lock,
            None => {
                report.is_busy = true;
                return Ok(report);
            }
        },
    };
    let home = expect_usable(data_dir)?;
    let client = client()?;
    let catalog = Catalog::open(data_dir).await?;
    let pushing = async {
        let wanted = wanted(&catalog, data_dir).await?;
        let problems = copy_all(
            &client,
            data_dir,
            &home,
            wanted,
            options.rate,
            &mut report,
            &mut tell,
        );
        let problems = problems.await?;
        shrink(&client, data_dir, &lock, &mut report).await?;
        if options.cleans_up {
            report.removed_objects = clean_up(&client, &catalog, data_dir, &home).await?;
        }
        match problems.first() {
            Some(first) => Err(HomeError::NotCopied {
                count: problems.len(),
                first: first.clone(),
            }),
            None => Ok(()),
        }
    };
    let pushed = Box::pin(pushing).await;
    catalog.close().await;
    pushed?;
    Ok(report)
}

/// The home, if files may be copied there.
fn expect_usable(data_dir: &Path) -> Result<Home> {
    let home = Home::expect(data_dir)?;
    home.expect_original(data_dir)?;
    match home.is_ending {
        true => Err(HomeError::Ending {
            dir: data_dir.to_owned(),
            url: home.url,
        }),
        false => Ok(home),
    }
}

/// A file that is to be copied.
#[derive(Debug, Clone)]
struct Wanted {
    part: ShownPart,
    file: ChunkId,
    /// As the catalog has it.
    checksum: u64,
}

/// The files of all tables that are not at home.
async fn wanted(catalog: &Catalog, data_dir: &Path) -> Result<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for part in parts::shown(catalog).await? {
        for (file, checksum) in part.files(catalog).await? {
            if !has_home(&part.path(data_dir, file)) {
                wanted.push(Wanted {
                    part: part.clone(),
                    file,
                    checksum,
                });
            }
        }
    }
    Ok(wanted)
}

/// Copies files, some side by side. Gives what is wrong with those that are damaged here.
async fn copy_all(
    client: &Client,
    data_dir: &Path,
    home: &Home,
    wanted: Vec<Wanted>,
    rate: Option<u64>,
    report: &mut PushReport,
    tell: &mut impl FnMut(HomeProgress),
) -> Result<Vec<String>> {
    let mut told = HomeProgress {
        of: wanted.len() as u64,
        ..HomeProgress::default()
    };
    let copier = Arc::new(Copier {
        client: client.clone(),
        data_dir: data_dir.to_owned(),
        home: home.clone(),
        rate,
        next: Mutex::new(Instant::now()),
    });
    let mut problems = Vec::new();
    let mut under_way = JoinSet::new();
    let mut wanted = wanted.into_iter();
    loop {
        while under_way.len() < FILES_AHEAD
            && let Some(file) = wanted.next()
        {
            // Somebody may want the files back by now.
            expect_usable(data_dir)?;
            let copier = Arc::clone(&copier);
            under_way.spawn(async move { copier.copy(file).await });
        }
        let Some(joined) = under_way.join_next().await else {
            return Ok(problems);
        };
        let joined = joined.map_err(std::io::Error::other);
        match joined.map_err(HomeError::io("copy files of", data_dir))? {
            Ok(Some(bytes)) => {
                report.copied_files += 1;
                report.copied_bytes += bytes;
                told.bytes += bytes;
            }
            Ok(None) => {}
            Err(
                error @ HomeError::Store(StoreError::Damaged { .. } | StoreError::Missing { .. }),
            ) => {
                problems.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
        told.files += 1;
        tell(told);
    }
}

/// What copies files.
struct Copier {
    client: Client,
    data_dir: PathBuf,
    home: Home,
    rate: Option<u64>,
    /// When the next bytes may go.
    next: Mutex<Instant>,
}

impl Copier {
    /// Copies a file, verified before and after. Gives its bytes; `None` if the part was dropped meanwhile.
    async fn copy(&self, wanted: Wanted) -> Result<Option<u64>> {
        let ShownPart {
            database,
            table,
            load,
        } = &wanted.part;
        let held = match LoadDir::open(&self.data_dir, database, table, *load) {
            Ok(held) => held,
            Err(StoreError::Missing { .. }) => return self.expect_dropped(&wanted).await,
            Err(error) => return Err(error.into()),
        };
        let path = held.chunk_path(wanted.file);
        let Some((_, name)) = name_in_data_dir(&path) else {
            return Ok(None);
        };
        let file = OpenFile::open_source(Arc::new(LocalFile::open(&path)?), None).await?;
        file.verify().await?;
        if file.checksum() != wanted.checksum {
            return Err(HomeError::Store(StoreError::Damaged {
                path,
                what: "it is not the file that was published".to_owned(),
            }));
        }
        drop(file);
        let content = content_of(&path)?;
        let address = self.home.address(&name);
        let note = checksum_text(content);
        // What a killed process has sent is not sent again.
        if self.client.note(&address, NOTE).await?.as_ref() != Some(&note) {
            self.wait(content.bytes).await;
            let sent = self
                .client
                .upload(&path, content.bytes, &address, (NOTE, &note));
            sent.await?;
        }
        let there = self.client.stat(&address).await?;
        let object = HomeObject {
            url: address.to_string(),
            bytes: there.bytes,
            etag: there.etag,
            checksum: wanted.checksum,
        };
        self.verify(&object, content.bytes).await?;
        object.note(&path)?;
        Ok(Some(content.bytes))
    }

    /// A part whose directory is gone was dropped, if the catalog says so.
    async fn expect_dropped(&self, wanted: &Wanted) -> Result<Option<u64>> {
        let catalog = Catalog::open(&self.data_dir).await?;
        let shown = parts::shown(&catalog).await;
        catalog.close().await;
        match shown?.iter().any(|part| part.load == wanted.part.load) {
            true => Err(HomeError::Store(StoreError::Missing {
                path: wanted.part.dir(&self.data_dir),
            })),
            false => Ok(None),
        }
    }

    /// Sees that an object is the file: by its length, and by its end, which has the checksums of all blocks. The store has verified the
    /// SHA-256 of all that was sent.
    async fn verify(&self, object: &HomeObject, bytes: u64) -> Result<()> {
        let not_as_written = || HomeError::NotAsWritten {
            url: object.url.clone(),
        };
        if object.bytes != bytes {
            return Err(not_as_written());
        }
        let opened = OpenFile::open_source(bare_object(&self.client, object)?, None).await;
        match opened {
            Ok(opened) if opened.checksum() == object.checksum => Ok(()),
            Ok(_) | Err(StoreError::Damaged { .. }) => Err(not_as_written()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until so many bytes may go: those before them have taken their time.
    async fn wait(&self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
        let due = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let due = (*next).max(Instant::now());
            *next = due + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            due
        };
        tokio::time::sleep_until(due.into()).await;
    }
}

/// Gives up copies until there are no more bytes of them than the cache may have, and removes what killed processes have left on its way here.
async fn shrink(
    client: &Client,
    data_dir: &Path,
    lock: &HomeLock,
    report: &mut PushReport,
) -> Result<()> {
    for part in parts::directories(data_dir)? {
        remove_abandoned_copies(&part)?;
    }
    // It may have been changed meanwhile.
    let Some(size) = expect_usable(data_dir)?.cache else {
        return Ok(());
    };
    let copies = copies(data_dir)?;
    let mut bytes: u64 = copies.iter().map(|copy| copy.bytes).sum();
    for copy in copies {
        if bytes <= size {
            break;
        }
        expect_usable(data_dir)?;
        bytes = bytes.saturating_sub(copy.bytes);
        if give_up(client, lock, &copy.path).await? {
            report.given_up_files += 1;
            report.given_up_bytes += copy.bytes;
        }
    }
    Ok(())
}
