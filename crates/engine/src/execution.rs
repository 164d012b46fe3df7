//! The execution of a query as those see it who watch it: its progress, the scheduler that decides when its pieces run, and the
//! journal that keeps their results.
//!
//! A [`QueryExecution`] is kept with the statement's [`Interrupt`], so whatever thread works on the statement finds it, and a plan
//! carries nothing of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use futures::future::BoxFuture;
use sql::Interrupt;
use store::ReadCounters;

use crate::{EngineError, Milestones, ScanEstimate};

/// A query that runs.
#[derive(Debug, Default)]
pub struct QueryExecution {
    pieces: AtomicU64,
    pieces_done: AtomicU64,
    reads: Arc<ReadCounters>,
    journal: Option<Arc<dyn PieceJournal>>,
    scheduler: Option<Arc<dyn PieceScheduler>>,
    admission: Option<Arc<dyn Admission>>,
    /// Pieces that others have run, by who they are.
    remote: Mutex<BTreeMap<String, u64>>,
    /// Its number, if it has one.
    number: Option<u64>,
    /// The number by which schedulers know its user.
    user: u64,
    /// The number of the query whose result answers it.
    cached_from: OnceLock<u64>,
    milestones: Milestones,
}

impl QueryExecution {
    /// A query whose pieces run as there are processors, and whose results nobody keeps.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same query, whose pieces' results are kept in a journal: each piece runs once, whatever happens to the process.
    pub fn with_journal(self, journal: Arc<dyn PieceJournal>) -> Self {
        Self {
            journal: Some(journal),
            ..self
        }
    }

    /// The same query, whose pieces run when a scheduler says so.
    pub fn with_scheduler(self, scheduler: Arc<dyn PieceScheduler>) -> Self {
        Self {
            scheduler: Some(scheduler),
            ..self
        }
    }

    /// The same query, which runs only if somebody admits it.
    pub fn with_admission(self, admission: Arc<dyn Admission>) -> Self {
        Self {
            admission: Some(admission),
            ..self
        }
    }

    /// The same query under its number.
    pub fn with_number(self, number: u64) -> Self {
        Self {
            number: Some(number),
            ..self
        }
    }

    /// The same query of the user whom schedulers know by this number.
    pub fn with_user(self, user: u64) -> Self {
        Self { user, ..self }
    }

    /// The number by which schedulers know its user: 0 for nobody.
    pub fn user(&self) -> u64 {
        self.user
    }

    /// Its number, if it has one.
    pub(crate) fn number(&self) -> Option<u64> {
        self.number
    }

    /// The number of the query whose result answers it, if it does not run.
    pub fn cached_from(&self) -> Option<u64> {
        self.cached_from.get().copied()
    }

    /// Notes that the result of another query answers it.
    pub(crate) fn note_cached_from(&self, query: u64) {
        // The first one is the statement's own; what it reads besides is of no interest.
        let _ = self.cached_from.set(query);
    }

    /// Makes the work of this thread on its present statement the execution of this query. Returns whether it was not yet of another.
    pub fn attach(self: &Arc<Self>) -> bool {
        let attached = Arc::clone(self);
        Interrupt::current().is_some_and(|it| it.set_extension(attached))
    }

    /// The query on which this thread works.
    pub fn current() -> Option<Arc<Self>> {
        Interrupt::current()?.extension()
    }

    /// Bytes of columns that its scans have decoded or found decoded.
    pub fn reads(&self) -> &Arc<ReadCounters> {
        &self.reads
    }

    /// What it has read and how it was scheduled so far, a line each.
    pub(crate) fn report(&self) -> Vec<String> {
        let mut lines = vec![
            format!("pieces: {}", self.pieces_done()),
            format!("decoded: {} bytes", self.reads.decoded()),
            format!("found decoded: {} bytes", self.reads.shared()),
        ];
        let remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        let of_worker = |(name, pieces)| format!("pieces of worker {name}: {pieces}");
        lines.extend(remote.iter().map(of_worker));
        lines.extend(self.scheduler().map(|it| it.report()).unwrap_or_default());
        lines
    }

    /// Pieces that have run to their end.
    pub fn pieces_done(&self) -> u64 {
        self.pieces_done.load(Relaxed)
    }

    /// Pieces of all phases that have begun.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Relaxed)
    }

    /// Notes that a phase of so many pieces begins.
    pub(crate) fn add_pieces(&self, pieces: usize) {
        self.pieces.fetch_add(pieces as u64, Relaxed);
    }

    /// When its pieces were handed out, begun and done.
    pub fn milestones(&self) -> &Milestones {
        &self.milestones
    }

    /// Notes that all phases begin once more.
    pub(crate) fn begin_again(&self) {
        self.pieces.store(0, Relaxed);
        self.pieces_done.store(0, Relaxed);
    }

    /// Whether the query has a share of memory beside others, and may have all of it if that is too little.
    pub(crate) fn may_run_alone(&self) -> bool {
        self.admission().is_some_and(|it| it.has_share())
    }

    /// Notes that a worker has run a piece to its end.
    pub fn count_remote(&self, worker: &str) {
        let mut remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        match remote.get_mut(worker) {
            Some(pieces) => *pieces += 1,
            None => drop(remote.insert(worker.to_owned(), 1)),
        }
    }

    /// Notes that a piece has run to its end.
    pub(crate) fn piece_is_done(&self) {
        self.pieces_done.fetch_add(1, Relaxed);
    }

    pub(crate) fn scheduler(&self) -> Option<&Arc<dyn PieceScheduler>> {
        self.scheduler.as_ref()
    }

    pub(crate) fn admission(&self) -> Option<&Arc<dyn Admission>> {
        self.admission.as_ref()
    }

    pub(crate) fn journal(&self) -> Option<&Arc<dyn PieceJournal>> {
        self.journal.as_ref()
    }
}

