//! The run of a phase whose pieces' results are kept in a journal.
//!
//! ```text
//!   pieces that are not committed ──► here or elsewhere, as many as may run at once ──► journal ──► rows, in the order of the pieces
//! ```
//!
//! The tasks do not wait for the reader of the rows, and the rows of a piece are read when it is committed, from the journal. So the
//! rows are the same whether a piece ran now or in a process that was killed, and nothing is gathered in memory.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::chunk_phase::PieceRunner;
use super::piece_milestone::PieceMilestone;
use super::run_pieces::{End, Output, PhaseRun};
use crate::error::external;
use crate::execution::{PhaseJournal, PieceRows, PieceTurn, PieceWriter};
use crate::piece::Piece;

/// A journal with the pieces of a phase that it had committed when the run began.
pub(super) struct JournaledPieces {
    journal: Arc<dyn PhaseJournal>,
    pieces: usize,
    committed: HashSet<usize>,
}

impl JournaledPieces {
    pub fn new(journal: Arc<dyn PhaseJournal>, pieces: usize) -> Self {
        let is_committed = |piece: &usize| journal.is_committed(*piece);
        Self {
            committed: (0..pieces).filter(is_committed).collect(),
            journal,
            pieces,
        }
    }

    /// The numbers of the pieces that are not committed, ascending.
    pub fn left(&self) -> Vec<usize> {
        let is_left = |piece: &usize| !self.committed.contains(piece);
        (0..self.pieces).filter(is_left).collect()
    }

    /// The rows of the pieces that are committed, in their order. Nothing is run.
    pub fn committed_rows(
        self,
        runner: PieceRunner,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let mut committed: Vec<usize> = self.committed.into_iter().collect();
        committed.sort_unstable();
        let rows = committed.into_iter().flat_map(move |piece| {
            runner.count_done();
            self.journal
                .read(piece)
                .unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
        });
        stream::iter(rows.map(|batch| batch.map_err(external)))
    }

    /// The rows of all pieces, in their order. The run is of those that are not committed.
    pub fn rows(self, run: PhaseRun) -> BoxStream<'static, Result<RecordBatch>> {
        for _ in &self.committed {
            run.runner.count_done();
        }
        let (sender, events) = unbounded_channel();
        let output = JournalWriter {
            journal: Arc::clone(&self.journal),
            sender,
        };
        let reader = Reader {
            of: self,
            next: 0,
            rows: None,
            events,
            end: Some(run.start(&output)),
        };
        // The channel ends with the last task.
        drop(output);
        stream::unfold(reader, |mut reader| async move {
            let batch = reader.next_batch().await;
            batch.map(|batch| (batch, reader))
        })
        .boxed()
    }
}

/// Reads the committed pieces in their order. Dropping it ends the tasks.
struct Reader {
    of: JournaledPieces,
    next: usize,
    /// What is left of the piece before the next.
    rows: Option<PieceRows>,
    events: UnboundedReceiver<Result<usize>>,
    /// None after a failure: the others need not go on.
    end: Option<End>,
}

impl Reader {
    async fn next_batch(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            if let Some(batch) = self.rows.as_mut().and_then(Iterator::next) {
                return Some(batch.map_err(external));
            }
            if self.next == self.of.pieces {
                // A task counts a piece after it has told that it is committed.
                let end = self.end.as_mut()?;
                return end.join().await.err().map(|error| self.fail(error));
            }
            if let Err(error) = self.wait_for_next().await {
                return Some(self.fail(error));
            }
            match self.of.journal.read(self.next) {
                Ok(rows) => self.rows = Some(rows),
                Err(error) => return Some(self.fail(external(error))),
            }
            self.next += 1;
        }
    }

    /// Ends the tasks. There are no rows after the error.
    fn fail(&mut self, error: DataFusionError) -> Result<RecordBatch> {
        (self.next, self.rows, self.end) = (self.of.pieces, None, None);
        Err(error)
    }

    async fn wait_for_next(&mut self) -> Result<()> {
        while !self.of.committed.contains(&self.next) {
            let event = self.events.recv().await;
            // A task that panics sends nothing more: the channel ends when the last is gone.
            let piece = event.ok_or_else(|| {
                exec_datafusion_err!("a piece of the query ended without a result")
            })??;
            self.of.committed.insert(piece);
        }
        self.of.committed.remove(&self.next);
        Ok(())
    }
}

/// Writes rows into the journal, and tells which pieces are committed.
#[derive(Clone)]
struct JournalWriter {
    journal: Arc<dyn PhaseJournal>,
    sender: UnboundedSender<Result<usize>>,
}

impl Output for JournalWriter {
    type Gathering = Box<dyn PieceWriter>;

    async fn run_piece(
        &self,
        (runner, milestone): (&PieceRunner, &PieceMilestone),
        (number, piece): (usize, &Piece),
        turn: Box<dyn PieceTurn>,
    ) -> Result<bool> {
        let mut rows = runner.rows(piece, turn.sharers())?;
        let mut writer = self.begin(number)?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                milestone.rows();
                self.gather(&mut writer, batch)?;
            }
        }
        let is_read = self.finish(number, writer).await;
        turn.finish();
        is_read
    }

    fn begin(&self, piece: usize) -> Result<Self::Gathering> {
        self.journal.begin(piece).map_err(external)
    }

    fn gather(&self, gathering: &mut Self::Gathering, batch: RecordBatch) -> Result<()> {
        gathering.write(&batch).map_err(external)
    }

    async fn finish(&self, piece: usize, gathering: Self::Gathering) -> Result<bool> {
        gathering.commit().map_err(external)?;
        // The reader may have gone.
        Ok(self.sender.send(Ok(piece)).is_ok())
    }

    async fn fail(&self, error: DataFusionError) {
        let _ = self.sender.send(Err(error));
    }
}
