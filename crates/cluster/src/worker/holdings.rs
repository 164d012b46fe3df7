//! The files that a worker holds, in directories that are laid out as a data directory is ([`super::disks`]).
//!
//! They are in directories of their own below those that were given, so that a worker that is given the data directory of an archive by
//! mistake, or one into which somebody loads, removes nothing of it.
//! A file has its final name once it is whole, verified and on the disk. What a killed worker leaves of others is removed at its start.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use catalog::{Chunk, LoadId};
use engine::{Archive, EngineError, Replicas};
use futures::future::{BoxFuture, FutureExt};
use sky::ChunkId;
use store::{
    ByteSource, HttpFile, HttpTimeouts, LoadDir, LocalFile, MANIFEST_FILE, PartManifest, Removal,
    StoreError,
};

use super::bandwidth::Bandwidth;
use super::disks::Disks;
use super::front_ends::FrontEnds;
use super::plans::Plans;
use crate::ClusterError;
use crate::client::MemberClient;
use crate::connect::Peers;
use crate::file_service::{chunk_path, manifest_path};
use crate::front_end::{Holdings, PartKey, part_files};
use crate::messages::{PartFiles, PartName};
use crate::tls::Role;

/// The file that says which archive the files are of.
const ARCHIVE_FILE: &str = "cluster.json";
/// How long a front end may take to give bytes of a file, which it may have to get from another worker.
const FRONT_END_TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(5),
    read: Duration::from_secs(30),
};
/// What a file is called while it comes.
pub(super) const UNFINISHED: &str = "unfinished";
/// What a file is called that was found damaged, until it has come anew.
pub(super) const DAMAGED: &str = "damaged";

/// A part of which a worker may hold files.
#[derive(Debug)]
pub(super) struct HeldPart {
    /// The digest of the manifest as it was published.
    pub(super) digest: u64,
    pub(super) manifest: PartManifest,
    /// Keeps the directory.
    pub(super) dir: LoadDir,
    /// Its files, each with the disk that it is on.
    pub(super) files: HashMap<ChunkId, usize>,
}

/// The files that a worker holds.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    pub(super) disks: Disks,
    /// The home of the disks.
    pub(super) data_dir: PathBuf,
    /// The name of the worker.
    pub(super) name: String,
    pub(super) front_ends: FrontEnds,
    pub(super) client: Arc<MemberClient>,
    pub(super) bandwidth: Bandwidth,
    /// The plans of shares, which keep the directories of their parts.
    pub(super) plans: Plans,
    archive: OnceLock<String>,
    parts: Mutex<HashMap<LoadId, HeldPart>>,
    /// Counts the changes of what is held.
    pub(super) version: AtomicU64,
    pub(super) damaged: AtomicU64,
    peers: Peers,
    /// Whose open files are closed when files change.
    opened: OnceLock<Weak<Archive>>,
}

impl HeldFiles {
    /// Opens the directories, or makes them.
    ///
    /// # Errors
    /// None can be used, another worker uses one, or they are of different archives.
    pub fn open(
        disks: Disks,
        name: String,
        front_ends: FrontEnds,
        client: Arc<MemberClient>,
        repair_bandwidth: Option<u64>,
    ) -> Result<Arc<Self>, ClusterError> {
        let credentials = client.credentials().clone();
        let peers = Peers::new(credentials, Role::FrontEnd, FRONT_END_TIMEOUTS);
        let archive = OnceLock::new();
        if let Some(named) = archive_of(&disks)? {
            let _ = archive.set(named);
        }
        let mut parts = HashMap::new();
        if archive.get().is_some() {
            for (disk, dir) in disks.usable() {
                find_parts(&disks, disk, dir, &mut parts)?;
            }
        }
        Ok(Arc::new(Self {
            data_dir: disks.home().to_owned(),
            disks,
            name,
            front_ends,
            client,
            bandwidth: Bandwidth::new(repair_bandwidth),
            plans: Plans::default(),
            archive,
            parts: Mutex::new(parts),
            version: AtomicU64::new(1),
            damaged: AtomicU64::new(0),
            peers,
            opened: OnceLock::new(),
        }))
    }

