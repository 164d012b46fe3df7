//! What an Arrow file or stream says of its own lengths, looked at before the library reads it, which allocates whatever they say.
//!
//! ```text
//!   file:    ARROW1 .. message .. message .. footer: where each message is, and how long .. length ARROW1
//!   stream:  mark, length, head: how long its body is .. body .. mark, length, head .. body .. mark, 0
//!   body:    buffer, buffer, ...; of compressed ones each begins with the length that it unpacks to
//! ```
//!
//! Here no message is beyond the bytes that there are, and no buffer unpacks to more than its bytes can stand for.
//!
//! Source: *Arrow columnar format*, "Serialization and Interprocess Communication".

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use arrow::ipc::{Block, Message, RecordBatch, root_as_footer, root_as_message};

use crate::error::IngestError;

/// The mark before the length of a message's head.
const CONTINUATION: u32 = 0xffff_ffff;
/// The mark at both ends of a file.
const MAGIC: [u8; 6] = *b"ARROW1";
/// Bytes of the length of a footer and of the mark behind it.
const TAIL: u64 = 4 + MAGIC.len() as u64;
/// Bytes of the mark at the beginning of a file.
const HEAD: u64 = 8;
/// Bytes of the length before a compressed buffer.
const LENGTH: usize = 8;
/// What a buffer says that is as it was, since it does not become smaller.
const NOT_COMPRESSED: i64 = -1;
/// Bytes that a compressed one stands for at most: a block of Zstandard has four bytes at least and unpacks to 128 KiB at most (RFC 8878,
/// section 3.1.1.2). LZ4 comes to 255.
const MOST_UNPACKED: u64 = (128 << 10) / 4;
/// Rows of a batch without bytes, whose columns have NULLs alone.
const MOST_EMPTY_ROWS: u64 = 1 << 24;

/// Looks at all messages.
///
/// # Errors
/// A length is beyond the bytes that there are.
pub(super) fn check_lengths(
    file: &File,
    path: &Path,
    bytes: u64,
    is_stream: bool,
) -> Result<(), IngestError> {
    let lengths = Lengths { file, path, bytes };
    match is_stream {
        true => lengths.check_stream(),
        false => lengths.check_file(),
    }
}

struct Lengths<'a> {
    file: &'a File,
    path: &'a Path,
    bytes: u64,
}

