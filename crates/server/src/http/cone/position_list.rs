//! Uploaded lists of positions: how they are received and stored, and how much disk and memory they may take.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use engine::{EngineError, ReceivedFile, ReceivedFiles};
use futures::StreamExt;
use ingest::{BytePool, DecodeBudget, DecodeLimits, FileFormat, Reservation};
use sql::{ErrorCode, SqlError};
use tempfile::NamedTempFile;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::http::problem::Problem;
use crate::http::upload::{Upload, UploadRate};

/// What is uploaded here.
const LIST: Upload = Upload {
    name: "the list",
    most_bytes: 256 << 20,
    advice: "send it in parts",
};
/// Bytes of disk for all lists together.
const ROOM_ON_DISK: u64 = 1 << 30;
/// Bytes of decoded rows of one list.
const MOST_DECODED: u64 = 256 << 20;
/// The decoded rows of all lists may take this fraction of the statements' memory, within the limits below.
const PART_OF_MEMORY: u64 = 4;
const ROOM_DECODED: std::ops::RangeInclusive<u64> = 32 << 20..=4 << 30;
/// Bytes of one row of a list.
const LONGEST_ROW: usize = 8 << 20;
/// Columns of a list; the table's columns are added to them.
const MOST_COLUMNS: usize = 1000;
/// Lists that are opened concurrently; the others wait.
const LOOKED_AT: usize = 2;
/// Bytes by which the format of a list is recognised.
const SNIFFED: usize = 4;
/// Blocks of a list that wait to be written to its file.
const PARTS_AHEAD: usize = 4;

/// The storage for uploaded lists.
#[derive(Debug)]
pub(crate) struct ListRoom {
    on_disk: Arc<BytePool>,
    decoded: Arc<BytePool>,
    files: Arc<ReceivedFiles>,
    /// Limits how many lists are opened concurrently, which takes a processor.
    looked_at: Semaphore,
    /// How long nothing may arrive of a list, and how long it may be slow.
    patience: Duration,
}

impl ListRoom {
    /// `memory` is that of all statements together.
    pub(crate) fn new(memory: u64, files: Arc<ReceivedFiles>, patience: Duration) -> Self {
        let decoded = memory / PART_OF_MEMORY;
        Self {
            on_disk: BytePool::new(ROOM_ON_DISK),
            decoded: BytePool::new(decoded.clamp(*ROOM_DECODED.start(), *ROOM_DECODED.end())),
            files,
            looked_at: Semaphore::new(LOOKED_AT),
            patience,
        }
    }

    /// Opens a list, which statements may name from then on.
    ///
    /// # Errors
    /// The list cannot be read, or not within its budget.
    pub(super) async fn open(&self, list: &PositionList) -> Result<ReceivedFile, EngineError> {
        // The semaphore is never closed.
        let _turn = self.looked_at.acquire().await;
        let (files, path) = (Arc::clone(&self.files), list.file.path().to_path_buf());
        let (format, budget) = (list.format, list.budget.clone());
        let opened = spawn_blocking(move || files.open(&path, format, budget)).await;
        opened.unwrap_or_else(|error| {
            let sentence =
                format!("the server panicked while it read the list, which is a bug: {error}");
            Err(SqlError::new(sentence)
                .with_code(ErrorCode::INTERNAL)
                .into())
        })
    }

    fn budget(&self) -> DecodeBudget {
        let limits = DecodeLimits {
            bytes: self.decoded.limit().min(MOST_DECODED),
            row_bytes: LONGEST_ROW,
            columns: MOST_COLUMNS,
        };
        DecodeBudget::new(limits, &self.decoded)
    }
}

/// An uploaded list of positions, whose file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct PositionList {
    file: NamedTempFile,
    format: FileFormat,
    budget: DecodeBudget,
    _on_disk: Reservation,
}

/// Cancels the decoding of a list when it is dropped. The response holds it, so that decoding ends when the client leaves.
#[derive(Debug)]
pub(super) struct DecodingGuard(DecodeBudget);

