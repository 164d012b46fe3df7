//! The part of a chunk file that the table of checksums covers: verified whenever it is read, and
//! checksummed while it is written.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vortex::buffer::{Alignment, ByteBuffer, ByteBufferMut};
use vortex::io::{IoBuf, VortexWrite};
use xxhash_rust::xxh3::xxh3_64;

use crate::trailer::Trailer;
use crate::{ByteSource, StoreError};

/// Bytes for each checksum in the files that we write. A read is widened to whole blocks, so small
/// blocks waste less of a point read (a Vortex segment of 16,384 rows is some 40 kB), and large ones
/// keep the table small, which is read whole when a file is opened: 8 KiB give one thousandth of
/// the file, 50 kB for a chunk of 50 MB.
pub(crate) const BLOCK_SIZE: u32 = 8 * 1024;

/// How much is gathered before it is written; a multiple of the block size.
const WRITE_BUFFER: usize = 128 * BLOCK_SIZE as usize;

/// An open file whose blocks are verified as they are read.
pub(crate) struct BlockFile {
    source: Arc<dyn ByteSource>,
    body_len: u64,
    block_size: u64,
    /// The table of checksums as stored: eight bytes, little-endian, for each block.
    checksums: Vec<u8>,
    /// Whether a read has ever failed.
    failed: AtomicBool,
}

impl BlockFile {
    /// `checksums` is the table that `trailer` describes, already verified.
    pub fn new(source: Arc<dyn ByteSource>, trailer: &Trailer, checksums: Vec<u8>) -> Self {
        Self {
            source,
            body_len: trailer.body_len(),
            block_size: u64::from(trailer.block_size),
            checksums,
            failed: AtomicBool::new(false),
        }
    }

    /// Whether a read has ever failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn path(&self) -> &Arc<Path> {
        self.source.name()
    }

    pub fn is_local(&self) -> bool {
        self.source.is_local()
    }

    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Widens a range of bytes to whole blocks.
    pub fn block_range(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start - range.start % self.block_size;
        start
            ..range
                .end
                .next_multiple_of(self.block_size)
                .min(self.body_len)
    }

    /// Reads a range of bytes into memory of this alignment, after verifying the blocks around it.
    ///
    /// Segments lie in the file at multiples of their alignment and blocks do so of any alignment
    /// in use, so the bytes are returned where they were read, without a copy.
    pub async fn read(
        &self,
        range: Range<u64>,
        alignment: Alignment,
    ) -> Result<ByteBuffer, StoreError> {
        let read = self.read_verified(range, alignment).await;
        if read.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        read
    }

    async fn read_verified(
        &self,
        range: Range<u64>,
        alignment: Alignment,
    ) -> Result<ByteBuffer, StoreError> {
        if range.is_empty() {
            return Ok(ByteBuffer::empty_aligned(alignment));
        }
        if range.end > self.body_len {
            let what = format!(
                "its metadata point to byte {} of {}",
                range.end, self.body_len
            );
            return Err(StoreError::damaged(self.path(), what));
        }
        let blocks = self.block_range(&range);
        let mut buffer = ByteBufferMut::zeroed_aligned(len(&blocks), alignment);
        loop {
            let place = self.source.place();
            let bytes = buffer.as_mut_slice();
            let read = read_exact(self.source.as_ref(), blocks.start, bytes).await;
            match read.and_then(|()| self.verify(&buffer, blocks.start)) {
                Err(StoreError::Damaged { .. }) if self.source.distrust(place) => {}
                verified => break verified?,
            }
        }
        let from = len(&(blocks.start..range.start));
        let wanted = buffer.freeze().slice_unaligned(from..from + len(&range));
        Ok(wanted.ensure_aligned(alignment))
    }

    /// Has a range of bytes fetched that will be read soon, with the blocks around it.
    pub fn read_ahead(&self, range: &Range<u64>) {
        self.source.read_ahead(&self.block_range(range));
    }

    /// Verifies bytes that were read from `offset` on: whole blocks, or up to the end of the body.
    pub fn verify(&self, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        let first = offset / self.block_size;
        let size = usize::try_from(self.block_size).unwrap_or(usize::MAX);
        for (block, contents) in (first..).zip(bytes.chunks(size)) {
            if self.checksum(block) != Some(xxh3_64(contents)) {
                let what = format!(
                    "the checksum of block {block}, {} bytes at offset {}, is wrong",
                    contents.len(),
                    block * self.block_size
                );
                return Err(StoreError::damaged(self.path(), what));
            }
        }
        Ok(())
    }

    fn checksum(&self, block: u64) -> Option<u64> {
        let checksums = self.checksums.as_chunks::<8>().0;
        checksums
            .get(usize::try_from(block).ok()?)
            .map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Reads raw bytes, unverified.
pub(crate) async fn read_exact(
    source: &dyn ByteSource,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), StoreError> {
    let read = source.read_at(offset, buffer).await;
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            StoreError::damaged(source.name(), "it was cut short while it was open")
        }
        _ => StoreError::io("read", source.name())(error),
    })
}

/// The length of a range that fits into memory; 0 if it is upside down.
pub(crate) fn len(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

/// Writes the body of a chunk file and computes its table of checksums on the way.
pub(crate) struct BlockWriter {
    file: File,
    pending: Vec<u8>,
    checksums: Vec<u8>,
    written: u64,
}

impl BlockWriter {
    pub fn new(file: File) -> Self {
        Self {
            file,
            pending: Vec::with_capacity(WRITE_BUFFER),
            checksums: Vec::new(),
            written: 0,
        }
    }

    /// Bytes given so far.
    pub fn position(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = WRITE_BUFFER - self.pending.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() == WRITE_BUFFER {
                self.flush_pending()?;
            }
        }
        Ok(())
    }

    fn flush_pending(&mut self) -> io::Result<()> {
        for block in self.pending.chunks(BLOCK_SIZE as usize) {
            self.checksums
                .extend_from_slice(&xxh3_64(block).to_le_bytes());
        }
        self.file.write_all(&self.pending)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Ends the body: what is written hereafter goes to the file that is returned, beside the table
    /// of checksums.
    pub fn finish(mut self) -> io::Result<(File, Vec<u8>)> {
        self.flush_pending()?;
        Ok((self.file, self.checksums))
    }
}

impl VortexWrite for BlockWriter {
    async fn write_all<B: IoBuf>(&mut self, buffer: B) -> io::Result<B> {
        self.write(buffer.as_slice())?;
        Ok(buffer)
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        Ok(())
    }
}
