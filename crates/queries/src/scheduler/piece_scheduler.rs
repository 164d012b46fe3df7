//! The scheduler that tasks wait on: [`LaneScheduler`] behind a mutex, with the clock, and somebody to wake for each grant.
//!
//! It needs no runtime: a task that waits leaves its waker, and whoever frees a thread wakes the task that gets it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{
    Grant, LaneScheduler, PhaseDemand, PhaseId, PieceOutcome, QueryStatus, SchedulerOptions,
    SchedulerStatus, TurnId,
};

/// Shares out the threads and the memory of this process among the pieces of all queries.
pub struct PieceScheduler {
    state: Mutex<State>,
    started: Instant,
}

struct State {
    core: LaneScheduler,
    phases: HashMap<PhaseId, Waiters>,
    /// Paused turns that wait to go on.
    resuming: HashMap<TurnId, (PhaseId, Waker)>,
    /// Those of them that may.
    resumed: HashSet<TurnId>,
}

/// The tasks that wait for a piece of one phase. Invariant: the core has one demand for each that is in `waiting`.
#[derive(Default)]
struct Waiters {
    last_ticket: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Turns that are granted to a waiter that has not taken its own yet.
    granted: BTreeMap<u64, Grant>,
}

/// The wakers of tasks that have something to do, woken once the mutex is free.
type Wakers = Vec<Waker>;

impl State {
    /// Starts what free threads can start, and tells the tasks.
    fn start_pieces(&mut self, now: Duration, wakers: &mut Wakers) {
        for grant in self.core.start_pieces(now) {
            self.deliver(grant, now, wakers);
        }
    }

    fn deliver(&mut self, grant: Grant, now: Duration, wakers: &mut Wakers) {
        if grant.resumed {
            self.resumed.insert(grant.turn);
            wakers.extend(self.resuming.remove(&grant.turn).map(|(_, waker)| waker));
            return;
        }
        let waiters = self.phases.get_mut(&grant.phase);
        let first = waiters.and_then(|waiters| {
            let (ticket, waker) = waiters.waiting.pop_first()?;
            waiters.granted.insert(ticket, grant);
            Some(waker)
        });
        debug_assert!(first.is_some(), "a piece was granted that nobody waits for");
        if first.is_none() {
            self.core.finish(grant.turn, PieceOutcome::Failed, now);
        }
        wakers.extend(first);
    }

    /// Whether no task will get a piece of the phase any more: none is left, and none might still be given back.
    fn is_over(&self, phase: PhaseId) -> bool {
        self.core.is_exhausted(phase)
            && self
                .phases
                .get(&phase)
                .is_none_or(|waiters| waiters.granted.is_empty())
    }

    /// Wakes the tasks that wait in vain.
    fn wake_if_over(&mut self, phase: PhaseId, wakers: &mut Wakers) {
        if self.is_over(phase)
            && let Some(waiters) = self.phases.get_mut(&phase)
        {
            for waker in std::mem::take(&mut waiters.waiting).into_values() {
                self.core.withdraw(phase);
                wakers.push(waker);
            }
        }
    }

    /// Ends a phase. The grants that no task has taken are given back.
    fn close(&mut self, phase: PhaseId, now: Duration, wakers: &mut Wakers) {
        self.core.close(phase);
        if let Some(waiters) = self.phases.remove(&phase) {
            for Grant { turn, .. } in waiters.granted.into_values() {
                self.core.finish(turn, PieceOutcome::Failed, now);
            }
            wakers.extend(waiters.waiting.into_values());
        }
        let resuming = self.resuming.values().filter(|(other, _)| *other == phase);
        wakers.extend(resuming.map(|(_, waker)| waker.clone()));
    }
}

impl fmt::Debug for PieceScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.status())
    }
}

