//! The front end's own chunk files that turn out to be damaged: what is read of them comes from workers that hold them, and so does a new
//! file in their place.
//!
//! ```text
//!   a block of the file is wrong ──► the same range from a worker that holds it
//!              │
//!              └► the file is read through ──► damaged ──► a worker's copy, verified, gets the file's name
//!                                                └► no worker gives one: it stays, and the status tells of it
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use catalog::LoadId;
use sky::ChunkId;
use store::{ByteSource, ReadPlace, is_away};
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::holders::{AwayRange, Holders};
use super::{FrontEnd, KnownPart, PartKey, lock};
use crate::messages::TableSelection;
use crate::scrubs::{Outcome, examine, name_of};

/// How long to wait before another look whether somebody gives what is damaged.
const RETRY: Duration = Duration::from_secs(15);
/// Damaged files that a status names.
const MOST_NAMED: usize = 5;

/// The front end's own files that are damaged, or may be.
#[derive(Debug, Default)]
pub(super) struct DamagedFiles {
    files: Mutex<BTreeMap<(PartKey, ChunkId), DamagedFile>>,
    found: Notify,
}

#[derive(Debug, Clone)]
struct DamagedFile {
    part: Arc<KnownPart>,
    file: ChunkId,
    /// What is wrong with it; none before it was read through.
    why: Option<String>,
}

impl DamagedFile {
    fn key(&self) -> (PartKey, ChunkId) {
        (self.part.key, self.file)
    }

    fn name(&self) -> String {
        name_of(&self.part.database, &self.part.table, self.file)
    }
}

impl DamagedFiles {
    /// Has a file looked at of which a block was wrong.
    fn suspect(&self, part: &Arc<KnownPart>, file: ChunkId) {
        self.add(part, file, None);
    }

    fn add(&self, part: &Arc<KnownPart>, file: ChunkId, why: Option<String>) {
        let damaged = DamagedFile {
            part: Arc::clone(part),
            file,
            why,
        };
        lock(&self.files).entry(damaged.key()).or_insert(damaged);
        self.found.notify_one();
    }

    fn all(&self) -> Vec<DamagedFile> {
        lock(&self.files).values().cloned().collect()
    }

    fn remove(&self, file: &DamagedFile) {
        lock(&self.files).remove(&file.key());
    }

    /// Those that are damaged, in words.
    fn in_words(&self) -> Vec<String> {
        let files = lock(&self.files);
        let damaged = files
            .values()
            .filter_map(|it| Some((it.name(), it.why.as_ref()?)));
        damaged
            .map(|(name, why)| format!("{name} ({why})"))
            .collect()
    }
}

/// A file of the front end's, which workers may hold, too.
#[derive(Debug)]
struct OwnFile {
    here: Arc<dyn ByteSource>,
    holders: Arc<Holders>,
    damaged: Arc<DamagedFiles>,
    part: Arc<KnownPart>,
    /// The file at workers.
    range: AwayRange,
    /// The first place is here, and the others are the holders.
    place: ReadPlace,
}

#[async_trait]
impl ByteSource for OwnFile {
    fn name(&self) -> &Arc<Path> {
        self.here.name()
    }

    fn num_bytes(&self) -> u64 {
        match self.place.number() {
            0 => self.here.num_bytes(),
            // This one may be cut short.
            _ => self.range.bytes,
        }
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(place) = self.place.number().checked_sub(1) else {
            return self.here.read_at(offset, buffer).await;
        };
        let range = AwayRange {
            offset,
            place,
            ..self.range
        };
        let read = self.holders.try_read(range, buffer).await;
        read.map_err(|reasons| {
            let reasons = reasons.join("; ");
            io::Error::other(format!(
                "it is damaged here, and the workers that hold it do not give it ({reasons})"
            ))
        })
    }

    fn is_local(&self) -> bool {
        self.here.is_local()
    }

    fn place(&self) -> usize {
        self.place.number()
    }

    fn distrust(&self, place: usize) -> bool {
        if place == 0 {
            self.damaged.suspect(&self.part, self.range.file);
        }
        self.holders.have(&self.range) && self.place.leave(place)
    }

    fn read_ahead(&self, range: &std::ops::Range<u64>) {
        if self.place.number() == 0 {
            self.here.read_ahead(range);
        }
    }
}

/// A file that is here, with those who hold it, too; as it is if it is of a part from before there were manifests.
pub(super) fn with_holders(
    here: Arc<dyn ByteSource>,
    (part, file): (LoadId, ChunkId),
    (holders, damaged): (&Arc<Holders>, &Arc<DamagedFiles>),
) -> Arc<dyn ByteSource> {
    let table_dir = here.name().ancestors().nth(2);
    let known = table_dir.and_then(|dir| holders.known_part(part, dir));
    let Some((part, bytes)) = known.and_then(|part| {
        let bytes = part.file(file)?.bytes;
        Some((part, bytes))
    }) else {
        return here;
    };
    Arc::new(OwnFile {
        here,
        holders: Arc::clone(holders),
        damaged: Arc::clone(damaged),
        range: AwayRange {
            part: part.key,
            file,
            bytes,
            offset: 0,
            place: 0,
        },
        part,
        place: ReadPlace::default(),
    })
}

