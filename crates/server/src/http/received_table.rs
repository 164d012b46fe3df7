//! Uploaded tables, as lists of positions: how they are received and stored, and how much disk and memory they may take.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::users::Limit;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use catalog::Column;
use engine::{EngineError, ReceivedFile, ReceivedFiles};
use futures::StreamExt;
use ingest::{BytePool, DecodeBudget, DecodeLimits, FileFormat, Reservation};
use sql::{Dialect, SqlError};
use tempfile::NamedTempFile;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::http::problem::Problem;
use crate::http::upload::{Upload, UploadRate};
use crate::query_runtime::QueryRuntime;
use crate::usage::Usage;

/// Bytes of the longest table that is accepted.
pub(super) const LONGEST_TABLE: u64 = 256 << 20;
/// Bytes of disk for all tables together.
const ROOM_ON_DISK: u64 = 1 << 30;
/// Bytes of decoded rows of one table.
const MOST_DECODED: u64 = 256 << 20;
/// The decoded rows of all tables may take this fraction of the statements' memory, within the limits below.
const PART_OF_MEMORY: u64 = 4;
const ROOM_DECODED: std::ops::RangeInclusive<u64> = 32 << 20..=4 << 30;
/// Bytes of one row of a table.
const LONGEST_ROW: usize = 8 << 20;
/// Columns of a table; in a match the other table's are added to them.
const MOST_COLUMNS: usize = 1000;
/// Tables that are opened concurrently; the others wait.
const LOOKED_AT: usize = 2;
/// Bytes by which the format of a table is recognised.
const SNIFFED: usize = 8;
/// Blocks of a table that wait to be written to its file.
const PARTS_AHEAD: usize = 4;

/// The storage for uploaded tables.
#[derive(Debug, Clone)]
pub(crate) struct TableRoom {
    on_disk: Arc<BytePool>,
    decoded: Arc<BytePool>,
    files: Arc<ReceivedFiles>,
    /// Limits how many tables are opened concurrently, which takes a processor.
    looked_at: Arc<Semaphore>,
    /// How long nothing may arrive of a table, and how long it may be slow.
    patience: Duration,
    /// What the user takes who sends them.
    usage: Arc<Usage>,
    /// Where tables are opened.
    query_runtime: Arc<QueryRuntime>,
}

impl TableRoom {
    /// `memory` is that of all statements together.
    pub(crate) fn new(
        memory: u64,
        files: Arc<ReceivedFiles>,
        patience: Duration,
        query_runtime: Arc<QueryRuntime>,
    ) -> Self {
        let decoded = memory / PART_OF_MEMORY;
        Self {
            on_disk: BytePool::new(ROOM_ON_DISK),
            decoded: BytePool::new(decoded.clamp(*ROOM_DECODED.start(), *ROOM_DECODED.end())),
            files,
            looked_at: Arc::new(Semaphore::new(LOOKED_AT)),
            patience,
            usage: Arc::default(),
            query_runtime,
        }
    }

    /// The same storage, for tables of a user.
    pub(super) fn for_user(&self, usage: &Arc<Usage>) -> Self {
        Self {
            usage: Arc::clone(usage),
            ..self.clone()
        }
    }

    /// Opens a table, which statements may name from then on.
    ///
    /// # Errors
    /// The table cannot be read, or not within its budget.
    pub(super) async fn open(&self, table: &ReceivedTable) -> Result<ReceivedFile, EngineError> {
        self.open_for(table, None).await
    }

    /// The same for the columns of a table that gets its rows: those of a text have their types.
    pub(super) async fn open_for(
        &self,
        table: &ReceivedTable,
        columns: Option<Vec<Column>>,
    ) -> Result<ReceivedFile, EngineError> {
        // The semaphore is never closed.
        let _turn = self.looked_at.acquire().await;
        let path = table.file.path().to_path_buf();
        self.open_file(path, table.format, columns, table.budget.clone())
            .await
    }

    /// Opens a file that was received before.
    ///
    /// # Errors
    /// It cannot be read, or not within its budget.
    pub(super) async fn reopen(
        &self,
        path: PathBuf,
        format: FileFormat,
    ) -> Result<ReceivedFile, EngineError> {
        let _turn = self.looked_at.acquire().await;
        self.open_file(path, format, None, self.budget()).await
    }

