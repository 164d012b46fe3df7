//! The file of an uploaded table: written by a thread that may block on the disk, and unpacked on the way if it is gzipped.
//!
//! Whoever reads the table finds it unpacked, whatever its format, as often as it is read.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use flate2::write::MultiGzDecoder;
use ingest::{BytePool, Reservation, UNPACKS_TO_TOO_MUCH, unpacks_to_too_much};
use tempfile::NamedTempFile;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::problem::Problem;
use super::upload::Upload;

/// Blocks of a table that wait to be written to its file.
const PARTS_AHEAD: usize = 4;
/// Bytes by which the format of a table is recognised.
const SNIFFED: usize = 64;
/// What a gzip stream begins with (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file that was written.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) file: NamedTempFile,
    /// Its first bytes.
    pub(super) head: Vec<u8>,
    pub(super) bytes: u64,
    /// The room on the disk for what was unpacked; `None` where the file is what was sent.
    pub(super) unpacked: Option<Reservation>,
}

/// Why a file was not written.
#[derive(Debug)]
pub(super) enum NotWritten {
    /// The disk failed.
    Disk(io::Error),
    /// It is no gzip stream, though it begins as one.
    Damaged(io::Error),
    /// It unpacks to more than a table may have.
    TooLarge,
    /// It unpacks to more than tables do.
    Bomb,
    /// There is no room on the disk for what it unpacks to.
    NoRoom,
}

impl NotWritten {
    /// What its sender is told. `room` are the bytes of disk for all tables together.
    pub(super) fn problem(&self, upload: Upload, room: u64) -> Problem {
        let name = upload.name;
        let too_large = StatusCode::PAYLOAD_TOO_LARGE;
        match self {
            Self::Disk(error) => Problem::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!("{name} cannot be kept while it is read: {error}"),
            ),
            Self::Damaged(error) => Problem::bad(format!(
                "{name} cannot be unpacked, it is damaged or cut off ({error}): send it again, or without gzip"
            )),
            Self::TooLarge => Problem::new(
                too_large,
                format!(
                    "{name} unpacks to more than {} MiB: {}",
                    upload.most_bytes >> 20,
                    upload.advice
                ),
            ),
            Self::Bomb => Problem::new(too_large, format!("{name} {UNPACKS_TO_TOO_MUCH}")),
            Self::NoRoom => no_room(upload, room),
        }
    }
}

/// There is no room on the disk for another table.
pub(super) fn no_room(upload: Upload, room: u64) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(
            "there is no room for {} now: those that are read at a time may have {} MiB together; send it again in a while",
            upload.name,
            room >> 20
        ),
    )
}

/// Starts a thread that writes a file of the bytes that it is sent. What is gzipped is unpacked, to `most` bytes, which take room in the pool.
/// The file is removed if its receiver is dropped.
pub(super) fn write_file(
    most: u64,
    on_disk: &Arc<BytePool>,
) -> (
    mpsc::Sender<Bytes>,
    JoinHandle<Result<TableFile, NotWritten>>,
) {
    let (sender, mut parts) = mpsc::channel::<Bytes>(PARTS_AHEAD);
    let room = Reservation::of(on_disk);
    let writer = spawn_blocking(move || {
        // The first two bytes may come one by one.
        let mut first = Vec::new();
        while first.len() < GZIP.len()
            && let Some(part) = parts.blocking_recv()
        {
            first.extend_from_slice(&part);
        }
        let is_gzipped = first.starts_with(&GZIP);
        let rest = std::iter::from_fn(|| parts.blocking_recv());
        let all = std::iter::once(Bytes::from(first)).chain(rest);
        let file = NamedTempFile::new().map_err(NotWritten::Disk)?;
        match is_gzipped {
            true => unpack(all, FileWriter::new(file, Some(Unpacking::new(most, room)))),
            false => copy(all, FileWriter::new(file, None)),
        }
    });
    (sender, writer)
}

fn copy(parts: impl Iterator<Item = Bytes>, mut file: FileWriter) -> Result<TableFile, NotWritten> {
    for part in parts {
        file.write_all(&part).map_err(NotWritten::Disk)?;
    }
    file.finish()
}

fn unpack(parts: impl Iterator<Item = Bytes>, file: FileWriter) -> Result<TableFile, NotWritten> {
    let mut stream = MultiGzDecoder::new(file);
    for part in parts {
        stream.get_mut().note_packed(part.len());
        let written = stream.write_all(&part);
        written.map_err(|error| stream.get_mut().failure_or(error))?;
    }
    let finished = stream.try_finish();
    finished.map_err(|error| stream.get_mut().failure_or(error))?;
    let file = stream.finish().map_err(NotWritten::Damaged)?;
    file.finish()
}

/// What a gzip stream may unpack to.
struct Unpacking {
    most: u64,
    /// Bytes of the stream that have come.
    packed: u64,
    room: Reservation,
}

impl Unpacking {
    fn new(most: u64, room: Reservation) -> Self {
        Self {
            most,
            packed: 0,
            room,
        }
    }

