//! The run of a phase's pieces: by a few tasks, each of which takes the piece whose turn it is, and by other processes.
//!
//! ```text
//!   turns ──► task: a piece at a time ──► rows as they come (the task gives its turn up while the reader is behind)
//!                                     or, whole, to wait for the rows of earlier pieces
//!   events of pieces that run elsewhere ──► task: gathers the rows of each until it is done ──► the same
//!                                                 and runs here what nobody else could
//! ```
//!
//! Invariant: the rows end without an error only if every piece has run to its end. A task that panics, or a turn that never comes, is
//! an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use datafusion::execution::SendableRecordBatchStream;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::task::{JoinError, JoinSet};

use super::chunk_phase::PieceRunner;
use super::gathered::{GatheredPiece, WaitingRows};
use super::piece_milestone::PieceMilestone;
use super::rows_in_order::RowsInOrder;
use super::started_phase::Turns;
use crate::dispatch::PieceEvent;
use crate::execution::{EnrolledPhase, PieceTurn};
use crate::milestones;
use crate::piece::Piece;

/// Batches for each task that the reader may be behind.
const BATCHES_AHEAD: usize = 4;

/// A phase that is to run.
pub(super) struct PhaseRun {
    pub runner: PieceRunner,
    pub pieces: Arc<[Piece]>,
    /// The numbers of the pieces that run here.
    pub local: Vec<usize>,
    /// What comes of pieces that run elsewhere.
    pub remote: Option<BoxStream<'static, PieceEvent>>,
    pub turns: Turns,
}

