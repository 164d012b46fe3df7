//! The parts of an archive as a cluster sees them: where each one's files lie at the front end, and how large they are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::{Catalog, LoadId, REPLICATED_CHUNK, fold_name};
use engine::{EngineError, StoredPart};
use sky::ChunkId;
use store::{MANIFEST_FILE, PartManifest, StoreError, files_away, table_dir};
use xxhash_rust::xxh3::xxh3_64;

use crate::file_service::chunk_file;

/// A file of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartFile {
    /// The chunk after which it is named.
    pub file: ChunkId,
    /// Its bytes.
    pub bytes: u64,
    /// The chunks whose rows it has, ascending.
    pub chunks: Vec<ChunkId>,
    /// Its checksum.
    pub checksum: u64,
}

impl PartFile {
    /// Whether it is of a table that every worker shall hold as a whole.
    pub fn is_replicated(&self) -> bool {
        self.file == REPLICATED_CHUNK
    }
}

/// A part of a table, by what it is: its number, and the digest of its manifest. In a directory that was restored from a backup a number
/// may come to stand for another part than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartKey {
    /// Its number.
    pub part: LoadId,
    /// The digest of its manifest.
    pub digest: u64,
}

impl PartKey {
    /// The part with this manifest.
    pub fn new(part: LoadId, manifest: &[u8]) -> Self {
        Self {
            part,
            digest: xxh3_64(manifest),
        }
    }
}

/// A part of a table.
#[derive(Debug)]
pub(crate) struct KnownPart {
    /// The part.
    pub key: PartKey,
    /// The folded name of the database by which its chunks are placed: that of its table's director.
    pub family: String,
    /// Its database.
    pub database: String,
    /// The name of its table.
    pub table: String,
    /// Where its files lie.
    pub dir: PathBuf,
    /// Its files, each once, ascending.
    pub files: Vec<PartFile>,
    /// Those that the directory has given up.
    pub away: Mutex<HashSet<ChunkId>>,
}

impl KnownPart {
    fn read(dir: PathBuf) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST_FILE);
        let bytes = fs::read(&path).map_err(StoreError::io("open", &path))?;
        let manifest = PartManifest::decode(&bytes, &path)?;
        let key = PartKey::new(manifest.part, &bytes);
        let away = files_away(&dir)?;
        let part = Self::of(key, dir, &manifest);
        part.away().extend(away);
        Ok(part)
    }

    fn of(key: PartKey, dir: PathBuf, manifest: &PartManifest) -> Self {
        let mut files: BTreeMap<ChunkId, PartFile> = BTreeMap::new();
        for chunk in &manifest.chunks {
            let file = files.entry(chunk.file).or_insert_with(|| PartFile {
                file: chunk.file,
                bytes: 0,
                chunks: Vec::new(),
                checksum: chunk.checksum,
            });
            // Chunks that share a file have a share of its bytes each.
            file.bytes += chunk.bytes;
            file.chunks.push(chunk.chunk);
        }
        Self {
            key,
            family: fold_name(family(&manifest.table)),
            database: manifest.table.database.clone(),
            table: manifest.table.name.clone(),
            dir,
            files: files.into_values().collect(),
            away: Mutex::default(),
        }
    }

    /// A file of it.
    pub fn file(&self, file: ChunkId) -> Option<&PartFile> {
        let at = self.files.binary_search_by_key(&file, |it| it.file);
        self.files.get(at.ok()?)
    }

    /// What messages call a file.
    pub fn name_of(&self, file: ChunkId) -> String {
        format!("chunk {file} of {}.{}", self.database, self.table)
    }

    /// Where a file lies, if it is here.
    pub fn path(&self, file: ChunkId) -> PathBuf {
        self.dir.join(chunk_file(file.0))
    }

    /// The files that the directory has given up.
    pub fn away(&self) -> MutexGuard<'_, HashSet<ChunkId>> {
        // Every change is a single one, so that a panic elsewhere leaves it whole.
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its directory is there still.
    pub fn exists(&self) -> bool {
        self.dir.join(MANIFEST_FILE).exists()
    }
}

/// The database by which the workers of a table's chunks are chosen: a child's rows are where its director's are.
fn family(table: &catalog::TableSpec) -> &str {
    let director = table.directors.first();
    director.map_or(&table.database, |it| it.database(&table.database))
}

/// The parts of an archive.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// All that were ever shown: a query may read one that no table shows any more.
    known: Mutex<HashMap<LoadId, Arc<KnownPart>>>,
}

impl Parts {
    /// The parts that tables show now. A part from before there were manifests is left out: it stays at the front end.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn list(&self, catalog: &Catalog) -> Result<Vec<Arc<KnownPart>>, EngineError> {
        let mut shown = Vec::new();
        for database in catalog.databases().await? {
            for table in catalog.tables(&database.name).await? {
                let dir = table_dir(catalog.data_dir(), &database.name, &table.spec.name);
                for part in table.part_numbers() {
                    match self.get_or_read(part, &dir) {
                        Ok(part) => shown.push(part),
                        // Replaced between the look-up and now: the next look finds what took its place.
                        Err(StoreError::Missing { .. }) => {}
                        Err(error) => {
                            tracing::warn!(%error, "a part cannot be given to workers");
                        }
                    }
                }
            }
        }
        Ok(shown)
    }

    /// The parts that no table shows any more, though somebody may still read them, and of which files are at workers alone.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn superseded(&self, catalog: &Catalog) -> Result<Vec<Arc<KnownPart>>, EngineError> {
        let mut found = Vec::new();
        for it in catalog.superseded_loads().await? {
            let dir = table_dir(catalog.data_dir(), &it.database, &it.table);
            // One without a manifest has no file at workers, and one that is gone nobody reads.
            found.extend(self.get_or_read(it.load, &dir).ok());
        }
        found.retain(|part| !part.away().is_empty());
        Ok(found)
    }

    /// A part in the directory of its table.
    ///
    /// # Errors
    /// It is not there, has no manifest, or that cannot be read.
    pub fn get_or_read(
        &self,
        part: LoadId,
        table_dir: &Path,
    ) -> Result<Arc<KnownPart>, StoreError> {
        if let Some(known) = self.get(part) {
            return Ok(known);
        }
        let known = Arc::new(KnownPart::read(table_dir.join(part.0.to_string()))?);
        self.lock().insert(part, Arc::clone(&known));
        Ok(known)
    }

    /// A part that was shown once.
    pub fn get(&self, part: LoadId) -> Option<Arc<KnownPart>> {
        self.lock().get(&part).cloned()
    }

    /// A part that a plan reads; `None` if it has no manifest.
    pub fn of(&self, part: &StoredPart) -> Option<Arc<KnownPart>> {
        let table_dir = part.dir().path().parent()?;
        self.get_or_read(part.load, table_dir).ok()
    }

    /// Forgets parts whose files are gone.
    pub fn forget_removed(&self) {
        self.lock().retain(|_, part| part.exists());
    }

    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<LoadId, Arc<KnownPart>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
