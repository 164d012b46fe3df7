//! How a worker finds damage in its replicas before a query meets it: it reads one file after another through, slowly and all the time, and at
//! once those that an operator asks for.
//!
//! A replica that is damaged, missing, another file than was published, or one that its disk does not give is given up, so that it comes anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use catalog::{LoadId, REPLICATED_CHUNK, TableSpec, fold_name};
use futures::future::join_all;
use sky::ChunkId;
use store::StoreError;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::Worker;
use super::holdings::{DAMAGED, HeldFiles};
use crate::client::{json, read_body};
use crate::file_service::read_through;
use crate::messages::{ScrubFinding, TableSelection, WorkerScrub};

/// How long a worker pauses after it has read a file through by itself: so many times as long as that took, and no less than this.
const SCRUB_RATIO: u32 = 100;
const SCRUB_PAUSE: Duration = Duration::from_millis(500);
/// How long it pauses after it has read all files through.
const SCRUB_ROUND: Duration = Duration::from_secs(60);
/// Bytes of a request.
const LONGEST_REQUEST: usize = 64 << 10;
/// Replicas that are named of those that are not right.
const MOST_NAMED: usize = 100;

/// A replica, by its part and its file.
type ReplicaKey = (LoadId, ChunkId);

/// What became of a replica that was read through.
enum Outcome {
    /// Every block is right, and it is the file that was published.
    Right,
    /// It is not held any more.
    Gone,
    /// It was given up, for this reason.
    Damaged(String),
    /// This process lacks what is needed to read it, for this reason. It stays.
    Unreadable(String),
}

/// A replica that an operator has read.
#[derive(Debug)]
struct Replica {
    /// The disk that it is on.
    disk: usize,
    bytes: u64,
    /// What messages call it.
    name: String,
}

impl HeldFiles {
    /// Reads the replica after this one through. `None` if there is none.
    pub(super) async fn scrub_after(&self, last: Option<ReplicaKey>) -> Option<ReplicaKey> {
        let next = {
            let parts = self.lock();
            let held = parts
                .iter()
                .flat_map(|(part, held)| held.files.keys().map(|file| (*part, *file)));
            held.filter(|key| last.is_none_or(|last| *key > last))
                .min()?
        };
        if let Outcome::Unreadable(error) = self.scrub(next).await {
            tracing::warn!(error, "a replica cannot be read through");
        }
        Some(next)
    }

    /// Reads a replica through, and gives it up if it is damaged.
    async fn scrub(&self, key: ReplicaKey) -> Outcome {
        let Some((path, published)) = self.published(key) else {
            return Outcome::Gone;
        };
        let why = match read_through(&path).await {
            Ok(checksum) if checksum == published => return Outcome::Right,
            Ok(_) => "it is another file than was published".to_owned(),
            Err(error) if unreadable_file(&error).is_none() => {
                return Outcome::Unreadable(error.to_string());
            }
            Err(StoreError::Damaged { what, .. }) => what,
            Err(StoreError::Missing { .. }) => "it is not on the disk any more".to_owned(),
            Err(error) => error.to_string(),
        };
        match self.quarantine(&path) {
            true => Outcome::Damaged(why),
            // It was given up while it was read.
            false => Outcome::Gone,
        }
    }

    /// Gives up a file that was found damaged or unreadable, so that it comes anew. Returns whether it was held: others are none of ours.
    pub fn quarantine(&self, path: &Path) -> bool {
        let mut parts = self.lock();
        let found = parts.values_mut().find_map(|part| {
            let mut files = part.files.keys().copied();
            let is_it = |at: &PathBuf| at == path;
            let file = files.find(|it| part.path(&self.disks, *it).as_ref().is_some_and(is_it))?;
            Some((part, file))
        });
        let Some((part, file)) = found else {
            return false;
        };
        part.files.remove(&file);
        let at_home = part.dir.chunk_path(file);
        drop(parts);
        let renamed = fs::rename(path, path.with_extension(DAMAGED));
        if let Err(error) = renamed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a damaged file stays");
        }
        self.close(&at_home);
        self.damaged.fetch_add(1, Relaxed);
        self.version.fetch_add(1, Relaxed);
        tracing::warn!(path = %path.display(), "a replica is damaged: it is fetched anew");
        true
    }

    /// Where a replica is, and the checksum with which it was published.
    fn published(&self, (part, file): ReplicaKey) -> Option<(PathBuf, u64)> {
        let parts = self.lock();
        let held = parts.get(&part)?;
        let chunk = held.manifest.chunks.iter().find(|it| it.file == file)?;
        Some((held.path(&self.disks, file)?, chunk.checksum))
    }

    /// The replicas of some tables.
    fn replicas(&self, tables: &TableSelection) -> BTreeMap<ReplicaKey, Replica> {
        let mut replicas = BTreeMap::new();
        for (part, held) in self.lock().iter() {
            let spec = &held.manifest.table;
            if !tables.has(&spec.database, &spec.name) {
                continue;
            }
            for chunk in &held.manifest.chunks {
                let Some(disk) = held.files.get(&chunk.file) else {
                    continue;
                };
                let replica = replicas
                    .entry((*part, chunk.file))
                    .or_insert_with(|| Replica {
                        disk: *disk,
                        bytes: 0,
                        name: name_of(spec, chunk.file),
                    });
                // Chunks that share a file have a share of its bytes each.
                replica.bytes += chunk.bytes;
            }
        }
        replicas
    }
}