impl PieceScheduler {
    /// A scheduler with nothing enrolled.
    pub fn new(options: SchedulerOptions) -> Arc<Self> {
        let state = State {
            core: LaneScheduler::new(options),
            phases: HashMap::new(),
            resuming: HashMap::new(),
            resumed: HashSet::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            started: Instant::now(),
        })
    }

    /// Enrolls a phase, which joins its lane at the lane's present position. Nothing runs until a task calls
    /// [`EnrolledPhase::next`].
    pub fn enroll(self: &Arc<Self>, demand: PhaseDemand) -> EnrolledPhase {
        let mut state = self.lock();
        let id = state.core.enroll(demand);
        state.phases.insert(id, Waiters::default());
        EnrolledPhase {
            scheduler: Arc::clone(self),
            id,
        }
    }

    /// Keeps what is known of the query, its lane and its lane changes among it, until this is dropped, also while none of its
    /// phases is enrolled. A statement whose phases run one after the other needs it.
    pub fn hold_query(self: &Arc<Self>, query: u64, user: u64) -> HeldQuery {
        self.lock().core.hold_query(query, user);
        HeldQuery {
            scheduler: Arc::clone(self),
            query,
        }
    }

    /// The name of the lane for scans of this rating.
    pub fn lane_name(&self, rating: u8) -> String {
        let state = self.lock();
        let lanes = state.core.lane_table();
        lanes.lanes()[lanes.lane_of(rating)].name.clone()
    }

    /// The lanes, the interactive pieces and the memory.
    pub fn status(&self) -> SchedulerStatus {
        self.lock().core.status()
    }

    /// A query that is held or has phases.
    pub fn query_status(&self, query: u64) -> Option<QueryStatus> {
        let now = self.now();
        self.lock().core.query_status(query, now)
    }

    /// All queries that are held or have phases, by number.
    pub fn query_statuses(&self) -> Vec<QueryStatus> {
        let now = self.now();
        self.lock().core.query_statuses(now)
    }

    /// The time since the scheduler started.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports something to the core, starts what can start then, and wakes the tasks concerned without the mutex.
    fn update<T>(&self, report: impl FnOnce(&mut State, Duration, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::new();
        let mut state = self.lock();
        // Read within the mutex, so that the core's time does not go back.
        let now = self.now();
        let value = report(&mut state, now, &mut wakers);
        state.start_pieces(now, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        value
    }
}

/// What the scheduler knows of a query is kept while this exists.
pub struct HeldQuery {
    scheduler: Arc<PieceScheduler>,
    query: u64,
}

impl HeldQuery {
    /// The query at this moment.
    pub fn status(&self) -> Option<QueryStatus> {
        self.scheduler.query_status(self.query)
    }
}

impl Drop for HeldQuery {
    fn drop(&mut self) {
        self.scheduler.lock().core.release_query(self.query);
    }
}

/// A phase whose pieces wait for threads. Dropping it, or [`cancel`](Self::cancel), gives up all pieces that have not started;
/// turns keep their threads until they are dropped themselves, as their pieces really run until then.
pub struct EnrolledPhase {
    scheduler: Arc<PieceScheduler>,
    id: PhaseId,
}

impl EnrolledPhase {
    /// Waits until a piece of the phase may run. Every piece is given to one task only; any number of tasks may wait at once.
    /// It is none when all pieces are given out or the phase is cancelled.
    ///
    /// This is cancel safe: a piece that was meant for a future that is dropped goes to another one. A future that was polled
    /// must be polled again when it is woken, or dropped: it may hold a thread.
    pub fn next(&self) -> NextTurn<'_> {
        NextTurn {
            phase: self,
            ticket: None,
        }
    }

    /// No piece starts any more, and all tasks that wait get none.
    pub fn cancel(&self) {
        self.scheduler
            .update(|state, now, wakers| state.close(self.id, now, wakers));
    }
}

impl Drop for EnrolledPhase {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Waits for a piece of a phase: see [`EnrolledPhase::next`].
#[must_use = "it waits only while it is awaited"]
pub struct NextTurn<'a> {
    phase: &'a EnrolledPhase,
    ticket: Option<u64>,
}

impl NextTurn<'_> {
    /// Asks for a piece at the first poll. It is false if there will be none.
    fn request(&mut self, waker: &Waker) -> bool {
        let id = self.phase.id;
        let ticket = self.phase.scheduler.update(|state, now, _| {
            if state.is_over(id) {
                return None;
            }
            let waiters = state.phases.get_mut(&id)?;
            waiters.last_ticket += 1;
            waiters.waiting.insert(waiters.last_ticket, waker.clone());
            let ticket = waiters.last_ticket;
            state.core.request(id, now);
            Some(ticket)
        });
        self.ticket = ticket;
        ticket.is_some()
    }

    /// The granted turn; none if there will be none; pending if it is still to come.
    fn take(&self, ticket: u64, waker: &Waker) -> Poll<Option<Grant>> {
        let id = self.phase.id;
        self.phase.scheduler.update(|state, _, wakers| {
            let Some(waiters) = state.phases.get_mut(&id) else {
                return Poll::Ready(None);
            };
            if let Some(granted) = waiters.granted.remove(&ticket) {
                state.wake_if_over(id, wakers);
                return Poll::Ready(Some(granted));
            }
            match waiters.waiting.get_mut(&ticket) {
                Some(waiting) => {
                    waiting.clone_from(waker);
                    Poll::Pending
                }
                None => Poll::Ready(None),
            }
        })
    }
}

impl Future for NextTurn<'_> {
    type Output = Option<Turn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        if self.ticket.is_none() && !self.request(context.waker()) {
            return Poll::Ready(None);
        }
        let Some(ticket) = self.ticket else {
            return Poll::Ready(None);
        };
        let taken = self.take(ticket, context.waker());
        if taken.is_ready() {
            self.ticket = None;
        }
        taken.map(|granted| {
            let grant = granted?;
            let scheduler = Arc::clone(&self.phase.scheduler);
            Some(Turn {
                scheduler,
                id: grant.turn,
                phase: self.phase.id,
                piece: grant.piece,
                sharers: grant.sharers,
                is_over: false,
            })
        })
    }
}

