//! How much of the chunk files the front end keeps itself: what it gives up because workers hold it, and what it brings back.
//!
//! 1. A file is given up only if as many workers as there shall be replicas are live, hold it and have acknowledged that they shall, none
//!    of which gives its own up ([`super::assignments`], rule 1). So there are as many replicas afterwards, and orders that are under
//!    way take none of them away.
//! 2. It is noted on the disk before the file goes ([`store::give_up`]).
//! 3. Files of tables that are the same in every piece stay.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sky::ChunkId;
use store::{ByteSource, LoadDir, StoreError, bring_back, give_up};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;
use tracing::{info, warn};

use super::assignments::Assignments;
use super::parts::{KnownPart, PartFile};
use super::{FrontEnd, PartKey, lock};
use crate::ClusterError;
use crate::file_service::verify;

/// Files that are given up at a time.
const FILES_AT_ONCE: usize = 1000;
/// Bytes that are read at a time of a file that comes back.
const STEP: usize = 1 << 20;
/// How long to wait before the next look for files that shall come back.
const PAUSE: Duration = Duration::from_secs(1);

/// How many bytes of chunk files a front end keeps itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptFiles {
    /// So many, as soon as workers hold the others.
    Bytes(u64),
    /// All of them. What was given up before comes back.
    All,
}

/// The files to give up, so that no more than so many bytes are kept, in the order in which they go: of old parts first.
pub(super) fn to_give_up(
    latest: &Assignments,
    kept: u64,
    replicas: usize,
    is_live: impl Fn(&str) -> bool,
) -> Vec<(PartKey, ChunkId)> {
    let mut left = latest.local_bytes;
    let mut chosen = Vec::new();
    for safe in &latest.replicated {
        if left <= kept || chosen.len() >= FILES_AT_ONCE {
            break;
        }
        let live = safe.holders.iter().filter(|name| is_live(name)).count();
        if live >= replicas.max(1) {
            left = left.saturating_sub(safe.bytes);
            chosen.push((safe.part, safe.file));
        }
    }
    chosen
}

impl FrontEnd {
    /// Gives up what is not to be kept, as far as workers hold it. Whether there may be more.
    pub(super) fn make_room(&self) -> bool {
        let KeptFiles::Bytes(kept) = self.options.kept_files else {
            return false;
        };
        if !self.may_give_up() {
            return false;
        }
        let live = self.members.live();
        let (parts, chosen) = {
            let assigned = lock(&self.assigned);
            let live: HashSet<String> = live.into_iter().map(|(name, _)| name).collect();
            let is_live = |name: &str| live.contains(name);
            let replicas = self.options.replicas;
            let chosen = to_give_up(&assigned.latest, kept, replicas, is_live);
            (Arc::clone(&assigned.parts), chosen)
        };
        let may_be_more = chosen.len() >= FILES_AT_ONCE;
        let mut by_part: HashMap<PartKey, Vec<ChunkId>> = HashMap::new();
        for (part, file) in chosen {
            by_part.entry(part).or_default().push(file);
        }
        let mut given_up = 0;
        for part in parts.iter() {
            if let Some(files) = by_part.get(&part.key) {
                given_up += self.give_up(part, files);
            }
        }
        may_be_more && given_up > 0
    }

    /// The directory of a part, which nobody removes meanwhile.
    fn hold(&self, part: &KnownPart) -> Result<LoadDir, StoreError> {
        let data_dir = self.archive.catalog().data_dir();
        LoadDir::open(data_dir, &part.database, &part.table, part.key.part)
    }

    /// Gives files of a part up. Returns how many are gone.
    fn give_up(&self, part: &KnownPart, files: &[ChunkId]) -> usize {
        // It may have been dropped meanwhile.
        let Ok(_held) = self.hold(part) else {
            return 0;
        };
        let paths: Vec<PathBuf> = files.iter().map(|file| part.path(*file)).collect();
        if let Err(error) = give_up(&part.dir, &paths) {
            warn!(%error, "files that workers hold stay here");
        }
        let mut gone = 0;
        for (file, path) in files.iter().zip(&paths) {
            if store::is_away(path) {
                part.away().insert(*file);
                // Open, it would keep its place on the disk.
                self.archive.files().forget(path);
                gone += 1;
            }
        }
        info!(part = %part.dir.display(), files = gone, "files are at workers alone now");
        self.away_version.fetch_add(1, Relaxed);
        gone
    }

