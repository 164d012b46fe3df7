//! What workers do for a load, as the front end has them do it: a task is sent to a worker, asked for until it is done, and what it has written is
//! fetched and verified. What a worker does not do because it is gone, or its disk is full, another does.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use ingest::{
    InputPlan, Phase, PlanRequest, Progress, ProgressSnapshot, ShareFile, ShareReport, SharedLoad,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::lock;
use crate::ClusterError;
use crate::client::MemberClient;
use crate::file_service::verify;
use crate::messages::{LoadInputs, LoadTask, LoadTaskOutcome, LoadTaskState, LoadWork, PartName};
use crate::tls::Role;

/// How often a worker is asked how far it is.
const POLL: Duration = Duration::from_millis(200);
/// After so many requests without an answer, one after another, another worker does the task.
const MOST_SILENT: usize = 3;
/// How often it is asked while its files are fetched, lest it takes them for forgotten.
const KEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of a run of keys that are sent at once.
const PIECE: usize = 8 << 20;
/// How long a worker may say nothing in the middle of a file.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker that can be given tasks.
#[derive(Debug, Clone)]
pub(super) struct LoadWorker {
    pub name: String,
    pub address: String,
}

/// Why a task is not done.
enum Failure {
    /// The worker is to blame: another may do it.
    Worker(String),
    /// It would be no other elsewhere.
    Load(String),
    /// The front end cannot do its part.
    FrontEnd(String),
}

impl Failure {
    /// What is told of it; of a worker's that is to blame also where another one takes over.
    fn tell(self, worker: &LoadWorker) -> String {
        match self {
            Self::Worker(why) | Self::Load(why) => format!("worker {}: {why}", worker.name),
            Self::FrontEnd(why) => format!("the front end {why}; nothing was loaded"),
        }
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::Worker(error.to_string())
    }
}

/// The tasks of a load.
pub(super) struct Tasks {
    client: Arc<MemberClient>,
    inputs: LoadInputs,
    /// The parts whose files shares read.
    parts: Vec<PartName>,
    /// What is shown of all of them.
    shown: Arc<Progress>,
    /// How far each is.
    progress: Mutex<Vec<Option<ProgressSnapshot>>>,
    /// Those that workers may know.
    begun: Mutex<Vec<(String, u64)>>,
}

impl Tasks {
    pub fn new(
        client: Arc<MemberClient>,
        inputs: LoadInputs,
        parts: Vec<PartName>,
        shown: Arc<Progress>,
    ) -> Self {
        Self {
            client,
            inputs,
            parts,
            shown,
            progress: Mutex::default(),
            begun: Mutex::default(),
        }
    }

    /// Has a worker look at the inputs.
    pub async fn plan(
        &self,
        workers: &[LoadWorker],
        request: PlanRequest,
    ) -> Result<InputPlan, String> {
        let mut why = String::new();
        for worker in workers {
            let work = LoadWork::Plan(Box::new(request.clone()));
            let done = self.run(worker, work, &[], |_| {}).await;
            match done {
                Ok((LoadTaskOutcome::Plan(plan), task)) => {
                    self.end(worker, task).await;
                    return Ok(*plan);
                }
                Ok(_) => why = format!("worker {}: it does something else", worker.name),
                Err(failure @ Failure::Worker(_)) => why = failure.tell(worker),
                Err(failure) => return Err(failure.tell(worker)),
            }
            warn!(
                worker = worker.name,
                why, "another worker looks at the inputs of a load"
            );
        }
        Err(why)
    }

    /// Has workers write shares, and fetches their files. The reports are in the order of the numbers.
    pub async fn shares(
        &self,
        workers: &[LoadWorker],
        shared: &SharedLoad,
        numbers: &[usize],
    ) -> Result<Vec<ShareReport>, String> {
        *lock(&self.progress) = vec![None; numbers.len()];
        let all = numbers
            .iter()
            .enumerate()
            .map(|(at, number)| self.share(workers, shared, *number, at));
        try_join_all(all).await
    }

    async fn share(
        &self,
        workers: &[LoadWorker],
        shared: &SharedLoad,
        number: usize,
        at: usize,
    ) -> Result<ShareReport, String> {
        let mut why = String::new();
        // Each share has another worker that is asked first.
        for turn in 0..workers.len() {
            let worker = &workers[(number + turn) % workers.len()];
            match self.share_by(worker, shared, number, at).await {
                Ok(report) => return Ok(report),
                Err(failure @ Failure::Worker(_)) => why = failure.tell(worker),
                Err(failure) => return Err(failure.tell(worker)),
            }
            warn!(why, "another worker takes the share of a load");
        }
        Err(why)
    }