/// The file that an error of reading names, if that is to blame: it is damaged or gone, or its disk does not give it. What this process lacks, as
/// descriptors or memory, says nothing of the file.
pub(super) fn unreadable_file(error: &StoreError) -> Option<&Path> {
    match error {
        StoreError::Damaged { path, .. } | StoreError::Missing { path } => Some(path),
        StoreError::Io { path, source, .. } if is_of_file(source) => Some(path),
        _ => None,
    }
}

fn is_of_file(error: &io::Error) -> bool {
    use rustix::io::Errno;

    let of_process = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    let is_of_process = of_process
        .iter()
        .any(|it| error.raw_os_error() == Some(it.raw_os_error()));
    let passes = matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::OutOfMemory
    );
    !is_of_process && !passes
}

fn name_of(table: &TableSpec, file: ChunkId) -> String {
    let (database, table) = (&table.database, &table.name);
    match file == REPLICATED_CHUNK {
        true => format!("the file of {database}.{table}"),
        false => format!("chunk {file} of {database}.{table}"),
    }
}

impl TableSelection {
    /// Whether a table is among these.
    pub(crate) fn has(&self, database: &str, table: &str) -> bool {
        let is_it = |wanted: &Option<String>, name: &str| {
            wanted
                .as_ref()
                .is_none_or(|wanted| fold_name(wanted) == fold_name(name))
        };
        is_it(&self.database, database) && is_it(&self.table, table)
    }
}

/// What operators have had read through.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    /// The one that was asked for last.
    latest: Mutex<Option<WorkerScrub>>,
    begun: Notify,
}

impl Scrubs {
    /// Begins one, or joins the one that runs if that reads the same.
    ///
    /// # Errors
    /// One runs that reads something else, or there is no random number.
    fn begin(&self, tables: TableSelection) -> Result<WorkerScrub, (StatusCode, String)> {
        let mut latest = self.lock();
        if let Some(running) = latest.as_ref().filter(|it| !it.is_done) {
            return match running.tables == tables {
                true => Ok(running.clone()),
                false => Err((
                    StatusCode::CONFLICT,
                    "another scrub runs, of other tables: wait until it is done".to_owned(),
                )),
            };
        }
        let number = crate::random();
        let number =
            number.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let scrub = WorkerScrub {
            number,
            tables,
            ..WorkerScrub::default()
        };
        *latest = Some(scrub.clone());
        self.begun.notify_one();
        Ok(scrub)
    }

    /// The tables of the one that is to be run.
    fn begun(&self) -> Option<TableSelection> {
        let latest = self.lock();
        let begun = latest.as_ref().filter(|it| !it.is_done);
        begun.map(|it| it.tables.clone())
    }

    /// Changes the one that runs.
    fn change(&self, change: impl FnOnce(&mut WorkerScrub)) {
        if let Some(latest) = self.lock().as_mut() {
            change(latest);
        }
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Option<WorkerScrub>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads through one file after another until the worker ends.
pub(super) async fn keep_scrubbing(worker: &Worker) {
    let mut last = None;
    loop {
        let began = Instant::now();
        last = worker.held.scrub_after(last).await;
        // A hundredth of the time of a disk, and a round is not begun at once after the last one.
        let pause = match last {
            Some(_) => SCRUB_PAUSE.max(began.elapsed() * SCRUB_RATIO),
            None => SCRUB_ROUND,
        };
        sleep(pause).await;
    }
}

/// Reads through what operators ask for, a file at a time of each disk, until the worker ends.
pub(super) async fn run_scrubs(worker: &Worker) {
    let scrubs = &worker.scrubs;
    loop {
        scrubs.begun.notified().await;
        let Some(tables) = scrubs.begun() else {
            continue;
        };
        let replicas = worker.held.replicas(&tables);
        scrubs.change(|scrub| {
            scrub.files = replicas.len() as u64;
            scrub.bytes = replicas.values().map(|it| it.bytes).sum();
        });
        let mut of_disks: BTreeMap<usize, Vec<(ReplicaKey, Replica)>> = BTreeMap::new();
        for (key, replica) in replicas {
            of_disks
                .entry(replica.disk)
                .or_default()
                .push((key, replica));
        }
        join_all(of_disks.into_values().map(|it| scrub_disk(worker, it))).await;
        scrubs.change(|scrub| scrub.is_done = true);
        tracing::info!("the scrub that an operator asked for is done");
    }
}

async fn scrub_disk(worker: &Worker, replicas: Vec<(ReplicaKey, Replica)>) {
    for (key, replica) in replicas {
        let outcome = worker.held.scrub(key).await;
        worker.scrubs.change(|scrub| scrub.note(replica, outcome));
    }
}

impl WorkerScrub {
    fn note(&mut self, replica: Replica, outcome: Outcome) {
        self.files_read += 1;
        self.bytes_read += replica.bytes;
        let (why, is_damaged) = match outcome {
            Outcome::Right | Outcome::Gone => return,
            Outcome::Damaged(why) => (why, true),
            Outcome::Unreadable(why) => (why, false),
        };
        self.damaged += u64::from(is_damaged);
        self.unreadable += u64::from(!is_damaged);
        if self.found.len() < MOST_NAMED {
            let replica = replica.name;
            self.found.push(ScrubFinding {
                replica,
                why,
                is_damaged,
            });
        }
    }
}

/// Begins a scrub.
pub(super) async fn begin(
    State(worker): State<Arc<Worker>>,
    request: Request,
) -> Result<Response<Body>, (StatusCode, String)> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), LONGEST_REQUEST)
        .await
        .map_err(bad)?;
    let tables = serde_json::from_slice(&body)
        .map_err(|error| bad(format!("the names of tables cannot be read: {error}")))?;
    Ok(json(&worker.scrubs.begin(tables)?))
}

