//! The chunk phase: one plan, run once for each piece.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    displayable,
};
use futures::stream::{self, SelectAll, Stream, StreamExt, TryStreamExt};
use sql::Interrupt;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::journaled::JournaledRun;
use super::{ChunkNumberExec, NeighbourJoinExec, PieceScanExec, RowsOf};
use crate::error::external;
use crate::execution::{PhaseKey, QueryExecution};
use crate::interruptible::interruptible;
use crate::piece::Piece;
use crate::plan::PhaseSource;

/// Batches that a piece may be ahead of its reader.
const BATCHES_AHEAD: usize = 4;
/// In an ordered phase, pieces that may be under way or waiting to be read, for each one that runs.
const PIECES_AHEAD: usize = 4;

/// What a chunk phase touches and why, for EXPLAIN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PhaseSummary {
    /// For example `3 of 200 chunks, 12 pieces; object by circle 10 5 1`.
    pub text: String,
}

/// Runs a plan once for each piece that its input names and gives all the results.
///
/// ```text
///   pieces ──► ChunkPhaseExec ──► rows, or partial aggregates
///                    │ for each piece, up to `concurrency` at once
///                    └─► inner plan ── PieceScanExec bound to the piece
/// ```
///
/// The inner plan has one partition and sees, as each of its tables, just the rows of the piece, so joins on the director's
/// key and partial aggregates in it are ordinary single-partition operators. An `ordered` phase gives the results in the
/// order of its pieces, so that sums of floating-point numbers do not depend on which piece happens to end first.
#[derive(Debug)]
pub struct ChunkPhaseExec {
    input: Arc<dyn ExecutionPlan>,
    inner: Arc<dyn ExecutionPlan>,
    concurrency: usize,
    ordered: bool,
    summary: PhaseSummary,
    /// Off what its pieces were read; None in a plan from elsewhere.
    source: Option<Arc<PhaseSource>>,
    /// By what a journal knows the phase, in a plan whose pieces' results may be kept.
    journaled: Option<JournaledPhase>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ChunkPhaseExec {
    /// A phase over the pieces of `input` (see [`Piece::encode`]), one output partition for each of its partitions.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        inner: Arc<dyn ExecutionPlan>,
        concurrency: usize,
        ordered: bool,
        summary: PhaseSummary,
    ) -> Self {
        Self {
            properties: properties(&input, inner.schema()),
            input,
            inner,
            concurrency: concurrency.max(1),
            ordered,
            summary,
            source: None,
            journaled: None,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same phase, of which it is known off what its pieces were read.
    pub(crate) fn with_source(self, source: Arc<PhaseSource>) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// The same phase, whose pieces' results are kept where the query has a journal.
    pub(crate) fn journaled_as(&self, journaled: JournaledPhase) -> Self {
        Self {
            journaled: Some(journaled),
            ..self.over(Arc::clone(&self.input))
        }
    }

    /// The same phase over other pieces.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (inner, summary) = (Arc::clone(&self.inner), self.summary.clone());
        let phase = Self::new(input, inner, self.concurrency, self.ordered, summary);
        Self {
            source: self.source.clone(),
            journaled: self.journaled,
            ..phase
        }
    }

    /// The same phase over these pieces, with another plan of the same schema for each.
    pub(crate) fn of(&self, pieces: &[Piece], inner: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let batches = [vec![Piece::encode(pieces)?]];
        let input = MemorySourceConfig::try_new_exec(&batches, Piece::schema(), None)?;
        let summary = PhaseSummary::default();
        Ok(Self::new(
            input,
            inner,
            self.concurrency,
            self.ordered,
            summary,
        ))
    }

    /// The pieces that it runs over, in one partition.
    pub(crate) fn pieces(&self) -> Result<Vec<Piece>> {
        let source = self
            .input
            .downcast_ref::<DataSourceExec>()
            .and_then(|source| source.data_source().downcast_ref::<MemorySourceConfig>());
        match source.map(MemorySourceConfig::partitions) {
            Some([batches]) => {
                let pieces = batches.iter().map(Piece::decode);
                Ok(pieces.collect::<Result<Vec<_>>>()?.concat())
            }
            _ => exec_err!("the pieces of a phase are not all in one place"),
        }
    }

    /// The plan that runs for each piece.
    pub fn inner(&self) -> &Arc<dyn ExecutionPlan> {
        &self.inner
    }

    /// How many pieces run at once.
    pub fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// Whether results come in the order of the pieces.
    pub fn ordered(&self) -> bool {
        self.ordered
    }

    /// Off what its pieces were read; None in a plan from elsewhere.
    pub(crate) fn source(&self) -> Option<&PhaseSource> {
        self.source.as_deref()
    }

    /// What it touches and why.
    pub fn summary(&self) -> &PhaseSummary {
        &self.summary
    }
}

/// By what a journal knows a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournaledPhase {
    pub key: PhaseKey,
    /// Whether only the pieces are read that are committed already: for the result so far.
    pub only_committed: bool,
}

