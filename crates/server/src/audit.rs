//! The audit log: a line of JSON for each statement, request and login.
//!
//! ```text
//!   statements, requests, logins ──► a queue of bounded length ──► a thread ──► FILE, FILE.1, FILE.2, ...
//! ```
//!
//! Whoever adds a line never waits: where the queue is full, or the file cannot be written, the line is lost. How many were lost is said in
//! the server's log, and in the audit log itself as soon as it can be written again.

mod file;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sql::ErrorCode;
use tracing::{error, info};

use crate::listener::Peer;
use crate::server_error::ServerError;
use file::AuditFile;

/// Where statements, requests and logins are written.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// The file.
    pub path: PathBuf,
    /// Bytes after which another file is begun.
    pub bytes: u64,
    /// Files that are kept beside the one that is written.
    pub files: usize,
}

/// Lines that wait to be written.
const QUEUE: usize = 4096;
/// Lines that are written at once.
const AT_ONCE: usize = 256;
/// Bytes of a text in a line.
const LONGEST_TEXT: usize = 16 << 10;

/// What has happened.
#[derive(Debug, Serialize)]
pub(crate) struct AuditEntry<'a> {
    /// `statement`, `request`, `query` (one that was submitted), `login` or `expiry` (of a table).
    pub event: &'static str,
    pub user: &'a str,
    /// Where the client is; not known of a query that runs without one.
    #[serde(serialize_with = "as_text")]
    pub from: Option<Peer>,
    /// `mysql` or `http`; `none` of what the server does by itself.
    pub protocol: &'static str,
    /// The number of the connection, or of the query that was submitted.
    pub id: Option<u64>,
    pub database: Option<&'a str>,
    /// The statement without passwords, or the request.
    pub text: Option<&'a str>,
    /// Rows of the result, where they are counted.
    pub rows: Option<u64>,
    pub outcome: &'a str,
    /// MySQL's number of the error, or the status of a response.
    pub code: Option<u16>,
    #[serde(serialize_with = "as_seconds")]
    pub seconds: Duration,
}

fn as_text<S: serde::Serializer>(peer: &Option<Peer>, serializer: S) -> Result<S::Ok, S::Error> {
    match peer {
        Some(peer) => serializer.collect_str(peer),
        None => serializer.serialize_none(),
    }
}

fn as_seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_micros() as f64 / 1e6)
}

/// A line: what has happened, and when that was known.
#[derive(Serialize)]
struct AuditRecord<'a> {
    time: String,
    #[serde(flatten)]
    entry: &'a AuditEntry<'a>,
}

/// What the writing thread is told.
enum Message {
    Line(String),
    /// All before has to be written; then the sender is answered.
    Flush(SyncSender<()>),
}

/// Writes what happens.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: SyncSender<Message>,
    /// Lines that had no room in the queue.
    lost: Arc<AtomicU64>,
}

impl AuditLog {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(options: AuditOptions) -> Result<Self, ServerError> {
        let path = options.path.clone();
        let failed = |what: &str, source| ServerError::System {
            what: format!("{what} the audit log {}", path.display()),
            source,
        };
        let file = AuditFile::open(options).map_err(|error| failed("write", error))?;
        let (queue, lines) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let writer = std::thread::Builder::new().name("meridian-audit".to_owned());
        let spawned = writer.spawn(move || Writer::new(file, counted).run(&lines));
        spawned.map_err(|error| failed("start a thread for", error))?;
        Ok(Self { queue, lost })
    }

    /// Adds a line, without waiting.
    pub fn add(&self, entry: &AuditEntry<'_>) {
        let text = entry.text.map(shortened);
        let entry = AuditEntry {
            text: text.as_deref(),
            ..*entry
        };
        let line = AuditRecord {
            time: now(),
            entry: &entry,
        };
        let Ok(mut line) = serde_json::to_string(&line) else {
            return;
        };
        line.push('\n');
        match self.queue.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits, but not for long, until what was added is written: at the end of the server.
    pub fn flush(&self, patience: Duration) {
        let (done, written) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(patience);
        }
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    catalog::utc_text(since.map_or(0, |since| since.as_secs()))
}

fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_TEXT);
    match end < text.len() {
        true => format!("{}... ({} bytes)", &text[..end], text.len()),
        false => text.to_owned(),
    }
}

/// The numbers and words of a login.
pub(crate) fn login<'a>(
    protocol: &'static str,
    user: &'a str,
    peer: Peer,
    error: Option<ErrorCode>,
) -> AuditEntry<'a> {
    AuditEntry {
        event: "login",
        user,
        from: Some(peer),
        protocol,
        id: None,
        database: None,
        text: None,
        rows: None,
        outcome: error.map_or("ok", |_| "rejected"),
        code: error.map(|error| error.number),
        seconds: Duration::ZERO,
    }
}

/// The line for a table that has expired and is removed.
pub(crate) fn expiry<'a>(user: &'a str, table: &'a str, rows: u64) -> AuditEntry<'a> {
    AuditEntry {
        event: "expiry",
        user,
        from: None,
        protocol: "none",
        id: None,
        database: None,
        text: Some(table),
        rows: Some(rows),
        outcome: "ok",
        code: None,
        seconds: Duration::ZERO,
    }
}

