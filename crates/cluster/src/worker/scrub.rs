//! How a worker finds damage in its replicas before a query meets it: it reads one file after another through, slowly and all the time, and at
//! once those that an operator asks for.
//!
//! A replica that is damaged, missing, another file than was published, or one that its disk does not give is given up, so that it comes anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use catalog::LoadId;
use futures::future::join_all;
use sky::ChunkId;
use tokio::time::sleep;

use super::Worker;
use super::holdings::{DAMAGED, HeldFiles};
use crate::client::{json, read_body};
use crate::messages::TableSelection;
use crate::scrubs::{Outcome, examine, name_of};

/// How long a worker pauses after it has read a file through by itself: so many times as long as that took, and no less than this.
const SCRUB_RATIO: u32 = 100;
const SCRUB_PAUSE: Duration = Duration::from_millis(500);
/// How long it pauses after it has read all files through.
const SCRUB_ROUND: Duration = Duration::from_secs(60);
/// Bytes of a request.
const LONGEST_REQUEST: usize = 64 << 10;

/// A replica, by its part and its file.
type ReplicaKey = (LoadId, ChunkId);

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
        let why = match examine(&path, published).await {
            Outcome::Damaged(why) => why,
            other => return other,
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
                        name: name_of(&spec.database, &spec.name, chunk.file),
                    });
                // Chunks that share a file have a share of its bytes each.
                replica.bytes += chunk.bytes;
            }
        }
        replicas
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
        scrubs.wait().await;
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
        worker
            .scrubs
            .change(|scrub| scrub.note(replica.name, replica.bytes, outcome));
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
    json(&worker.scrubs.latest())
}
