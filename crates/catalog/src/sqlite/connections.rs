//! The connections of one process to one catalog file: how they are opened where the directory can be written, and where
//! it can only be read.
//!
//! In write-ahead mode even a reader writes: the wal-index, where readers mark what they still need. Where that cannot be,
//! on a file system that is mounted read-only or for a user who has only read permission, the file is opened as
//! *immutable*: no locks, no log, and nothing that is written later is seen. So before each query the file is looked at,
//! and if somebody with more rights has changed it, it is opened anew. A log that holds changes is read through the
//! wal-index of whoever writes it; if there is none, nobody can read these changes, and that is an error.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};

use crate::CatalogError;
use crate::access::may_write;

/// How long a writer waits for the other writers. A transaction takes well under a second, so this is
/// the patience for a long queue of them on a slow disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections of one process. Each has a thread; statements are short. They stay open as long as the catalog does.
const CONNECTIONS: u32 = 4;

/// How a catalog's file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// For reading and writing.
    Shared,
    /// For reading while another process writes the log.
    BesideWriter,
    /// For reading while no process writes.
    Immutable,
}

impl Mode {
    /// What suits the file now.
    pub(super) fn of(path: &Path) -> Self {
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let directory = parent.unwrap_or(Path::new("."));
        // A file that is not there is made.
        if may_write(directory) && (may_write(path) || !path.exists()) {
            return Self::Shared;
        }
        if log_len(path) > 0 {
            return Self::BesideWriter;
        }
        Self::Immutable
    }
}

/// The catalog's write-ahead log.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// What the system says of a file: its number, length and time of change in seconds and nanoseconds.
pub(super) type FileState = [i64; 4];

/// What the system says of the database file; `None` if it is gone.
pub(super) fn file_state(database: &Path) -> Option<FileState> {
    let file = database.metadata().ok()?;
    // Numbers and lengths beyond 2^63 wrap, and still tell files apart.
    let [number, length] = [file.ino(), file.len()].map(|it| it as i64);
    Some([number, length, file.mtime(), file.mtime_nsec()])
}

/// Bytes of the log; 0 if there is none.
pub(super) fn log_len(path: &Path) -> u64 {
    std::fs::metadata(log_path(path)).map_or(0, |log| log.len())
}

/// How SQLite is to open the file at `path`.
pub(super) fn options(path: &Path, mode: Mode) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true);
    match mode {
        Mode::Shared => options.synchronous(SqliteSynchronous::Full),
        Mode::BesideWriter => options.read_only(true),
        Mode::Immutable => options.read_only(true).immutable(true),
    }
}

/// For `map_err` where the first statement fails in a mode.
pub(super) fn unless_unreadable(
    path: &Path,
    mode: Mode,
) -> impl FnOnce(sqlx::Error) -> CatalogError {
    let path = path.to_owned();
    move |error| match mode {
        Mode::BesideWriter => CatalogError::UnreadableLog {
            path: log_path(&path),
        },
        Mode::Shared | Mode::Immutable => error.into(),
    }
}

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Connections {
    path: PathBuf,
    now: Mutex<OpenConnection>,
}

#[derive(Debug, Clone)]
struct OpenConnection {
    pool: SqlitePool,
    mode: Mode,
    /// The file as it was when it was opened; of interest where changes are not noticed otherwise.
    seen: Option<FileState>,
}

impl Connections {
    pub(super) async fn open(path: PathBuf) -> Result<Self, CatalogError> {
        let now = Mutex::new(OpenConnection::new(&path).await?);
        Ok(Self { path, now })
    }

    /// Whether changes are rejected.
    pub(super) fn is_read_only(&self) -> bool {
        self.mode() != Mode::Shared
    }

    fn mode(&self) -> Mode {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).mode
    }

    fn opened(&self) -> OpenConnection {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    /// Connections that see the catalog as it is now.
    pub(super) async fn pool(&self) -> Result<SqlitePool, CatalogError> {
        let OpenConnection { pool, mode, seen } = self.opened();
        if mode == Mode::Shared || pool.is_closed() || (seen == file_state(&self.path)) {
            return Ok(pool);
        }
        // A concurrent caller opens it too; the last connection stays.
        let fresh = OpenConnection::new(&self.path).await?;
        let pool = fresh.pool.clone();
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(pool)
    }

    /// The connections as they are.
    pub(super) fn current_pool(&self) -> SqlitePool {
        self.opened().pool
    }
}

impl OpenConnection {
    async fn new(path: &Path) -> Result<Self, CatalogError> {
        let mode = Mode::of(path);
        // Looked at before it is opened: what changes in between is noticed by the next query.
        let seen = file_state(path);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options(path, mode))
            .await?;
        let probe = sqlx::query("SELECT count(*) FROM sqlite_schema");
        if let Err(error) = probe.execute(&pool).await {
            return Err(unless_unreadable(path, mode)(error));
        }
        Ok(Self { pool, mode, seen })
    }
}
