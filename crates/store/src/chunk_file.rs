//! The rows of one chunk, in a file of its own or among others in a packed one.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::away::open_anywhere;
use crate::packed::share_of_bytes;
use crate::{ByteSource, DecodedBlocks, Directory, OpenFile, StoreError};

/// The rows of one chunk in an open file. Everything that is read from it is verified.
///
/// Rows have numbers within the chunk: whoever reads need not know whether the file holds other chunks too. It can be used by any
/// number of scans at a time, from any Tokio runtime.
pub struct ChunkFile {
    pub(crate) file: Arc<OpenFile>,
    directory: Arc<Directory>,
    /// Its rows, as numbers within the file.
    rows: Range<u64>,
}

impl std::fmt::Debug for ChunkFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkFile")
            .field("path", &self.path())
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl ChunkFile {
    pub(crate) fn new(file: Arc<OpenFile>, directory: Arc<Directory>, rows: Range<u64>) -> Self {
        Self {
            file,
            directory,
            rows,
        }
    }

    /// Opens a file that holds one chunk, wherever it is, with one read of its end, or two if that is long.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`], [`StoreError::AtWorkers`], [`StoreError::AtHome`]; [`StoreError::Damaged`] if what was read does not bear out its
    /// checksums (the rows are not read here); [`StoreError::NewerFormat`]; [`StoreError::WrongScan`]
    /// if it holds several.
    pub async fn open(path: &Path) -> Result<Arc<Self>, StoreError> {
        Self::open_source(open_anywhere(path).await?, None).await
    }

    /// Opens a file as [`Self::open`] does; decoded blocks are kept in `decoded`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`].
    pub async fn open_keeping(
        path: &Path,
        decoded: Arc<DecodedBlocks>,
    ) -> Result<Arc<Self>, StoreError> {
        Self::open_source(open_anywhere(path).await?, Some(decoded)).await
    }

    /// Opens a file wherever it is; decoded blocks are kept in `decoded`, if anywhere.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`], and [`StoreError::Io`] with what the source says.
    pub async fn open_source(
        source: Arc<dyn ByteSource>,
        decoded: Option<Arc<DecodedBlocks>>,
    ) -> Result<Arc<Self>, StoreError> {
        let file = OpenFile::open_source(source, decoded).await?;
        file.only_chunk()
    }

    /// The file that it is in.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Which of its rows belong to which sub-chunk.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Rows of the chunk.
    pub fn num_rows(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// The columns, all of them.
    pub fn schema(&self) -> &SchemaRef {
        self.file.schema()
    }

    /// The Vortex type of the rows, against which a filter is bound.
    pub fn dtype(&self) -> &vortex::dtype::DType {
        self.file.dtype()
    }

    /// The checksum of the file, as [`crate::FileSummary`] gave it when the file was written.
    pub fn checksum(&self) -> u64 {
        self.file.checksum()
    }

    /// Bytes of the file, or the chunk's share of them, as [`crate::PackedSummary`] gave it.
    pub fn num_bytes(&self) -> u64 {
        share_of_bytes(self.file.num_bytes(), &self.rows, self.file.num_rows())
    }

    /// Whether reading from the file has ever failed; see [`OpenFile::has_failed`].
    pub fn has_failed(&self) -> bool {
        self.file.has_failed()
    }

    /// Reads the whole file and verifies every block; see [`OpenFile::verify`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] names the first block that is wrong.
    pub async fn verify(&self) -> Result<(), StoreError> {
        self.file.verify().await
    }

    /// All of its rows, as numbers within the file.
    pub(crate) fn rows_in_file(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// Rows of the chunk as numbers within the file: what [`OpenFile::scan`] takes.
    pub fn in_file(&self, rows: &Range<u64>) -> Range<u64> {
        self.rows.start + rows.start..self.rows.start + rows.end
    }

    /// Rows of the file as numbers within the chunk.
    pub(crate) fn in_chunk(&self, rows: &Range<u64>) -> Range<u64> {
        rows.start - self.rows.start..rows.end - self.rows.start
    }
}