/// What becomes of the rows of pieces.
pub(super) trait Output: Clone + Send + Sync + 'static {
    /// The rows of a piece that runs elsewhere, while they come.
    type Gathering: Send;

    /// Runs a piece, and passes its rows on, of which its milestone is told. Returns whether somebody reads them.
    fn run_piece(
        &self,
        runner: (&PieceRunner, &PieceMilestone),
        piece: (usize, &Piece),
        turn: Box<dyn PieceTurn>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Begins to take the rows of a piece that runs elsewhere.
    fn begin(&self, piece: usize) -> Result<Self::Gathering>;

    /// Takes some of them.
    fn gather(&self, gathering: &mut Self::Gathering, batch: RecordBatch) -> Result<()>;

    /// Passes them on: there are no more. Returns whether somebody reads them.
    fn finish(
        &self,
        piece: usize,
        gathering: Self::Gathering,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Tells whoever reads that the run has failed.
    fn fail(&self, error: DataFusionError) -> impl Future<Output = ()> + Send;
}

impl PhaseRun {
    /// The rows as they come.
    pub fn unordered(self, waiting: WaitingRows) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let tasks = self.num_tasks();
        let (sender, receiver) = channel(tasks.max(1) * BATCHES_AHEAD);
        let waiting = Arc::new(waiting);
        let reader = Reader {
            receiver,
            end: self.start(&UnorderedRows { sender, waiting }),
        };
        stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.receiver.recv().await {
                Some(Ok(batch)) => Some((Ok(batch), Some(reader))),
                Some(Err(error)) => Some((Err(error), None)),
                None => Some((Err(reader.end.check().await.err()?), None)),
            }
        })
    }

    /// The rows in the order of the pieces.
    pub fn in_order(self, waiting: WaitingRows) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let reader = OrderedReader {
            pieces: self.piece_by_piece(waiting),
            rows: RowsInOrder::default(),
        };
        stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next_batch().await {
                Ok(Some(batch)) => Some((Ok(batch), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    /// The rows of each piece together, in the order in which the pieces end.
    pub fn piece_by_piece(self, waiting: WaitingRows) -> GatheredPieces {
        let (sender, receiver) = unbounded_channel();
        let waiting = Arc::new(waiting);
        GatheredPieces {
            receiver,
            end: self.start(&WholePieces { sender, waiting }),
        }
    }

    fn num_tasks(&self) -> usize {
        self.turns.concurrency.min(self.local.len()) + usize::from(self.remote.is_some())
    }

    /// Starts tasks that work on the statement of the pieces, and count those that are done.
    pub fn start<O: Output>(mut self, output: &O) -> End {
        let remote = self.remote.take();
        let local = std::mem::take(&mut self.local);
        let pieces = self.pieces.len();
        let work = Arc::new(Work {
            runner: self.runner,
            pieces: self.pieces,
            turns: self.turns,
            done: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        work.spawn(local, output, &mut tasks);
        if let Some(events) = remote {
            let (working, output) = (Arc::clone(&work), output.clone());
            let task = async move { working.run_remote(events, &output).await };
            tasks.spawn(work.runner.interrupt().scope(task));
        }
        End {
            tasks,
            work,
            pieces,
        }
    }
}

/// What the tasks of a run share.
struct Work {
    runner: PieceRunner,
    pieces: Arc<[Piece]>,
    turns: Turns,
    done: AtomicUsize,
}

impl Work {
    /// Starts tasks that run pieces here, until none is left or one fails.
    fn spawn<O: Output>(
        self: &Arc<Self>,
        numbers: Vec<usize>,
        output: &O,
        tasks: &mut JoinSet<()>,
    ) {
        if numbers.is_empty() {
            return;
        }
        let pieces: Vec<Piece> = numbers.iter().map(|at| self.pieces[*at].clone()).collect();
        let turns = self.turns.enroll(&pieces);
        let handed_out = milestones::now();
        let num_tasks = self.turns.concurrency.min(numbers.len());
        let numbers: Arc<[usize]> = numbers.into();
        for _ in 0..num_tasks {
            let (work, output) = (Arc::clone(self), output.clone());
            let (turns, numbers) = (Arc::clone(&turns), Arc::clone(&numbers));
            let task = async move {
                work.run_local(&*turns, (&numbers, handed_out), &output)
                    .await
            };
            tasks.spawn(self.runner.interrupt().scope(task));
        }
    }

    /// Runs pieces in their turns; they have these numbers, and were handed out at that moment.
    async fn run_local<O: Output>(
        &self,
        turns: &dyn EnrolledPhase,
        (numbers, handed_out): (&[usize], i64),
        output: &O,
    ) {
        while let Some(turn) = turns.next().await {
            let number = numbers[turn.piece()];
            let piece = (number, &self.pieces[number]);
            let milestone = self.runner.begin_piece(handed_out);
            match output
                .run_piece((&self.runner, &milestone), piece, turn)
                .await
            {
                Ok(true) => {
                    milestone.done();
                    self.done.fetch_add(1, Relaxed);
                    self.runner.count_run();
                }
                // Nobody reads any more.
                Ok(false) => return,
                Err(error) => return output.fail(error).await,
            }
        }
    }

    /// Takes what comes of pieces that run elsewhere, and then runs here what nobody else could.
    async fn run_remote<O: Output>(
        self: Arc<Self>,
        events: BoxStream<'static, PieceEvent>,
        output: &O,
    ) {
        let left = match self.gather_events(events, output).await {
            Ok(Some(left)) => left,
            Ok(None) => return,
            Err(error) => return output.fail(error).await,
        };
        let mut tasks = JoinSet::new();
        self.spawn(left, output, &mut tasks);
        while let Some(joined) = tasks.join_next().await {
            if let Err(error) = joined.map_err(resume_panic) {
                return output.fail(error).await;
            }
        }
    }

    /// The pieces that are left to run here; `None` if nobody reads the rows any more.
    async fn gather_events<O: Output>(
        &self,
        mut events: BoxStream<'static, PieceEvent>,
        output: &O,
    ) -> Result<Option<Vec<usize>>> {
        let mut runs: HashMap<(u64, usize), O::Gathering> = HashMap::new();
        let mut left = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                PieceEvent::Rows { run, piece, batch } => {
                    let gathering = match runs.remove(&(run, piece)) {
                        Some(gathering) => gathering,
                        None => output.begin(piece)?,
                    };
                    let gathering = runs.entry((run, piece)).or_insert(gathering);
                    output.gather(gathering, batch)?;
                }
                PieceEvent::Done { run, piece } => {
                    let gathering = match runs.remove(&(run, piece)) {
                        Some(gathering) => gathering,
                        None => output.begin(piece)?,
                    };
                    if !output.finish(piece, gathering).await? {
                        return Ok(None);
                    }
                    self.done.fetch_add(1, Relaxed);
                    self.runner.count_done();
                }
                PieceEvent::Discarded { run, piece } => drop(runs.remove(&(run, piece))),
                PieceEvent::RunLocally(piece) => left.push(piece),
                PieceEvent::Failed(error) => return Err(error),
            }
        }
        left.sort_unstable();
        Ok(Some(left))
    }
}

/// What has to be so when the last row has come. Dropping it ends the tasks.
pub(super) struct End {
    tasks: JoinSet<()>,
    work: Arc<Work>,
    pieces: usize,
}

impl End {
    /// Waits until the tasks have ended: everything that they have done is counted then.
    pub async fn join(&mut self) -> Result<()> {
        while let Some(joined) = self.tasks.join_next().await {
            joined.map_err(resume_panic)?;
        }
        Ok(())
    }

    /// Succeeds if all pieces have run.
    pub async fn check(&mut self) -> Result<()> {
        self.join().await?;
        let done = self.work.done.load(Relaxed);
        if done != self.pieces {
            return exec_err!("{done} of {} pieces of the query ran", self.pieces);
        }
        Ok(())
    }
}

/// A panic of a task is one of its statement.
fn resume_panic(error: JoinError) -> DataFusionError {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => exec_datafusion_err!("a piece of the query was ended: {error}"),
    }
}

/// Reads rows as they come.
struct Reader {
    receiver: Receiver<Result<RecordBatch>>,
    end: End,
}

/// Sends rows as they come; those of pieces that run elsewhere once a piece is done.
#[derive(Clone)]
struct UnorderedRows {
    sender: Sender<Result<RecordBatch>>,
    waiting: Arc<WaitingRows>,
}

impl Output for UnorderedRows {
    type Gathering = GatheredPiece;

    /// While the reader is behind, the piece gives up its turn: the reader may be waiting for a piece that has not had one yet.
    async fn run_piece(
        &self,
        (runner, milestone): (&PieceRunner, &PieceMilestone),
        (_, piece): (usize, &Piece),
        mut turn: Box<dyn PieceTurn>,
    ) -> Result<bool> {
        let mut rows = runner.rows(piece, turn.sharers())?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            milestone.rows();
            match self.sender.try_send(Ok(batch)) {
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => return Ok(false),
                Err(TrySendError::Full(batch)) => {
                    let paused = turn.pause();
                    if self.sender.send(batch).await.is_err() {
                        return Ok(false);
                    }
                    match paused.resume().await {
                        Some(resumed) => turn = resumed,
                        None => return Ok(false),
                    }
                }
            }
        }
        turn.finish();
        Ok(true)
    }

    fn begin(&self, _: usize) -> Result<GatheredPiece> {
        Ok(self.waiting.gather())
    }

    fn gather(&self, gathering: &mut GatheredPiece, batch: RecordBatch) -> Result<()> {
        gathering.push(batch)
    }

    async fn finish(&self, _: usize, gathering: GatheredPiece) -> Result<bool> {
        let mut rows = gathering.finish();
        while let Some(batch) = rows.next().await {
            if self.sender.send(Ok(batch?)).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn fail(&self, error: DataFusionError) {
        let _ = self.sender.send(Err(error)).await;
    }
}

/// The rows of a piece, by its number.
pub(super) type PieceRows = (usize, SendableRecordBatchStream);

/// Hands over the rows of each piece when it is done.
#[derive(Clone)]
struct WholePieces {
    sender: UnboundedSender<Result<PieceRows>>,
    waiting: Arc<WaitingRows>,
}

impl Output for WholePieces {
    type Gathering = GatheredPiece;

    async fn run_piece(
        &self,
        (runner, milestone): (&PieceRunner, &PieceMilestone),
        (number, piece): (usize, &Piece),
        turn: Box<dyn PieceTurn>,
    ) -> Result<bool> {
        let mut rows = runner.rows(piece, turn.sharers())?;
        let mut gathered = self.waiting.gather();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                milestone.rows();
                gathered.push(batch)?;
            }
        }
        let gathered = gathered.finish();
        turn.finish();
        Ok(self.sender.send(Ok((number, gathered))).is_ok())
    }

    fn begin(&self, _: usize) -> Result<GatheredPiece> {
        Ok(self.waiting.gather())
    }

    fn gather(&self, gathering: &mut GatheredPiece, batch: RecordBatch) -> Result<()> {
        gathering.push(batch)
    }

    async fn finish(&self, piece: usize, gathering: GatheredPiece) -> Result<bool> {
        Ok(self.sender.send(Ok((piece, gathering.finish()))).is_ok())
    }

    async fn fail(&self, error: DataFusionError) {
        let _ = self.sender.send(Err(error));
    }
}

/// The rows of pieces, in the order in which these end.
pub(super) struct GatheredPieces {
    receiver: UnboundedReceiver<Result<PieceRows>>,
    end: End,
}

impl GatheredPieces {
    /// The rows of the next piece; `None` when all pieces have been given.
    pub async fn next(&mut self) -> Result<Option<PieceRows>> {
        match self.receiver.recv().await.transpose()? {
            Some(piece) => Ok(Some(piece)),
            None => {
                self.end.check().await?;
                Ok(None)
            }
        }
    }
}

/// Reads the rows of pieces in their order.
struct OrderedReader {
    pieces: GatheredPieces,
    rows: RowsInOrder,
}

impl OrderedReader {
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.rows.next_batch().await? {
                return Ok(Some(batch));
            }
            match self.pieces.next().await? {
                Some((piece, rows)) => self.rows.add(piece, rows),
                None => {
                    if self.rows.num_given() != self.pieces.end.pieces {
                        return exec_err!("a piece of the query is missing");
                    }
                    return Ok(None);
                }
            }
        }
    }
}
