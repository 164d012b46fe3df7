//! What holds wherever pieces run, on the workers of a cluster in this process.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

use engine::{Archive, QueryExecution, Session, SessionOptions};
use futures::future::BoxFuture;
use piece_conformance::{PieceHost, Tables, register_probe};
use queries::QueryTurns;
use queries::scheduler::{LaneTable, PieceScheduler, SchedulerOptions};
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::{ClusterOptions, CredentialFiles, FrontEnd, KeptFiles, Worker, WorkerOptions};

const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const MEMORY: usize = 1 << 30;
/// No worker is taken for dead because the machine is slow.
const PATIENCE: Duration = Duration::from_secs(600);

/// A front end whose files two workers hold, both of them all.
struct Cluster {
    session: Session,
    front_end: Arc<FrontEnd>,
    scheduler: Arc<PieceScheduler>,
    queries: AtomicU64,
    /// Those that were not lost, each with what stops it.
    workers: Mutex<Vec<(Weak<Worker>, CancellationToken)>>,
    stop: CancellationToken,
    _tables: Tables,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    async fn start() -> Self {
        let tables = Tables::load().await;
        let secret = secret(&tables);
        let stop = CancellationToken::new();
        let archive = Archive::open(&tables.data_dir()).await.unwrap();
        let options = ClusterOptions {
            address: "127.0.0.1:0".to_owned(),
            advertise: None,
            credentials: CredentialFiles::Secret(secret.clone()),
            replicas: 2,
            kept_files: KeptFiles::All,
            lost_after: PATIENCE,
            stalled_after: PATIENCE,
            shuffle_above: None,
            is_insecure: false,
        };
        let front_end = FrontEnd::bind(Arc::clone(&archive), options).await.unwrap();
        tokio::spawn(Arc::clone(&front_end).run(stop.clone()));
        let mut workers = Vec::new();
        for name in ["w1", "w2"] {
            let join = front_end.address().to_string();
            workers.push(start_worker(&tables, name, join, &stop).await);
        }
        let options = SessionOptions {
            cores: Some(THREADS),
            dispatcher: Some(front_end.dispatcher()),
            ..SessionOptions::default()
        };
        let session = Session::new(archive, &options).await.unwrap();
        register_probe(&session);
        let cluster = Self {
            session,
            front_end,
            scheduler: PieceScheduler::new(SchedulerOptions {
                threads: THREADS.get(),
                interactive_threads: 1,
                memory_bytes: MEMORY as u64,
                lanes: LaneTable::default(),
            }),
            queries: AtomicU64::new(1),
            workers: Mutex::new(workers),
            stop,
            _tables: tables,
        };
        cluster.wait_for_replicas().await;
        cluster
    }

    async fn wait_for_replicas(&self) {
        let began = Instant::now();
        loop {
            let status = self.front_end.status();
            if status.files > 0 && status.missing_replicas == 0 && status.workers.len() == 2 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The secret of the cluster, in a file.
fn secret(tables: &Tables) -> PathBuf {
    let path = tables.directory("secret");
    fs::write(&path, "a-secret-of-a-cluster-of-tests").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

async fn start_worker(
    tables: &Tables,
    name: &str,
    join: String,
    stop: &CancellationToken,
) -> (Weak<Worker>, CancellationToken) {
    let options = WorkerOptions {
        data: vec![tables.directory(name)],
        user_data: Vec::new(),
        join: vec![join],
        address: "127.0.0.1:0".to_owned(),
        advertise: None,
        name: name.to_owned(),
        credentials: CredentialFiles::Secret(tables.directory("secret")),
        threads: THREADS,
        memory: MEMORY,
        spilled: None,
        cache: 64 << 20,
        // The disk of who runs the tests may be fuller than that of a worker should be.
        disk_limit: 100,
        repair_bandwidth: None,
        load_from: Vec::new(),
        is_insecure: false,
    };
    let (worker, listener) = Worker::bind(options).await.unwrap();
    register_probe(&worker.session);
    let stop = stop.child_token();
    let known = Arc::downgrade(&worker);
    let (runtime, stopping) = (Handle::current(), stop.clone());
    std::thread::spawn(move || runtime.block_on(worker.run(listener, stopping)).unwrap());
    (known, stop)
}

impl PieceHost for Cluster {
    fn session(&self) -> &Session {
        &self.session
    }

    fn execution(&self) -> QueryExecution {
        let query = self.queries.fetch_add(1, Relaxed);
        let turns = QueryTurns::new(&self.scheduler, query, 0);
        QueryExecution::new().with_scheduler(Arc::new(turns))
    }

    fn pieces_elsewhere(&self) -> Option<u64> {
        Some(self.front_end.status().remote_pieces)
    }

    /// That which has a piece on a thread: its connections are cut.
    fn lose_runner(&self) -> bool {
        let mut workers = self.workers.lock().unwrap();
        let is_waiting = |worker: &Weak<Worker>| {
            let worker = worker.upgrade();
            worker.is_some_and(|it| it.scheduler.status().lanes.iter().any(|it| it.running > 0))
        };
        let Some(at) = workers.iter().position(|(worker, _)| is_waiting(worker)) else {
            return false;
        };
        let (_, stop) = workers.swap_remove(at);
        stop.cancel();
        true
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(8).enable_all().build().unwrap()
});
static SHARED: LazyLock<Cluster> = LazyLock::new(|| RUNTIME.block_on(Cluster::start()));

type Case = for<'a> fn(&'a dyn PieceHost) -> BoxFuture<'a, ()>;

/// Those that lose nobody share a cluster, one after another: its threads are few.
fn run(case: Case) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    RUNTIME.block_on(case(&*SHARED));
}

piece_conformance::conformance_tests!(run);
