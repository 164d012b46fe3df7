//! Lists of positions that are sent: how they come, where they lie meanwhile, and how much of the machine they may take.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use engine::{EngineError, ReceivedFile, ReceivedFiles};
use futures::StreamExt;
use ingest::{BytePool, DecodeBudget, DecodeLimits, FileFormat, Reservation};
use sql::{ErrorCode, SqlError};
use tempfile::NamedTempFile;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::http::problem::Problem;

/// The longest list that is taken.
const LONGEST_LIST: u64 = 256 << 20;
/// Bytes of disk for all lists that there are at a time.
const ROOM_ON_DISK: u64 = 1 << 30;
/// Bytes of decoded rows of one list.
const MOST_DECODED: u64 = 256 << 20;
/// Of the memory for statements, the part that the decoded rows of all lists may have, and between how much.
const PART_OF_MEMORY: u64 = 4;
const ROOM_DECODED: std::ops::RangeInclusive<u64> = 32 << 20..=4 << 30;
/// Bytes of one row of a list.
const LONGEST_ROW: usize = 8 << 20;
/// Columns of a list; the table's come beside them.
const MOST_COLUMNS: usize = 1000;
/// Lists that are looked at at a time; the others wait.
const LOOKED_AT: usize = 2;
/// Bytes by which lists are told apart.
const SNIFFED: usize = 4;
/// Parts of a list that wait to be written to its file.
const PARTS_AHEAD: usize = 4;
/// Bytes of a second, of a list that comes slowly.
const LEAST_RATE: u64 = 1 << 10;

/// The room for lists.
#[derive(Debug)]
pub(crate) struct ListRoom {
    on_disk: Arc<BytePool>,
    decoded: Arc<BytePool>,
    files: Arc<ReceivedFiles>,
    /// Lists that are looked at at a time, which takes a processor.
    looked_at: Semaphore,
    /// How long nothing may come of a list, and how long it may be slow.
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

    /// Looks at a list, which statements may name from then on.
    ///
    /// # Errors
    /// It cannot be read, or not within its budget.
    pub(super) async fn open(&self, list: &List) -> Result<ReceivedFile, EngineError> {
        // It is never closed.
        let _turn = self.looked_at.acquire().await;
        let (files, path) = (Arc::clone(&self.files), list.file.path().to_path_buf());
        let (format, budget) = (list.format, list.budget.clone());
        let opened = spawn_blocking(move || files.open(&path, format, budget)).await;
        opened.unwrap_or_else(|error| {
            let sentence = format!("the server stumbled over the list: {error}");
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

/// A list of positions that was sent, in a file that goes when this goes.
#[derive(Debug)]
pub(super) struct List {
    file: NamedTempFile,
    format: FileFormat,
    budget: DecodeBudget,
    _on_disk: Reservation,
}

/// Ends the decoding of a list when it goes: it is held by whoever sends the answer, and goes with the client.
#[derive(Debug)]
pub(super) struct EndsDecoding(DecodeBudget);

impl Drop for EndsDecoding {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl List {
    /// Takes a list as it comes.
    ///
    /// # Errors
    /// It does not come to its end, comes too slowly, is too long, or there is no room for it.
    pub(super) async fn receive(body: Body, room: &ListRoom) -> Result<Self, Problem> {
        let mut on_disk = Reservation::of(&room.on_disk);
        let (parts, writer) = write_file();
        let mut head = Vec::new();
        let mut pace = Pace::new(room.patience);
        let mut body = body.into_data_stream();
        while let Some(part) = pace.next(body.next()).await? {
            let part = part.map_err(|_| Problem::bad("the list was not sent to its end"))?;
            pace.count(part.len())?;
            on_disk.resize(pace.bytes).map_err(|_| no_room())?;
            let missing = SNIFFED.saturating_sub(head.len()).min(part.len());
            head.extend_from_slice(&part[..missing]);
            if parts.send(part).await.is_err() {
                // What the writer could not do it says itself.
                break;
            }
        }
        drop(parts);
        let written = writer.await.map_err(std::io::Error::other);
        let file = written.and_then(|file| file).map_err(not_kept)?;
        if pace.bytes == 0 {
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

    /// Where it lies meanwhile.
    pub(super) fn path(&self) -> String {
        self.file.path().display().to_string()
    }

    /// The list in FROM.
    pub(super) fn as_table(&self) -> String {
        let path = self.path().replace('\\', "\\\\").replace('\'', "''");
        let function = match self.format {
            FileFormat::Parquet => "read_parquet",
            FileFormat::Text => "read_csv",
            FileFormat::VoTable => "read_votable",
        };
        format!("{function}('{path}')")
    }

    /// To be held by whoever sends the answer.
    pub(super) fn ends_decoding(&self) -> EndsDecoding {
        EndsDecoding(self.budget.clone())
    }
}

/// Writes a file on a thread that may wait for the disk. Where nobody waits for the file, it goes.
fn write_file() -> (
    mpsc::Sender<Bytes>,
    JoinHandle<std::io::Result<NamedTempFile>>,
) {
    let (sender, mut parts) = mpsc::channel::<Bytes>(PARTS_AHEAD);
    let writer = spawn_blocking(move || {
        let mut file = NamedTempFile::new()?;
        while let Some(part) = parts.blocking_recv() {
            file.write_all(&part)?;
        }
        file.flush()?;
        Ok(file)
    });
    (sender, writer)
}

/// How a list comes.
struct Pace {
    begun: Instant,
    bytes: u64,
    patience: Duration,
}

impl Pace {
    fn new(patience: Duration) -> Self {
        Self {
            begun: Instant::now(),
            bytes: 0,
            patience,
        }
    }

    /// What comes next, if it does in time.
    async fn next<T>(&self, next: impl Future<Output = T>) -> Result<T, Problem> {
        timeout(self.patience, next).await.map_err(|_| {
            let seconds = self.patience.as_secs_f64();
            Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("nothing more of the list came for {seconds} s: send it again"),
            )
        })
    }

    /// Counts what has come.
    fn count(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes += bytes as u64;
        if self.bytes > LONGEST_LIST {
            let sentence = format!(
                "the list is longer than {} MiB: send it in parts",
                LONGEST_LIST >> 20
            );
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, sentence));
        }
        let slow = self.begun.elapsed().saturating_sub(self.patience);
        if self.bytes < slow.as_secs() * LEAST_RATE {
            let sentence =
                format!("the list came slower than {LEAST_RATE} bytes a second: send it again");
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, sentence));
        }
        Ok(())
    }
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

/// How a file is written that begins so.
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
        let problem = List::receive(endless, &room).await.unwrap_err();
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
        let problem = List::receive(Body::from_stream(trickle), &room).await;
        let problem = problem.unwrap_err();
        assert_eq!(problem.status, StatusCode::REQUEST_TIMEOUT);
        assert!(problem.sentence.contains("slower than"), "{problem:?}");
    }

    #[tokio::test]
    async fn a_list_takes_room_while_it_is_there() {
        let room = room(Duration::from_secs(5));
        let list = List::receive(Body::from("ra,dec\n1,2\n"), &room).await;
        let list = list.unwrap();
        assert_eq!(room.on_disk.used(), 11);
        assert!(list.as_table().starts_with("read_csv('"));
        let path = list.path();
        drop(list);
        assert_eq!(room.on_disk.used(), 0);
        assert!(!std::path::Path::new(&path).exists());
    }
}
