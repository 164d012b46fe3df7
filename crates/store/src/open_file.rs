//! Opening and checking a file of rows.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use sky::ChunkId;
use vortex::array::buffer::BufferHandle;
use vortex::array::expr::stats::{Precision, Stat};
use vortex::array::scalar::{PValue, ScalarValue};
use vortex::arrow::ArrowSessionExt;
use vortex::buffer::{Alignment, ByteBuffer, ByteBufferMut};
use vortex::error::{VortexError, VortexResult, vortex_bail};
use vortex::expr::{BoundExpression, root, select};
use vortex::file::{DeserializeStep, Footer, SegmentSpec, VortexFile};
use vortex::layout::LayoutReaderRef;
use vortex::layout::segments::{SegmentFuture, SegmentId, SegmentSource};
use xxhash_rust::xxh3::xxh3_64;

use crate::away::open_anywhere;
use crate::block_file::{BlockFile, len, read_exact};
use crate::column_blocks::ColumnBlocks;
use crate::decoded_blocks::{DecodedBlocks, DecodedFile};
use crate::packed::PackedDirectory;
use crate::scan::bind;
use crate::session::session;
use crate::trailer::{OF_CHUNKS, TRAILER_LEN, Trailer};
use crate::{ByteSource, ChunkFile, Directory, StoreError};

/// What opening a file reads at its end before it knows how much it needs. Enough for the directory,
/// checksums and metadata of a chunk of half a million rows and a dozen columns; a larger one takes a
/// second read of exactly the rest.
const FIRST_READ: u64 = 64 * 1024;

