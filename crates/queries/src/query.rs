//! A query: what is known of it, which front end runs it, and how it ends.

use std::sync::{Arc, Mutex};

use engine::milestones::{MOST, merged};
use engine::{PieceJournal, QueryExecution, QueryInfo, QueryState, WaitsFor};
use tokio_util::sync::CancellationToken;

use crate::QueryError;
use crate::admission::QueryAdmission;
use crate::lease::Lease;
use crate::milestones;
use crate::record::{QueryRecord, now};
use crate::registry::lock;
use crate::scheduler::PieceScheduler;
use crate::turns::{QueryTurns, number_of_user};

/// Which front end runs a query.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// This one, while it has the lease, if there is one.
    Here(Option<Arc<Lease>>),
    /// Another one, or one that is gone.
    Elsewhere,
}

impl Place {
    /// The number of the front end, where there are several.
    pub(crate) fn front_end(&self) -> u64 {
        match self {
            Self::Here(Some(lease)) => lease.front_end,
            Self::Here(None) | Self::Elsewhere => 0,
        }
    }
}

/// A query.
#[derive(Debug)]
pub(crate) struct Query {
    pub id: u64,
    pub is_async: bool,
    pub place: Place,
    record: Mutex<QueryRecord>,
    /// While it runs.
    running: Mutex<Option<RunningState>>,
    /// Cancelled to end it.
    pub cancel: CancellationToken,
}

impl Query {
    pub(crate) fn new(record: QueryRecord, place: Place) -> Self {
        Self::ended_by(CancellationToken::new(), record, place)
    }

    /// One that ends when a token is cancelled.
    pub(crate) fn ended_by(cancel: CancellationToken, record: QueryRecord, place: Place) -> Self {
        Self {
            id: record.id,
            is_async: record.is_async,
            place,
            record: Mutex::new(record),
            running: Mutex::default(),
            cancel,
        }
    }

    /// What is known of it now.
    pub(crate) fn record(&self) -> QueryRecord {
        let mut record = lock(&self.record).clone();
        if let Some(running) = &*lock(&self.running) {
            record.pieces_done = running.execution.pieces_done();
            record.pieces = record.pieces.max(running.execution.pieces());
            record.lane = running.lane().or(record.lane);
            let reads = running.execution.reads();
            record.decoded_bytes = reads.decoded();
            record.shared_bytes = reads.shared();
            record.cached_from = running.execution.cached_from();
            let mut milestones = running.execution.milestones().all();
            // Those of a former process come first.
            drop(milestones.splice(0..0, record.milestones.iter().cloned()));
            record.milestones = merged(milestones, MOST).into();
            running.admission.note(&mut record);
        }
        record
    }