    /// Closes open files of this archive when they change.
    pub fn close_files_of(&self, archive: &Arc<Archive>) {
        // It is set once, when the worker starts.
        let _ = self.opened.set(Arc::downgrade(archive));
    }

    pub fn client(&self) -> &Arc<MemberClient> {
        &self.client
    }

    /// The archive that the files are of; none before the worker has joined one.
    pub fn archive(&self) -> Option<&str> {
        self.archive.get().map(String::as_str)
    }

    /// Notes which archive the files are of, if that is not known yet.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn join_archive(&self, archive: &str) -> Result<(), ClusterError> {
        if self.archive.get().is_some() {
            return Ok(());
        }
        let named = ArchiveName {
            archive: archive.to_owned(),
        };
        for (_, dir) in self.disks.usable() {
            let path = dir.join(ARCHIVE_FILE);
            let json = serde_json::to_vec(&named);
            let json = json.map_err(|error| failed(&path, error.to_string()))?;
            write_whole(&path, &json)?;
        }
        let _ = self.archive.set(archive.to_owned());
        Ok(())
    }

    /// Counts the changes of what is held.
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Files that were found damaged since the start.
    pub fn num_damaged(&self) -> u64 {
        self.damaged.load(Relaxed)
    }

    /// What is held.
    pub fn list(&self) -> Vec<PartFiles> {
        let parts = self.lock();
        let held: Holdings = parts
            .iter()
            .filter(|(_, part)| !part.files.is_empty())
            .map(|(number, part)| (part.key(*number), part.files.keys().copied().collect()))
            .collect();
        part_files(&held)
    }

    /// Where a file is that is held.
    pub fn path(&self, part: LoadId, file: ChunkId) -> Option<PathBuf> {
        self.lock().get(&part)?.path(&self.disks, file)
    }

    /// Gives up what is on disks that are set aside.
    pub fn forget_failed_disks(&self) {
        let usable: HashSet<usize> = self.disks.usable().into_iter().map(|(at, _)| at).collect();
        let mut parts = self.lock();
        for part in parts.values_mut() {
            let dir = part.dir.path().to_owned();
            let before = part.files.len();
            part.files.retain(|_, disk| usable.contains(disk));
            if part.files.len() < before {
                self.close(&dir);
            }
        }
        drop(parts);
        self.version.fetch_add(1, Relaxed);
    }

    /// Bytes of the files among these that are not held where they shall be. Those of unknown parts count as nothing.
    pub fn missing_bytes(&self, wanted: &[PartFiles], user_parts: &HashSet<LoadId>) -> u64 {
        let parts = self.lock();
        let of_part = |wanted: &PartFiles| -> u64 {
            let number = LoadId(wanted.part);
            let part = parts.get(&number);
            let Some(part) = part.filter(|part| part.digest == wanted.digest) else {
                return 0;
            };
            let of_user = user_parts.contains(&number);
            let missing = |chunk: &&store::PartChunk| {
                let is_wanted = wanted.files.contains(&chunk.file.0);
                is_wanted && !part.has(&self.disks, chunk.file, of_user)
            };
            part.manifest
                .chunks
                .iter()
                .filter(missing)
                .map(|it| it.bytes)
                .sum()
        };
        wanted.iter().map(of_part).sum()
    }

    /// The files among these that are not held, or are on a disk for others.
    pub fn missing(
        &self,
        wanted: &[PartFiles],
        user_parts: &HashSet<LoadId>,
    ) -> Vec<(PartKey, ChunkId)> {
        let parts = self.lock();
        let mut missing = Vec::new();
        for wanted in wanted {
            let number = LoadId(wanted.part);
            let held = parts.get(&number);
            let held = held.filter(|part| part.digest == wanted.digest);
            let of_user = user_parts.contains(&number);
            let has = |held: &HeldPart, file| held.has(&self.disks, ChunkId(file), of_user);
            let lacks = |file: &i32| held.is_none_or(|held| !has(held, *file));
            let files = wanted.files.iter().copied().filter(lacks);
            missing.extend(files.map(|file| (wanted.key(), ChunkId(file))));
        }
        missing
    }

    /// Makes a part known, so that plans which read it can be decoded. Another one of that number is given up.
    ///
    /// # Errors
    /// No front end gives its manifest, its directory cannot be made, or the other one is being read.
    pub async fn ensure_part(&self, key: PartKey) -> Result<(), ClusterError> {
        let PartKey { part, digest } = key;
        {
            let mut parts = self.lock();
            match parts.get(&part) {
                Some(held) if held.digest == digest => return Ok(()),
                Some(_) => self.remove_part(&mut parts, part)?,
                None => {}
            }
        }
        let bytes = self.request_from_front_end(&manifest_path(part.0)).await?;
        let manifest = PartManifest::decode(&bytes, Path::new(MANIFEST_FILE))?;
        if PartKey::new(manifest.part, &bytes) != key {
            let why = format!("part {part} is another one there than was asked for");
            return Err(failed(Path::new(MANIFEST_FILE), why));
        }
        let (database, table) = (&manifest.table.database, &manifest.table.name);
        let dir = LoadDir::create(&self.data_dir, database, table, part)?;
        // As it was published, so that it keeps its digest.
        write_whole(&dir.path().join(MANIFEST_FILE), &bytes)?;
        let held = HeldPart {
            digest,
            manifest,
            dir,
            files: HashMap::new(),
        };
        self.lock().entry(part).or_insert(held);
        Ok(())
    }

    /// The same for the parts of a share, whose names have to be right.
    ///
    /// # Errors
    /// Those of [`Self::ensure_part`]; a part is of another table.
    pub async fn ensure_parts(&self, names: &[PartName]) -> Result<(), ClusterError> {
        for name in names {
            let part = LoadId(name.part);
            self.ensure_part(PartKey {
                part,
                digest: name.digest,
            })
            .await?;
            let parts = self.lock();
            let spec = parts.get(&part).map(|held| &held.manifest.table);
            let is_named = spec.is_some_and(|spec| {
                catalog::fold_name(&spec.database) == catalog::fold_name(&name.database)
                    && catalog::fold_name(&spec.name) == catalog::fold_name(&name.table)
            });
            if !is_named {
                let why = format!("part {part} is not of {}.{}", name.database, name.table);
                return Err(failed(&self.data_dir, why));
            }
        }
        Ok(())
    }

    async fn request_from_front_end(&self, path: &str) -> Result<Bytes, ClusterError> {
        let mut outcome = Err(failed(&self.data_dir, "there is no front end".to_owned()));
        for front_end in self.front_ends.in_order() {
            let got =
                self.client
                    .bytes(Method::GET, Role::FrontEnd, &front_end, path, Bytes::new());
            outcome = got.await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Gives up what is not among these files. Parts that a piece reads now stay until the next time; whether there are none of these.
    pub fn keep_only(&self, wanted: &[PartFiles]) -> bool {
        let wanted: HashMap<PartKey, HashSet<ChunkId>> = wanted
            .iter()
            .map(|it| (it.key(), it.files.iter().copied().map(ChunkId).collect()))
            .collect();
        let mut parts = self.lock();
        let (mut has_changed, mut are_gone) = (false, true);
        let mut unwanted = Vec::new();
        for (number, part) in parts.iter_mut() {
            let Some(wanted) = wanted.get(&part.key(*number)) else {
                unwanted.push(*number);
                continue;
            };
            let held: Vec<ChunkId> = part.files.keys().copied().collect();
            for file in held.into_iter().filter(|file| !wanted.contains(file)) {
                let Some(path) = part.path(&self.disks, file) else {
                    continue;
                };
                part.files.remove(&file);
                has_changed = true;
                self.close(&part.dir.chunk_path(file));
                if let Err(error) = fs::remove_file(&path) {
                    tracing::warn!(path = %path.display(), %error, "a file that was given up stays");
                }
            }
        }
        for number in unwanted {
            let has_files = parts.get(&number).is_some_and(|it| !it.files.is_empty());
            let removed = self.remove_part(&mut parts, number);
            has_changed |= has_files && removed.is_ok();
            are_gone &= !has_files || removed.is_ok();
            if let Err(error) = removed {
                tracing::debug!(%error, "a part that was given up stays until it is not read");
            }
        }
        if has_changed {
            self.version.fetch_add(1, Relaxed);
        }
        are_gone
    }

    /// Gives a part up with all its files.
    fn remove_part(
        &self,
        parts: &mut HashMap<LoadId, HeldPart>,
        number: LoadId,
    ) -> Result<(), ClusterError> {
        let Some(mut part) = parts.remove(&number) else {
            return Ok(());
        };
        self.close(part.dir.path());
        self.plans.forget_part(number.0);
        let (data_dir, spec) = (&self.data_dir, part.manifest.table.clone());
        let home = part.dir.path().to_owned();
        drop(part.dir);
        match LoadDir::remove(data_dir, &spec.database, &spec.name, number)? {
            Removal::Removed => {
                for (disk, _) in self.disks.usable() {
                    // Most disks have nothing of it.
                    let _ = fs::remove_dir_all(self.disks.path(&home, disk));
                }
                Ok(())
            }
            Removal::InUse => {
                part.dir = LoadDir::open(data_dir, &spec.database, &spec.name, number)?;
                let why = format!("part {number} is read now, and cannot be given up");
                parts.insert(number, part);
                Err(failed(data_dir, why))
            }
        }
    }

    pub(super) fn close(&self, path: &Path) {
        if let Some(archive) = self.opened.get().and_then(Weak::upgrade) {
            archive.files().forget(path);
        }
    }

    /// Every change leaves it whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<LoadId, HeldPart>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replicas for HeldFiles {
    fn chunks(&self, part: LoadId) -> BoxFuture<'_, Result<Vec<Chunk>, EngineError>> {
        async move {
            // A share is run only once its parts are known.
            let parts = self.lock();
            match parts.get(&part) {
                Some(held) => Ok(held.manifest.chunks.iter().map(Chunk::from).collect()),
                None => Err(EngineError::Store(StoreError::Missing {
                    path: self.data_dir.join(part.to_string()),
                })),
            }
        }
        .boxed()
    }

    fn source(
        &self,
        part: LoadId,
        file: ChunkId,
    ) -> BoxFuture<'_, Result<Arc<dyn ByteSource>, StoreError>> {
        async move {
            if let Some(held) = self.path(part, file) {
                return Ok(Arc::new(LocalFile::open(&held)?) as Arc<dyn ByteSource>);
            }
            let path = chunk_path(part.0, file.0);
            let mut outcome = Err(StoreError::Missing {
                path: PathBuf::from(&path),
            });
            for front_end in self.front_ends.in_order() {
                outcome = HttpFile::open(self.peers.at(&front_end)?, &path).await;
                if outcome.is_ok() {
                    break;
                }
            }
            Ok(Arc::new(outcome?) as Arc<dyn ByteSource>)
        }
        .boxed()
    }
}