    async fn share_by(
        &self,
        worker: &LoadWorker,
        shared: &SharedLoad,
        number: usize,
        at: usize,
    ) -> Result<ShareReport, Failure> {
        let request = shared.share_request(number);
        let request = request.map_err(|_| no_such_share(number))?;
        let work = LoadWork::Share(Box::new(request));
        let runs = shared.run_files(number);
        let show = |now| self.show(at, now);
        let (outcome, task) = self.run(worker, work, &runs, show).await?;
        let LoadTaskOutcome::Share(report) = outcome else {
            return Err(Failure::Worker("it does something else".to_owned()));
        };
        info!(
            worker = worker.name,
            share = number,
            "a share of a load is written"
        );
        let files = report.chunk_files().into_iter().chain(report.run_file());
        clear(shared, number).await?;
        let fetched = async {
            for file in files {
                self.fetch(worker, task, shared, number, &file).await?;
            }
            Ok::<(), Failure>(())
        };
        tokio::select! {
            fetched = fetched => fetched?,
            never = self.keep_asking(worker, task) => match never {},
        }
        self.end(worker, task).await;
        Ok(*report)
    }

    /// Runs a task. Gives its number, under which the worker has its files.
    async fn run(
        &self,
        worker: &LoadWorker,
        work: LoadWork,
        runs: &[std::path::PathBuf],
        show: impl Fn(ProgressSnapshot),
    ) -> Result<(LoadTaskOutcome, u64), Failure> {
        let number = crate::random()?;
        lock(&self.begun).push((worker.address.clone(), number));
        for (run, path) in runs.iter().enumerate() {
            self.send_run(worker, number, run, path).await?;
        }
        let task = LoadTask {
            inputs: self.inputs.clone(),
            parts: match &work {
                LoadWork::Plan(_) => Vec::new(),
                LoadWork::Share(_) => self.parts.clone(),
            },
            work,
        };
        let path = format!("/loads/{number}");
        let (role, address) = (Role::Worker, &worker.address);
        let begun = self
            .client
            .json(Method::POST, role, address, &path, Some(&task));
        let () = begun.await?;
        let mut silent = 0;
        loop {
            sleep(POLL).await;
            let none: Option<&()> = None;
            let asked = self
                .client
                .json(Method::GET, role, address, &path, none)
                .await;
            let state: LoadTaskState = match asked {
                Ok(state) => state,
                Err(error) => {
                    silent += 1;
                    if silent >= MOST_SILENT {
                        return Err(error.into());
                    }
                    continue;
                }
            };
            silent = 0;
            show(state.progress);
            match state.outcome {
                None => {}
                Some(Ok(outcome)) => return Ok((outcome, number)),
                Some(Err(error)) if error.is_of_machine => return Err(Failure::Worker(error.why)),
                Some(Err(error)) => return Err(Failure::Load(error.why)),
            }
        }
    }

    /// Asks for a task again and again, so that its files stay while one of them is fetched, which may take long.
    async fn keep_asking(&self, worker: &LoadWorker, task: u64) -> Infallible {
        let path = format!("/loads/{task}");
        let (role, address) = (Role::Worker, &worker.address);
        loop {
            sleep(KEEP_INTERVAL).await;
            let asked = self
                .client
                .bytes(Method::GET, role, address, &path, Bytes::new());
            // Whoever fetches its files notices that it is gone.
            let _ = asked.await;
        }
    }