/// The thread that writes.
struct Writer {
    file: AuditFile,
    /// Lines that had no room in the queue.
    crowded_out: Arc<AtomicU64>,
    /// Lines that were lost, and of which nothing is written yet.
    lost: u64,
    is_failing: bool,
}

impl Writer {
    fn new(file: AuditFile, crowded_out: Arc<AtomicU64>) -> Self {
        Self {
            file,
            crowded_out,
            lost: 0,
            is_failing: false,
        }
    }

    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let (mut lines, mut waiting) = (Vec::new(), Vec::new());
            for message in std::iter::once(first).chain(messages.try_iter().take(AT_ONCE)) {
                match message {
                    Message::Line(line) => lines.push(line),
                    Message::Flush(done) => waiting.push(done),
                }
            }
            self.write(&lines);
            for done in waiting {
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self, lines: &[String]) {
        let crowded_out = self.crowded_out.swap(0, Ordering::Relaxed);
        if crowded_out > 0 {
            error!(
                lines = crowded_out,
                "the audit log cannot be written as fast as statements end, and lacks some"
            );
        }
        self.lost += crowded_out;
        let mut text = String::new();
        if self.lost > 0 {
            let time = now();
            let lost = self.lost;
            text.push_str(&format!(
                "{{\"time\":\"{time}\",\"event\":\"lost\",\"lines\":{lost}}}\n"
            ));
        }
        text.extend(lines.iter().map(String::as_str));
        if text.is_empty() {
            return;
        }
        match self.file.append(text.as_bytes()) {
            Ok(()) => {
                if self.is_failing {
                    info!(lost = self.lost, "the audit log is written again");
                }
                (self.lost, self.is_failing) = (0, false);
            }
            Err(error) => {
                self.lost += lines.len() as u64;
                if !self.is_failing {
                    let path = self.file.path().display().to_string();
                    error!(%error, path, "the audit log cannot be written: statements run, and are not in it");
                }
                self.is_failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> AuditEntry<'_> {
        AuditEntry {
            event: "statement",
            user: "ann",
            from: Some(Peer::Socket),
            protocol: "mysql",
            id: Some(7),
            database: None,
            text: Some(text),
            rows: Some(3),
            outcome: "ok",
            code: None,
            seconds: Duration::from_micros(1500),
        }
    }

    fn options(directory: &std::path::Path, bytes: u64, files: usize) -> AuditOptions {
        AuditOptions {
            path: directory.join("audit.log"),
            bytes,
            files,
        }
    }

    fn lines(path: &std::path::Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn lines_are_objects() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog::open(options(directory.path(), 1 << 20, 1)).unwrap();
        log.add(&entry("SELECT\n'\"'"));
        log.add(&entry(&"é".repeat(20_000)));
        log.flush(Duration::from_secs(30));
        let lines = lines(&directory.path().join("audit.log"));
        assert_eq!(
            (&lines[0]["text"], &lines[0]["seconds"]),
            (&"SELECT\n'\"'".into(), &0.0015.into())
        );
        assert_eq!(
            (&lines[0]["from"], &lines[0]["user"]),
            (&"localhost".into(), &"ann".into())
        );
        let long = lines[1]["text"].as_str().unwrap();
        assert!(long.ends_with("é... (40000 bytes)") && long.len() < 17_000);
    }

    #[test]
    fn files_are_rotated_and_old_ones_removed() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog::open(options(directory.path(), 2000, 2)).unwrap();
        for n in 0..60 {
            log.add(&entry(&format!("SELECT {n}")));
            log.flush(Duration::from_secs(30));
        }
        let mut names: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
        let mut numbers = Vec::new();
        for name in ["audit.log.2", "audit.log.1", "audit.log"] {
            let path = directory.path().join(name);
            assert!(path.metadata().unwrap().len() <= 2000);
            for line in lines(&path) {
                let text = line["text"].as_str().unwrap();
                numbers.push(text["SELECT ".len()..].parse::<usize>().unwrap());
            }
        }
        let last: Vec<usize> = (60 - numbers.len()..60).collect();
        assert!(numbers.len() > 10 && numbers == last, "{numbers:?}");
    }

    /// The file's directory goes away and comes back: nobody waits, and the lines that are lost are counted.
    #[test]
    fn what_cannot_be_written_is_counted() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("logs");
        std::fs::create_dir(&directory).unwrap();
        let log = AuditLog::open(options(&directory, 1 << 20, 1)).unwrap();
        log.add(&entry("SELECT 1"));
        log.flush(Duration::from_secs(30));
        std::fs::rename(&directory, outer.path().join("moved")).unwrap();
        for _ in 0..3 {
            log.add(&entry("SELECT 2"));
            log.flush(Duration::from_secs(30));
        }
        std::fs::create_dir(&directory).unwrap();
        log.add(&entry("SELECT 3"));
        log.flush(Duration::from_secs(30));
        let lines = lines(&directory.join("audit.log"));
        assert_eq!(
            (&lines[0]["event"], &lines[0]["lines"]),
            (&"lost".into(), &3.into())
        );
        assert_eq!((&lines[1]["text"], lines.len()), (&"SELECT 3".into(), 2));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("nowhere");
        assert!(AuditLog::open(options(&missing, 1000, 1)).is_err());
    }
}