/// Judges a query before it begins to run, by what it will read.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Admits the query. A query whose plan was cached may be asked about again with other numbers.
    ///
    /// # Errors
    /// It would take longer than it may.
    fn admit(&self, estimate: &ScanEstimate) -> Result<(), EngineError>;

    /// Takes a place of the query's class, as [`admit`](Self::admit) does: of those that touch few chunks and are answered at once, or of
    /// scans.
    ///
    /// # Errors
    /// The user has as many of the class as they may.
    fn take_place(&self, is_interactive: bool) -> Result<(), EngineError>;

    /// Waits until the query has its least share of memory, which it keeps to its end. One that has it already keeps that. The statement of
    /// this thread is [promised](Interrupt::promise) the share.
    ///
    /// # Errors
    /// It has waited as long as it may.
    fn reserve(&self, bytes: u64) -> BoxFuture<'_, Result<(), EngineError>>;

    /// Whether the query has a share of memory.
    fn has_share(&self) -> bool;

    /// Gives the query's share back, and waits until it has all the memory for its share. Returns whether it has it now and had less before.
    ///
    /// # Errors
    /// It has waited as long as it may.
    fn reserve_all(&self) -> BoxFuture<'_, Result<bool, EngineError>>;
}

/// Identifies a chunk phase of a query: its place in the plan, and what the phase does on which pieces of which parts.
///
/// Equal keys of one query mean equal results, in this process and in a later one: the digest is of the encoded plan of the phase
/// and of the list of its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhaseKey {
    /// The number of the phase in the plan.
    pub number: u32,
    /// The digest of the phase.
    pub digest: u128,
}

/// Keeps the results of a query's pieces.
pub trait PieceJournal: fmt::Debug + Send + Sync {
    /// The results of a phase of so many pieces.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    fn open_phase(
        &self,
        key: PhaseKey,
        pieces: usize,
    ) -> Result<Arc<dyn PhaseJournal>, EngineError>;
}

/// Keeps the results of a phase's pieces. A piece is *committed* when all of its rows are kept; it is so for ever.
pub trait PhaseJournal: fmt::Debug + Send + Sync {
    /// Whether a piece is committed.
    fn is_committed(&self, piece: usize) -> bool;

    /// Begins to keep the rows of a piece that is not committed.
    ///
    /// # Errors
    /// The journal cannot be written.
    fn begin(&self, piece: usize) -> Result<Box<dyn PieceWriter>, EngineError>;

    /// The rows of a committed piece.
    ///
    /// # Errors
    /// The journal cannot be read.
    fn read(&self, piece: usize) -> Result<PieceRows, EngineError>;
}

/// The rows of a piece.
pub type PieceRows = Box<dyn Iterator<Item = Result<RecordBatch, EngineError>> + Send>;

/// Keeps the rows of one piece. Dropping it forgets them.
pub trait PieceWriter: Send {
    /// Keeps some rows.
    ///
    /// # Errors
    /// They cannot be written.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError>;

    /// Commits the piece.
    ///
    /// # Errors
    /// The rows cannot be written, or the piece is committed already.
    fn commit(self: Box<Self>) -> Result<(), EngineError>;
}

/// What a phase asks of the scheduler of pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseDemand {
    /// The number of the first chunk of each piece, ascending.
    pub chunks: Vec<u32>,
    /// How many chunks all pieces have together.
    pub num_chunks: usize,
    /// The largest scan rating of the tables that are read.
    pub rating: u8,
}

/// Decides which piece runs next.
pub trait PieceScheduler: fmt::Debug + Send + Sync {
    /// Enrolls a phase of the query.
    fn enroll(&self, demand: PhaseDemand) -> Arc<dyn EnrolledPhase>;

    /// How the query was scheduled so far, a line each: the time that threads worked on it, and its moves to slower lanes.
    fn report(&self) -> Vec<String>;
}

/// A phase whose pieces wait for their turns. Dropping it gives up those that have not begun.
pub trait EnrolledPhase: Send + Sync {
    /// Waits for the turn of one of the pieces, whichever the scheduler chooses; `None` when all have been given out.
    fn next(&self) -> BoxFuture<'_, Option<Box<dyn PieceTurn>>>;
}

/// The turn of a piece. Dropping it gives the thread back.
pub trait PieceTurn: Send {
    /// The number of the piece in the phase.
    fn piece(&self) -> usize;

    /// How many other queries are about to read the chunk at which the piece begins.
    fn sharers(&self) -> u32;

    /// Gives the thread back until [`PausedTurn::resume`], because the reader of the rows is behind.
    fn pause(self: Box<Self>) -> Box<dyn PausedTurn>;

    /// Notes that the piece is done.
    fn finish(self: Box<Self>);
}

/// A piece that has begun and has no thread.
pub trait PausedTurn: Send {
    /// Waits for the next turn of the piece; `None` if the phase is given up.
    fn resume(self: Box<Self>) -> BoxFuture<'static, Option<Box<dyn PieceTurn>>>;
}
