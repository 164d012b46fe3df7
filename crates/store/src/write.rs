//! Writing a chunk file: once, in one pass, with bounded memory.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt, stream};
use sky::ChunkId;
use vortex::array::ArrayRef;
use vortex::array::expr::stats::Stat;
use vortex::array::stream::ArrayStreamAdapter;
use vortex::arrow::ArrowSessionExt;
use vortex::error::{VortexError, VortexResult};
use vortex::file::{WriteOptionsSessionExt, WriteSummary};
use xxhash_rust::xxh3::xxh3_64;

use crate::block_file::{BLOCK_SIZE, BlockWriter};
use crate::block_statistics;
use crate::blocks::Blocks;
use crate::durable::{Durability, TemporaryFile};
use crate::layout::chunk_layout;
use crate::packed::{PackedChunk, PackedDirectory, share_of_bytes};
use crate::session::session;
use crate::trailer::{OF_CHUNKS, OF_ONE_CHUNK, TRAILER_LEN, Trailer};
use crate::{ChunkSection, Directory, StoreError};

/// Rows of one Vortex block: the grain of reading, of the zone maps and of the batches of a scan.
///
/// All columns share it, so a scan reads no block twice. A sub-chunk of a few thousand rows lies in
/// one or two blocks, of which only its rows are decoded. Measured on half a million rows of 20
/// columns: with 8,192, reading 3,000 rows of all columns takes a tenth less time, but a full scan a
/// fifth more (there is a fixed cost for each block of each column), and so does opening a file,
/// whose metadata list the blocks; with 32,768 it is the other way round.
pub const ROWS_PER_BLOCK: usize = 16_384;

/// What the file's metadata say of each column as a whole. A sum would be of no use to a filter.
const FILE_STATISTICS: [Stat; 4] = [Stat::Min, Stat::Max, Stat::NullCount, Stat::NaNCount];

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSummary {
    /// Rows in the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// The file's checksum, which [`crate::ChunkFile::checksum`] gives back.
    pub checksum: u64,
}

/// Writes a chunk file whose directory is known beforehand; see [`write_chunk_file_with`].
pub async fn write_chunk_file<S, E>(
    path: &Path,
    schema: SchemaRef,
    batches: S,
    directory: Directory,
) -> Result<FileSummary, StoreError>
where
    S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    E: Error + Send + Sync + 'static,
{
    let durability = Durability::WithName;
    write_chunk_file_with(path, schema, batches, durability, move || Ok(directory)).await
}

/// What was written of several chunks into one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSummary {
    /// The file.
    pub file: FileSummary,
    /// Each chunk, in their order: its rows, its share of the file's bytes, the file's checksum.
    pub chunks: Vec<(ChunkId, FileSummary)>,
}

/// Writes a file of several chunks from batches in the order of chunks and within each in the order of its rows; `sections` is
/// requested once they have all gone by. Otherwise it is as [`write_chunk_file_with`].
///
/// # Errors
///
/// Those of [`write_chunk_file_with`]; [`StoreError::WrongDirectory`] too if the chunks are not in order or one has no rows.
pub async fn write_packed_file_with<S, E, D>(
    path: &Path,
    schema: SchemaRef,
    batches: S,
    durability: Durability,
    sections: D,
) -> Result<PackedSummary, StoreError>
where
    S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    E: Error + Send + Sync + 'static,
    D: FnOnce() -> Result<Vec<ChunkSection>, StoreError>,
{
    let mut chunks = Vec::new();
    let directory = || {
        let packed = PackedDirectory::new(&sections()?)?;
        chunks.extend_from_slice(packed.chunks());
        Ok(FileDirectory::Packed(packed))
    };
    let file = write_file(path, schema, batches, durability, directory).await?;
    let of_chunk = |chunk: PackedChunk| {
        let summary = FileSummary {
            rows: chunk.rows.end - chunk.rows.start,
            bytes: share_of_bytes(file.bytes, &chunk.rows, file.rows),
            checksum: file.checksum,
        };
        (chunk.chunk, summary)
    };
    Ok(PackedSummary {
        file,
        chunks: chunks.into_iter().map(of_chunk).collect(),
    })
}

