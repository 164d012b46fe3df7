//! The turns of one query's pieces, as the engine asks for them.

use std::fmt;
use std::sync::Arc;

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
}

impl QueryTurns {
    /// The phases of the query of this number.
    pub fn new(scheduler: &Arc<PieceScheduler>, query: u64) -> Self {
        Self {
            scheduler: Arc::clone(scheduler),
            query,
            held: scheduler.hold_query(query),
        }
    }

    pub(crate) fn status(&self) -> Option<QueryStatus> {
        self.held.status()
    }
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
        Arc::new(Phase(self.scheduler.enroll(
            crate::scheduler::PhaseDemand {
                query: self.query,
                class,
                chunks: demand.chunks,
                bytes_per_piece: BYTES_PER_PIECE,
            },
        )))
    }
}

struct Phase(EnrolledPhase);

impl engine::EnrolledPhase for Phase {
    fn next(&self) -> BoxFuture<'_, Option<Box<dyn engine::PieceTurn>>> {
        let next = self.0.next();
        async move { next.await.map(boxed) }.boxed()
    }
}

fn boxed(turn: Turn) -> Box<dyn engine::PieceTurn> {
    Box::new(HeldTurn(turn))
}

struct HeldTurn(Turn);

impl engine::PieceTurn for HeldTurn {
    fn piece(&self) -> usize {
        self.0.piece()
    }

    fn sharers(&self) -> u32 {
        self.0.sharers()
    }

    fn pause(self: Box<Self>) -> Box<dyn engine::PausedTurn> {
        Box::new(Paused(self.0.pause()))
    }

    fn finish(self: Box<Self>) {
        self.0.finish(PieceOutcome::Done);
    }
}

struct Paused(PausedTurn);

impl engine::PausedTurn for Paused {
    fn resume(self: Box<Self>) -> BoxFuture<'static, Option<Box<dyn engine::PieceTurn>>> {
        let resumed = self.0.resume();
        async move { resumed.await.map(boxed) }.boxed()
    }
}