impl HeldPart {
    /// What it is, by its number.
    pub(super) fn key(&self, part: LoadId) -> PartKey {
        PartKey {
            part,
            digest: self.digest,
        }
    }

    /// Whether a file is held, on a disk that takes it.
    fn has(&self, disks: &Disks, file: ChunkId, of_user: bool) -> bool {
        let disk = self.files.get(&file);
        disk.is_some_and(|disk| disks.takes(*disk, of_user))
    }

    /// Where a file is that is held.
    pub(super) fn path(&self, disks: &Disks, file: ChunkId) -> Option<PathBuf> {
        let disk = self.files.get(&file)?;
        Some(disks.path(&self.dir.chunk_path(file), *disk))
    }

    /// The part in a directory of a disk. One that is not known yet gets a directory at the home.
    fn found(disks: &Disks, path: &Path) -> Result<Self, StoreError> {
        let name = path.join(MANIFEST_FILE);
        let bytes = fs::read(&name).map_err(StoreError::io("open", &name))?;
        let manifest = PartManifest::decode(&bytes, &name)?;
        let spec = &manifest.table;
        let dir = LoadDir::create(disks.home(), &spec.database, &spec.name, manifest.part)?;
        let at_home = dir.path().join(MANIFEST_FILE);
        if !at_home.exists() {
            write_whole(&at_home, &bytes)?;
        }
        Ok(Self {
            digest: PartKey::new(manifest.part, &bytes).digest,
            manifest,
            dir,
            files: HashMap::new(),
        })
    }