/// Writes a chunk file from batches that have the columns of `schema`, in the order of the rows;
/// `directory` is requested once they have all gone by.
///
/// The file appears under its name complete or not at all: it is written as `NAME.tmp`, synced (unless that is done
/// for the whole directory) and renamed. An error, a full disk or dropping the future removes what was written. A few megabytes
/// for each column are held in memory. Compression runs on the Tokio runtime of the caller, on as
/// many threads as it has.
///
/// # Errors
///
/// [`StoreError::Input`] is the stream's own error. [`StoreError::WrongBatch`] if a batch does not
/// fit the schema or has a NULL where the schema allows none, [`StoreError::WrongDirectory`] if the
/// directory is not empty and does not cover the rows, [`StoreError::DiskFull`], [`StoreError::Io`].
pub async fn write_chunk_file_with<S, E, D>(
    path: &Path,
    schema: SchemaRef,
    batches: S,
    durability: Durability,
    directory: D,
) -> Result<FileSummary, StoreError>
where
    S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    E: Error + Send + Sync + 'static,
    D: FnOnce() -> Result<Directory, StoreError>,
{
    write_file(path, schema, batches, durability, || {
        directory().map(FileDirectory::OfOneChunk)
    })
    .await
}

/// What a file says of its rows.
enum FileDirectory {
    OfOneChunk(Directory),
    Packed(PackedDirectory),
}

impl FileDirectory {
    /// Rows that it covers; `None` if it covers none by name.
    fn rows(&self) -> Option<u64> {
        match self {
            Self::OfOneChunk(directory) if directory.entries().is_empty() => None,
            Self::OfOneChunk(directory) => Some(directory.rows()),
            Self::Packed(packed) => Some(packed.rows()),
        }
    }

    fn version(&self) -> u32 {
        match self {
            Self::OfOneChunk(_) => OF_ONE_CHUNK,
            Self::Packed(_) => OF_CHUNKS,
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::OfOneChunk(directory) => directory.encode(),
            Self::Packed(packed) => packed.encode(),
        }
    }
}

async fn write_file<S, E, D>(
    path: &Path,
    schema: SchemaRef,
    batches: S,
    durability: Durability,
    directory: D,
) -> Result<FileSummary, StoreError>
where
    S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    E: Error + Send + Sync + 'static,
    D: FnOnce() -> Result<FileDirectory, StoreError>,
{
    let (temporary, file) = TemporaryFile::create(path)?;
    let mut body = BlockWriter::new(file);
    let vortex = write_vortex(&mut body, path, schema, batches).await?;
    let directory = directory()?;
    if let Some(covered) = directory.rows()
        && covered != vortex.row_count()
    {
        return Err(StoreError::WrongDirectory(format!(
            "it covers {covered} rows of {}, which has {}",
            path.display(),
            vortex.row_count()
        )));
    }
    let (file, trailer) =
        finish(body, &vortex, &directory).map_err(StoreError::io("write", path))?;
    let written = FileSummary {
        rows: trailer.rows,
        bytes: trailer.file_len(),
        checksum: trailer.checksum(),
    };
    tokio::task::spawn_blocking(move || temporary.publish_with(&file, durability))
        .await
        .map_err(|error| StoreError::Input(Arc::new(error)))??;
    Ok(written)
}

/// Writes the Vortex file that the container begins with.
async fn write_vortex<S, E>(
    body: &mut BlockWriter,
    path: &Path,
    schema: SchemaRef,
    batches: S,
) -> Result<WriteSummary, StoreError>
where
    S: Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    E: Error + Send + Sync + 'static,
{
    let failed = |error: VortexError| StoreError::vortex("write", path, &error);
    let dtype = session()
        .arrow()
        .from_arrow_schema(&schema)
        .map_err(failed)?;
    // The reason why the rows ended, kept whole: Vortex would wrap it in its own words.
    let rejection = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&rejection);
    let mut blocks = ToVortex::new(schema, path);
    let arrays = batches
        .map(|batch| Some(batch.map_err(|error| StoreError::Input(Arc::new(error)))))
        .chain(stream::iter([None]))
        .flat_map(move |batch| stream::iter(blocks.next(batch)))
        .map(move |array| {
            array.map_err(|error| {
                let stand_in = VortexError::from(std::io::Error::other("the rows ended"));
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                stand_in
            })
        });
    let written: VortexResult<WriteSummary> = session()
        .write_options()
        .with_strategy(chunk_layout())
        .with_file_statistics(FILE_STATISTICS.to_vec())
        .write(&mut *body, ArrayStreamAdapter::new(dtype, arrays))
        .await;
    if let Some(error) = rejection
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        return Err(error);
    }
    written.map_err(failed)
}