fn properties(input: &Arc<dyn ExecutionPlan>, schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// The inner plan for one piece: every scan, and whatever tells its chunks, bound to it, and no state shared with other runs
/// of the plan.
pub(crate) fn bind_to_piece(
    plan: &Arc<dyn ExecutionPlan>,
    piece: &Piece,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<PieceScanExec>() {
        return Ok(Arc::new(scan.bound_to(piece)));
    }
    if let Some(number) = plan.downcast_ref::<ChunkNumberExec>() {
        return Ok(Arc::new(number.bound_to(piece, bind_to_piece)?));
    }
    let children = plan
        .children()
        .into_iter()
        .map(|child| bind_to_piece(child, piece))
        .collect::<Result<Vec<_>>>()?;
    let bound = if children.is_empty() {
        Arc::clone(plan)
    } else {
        Arc::clone(plan).replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep),
        )?
    };
    bound.reset_state()
}

/// The inner plan for one run of all its pieces: joins index rows that are the same in every piece once.
fn for_one_run(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let shares = |node: &Arc<dyn ExecutionPlan>| {
        let join = node.downcast_ref::<NeighbourJoinExec>();
        join.filter(|join| is_same_in_every_piece(join.build()))
            .map(NeighbourJoinExec::sharing_build)
    };
    Arc::clone(plan)
        .transform_up(|node| {
            Ok(match shares(&node) {
                Some(join) => Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })
        .data()
}

fn is_same_in_every_piece(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<PieceScanExec>() {
        return scan.rows() == RowsOf::Whole;
    }
    !plan.is::<ChunkNumberExec>() && plan.children().into_iter().all(is_same_in_every_piece)
}

/// Pieces of whatever phase that have run to their end.
static RUN: AtomicU64 = AtomicU64::new(0);

/// How many pieces have run to their end since the process began.
pub(crate) fn pieces_run() -> u64 {
    RUN.load(Relaxed)
}

/// Runs the pieces of a phase.
pub(super) struct PieceRunner {
    inner: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    done: Count,
    /// Of the statement that the pieces are part of.
    interrupt: Arc<Interrupt>,
    /// The query that the statement is, where somebody watches it.
    execution: Option<Arc<QueryExecution>>,
}

impl PieceRunner {
    /// The rows of a piece, which are computed as they are polled.
    pub(super) fn rows(&self, piece: &Piece) -> Result<SendableRecordBatchStream> {
        let bound = interruptible(bind_to_piece(&self.inner, piece)?, &self.interrupt)?;
        bound.execute(0, Arc::clone(&self.context))
    }

    /// Counts a piece that has run to its end.
    pub(super) fn count_run(&self) {
        self.count_done();
        RUN.fetch_add(1, Relaxed);
    }

    /// Counts a piece whose rows are there.
    pub(super) fn count_done(&self) {
        self.done.add(1);
        if let Some(execution) = &self.execution {
            execution.piece_is_done();
        }
    }

    pub(super) fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }
}

/// Starts pieces, each in a task of its own.
struct PieceTasks {
    runner: Arc<PieceRunner>,
    /// The schema of the results.
    schema: SchemaRef,
    turns: Arc<Semaphore>,
}

impl PieceTasks {
    /// The results of a piece, whose task ends when they are dropped.
    fn start(&self, piece: Piece) -> SendableRecordBatchStream {
        let mut results =
            RecordBatchReceiverStream::builder(Arc::clone(&self.schema), BATCHES_AHEAD);
        let sender = results.tx();
        let (runner, turns) = (Arc::clone(&self.runner), Arc::clone(&self.turns));
        results.spawn(self.runner.interrupt.scope(async move {
            let held = turn(&turns).await?;
            send_all(runner.rows(&piece)?, sender, turns, held).await?;
            runner.count_run();
            Ok(())
        }));
        results.build()
    }
}

async fn decode_all(pieces: SendableRecordBatchStream) -> Result<Vec<Piece>> {
    let batches: Vec<RecordBatch> = pieces.try_collect().await?;
    let pieces = batches.iter().map(Piece::decode);
    Ok(pieces.collect::<Result<Vec<_>>>()?.concat())
}

async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    Arc::clone(turns)
        .acquire_owned()
        .await
        .map_err(|_| exec_datafusion_err!("the query has ended"))
}

