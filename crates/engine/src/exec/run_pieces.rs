//! The run of a phase's pieces by a few tasks, each of which takes the piece whose turn it is.
//!
//! ```text
//!   turns ──► task: a piece at a time ──► rows as they come (the task gives its turn up while the reader is behind)
//!                                     or, whole, to wait for the rows of earlier pieces
//! ```
//!
//! Invariant: the rows end without an error only if every piece has run to its end. A task that panics, or a turn that never comes, is
//! an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use datafusion::execution::SendableRecordBatchStream;
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use tokio::task::{JoinError, JoinSet};

use super::chunk_phase::PieceRunner;
use super::gathered::WaitingRows;
use crate::execution::{EnrolledPhase, PieceTurn};
use crate::piece::Piece;

/// Batches for each task that the reader may be behind.
const BATCHES_AHEAD: usize = 4;

/// A phase that is to run.
pub(super) struct PhaseRun {
    pub runner: PieceRunner,
    pub pieces: Vec<Piece>,
    pub turns: Arc<dyn EnrolledPhase>,
    /// How many pieces may run at once.
    pub concurrency: usize,
}

impl PhaseRun {
    /// The rows as they come.
    pub fn unordered(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let tasks = self.num_tasks();
        let (sender, receiver) = channel(tasks.max(1) * BATCHES_AHEAD);
        let reader = Reader {
            receiver,
            end: self.start(|run, done| send_pieces(run, done, sender.clone())),
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
        let (sender, receiver) = unbounded_channel();
        let waiting = Arc::new(waiting);
        let end =
            self.start(|run, done| gather_pieces(run, done, Arc::clone(&waiting), sender.clone()));
        let reader = OrderedReader {
            receiver,
            waiting: BTreeMap::new(),
            current: None,
            next: 0,
            end,
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

    fn num_tasks(&self) -> usize {
        self.concurrency.min(self.pieces.len())
    }

    /// Starts tasks that work on the statement of the pieces, and count those that are done.
    fn start<F>(self, work: impl Fn(Arc<Self>, Arc<AtomicUsize>) -> F) -> End
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (pieces, num_tasks) = (self.pieces.len(), self.num_tasks());
        let (run, done) = (Arc::new(self), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..num_tasks {
            let task = work(Arc::clone(&run), Arc::clone(&done));
            tasks.spawn(run.runner.interrupt().scope(task));
        }
        End {
            tasks,
            done,
            pieces,
        }
    }
}

/// What has to be so when the last row has come. Dropping it ends the tasks.
struct End {
    tasks: JoinSet<()>,
    done: Arc<AtomicUsize>,
    pieces: usize,
}

impl End {
    /// Succeeds if all pieces have run.
    async fn check(&mut self) -> Result<()> {
        while let Some(joined) = self.tasks.join_next().await {
            joined.map_err(resume_panic)?;
        }
        let done = self.done.load(Relaxed);
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

/// Runs pieces until none is left or one fails; sends their rows as they come.
async fn send_pieces(
    run: Arc<PhaseRun>,
    done: Arc<AtomicUsize>,
    sender: Sender<Result<RecordBatch>>,
) {
    while let Some(turn) = run.turns.next().await {
        match send_piece(&run, turn, &sender).await {
            Ok(true) => drop(done.fetch_add(1, Relaxed)),
            // Nobody reads any more.
            Ok(false) => return,
            Err(error) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
        }
    }
}

/// Sends the rows of a piece; returns whether somebody reads them. While the reader is behind, the piece gives up its turn: the reader
/// may be waiting for a piece that has not had one yet.
async fn send_piece(
    run: &PhaseRun,
    mut turn: Box<dyn PieceTurn>,
    sender: &Sender<Result<RecordBatch>>,
) -> Result<bool> {
    let mut rows = run.runner.rows(&run.pieces[turn.piece()], turn.sharers())?;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        match sender.try_send(Ok(batch)) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Ok(false),
            Err(TrySendError::Full(batch)) => {
                let paused = turn.pause();
                if sender.send(batch).await.is_err() {
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
    run.runner.count_run();
    Ok(true)
}

/// The rows of a piece, by its number.
type Gathered = (usize, SendableRecordBatchStream);

/// Runs pieces until none is left or one fails; hands over the rows of each when it is done.
async fn gather_pieces(
    run: Arc<PhaseRun>,
    done: Arc<AtomicUsize>,
    waiting: Arc<WaitingRows>,
    sender: UnboundedSender<Result<Gathered>>,
) {
    while let Some(turn) = run.turns.next().await {
        let piece = turn.piece();
        let gathered = gather(&run, turn, &waiting).await;
        let failed = gathered.is_err();
        if !failed {
            done.fetch_add(1, Relaxed);
        }
        let sent = sender.send(gathered.map(|rows| (piece, rows)));
        if failed || sent.is_err() {
            return;
        }
    }
}

async fn gather(
    run: &PhaseRun,
    turn: Box<dyn PieceTurn>,
    waiting: &WaitingRows,
) -> Result<SendableRecordBatchStream> {
    let mut rows = run.runner.rows(&run.pieces[turn.piece()], turn.sharers())?;
    let mut gathered = waiting.gather();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            gathered.push(batch)?;
        }
    }
    let gathered = gathered.finish();
    turn.finish();
    run.runner.count_run();
    Ok(gathered)
}

/// Reads the rows of pieces in their order.
struct OrderedReader {
    receiver: UnboundedReceiver<Result<Gathered>>,
    waiting: BTreeMap<usize, SendableRecordBatchStream>,
    current: Option<SendableRecordBatchStream>,
    next: usize,
    end: End,
}

impl OrderedReader {
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(batch) = current.next().await {
                    return batch.map(Some);
                }
                self.current = None;
                self.next += 1;
            }
            if let Some(rows) = self.waiting.remove(&self.next) {
                self.current = Some(rows);
                continue;
            }
            match self.receiver.recv().await.transpose()? {
                Some((piece, rows)) => drop(self.waiting.insert(piece, rows)),
                None => {
                    self.end.check().await?;
                    if self.next != self.end.pieces {
                        return exec_err!("a piece of the query is missing");
                    }
                    return Ok(None);
                }
            }
        }
    }
}
