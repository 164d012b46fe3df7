//! What holds wherever pieces run, on this process's threads: when the scheduler says so, and without one.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use engine::{Archive, QueryExecution, Session, SessionOptions};
use futures::future::BoxFuture;
use piece_conformance::{PieceHost, Tables, register_probe};
use queries::QueryTurns;
use queries::scheduler::{LaneTable, PieceScheduler, SchedulerOptions};
use tokio::runtime::Runtime;

const THREADS: usize = 3;

/// A session of this process.
struct Threads {
    session: Session,
    scheduler: Option<Arc<PieceScheduler>>,
    queries: AtomicU64,
}

impl Threads {
    async fn new(scheduler: Option<Arc<PieceScheduler>>) -> Self {
        let archive = Archive::open(&TABLES.data_dir()).await.unwrap();
        let options = SessionOptions {
            cores: NonZeroUsize::new(THREADS),
            ..SessionOptions::default()
        };
        let session = Session::new(archive, &options).await.unwrap();
        register_probe(&session);
        Self {
            session,
            scheduler,
            queries: AtomicU64::new(1),
        }
    }
}

impl PieceHost for Threads {
    fn session(&self) -> &Session {
        &self.session
    }

    fn execution(&self) -> QueryExecution {
        let execution = QueryExecution::new();
        match &self.scheduler {
            None => execution,
            Some(scheduler) => {
                let query = self.queries.fetch_add(1, Relaxed);
                execution.with_scheduler(Arc::new(QueryTurns::new(scheduler, query, 0)))
            }
        }
    }

    fn pieces_elsewhere(&self) -> Option<u64> {
        None
    }

    fn lose_runner(&self) -> bool {
        false
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Each case holds one of them at most.
    builder.worker_threads(16).enable_all().build().unwrap()
});
static TABLES: LazyLock<Tables> = LazyLock::new(|| RUNTIME.block_on(Tables::load()));

type Case = for<'a> fn(&'a dyn PieceHost) -> BoxFuture<'a, ()>;

fn run(scheduler: Option<Arc<PieceScheduler>>, case: Case) {
    LazyLock::force(&TABLES);
    RUNTIME.block_on(async {
        let host = Threads::new(scheduler).await;
        case(&host).await;
    });
}

mod without_a_scheduler {
    fn run(case: super::Case) {
        super::run(None, case);
    }

    piece_conformance::conformance_tests!(run);
}

mod with_the_scheduler {
    use super::{LaneTable, PieceScheduler, SchedulerOptions, THREADS};

    fn run(case: super::Case) {
        let scheduler = PieceScheduler::new(SchedulerOptions {
            threads: THREADS,
            interactive_threads: 1,
            memory_bytes: 1 << 30,
            lanes: LaneTable::default(),
        });
        super::run(Some(scheduler), case);
    }

    piece_conformance::conformance_tests!(run);
}