    /// Whether so many bytes may have been unpacked.
    fn check(&mut self, bytes: u64) -> Result<(), NotWritten> {
        if bytes > self.most {
            return Err(NotWritten::TooLarge);
        }
        if unpacks_to_too_much(self.packed, bytes) {
            return Err(NotWritten::Bomb);
        }
        self.room.resize(bytes).map_err(|_| NotWritten::NoRoom)
    }
}

/// Writes a file, and keeps its first bytes.
struct FileWriter {
    file: NamedTempFile,
    head: Vec<u8>,
    bytes: u64,
    unpacking: Option<Unpacking>,
    /// Why it was not written any more.
    failure: Option<NotWritten>,
}

impl FileWriter {
    fn new(file: NamedTempFile, unpacking: Option<Unpacking>) -> Self {
        Self {
            file,
            head: Vec::new(),
            bytes: 0,
            unpacking,
            failure: None,
        }
    }

    fn note_packed(&mut self, bytes: usize) {
        if let Some(unpacking) = &mut self.unpacking {
            unpacking.packed += bytes as u64;
        }
    }

    /// Why the file was not written, or else what is wrong with the stream.
    fn failure_or(&mut self, error: io::Error) -> NotWritten {
        self.failure.take().unwrap_or(NotWritten::Damaged(error))
    }

    fn finish(mut self) -> Result<TableFile, NotWritten> {
        self.file.flush().map_err(NotWritten::Disk)?;
        Ok(TableFile {
            file: self.file,
            head: self.head,
            bytes: self.bytes,
            unpacked: self.unpacking.map(|unpacking| unpacking.room),
        })
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(unpacking) = &mut self.unpacking
            && let Err(failure) = unpacking.check(self.bytes + bytes.len() as u64)
        {
            self.failure = Some(failure);
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let written = match self.file.write(bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                let kind = error.kind();
                // A plain file has its error from here.
                if self.unpacking.is_none() {
                    return Err(error);
                }
                self.failure = Some(NotWritten::Disk(error));
                return Err(kind.into());
            }
        };
        let missing = SNIFFED.saturating_sub(self.head.len()).min(written);
        self.head.extend_from_slice(&bytes[..missing]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const MOST: u64 = 32 << 20;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    /// Writes bytes that come in parts of this length.
    async fn written(
        bytes: &[u8],
        length: usize,
        pool: &Arc<BytePool>,
    ) -> Result<TableFile, NotWritten> {
        let (parts, writer) = write_file(MOST, pool);
        for part in bytes.chunks(length) {
            if parts.send(Bytes::copy_from_slice(part)).await.is_err() {
                break;
            }
        }
        drop(parts);
        writer.await.unwrap()
    }

    #[tokio::test]
    async fn what_is_gzipped_is_unpacked() {
        let pool = BytePool::new(MOST);
        let rows = b"ra,dec\n1,2\n".repeat(1000);
        // A stream may have several members.
        let (first, second) = rows.split_at(1234);
        let members = [gzip(first), gzip(second)].concat();
        for (sent, is_packed) in [(&rows, false), (&gzip(&rows), true), (&members, true)] {
            for length in [1, 7, 1 << 20] {
                let file = written(sent, length, &pool).await.unwrap();
                assert_eq!(std::fs::read(file.file.path()).unwrap(), rows);
                assert_eq!(file.bytes, rows.len() as u64);
                assert_eq!(file.head, rows[..SNIFFED]);
                assert_eq!(file.unpacked.is_some(), is_packed);
                assert_eq!(pool.used(), if is_packed { file.bytes } else { 0 });
            }
        }
        assert_eq!(pool.used(), 0);
        let empty = written(&gzip(b""), 100, &pool).await.unwrap();
        assert_eq!(empty.bytes, 0);
        let short = written(b"x", 100, &pool).await.unwrap();
        assert_eq!((short.bytes, short.head.as_slice()), (1, &b"x"[..]));
    }

    /// Bytes that do not shrink.
    fn noise(length: usize) -> Vec<u8> {
        let mut random = 7_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[tokio::test]
    async fn what_unpacks_to_too_much_is_not_kept() {
        let pool = BytePool::new(MOST + 1);
        let bomb = written(&gzip(&vec![0; 20 << 20]), 1000, &pool).await;
        assert!(matches!(bomb, Err(NotWritten::Bomb)), "{bomb:?}");
        let large = gzip(&noise(MOST as usize + 1));
        let too_large = written(&large, 1 << 20, &pool).await;
        assert!(
            matches!(too_large, Err(NotWritten::TooLarge)),
            "{too_large:?}"
        );
        let full = written(&gzip(&noise(1000)), 100, &BytePool::new(999)).await;
        assert!(matches!(full, Err(NotWritten::NoRoom)), "{full:?}");
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn what_is_damaged_is_told() {
        let pool = BytePool::new(MOST);
        let whole = gzip(&noise(1000));
        let behind = [whole.as_slice(), b"more"].concat();
        let mut changed = whole.clone();
        changed[500] ^= 1;
        for bytes in [
            &whole[..2],
            &whole[..900],
            &behind,
            &changed,
            b"\x1f\x8bra,dec",
        ] {
            let outcome = written(bytes, 100, &pool).await;
            assert!(
                matches!(outcome, Err(NotWritten::Damaged(_))),
                "{outcome:?}"
            );
        }
    }
}
