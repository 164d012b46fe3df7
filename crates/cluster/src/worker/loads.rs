//! What a worker does for loads: it looks at inputs, and writes the parts of shares, in a directory of its own from which the front end
//! fetches them.
//!
//! A task ends when it is told to, or when nobody has asked for it for a while: then the load has ended, or its front end has.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path as Route, Query, Request, State};
use axum::http::{Response, StatusCode};
use ingest::{
    IngestError, LoadRequest, MayRead, PartFiles, Progress, RemoteInputs, plan_inputs, write_share,
};
use remote_files::{Client, Settings, is_url};
use serde::Deserialize;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Worker;
use super::holdings::failed;
use crate::ClusterError;
use crate::client::{json, read_body};
use crate::file_service::serve;
use crate::messages::{
    LoadInputs, LoadTask, LoadTaskError, LoadTaskOutcome, LoadTaskState, LoadWork,
};

/// The directory of all tasks, among the replicas of the worker's home.
const DIRECTORY: &str = "loads";
/// Bytes of a task, and of a piece of a run of keys.
const LONGEST_TASK: usize = 256 << 20;
/// Tasks at a time: a front end sends one for each load.
const MOST_TASKS: usize = 64;
/// Runs of keys of a task.
const MOST_RUNS: usize = 10_000;
/// How long nobody may ask for a task.
const SILENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

type ClientError = (StatusCode, String);

/// The tasks of a worker.
#[derive(Debug)]
pub(super) struct Loads {
    directory: PathBuf,
    may_read: MayRead,
    tasks: Mutex<HashMap<u64, Arc<Task>>>,
    /// Shares are written one after another: each takes the memory that there is for loads.
    turn: Semaphore,
}

/// A task; its directory goes with it.
#[derive(Debug)]
struct Task {
    scratch: PathBuf,
    progress: Arc<Progress>,
    state: Mutex<TaskState>,
}

#[derive(Debug)]
struct TaskState {
    heard: Instant,
    has_begun: bool,
    outcome: Option<Result<LoadTaskOutcome, LoadTaskError>>,
    /// Where what was written is.
    part: Option<PathBuf>,
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.scratch) {
            let path = self.scratch.display();
            tracing::warn!(%path, %error, "what a load has left goes when the worker starts again");
        }
    }
}

