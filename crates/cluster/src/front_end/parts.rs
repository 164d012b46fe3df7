//! The parts of an archive as a cluster sees them: where each one's files lie at the front end, and how large they are.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::{Catalog, LoadId, REPLICATED_CHUNK, fold_name};
use engine::EngineError;
use sky::ChunkId;
use store::{MANIFEST_FILE, PartManifest, StoreError, table_dir};

/// A file of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartFile {
    /// The chunk after which it is named.
    pub file: ChunkId,
    /// Its bytes.
    pub bytes: u64,
    /// The chunks whose rows it has, ascending.
    pub chunks: Vec<ChunkId>,
}

impl PartFile {
    /// Whether it is of a table that every worker shall hold as a whole.
    pub fn is_replicated(&self) -> bool {
        self.file == REPLICATED_CHUNK
    }
}

/// A part of a table.
#[derive(Debug)]
pub(crate) struct KnownPart {
    /// The part.
    pub part: LoadId,
    /// The folded name of its database, by which its chunks are placed.
    pub database: String,
    /// Where its files lie.
    pub dir: PathBuf,
    /// Its files, each once.
    pub files: Vec<PartFile>,
}

impl KnownPart {
    fn of(dir: PathBuf, manifest: &PartManifest) -> Self {
        let mut files: BTreeMap<ChunkId, PartFile> = BTreeMap::new();
        for chunk in &manifest.chunks {
            let file = files.entry(chunk.file).or_insert_with(|| PartFile {
                file: chunk.file,
                bytes: 0,
                chunks: Vec::new(),
            });
            // Chunks that share a file have a share of its bytes each.
            file.bytes += chunk.bytes;
            file.chunks.push(chunk.chunk);
        }
        Self {
            part: manifest.part,
            database: fold_name(&manifest.table.database),
            dir,
            files: files.into_values().collect(),
        }
    }
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

    fn get_or_read(&self, part: LoadId, table_dir: &Path) -> Result<Arc<KnownPart>, StoreError> {
        if let Some(known) = self.get(part) {
            return Ok(known);
        }
        let dir = table_dir.join(part.0.to_string());
        let manifest = PartManifest::read(&dir)?;
        let known = Arc::new(KnownPart::of(dir, &manifest));
        self.lock().insert(part, Arc::clone(&known));
        Ok(known)
    }

    /// A part that was shown once.
    pub fn get(&self, part: LoadId) -> Option<Arc<KnownPart>> {
        self.lock().get(&part).cloned()
    }

    /// Forgets parts whose files are gone.
    pub fn forget_removed(&self) {
        self.lock()
            .retain(|_, part| part.dir.join(MANIFEST_FILE).exists());
    }

    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<LoadId, Arc<KnownPart>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