    async fn send_run(
        &self,
        worker: &LoadWorker,
        number: u64,
        run: usize,
        path: &Path,
    ) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::FrontEnd(format!("cannot read {}: {error}", path.display()))
        };
        let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
        let mut at = 0;
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let mut some = (&mut file).take(PIECE as u64);
            some.read_to_end(&mut piece).await.map_err(failed)?;
            if piece.is_empty() {
                return Ok(());
            }
            let target = format!("/loads/{number}/runs/{run}?at={at}");
            at += piece.len();
            let (role, address) = (Role::Worker, &worker.address);
            let sent = self
                .client
                .bytes(Method::POST, role, address, &target, Bytes::from(piece));
            sent.await?;
        }
    }

    /// Fetches a file, and verifies it.
    async fn fetch(
        &self,
        worker: &LoadWorker,
        task: u64,
        shared: &SharedLoad,
        number: usize,
        file: &ShareFile,
    ) -> Result<(), Failure> {
        let Some(path) = shared.place_of(number, &file.name) else {
            return Err(no_such_share(number));
        };
        let source = format!("/loads/{task}/files/{}", file.name);
        self.download(worker, &source, &path).await?;
        match file.checksum {
            Some(checksum) => Ok(verify(&path, checksum).await?),
            // Its pages are verified when all runs are merged.
            None => Ok(()),
        }
    }

    async fn download(
        &self,
        worker: &LoadWorker,
        source: &str,
        path: &Path,
    ) -> Result<(), Failure> {
        let cannot_write = |error: std::io::Error| {
            Failure::FrontEnd(format!("cannot write {}: {error}", path.display()))
        };
        let (role, address) = (Role::Worker, &worker.address);
        let from = |why: &str| Failure::Worker(format!("{address} {why}"));
        let sent = self
            .client
            .send(Method::GET, role, address, source, Bytes::new());
        let response = timeout(PATIENCE, sent).await;
        let mut response = response.map_err(|_| from("does not answer"))??;
        if response.status != StatusCode::OK {
            let status = response.status;
            return Err(from(&format!(
                "answers {status}: {}",
                response.text().await
            )));
        }
        let mut options = tokio::fs::OpenOptions::from(catalog::writable_file());
        let options = options.create(true).truncate(true);
        let mut written = options.open(path).await.map_err(cannot_write)?;
        loop {
            let next = timeout(PATIENCE, response.next()).await;
            let next = next.map_err(|_| from("says nothing in the middle of a file"))?;
            let next =
                next.map_err(|error| from(&format!("stopped in the middle of a file: {error}")))?;
            match next {
                Some(bytes) => written.write_all(&bytes).await.map_err(cannot_write)?,
                None => break,
            }
        }
        written.flush().await.map_err(cannot_write)
    }

    /// Tells a worker that a task and its files are needed no longer.
    async fn end(&self, worker: &LoadWorker, task: u64) {
        self.end_at(&worker.address, task).await;
        lock(&self.begun).retain(|(_, number)| *number != task);
    }

    async fn end_at(&self, address: &str, task: u64) {
        let path = format!("/loads/{task}");
        let ended = self
            .client
            .bytes(Method::DELETE, Role::Worker, address, &path, Bytes::new());
        if let Err(error) = ended.await {
            // It ends by itself when nobody asks for it.
            tracing::debug!(%error, "a task of a load is not ended");
        }
    }

    /// Ends all tasks that workers may know.
    pub async fn end_all(&self) {
        let begun = std::mem::take(&mut *lock(&self.begun));
        join_all(
            begun
                .iter()
                .map(|(address, task)| self.end_at(address, *task)),
        )
        .await;
    }

    /// Shows what all tasks have done together: the phase is that of the one which is the furthest behind.
    fn show(&self, at: usize, now: ProgressSnapshot) {
        let mut progress = lock(&self.progress);
        if let Some(place) = progress.get_mut(at) {
            *place = Some(now);
        }
        let known = || progress.iter().flatten();
        let phase = match progress.iter().all(Option::is_some) {
            true => known().map(|it| it.phase).min_by_key(|it| *it as u8),
            false => None,
        };
        let phase = phase.unwrap_or(Phase::Preparing);
        let of_phase = || known().filter(move |it| it.phase as u8 >= phase as u8);
        let sum = |of: fn(&ProgressSnapshot) -> u64| known().map(of).sum();
        let (mut done, mut total) = (0, 0);
        for it in of_phase() {
            total += it.total;
            done += match it.phase == phase {
                true => it.done.min(it.total),
                false => it.total,
            };
        }
        self.shown.show(&ProgressSnapshot {
            phase,
            rows: sum(|it| it.rows),
            bytes: sum(|it| it.bytes),
            done,
            total,
        });
    }

    pub fn show_publication(&self) {
        self.shown.show(&ProgressSnapshot {
            phase: Phase::Publishing,
            ..self.shown.snapshot()
        });
    }
}

/// Removes the files of chunks that were fetched of a share before.
async fn clear(shared: &SharedLoad, number: usize) -> Result<(), Failure> {
    let Some(dir) = shared.place_of(number, "") else {
        return Err(no_such_share(number));
    };
    let failed = |error: std::io::Error| {
        Failure::FrontEnd(format!("cannot clear {}: {error}", dir.display()))
    };
    let mut entries = tokio::fs::read_dir(&dir).await.map_err(failed)?;
    while let Some(entry) = entries.next_entry().await.map_err(failed)? {
        if entry.path().extension().is_some_and(|it| it == "mrd") {
            tokio::fs::remove_file(entry.path()).await.map_err(failed)?;
        }
    }
    Ok(())
}

fn no_such_share(number: usize) -> Failure {
    Failure::FrontEnd(format!("knows no share {number}: please report this"))
}