impl Drop for NextTurn<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let id = self.phase.id;
        self.phase.scheduler.update(|state, now, wakers| {
            let Some(waiters) = state.phases.get_mut(&id) else {
                return;
            };
            if waiters.waiting.remove(&ticket).is_some() {
                state.core.withdraw(id);
            } else if let Some(Grant { turn, .. }) = waiters.granted.remove(&ticket) {
                state.core.give_back(turn, now);
                state.wake_if_over(id, wakers);
            }
        });
    }
}

/// A piece that runs. It holds one thread until it is finished, paused or dropped.
#[must_use = "it holds a thread"]
pub struct Turn {
    scheduler: Arc<PieceScheduler>,
    id: TurnId,
    phase: PhaseId,
    piece: usize,
    sharers: u32,
    /// Whether somebody else accounts for the piece from now on.
    is_over: bool,
}

impl Turn {
    /// The piece's index among those that the phase has enrolled with.
    pub fn piece(&self) -> usize {
        self.piece
    }

    /// How many other phases of the lane had a piece left of the same chunk when this one began.
    pub fn sharers(&self) -> u32 {
        self.sharers
    }

    /// The piece is over, and its thread is free.
    pub fn finish(mut self, outcome: PieceOutcome) {
        self.end(outcome);
    }

    /// Gives the thread up until [`PausedTurn::resume`]: the piece's reader is behind.
    pub fn pause(mut self) -> PausedTurn {
        self.is_over = true;
        self.scheduler
            .update(|state, now, _| state.core.pause(self.id, now));
        PausedTurn {
            scheduler: Arc::clone(&self.scheduler),
            id: self.id,
            phase: self.phase,
            piece: self.piece,
            is_over: false,
        }
    }

    fn end(&mut self, outcome: PieceOutcome) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.scheduler
                .update(|state, now, _| state.core.finish(self.id, outcome, now));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end(PieceOutcome::Failed);
    }
}

/// A piece that has started and has no thread. If it is dropped, the piece has failed.
#[must_use = "the piece fails if this is dropped"]
pub struct PausedTurn {
    scheduler: Arc<PieceScheduler>,
    id: TurnId,
    phase: PhaseId,
    piece: usize,
    is_over: bool,
}

impl PausedTurn {
    /// The piece's index among those that the phase has enrolled with.
    pub fn piece(&self) -> usize {
        self.piece
    }

    /// Waits for a thread, before the lane's pieces that have not started. It is none if the phase was cancelled. If the
    /// future is dropped, the piece has failed.
    pub fn resume(self) -> ResumedTurn {
        ResumedTurn {
            paused: self,
            has_asked: false,
        }
    }
}

impl Drop for PausedTurn {
    fn drop(&mut self) {
        if !self.is_over {
            self.scheduler.update(|state, now, _| {
                state.resuming.remove(&self.id);
                state.resumed.remove(&self.id);
                state.core.finish(self.id, PieceOutcome::Failed, now);
            });
        }
    }
}

/// Waits until a paused piece may go on: see [`PausedTurn::resume`].
#[must_use = "it waits only while it is awaited"]
pub struct ResumedTurn {
    paused: PausedTurn,
    has_asked: bool,
}

impl ResumedTurn {
    /// Whether the piece may go on; none if its phase was cancelled.
    fn take(&self, requests: bool, waker: &Waker) -> Poll<Option<()>> {
        let PausedTurn {
            scheduler,
            id,
            phase,
            ..
        } = &self.paused;
        scheduler.update(|state, now, wakers| {
            if !state.phases.contains_key(phase) {
                return Poll::Ready(None);
            }
            if requests {
                state.resuming.insert(*id, (*phase, waker.clone()));
                state.core.request_resume(*id, now);
                state.start_pieces(now, wakers);
            }
            if state.resumed.remove(id) {
                return Poll::Ready(Some(()));
            }
            state.resuming.insert(*id, (*phase, waker.clone()));
            Poll::Pending
        })
    }
}

impl Future for ResumedTurn {
    type Output = Option<Turn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        if self.paused.is_over {
            return Poll::Ready(None);
        }
        let requests = !std::mem::replace(&mut self.has_asked, true);
        self.take(requests, context.waker()).map(|may_run| {
            may_run?;
            self.paused.is_over = true;
            let PausedTurn {
                scheduler,
                id,
                phase,
                piece,
                ..
            } = &self.paused;
            Some(Turn {
                scheduler: Arc::clone(scheduler),
                id: *id,
                phase: *phase,
                piece: *piece,
                sharers: 0,
                is_over: false,
            })
        })
    }
}
