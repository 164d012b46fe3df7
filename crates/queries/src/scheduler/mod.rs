//! Which piece of which query gets the next free thread.
//!
//! A query that scans has one or more phases, and each phase has pieces. All phases of all queries of this process enroll
//! with one [`PieceScheduler`], on which their tasks wait for a piece and a thread. The decisions are made by
//! [`LaneScheduler`], which is synchronous and is told the time, so that the tests run it in a simulation.
//!
//! # Rules
//!
//! Threads and memory:
//! 1. At most `threads` pieces of scans run at once, and at most `interactive_threads` interactive ones.
//! 2. No thread is free while a task waits for a piece that may start in it.
//! 3. A piece of a scan starts only if the estimates of all started pieces and its own fit the memory. A lane with nothing running
//!    may start one piece all the same. A lane does not pass over a piece that does not fit: it would never come.
//! 4. A lane is *busy* while a piece of it runs or wants a thread. The threads are divided among the busy lanes by weight, at least
//!    one for each: the lane's **quota**. A free thread goes to the fastest lane below its quota; if all that want it have theirs,
//!    to the fastest. If the quotas are more than the threads (more busy lanes than threads), a free thread goes to the
//!    lane below its quota that has had the least thread time for its weight, so that lanes take turns.
//!
//! The way of a lane over the chunks:
//!
//! 5. A lane *opens* chunks in ascending order, round and round: its position is the chunk that it has opened last. The next one
//!    is the first, from the position on, of which a phase that waits has a piece. Those that it has opened last, one for each thread
//!    and a few more, are taken for decoded once a piece of them has ended (*ready*); none leaves that window before it is.
//! 6. A phase joins the lane's way where it is: its pieces of chunks in the window or after the position run in this round, the
//!    others in the next. So does a phase that falls behind, because its tasks are slow to ask: it goes on where the lane
//!    is. If no phase of the lane has pieces left, the way goes on at the first chunk of the one that joins.
//! 7. A free thread of the lane goes to the users with the fewest pieces running in it, among those to the ones with the fewest starts (to some
//!    tens: who reads the same chunks is to stay together); and of these to the query with the fewest pieces running. Among those: a piece of a ready chunk, oldest
//!    first; else one of the chunk that is opened next; else one of a chunk that is being decoded. Thus what one query
//!    decodes the others find, and different threads decode different chunks. Within a chunk, the phase that has come least far
//!    goes first (a large chunk has several pieces), then the one with the largest scan rating, then the one that enrolled first.
//! 8. It follows that users who always want threads have equally many, whatever the numbers of their queries; and that a query with
//!    nothing running gets a thread before its lane has gone round twice, if there is one user. Beside others, who may go round without
//!    it, it waits for as many starts of its user as the user has queries.
//! 9. A query that is too slow for its lane is moved to the next slower one, and never back: the module `slow` says when.
//!
//! Turns:
//!
//! 10. Every piece is handed out to one task, once. (A grant that no task has taken is taken back: it is not handed out yet.)
//! 11. A piece that pauses gives its thread up and keeps its memory. When it wants to go on, it comes before the lane's pieces that
//!     have not started; but after three such in a row one that has not started comes first.
//! 12. A phase that is closed has no piece left and nobody waiting. What runs keeps its thread until it ends, because until then it
//!     really runs.
//! 13. Interactive pieces start in the order of their asking, except that a piece joins one of its chunk that waits, at most
//!     16 in a group. They count as used memory and do not wait for it.
//!
//! The tests check these rules after each event of random loads; [`LaneScheduler::assert_consistent`] checks what is counted twice.

mod clock;
mod core;
mod interactive;
mod lane;
mod options;
mod piece_scheduler;
mod pieces;
mod report;
mod share;
mod slow;
mod status;
mod turns;

pub use self::core::{Grant, LaneScheduler};
pub use lane::Place;
pub use options::{LaneOptions, LaneTable, LaneTableError, SchedulerOptions};
pub use piece_scheduler::{
    EnrolledPhase, HeldQuery, NextTurn, PausedTurn, PieceScheduler, ResumedTurn, Turn,
};
pub use status::{
    InteractiveStatus, LaneChange, LaneStatus, PieceCounts, QueryStatus, SchedulerCost,
    SchedulerStatus, SlowReason,
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

/// A phase that is enrolled. Numbers ascend in the order of enrolling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseId(u64);

/// The turn of a piece: from its start to its end, through its pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(u64);
