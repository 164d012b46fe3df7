//! The turns of one query's pieces, as the engine asks for them.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use engine::{INTERACTIVE_CHUNKS, PhaseDemand};
use futures::future::{BoxFuture, FutureExt};

use crate::scheduler::{
    Class, EnrolledPhase, HeldQuery, PausedTurn, PieceOutcome, PieceScheduler, QueryStatus, Turn,
};

/// Bytes of memory that a piece is taken to need: the decoded columns of some hundred thousand rows.
const BYTES_PER_PIECE: u64 = 16 << 20;

/// Enrolls the phases of one query with the scheduler.
pub struct QueryTurns {
    scheduler: Arc<PieceScheduler>,
    query: u64,
    held: HeldQuery,
    running: Arc<AtomicUsize>,
}

impl QueryTurns {
    /// The phases of the query of this number, which is a user's.
    pub fn new(scheduler: &Arc<PieceScheduler>, query: u64, user: u64) -> Self {
        Self {
            scheduler: Arc::clone(scheduler),
            query,
            held: scheduler.hold_query(query, user),
            running: Arc::default(),
        }
    }

    /// How many of its pieces have their turn now: the others wait, or are done.
    pub fn num_running(&self) -> usize {
        self.running.load(Relaxed)
    }

    pub(crate) fn status(&self) -> Option<QueryStatus> {
        self.held.status()
    }
}

/// The number by which the scheduler knows a user. Users whose numbers are equal, which hardly happens, share what one would have.
pub(crate) fn number_of_user(user: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}

impl fmt::Debug for QueryTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueryTurns({})", self.query)
    }
}

impl engine::PieceScheduler for QueryTurns {
    fn report(&self) -> Vec<String> {
        let Some(status) = self.status() else {
            return Vec::new();
        };
        let mut lines = vec![format!("thread time: {:.3?}", status.thread_time)];
        lines.extend(status.lane_changes.iter().map(|change| {
            let (from, to) = (&change.from, &change.to);
            let (from, to) = (from.to_ascii_uppercase(), to.to_ascii_uppercase());
            format!("moved from lane {from} to {to}: {}", change.reason)
        }));
        lines
    }

    fn enroll(&self, demand: PhaseDemand) -> Arc<dyn engine::EnrolledPhase> {
        let class = match demand.num_chunks <= INTERACTIVE_CHUNKS {
            true => Class::Interactive,
            false => Class::Scan {
                rating: demand.rating,
            },
        };
        let phase = self.scheduler.enroll(crate::scheduler::PhaseDemand {
            query: self.query,
            class,
            chunks: demand.chunks,
            bytes_per_piece: BYTES_PER_PIECE,
        });
        Arc::new(Phase {
            phase,
            running: Arc::clone(&self.running),
        })
    }
}

struct Phase {
    phase: EnrolledPhase,
    running: Arc<AtomicUsize>,
}

impl engine::EnrolledPhase for Phase {
    fn next(&self) -> BoxFuture<'_, Option<Box<dyn engine::PieceTurn>>> {
        let (next, running) = (self.phase.next(), Arc::clone(&self.running));
        async move { next.await.map(|turn| boxed(turn, running)) }.boxed()
    }
}

fn boxed(turn: Turn, running: Arc<AtomicUsize>) -> Box<dyn engine::PieceTurn> {
    running.fetch_add(1, Relaxed);
    Box::new(HeldTurn {
        turn,
        counted: CountedTurn(running),
    })
}

/// One of the turns that are counted.
struct CountedTurn(Arc<AtomicUsize>);

impl Drop for CountedTurn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct HeldTurn {
    turn: Turn,
    counted: CountedTurn,
}

impl engine::PieceTurn for HeldTurn {
    fn piece(&self) -> usize {
        self.turn.piece()
    }

    fn sharers(&self) -> u32 {
        self.turn.sharers()
    }

    fn pause(self: Box<Self>) -> Box<dyn engine::PausedTurn> {
        Box::new(CountedPause {
            turn: self.turn.pause(),
            running: Arc::clone(&self.counted.0),
        })
    }

    fn finish(self: Box<Self>) {
        self.turn.finish(PieceOutcome::Done);
    }
}

struct CountedPause {
    turn: PausedTurn,
    running: Arc<AtomicUsize>,
}

impl engine::PausedTurn for CountedPause {
    fn resume(self: Box<Self>) -> BoxFuture<'static, Option<Box<dyn engine::PieceTurn>>> {
        let (resumed, running) = (self.turn.resume(), self.running);
        async move { resumed.await.map(|turn| boxed(turn, running)) }.boxed()
    }
}
