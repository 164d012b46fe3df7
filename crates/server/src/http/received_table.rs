//! Uploaded tables, as lists of positions: how they are received and stored, and how much disk and memory they may take.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::users::Limit;
use axum::body::Body;
use catalog::Column;
use engine::{EngineError, ReceivedFile, ReceivedFiles};
use futures::StreamExt;
use ingest::{BytePool, DecodeBudget, DecodeLimits, FileFormat, Reservation};
use sql::{Dialect, SqlError};
use tempfile::NamedTempFile;
use tokio::sync::Semaphore;

use crate::http::problem::Problem;
use crate::http::table_file::{NotWritten, no_room, write_file};
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
    /// Receives a table, and unpacks it if it is gzipped.
    ///
    /// # Errors
    /// It is incomplete, too slow or too long, cannot be unpacked or unpacks to too much, or the storage is full.
    pub(super) async fn receive(
        body: Body,
        upload: Upload,
        room: &TableRoom,
    ) -> Result<Self, Problem> {
        let mut on_disk = Reservation::of(&room.on_disk);
        let (parts, writer) = write_file(upload.most_bytes, &room.on_disk);
        let most = room.usage.limit(Limit::Upload);
        let mut pace = UploadRate::new(upload, room.patience).within(most);
        let mut body = body.into_data_stream();
        while let Some(part) = pace.next(body.next()).await? {
            let part =
                part.map_err(|_| Problem::bad(format!("{} was not sent to its end", upload.name)))?;
            pace.count(part.len())?;
            let reserved = on_disk.resize(pace.bytes());
            reserved.map_err(|_| no_room(upload, ROOM_ON_DISK))?;
            if parts.send(part).await.is_err() {
                // The writer reports its own error.
                break;
            }
        }
        drop(parts);
        let written = writer.await;
        let written = written.unwrap_or_else(|error| Err(NotWritten::Disk(error.into())));
        let written = written.map_err(|error| error.problem(upload, ROOM_ON_DISK))?;
        if written.bytes == 0 {
            return Err(Problem::bad(format!(
                "{} is empty: send its rows",
                upload.name
            )));
        }
        Ok(Self {
            format: FileFormat::of_beginning(&written.head),
            file: written.file,
            budget: room.budget(),
            // Of what was unpacked nothing else is on the disk.
            _on_disk: written.unpacked.unwrap_or(on_disk),
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::num::NonZeroUsize;

    use axum::body::Bytes;
    use axum::http::StatusCode;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

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
    /// A VOTable, FITS or CSV that came gzipped was refused or not recognised.
    #[tokio::test]
    async fn a_gzipped_list_is_what_it_is_without_gzip() {
        let room = room(Duration::from_secs(5));
        for (list, format) in [
            (&b"<VOTABLE>"[..], FileFormat::VoTable),
            (b"SIMPLE  = ", FileFormat::Fits),
            (b"PAR1", FileFormat::Parquet),
            (b"ra,dec\n", FileFormat::Text),
        ] {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(list).unwrap();
            let body = Body::from(packed.finish().unwrap());
            let received = ReceivedTable::receive(body, LIST, &room).await.unwrap();
            assert_eq!(received.format(), format);
            assert_eq!(std::fs::read(received.path()).unwrap(), list);
            assert_eq!(room.on_disk.used(), list.len() as u64);
        }
        let empty = GzEncoder::new(Vec::new(), Compression::default());
        let body = Body::from(empty.finish().unwrap());
        let problem = ReceivedTable::receive(body, LIST, &room).await.unwrap_err();
        assert!(problem.sentence.contains("is empty"), "{problem:?}");
    }
}