/// The scrub that was asked for last.
pub(super) async fn latest(State(worker): State<Arc<Worker>>) -> Response<Body> {
    json(&*worker.scrubs.lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(database: Option<&str>, table: Option<&str>) -> TableSelection {
        TableSelection {
            database: database.map(str::to_owned),
            table: table.map(str::to_owned),
        }
    }

    #[test]
    fn names_of_tables_have_no_case() {
        assert!(of(None, None).has("sky", "Star"));
        assert!(of(Some("SKY"), Some("star")).has("sky", "Star"));
        assert!(of(None, Some("STAR")).has("sky", "Star"));
        assert!(!of(Some("sky"), Some("Visit")).has("sky", "Star"));
        assert!(!of(Some("other"), None).has("sky", "Star"));
    }

    /// A replica that its disk did not give stayed, and was asked for again and again.
    #[test]
    fn what_a_disk_does_not_give_is_told_from_what_this_process_lacks() {
        use rustix::io::Errno;

        let path = Path::new("chunk_1.mrd");
        let io = |errno: Errno| {
            StoreError::io("read", path)(io::Error::from_raw_os_error(errno.raw_os_error()))
        };
        for errno in [
            Errno::IO,
            Errno::ACCESS,
            Errno::LOOP,
            Errno::ISDIR,
            Errno::STALE,
        ] {
            assert_eq!(unreadable_file(&io(errno)), Some(path), "{errno}");
        }
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::INTR,
            Errno::AGAIN,
        ] {
            assert_eq!(unreadable_file(&io(errno)), None, "{errno}");
        }
        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(unreadable_file(&StoreError::io("read", path)(short)).is_some());
        let gone = io::Error::from(io::ErrorKind::NotFound);
        assert!(unreadable_file(&StoreError::io("open", path)(gone)).is_some());
        assert!(unreadable_file(&StoreError::WrongLocation(1)).is_none());
    }

    #[test]
    fn one_scrub_runs_at_a_time_and_whoever_asks_for_the_same_joins_it() {
        let scrubs = Scrubs::default();
        let first = scrubs.begin(of(Some("sky"), None)).unwrap();
        assert_eq!(scrubs.begin(of(Some("sky"), None)).unwrap(), first);
        let (status, why) = scrubs.begin(of(None, None)).unwrap_err();
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(why.contains("wait"), "{why}");
        scrubs.change(|scrub| scrub.is_done = true);
        assert_eq!(scrubs.begun(), None);
        let second = scrubs.begin(of(None, None)).unwrap();
        assert_ne!(second.number, first.number);
        assert_eq!(scrubs.begun(), Some(of(None, None)));
    }

    #[test]
    fn what_is_not_right_is_counted_and_some_of_it_named() {
        let mut scrub = WorkerScrub::default();
        let outcomes = (0..200).map(|number| match number % 4 {
            0 => Outcome::Damaged("flipped".to_owned()),
            1 => Outcome::Unreadable("no".to_owned()),
            2 => Outcome::Gone,
            _ => Outcome::Right,
        });
        for outcome in outcomes.chain([Outcome::Damaged("last".to_owned())]) {
            let replica = Replica {
                disk: 0,
                bytes: 10,
                name: "chunk 1 of a.b".to_owned(),
            };
            scrub.note(replica, outcome);
        }
        assert_eq!((scrub.files_read, scrub.bytes_read), (201, 2010));
        assert_eq!((scrub.damaged, scrub.unreadable), (51, 50));
        assert_eq!(scrub.found.len(), MOST_NAMED);
    }
}