/// Hands a piece's batches on. While its reader is behind, the piece gives up its turn: the reader may be waiting for a
/// piece that has not had one yet.
async fn send_all(
    mut batches: SendableRecordBatchStream,
    sender: Sender<Result<RecordBatch>>,
    turns: Arc<Semaphore>,
    mut held: OwnedSemaphorePermit,
) -> Result<()> {
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        match sender.try_send(Ok(batch)) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Ok(()),
            Err(TrySendError::Full(batch)) => {
                drop(held);
                if sender.send(batch).await.is_err() {
                    return Ok(());
                }
                held = turn(&turns).await?;
            }
        }
    }
    Ok(())
}

/// The results of pieces, some of which run at the same time.
struct Results {
    tasks: PieceTasks,
    pieces: VecDeque<Piece>,
    concurrency: usize,
}

impl Results {
    /// In the order of the pieces: the first is read to its end while those behind it run ahead.
    fn in_order(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let window = self.concurrency * PIECES_AHEAD;
        let started = VecDeque::with_capacity(window);
        stream::unfold(
            (self, started),
            move |(mut results, mut started)| async move {
                loop {
                    while started.len() < window
                        && let Some(piece) = results.pieces.pop_front()
                    {
                        started.push_back(results.tasks.start(piece));
                    }
                    let first: &mut SendableRecordBatchStream = started.front_mut()?;
                    match first.next().await {
                        Some(batch) => return Some((batch, (results, started))),
                        None => started.pop_front(),
                    };
                }
            },
        )
    }

    /// As they come.
    fn unordered(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let running = SelectAll::new();
        stream::unfold((self, running), |(mut results, mut running)| async move {
            loop {
                while running.len() < results.concurrency
                    && let Some(piece) = results.pieces.pop_front()
                {
                    running.push(results.tasks.start(piece));
                }
                if running.is_empty() {
                    return None;
                }
                if let Some(batch) = running.next().await {
                    return Some((batch, (results, running)));
                }
            }
        })
    }
}

impl DisplayAs for ChunkPhaseExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkPhaseExec: {}", self.summary.text)?;
        if self.ordered {
            f.write_str(", in order")?;
        }
        for line in displayable(self.inner.as_ref())
            .indent(false)
            .to_string()
            .lines()
        {
            write!(f, "\n      | {line}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for ChunkPhaseExec {
    fn name(&self) -> &str {
        "ChunkPhaseExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    /// Pieces are given out as they are: shuffling them between partitions would only cost.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children.swap_remove(0))))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let pieces = self.input.execute(partition, Arc::clone(&context))?;
        let execution = QueryExecution::current();
        let runner = PieceRunner {
            inner: for_one_run(&self.inner)?,
            context,
            done: MetricBuilder::new(&self.metrics).counter("pieces_done", partition),
            interrupt: Interrupt::current_or_new(),
            execution: execution.clone(),
        };
        let (concurrency, ordered) = (self.concurrency, self.ordered);
        let (schema, journaled) = (self.schema(), self.journaled);
        let batches = stream::once(async move {
            let pieces = decode_all(pieces).await?;
            if let Some(execution) = &execution {
                execution.add_pieces(pieces.len());
            }
            let journal = execution.as_ref().and_then(|it| it.journal());
            if let (Some(phase), Some(journal)) = (journaled, journal) {
                let journal = journal.open_phase(phase.key, pieces.len());
                let run = JournaledRun {
                    runner,
                    pieces,
                    journal: journal.map_err(external)?,
                    concurrency,
                };
                return Ok(match phase.only_committed {
                    true => run.committed_rows().boxed(),
                    false => run.rows().boxed(),
                });
            }
            let results = Results {
                tasks: PieceTasks {
                    runner: Arc::new(runner),
                    schema,
                    turns: Arc::new(Semaphore::new(concurrency)),
                },
                pieces: pieces.into(),
                concurrency,
            };
            Ok::<_, datafusion::common::DataFusionError>(if ordered {
                results.in_order().boxed()
            } else {
                results.unordered().boxed()
            })
        })
        .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
