//! Block files: record batches in blocks, each with a checksum, in a file that only grows.
//!
//! ```text
//!   file   = "MRDNBLK1" block*
//!   block  = header body
//!   header = kind u32, phase u32, piece u64, run u64, rows u64, length u64, digest u64     all little-endian
//!   body   = `length` bytes
//! ```
//!
//! The digest is XXH3 of the header before it, and of the body. The body of a block of rows is an Arrow IPC stream of its own (schema,
//! dictionaries, batches, end), compressed with Zstandard, so every block can be read without the others.
//!
//! A crash may leave a block that is cut off, or bytes that were never a block: reading ends before the first block that is not whole,
//! and writing goes on there. What `kind`, `phase`, `piece` and `run` mean is for [`crate::journal`] and [`crate::stored_result`].

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use engine::EngineError;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"MRDNBLK1";
const HEADER: usize = 48;
/// Bytes of rows in memory that become a block.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of a body beyond which a header is not believed.
const LONGEST_BODY: u64 = 1 << 32;

/// What a block is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub kind: u32,
    pub phase: u32,
    pub piece: u64,
    /// Tells the attempts at one piece apart.
    pub run: u64,
    pub rows: u64,
}

/// A block in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub tag: Tag,
    /// Where its header begins.
    pub offset: u64,
    /// Bytes of its body.
    pub length: u64,
}

/// A file of blocks that is open for writing and reading.
#[derive(Debug)]
pub(crate) struct BlockFile {
    path: PathBuf,
    file: File,
    /// Where the next block begins.
    end: Mutex<u64>,
}

impl BlockFile {
    /// Opens a file for appending, or makes it; gives the blocks that it has. What follows the last whole block is cut off.
    pub(crate) fn append_to(path: &Path) -> Result<(Self, Vec<Block>), EngineError> {
        let failed = |error| unusable(path, &error);
        let mut file = catalog::writable_file()
            .read(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let is_new = file.metadata().map_err(failed)?.len() < MAGIC.len() as u64;
        if is_new {
            file.set_len(0).map_err(failed)?;
            file.write_all(MAGIC).map_err(failed)?;
        }
        let (blocks, end) = whole_blocks(&file, path)?;
        file.set_len(end).map_err(failed)?;
        let opened = Self {
            path: path.to_owned(),
            file,
            end: Mutex::new(end),
        };
        Ok((opened, blocks))
    }

    /// Opens a complete file for reading; gives its blocks.
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<Block>), EngineError> {
        let failed = |error| unusable(path, &error);
        let file = File::open(path).map_err(failed)?;
        let (blocks, end) = whole_blocks(&file, path)?;
        if file.metadata().map_err(failed)?.len() != end {
            return Err(damaged(path));
        }
        let opened = Self {
            path: path.to_owned(),
            file,
            end: Mutex::new(end),
        };
        Ok((opened, blocks))
    }

    /// Appends a block.
    pub(crate) fn append(&self, tag: Tag, body: &[u8]) -> Result<Block, EngineError> {
        let length = body.len() as u64;
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&header(tag, length));
        bytes.extend_from_slice(&digest(&bytes, body).to_le_bytes());
        bytes.extend_from_slice(body);
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.file.write_all_at(&bytes, *end);
        written.map_err(|error| unusable(&self.path, &error))?;
        let block = Block {
            tag,
            offset: *end,
            length,
        };
        *end += bytes.len() as u64;
        Ok(block)
    }

    /// Appends a block of rows.
    pub(crate) fn append_rows(
        &self,
        tag: Tag,
        schema: &SchemaRef,
        batches: &[RecordBatch],
    ) -> Result<Block, EngineError> {
        let body = encode(schema, batches).map_err(|error| {
            let sentence = format!("rows of the result cannot be stored: {error}");
            EngineError::internal(sentence)
        })?;
        self.append(tag, &body)
    }

    /// The body of a block, which is verified.
    pub(crate) fn read(&self, block: &Block) -> Result<Vec<u8>, EngineError> {
        let length = usize::try_from(block.length).map_err(|_| damaged(&self.path))?;
        let mut bytes = vec![0; HEADER + length];
        let read = self.file.read_exact_at(&mut bytes, block.offset);
        read.map_err(|error| unusable(&self.path, &error))?;
        let (head, body) = bytes.split_at(HEADER);
        let stored = head.last_chunk().map(|it| u64::from_le_bytes(*it));
        if stored != Some(digest(&head[..HEADER - 8], body)) {
            return Err(damaged(&self.path));
        }
        bytes.drain(..HEADER);
        Ok(bytes)
    }

    /// The rows of a block.
    pub(crate) fn read_rows(&self, block: &Block) -> Result<Vec<RecordBatch>, EngineError> {
        let body = self.read(block)?;
        let batches = StreamReader::try_new(body.as_slice(), None);
        let batches = batches.and_then(Iterator::collect::<Result<Vec<_>, _>>);
        batches.map_err(|_| damaged(&self.path))
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything that was appended is on the disk.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| unusable(&self.path, &error))
    }
}