    /// Brings files back that were given up, if all are to be kept, until the front end ends.
    pub(super) async fn keep_bringing_back(self: Arc<Self>) {
        loop {
            sleep(PAUSE).await;
            if self.options.kept_files != KeptFiles::All || self.leadership.epoch().is_none() {
                continue;
            }
            let parts = Arc::clone(&lock(&self.assigned).parts);
            for part in parts.iter() {
                let mut away: Vec<ChunkId> = part.away().iter().copied().collect();
                away.sort_unstable();
                for file in away {
                    if self.leadership.epoch().is_none() {
                        break;
                    }
                    if let Err(error) = self.bring_back(part, file).await {
                        warn!(%error, file = %part.path(file).display(), "a file does not come back");
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Learns which files another front end has brought back, while it led.
    pub(super) fn look_for_files_that_came_back(&self) {
        let parts = Arc::clone(&lock(&self.assigned).parts);
        for part in parts.iter().filter(|part| !part.away().is_empty()) {
            // One that cannot be looked at is looked at the next time.
            let Ok(away) = store::files_away(&part.dir) else {
                continue;
            };
            let away: HashSet<ChunkId> = away.into_iter().collect();
            let mut known = part.away();
            if *known != away {
                *known = away;
                self.away_version.fetch_add(1, Relaxed);
            }
        }
    }

    /// Gets a file from a worker: one that was given up, or in the place of one that is damaged.
    pub(super) async fn bring_back(
        &self,
        part: &KnownPart,
        file: ChunkId,
    ) -> Result<(), ClusterError> {
        let (Some(known), Some(source)) = (part.file(file), self.holders.file(part, file)) else {
            return Ok(());
        };
        let Ok(_held) = self.hold(part) else {
            // It has been dropped.
            part.away().remove(&file);
            return Ok(());
        };
        let path = part.path(file);
        // Another front end may have begun the same when it led.
        let temporary = match &self.several {
            None => path.with_extension("mrd.tmp"),
            Some(_) => path.with_extension(format!("{:x}.tmp", self.process)),
        };
        let copied = copy_verified(&source, known, &temporary).await;
        let copied = copied.and_then(|()| Ok(bring_back(&temporary, &path)?));
        if copied.is_err() {
            let _ = fs::remove_file(&temporary);
            return copied;
        }
        part.away().remove(&file);
        self.away_version.fetch_add(1, Relaxed);
        self.archive.files().forget(&path);
        Ok(())
    }
}

/// Copies a file, from another worker if what one gives is damaged.
async fn copy_verified(
    source: &dyn ByteSource,
    file: &PartFile,
    to: &Path,
) -> Result<(), ClusterError> {
    loop {
        let place = source.place();
        copy(source, to).await?;
        match verify(to, file.checksum).await {
            Err(_) if source.distrust(place) => {}
            verified => return verified,
        }
    }
}

async fn copy(source: &dyn ByteSource, to: &Path) -> Result<(), ClusterError> {
    let mut written = tokio::fs::File::create(to)
        .await
        .map_err(StoreError::io("create", to))?;
    let mut offset = 0;
    while offset < source.num_bytes() {
        let left = usize::try_from(source.num_bytes() - offset).unwrap_or(STEP);
        let mut bytes = vec![0; left.min(STEP)];
        let read = source.read_at(offset, &mut bytes).await;
        read.map_err(StoreError::io("read", source.name()))?;
        let wrote = written.write_all(&bytes).await;
        wrote.map_err(StoreError::io("write", to))?;
        offset += bytes.len() as u64;
    }
    let synced = written.sync_all().await;
    Ok(synced.map_err(StoreError::io("write", to))?)
}
