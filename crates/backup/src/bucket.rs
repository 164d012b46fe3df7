//! Places of backups in buckets of object stores.
//!
//! ```text
//! s3://BUCKET/PREFIX/backup.lock                            held by whoever changes the place
//! s3://BUCKET/PREFIX/snapshots/20261126T100000Z/...         the snapshot's own files, and last of all snapshot.json
//! s3://BUCKET/PREFIX/tables/<db>.<table>/<load>/...         files of parts, for all snapshots
//! ```
//!
//! A snapshot is there when its `snapshot.json` is, which is written only if there is none of the name, and removed before anything else of
//! it. Each object of a part has its checksum as a note, by which one that an unfinished backup wrote is known.

use std::collections::{BTreeSet, HashMap};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remote_files::{Address, Client, Condition, Object, ObjectFile};
use tempfile::TempDir;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::Xxh3;

use crate::bucket_lock::BucketLock;
use crate::copy::{Content, content_of, copy_part, temporary};
use crate::part_files::PartFile;
use crate::place::no_bucket;
use crate::snapshot::{
    DIRECTORY, FILE, Snapshot, SnapshotFile, SnapshotList, TABLES, checksum_text, is_name,
};
use crate::take::BackupProgress;
use crate::{BackupError, Result};

const LOCK: &str = "backup.lock";
/// The header with the checksum of a file.
pub(crate) const NOTE: &str = "x-amz-meta-meridian-xxh3";
/// Files that are copied side by side.
const FILES_AHEAD: usize = 8;
/// Bytes of what a snapshot says of itself.
const LONGEST_SNAPSHOT: usize = 1 << 30;

/// A prefix of names in a bucket.
#[derive(Debug, Clone)]
pub struct Bucket {
    client: Client,
    bucket: String,
    /// Empty, or with a slash at its end.
    prefix: String,
    name: PathBuf,
}

