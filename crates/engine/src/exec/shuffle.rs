//! The operator of a shuffle: has workers merge what their pieces gave, a bucket at a time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use sky::ChunkId;
use sql::Interrupt;

use super::gathered::WaitingRows;
use super::plan_node::{no_expressions, plan_node};
use super::rows_in_order::RowsInOrder;
use super::run_pieces::GatheredPieces;
use super::started_phase::{PhaseWork, encoded_merging};
use super::{BucketScanExec, ChunkPhaseExec};
use crate::QueryExecution;
use crate::dispatch::Dispatching;
use crate::estimate::nodes;
use crate::piece::Piece;
use crate::shuffle::{KeptPiece, RowKeeping, Shuffle, lost_rows_sentence};

/// Of so many pieces one is run first, to see how many rows they give: of few pieces, and of more.
const PIECES_OF_A_SAMPLE: [usize; 2] = [16, 64];
/// Rows that a bucket may have if the pieces give as many as they read.
const ROWS_OF_A_BUCKET: u64 = 2_000_000;
/// Buckets for each thread, at least: one that takes longer than the others shall not decide.
const BUCKETS_OF_A_THREAD: usize = 2;
const MOST_BUCKETS: u64 = 1024;
/// How often rows that were lost are computed anew.
const ATTEMPTS: usize = 6;
/// After so many attempts buckets are merged here: this process reaches all workers, which may not reach each other.
const REMOTE_ATTEMPTS: usize = 3;

/// Merges what the pieces of a phase give: in this process, or, if that is much, at workers.
///
/// ```text
///   input: filters, final aggregate, … ◄── by hash ◄── ChunkPhaseExec        as it runs here
///   merging: the same                  ◄────────────── BucketScanExec        as it runs for each bucket
/// ```
///
/// The pieces keep their rows where they run. A bucket's rows are merged in the order of the pieces, as they would be here, and buckets are given
/// in their order, so that sums of floating-point numbers do not depend on who is done first.
#[derive(Debug)]
pub struct ShuffleExec {
    input: Arc<dyn ExecutionPlan>,
    merging: Arc<dyn ExecutionPlan>,
    columns: Arc<[usize]>,
    most_rows: u64,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ShuffleExec {
    /// A plan above one phase, and the same in the place of whose phase [a bucket](BucketScanExec) is read. The rows of a bucket are alike in a hash of
    /// these columns of the phase. What gives at most `most_rows` rows is merged in this process.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        merging: Arc<dyn ExecutionPlan>,
        columns: Arc<[usize]>,
        most_rows: u64,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            properties: Arc::new(properties),
            input,
            merging,
            columns,
            most_rows,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// So many rows of pieces are merged in this process, and more by workers.
    pub(crate) fn most_rows(&self) -> u64 {
        self.most_rows
    }
}

impl DisplayAs for ShuffleExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = nodes(&self.input, |node| node.is::<ChunkPhaseExec>());
        let schema = phase.first().map(|phase| phase.schema());
        let names = { self.columns.iter() }.filter_map(|at| {
            let field = schema.as_ref()?.fields().get(*at)?;
            Some(field.name().as_str())
        });
        let names: Vec<&str> = names.collect();
        let rows = self.most_rows;
        write!(
            f,
            "ShuffleExec: by=[{}], merged by workers if the pieces give more than {rows} rows",
            names.join(", ")
        )
    }
}

