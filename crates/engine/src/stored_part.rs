//! A part of a table: its files, and its run of the index.

use std::collections::HashMap;
use std::sync::Arc;

use catalog::{Chunk, LoadId, TableKind};
use sky::ChunkId;
use store::{ChunkFile, DirectorIndex, LoadDir, OpenFile, StoreError};
use tokio::sync::OnceCell;

use crate::piece::ChunkSlice;
use crate::{Archive, EngineError};

/// The files of one part of a table. Keeps them in being while somebody holds it.
#[derive(Debug)]
pub struct StoredPart {
    /// The load that published it.
    pub load: LoadId,
    pub(crate) dir: LoadDir,
    pub(crate) chunks: OnceCell<HashMap<ChunkId, Chunk>>,
    /// Its run of the table's index, once a key was requested; `None` if it has none.
    pub(crate) index: OnceCell<Option<DirectorIndex>>,
}

/// Slices of chunks of a part that are in one file.
#[derive(Debug)]
pub(crate) struct FileOfSlices {
    /// The chunk that the file is named after.
    file: ChunkId,
    /// The slices by their numbers, ascending.
    pub slices: Vec<usize>,
}

impl StoredPart {
    /// The chunk after which the file is named that has the rows of a chunk; `None` if the part has none there, or that is not known yet.
    pub fn file_of(&self, chunk: ChunkId) -> Option<ChunkId> {
        Some(self.chunks.get()?.get(&chunk)?.file)
    }

    /// The directory of its files.
    pub fn dir(&self) -> &LoadDir {
        &self.dir
    }

    pub(crate) async fn chunks(
        &self,
        archive: &Archive,
    ) -> Result<&HashMap<ChunkId, Chunk>, EngineError> {
        self.chunks
            .get_or_try_init(|| async {
                let chunks = match archive.replicas() {
                    Some(replicas) => replicas.chunks(self.load).await?,
                    None => archive.catalog().chunks(self.load).await?,
                };
                Ok(chunks.into_iter().map(|c| (c.chunk, c)).collect())
            })
            .await
    }

    /// The file of a chunk, which is the one that was published; `None` if the part has no rows there.
    pub(crate) async fn open(
        &self,
        archive: &Archive,
        chunk: ChunkId,
    ) -> Result<Option<Arc<ChunkFile>>, EngineError> {
        let Some(known) = self.chunks(archive).await?.get(&chunk) else {
            return Ok(None);
        };
        let file = self.open_file(archive, known.file, known.checksum).await?;
        Ok(Some(file.chunk(chunk)?))
    }

    /// A file of chunks, which is the one that was published.
    async fn open_file(
        &self,
        archive: &Archive,
        name: ChunkId,
        checksum: u64,
    ) -> Result<Arc<OpenFile>, EngineError> {
        let path = self.dir.chunk_path(name);
        let source = archive.source(&path, self.load, name);
        let file = archive.files().file_from(&path, source).await?;
        if file.checksum() != checksum {
            return Err(StoreError::Damaged {
                path,
                what: "it is not the file that was published".to_owned(),
            }
            .into());
        }
        Ok(file)
    }

    /// Which files the slices of a piece are in, each with those that are in it; slices of chunks in which the part has no rows are
    /// in none.
    pub(crate) async fn files_of(
        &self,
        archive: &Archive,
        slices: &[ChunkSlice],
    ) -> Result<Vec<FileOfSlices>, EngineError> {
        let chunks = self.chunks(archive).await?;
        if let [only] = slices {
            let known = chunks.get(&only.chunk).into_iter();
            let file = known.map(|known| FileOfSlices {
                file: known.file,
                slices: vec![0],
            });
            return Ok(file.collect());
        }
        let mut files: Vec<FileOfSlices> = Vec::new();
        let mut by_name: HashMap<ChunkId, usize> = HashMap::new();
        for (number, slice) in slices.iter().enumerate() {
            let Some(known) = chunks.get(&slice.chunk) else {
                continue;
            };
            let at = *by_name.entry(known.file).or_insert(files.len());
            match files.get_mut(at) {
                Some(file) => file.slices.push(number),
                None => files.push(FileOfSlices {
                    file: known.file,
                    slices: vec![number],
                }),
            }
        }
        Ok(files)
    }

    /// Opens a file in which slices are.
    pub(crate) async fn open_slices(
        &self,
        archive: &Archive,
        slices: &[ChunkSlice],
        file: &FileOfSlices,
    ) -> Result<Arc<OpenFile>, EngineError> {
        let chunks = self.chunks(archive).await?;
        let first = file.slices.first().and_then(|at| slices.get(*at));
        let known = first.and_then(|slice| chunks.get(&slice.chunk));
        let checksum = known.map_or(0, |chunk| chunk.checksum);
        self.open_file(archive, file.file, checksum).await
    }

    /// Its run of a director's index, or of a child's orphans.
    pub(crate) async fn index(
        &self,
        archive: &Archive,
        kind: TableKind,
    ) -> Result<Option<&DirectorIndex>, EngineError> {
        let open = || {
            let dir = self.dir.index_dir();
            if kind == TableKind::Child && !dir.exists() {
                return Ok(None);
            }
            let opened = match archive.files().decoded() {
                Some(decoded) => DirectorIndex::open_keeping(&dir, Arc::clone(decoded)),
                None => DirectorIndex::open(&dir),
            };
            opened.map(Some)
        };
        let index = self.index.get_or_try_init(|| async { open() });
        Ok(index.await?.as_ref())
    }

    /// Whether it may have the row of a director's key.
    pub(crate) async fn may_have_key(
        &self,
        archive: &Archive,
        key: i64,
    ) -> Result<bool, EngineError> {
        let index = self.index(archive, TableKind::Director).await?;
        Ok(index.is_none_or(|index| index.may_have(key)))
    }
}