impl Bucket {
    pub(crate) fn new(client: Client, url: &str) -> Result<Self> {
        let Address::S3 { bucket, key } = Address::parse(url)? else {
            return Err(no_bucket(url.split('?').next().unwrap_or(url)));
        };
        let key = key.trim_end_matches('/');
        let prefix = match key {
            "" => String::new(),
            key => format!("{key}/"),
        };
        let name = format!("s3://{bucket}/{key}");
        Ok(Self {
            client,
            name: name.trim_end_matches('/').into(),
            bucket,
            prefix,
        })
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    fn address(&self, within: &str) -> Address {
        Address::S3 {
            bucket: self.bucket.clone(),
            key: format!("{}{within}", self.prefix),
        }
    }

    /// The objects below a directory of the place, by their names from the place.
    async fn list(&self, within: &str) -> Result<HashMap<String, Object>> {
        let prefix = format!("{}{within}/", self.prefix);
        let objects = self.client.list(&self.bucket, &prefix).await?;
        let by_name = objects.into_iter().filter_map(|object| {
            let name = object.key.strip_prefix(&self.prefix)?.to_owned();
            Some((name, object))
        });
        Ok(by_name.collect())
    }

    /// The names of directories of snapshots, with those of their objects.
    async fn directories(&self) -> Result<HashMap<String, Vec<String>>> {
        let mut found: HashMap<String, Vec<String>> = HashMap::new();
        for name in self.list(DIRECTORY).await?.into_keys() {
            let within = name.split('/').nth(1).unwrap_or_default().to_owned();
            found.entry(within).or_default().push(name);
        }
        Ok(found)
    }

    pub(crate) async fn snapshots(&self) -> Result<SnapshotList> {
        let directories = self.directories().await?;
        let is_whole = |name: &&String| {
            let said = format!("{DIRECTORY}/{name}/{FILE}");
            is_name(name) && directories[*name].contains(&said)
        };
        let mut names: Vec<&String> = directories.keys().filter(is_whole).collect();
        names.sort();
        let mut snapshots = SnapshotList::default();
        for name in names {
            let address = self.address(&format!("{DIRECTORY}/{name}/{FILE}"));
            let text = self.client.read_small(&address, LONGEST_SNAPSHOT).await?;
            let path = PathBuf::from(address.to_string());
            snapshots.add(name, Snapshot::parse(&text.content, name, &path));
        }
        Ok(snapshots)
    }

    pub(crate) async fn begin(&self) -> Result<BucketTarget> {
        let has_any = async |within: &str| {
            let prefix = format!("{}{within}", self.prefix);
            self.client.has_any(&self.bucket, &prefix).await
        };
        let is_place = has_any(&format!("{DIRECTORY}/")).await?
            || has_any(&format!("{TABLES}/")).await?
            || has_any(LOCK).await?
            || !has_any("").await?;
        if !is_place {
            return Err(BackupError::NotAPlace {
                place: self.name.clone(),
            });
        }
        let lock = BucketLock::take(&self.client, self.address(LOCK), self.name.clone()).await?;
        let prepared = async {
            self.client
                .abort_uploads(&self.bucket, &self.prefix)
                .await?;
            self.remove_unfinished().await?;
            let dir = tempfile::Builder::new()
                .prefix("meridian-backup-")
                .tempdir();
            dir.map_err(BackupError::io(
                "make a directory in",
                &std::env::temp_dir(),
            ))
        };
        match prepared.await {
            Ok(dir) => Ok(BucketTarget {
                bucket: self.clone(),
                lock,
                dir,
            }),
            Err(error) => {
                lock.release().await;
                Err(error)
            }
        }
    }

    /// Removes the files of snapshots that were never whole, or lost their names.
    async fn remove_unfinished(&self) -> Result<()> {
        for (name, objects) in self.directories().await? {
            if !objects.contains(&format!("{DIRECTORY}/{name}/{FILE}")) {
                self.remove(objects).await?;
            }
        }
        Ok(())
    }

    /// Removes objects, side by side.
    async fn remove(&self, names: Vec<String>) -> Result<()> {
        let mut under_way = JoinSet::new();
        let mut names = names.into_iter();
        loop {
            while under_way.len() < FILES_AHEAD
                && let Some(name) = names.next()
            {
                let (client, address) = (self.client.clone(), self.address(&name));
                under_way.spawn(async move { client.delete(&address).await });
            }
            match under_way.join_next().await {
                Some(removed) => joined(removed)??,
                None => return Ok(()),
            }
        }
    }

    /// Looks for the files of snapshots.
    pub(crate) async fn source(&self, snapshots: &[Snapshot]) -> Result<BucketSource> {
        let mut objects = self.list(TABLES).await?;
        for snapshot in snapshots {
            objects.extend(self.list(&own_directory(snapshot.name())).await?);
        }
        Ok(BucketSource {
            bucket: self.clone(),
            objects: Arc::new(objects),
        })
    }
}

/// Where a snapshot's own files are.
fn own_directory(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

/// The text of a path in a place, with slashes.
fn text_of(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

fn joined<T>(outcome: std::result::Result<T, tokio::task::JoinError>) -> Result<T> {
    let failed = |error| BackupError::io("copy files to", Path::new("the bucket"))(error);
    outcome.map_err(|error| failed(std::io::Error::other(error)))
}

/// A place in a bucket that is being changed.
pub(crate) struct BucketTarget {
    bucket: Bucket,
    lock: BucketLock,
    /// Where the snapshot's own files are put together.
    dir: TempDir,
}

impl BucketTarget {
    pub fn unfinished(&self) -> PathBuf {
        self.dir.path().join("snapshot")
    }

    pub async fn copy_parts(
        &self,
        wanted: Vec<PartFile>,
        known: &HashMap<&PathBuf, &SnapshotFile>,
        files: &mut Vec<SnapshotFile>,
        tell: &mut impl FnMut(BackupProgress),
    ) -> Result<(u64, u64)> {
        let there = self.bucket.list(TABLES).await?;
        let bytes_there = |within: &Path| there.get(&text_of(within)).map(|object| object.bytes);
        let mut told = BackupProgress {
            files: 0,
            of: wanted.len() as u64,
            bytes: 0,
        };
        let mut copied = 0;
        let mut found: Vec<Option<SnapshotFile>> = vec![None; wanted.len()];
        let mut under_way = JoinSet::new();
        let mut next = wanted.into_iter().enumerate();
        loop {
            while under_way.len() < FILES_AHEAD
                && let Some((at, part_file)) = next.next()
            {
                let bytes_there = bytes_there(&part_file.within);
                let is_there = |file: &SnapshotFile| {
                    bytes_there == Some(file.bytes) && file.bytes == part_file.bytes
                };
                match known.get(&part_file.within) {
                    Some(&file) if is_there(file) => {
                        found[at] = Some(file.clone());
                        told.files += 1;
                        tell(told);
                    }
                    _ => {
                        let spare = self.dir.path().join(format!("part-{at}"));
                        let upload = upload(self.bucket.clone(), part_file, spare, bytes_there);
                        under_way.spawn(async move { (at, upload.await) });
                    }
                }
            }
            let Some(outcome) = under_way.join_next().await else {
                break;
            };
            let (at, outcome) = joined(outcome)?;
            let (file, is_copied) = outcome?;
            self.lock.check()?;
            told.files += 1;
            if is_copied {
                copied += 1;
                told.bytes += file.bytes;
            }
            found[at] = Some(file);
            tell(told);
        }
        files.extend(found.into_iter().flatten());
        Ok((copied, told.bytes))
    }

    pub async fn publish(&self, snapshot: &Snapshot) -> Result<()> {
        let dir = self.unfinished();
        let within = format!("{DIRECTORY}/{}", snapshot.name());
        for file in &snapshot.own {
            let address = self
                .bucket
                .address(&format!("{within}/{}", text_of(&file.path)));
            let note = (NOTE, file.checksum.as_str());
            let path = dir.join(&file.path);
            let client = &self.bucket.client;
            client.upload(&path, file.bytes, &address, note).await?;
        }
        self.lock.check()?;
        let address = self.bucket.address(&format!("{within}/{FILE}"));
        let text = snapshot.text(Path::new(&address.to_string()))?;
        let client = &self.bucket.client;
        client
            .put(&address, text.into(), &Condition::New, None)
            .await?;
        Ok(())
    }

    pub async fn remove_oldest(&self, keep: usize) -> Result<Vec<String>> {
        let SnapshotList {
            readable: mut all,
            damaged,
        } = self.bucket.snapshots().await?;
        let old: Vec<Snapshot> = all.drain(..all.len().saturating_sub(keep)).collect();
        for snapshot in &old {
            self.lock.check()?;
            // It has no name before it has lost a file.
            let said = format!("{DIRECTORY}/{}/{FILE}", snapshot.name());
            self.bucket
                .client
                .delete(&self.bucket.address(&said))
                .await?;
        }
        self.bucket.remove_unfinished().await?;
        let names = old.iter().map(|snapshot| snapshot.name().to_owned());
        let names = names.collect();
        if !damaged.is_empty() {
            // It may have any of the files.
            return Ok(names);
        }
        let wanted: BTreeSet<String> = { all.iter() }
            .flat_map(|snapshot| &snapshot.parts)
            .map(|file| text_of(&file.path))
            .collect();
        let there = self.bucket.list(TABLES).await?.into_keys();
        let unwanted = there.filter(|name| !wanted.contains(name)).collect();
        self.lock.check()?;
        self.bucket.remove(unwanted).await?;
        Ok(names)
    }

    pub async fn end(self) {
        let Bucket {
            client,
            bucket,
            prefix,
            ..
        } = &self.bucket;
        if self.lock.check().is_ok() {
            // One was begun twice, where the first answer was lost. If that fails now, the next backup does it.
            let _ = client.abort_uploads(bucket, prefix).await;
        }
        self.lock.release().await;
    }
}

/// Copies a file of a part into the place, if it is not there whole, and is the one that was published. `spare` is the name of a copy on this machine, for a file that is
/// elsewhere.
async fn upload(
    bucket: Bucket,
    file: PartFile,
    spare: PathBuf,
    bytes_there: Option<u64>,
) -> Result<(SnapshotFile, bool)> {
    let (path, content) = match content_of(&file.from) {
        Ok(content) => {
            file.verify(&file.from).await?;
            (file.from.clone(), content)
        }
        Err(BackupError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let content = copy_part(&file, &spare).await?;
            (spare.clone(), content)
        }
        Err(error) => return Err(error),
    };
    let address = bucket.address(&text_of(&file.within));
    let checksum = checksum_text(content);
    let is_there = bytes_there == Some(content.bytes)
        && bucket.client.note(&address, NOTE).await?.as_ref() == Some(&checksum);
    if !is_there {
        let note = (NOTE, checksum.as_str());
        bucket
            .client
            .upload(&path, content.bytes, &address, note)
            .await?;
    }
    if path == spare {
        std::fs::remove_file(&spare).map_err(BackupError::io("remove", &spare))?;
    }
    Ok((SnapshotFile::new(file.within, content), !is_there))
}

/// The files of snapshots in a bucket.
#[derive(Clone)]
pub(crate) struct BucketSource {
    bucket: Bucket,
    /// By their names from the place.
    objects: Arc<HashMap<String, Object>>,
}

impl BucketSource {
    /// Sees that all files of a snapshot are there, so that a backup that is not whole is told before anything is restored.
    pub fn check(&self, snapshot: &Snapshot) -> Result<()> {
        let parts = snapshot.parts.iter().map(|file| (file, None));
        let own = { snapshot.own.iter() }.map(|file| (file, Some(snapshot.name())));
        for (file, owner) in parts.chain(own) {
            self.object(file, owner)?;
        }
        Ok(())
    }

    fn address(&self, within: &str) -> Address {
        self.bucket.address(within)
    }

    /// Where a file is; `owner` is the snapshot that has it alone.
    pub fn name_of(&self, file: &SnapshotFile, owner: Option<&str>) -> PathBuf {
        self.address(&name_within(file, owner)).to_string().into()
    }

    fn object(&self, file: &SnapshotFile, owner: Option<&str>) -> Result<ObjectFile> {
        let within = name_within(file, owner);
        let address = self.address(&within);
        match self.objects.get(&within) {
            None => Err(BackupError::MissingObject {
                url: address.to_string(),
            }),
            Some(object) if object.bytes != file.bytes => Err(damaged(&address)),
            Some(object) => Ok(ObjectFile {
                address,
                bytes: object.bytes,
                etag: object.etag.clone(),
            }),
        }
    }

    /// Reads a file through, which is what was backed up.
    pub async fn read(
        &self,
        file: &SnapshotFile,
        owner: Option<&str>,
        take: &mut (impl FnMut(&[u8]) -> std::io::Result<()> + Send),
    ) -> Result<()> {
        let object = self.object(file, owner)?;
        let mut hash = Xxh3::new();
        let mut take = |bytes: &[u8]| {
            hash.update(bytes);
            take(bytes)
        };
        let whole = 0..object.bytes;
        let client = &self.bucket.client;
        client.read_range(&object, whole, &mut take).await?;
        let content = Content {
            bytes: object.bytes,
            checksum: hash.digest(),
        };
        match file.has(content) {
            true => Ok(()),
            false => Err(damaged(&object.address)),
        }
    }

    /// Fetches a file, which gets its name when it is whole and what was backed up.
    pub async fn fetch(&self, file: &SnapshotFile, owner: Option<&str>, to: &Path) -> Result<()> {
        let temporary = temporary(to);
        let mut target = catalog::writable_file()
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(BackupError::io("write", &temporary))?;
        let mut written = Ok(());
        let mut take = |bytes: &[u8]| {
            target.write_all(bytes).map_err(|error| {
                let sentence = error.to_string();
                written = Err(error);
                std::io::Error::other(sentence)
            })
        };
        let read = self.read(file, owner, &mut take).await;
        written.map_err(BackupError::io("write", &temporary))?;
        read?;
        std::fs::rename(&temporary, to).map_err(BackupError::io("write", to))
    }
}

/// The name of a file from the place.
fn name_within(file: &SnapshotFile, owner: Option<&str>) -> String {
    match owner {
        Some(name) => format!("{}/{}", own_directory(name), text_of(&file.path)),
        None => text_of(&file.path),
    }
}

fn damaged(address: &Address) -> BackupError {
    BackupError::Damaged {
        path: address.to_string().into(),
    }
}
