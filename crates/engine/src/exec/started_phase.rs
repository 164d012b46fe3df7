//! A phase whose pieces are about to run, here or elsewhere.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::Count;
use futures::stream::{self, BoxStream, StreamExt};
use sql::Interrupt;

use super::ChunkPhaseExec;
use super::chunk_phase::{PieceRunner, for_one_run};
use super::gathered::WaitingRows;
use super::run_pieces::PhaseRun;
use super::unscheduled::UnscheduledPhase;
use crate::dispatch::{
    DispatchedPhase, Dispatching, EncodedPhase, ShareRun, archive_of, encode_merging, encode_phase,
    keep_small_files,
};
use crate::execution::{EnrolledPhase, PhaseDemand, QueryExecution};
use crate::piece::{ChunkSlice, Piece};
use crate::shuffle::RowKeeping;

/// Of what work the pieces of a phase are part.
pub(super) struct PhaseWork {
    pub context: Arc<TaskContext>,
    pub interrupt: Arc<Interrupt>,
    /// The query, where somebody watches it.
    pub execution: Option<Arc<QueryExecution>>,
}

impl PhaseWork {
    /// The work of the statement of this thread.
    pub fn new(context: Arc<TaskContext>) -> Self {
        Self {
            context,
            interrupt: Interrupt::current_or_new(),
            execution: QueryExecution::current(),
        }
    }

    /// Runs the pieces of another phase.
    pub fn runner(self, inner: Arc<dyn ExecutionPlan>, done: Count) -> PieceRunner {
        PieceRunner {
            inner,
            context: self.context,
            done,
            interrupt: self.interrupt,
            number: begin_phase(self.execution.as_ref()),
            execution: self.execution,
        }
    }
}

/// How the turns of pieces are arranged: by the scheduler of the query, or else in their order.
pub(super) struct Turns {
    pub execution: Option<Arc<QueryExecution>>,
    /// The largest scan rating of the tables that are read.
    pub rating: u8,
    /// How many pieces run at once.
    pub concurrency: usize,
    /// How many chunks all pieces of the phase have together, also those that run elsewhere.
    pub num_chunks: usize,
}

impl Turns {
    /// The turns of these pieces.
    pub fn enroll(&self, pieces: &[Piece]) -> Arc<dyn EnrolledPhase> {
        let scheduler = self
            .execution
            .as_deref()
            .and_then(QueryExecution::scheduler);
        let Some(scheduler) = scheduler else {
            return Arc::new(UnscheduledPhase::new(pieces.len(), self.concurrency));
        };
        let slices = pieces.iter().map(|piece| piece.slices());
        let first = |slices: &Arc<[ChunkSlice]>| slices.first().map_or(0, |slice| slice.chunk.0);
        scheduler.enroll(PhaseDemand {
            chunks: slices
                .map(|slices| u32::try_from(first(slices)).unwrap_or(0))
                .collect(),
            num_chunks: self.num_chunks,
            rating: self.rating,
        })
    }
}

fn begin_phase(execution: Option<&Arc<QueryExecution>>) -> u32 {
    execution.map_or(0, |execution| execution.milestones().begin_phase())
}

/// How many chunks pieces have together.
pub(super) fn num_chunks(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.slices().len()).sum()
}

/// A phase that is about to run.
pub(super) struct StartedPhase {
    pub runner: PieceRunner,
    pub pieces: Arc<[Piece]>,
    pub rating: u8,
    pub concurrency: usize,
    /// How many chunks the phase has, which may be more than these pieces have.
    pub num_chunks: usize,
    /// How the rows are kept where the pieces run, if they are.
    pub keeping: Option<RowKeeping>,
}

impl StartedPhase {
    /// The run of the pieces with these numbers, of which others may run some.
    pub async fn run(self, numbers: Vec<usize>) -> Result<PhaseRun> {
        let settings = self.runner.context.session_config();
        let dispatching = settings.get_extension::<Dispatching>();
        if dispatching.is_some() {
            keep_small_files(&self.runner.inner).await?;
        }
        let dispatched = dispatching.and_then(|dispatching| {
            let phase = self.encoded(&numbers)?;
            dispatching.0.dispatch(phase)
        });
        Ok(self.run_beside(numbers, dispatched))
    }

    /// The run of pieces, of which others run those that were dispatched.
    fn run_beside(self, numbers: Vec<usize>, dispatched: Option<DispatchedPhase>) -> PhaseRun {
        let (local, remote) = match dispatched {
            None => (numbers, None),
            Some(dispatched) => {
                let local = dispatched.local.iter().map(|at| numbers[*at]).collect();
                let events = dispatched
                    .events
                    .map(move |event| event.renumbered(&numbers));
                (local, Some(events.boxed()))
            }
        };
        PhaseRun {
            turns: Turns {
                execution: self.runner.execution.clone(),
                rating: self.rating,
                concurrency: self.concurrency,
                num_chunks: self.num_chunks,
            },
            runner: self.runner,
            pieces: self.pieces,
            local,
            remote,
        }
    }

