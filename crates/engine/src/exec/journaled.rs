//! The run of a phase whose pieces' results are kept in a journal.
//!
//! ```text
//!   pieces that are not committed ──► tasks, as many as may run at once ──► journal ──► rows, in the order of the pieces
//! ```
//!
//! The tasks do not wait for the reader of the rows, and the rows of a piece are read when it is committed, from the journal. So the
//! rows are the same whether a piece ran now or in a process that was killed, and nothing is gathered in memory.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{Result, exec_datafusion_err};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::chunk_phase::PieceRunner;
use crate::error::external;
use crate::execution::{EnrolledPhase, PhaseJournal, PieceRows};
use crate::piece::Piece;

/// A phase whose pieces' results are kept.
pub(super) struct JournaledRun {
    pub runner: PieceRunner,
    pub pieces: Vec<Piece>,
    pub journal: Arc<dyn PhaseJournal>,
    pub concurrency: usize,
}

impl JournaledRun {
    /// The rows of all pieces, in their order. `enroll` gives the turns of those that are not committed.
    pub fn rows(
        self,
        enroll: impl FnOnce(&[Piece]) -> Arc<dyn EnrolledPhase>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let (mut committed, mut left) = (HashSet::new(), Vec::new());
        for piece in 0..self.pieces.len() {
            match self.journal.is_committed(piece) {
                true => drop(committed.insert(piece)),
                false => left.push(piece),
            }
        }
        for _ in &committed {
            self.runner.count_done();
        }
        let waiting: Vec<Piece> = left.iter().map(|at| self.pieces[*at].clone()).collect();
        let turns = enroll(&waiting);
        let reader = Reader::start(self, committed, left, turns);
        stream::unfold(reader, |mut reader| async move {
            let batch = reader.next_batch().await;
            batch.map(|batch| (batch, reader))
        })
        .boxed()
    }
}

impl JournaledRun {
    /// The rows of the pieces that are committed now, in their order. Nothing is run.
    pub fn committed_rows(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let committed: Vec<usize> = (0..self.pieces.len())
            .filter(|piece| self.journal.is_committed(*piece))
            .collect();
        let rows = committed.into_iter().flat_map(move |piece| {
            self.runner.count_done();
            self.journal
                .read(piece)
                .unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
        });
        stream::iter(rows.map(|batch| batch.map_err(external)))
    }
}

/// Reads the committed pieces in their order. Dropping it ends the tasks.
struct Reader {
    journal: Arc<dyn PhaseJournal>,
    pieces: usize,
    next: usize,
    /// What is left of the piece before the next.
    rows: Option<PieceRows>,
    committed: HashSet<usize>,
    events: UnboundedReceiver<Result<usize>>,
    _tasks: JoinSet<()>,
}

impl Reader {
    fn start(
        run: JournaledRun,
        committed: HashSet<usize>,
        left: Vec<usize>,
        turns: Arc<dyn EnrolledPhase>,
    ) -> Self {
        let (sender, events) = unbounded_channel();
        let (journal, pieces) = (Arc::clone(&run.journal), run.pieces.len());
        let num_tasks = run.concurrency.min(left.len());
        let shared = Arc::new(Shared { run, left, turns });
        let mut tasks = JoinSet::new();
        for _ in 0..num_tasks {
            let task = run_pieces(Arc::clone(&shared), sender.clone());
            tasks.spawn(shared.run.runner.interrupt().scope(task));
        }
        Self {
            journal,
            pieces,
            next: 0,
            rows: None,
            committed,
            events,
            _tasks: tasks,
        }
    }

    async fn next_batch(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            if let Some(batch) = self.rows.as_mut().and_then(Iterator::next) {
                return Some(batch.map_err(external));
            }
            if self.next == self.pieces {
                return None;
            }
            if let Err(error) = self.wait_for_next().await {
                self.next = self.pieces;
                self.rows = None;
                return Some(Err(error));
            }
            match self.journal.read(self.next) {
                Ok(rows) => self.rows = Some(rows),
                Err(error) => return Some(Err(external(error))),
            }
            self.next += 1;
        }
    }

    async fn wait_for_next(&mut self) -> Result<()> {
        while !self.committed.contains(&self.next) {
            let event = self.events.recv().await;
            // A task that panics sends nothing more: the channel ends when the last is gone.
            let piece = event.ok_or_else(|| {
                exec_datafusion_err!("a piece of the query ended without a result")
            })??;
            self.committed.insert(piece);
        }
        self.committed.remove(&self.next);
        Ok(())
    }
}

/// What the tasks of a run share.
struct Shared {
    run: JournaledRun,
    /// The pieces that were not committed when the run began.
    left: Vec<usize>,
    /// The turns of these.
    turns: Arc<dyn EnrolledPhase>,
}

/// Runs pieces until none is left, or one fails.
async fn run_pieces(shared: Arc<Shared>, sender: UnboundedSender<Result<usize>>) {
    while let Some(turn) = shared.turns.next().await {
        let piece = shared.left[turn.piece()];
        let outcome = run_piece(&shared.run, piece, turn.sharers()).await;
        let failed = outcome.is_err();
        turn.finish();
        // The reader may have gone.
        if sender.send(outcome.map(|()| piece)).is_err() || failed {
            return;
        }
    }
}

async fn run_piece(run: &JournaledRun, piece: usize, sharers: u32) -> Result<()> {
    let mut rows = run.runner.rows(&run.pieces[piece], sharers)?;
    let mut writer = run.journal.begin(piece).map_err(external)?;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            writer.write(&batch).map_err(external)?;
        }
    }
    writer.commit().map_err(external)?;
    run.runner.count_run();
    Ok(())
}
