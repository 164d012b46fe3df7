//! Which piece of which query gets the next free thread.
//!
//! A query that scans has one or more phases, and each phase has pieces. All phases of all queries of this process enroll
//! in one scheduler. Here is what it is told ([`SchedulerOptions`], [`PhaseDemand`]) and what it tells.

mod options;
mod status;

pub use options::{LaneOptions, LaneTable, LaneTableError, SchedulerOptions};
pub use status::{
    InteractiveStatus, LaneChange, LaneStatus, PieceCounts, QueryStatus, SchedulerStatus,
    SlowReason,
};

/// How a phase's pieces are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A few pieces that a user waits for. They have threads of their own and never wait for a scan.
    Interactive,
    /// Many pieces, which share their lane's way over the chunks with other queries.
    Scan {
        /// The largest scan rating among the tables that the phase reads: it selects the lane.
        rating: u8,
    },
}

/// What a phase asks of the scheduler when it enrolls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseDemand {
    /// The query's number. All phases of a query count as one when threads are shared out.
    pub query: u64,
    /// How its pieces are scheduled.
    pub class: Class,
    /// For each piece the number of its first chunk, in ascending order. Pieces may share a chunk. A number that is smaller
    /// than the one before it counts as that one.
    pub chunks: Vec<u32>,
    /// About how many bytes of memory one piece takes while it runs.
    pub bytes_per_piece: u64,
}

/// How a piece ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceOutcome {
    /// All its rows were computed.
    Done,
    /// It failed, or nobody wants its rows any more.
    Failed,
}
