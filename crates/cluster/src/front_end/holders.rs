//! The reading of files that the front end has given up, from the workers that hold them.
//!
//! ```text
//!   range of a file ──► the workers that hold it, live ones first, in the order of placement ──► the first that gives it
//!        ▲                                                                                        │
//!        └── what is damaged is read again, from the next one on ◄── blocks verified by `store` ──┘
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use catalog::LoadId;
use engine::FileHolders;
use futures::FutureExt;
use futures::future::BoxFuture;
use sky::ChunkId;
use store::{ByteSource, HttpFile, HttpTimeouts, ReadPlace, StoreError};
use tokio::time::sleep;

use super::own_files::{DamagedFiles, with_holders};
use super::{KnownPart, Member, Members, PartKey, Parts};
use crate::connect::Peers;
use crate::credentials::Credentials;
use crate::file_service::chunk_path;
use crate::placement::{Candidate, rank};
use crate::tls::Role;

/// How long a worker may take to give a range of a file.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(3),
    read: Duration::from_secs(10),
};
/// How long somebody waits for a worker that has the file: one that was just started has not reported yet.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long to wait before all workers are asked again.
const RETRY: Duration = Duration::from_millis(300);

/// The workers of a cluster, as those that have files which are not here.
#[derive(Debug)]
pub(crate) struct Holders {
    members: Arc<Members>,
    parts: Arc<Parts>,
    peers: Peers,
}

/// A range of a file at workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwayRange {
    pub part: PartKey,
    pub file: ChunkId,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Where the range begins.
    pub offset: u64,
    /// The holder that is asked first, by its number.
    pub place: usize,
}

impl Holders {
    pub fn new(members: Arc<Members>, parts: Arc<Parts>, credentials: Credentials) -> Arc<Self> {
        Arc::new(Self {
            members,
            parts,
            peers: Peers::new(credentials, Role::Worker, TIMEOUTS),
        })
    }

    /// The workers that hold a file: those that are live first, from the one on that is asked first.
    fn of(&self, range: &AwayRange) -> Vec<(String, Member, bool)> {
        let now = Instant::now();
        let holders = self.members.holders(range.part, range.file);
        let candidates: Vec<Candidate> = holders
            .iter()
            .map(|(name, member)| Candidate::new(name, member.report.disk_bytes))
            .collect();
        let family = self.parts.get(range.part.part);
        let family = family.map_or_else(String::new, |it| it.family.clone());
        let (mut live, mut silent) = (Vec::new(), Vec::new());
        for at in rank(&family, range.file, &candidates) {
            let (name, member) = holders[at].clone();
            match member.is_live(now) {
                true => live.push((name, member, true)),
                false => silent.push((name, member, false)),
            }
        }
        if !live.is_empty() {
            let first = range.place % live.len();
            live.rotate_left(first);
        }
        live.extend(silent);
        live
    }

    /// Whether a worker that has joined holds the file of a range.
    pub fn have(&self, range: &AwayRange) -> bool {
        !self.members.holders(range.part, range.file).is_empty()
    }

    /// A part in the directory of its table, if it has a manifest.
    pub fn known_part(&self, part: LoadId, table_dir: &Path) -> Option<Arc<KnownPart>> {
        self.parts.get_or_read(part, table_dir).ok()
    }

    /// Reads a range of a file that is at workers alone from the first one that gives it, and waits for a while for one.
    ///
    /// # Errors
    /// No worker gives it.
    pub async fn read(&self, range: AwayRange, buffer: &mut [u8]) -> io::Result<()> {
        let tried = self.try_read(range, buffer).await;
        tried.map_err(|reasons| self.unreadable(&range, &reasons))
    }