impl ExecutionPlan for ShuffleExec {
    plan_node!("ShuffleExec");
    no_expressions!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (merging, columns) = (Arc::clone(&self.merging), Arc::clone(&self.columns));
        let input = children.swap_remove(0);
        Ok(Arc::new(Self::new(input, merging, columns, self.most_rows)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("a shuffle has one partition, and {partition} was asked for");
        }
        let count = |name| MetricBuilder::new(&self.metrics).counter(name, 0);
        let run = ShuffleRun {
            input: Arc::clone(&self.input),
            merging: Arc::clone(&self.merging),
            columns: Arc::clone(&self.columns),
            most_rows: self.most_rows,
            context,
            interrupt: Interrupt::current_or_new(),
            execution: QueryExecution::current(),
            rows_kept: count("rows_kept"),
            buckets_merged: count("buckets_merged"),
        };
        let rows = stream::once(run.start()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// A shuffle that is about to run.
struct ShuffleRun {
    input: Arc<dyn ExecutionPlan>,
    merging: Arc<dyn ExecutionPlan>,
    columns: Arc<[usize]>,
    most_rows: u64,
    context: Arc<TaskContext>,
    interrupt: Arc<Interrupt>,
    execution: Option<Arc<QueryExecution>>,
    rows_kept: Count,
    buckets_merged: Count,
}

impl ShuffleRun {
    async fn start(self) -> Result<SendableRecordBatchStream> {
        let (input, context) = (Arc::clone(&self.input), Arc::clone(&self.context));
        match self.keep_rows().await? {
            Some(merge) => {
                let rows = RecordBatchStreamAdapter::new(input.schema(), merge.into_rows());
                Ok(Box::pin(rows))
            }
            None if input.output_partitioning().partition_count() == 1 => input.execute(0, context),
            None => CoalescePartitionsExec::new(input).execute(0, context),
        }
    }

    /// Has the pieces of the phase keep their rows; `None` if what they give had better be merged here.
    async fn keep_rows(self) -> Result<Option<Merge>> {
        let settings = self.context.session_config();
        let dispatching = settings.get_extension::<Dispatching>();
        let Some(shuffle) = dispatching.and_then(|it| it.0.begin_shuffle()) else {
            return Ok(None);
        };
        let phases = nodes(&self.input, |node| node.is::<ChunkPhaseExec>());
        let [node] = phases.as_slice() else {
            return internal_err!("a shuffle has {} phases", phases.len());
        };
        let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() else {
            return internal_err!("a shuffle has no phase");
        };
        // A journal keeps what pieces give; and what cannot be sent elsewhere is merged here.
        if phase.is_journaled() || encoded_merging(phase, &self.merging, true).is_none() {
            return Ok(None);
        }
        let threads = (shuffle.num_threads() * BUCKETS_OF_A_THREAD) as u64;
        let buckets = (phase.rows() / ROWS_OF_A_BUCKET).max(threads);
        let pieces = phase.pieces()?;
        let mut merge = Merge {
            phase: Arc::clone(node),
            kept: vec![None; pieces.len()],
            buckets: u32::try_from(buckets.clamp(1, MOST_BUCKETS)).unwrap_or(1),
            pieces,
            shuffle,
            run: self,
            left: BTreeSet::new(),
            merges: None,
            rows: RowsInOrder::default(),
            attempts: 0,
        };
        // What is found of a small sample is worth more than all that could be known of the values beforehand.
        let num_pieces = merge.pieces.len();
        let [of_few, of_more] = PIECES_OF_A_SAMPLE;
        let step = if num_pieces < of_more {
            of_few
        } else {
            of_more
        };
        // The last piece may be what the others have left.
        let sample: Vec<usize> = (step / 2..num_pieces).step_by(step).collect();
        if num_pieces >= step {
            merge.keep(&sample).await?;
            let rows = merge.rows_kept();
            let all = rows.saturating_mul(num_pieces as u64) / sample.len() as u64;
            if all <= merge.run.most_rows {
                return Ok(None);
            }
        }
        let others: Vec<usize> = (0..num_pieces)
            .filter(|at| merge.kept[*at].is_none())
            .collect();
        merge.keep(&others).await?;
        merge.run.rows_kept.add(merge.rows_kept() as usize);
        merge.left = (0..merge.buckets).collect();
        Ok(Some(merge))
    }
}

/// The merging of buckets.
struct Merge {
    run: ShuffleRun,
    phase: Arc<dyn ExecutionPlan>,
    pieces: Vec<Piece>,
    /// Where the rows of each piece are.
    kept: Vec<Option<KeptPiece>>,
    shuffle: Arc<dyn Shuffle>,
    buckets: u32,
    /// The buckets that are not merged yet.
    left: BTreeSet<u32>,
    /// What comes of those that are being merged, in the order of `left` when that began.
    merges: Option<(GatheredPieces, Vec<u32>)>,
    /// Their rows, by the numbers of the buckets.
    rows: RowsInOrder,
    attempts: usize,
}

impl Merge {
    fn phase(&self) -> Result<&ChunkPhaseExec> {
        let phase = self.phase.downcast_ref::<ChunkPhaseExec>();
        phase.ok_or_else(|| internal_datafusion_err!("a shuffle has no phase"))
    }

    fn rows_kept(&self) -> u64 {
        self.kept.iter().flatten().map(|piece| piece.rows).sum()
    }

    fn work(&self) -> PhaseWork {
        PhaseWork {
            context: Arc::clone(&self.run.context),
            interrupt: Arc::clone(&self.run.interrupt),
            execution: self.run.execution.clone(),
        }
    }

    /// Runs the pieces with these numbers, whose rows are kept where they run.
    async fn keep(&mut self, numbers: &[usize]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let pieces = numbers.iter().map(|at| self.pieces[*at].clone());
        let keeping = RowKeeping {
            shuffle: self.shuffle.id(),
            columns: Arc::clone(&self.run.columns),
            buckets: self.buckets,
            kept: Arc::default(),
        };
        let (schema, all) = (self.phase.schema(), self.pieces.as_slice());
        let waiting = WaitingRows::new(&self.run.context, &schema);
        let run = self
            .phase()?
            .run_kept(self.work(), (pieces.collect(), all), &keeping)
            .await?;
        let mut rows = run.piece_by_piece(waiting);
        let mut here = None;
        while let Some((at, mut batches)) = rows.next().await? {
            let kept = match keeping.kept.take(at) {
                Some(kept) => kept,
                // It ran in this process.
                None => {
                    let context = &self.run.context;
                    let keeper = match &mut here {
                        Some(keeper) => keeper,
                        None => here.insert(self.shuffle.keeper(&keeping, &schema, context)?),
                    };
                    while let Some(batch) = batches.next().await {
                        keeper.push(&batch?)?;
                    }
                    keeper.end_piece()?
                }
            };
            self.kept[numbers[at]] = Some(kept);
        }
        Ok(())
    }

    /// Begins to merge the buckets that are left.
    async fn begin(&mut self) -> Result<(GatheredPieces, Vec<u32>)> {
        let kept: Option<Vec<KeptPiece>> = self.kept.iter().cloned().collect();
        let Some(kept) = kept else {
            return internal_err!("a piece of a shuffle is missing");
        };
        let id = self.shuffle.id();
        let merging = BucketScanExec::placed(&self.run.merging, id, &kept.into())?;
        let buckets: Vec<u32> = self.left.iter().copied().collect();
        let pieces = buckets.iter().map(|bucket| {
            let chunk = i32::try_from(*bucket).unwrap_or(i32::MAX);
            Piece::whole(ChunkId(chunk))
        });
        let waiting = WaitingRows::new(&self.run.context, &merging.schema());
        let is_local = self.attempts >= REMOTE_ATTEMPTS;
        let pieces = (pieces.collect(), self.pieces.as_slice());
        let run = self
            .phase()?
            .run_merging(self.work(), merging, pieces, is_local)
            .await?;
        Ok((run.piece_by_piece(waiting), buckets))
    }

    /// Has the rows computed anew that nobody keeps any more.
    async fn restore(&mut self) -> Result<()> {
        let kept: Vec<KeptPiece> = self.kept.iter().flatten().cloned().collect();
        let missing = self.shuffle.missing(&kept).await;
        tracing::warn!(
            pieces = missing.len(),
            "rows that were kept for a shuffle are lost: their pieces run again"
        );
        self.keep(&missing).await
    }

    /// The rows of all buckets, in the order of these.
    fn into_rows(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        stream::unfold(Some(self), |merge| async move {
            let mut merge = merge?;
            match merge.next_batch().await {
                Ok(Some(batch)) => Some((Ok(batch), Some(merge))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.rows.next_batch().await? {
                return Ok(Some(batch));
            }
            if self.rows.num_given() == self.buckets as usize {
                return Ok(None);
            }
            self.merge_next().await?;
        }
    }

    /// Waits for the next bucket that is merged.
    async fn merge_next(&mut self) -> Result<()> {
        let (merges, buckets) = match &mut self.merges {
            Some(merges) => merges,
            None => {
                let begun = self.begin().await?;
                self.merges.insert(begun)
            }
        };
        match merges.next().await {
            Ok(Some((at, rows))) => {
                self.left.remove(&buckets[at]);
                self.rows.add(buckets[at] as usize, rows);
                self.run.buckets_merged.add(1);
                Ok(())
            }
            Ok(None) => internal_err!("a bucket of a shuffle is missing"),
            Err(error) => {
                let is_lost = lost_rows_sentence(&error).is_some();
                if !is_lost || self.attempts == ATTEMPTS {
                    return Err(error);
                }
                self.merges = None;
                self.attempts += 1;
                self.restore().await
            }
        }
    }
}