/// An open file of the rows of one chunk or several, which [`Self::chunk`] gives one by one.
pub struct OpenFile {
    pub(crate) blocks: Arc<BlockFile>,
    pub(crate) layout: LayoutReaderRef,
    pub(crate) columns: Arc<ColumnBlocks>,
    pub(crate) decoded: Option<Arc<DecodedFile>>,
    /// How Vortex's reader is requested each column that is not laid out in blocks, once it was.
    readers: Vec<OnceLock<BoundExpression>>,
    vortex: VortexFile,
    chunks: FileChunks,
    schema: SchemaRef,
    rows: u64,
    checksum: u64,
    file_len: u64,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFile")
            .field("path", self.blocks.path())
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl OpenFile {
    /// Opens a file of a data directory, which may be at workers or at home; see [`Self::open_source`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`], [`StoreError::AtWorkers`], [`StoreError::AtHome`] and those of [`Self::open_source`].
    pub async fn open(path: &Path) -> Result<Arc<Self>, StoreError> {
        Self::open_source(open_anywhere(path).await?, None).await
    }

    /// Opens a file with one read of its end, or two if that is long; decoded blocks are kept in `decoded`, if anywhere.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if what was read does not bear out its checksums (the rows are not read
    /// here); [`StoreError::NewerFormat`]; [`StoreError::Io`] with what the source says.
    pub async fn open_source(
        source: Arc<dyn ByteSource>,
        decoded: Option<Arc<DecodedBlocks>>,
    ) -> Result<Arc<Self>, StoreError> {
        loop {
            let place = source.place();
            match Self::open_once(Arc::clone(&source), decoded.clone()).await {
                Err(StoreError::Damaged { .. }) if source.distrust(place) => {}
                opened => return opened,
            }
        }
    }

    async fn open_once(
        source: Arc<dyn ByteSource>,
        decoded: Option<Arc<DecodedBlocks>>,
    ) -> Result<Arc<Self>, StoreError> {
        let path = Arc::clone(source.name());
        let Tail {
            trailer,
            blocks,
            bytes,
            offset,
        } = Tail::read(source).await?;
        let file_len = trailer.file_len();
        let after_vortex = len(&(offset..trailer.vortex_len));
        let directory = &bytes[after_vortex..len(&(offset..trailer.body_len()))];
        let chunks = FileChunks::decode(directory, &trailer)
            .map_err(|what| StoreError::damaged(&path, format!("its directory: {what}")))?;
        let blocks = Arc::new(blocks);
        let footer = read_footer(bytes.slice_unaligned(..after_vortex), &trailer, &blocks).await?;
        check_rows(&footer, &trailer, &chunks, &path)?;

        let failed = |error: VortexError| StoreError::vortex("open", &path, &error);
        let segments = Arc::new(VerifiedSegments {
            blocks: Arc::clone(&blocks),
            segments: Arc::clone(footer.segment_map()),
        });
        let columns = ColumnBlocks::new(
            Arc::clone(&blocks),
            Arc::clone(footer.segment_map()),
            footer.layout(),
        )
        .map_err(failed)?;
        let schema = session()
            .arrow()
            .to_arrow_schema(footer.dtype())
            .map_err(failed)?;
        let decoded = decoded.map(|decoded| {
            let columns = schema.fields().len();
            DecodedFile::new(decoded, trailer.checksum(), trailer.rows, columns)
        });
        let vortex = VortexFile::new(footer, segments, session().clone());
        Ok(Arc::new(Self {
            layout: vortex.layout_reader().map_err(failed)?,
            columns: Arc::new(columns),
            decoded: decoded.map(Arc::new),
            readers: schema.fields().iter().map(|_| OnceLock::new()).collect(),
            blocks,
            vortex,
            chunks,
            schema: Arc::new(schema),
            rows: trailer.rows,
            checksum: trailer.checksum(),
            file_len,
        }))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.blocks.path()
    }

    /// The rows of a chunk. A file of version 1 holds one chunk and does not say which: it is the one that is requested.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if it has no rows of this chunk, or its directory of them is not right.
    pub fn chunk(self: &Arc<Self>, chunk: ChunkId) -> Result<Arc<ChunkFile>, StoreError> {
        let at = match &self.chunks {
            FileChunks::One(_) => 0,
            FileChunks::Packed(packed, _) => {
                let at = packed.find(chunk);
                at.ok_or_else(|| self.without_chunk(chunk))?
            }
        };
        self.chunk_at(at)
    }

    /// The rows of a chunk by their numbers within the file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if it has no rows of this chunk.
    pub fn rows_of(&self, chunk: ChunkId) -> Result<Range<u64>, StoreError> {
        match &self.chunks {
            FileChunks::One(_) => Ok(0..self.rows),
            FileChunks::Packed(packed, _) => {
                let at = packed.find(chunk);
                let found = at.and_then(|at| packed.chunks().get(at));
                let found = found.map(|chunk| chunk.rows.clone());
                found.ok_or_else(|| self.without_chunk(chunk))
            }
        }
    }

    fn without_chunk(&self, chunk: ChunkId) -> StoreError {
        StoreError::damaged(self.path(), format!("it has no rows of chunk {chunk}"))
    }

    /// The rows of the file's only chunk.
    pub(crate) fn only_chunk(self: &Arc<Self>) -> Result<Arc<ChunkFile>, StoreError> {
        match &self.chunks {
            FileChunks::Packed(packed, _) if packed.chunks().len() > 1 => {
                Err(StoreError::WrongScan {
                    path: self.path().to_owned(),
                    message: format!("it holds {} chunks", packed.chunks().len()),
                })
            }
            _ => self.chunk_at(0),
        }
    }

    fn chunk_at(self: &Arc<Self>, at: usize) -> Result<Arc<ChunkFile>, StoreError> {
        let (directory, rows) = match &self.chunks {
            FileChunks::One(directory) => (Arc::clone(directory), 0..self.rows),
            FileChunks::Packed(packed, decoded) => {
                let (Some(chunk), Some(known)) = (packed.chunks().get(at), decoded.get(at)) else {
                    return Err(StoreError::damaged(self.path(), "it has no such chunk"));
                };
                let directory = match known.get() {
                    Some(known) => Arc::clone(known),
                    None => {
                        let directory = packed.directory(at).map_err(|what| {
                            let what = format!("its directory of chunk {}: {what}", chunk.chunk);
                            StoreError::damaged(self.path(), what)
                        })?;
                        Arc::clone(known.get_or_init(|| Arc::new(directory)))
                    }
                };
                (directory, chunk.rows.clone())
            }
        };
        Ok(Arc::new(ChunkFile::new(Arc::clone(self), directory, rows)))
    }

    /// The chunks that it holds, ascending; none if it is a file of version 1, which does not say so.
    pub fn chunks(&self) -> Vec<ChunkId> {
        match &self.chunks {
            FileChunks::One(_) => Vec::new(),
            FileChunks::Packed(packed, _) => {
                packed.chunks().iter().map(|chunk| chunk.chunk).collect()
            }
        }
    }

    /// Rows in the file.
    pub fn num_rows(&self) -> u64 {
        self.rows
    }

    /// The columns of the file, all of them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The least and the greatest value of a column of 64-bit integers, or of times in the unit in which they are stored; `None` where the file
    /// does not tell them, as of NULLs alone.
    pub fn integer_bounds(&self, column: usize) -> Option<[i64; 2]> {
        let statistics = self.vortex.file_stats()?.stats_sets().get(column)?;
        let bound = |stat| match statistics.get(stat) {
            Precision::Exact(ScalarValue::Primitive(PValue::I64(value))) => Some(value),
            _ => None,
        };
        Some([bound(Stat::Min)?, bound(Stat::Max)?])
    }

    /// The Vortex type of the rows, against which a filter is bound.
    pub fn dtype(&self) -> &vortex::dtype::DType {
        self.vortex.dtype()
    }

    /// How Vortex's reader is requested a column alone; an error where there is no such column.
    pub(crate) fn reader_of(&self, column: usize) -> VortexResult<BoundExpression> {
        let (Some(known), Some(field)) =
            (self.readers.get(column), self.schema.fields().get(column))
        else {
            vortex_bail!("there is no column {column}");
        };
        if let Some(reader) = known.get() {
            return Ok(reader.clone());
        }
        let only = select(vec![Arc::<str>::from(field.name().as_str())], root());
        let reader = bind(&only, self)?;
        Ok(known.get_or_init(|| reader).clone())
    }

    /// The file's checksum as [`crate::FileSummary`] gave it when the file was written.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Bytes of the file.
    pub fn num_bytes(&self) -> u64 {
        self.file_len
    }

    /// Whether reading from it has ever failed. Vortex keeps what it read of zone maps and
    /// dictionaries, failures too: a file that was restored under its name must be opened anew, which
    /// [`crate::OpenFiles`] does.
    pub fn has_failed(&self) -> bool {
        self.blocks.has_failed()
    }

    /// Whether it keeps a file of this machine open.
    pub(crate) fn is_local(&self) -> bool {
        self.blocks.is_local()
    }

    /// Reads the whole file and verifies every block. What opening verifies (trailer, directory, row
    /// count, metadata) has been verified then; the directory of each chunk of several is verified by
    /// [`Self::chunk`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] names the first block that is wrong.
    pub async fn verify(&self) -> Result<(), StoreError> {
        // A megabyte at a time, in whole blocks.
        let step = self.blocks.block_size() * (1_u64 << 20).div_ceil(self.blocks.block_size());
        let mut offset = 0;
        while offset < self.blocks.body_len() {
            let end = (offset + step).min(self.blocks.body_len());
            self.blocks.read(offset..end, Alignment::none()).await?;
            offset = end;
        }
        Ok(())
    }
}

/// What a file says of its chunks.
enum FileChunks {
    One(Arc<Directory>),
    /// Directories of sub-chunks, each once it is wanted.
    Packed(PackedDirectory, Vec<OnceLock<Arc<Directory>>>),
}

impl FileChunks {
    fn decode(bytes: &[u8], trailer: &Trailer) -> Result<Self, String> {
        if trailer.version < OF_CHUNKS {
            return Ok(Self::One(Arc::new(Directory::decode(bytes)?)));
        }
        let packed = PackedDirectory::decode(bytes)?;
        let directories = packed.chunks().iter().map(|_| OnceLock::new()).collect();
        Ok(Self::Packed(packed, directories))
    }