    /// Adds the files that a disk has of it, which are whole. What is left of files that were coming is removed.
    fn find_files(&mut self, disks: &Disks, disk: usize) {
        for chunk in &self.manifest.chunks {
            let path = disks.path(&self.dir.chunk_path(chunk.file), disk);
            let _ = fs::remove_file(path.with_extension(UNFINISHED));
            if path.exists() {
                self.files.entry(chunk.file).or_insert(disk);
            }
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct ArchiveName {
    archive: String,
}

pub(super) fn failed(path: &Path, why: String) -> ClusterError {
    ClusterError::Directory {
        path: path.to_owned(),
        why,
    }
}

/// The archive whose files the disks have; none if they are new.
fn archive_of(disks: &Disks) -> Result<Option<String>, ClusterError> {
    let mut found: Option<String> = None;
    for (_, dir) in disks.usable() {
        let path = dir.join(ARCHIVE_FILE);
        let Ok(bytes) = fs::read(&path) else {
            continue;
        };
        let named: ArchiveName =
            serde_json::from_slice(&bytes).map_err(|error| failed(&path, error.to_string()))?;
        if found.as_ref().is_some_and(|found| *found != named.archive) {
            let why = "its files are of another archive than those of the other disks: give it another directory";
            return Err(failed(&path, why.to_owned()));
        }
        found = Some(named.archive);
    }
    Ok(found)
}

/// Writes a file that is there as a whole or not at all, also after a power cut.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let unfinished = path.with_extension(UNFINISHED);
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(StoreError::io("write", &unfinished))?;
    name_durably(&unfinished, path).map_err(StoreError::io("rename", path))
}

/// Gives a file that is on the disk its name, which the disk has, too, afterwards.
pub(super) fn name_durably(unfinished: &Path, path: &Path) -> std::io::Result<()> {
    fs::rename(unfinished, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Adds the parts that a disk has files of. One of which another disk has another manifest is left out.
fn find_parts(
    disks: &Disks,
    disk: usize,
    dir: &Path,
    parts: &mut HashMap<LoadId, HeldPart>,
) -> Result<(), ClusterError> {
    for table in directories(&dir.join("tables"))? {
        for path in directories(&table)? {
            let mut part = match HeldPart::found(disks, &path) {
                Ok(part) => part,
                Err(error) => {
                    tracing::warn!(%error, "a part is left out: it comes anew");
                    continue;
                }
            };
            let number = part.manifest.part;
            if let Some(known) = parts.remove(&number) {
                if known.digest != part.digest {
                    tracing::warn!(path = %path.display(), "it is another part than that of its number on another disk, and left out");
                    parts.insert(number, known);
                    continue;
                }
                part = known;
            }
            part.find_files(disks, disk);
            parts.insert(number, part);
        }
    }
    Ok(())
}

fn directories(dir: &Path) -> Result<Vec<PathBuf>, ClusterError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(dir, error.to_string())),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.is_dir()).collect())
}
