//! The chunk phase: one plan, run once for each piece.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    displayable,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use sql::Interrupt;

use super::gathered::WaitingRows;
use super::journaled::JournaledPieces;
use super::piece_milestone::PieceMilestone;
use super::plan_node::{no_expressions, plan_node};
use super::started_phase::{PhaseWork, StartedPhase, num_chunks};
use super::{BucketScanExec, ChunkNumberExec, NeighbourJoinExec, PieceScanExec, RowsOf};
use crate::dispatch::{Dispatching, encode_phase};
use crate::error::external;
use crate::execution::{PhaseKey, QueryExecution};
use crate::interruptible::interruptible;
use crate::piece::Piece;
use crate::plan::PhaseSource;

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
    /// The largest scan rating of the tables that it reads.
    rating: u8,
    /// Rows of the chunks that it touches, as far as that is known.
    rows: u64,
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
            rating: 0,
            rows: 0,
            source: None,
            journaled: None,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same phase, whose scans have this rating.
    pub(crate) fn with_rating(self, rating: u8) -> Self {
        Self { rating, ..self }
    }

    /// The largest scan rating of the tables that it reads.
    pub(crate) fn rating(&self) -> u8 {
        self.rating
    }

    /// The same phase, which touches chunks of so many rows.
    pub(crate) fn with_rows(self, rows: u64) -> Self {
        Self { rows, ..self }
    }

    /// Rows of the chunks that it touches; 0 in a plan from elsewhere.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
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

    /// Whether its pieces' results may be kept in a journal.
    pub(crate) fn is_journaled(&self) -> bool {
        self.journaled.is_some()
    }

    /// The same phase over other pieces.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (inner, summary) = (Arc::clone(&self.inner), self.summary.clone());
        let phase = Self::new(input, inner, self.concurrency, self.ordered, summary);
        Self {
            rating: self.rating,
            rows: self.rows,
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
        let phase = Self::new(input, inner, self.concurrency, self.ordered, summary);
        Ok(phase.with_rating(self.rating))
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

    /// How many of its pieces each worker would get now.
    pub(crate) fn preview(&self, dispatching: &Dispatching) -> Result<Vec<(String, usize)>> {
        let pieces: Arc<[Piece]> = self.pieces()?.into();
        let chunks = num_chunks(&pieces);
        let phase = encode_phase(&self.inner, &pieces, self.rating, chunks, (None, 0), true);
        Ok(phase.map_or_else(Vec::new, |phase| dispatching.0.preview(&phase)))
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
    if let Some(scan) = plan.downcast_ref::<BucketScanExec>() {
        return Ok(Arc::new(scan.bound_to(piece)?));
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
pub(super) fn for_one_run(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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
    pub inner: Arc<dyn ExecutionPlan>,
    pub context: Arc<TaskContext>,
    /// Counts the pieces that are done.
    pub done: Count,
    /// Of the statement that the pieces are part of.
    pub interrupt: Arc<Interrupt>,
    /// The query that the statement is, where somebody watches it.
    pub execution: Option<Arc<QueryExecution>>,
    /// The number of the phase in the query.
    pub number: u32,
}

impl PieceRunner {
    /// The milestone of a piece that begins now and was handed out before.
    pub(super) fn begin_piece(&self, handed_out: i64) -> PieceMilestone {
        PieceMilestone::begin(self.execution.as_ref(), self.number, handed_out)
    }

    /// The rows of a piece, which are computed as they are polled. Blocks of a shared piece are decoded for other queries, too.
    pub(super) fn rows(&self, piece: &Piece, sharers: u32) -> Result<SendableRecordBatchStream> {
        let bound = bind_to_piece(&self.inner, &piece.shared(sharers))?;
        let bound = interruptible(bound, &self.interrupt)?;
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

async fn decode_all(pieces: SendableRecordBatchStream) -> Result<Arc<[Piece]>> {
    let batches: Vec<RecordBatch> = pieces.try_collect().await?;
    let pieces = batches.iter().map(Piece::decode);
    Ok(pieces.collect::<Result<Vec<_>>>()?.concat().into())
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
    plan_node!("ChunkPhaseExec");
    no_expressions!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    /// Pieces are given out as they are: shuffling them between partitions would only cost.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children.swap_remove(0))))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let pieces = self.input.execute(partition, Arc::clone(&context))?;
        let work = PhaseWork::new(context);
        let execution = work.execution.clone();
        let done = MetricBuilder::new(&self.metrics).counter("pieces_done", partition);
        let runner = work.runner(for_one_run(&self.inner)?, done);
        let (concurrency, ordered) = (self.concurrency, self.ordered);
        let (rating, journaled) = (self.rating, self.journaled);
        let waiting = WaitingRows::new(&runner.context, &self.schema());
        let batches = stream::once(async move {
            let pieces = decode_all(pieces).await?;
            if let Some(execution) = &execution {
                execution.add_pieces(pieces.len());
            }
            let num_pieces = pieces.len();
            let phase = StartedPhase {
                runner,
                num_chunks: num_chunks(&pieces),
                pieces,
                rating,
                concurrency,
                keeping: None,
            };
            let journal = execution.as_deref().and_then(QueryExecution::journal);
            if let (Some(known), Some(journal)) = (journaled, journal) {
                let journal = journal
                    .open_phase(known.key, num_pieces)
                    .map_err(external)?;
                let journaled = JournaledPieces::new(journal, num_pieces);
                return Ok(match known.only_committed {
                    true => journaled.committed_rows(phase.runner).boxed(),
                    false => {
                        let run = phase.run(journaled.left()).await?;
                        journaled.rows(run)
                    }
                });
            }
            let run = phase.run((0..num_pieces).collect()).await?;
            Ok::<_, datafusion::common::DataFusionError>(match ordered {
                true => run.in_order(waiting).boxed(),
                false => run.unordered(waiting).boxed(),
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
