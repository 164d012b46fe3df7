//! The files of a part that a backup has: those of which the catalog speaks, and what else is in its directory.
//!
//! A file of which the catalog speaks is here with the length that it was published with, or at workers or at home; a backup of anything
//! less is none. Whoever copies one reads it through, and compares it with the checksum that it was published with.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Chunk, LoadId, TableKind};
use store::{
    DirectorIndex, LoadDir, LocalFile, MANIFEST_FILE, OpenFile, PartChunk, PartManifest, StoreError,
};

use crate::copy::files_below;
use crate::{BackupError, Result};

/// The file on which readers of a part hold a lock, which has no content.
pub(crate) const READERS_LOCK: &str = "in_use.lock";
/// The index of a part, in its directory.
const INDEX_FILE: &str = "index/keys.mri";

/// A part whose files stay as long as this is held.
pub(crate) struct HeldPart {
    pub dir: LoadDir,
    /// Its directory from the data directory.
    pub within: PathBuf,
    pub load: LoadId,
    pub kind: TableKind,
    /// What the catalog says of its chunks.
    pub chunks: Vec<Chunk>,
}

/// A file of a part.
#[derive(Debug, Clone)]
pub(crate) struct PartFile {
    /// Where it is, or was before workers or an object store alone had it.
    pub from: PathBuf,
    /// Its path in the data directory, and in a place.
    pub within: PathBuf,
    /// Its length.
    pub bytes: u64,
    content: PartContent,
}

/// By what it is known that a file is the one that was published.
#[derive(Debug, Clone, Copy)]
enum PartContent {
    /// The checksum of a file of rows, as the catalog has it.
    Rows(u64),
    /// The checksums of its pages.
    Index,
    /// The checksum within it.
    Manifest,
    /// By nothing.
    Other,
}

impl HeldPart {
    pub fn has_manifest(&self) -> bool {
        self.dir.path().join(MANIFEST_FILE).is_file()
    }

    /// The files of the part.
    ///
    /// # Errors
    /// One is missing, or is not the one that was published, as far as that is known without reading it through.
    pub fn files(&self, needs_manifest: bool) -> Result<Vec<PartFile>> {
        let mut files = self.files_of_rows()?;
        if matches!(self.kind, TableKind::Director | TableKind::Child) {
            // Its last page says how long it is.
            DirectorIndex::open(&self.dir.index_dir())?;
            files.push(self.file_here(INDEX_FILE.into(), PartContent::Index)?);
        }
        if needs_manifest || self.has_manifest() {
            self.check_manifest()?;
            files.push(self.file_here(MANIFEST_FILE.into(), PartContent::Manifest)?);
        }
        let known: HashSet<PathBuf> = files.iter().map(|file| file.from.clone()).collect();
        for name in files_below(self.dir.path())? {
            let is_other = !known.contains(&self.dir.path().join(&name));
            if is_other && !name.ends_with(READERS_LOCK) {
                files.push(self.file_here(name, PartContent::Other)?);
            }
        }
        files.sort_by(|one, other| one.within.cmp(&other.within));
        Ok(files)
    }

    fn files_of_rows(&self) -> Result<Vec<PartFile>> {
        // By their paths: the length, which is the sum of the chunks' shares, and the checksum.
        let mut published: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
        for chunk in &self.chunks {
            let own = self.dir.chunk_path(chunk.file);
            published.entry(own).or_insert((0, chunk.checksum)).0 += chunk.bytes;
            if let Some(overlap) = &chunk.overlap {
                let path = self.dir.overlap_path(chunk.file);
                published.entry(path).or_insert((0, overlap.checksum)).0 += overlap.bytes;
            }
        }
        let files = { published.into_iter() }.map(|(from, (bytes, checksum))| {
            if let Some(found) = bytes_here(&from)?
                && found != bytes
            {
                let what = format!("it has {found} bytes, but {bytes} according to the catalog");
                return Err(damaged(&from, what));
            }
            let name = from.file_name().map(PathBuf::from).unwrap_or_default();
            Ok(PartFile {
                within: self.within.join(name),
                from,
                bytes,
                content: PartContent::Rows(checksum),
            })
        });
        files.collect()
    }

    /// A file that is neither at workers nor at home.
    fn file_here(&self, name: PathBuf, content: PartContent) -> Result<PartFile> {
        let from = self.dir.path().join(&name);
        let Some(bytes) = bytes_here(&from)? else {
            return Err(missing(&from));
        };
        Ok(PartFile {
            within: self.within.join(name),
            from,
            bytes,
            content,
        })
    }

    fn check_manifest(&self) -> Result<()> {
        let manifest = PartManifest::read(self.dir.path())?;
        let said = self.chunks.iter().map(PartChunk::from);
        if manifest.part == self.load && manifest.chunks.iter().copied().eq(said) {
            return Ok(());
        }
        let what = "it does not say what the catalog says of the chunks".to_owned();
        Err(damaged(&self.dir.path().join(MANIFEST_FILE), what))
    }
}

impl PartFile {
    /// Compares a copy of the file, or the file itself, with what was published.
    ///
    /// # Errors
    /// It is not the file that was published.
    pub async fn verify(&self, copy: &Path) -> Result<()> {
        match self.verify_content(copy).await {
            // The sentence names the file of the data directory.
            Err(StoreError::Damaged { what, .. }) => Err(damaged(&self.from, what)),
            verified => Ok(verified?),
        }
    }

    async fn verify_content(&self, copy: &Path) -> std::result::Result<(), StoreError> {
        match self.content {
            PartContent::Rows(checksum) => {
                // As it is here, and without counting as read by a query.
                let source = Arc::new(LocalFile::open(copy)?);
                let file = OpenFile::open_source(source, None).await?;
                file.verify().await?;
                match file.checksum() == checksum {
                    true => Ok(()),
                    false => Err(StoreError::Damaged {
                        path: copy.to_owned(),
                        what: "it is not the file that was published".to_owned(),
                    }),
                }
            }
            PartContent::Index => {
                let dir = self.from.parent().unwrap_or(&self.from);
                DirectorIndex::open(dir)?.verify()
            }
            PartContent::Manifest => {
                let bytes = fs::read(copy).map_err(|error| StoreError::Io {
                    action: "read",
                    path: copy.to_owned(),
                    source: error.into(),
                })?;
                PartManifest::decode(&bytes, copy).map(|_| ())
            }
            PartContent::Other => Ok(()),
        }
    }
}

/// The length of a file of a part; `None` if it is at workers or at home alone.
fn bytes_here(path: &Path) -> Result<Option<u64>> {
    let length = || match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BackupError::io("read", path)(error)),
    };
    match length()? {
        Some(bytes) => Ok(Some(bytes)),
        None if store::is_away(path) || store::is_at_home(path) => Ok(None),
        // It may have been brought back between the two looks.
        None => length()?.map(Some).ok_or_else(|| missing(path)),
    }
}

fn missing(path: &Path) -> BackupError {
    let path = path.to_owned();
    StoreError::Missing { path }.into()
}

fn damaged(path: &Path, what: String) -> BackupError {
    let path = path.to_owned();
    StoreError::Damaged { path, what }.into()
}
