//! Cutting a text file into blocks that end where a record ends.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::read::MultiGzDecoder;

use super::dialect::Dialect;
use crate::budget::{DecodeBudget, DecodeMeter, UNPACKS_TO_TOO_MUCH, unpacks_to_too_much};
use crate::error::IngestError;

/// The usual size of a block.
pub(super) const BLOCK: usize = 4 << 20;
/// The size of a block that is only sampled.
pub(super) const SAMPLE_BLOCK: usize = 128 << 10;
/// How much of a file is looked at to find out its dialect.
const HEAD: usize = 1 << 20;
/// A record larger than this is taken for a quote that is never closed.
const LARGEST_RECORD: usize = 256 << 20;

/// Consecutive records of a file.
#[derive(Debug)]
pub(super) struct Block {
    pub bytes: Vec<u8>,
    /// The line number of the first byte, from 1.
    pub first_line: u64,
}

/// The beginning of a file.
#[derive(Debug)]
pub(super) struct Sample {
    pub bytes: Vec<u8>,
    /// Whether it is the whole file.
    pub whole: bool,
}

/// Reads a file, decompressing it if need be, and cuts it at records' ends.
pub(super) struct BlockReader {
    path: PathBuf,
    input: Box<dyn Read + Send>,
    /// Bytes taken from the file itself (compressed, if it is).
    file_bytes: Arc<AtomicU64>,
    /// What was read but not yet given out.
    rest: Vec<u8>,
    line: u64,
    at_end: bool,
    largest_record: usize,
    gzip: bool,
    budget: DecodeBudget,
    /// What has come out of the file.
    decoded: DecodeMeter,
}

/// Counts what goes through.
struct CountingReader {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

impl BlockReader {
    pub(super) fn open(
        path: &Path,
        gzip: bool,
        budget: &DecodeBudget,
    ) -> Result<Self, IngestError> {
        Self::open_at(path, gzip, 0, budget)
    }

    fn open_at(
        path: &Path,
        gzip: bool,
        at: u64,
        budget: &DecodeBudget,
    ) -> Result<Self, IngestError> {
        let mut file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
        if at > 0 {
            file.seek(SeekFrom::Start(at))
                .map_err(|e| IngestError::io("read", path, e))?;
        }
        let file_bytes = Arc::new(AtomicU64::new(0));
        let counting = CountingReader {
            file,
            bytes: file_bytes.clone(),
        };
        let input: Box<dyn Read + Send> = if gzip {
            // What is read ahead counts as read: of a stranger's stream that is little, so that the ratio is known early.
            let ahead = if budget.is_limited() {
                8 << 10
            } else {
                256 << 10
            };
            Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(
                ahead, counting,
            )))
        } else {
            Box::new(counting)
        };
        Ok(Self {
            path: path.to_path_buf(),
            input,
            file_bytes,
            rest: Vec::new(),
            line: 1,
            at_end: false,
            largest_record: budget.row_bytes(LARGEST_RECORD),
            gzip,
            decoded: budget.meter(path),
            budget: budget.clone(),
        })
    }

    pub(super) fn file_bytes_read(&self) -> u64 {
        self.file_bytes.load(Relaxed)
    }

    /// Goes to a byte of a plain file that was just opened, to look at the rows from there on. The byte may lie within
    /// a quoted field, from where on quotes are taken for the wrong ones: so no record is sought for long.
    pub(super) fn skip_to(&mut self, at: u64) -> Result<(), IngestError> {
        *self = Self::open_at(&self.path, false, at, &self.budget.clone())?;
        self.largest_record = HEAD;
        Ok(())
    }

    /// The beginning of the file, without a byte order mark.
    pub(super) fn read_head(&mut self) -> Result<Sample, IngestError> {
        self.fill(HEAD)?;
        self.drop_byte_order_mark();
        Ok(Sample {
            bytes: std::mem::take(&mut self.rest),
            whole: self.at_end,
        })
    }

    /// Passes over the rest of the current line.
    pub(super) fn skip_line(&mut self) -> Result<(), IngestError> {
        let mut wanted = 64 << 10;
        loop {
            self.fill(wanted)?;
            if let Some(end) = memchr::memchr(b'\n', &self.rest) {
                self.rest.drain(..=end);
                self.line += 1;
                return Ok(());
            }
            if self.at_end {
                self.rest.clear();
                return Ok(());
            }
            if self.rest.len() > self.largest_record {
                return Err(self.endless_record(None));
            }
            wanted *= 2;
        }
    }

    /// The next block of about `size` bytes, or of one record if that is larger.
    pub(super) fn next_block(
        &mut self,
        dialect: &Dialect,
        size: usize,
    ) -> Result<Option<Block>, IngestError> {
        let mut wanted = size;
        loop {
            self.fill(wanted)?;
            if self.line == 1 {
                self.drop_byte_order_mark();
            }
            if self.rest.is_empty() {
                return Ok(None);
            }
            let end = if self.at_end {
                Some(self.rest.len())
            } else {
                dialect.last_record_end(&self.rest)
            };
            if let Some(end) = end {
                return Ok(Some(self.cut(end)));
            }
            if self.rest.len() > self.largest_record {
                return Err(self.endless_record(dialect.quote));
            }
            wanted = self.rest.len() * 2;
        }
    }

    fn cut(&mut self, end: usize) -> Block {
        let rest = self.rest.split_off(end);
        let bytes = std::mem::replace(&mut self.rest, rest);
        let first_line = self.line;
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        Block { bytes, first_line }
    }

    /// Reads until `wanted` bytes are there or the file ends.
    fn fill(&mut self, wanted: usize) -> Result<(), IngestError> {
        if self.at_end || self.rest.len() >= wanted {
            return Ok(());
        }
        let missing = (wanted - self.rest.len()) as u64;
        let before = self.rest.len();
        let read = self
            .input
            .by_ref()
            .take(missing)
            .read_to_end(&mut self.rest);
        let read = read.map_err(|e| self.read_error(e))?;
        self.at_end = (read as u64) < missing;
        debug_assert_eq!(self.rest.len(), before + read);
        self.decoded.add(read as u64)?;
        self.check_ratio()
    }

    /// A gzip stream that unpacks to as much as none of real rows does ends here.
    fn check_ratio(&self) -> Result<(), IngestError> {
        let (packed, unpacked) = (self.file_bytes_read(), self.decoded.bytes());
        if !self.gzip || !self.budget.is_limited() || !unpacks_to_too_much(packed, unpacked) {
            return Ok(());
        }
        Err(IngestError::too_large(
            &self.path,
            format!("it {UNPACKS_TO_TOO_MUCH}"),
        ))
    }

    fn drop_byte_order_mark(&mut self) {
        if self.rest.starts_with(b"\xef\xbb\xbf") {
            self.rest.drain(..3);
        }
    }

    fn read_error(&self, error: io::Error) -> IngestError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData => IngestError::Damaged {
                path: self.path.clone(),
                reason: format!("the gzip stream breaks off or is wrong: {error}"),
            },
            _ => IngestError::io("read", &self.path, error),
        }
    }

    fn endless_record(&self, quote: Option<u8>) -> IngestError {
        let line = self.line;
        let (cause, option) = match quote {
            Some(_) => (
                "a quote that is opened there is never closed",
                ": if the file has no quoting, give --quote none",
            ),
            None => ("it has no end of line: is it a text file?", ""),
        };
        IngestError::layout(
            &self.path,
            format!(
                "the record at line {line} is larger than {} MiB; {cause}",
                self.largest_record >> 20
            ),
        )
        .or_option(option)
    }
}