impl Drop for DecodingGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl PositionList {
    /// Receives a list.
    ///
    /// # Errors
    /// The list is incomplete, too slow or too long, or its storage is full.
    pub(super) async fn receive(body: Body, room: &ListRoom) -> Result<Self, Problem> {
        let mut on_disk = Reservation::of(&room.on_disk);
        let (results, writer) = write_file();
        let mut head = Vec::new();
        let mut pace = UploadRate::new(LIST, room.patience);
        let mut body = body.into_data_stream();
        while let Some(part) = pace.next(body.next()).await? {
            let part = part.map_err(|_| Problem::bad("the list was not sent to its end"))?;
            pace.count(part.len())?;
            on_disk.resize(pace.bytes()).map_err(|_| no_room())?;
            let missing = SNIFFED.saturating_sub(head.len()).min(part.len());
            head.extend_from_slice(&part[..missing]);
            if results.send(part).await.is_err() {
                // The writer reports its own error.
                break;
            }
        }
        drop(results);
        let written = writer.await.map_err(std::io::Error::other);
        let file = written.and_then(|file| file).map_err(not_kept)?;
        if pace.bytes() == 0 {
            return Err(Problem::bad(
                "there is no list: send one as the request's body, as with curl --data-binary @positions.csv",
            ));
        }
        Ok(Self {
            format: format_of(&head),
            file,
            budget: room.budget(),
            _on_disk: on_disk,
        })
    }

    /// The path of its file.
    pub(super) fn path(&self) -> String {
        self.file.path().display().to_string()
    }

    /// The list as a table function in FROM.
    pub(super) fn as_table(&self) -> String {
        let path = self.path().replace('\\', "\\\\").replace('\'', "''");
        let function = match self.format {
            FileFormat::Parquet => "read_parquet",
            FileFormat::Text => "read_csv",
            FileFormat::VoTable => "read_votable",
        };
        format!("{function}('{path}')")
    }

    /// The guard that the response has to hold.
    pub(super) fn decoding_guard(&self) -> DecodingGuard {
        DecodingGuard(self.budget.clone())
    }
}

/// Starts a thread that writes a file and may block on the disk. The file is removed if its receiver is dropped.
fn write_file() -> (
    mpsc::Sender<Bytes>,
    JoinHandle<std::io::Result<NamedTempFile>>,
) {
    let (sender, mut results) = mpsc::channel::<Bytes>(PARTS_AHEAD);
    let writer = spawn_blocking(move || {
        let mut file = NamedTempFile::new()?;
        while let Some(part) = results.blocking_recv() {
            file.write_all(&part)?;
        }
        file.flush()?;
        Ok(file)
    });
    (sender, writer)
}

fn no_room() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(
            "there is no room for the list now: the lists that are matched at a time may have {} MiB together; send it again in a \
             while",
            ROOM_ON_DISK >> 20
        ),
    )
}

fn not_kept(error: std::io::Error) -> Problem {
    let sentence = format!("the list cannot be kept while it is read: {error}");
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, sentence)
}

/// The format of a file that begins with these bytes.
fn format_of(head: &[u8]) -> FileFormat {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    match text.trim_ascii_start().first() {
        _ if head.starts_with(b"PAR1") => FileFormat::Parquet,
        Some(b'<') => FileFormat::VoTable,
        _ => FileFormat::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_known_by_their_beginning() {
        assert_eq!(format_of(b"PAR1"), FileFormat::Parquet);
        assert_eq!(format_of(b"\n <V"), FileFormat::VoTable);
        assert_eq!(format_of(b"\xef\xbb\xbf<"), FileFormat::VoTable);
        assert_eq!(format_of(b"ra,d"), FileFormat::Text);
        assert_eq!(format_of(b""), FileFormat::Text);
    }

    fn room(patience: Duration) -> ListRoom {
        ListRoom::new(0, Arc::default(), patience)
    }

    #[tokio::test]
    async fn a_list_that_stops_coming_is_not_waited_for() {
        let endless = Body::from_stream(
            futures::stream::once(async {
                Ok::<_, std::convert::Infallible>(Bytes::from_static(b"ra,dec\n"))
            })
            .chain(futures::stream::pending()),
        );
        let room = room(Duration::from_millis(50));
        let problem = PositionList::receive(endless, &room).await.unwrap_err();
        assert_eq!(problem.status, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(room.on_disk.used(), 0);
    }

    #[tokio::test]
    async fn a_list_that_trickles_is_not_waited_for() {
        let trickle = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((
                Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")),
                (),
            ))
        });
        let room = room(Duration::from_millis(500));
        let problem = PositionList::receive(Body::from_stream(trickle), &room).await;
        let problem = problem.unwrap_err();
        assert_eq!(problem.status, StatusCode::REQUEST_TIMEOUT);
        assert!(problem.sentence.contains("slower than"), "{problem:?}");
    }

    #[tokio::test]
    async fn a_list_takes_room_while_it_is_there() {
        let room = room(Duration::from_secs(5));
        let list = PositionList::receive(Body::from("ra,dec\n1,2\n"), &room).await;
        let list = list.unwrap();
        assert_eq!(room.on_disk.used(), 11);
        assert!(list.as_table().starts_with("read_csv('"));
        let path = list.path();
        drop(list);
        assert_eq!(room.on_disk.used(), 0);
        assert!(!std::path::Path::new(&path).exists());
    }
}