    fn encoded(&self, numbers: &[usize]) -> Option<EncodedPhase> {
        let execution = (self.runner.execution.as_ref(), self.runner.number);
        let pieces: Arc<[Piece]> = numbers.iter().map(|at| self.pieces[*at].clone()).collect();
        let (inner, rating) = (&self.runner.inner, self.rating);
        let phase = encode_phase(inner, &pieces, rating, self.num_chunks, execution, false)?;
        Some(EncodedPhase {
            keeping: self.keeping.clone(),
            ..phase
        })
    }
}

impl ChunkPhaseExec {
    /// The run of some of its pieces, of which all are given beside them, whose rows whoever runs them keeps. Those of pieces that run here are
    /// given.
    pub(super) async fn run_kept(
        &self,
        work: PhaseWork,
        (pieces, all): (Vec<Piece>, &[Piece]),
        keeping: &RowKeeping,
    ) -> Result<PhaseRun> {
        let numbers = (0..pieces.len()).collect();
        let inner = for_one_run(self.inner())?;
        let phase = self.started(work, inner, (pieces, all));
        let keeping = Some(keeping.clone());
        StartedPhase { keeping, ..phase }.run(numbers).await
    }

    /// The run of a plan that merges what its pieces have kept, for these buckets; here alone, or wherever there is room.
    pub(super) async fn run_merging(
        &self,
        work: PhaseWork,
        merging: Arc<dyn ExecutionPlan>,
        (buckets, all): (Vec<Piece>, &[Piece]),
        is_local: bool,
    ) -> Result<PhaseRun> {
        let numbers = (0..buckets.len()).collect();
        let settings = work.context.session_config();
        let dispatching = settings.get_extension::<Dispatching>();
        let phase = self.started(work, merging, (buckets, all));
        let dispatched = dispatching.filter(|_| !is_local).and_then(|dispatching| {
            let encoded = encoded_merging(self, &phase.runner.inner, false)?;
            dispatching.0.dispatch(EncodedPhase {
                pieces: Arc::clone(&phase.pieces),
                execution: phase.runner.execution.clone(),
                number: phase.runner.number,
                num_chunks: phase.num_chunks,
                ..encoded
            })
        });
        Ok(phase.run_beside(numbers, dispatched))
    }

    fn started(
        &self,
        work: PhaseWork,
        inner: Arc<dyn ExecutionPlan>,
        (pieces, all): (Vec<Piece>, &[Piece]),
    ) -> StartedPhase {
        if let Some(execution) = &work.execution {
            execution.add_pieces(pieces.len());
        }
        StartedPhase {
            runner: work.runner(inner, Count::new()),
            pieces: pieces.into(),
            rating: self.rating(),
            concurrency: self.concurrency(),
            num_chunks: num_chunks(all),
            keeping: None,
        }
    }
}

/// A plan that merges what the pieces of a phase have kept, for other processes; `None` if it cannot be sent to them.
pub(super) fn encoded_merging(
    phase: &ChunkPhaseExec,
    merging: &Arc<dyn ExecutionPlan>,
    is_preview: bool,
) -> Option<EncodedPhase> {
    let archive = archive_of(phase.inner())?;
    encode_merging(merging, archive, phase.rating(), is_preview)
}

/// Runs the pieces of a share that came from another process. The rows of each piece come together.
pub(crate) fn run_share(
    share: ShareRun,
    inner: &Arc<dyn ExecutionPlan>,
    concurrency: usize,
    context: Arc<TaskContext>,
) -> Result<BoxStream<'static, Result<(usize, SendableRecordBatchStream)>>> {
    let waiting = WaitingRows::new(&context, &inner.schema());
    let runner = PhaseWork::new(context).runner(for_one_run(inner)?, Count::new());
    let run = PhaseRun {
        local: (0..share.pieces.len()).collect(),
        remote: None,
        turns: Turns {
            execution: runner.execution.clone(),
            rating: share.rating,
            concurrency: concurrency.max(1),
            num_chunks: share.num_chunks,
        },
        runner,
        pieces: share.pieces.into(),
    };
    let pieces = run.piece_by_piece(waiting);
    Ok(stream::unfold(Some(pieces), |pieces| async move {
        let mut pieces = pieces?;
        match pieces.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(pieces))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed())
}