    /// Whether this front end runs it, or did.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.place, Place::Here(_))
    }

    /// The lease of this front end on it.
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        match &self.place {
            Place::Here(lease) => lease.as_ref(),
            Place::Elsewhere => None,
        }
    }

    /// Whether this front end runs it, and nobody can have taken it over.
    pub(crate) fn is_held(&self) -> bool {
        self.is_here() && self.lease().is_none_or(|lease| lease.holds())
    }

    /// Waits until the lease is lost, or for ever.
    pub(crate) async fn lost(&self) {
        match self.lease() {
            Some(lease) => lease.lost.cancelled().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn state(&self) -> QueryState {
        lock(&self.record).state
    }

    /// What users see of it; `turn` is its place among those that wait for their turn.
    pub(crate) fn info(&self, turn: Option<u64>) -> QueryInfo {
        let memory = lock(&self.running)
            .as_ref()
            .and_then(|it| it.admission.place());
        let record = self.record();
        match memory {
            Some(place) if !record.state.is_final() => {
                let waiting = QueryRecord {
                    state: QueryState::Queued,
                    ..record
                };
                waiting.info(Some((place, WaitsFor::Memory)))
            }
            _ => record.info(turn.map(|place| (place, WaitsFor::Turn))),
        }
    }

    /// The state as users see it: a query that waits for memory is queued.
    pub(crate) fn shown_state(&self) -> QueryState {
        let running = lock(&self.running);
        let waits = running
            .as_ref()
            .is_some_and(|it| it.admission.place().is_some());
        drop(running);
        match self.state() {
            QueryState::Executing if waits => QueryState::Queued,
            state => state,
        }
    }

    /// Whether it waits for memory, or has waited for it until it was ended.
    pub(crate) fn has_waited_for_memory(&self) -> bool {
        let running = lock(&self.running);
        running.as_ref().is_some_and(|it| it.admission.has_waited())
    }

    /// Changes what is known of it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut QueryRecord) -> T) -> T {
        change(&mut lock(&self.record))
    }

    /// Notes that it begins to run; returns what those who execute it report to.
    pub(crate) fn begin_execution(
        &self,
        scheduler: &Arc<PieceScheduler>,
        admission: &Arc<QueryAdmission>,
        journal: Option<Arc<dyn PieceJournal>>,
    ) -> Arc<QueryExecution> {
        let user = number_of_user(&lock(&self.record).user);
        let turns = Arc::new(QueryTurns::new(scheduler, self.id, user));
        let admission = Arc::clone(admission);
        let execution = QueryExecution::new()
            .with_number(self.id)
            .with_user(user)
            .with_scheduler(Arc::clone(&turns) as _)
            .with_admission(Arc::clone(&admission) as _);
        let execution = Arc::new(match journal {
            Some(journal) => execution.with_journal(journal),
            None => execution,
        });
        let begun = Arc::clone(&execution);
        *lock(&self.running) = Some(RunningState {
            execution,
            turns,
            admission,
        });
        begun
    }

    /// What would be known of it if it ended now in this state.
    pub(crate) fn ended(&self, state: QueryState, error: Option<&QueryError>) -> QueryRecord {
        let seen = self.record();
        QueryRecord {
            state,
            ended: Some(now()),
            milestones: milestones::kept(&seen.milestones).into(),
            error_code: error.map(|error| error.code.number),
            error: error.map(|error| error.sentence.clone()),
            ..seen
        }
    }

    /// Ends it in this state, unless it has ended. Returns whether it had not.
    pub(crate) fn end(&self, state: QueryState, error: Option<&QueryError>) -> bool {
        self.end_as(self.ended(state, error))
    }

    /// Gives back what it has taken to run: it runs here no more.
    pub(crate) fn let_go(&self) {
        let running = lock(&self.running).take();
        if let Some(running) = running {
            running.admission.end();
        }
    }

    /// The same with all that is known of it.
    pub(crate) fn end_as(&self, ended: QueryRecord) -> bool {
        let running = lock(&self.running).take();
        if let Some(running) = running {
            running.observe();
            running.admission.end();
        }
        self.update(|record| {
            let was_active = !record.state.is_final();
            if was_active {
                *record = ended;
            }
            was_active
        })
    }
}

/// What is known of a query only while it runs.
#[derive(Debug)]
struct RunningState {
    execution: Arc<QueryExecution>,
    turns: Arc<QueryTurns>,
    admission: Arc<QueryAdmission>,
}

impl RunningState {
    /// Notes how fast its scans were.
    fn observe(&self) {
        if let Some(status) = self.turns.status() {
            let (done, all) = (self.execution.pieces_done(), self.execution.pieces());
            self.admission.observe(status.thread_time, done, all);
        }
    }

    /// The lane of its scans; `INTERACTIVE` if it has only pieces that wait for none.
    fn lane(&self) -> Option<String> {
        let status = self.turns.status()?;
        let counts = status.pieces;
        let any = counts.waiting + counts.running + counts.paused + counts.done + counts.failed > 0;
        let interactive = || any.then(|| "INTERACTIVE".to_owned());
        status
            .lane
            .map(|lane| lane.to_ascii_uppercase())
            .or_else(interactive)
    }
}