    async fn open_file(
        &self,
        path: PathBuf,
        format: FileFormat,
        columns: Option<Vec<Column>>,
        budget: DecodeBudget,
    ) -> Result<ReceivedFile, EngineError> {
        let files = Arc::clone(&self.files);
        let opening = move || files.open(&path, format, columns.as_deref(), budget);
        self.query_runtime
            .compute_aside(opening)
            .await
            .map_err(|error| SqlError::new(error.sentence).with_code(error.code))?
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

/// An uploaded table, whose file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ReceivedTable {
    file: NamedTempFile,
    format: FileFormat,
    budget: DecodeBudget,
    _on_disk: Reservation,
}

/// Cancels the decoding of a table when it is dropped. The response holds it, so that decoding ends when the client leaves.
#[derive(Debug)]
pub(super) struct DecodingGuard(DecodeBudget);

impl Drop for DecodingGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl ReceivedTable {
    /// Receives a table.
    ///
    /// # Errors
    /// It is incomplete, too slow or too long, or the storage is full.
    pub(super) async fn receive(
        body: Body,
        upload: Upload,
        room: &TableRoom,
    ) -> Result<Self, Problem> {
        let mut on_disk = Reservation::of(&room.on_disk);
        let (results, writer) = write_file();
        let mut head = Vec::new();
        let most = room.usage.limit(Limit::Upload);
        let mut pace = UploadRate::new(upload, room.patience).within(most);
        let mut body = body.into_data_stream();
        while let Some(part) = pace.next(body.next()).await? {
            let part =
                part.map_err(|_| Problem::bad(format!("{} was not sent to its end", upload.name)))?;
            pace.count(part.len())?;
            on_disk.resize(pace.bytes()).map_err(|_| no_room(upload))?;
            let missing = SNIFFED.saturating_sub(head.len()).min(part.len());
            head.extend_from_slice(&part[..missing]);
            if results.send(part).await.is_err() {
                // The writer reports its own error.
                break;
            }
        }
        drop(results);
        let written = writer.await.map_err(std::io::Error::other);
        let file = written
            .and_then(|file| file)
            .map_err(|error| not_kept(upload, &error))?;
        if pace.bytes() == 0 {
            return Err(Problem::bad(format!(
                "{} is empty: send its rows, as with curl --data-binary @positions.csv",
                upload.name
            )));
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

    /// What its file is.
    pub(super) fn format(&self) -> FileFormat {
        self.format
    }

    /// The table as a function in FROM, in a dialect.
    pub(super) fn as_table(&self, dialect: Dialect) -> String {
        table_function(self.format, &self.path(), dialect)
    }

    /// The guard that the response has to hold.
    pub(super) fn decoding_guard(&self) -> DecodingGuard {
        DecodingGuard(self.budget.clone())
    }
}

/// A file as a function in FROM, in a dialect.
pub(super) fn table_function(format: FileFormat, path: &str, dialect: Dialect) -> String {
    let path = match dialect {
        Dialect::MySql => path.replace('\\', "\\\\"),
        Dialect::Adql => path.to_owned(),
    };
    let function = format.function();
    format!("{function}('{}')", path.replace('\'', "''"))
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

fn no_room(upload: Upload) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!(
            "there is no room for {} now: those that are read at a time may have {} MiB together; send it again in a while",
            upload.name,
            ROOM_ON_DISK >> 20
        ),
    )
}

fn not_kept(upload: Upload, error: &std::io::Error) -> Problem {
    let sentence = format!("{} cannot be kept while it is read: {error}", upload.name);
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, sentence)
}

/// The format of a file that begins with these bytes.
fn format_of(head: &[u8]) -> FileFormat {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    match text.trim_ascii_start().first() {
        _ if head.starts_with(b"PAR1") => FileFormat::Parquet,
        _ if head.starts_with(b"SIMPLE  ") => FileFormat::Fits,
        // Which is not read of clients: the sentence says so.
        _ if head.starts_with(b"ARROW1") || head.starts_with(&[0xff; 4]) => FileFormat::Arrow,
        Some(b'<') => FileFormat::VoTable,
        _ => FileFormat::Text,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn lists_are_known_by_their_beginning() {
        assert_eq!(format_of(b"PAR1"), FileFormat::Parquet);
        assert_eq!(format_of(b"\n <V"), FileFormat::VoTable);
        assert_eq!(format_of(b"\xef\xbb\xbf<"), FileFormat::VoTable);
        assert_eq!(format_of(b"SIMPLE  = T"), FileFormat::Fits);
        assert_eq!(format_of(b"ARROW1\0\0"), FileFormat::Arrow);
        assert_eq!(format_of(b"\xff\xff\xff\xff\x10"), FileFormat::Arrow);
        assert_eq!(format_of(b"ra,d"), FileFormat::Text);
        assert_eq!(format_of(b""), FileFormat::Text);
    }

    const LIST: Upload = Upload {
        name: "the list",
        most_bytes: LONGEST_TABLE,
        advice: "send it in parts",
    };

    fn room(patience: Duration) -> TableRoom {
        let query_runtime = QueryRuntime::new(NonZeroUsize::MIN).unwrap();
        TableRoom::new(0, Arc::default(), patience, Arc::new(query_runtime))
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
        let problem = ReceivedTable::receive(endless, LIST, &room)
            .await
            .unwrap_err();
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
        let problem = ReceivedTable::receive(Body::from_stream(trickle), LIST, &room).await;
        let problem = problem.unwrap_err();
        assert_eq!(problem.status, StatusCode::REQUEST_TIMEOUT);
        assert!(problem.sentence.contains("slower than"), "{problem:?}");
    }

    #[tokio::test]
    async fn a_list_takes_room_while_it_is_there() {
        let room = room(Duration::from_secs(5));
        let list = ReceivedTable::receive(Body::from("ra,dec\n1,2\n"), LIST, &room).await;
        let list = list.unwrap();
        assert_eq!(room.on_disk.used(), 11);
        assert!(list.as_table(Dialect::MySql).starts_with("read_csv('"));
        let path = list.path();
        drop(list);
        assert_eq!(room.on_disk.used(), 0);
        assert!(!std::path::Path::new(&path).exists());
    }
}