impl Lengths<'_> {
    fn damaged(&self, reason: impl Into<String>) -> IngestError {
        IngestError::Damaged {
            path: PathBuf::from(self.path),
            reason: reason.into(),
        }
    }

    /// The bytes at a place; `what` they are, if they are not there.
    fn read(&self, at: u64, length: u64, what: &str) -> Result<Vec<u8>, IngestError> {
        let is_there = at.checked_add(length).is_some_and(|end| end <= self.bytes);
        if !is_there {
            return Err(self.damaged(format!("{what} at byte {at} is longer than the file")));
        }
        let mut bytes = vec![0; length as usize];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|error| IngestError::io("read", self.path, error))?;
        Ok(bytes)
    }

    fn check_file(&self) -> Result<(), IngestError> {
        let no_footer = || self.damaged("an Arrow file ends with a footer, which is missing");
        let tail_at = self.bytes.checked_sub(TAIL).ok_or_else(no_footer)?;
        let tail = self.read(tail_at, TAIL, "the end")?;
        let (length, magic) = tail.split_at(4);
        let length = u32::from_le_bytes(length.try_into().unwrap_or_default());
        let footer_at = tail_at.checked_sub(u64::from(length));
        let footer_at = footer_at.filter(|at| *at >= HEAD && magic == MAGIC);
        let footer_at = footer_at.ok_or_else(no_footer)?;
        let bytes = self.read(footer_at, u64::from(length), "the footer")?;
        let footer = root_as_footer(&bytes)
            .map_err(|error| self.damaged(format!("its footer makes no sense: {error}")))?;
        let blocks = [footer.dictionaries(), footer.recordBatches()];
        let mut blocks = blocks.into_iter().flatten().flat_map(|it| it.iter());
        blocks.try_for_each(|block| self.check_block(block))
    }

    /// A message of a file, at the place that the footer tells.
    fn check_block(&self, block: &Block) -> Result<(), IngestError> {
        let place = (
            u64::try_from(block.offset()),
            u64::try_from(block.metaDataLength()),
            u64::try_from(block.bodyLength()),
        );
        let (Ok(at), Ok(head), Ok(body)) = place else {
            return Err(self.damaged("its footer tells of a message before the file's beginning"));
        };
        let bytes = self.read(at, head, "the message")?;
        // Older writers have no mark before the length.
        let begins = match word(&bytes, 0) {
            Some(CONTINUATION) => 8,
            _ => 4,
        };
        let message = self.message(bytes.get(begins..).unwrap_or_default(), at)?;
        self.check_body(&message, at + head, body, at)
    }

    fn check_stream(&self) -> Result<(), IngestError> {
        let mut at = 0;
        // A stream that ends without its mark is told when it is read.
        while at < self.bytes {
            let begins = at;
            let mut length = self.word_at(at)?;
            at += 4;
            if length == CONTINUATION {
                length = self.word_at(at)?;
                at += 4;
            }
            if length == 0 {
                return Ok(());
            }
            let head = self.read(at, u64::from(length), "the head of the message")?;
            at += u64::from(length);
            let message = self.message(&head, begins)?;
            let body = u64::try_from(message.bodyLength());
            let body = body.map_err(|_| {
                self.damaged(format!(
                    "the message at byte {begins} is shorter than nothing"
                ))
            })?;
            self.check_body(&message, at, body, begins)?;
            at += body;
        }
        Ok(())
    }

    fn word_at(&self, at: u64) -> Result<u32, IngestError> {
        let bytes = self.read(at, 4, "the length of the message")?;
        Ok(word(&bytes, 0).unwrap_or_default())
    }

    fn message<'b>(&self, head: &'b [u8], at: u64) -> Result<Message<'b>, IngestError> {
        let message = root_as_message(head);
        message.map_err(|error| {
            self.damaged(format!("the message at byte {at} makes no sense: {error}"))
        })
    }

    /// The body of a message, whose buffers are unpacked.
    fn check_body(
        &self,
        message: &Message<'_>,
        at: u64,
        length: u64,
        begins: u64,
    ) -> Result<(), IngestError> {
        let too_long = || {
            self.damaged(format!(
                "the message at byte {begins} is longer than the file"
            ))
        };
        let is_there = at.checked_add(length).is_some_and(|end| end <= self.bytes);
        if !is_there {
            return Err(too_long());
        }
        let batch = message.header_as_record_batch();
        let batch = batch.or_else(|| message.header_as_dictionary_batch()?.data());
        let Some(batch) = batch else {
            return Ok(());
        };
        let unpacked = match batch.compression() {
            Some(_) => self.unpacked(&batch, at, length, begins)?,
            None => length,
        };
        let rows = u64::try_from(batch.length()).map_err(|_| too_long())?;
        if unpacked == 0 && rows > MOST_EMPTY_ROWS {
            return Err(self.damaged(format!(
                "the message at byte {begins} has {rows} rows and no bytes for them"
            )));
        }
        Ok(())
    }

    /// What the buffers of a body unpack to.
    fn unpacked(
        &self,
        batch: &RecordBatch<'_>,
        at: u64,
        length: u64,
        begins: u64,
    ) -> Result<u64, IngestError> {
        let wrong = || {
            self.damaged(format!(
                "a buffer of the message at byte {begins} is not as long as it says"
            ))
        };
        let mut unpacked = 0_u64;
        for buffer in batch.buffers().into_iter().flat_map(|it| it.iter()) {
            let place = (
                u64::try_from(buffer.offset()),
                u64::try_from(buffer.length()),
            );
            let (Ok(offset), Ok(bytes)) = place else {
                return Err(wrong());
            };
            if offset.checked_add(bytes).is_none_or(|end| end > length) {
                return Err(wrong());
            }
            if bytes == 0 {
                continue;
            }
            let packed = bytes.checked_sub(LENGTH as u64).ok_or_else(wrong)?;
            let said = self.read(at + offset, LENGTH as u64, "the buffer")?;
            let said = i64::from_le_bytes(said.try_into().unwrap_or_default());
            let said = match said {
                NOT_COMPRESSED => packed,
                said => u64::try_from(said).map_err(|_| wrong())?,
            };
            if said > packed.saturating_mul(MOST_UNPACKED) {
                return Err(wrong());
            }
            unpacked = unpacked.saturating_add(said);
        }
        Ok(unpacked)
    }
}

/// The number of four bytes at a place.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