impl Task {
    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, TaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loads {
    /// Removes what tasks of an earlier process have left.
    pub fn open(replicas: &Path, load_from: &[PathBuf]) -> Result<Self, ClusterError> {
        let directory = replicas.join(DIRECTORY);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(&directory, error.to_string()));
            }
            _ => {}
        }
        let may_read = MayRead::below(load_from);
        let may_read = may_read.map_err(|error| {
            ClusterError::Loading(format!("--load-from cannot be used: {error}"))
        })?;
        Ok(Self {
            directory,
            may_read,
            tasks: Mutex::default(),
            turn: Semaphore::new(1),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Task>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that is there; it is asked for now.
    fn task(&self, number: u64) -> Result<Arc<Task>, ClientError> {
        let found = self.lock().get(&number).cloned();
        let unknown = || {
            let why = "this worker knows no such task of a load: it was started again, or nobody has asked for it for a while";
            (StatusCode::NOT_FOUND, why.to_owned())
        };
        let task = found.ok_or_else(unknown)?;
        task.lock().heard = Instant::now();
        Ok(task)
    }

    /// The same, made if it is not there.
    fn make(&self, number: u64) -> Result<Arc<Task>, ClientError> {
        let mut tasks = self.lock();
        if let Some(task) = tasks.get(&number) {
            task.lock().heard = Instant::now();
            return Ok(Arc::clone(task));
        }
        if tasks.len() >= MOST_TASKS {
            let why = format!("this worker has {MOST_TASKS} tasks of loads: try again later");
            return Err((StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let scratch = self.directory.join(number.to_string());
        catalog::make_directories(&scratch).map_err(|error| {
            let why = format!("cannot make {}: {error}", scratch.display());
            (StatusCode::INTERNAL_SERVER_ERROR, why)
        })?;
        let task = Arc::new(Task {
            scratch,
            progress: Arc::default(),
            state: Mutex::new(TaskState {
                heard: Instant::now(),
                has_begun: false,
                outcome: None,
                part: None,
            }),
        });
        tasks.insert(number, Arc::clone(&task));
        Ok(task)
    }

    fn remove(&self, number: u64) {
        let removed = self.lock().remove(&number);
        if let Some(task) = removed {
            task.progress.cancel();
        }
    }
}

/// Ends tasks that nobody asks for.
pub(super) async fn keep_ending(worker: &Arc<Worker>) {
    loop {
        sleep(LOOK_INTERVAL).await;
        let silent: Vec<u64> = {
            let tasks = worker.loads.lock();
            let is_silent = |task: &Task| task.lock().heard.elapsed() >= SILENCE;
            let silent = tasks.iter().filter(|(_, task)| is_silent(task));
            silent.map(|(number, _)| *number).collect()
        };
        for number in silent {
            tracing::warn!(number, "a task of a load ends, as nobody asks for it");
            let worker = Arc::clone(worker);
            // Its files may be many.
            let _ = spawn_blocking(move || worker.loads.remove(number)).await;
        }
    }
}

/// Which bytes of a run of keys come.
#[derive(Debug, Deserialize)]
pub(super) struct PieceOfRun {
    /// The number of the first. A piece that comes twice, since its response was lost, is written to the same place.
    at: u64,
}

/// Takes bytes of a run of keys.
pub(super) async fn take_run(
    State(worker): State<Arc<Worker>>,
    Route((number, run)): Route<(u64, usize)>,
    Query(piece): Query<PieceOfRun>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    if run >= MOST_RUNS {
        return Err(bad(format!(
            "more than {MOST_RUNS} runs of keys: compact the director and its children first"
        )));
    }
    let body = read_body(request.into_body(), LONGEST_TASK).await;
    let body = body.map_err(bad)?;
    let task = worker.loads.make(number)?;
    let path = run_path(&task.scratch, run);
    let written = async {
        let mut options = tokio::fs::OpenOptions::from(catalog::writable_file());
        let options = options.create(true).truncate(false);
        let mut file = options.open(&path).await?;
        file.seek(std::io::SeekFrom::Start(piece.at)).await?;
        file.write_all(&body).await?;
        file.flush().await
    };
    written.await.map_err(|error| {
        let why = format!("cannot write {}: {error}", path.display());
        (StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    Ok(json(&()))
}

fn run_path(scratch: &Path, run: usize) -> PathBuf {
    scratch.join(format!("run_{run}"))
}

/// Begins a task.
pub(super) async fn begin(
    State(worker): State<Arc<Worker>>,
    Route(number): Route<u64>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), LONGEST_TASK).await;
    let body = body.map_err(bad)?;
    let order: LoadTask = serde_json::from_slice(&body)
        .map_err(|error| bad(format!("the task of a load cannot be read: {error}")))?;
    let task = worker.loads.make(number)?;
    if std::mem::replace(&mut task.lock().has_begun, true) {
        // The response was lost, and the front end asks again.
        return Ok(json(&()));
    }
    let Some(compute) = worker.compute() else {
        let why = "this worker is about to end".to_owned();
        return Err((StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let (running, host) = (Arc::clone(&task), Arc::clone(&worker));
    let done = compute.spawn(async move { run(&host, &running, order).await });
    tokio::spawn(async move {
        let outcome = match done.await {
            // The worker ends, and another one takes the task.
            Err(error) if error.is_cancelled() => return,
            outcome => outcome.unwrap_or_else(|error| {
                tracing::error!(%error, "a task of a load failed unexpectedly");
                Err(of_load(
                    "a task of the load failed unexpectedly: please report this",
                ))
            }),
        };
        let mut state = task.lock();
        state.outcome = Some(outcome.map(|(outcome, part)| {
            state.part = part;
            outcome
        }));
    });
    Ok(json(&()))
}

/// How far a task is.
pub(super) async fn state(
    State(worker): State<Arc<Worker>>,
    Route(number): Route<u64>,
) -> Result<Response<Body>, ClientError> {
    let task = worker.loads.task(number)?;
    let outcome = task.lock().outcome.clone();
    Ok(json(&LoadTaskState {
        progress: task.progress.snapshot(),
        outcome,
    }))
}

/// Ends a task.
pub(super) async fn end(
    State(worker): State<Arc<Worker>>,
    Route(number): Route<u64>,
) -> Response<Body> {
    let _ = spawn_blocking(move || worker.loads.remove(number)).await;
    json(&())
}

/// A file that a task has written.
pub(super) async fn file(
    State(worker): State<Arc<Worker>>,
    Route((number, name)): Route<(u64, String)>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let task = worker.loads.task(number)?;
    let part = task.lock().part.clone();
    let path = part.and_then(|part| file_of_part(&part, &name));
    match path {
        Some(path) => Ok(serve(&path, request).await),
        None => {
            let why = format!("the task has written no file {name}");
            Err((StatusCode::NOT_FOUND, why))
        }
    }
}

/// Where a file of a part is: one of a chunk, or the run of the keys.
fn file_of_part(part: &Path, name: &str) -> Option<PathBuf> {
    let number = |text: &str| text.strip_suffix(".mrd")?.parse::<i32>().ok();
    let of_chunk = ["chunk_", "overlap_"]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).and_then(number).is_some());
    match name {
        "keys.mri" => Some(part.join("index").join(name)),
        _ if of_chunk => Some(part.join(name)),
        _ => None,
    }
}

/// Does the work of a task. Gives where what was written is, too.
async fn run(
    worker: &Worker,
    task: &Arc<Task>,
    order: LoadTask,
) -> Result<(LoadTaskOutcome, Option<PathBuf>), LoadTaskError> {
    let LoadTask {
        inputs,
        parts,
        work,
    } = order;
    let may_read = worker.loads.may_read.clone();
    let progress = Arc::clone(&task.progress);
    let scratch = task.scratch.clone();
    match work {
        LoadWork::Plan(mut request) => {
            prepare(worker, &mut request.load, &inputs, &scratch)?;
            let schema = request.load.schema.clone();
            let copies = scratch.join("copies");
            catalog::make_directories(&copies).map_err(of_machine)?;
            // It lives as long as somebody uses its directory.
            let held = Arc::clone(task);
            let planned = spawn_blocking(move || {
                let planned = plan_inputs(*request, copies, &may_read, &progress);
                drop(held);
                planned
            });
            let planned = planned.await.map_err(of_load)?;
            let plan = planned.map_err(|error| {
                let mut error = LoadTaskError::from(error);
                // Whoever reads this knows the file that was sent along.
                if let (Some(copy), Some(schema)) = (&schema, &inputs.schema) {
                    let copy = copy.display().to_string();
                    error.why = error.why.replace(&copy, &schema.name);
                }
                error
            })?;
            Ok((LoadTaskOutcome::Plan(Box::new(plan)), None))
        }
        LoadWork::Share(mut share) => {
            prepare(
                worker,
                &mut share.load,
                &LoadInputs {
                    schema: None,
                    ..inputs
                },
                &scratch,
            )?;
            let runs = 0..share.run_count().min(MOST_RUNS);
            let runs = runs.map(|run| run_path(&scratch, run)).collect();
            let turn = worker.loads.turn.acquire().await;
            let _turn = turn.map_err(of_load)?;
            let _held = worker.held.hold_parts(&parts).await?;
            let files = Arc::clone(&worker.held) as Arc<dyn PartFiles>;
            let written = write_share(*share, runs, files, &scratch, may_read, progress).await;
            let (report, part) = written.map_err(|error| worker.held.load_failure(error))?;
            Ok((LoadTaskOutcome::Share(Box::new(report)), Some(part)))
        }
    }
}

impl From<IngestError> for LoadTaskError {
    fn from(error: IngestError) -> Self {
        Self {
            why: error.to_string(),
            is_of_machine: error.is_of_machine(),
        }
    }
}

/// An error that it would be on each machine.
fn of_load(why: impl ToString) -> LoadTaskError {
    LoadTaskError {
        why: why.to_string(),
        is_of_machine: false,
    }
}

/// What this machine's disk says.
fn of_machine(error: std::io::Error) -> LoadTaskError {
    LoadTaskError {
        why: format!("cannot write what a load needs: {error}"),
        is_of_machine: true,
    }
}

/// Makes a request one of this process: nothing that it says of files is taken but the inputs, which are looked at with care.
fn prepare(
    worker: &Worker,
    load: &mut LoadRequest,
    inputs: &LoadInputs,
    scratch: &Path,
) -> Result<(), LoadTaskError> {
    let options = &worker.options;
    load.new_columns = None;
    load.schema = match &inputs.schema {
        None => None,
        Some(schema) => {
            // The name is for messages alone.
            let name = Path::new(&schema.name).file_name();
            let dir = scratch.join("schema");
            catalog::make_directories(&dir).map_err(of_machine)?;
            let path = dir.join(name.unwrap_or("schema.json".as_ref()));
            fs::write(&path, &schema.text).map_err(of_machine)?;
            Some(path)
        }
    };
    // Pieces of queries need their memory, too.
    let most = options.memory as u64 / 2;
    load.memory = Some(load.memory.map_or(most, |memory| memory.min(most)));
    let threads = options.threads.get();
    load.threads = Some(load.threads.map_or(threads, |it| it.min(threads)));
    let mut names = load.files.iter().filter_map(|file| file.to_str());
    if names.any(is_url) {
        let settings = Settings::of_environment(inputs.is_anonymous);
        let settings = settings.map_err(of_load)?;
        load.remote = Some(RemoteInputs::new(Client::new(settings)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_parts_are_given() {
        let part = Path::new("/p/7");
        let given = |name: &str| file_of_part(part, name);
        assert_eq!(given("keys.mri"), Some("/p/7/index/keys.mri".into()));
        assert_eq!(given("chunk_-1.mrd"), Some("/p/7/chunk_-1.mrd".into()));
        assert_eq!(given("overlap_12.mrd"), Some("/p/7/overlap_12.mrd".into()));
        for name in [
            "",
            "..",
            "chunk_.mrd",
            "chunk_../x.mrd",
            "manifest.json",
            "../keys.mri",
        ] {
            assert_eq!(given(name), None, "{name}");
        }
    }
}