/// Turns batches into the arrays that Vortex writes: whole blocks, with what is known of their columns.
struct ToVortex {
    schema: SchemaRef,
    path: PathBuf,
    blocks: Blocks,
}

impl ToVortex {
    fn new(schema: SchemaRef, path: &Path) -> Self {
        Self {
            blocks: Blocks::new(schema.clone()),
            schema,
            path: path.to_owned(),
        }
    }

    /// What follows of the next batch, or of there being no more.
    fn next(
        &mut self,
        batch: Option<Result<RecordBatch, StoreError>>,
    ) -> Vec<Result<ArrayRef, StoreError>> {
        match self.cut(batch) {
            Ok(blocks) => blocks.into_iter().map(|block| self.array(block)).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    fn cut(
        &mut self,
        batch: Option<Result<RecordBatch, StoreError>>,
    ) -> Result<Vec<RecordBatch>, StoreError> {
        let cut = match batch {
            Some(batch) => {
                let batch = batch?;
                self.check(&batch)?;
                self.blocks.push(batch)
            }
            None => self.blocks.finish().map(Vec::from_iter),
        };
        cut.map_err(|error| self.wrong(error.to_string()))
    }

    fn array(&self, block: RecordBatch) -> Result<ArrayRef, StoreError> {
        let rows = session()
            .arrow()
            .from_arrow_record_batch(block.clone(), &self.schema)
            .map_err(|error| StoreError::vortex("write", &self.path, &error))?;
        block_statistics::note(&rows, &block);
        Ok(rows)
    }

    fn wrong(&self, message: String) -> StoreError {
        StoreError::WrongBatch {
            path: self.path.clone(),
            message,
        }
    }

    /// Whether a batch has the columns of the schema and no NULL where none may be.
    fn check(&self, batch: &RecordBatch) -> Result<(), StoreError> {
        let fields = self.schema.fields();
        if batch.num_columns() != fields.len() {
            return Err(self.wrong(format!(
                "{} columns were announced, {} came",
                fields.len(),
                batch.num_columns()
            )));
        }
        for (field, column) in fields.iter().zip(batch.columns()) {
            if field.data_type() != column.data_type() {
                return Err(self.wrong(format!(
                    "column {} was announced as {}, but is {}",
                    field.name(),
                    field.data_type(),
                    column.data_type()
                )));
            }
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(
                    self.wrong(format!("column {} is NOT NULL, but has NULL", field.name()))
                );
            }
        }
        Ok(())
    }
}

/// Writes what follows the Vortex file: directory, table of checksums, trailer.
fn finish(
    mut body: BlockWriter,
    vortex: &WriteSummary,
    directory: &FileDirectory,
) -> std::io::Result<(File, Trailer)> {
    let vortex_len = body.position();
    let data_end = vortex
        .footer()
        .segment_map()
        .iter()
        .map(|s| s.byte_range().end)
        .max();
    let (version, directory) = (directory.version(), directory.encode());
    body.write(&directory)?;
    let (mut file, checksums) = body.finish()?;
    let mut trailer = Trailer {
        vortex_len,
        directory_len: directory.len() as u64,
        rows: vortex.row_count(),
        tail_len: 0,
        block_size: BLOCK_SIZE,
        version,
        table_checksum: xxh3_64(&checksums),
    };
    // Whole blocks are read to verify them, so the tail begins with the block in which the data end.
    let data_end = data_end.unwrap_or(0).min(vortex_len.saturating_sub(1));
    trailer.tail_len =
        trailer.file_len() - data_end / u64::from(BLOCK_SIZE) * u64::from(BLOCK_SIZE);
    debug_assert_eq!(
        trailer.file_len(),
        trailer.body_len() + (checksums.len() + TRAILER_LEN) as u64
    );
    file.write_all(&checksums)?;
    file.write_all(&trailer.encode())?;
    Ok((file, trailer))
}