    /// The same, which tells of each worker that holds the file why it does not give it.
    ///
    /// # Errors
    /// No worker gives it.
    pub async fn try_read(&self, range: AwayRange, buffer: &mut [u8]) -> Result<(), Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut reasons = Vec::new();
            for (name, member, is_live) in self.of(&range) {
                match self.read_from(&name, &member, is_live, range, buffer).await {
                    Ok(()) => return Ok(()),
                    Err(error) => reasons.push(format!("{name}: {error}")),
                }
            }
            if Instant::now() >= deadline {
                return Err(reasons);
            }
            sleep(RETRY).await;
        }
    }

    async fn read_from(
        &self,
        name: &str,
        member: &Member,
        is_live: bool,
        range: AwayRange,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let other = |error: StoreError| io::Error::other(error);
        let peer = self.peers.at(&member.report.address).map_err(other)?;
        let path = chunk_path(range.part.part.0, range.file.0);
        let file = HttpFile::new(peer, &path, range.bytes).map_err(other)?;
        let has_gone = async {
            while !is_live || self.members.is_live(name, member.report.process) {
                sleep(RETRY).await;
            }
        };
        tokio::select! {
            read = file.read_at(range.offset, buffer) => read,
            () = has_gone => Err(io::Error::new(io::ErrorKind::TimedOut, "it says nothing any more")),
        }
    }

    /// Why nobody gives a file, and what to do.
    fn unreadable(&self, range: &AwayRange, reasons: &[String]) -> io::Error {
        let what = self.parts.get(range.part.part).map_or_else(
            || format!("file {} of part {}", range.file, range.part.part),
            |part| part.name_of(range.file),
        );
        let why = match reasons {
            [] => "no worker that has joined holds it".to_owned(),
            _ => format!(
                "the workers that hold it do not give it ({})",
                reasons.join("; ")
            ),
        };
        io::Error::other(format!(
            "{what} is at workers alone, and {why}: `meridian cluster status` lists the workers; start those that are missing"
        ))
    }

    /// A file of a part as something to read.
    pub fn file(self: &Arc<Self>, part: &KnownPart, file: ChunkId) -> Option<HolderFile> {
        Some(HolderFile {
            range: AwayRange {
                part: part.key,
                file,
                bytes: part.file(file)?.bytes,
                offset: 0,
                place: 0,
            },
            name: Arc::from(part.path(file)),
            holders: Arc::clone(self),
            place: ReadPlace::default(),
        })
    }
}

/// The workers as the engine knows them.
#[derive(Debug)]
pub(super) struct EngineHolders {
    pub holders: Arc<Holders>,
    pub damaged: Arc<DamagedFiles>,
}

impl FileHolders for EngineHolders {
    fn source<'a>(
        &'a self,
        path: &'a Path,
        part: LoadId,
        file: ChunkId,
    ) -> BoxFuture<'a, Result<Arc<dyn ByteSource>, StoreError>> {
        let missing = || StoreError::Missing {
            path: path.to_owned(),
        };
        let source = || {
            let table_dir = path.ancestors().nth(2).ok_or_else(missing)?;
            let known = self.holders.parts.get_or_read(part, table_dir)?;
            let source = self.holders.file(&known, file).ok_or_else(missing)?;
            Ok(Arc::new(source) as Arc<dyn ByteSource>)
        };
        std::future::ready(source()).boxed()
    }

    fn with_others(
        &self,
        here: Arc<dyn ByteSource>,
        part: LoadId,
        file: ChunkId,
    ) -> Arc<dyn ByteSource> {
        with_holders(here, (part, file), (&self.holders, &self.damaged))
    }
}

/// A file that workers hold.
#[derive(Debug)]
pub(crate) struct HolderFile {
    holders: Arc<Holders>,
    range: AwayRange,
    name: Arc<Path>,
    place: ReadPlace,
}

#[async_trait]
impl ByteSource for HolderFile {
    fn name(&self) -> &Arc<Path> {
        &self.name
    }

    fn num_bytes(&self) -> u64 {
        self.range.bytes
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = AwayRange {
            offset,
            place: self.place.number(),
            ..self.range
        };
        self.holders.read(range, buffer).await
    }

    fn place(&self) -> usize {
        self.place.number()
    }

    fn distrust(&self, place: usize) -> bool {
        tracing::warn!(file = %self.name.display(), "a worker has given damaged bytes of a file: another one is asked");
        self.place.leave(place)
    }
}