/// Copies the blocks of a file, up to the first that is not whole, to a file that appears when all are there. The former may still be
/// written.
pub(crate) fn copy_whole(from: &Path, to: &Path) -> Result<(), EngineError> {
    let failed = |error| unusable(to, &error);
    let file = File::open(from).map_err(|error| unusable(from, &error))?;
    let Ok((blocks, end)) = whole_blocks(&file, from) else {
        // Nothing was written yet.
        return Ok(());
    };
    let source = BlockFile {
        path: from.to_owned(),
        file,
        end: Mutex::new(end),
    };
    let unfinished = to.with_extension("copying");
    // Of a process that was killed.
    let _ = std::fs::remove_file(&unfinished);
    let (target, _) = BlockFile::append_to(&unfinished)?;
    for block in &blocks {
        // What was written is verified before it counts, and of the rest the pieces run again.
        let Ok(body) = source.read(block) else {
            break;
        };
        target.append(block.tag, &body)?;
    }
    target.sync()?;
    std::fs::rename(unfinished, to).map_err(failed)
}

/// Gathers rows of one tag until they make a block.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    file: Arc<BlockFile>,
    tag: Tag,
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    blocks: Vec<Block>,
}

impl BlockWriter {
    /// Writes blocks with this tag, but for their rows.
    pub(crate) fn new(file: Arc<BlockFile>, tag: Tag) -> Self {
        Self {
            file,
            tag,
            schema: None,
            batches: Vec::new(),
            bytes: 0,
            blocks: Vec::new(),
        }
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let batch = without_unused_bytes(batch);
        self.bytes += batch.get_array_memory_size();
        self.schema.get_or_insert_with(|| batch.schema());
        self.batches.push(batch);
        if self.bytes >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        let (Some(schema), false) = (&self.schema, self.batches.is_empty()) else {
            return Ok(());
        };
        let rows = self.batches.iter().map(|batch| batch.num_rows() as u64);
        let tag = Tag {
            rows: rows.sum(),
            ..self.tag
        };
        let block = self.file.append_rows(tag, schema, &self.batches)?;
        self.blocks.push(block);
        self.batches.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Bytes of rows that are written or gathered.
    pub(crate) fn num_bytes(&self) -> u64 {
        let written: u64 = self.blocks.iter().map(|block| block.length).sum();
        written + self.bytes as u64
    }

    /// Writes what is gathered; gives all blocks.
    pub(crate) fn finish(mut self) -> Result<Vec<Block>, EngineError> {
        self.flush()?;
        Ok(self.blocks)
    }
}

/// Views may refer to far more bytes than their rows have, which would all be written.
pub fn without_unused_bytes(batch: &RecordBatch) -> RecordBatch {
    let is_view = |ty: &DataType| matches!(ty, DataType::Utf8View | DataType::BinaryView);
    let columns = batch.columns().iter();
    if !columns.clone().any(|column| is_view(column.data_type())) {
        return batch.clone();
    }
    let columns = columns.map(|column| -> Arc<dyn Array> {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let compact = RecordBatch::try_new_with_options(batch.schema(), columns.collect(), &options);
    compact.unwrap_or_else(|_| batch.clone())
}

fn encode(
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<Vec<u8>, arrow::error::ArrowError> {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), schema, options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

fn header(tag: Tag, length: u64) -> [u8; HEADER - 8] {
    let mut bytes = [0; HEADER - 8];
    let fields = [tag.kind.to_le_bytes(), tag.phase.to_le_bytes()];
    let longs = [tag.piece, tag.run, tag.rows, length].map(u64::to_le_bytes);
    let all = fields.iter().flatten().chain(longs.iter().flatten());
    for (byte, value) in bytes.iter_mut().zip(all) {
        *byte = *value;
    }
    bytes
}

fn digest(head: &[u8], body: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(head);
    hasher.update(body);
    hasher.digest()
}

/// The blocks from the beginning of a file up to the first that is not whole, and where that one begins.
///
/// Only headers are read, and of the last block the body: those before it were written earlier, and are verified when they are read.
fn whole_blocks(file: &File, path: &Path) -> Result<(Vec<Block>, u64), EngineError> {
    let failed = |error: io::Error| unusable(path, &error);
    let mut reader = file;
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut magic = [0; MAGIC.len()];
    let read = reader.read_exact(&mut magic);
    if read.is_err() || magic != *MAGIC {
        return Err(damaged(path));
    }
    let size = file.metadata().map_err(failed)?.len();
    let mut blocks = Vec::new();
    let mut offset = MAGIC.len() as u64;
    while let Some(block) = block_at(file, offset, size) {
        offset += HEADER as u64 + block.length;
        blocks.push(block);
    }
    while let Some(last) = blocks.last() {
        if is_whole(file, last) {
            break;
        }
        offset = last.offset;
        blocks.pop();
    }
    Ok((blocks, offset))
}

fn block_at(file: &File, offset: u64, size: u64) -> Option<Block> {
    let mut head = [0; HEADER];
    file.read_exact_at(&mut head, offset).ok()?;
    let short = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let block = Block {
        tag: Tag {
            kind: short(0)?,
            phase: short(4)?,
            piece: long(8)?,
            run: long(16)?,
            rows: long(24)?,
        },
        offset,
        length: long(32)?,
    };
    let end = offset + HEADER as u64;
    let fits = block.length <= LONGEST_BODY && end + block.length <= size;
    fits.then_some(block)
}

fn is_whole(file: &File, block: &Block) -> bool {
    let Ok(length) = usize::try_from(block.length) else {
        return false;
    };
    let mut bytes = vec![0; HEADER + length];
    if file.read_exact_at(&mut bytes, block.offset).is_err() {
        return false;
    }
    let (head, body) = bytes.split_at(HEADER);
    let stored = head.last_chunk().map(|it| u64::from_le_bytes(*it));
    stored == Some(digest(&head[..HEADER - 8], body))
}

fn unusable(path: &Path, error: &io::Error) -> EngineError {
    EngineError::storage(format!("cannot use the file {}: {error}", path.display()))
}

fn damaged(path: &Path) -> EngineError {
    let sentence = format!(
        "the stored rows in {} are damaged: submit the query again",
        path.display()
    );
    EngineError::storage(sentence)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    fn tag(piece: u64) -> Tag {
        Tag {
            kind: 1,
            phase: 0,
            piece,
            run: 0,
            rows: 0,
        }
    }

    fn batch(from: i64, rows: i64) -> RecordBatch {
        let numbers: Int64Array = (from..from + rows).collect();
        let texts: StringViewArray = (from..from + rows)
            .map(|n| Some(format!("a text that is no short one: {n}")))
            .collect();
        RecordBatch::try_from_iter([
            ("n", Arc::new(numbers) as Arc<dyn Array>),
            ("t", Arc::new(texts)),
        ])
        .unwrap()
    }

    #[test]
    fn rows_come_back_and_writing_goes_on_after_what_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("blocks");
        let (file, none) = BlockFile::append_to(&path).unwrap();
        assert!(none.is_empty());
        let file = Arc::new(file);
        let mut writer = BlockWriter::new(Arc::clone(&file), tag(3));
        for at in 0..20 {
            writer.write(&batch(at * 10_000, 10_000)).unwrap();
        }
        let written = writer.finish().unwrap();
        assert!(written.len() > 1, "all rows are in one block");
        let end = file.len();
        drop(file);
        // A block that was cut off by a crash, at every kind of place.
        for cut in [1, 5, 6, 7, HEADER, HEADER + 5] {
            let whole = std::fs::read(&path).unwrap();
            let (file, _) = BlockFile::append_to(&path).unwrap();
            file.append(tag(4), b"a body").unwrap();
            drop(file);
            let longer = std::fs::read(&path).unwrap();
            std::fs::write(&path, &longer[..longer.len() - cut]).unwrap();
            assert!(BlockFile::open(&path).is_err(), "{cut}");
            let (file, blocks) = BlockFile::append_to(&path).unwrap();
            assert_eq!((blocks.as_slice(), file.len()), (written.as_slice(), end));
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
        let (file, blocks) = BlockFile::open(&path).unwrap();
        let read: Vec<RecordBatch> = blocks
            .iter()
            .flat_map(|block| file.read_rows(block).unwrap())
            .collect();
        let all = arrow::compute::concat_batches(&batch(0, 1).schema(), &read).unwrap();
        assert_eq!(all, batch(0, 200_000));
        assert_eq!(blocks.iter().map(|it| it.tag.rows).sum::<u64>(), 200_000);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("blocks");
        let (file, _) = BlockFile::append_to(&path).unwrap();
        let schema = batch(0, 1).schema();
        file.append_rows(tag(0), &schema, &[batch(0, 10)]).unwrap();
        file.append_rows(tag(1), &schema, &[batch(10, 10)]).unwrap();
        drop(file);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            let read = BlockFile::open(&path).and_then(|(file, blocks)| {
                let rows = blocks.iter().map(|block| file.read_rows(block));
                rows.collect::<Result<Vec<_>, _>>()
            });
            assert!(read.is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_few_rows_of_a_large_batch_take_few_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let (file, _) = BlockFile::append_to(&directory.path().join("blocks")).unwrap();
        let mut writer = BlockWriter::new(Arc::new(file), tag(0));
        writer.write(&batch(0, 100_000).slice(5, 2)).unwrap();
        let blocks = writer.finish().unwrap();
        assert!(blocks[0].length < 2_000, "{}", blocks[0].length);
    }
}