    /// Rows that they have by name; `None` if they have none.
    fn rows(&self) -> Option<u64> {
        match self {
            Self::One(directory) if directory.entries().is_empty() => None,
            Self::One(directory) => Some(directory.rows()),
            Self::Packed(packed, _) => Some(packed.rows()),
        }
    }
}

/// The end of a chunk file: all that is needed to open it, verified.
struct Tail {
    trailer: Trailer,
    blocks: BlockFile,
    /// The body (see [`Trailer::body_len`]) from `offset` on.
    bytes: ByteBuffer,
    offset: u64,
}

impl Tail {
    async fn read(source: Arc<dyn ByteSource>) -> Result<Self, StoreError> {
        let path = &Arc::clone(source.name());
        let file_len = source.num_bytes();
        let start = file_len.saturating_sub(FIRST_READ);
        let mut tail = read_range(source.as_ref(), start..file_len).await?;
        let Some(last) = tail.as_slice().last_chunk::<TRAILER_LEN>() else {
            let what = format!("it has only {file_len} bytes");
            return Err(StoreError::damaged(path, what));
        };
        let trailer = Trailer::decode(last, path, file_len)?;
        if trailer.tail_len > tail.len() as u64 {
            let rest_end = file_len - tail.len() as u64;
            let rest = file_len - trailer.tail_len..rest_end;
            let mut all = read_range(source.as_ref(), rest).await?;
            all.extend_from_slice(&tail);
            tail = all;
        }
        let offset = file_len - tail.len() as u64;
        let tail = tail.freeze();
        let body_end = len(&(offset..trailer.body_len()));
        let checksums = tail[body_end..tail.len() - TRAILER_LEN].to_vec();
        if xxh3_64(&checksums) != trailer.table_checksum {
            return Err(StoreError::damaged(
                path,
                "the checksum of its table of checksums is wrong",
            ));
        }
        let blocks = BlockFile::new(source, &trailer, checksums);
        // The first read may begin within a block: what lies before the next one is not used.
        let first_block = offset.next_multiple_of(blocks.block_size());
        let bytes =
            tail.slice_unaligned(len(&(offset..first_block.min(trailer.body_len())))..body_end);
        blocks.verify(&bytes, first_block)?;
        Ok(Self {
            trailer,
            blocks,
            bytes,
            offset: first_block,
        })
    }
}

async fn read_range(
    source: &dyn ByteSource,
    range: Range<u64>,
) -> Result<ByteBufferMut, StoreError> {
    let mut buffer = ByteBufferMut::zeroed(len(&range));
    read_exact(source, range.start, buffer.as_mut_slice()).await?;
    Ok(buffer)
}

/// Reads the Vortex footer from the end of the Vortex file, which `tail` holds.
async fn read_footer(
    tail: ByteBuffer,
    trailer: &Trailer,
    blocks: &BlockFile,
) -> Result<Footer, StoreError> {
    let failed = |error: VortexError| StoreError::vortex("open", blocks.path(), &error);
    let mut reader = Footer::deserializer(tail, session().clone()).with_size(trailer.vortex_len);
    loop {
        match reader.deserialize().map_err(failed)? {
            DeserializeStep::Done(footer) => return Ok(footer),
            DeserializeStep::NeedMoreData { offset, len } => {
                let end = offset.saturating_add(len as u64);
                reader.prefix_data(blocks.read(offset..end, Alignment::none()).await?);
            }
            DeserializeStep::NeedFileSize => {
                return Err(StoreError::damaged(
                    blocks.path(),
                    "its Vortex metadata have no size",
                ));
            }
        }
    }
}

fn check_rows(
    footer: &Footer,
    trailer: &Trailer,
    chunks: &FileChunks,
    path: &Path,
) -> Result<(), StoreError> {
    let rows = trailer.rows;
    let in_directory = chunks.rows().unwrap_or(rows);
    if footer.row_count() != rows || in_directory != rows {
        let what = format!(
            "its trailer says {rows} rows, its metadata {}, its directory {in_directory}",
            footer.row_count()
        );
        return Err(StoreError::damaged(path, what));
    }
    Ok(())
}

/// Hands verified bytes to Vortex. Reads happen when a future is polled, on the thread that polls
/// it: no task is spawned, so a file opened in one runtime can be read in another.
struct VerifiedSegments {
    blocks: Arc<BlockFile>,
    segments: Arc<[SegmentSpec]>,
}

impl SegmentSource for VerifiedSegments {
    fn request(&self, id: SegmentId) -> SegmentFuture {
        let spec = self.segments.get(*id as usize).copied();
        let blocks = Arc::clone(&self.blocks);
        async move {
            let Some(spec) = spec else {
                let error = StoreError::damaged(blocks.path(), "its metadata name no such segment");
                return Err(VortexError::from(std::io::Error::other(error)));
            };
            let end = spec.offset.saturating_add(u64::from(spec.length));
            blocks
                .read(spec.offset..end, spec.alignment)
                .await
                .map(BufferHandle::new_host)
                .map_err(|error| VortexError::from(std::io::Error::other(error)))
        }
        .boxed()
    }
}