/// What has become of a file that may be damaged.
enum Repair {
    /// It is right, has been replaced, or is not here any more.
    Done,
    /// It stays as it is, for now.
    Stays,
}

impl FrontEnd {
    /// Replaces own files that are damaged, until the front end ends.
    pub(super) async fn keep_repairing(&self) {
        loop {
            let _ = timeout(RETRY, self.damaged.found.notified()).await;
            for damaged in self.damaged.all() {
                if let Repair::Done = self.repair(&damaged).await {
                    self.damaged.remove(&damaged);
                }
            }
        }
    }

    async fn repair(&self, damaged: &DamagedFile) -> Repair {
        let DamagedFile { part, file, .. } = damaged;
        match self.examine_own(part, *file).await {
            Outcome::Damaged(why) => self.note_damage(damaged, why),
            Outcome::Unreadable(_) => return Repair::Stays,
            // An operator may have restored it. It is opened anew: whoever has it open reads it from workers.
            Outcome::Right | Outcome::Gone => {
                self.archive.files().forget(&part.path(*file));
                return Repair::Done;
            }
        }
        if self.members.holders(part.key, *file).is_empty() {
            return Repair::Stays;
        }
        match self.bring_back(part, *file).await {
            Ok(()) => {
                info!(file = %part.path(*file).display(), "a damaged file is replaced by the copy of a worker");
                Repair::Done
            }
            Err(error) => {
                warn!(%error, file = %part.path(*file).display(), "a damaged file stays");
                Repair::Stays
            }
        }
    }

    /// Notes what is wrong with a file.
    fn note_damage(&self, damaged: &DamagedFile, why: String) {
        let mut files = lock(&self.damaged.files);
        let Some(known) = files.get_mut(&damaged.key()) else {
            return;
        };
        if known.why.as_ref() != Some(&why) {
            error!(file = %damaged.part.path(damaged.file).display(), why, "a file of the front end is damaged");
            known.why = Some(why);
        }
    }

    /// Reads a file of its own through.
    async fn examine_own(&self, part: &KnownPart, file: ChunkId) -> Outcome {
        let path = part.path(file);
        let Some(published) = part.file(file).filter(|_| !is_away(&path)) else {
            return Outcome::Gone;
        };
        match examine(&path, published.checksum).await {
            // It may have been given up or dropped meanwhile.
            Outcome::Damaged(_) if is_away(&path) || !part.exists() => Outcome::Gone,
            outcome => outcome,
        }
    }

    /// Reads the own files through that operators ask for, until the front end ends.
    pub(super) async fn keep_scrubbing(&self) {
        loop {
            self.scrubs.wait().await;
            let Some(tables) = self.scrubs.begun() else {
                continue;
            };
            // It may have started a moment ago, and does not know its parts yet.
            if let Err(error) = self.list_parts().await {
                warn!(%error, "the parts of the archive cannot be listed");
            }
            let files = self.own_files(&tables);
            self.scrubs.change(|scrub| {
                scrub.files = files.len() as u64;
                scrub.bytes = files.iter().map(|(_, _, bytes)| bytes).sum();
            });
            for (part, file, bytes) in files {
                let outcome = self.examine_own(&part, file).await;
                if let Outcome::Damaged(why) = &outcome {
                    self.damaged.add(&part, file, Some(why.clone()));
                }
                let name = name_of(&part.database, &part.table, file);
                self.scrubs.change(|scrub| scrub.note(name, bytes, outcome));
            }
            self.scrubs.change(|scrub| scrub.is_done = true);
        }
    }

    /// The files of some tables that are here, each with its bytes.
    fn own_files(&self, tables: &TableSelection) -> Vec<(Arc<KnownPart>, ChunkId, u64)> {
        let parts = Arc::clone(&lock(&self.assigned).parts);
        let selected = parts
            .iter()
            .filter(|part| tables.has(&part.database, &part.table));
        let mut files = Vec::new();
        for part in selected {
            let away = part.away();
            let here = part.files.iter().filter(|it| !away.contains(&it.file));
            files.extend(here.map(|it| (Arc::clone(part), it.file, it.bytes)));
        }
        files
    }

    /// How many own files are damaged and were not replaced yet, and what is said of them.
    pub(super) fn damage(&self) -> (u64, Option<String>) {
        let damaged = self.damaged.in_words();
        let count = damaged.len();
        let named = damaged.iter().take(MOST_NAMED).cloned();
        let named = named.collect::<Vec<String>>().join(", ");
        let more = match count.saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let told = (count > 0).then(|| {
            format!(
                "{count} of the front end's own files are damaged, and no worker has given another copy yet: {named}{more}; where no worker \
                 holds one, statements that read what is damaged fail: load the table again, or restore the file from a backup"
            )
        });
        (count as u64, told)
    }
}
