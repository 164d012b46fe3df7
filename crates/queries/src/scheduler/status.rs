//! What the scheduler tells users and metrics of itself.

use std::fmt;
use std::time::Duration;

/// Pieces by what has become of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PieceCounts {
    /// Not started.
    pub waiting: usize,
    /// On a thread.
    pub running: usize,
    /// Started, and without a thread until their readers catch up.
    pub paused: usize,
    /// Ended well.
    pub done: usize,
    /// Failed or given up.
    pub failed: usize,
}

/// A lane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneStatus {
    /// Its name.
    pub name: String,
    /// The chunk that it has opened last; none if nothing has run in it.
    pub position: Option<u32>,
    /// How often it has begun a way over the chunks.
    pub round: u64,
    /// The queries that have phases in it.
    pub queries: usize,
    /// Their pieces that are not started.
    pub waiting: usize,
    /// Their pieces on a thread.
    pub running: usize,
    /// Their pieces without a thread until their readers catch up.
    pub paused: usize,
    /// The threads that it gets for certain while it has that much to run; 0 while it has nothing to run.
    pub reserved_threads: usize,
}

/// The interactive pieces at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InteractiveStatus {
    /// Pieces that wait for a thread.
    pub queued: usize,
    /// Pieces on a thread.
    pub running: usize,
    /// Threads for them.
    pub threads: usize,
}

/// The scheduler at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerStatus {
    /// The lanes, fastest first.
    pub lanes: Vec<LaneStatus>,
    /// The interactive pieces.
    pub interactive: InteractiveStatus,
    /// Threads for scans.
    pub threads: usize,
    /// The memory that started pieces take by their estimates, in bytes.
    pub memory_used: u64,
    /// The memory that they may take together, in bytes.
    pub memory_bytes: u64,
}

/// What scheduling itself takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerCost {
    /// About how many bytes of memory the phases and their pieces take.
    pub bytes: usize,
    /// How often a phase was given its place in a lane, which takes a time logarithmic in the number of its pieces and of the
    /// lane's phases.
    pub placements: u64,
}

/// By which rule a query was too slow for its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowReason {
    /// Its pieces take longer on average than those of this lane may.
    MeanPieceTime {
        /// The query's mean.
        mean: Duration,
        /// The lane's bound.
        bound: Duration,
    },
    /// It has taken more thread time than a query of this lane may.
    TotalTime {
        /// The query's thread time in the lane.
        used: Duration,
        /// The lane's bound, for all threads.
        bound: Duration,
    },
}

impl fmt::Display for SlowReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MeanPieceTime { mean, bound } => {
                write!(
                    f,
                    "its pieces take {mean:.1?} on average, more than {bound:.1?}"
                )
            }
            Self::TotalTime { used, bound } => {
                write!(
                    f,
                    "it has taken {used:.1?} of thread time, more than {bound:.1?}"
                )
            }
        }
    }
}

/// A move of a query to a slower lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneChange {
    /// When, since the scheduler started.
    pub at: Duration,
    /// The lane that the query left.
    pub from: String,
    /// The lane that it joined.
    pub to: String,
    /// Why.
    pub reason: SlowReason,
}

/// A query at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryStatus {
    /// Its number.
    pub query: u64,
    /// The name of its lane, the slowest if its phases are or were in several; none if it only has interactive pieces.
    pub lane: Option<String>,
    /// Its pieces, of all phases so far.
    pub pieces: PieceCounts,
    /// The thread time that it has taken, interactive pieces included.
    pub thread_time: Duration,
    /// If it waits for a thread and has none: how many queries of its lane, or of the interactive queue, come before it, plus 1.
    pub place_in_queue: Option<usize>,
    /// Its moves to slower lanes, in order.
    pub lane_changes: Vec<LaneChange>,
}
