//! Crossmatches that choose among the pairs within a radius: each row's nearest few, or the pairs that are each other's
//! nearest.

mod indexed;
mod matching;
mod spread;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::TryStreamExt;
use sky::Angle;
use sql::SEPARATION_COLUMN;
use sql::interrupt::carried;
use tokio::sync::OnceCell;
use tokio::sync::mpsc::Sender;

use self::indexed::IndexedRows;
use self::matching::Matcher;
use super::bind_near::{bind_near, reads_near};
use super::execute_fresh::execute_fresh;
use super::plan_node::{apply_all, no_statistics, plan_node};
use crate::interruptible::yield_if_due;
use crate::search_cover::SearchCover;

/// Batches that a crossmatch may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;
/// Rows from anywhere on the sky that are gathered and matched together: the other side is read anew for each so many.
const ROWS_GATHERED: usize = 1 << 20;

/// Which of the pairs within the radius are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchSelection {
    /// Each probe row's so many nearest, of equally near ones those that are read first.
    Nearest(usize),
    /// Those of which neither end has a nearer partner; all of them where several are equally near.
    Mutual,
}

/// What becomes of probe rows without a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unmatched {
    /// They are left out.
    Dropped,
    /// They are given beside NULLs.
    Kept,
    /// They alone are given, without columns of the other side.
    Alone,
}

/// What a crossmatch is to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatchRule {
    /// The largest separation of a pair; it is itself near enough.
    pub radius: Angle,
    /// Which pairs.
    pub wanted: MatchSelection,
    /// And which rows without one.
    pub unmatched: Unmatched,
}

impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wanted {
            MatchSelection::Nearest(1) => f.write_str("nearest")?,
            MatchSelection::Nearest(most) => write!(f, "nearest {most}")?,
            MatchSelection::Mutual => f.write_str("each other's nearest")?,
        }
        write!(f, " within {}", self.radius.degrees())?;
        match self.unmatched {
            Unmatched::Dropped => Ok(()),
            Unmatched::Kept => f.write_str(", unmatched kept"),
            Unmatched::Alone => f.write_str(", unmatched alone"),
        }
    }
}

/// An input, and the right ascension and declination (degrees) of its rows, over its columns.
#[derive(Debug, Clone)]
pub struct MatchSide {
    /// The rows.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Where they are.
    pub position: [Arc<dyn PhysicalExpr>; 2],
}

/// A column that a crossmatch gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchColumn {
    /// One of the probe side's, by its number there.
    Probe(usize),
    /// One of the build side's.
    Build(usize),
    /// The separation, arcseconds.
    Separation,
}

/// Chooses among the pairs of two inputs whose separation on the sky is within a radius.
///
/// ```text
///   build rows ──► index
///                    ▲ the nearest of each row
///   probe rows ──────┴──► candidates ──► is a rival nearer to the build row? ──► pairs ──► rows
///                                            ▲
///   rivals ──► index around the candidates ──┘ only where pairs are to be each other's nearest
/// ```
///
/// Rivals are all rows of the probe side's table: a piece has only some of them, and conditions that hold for the probe rows do
/// not hold for them. Without an input of rivals the probe rows are their own, and are all gathered first.
///
/// Where the build side or the rivals are read around something ([`RowsOf::Neighbourhood`](super::RowsOf::Neighbourhood)), they are read
/// once the rows
/// around which are there. Probe rows that come from anywhere ([`Self::spread`]) are taken by cells of the sky for that.
///
/// Invariant: it gives what a loop over all pairs would that chooses by the separation function.
#[derive(Debug)]
pub struct CrossmatchExec {
    probe: MatchSide,
    build: MatchSide,
    rivals: Option<MatchSide>,
    rule: MatchRule,
    columns: Vec<MatchColumn>,
    spread: bool,
    /// The build side and the rivals, where they are gathered once for all probe rows.
    gathered: Arc<GatheredRows>,
    properties: Arc<PlanProperties>,
}

#[derive(Debug, Default)]
struct GatheredRows {
    build: OnceCell<Arc<IndexedRows>>,
    rivals: OnceCell<Arc<IndexedRows>>,
}

impl CrossmatchExec {
    /// A crossmatch that gives all columns of the probe side, then, unless probe rows are given alone, those of the build side
    /// and the separation.
    pub fn new(
        probe: MatchSide,
        build: MatchSide,
        rivals: Option<MatchSide>,
        rule: MatchRule,
    ) -> Self {
        let (schema, columns) = all_columns(&probe, &build, rule.unmatched);
        Self {
            properties: properties(&probe.plan, schema),
            probe,
            build,
            rivals,
            rule,
            columns,
            spread: false,
            gathered: Arc::default(),
        }
    }

    /// The same crossmatch, whose probe rows come from anywhere on the sky, in any order.
    pub fn spread(self) -> Self {
        Self {
            spread: true,
            ..self
        }
    }

    /// The same crossmatch, giving these columns under the names of `schema`.
    pub(crate) fn with_columns(&self, columns: Vec<MatchColumn>, schema: SchemaRef) -> Self {
        Self {
            properties: properties(&self.probe.plan, schema),
            columns,
            ..self.over(self.children().into_iter().cloned().collect())
        }
    }

    /// The same crossmatch of other inputs with the same columns, which has not begun.
    pub(crate) fn over(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let mut inputs = inputs.into_iter();
        let mut side = |side: &MatchSide| MatchSide {
            plan: inputs.next().unwrap_or_else(|| Arc::clone(&side.plan)),
            position: side.position.clone(),
        };
        let (probe, build) = (side(&self.probe), side(&self.build));
        let rivals = self.rivals.as_ref().map(side);
        Self {
            properties: properties(&probe.plan, self.schema()),
            probe,
            build,
            rivals,
            rule: self.rule,
            columns: self.columns.clone(),
            spread: self.spread,
            gathered: Arc::default(),
        }
    }

    /// The side whose rows are taken one after another.
    pub fn probe(&self) -> &MatchSide {
        &self.probe
    }

    /// The side whose rows are indexed.
    pub fn build(&self) -> &MatchSide {
        &self.build
    }

    /// All rows of the probe side's table, where they are another input.
    pub fn rivals(&self) -> Option<&MatchSide> {
        self.rivals.as_ref()
    }

    /// What it does.
    pub fn rule(&self) -> MatchRule {
        self.rule
    }

    /// The columns that it gives.
    pub fn columns(&self) -> &[MatchColumn] {
        &self.columns
    }

    /// Whether its probe rows come from anywhere on the sky.
    pub fn is_spread(&self) -> bool {
        self.spread
    }

    /// Whether all probe rows are needed to tell which pairs are wanted.
    pub(crate) fn probes_are_rivals(&self) -> bool {
        self.rule.wanted == MatchSelection::Mutual && self.rivals.is_none()
    }

    fn work(&self, context: Arc<TaskContext>, output: Output) -> MatchTask {
        MatchTask {
            matcher: Matcher {
                rule: self.rule,
                probe: self.probe.position.clone(),
                build: self.build.position.clone(),
                columns: self.columns.clone(),
                schema: self.schema(),
                batch_size: context.session_config().batch_size(),
            },
            build: IndexedInput::of(&self.build, self.spread),
            rivals: self
                .rivals
                .as_ref()
                .map(|rivals| IndexedInput::of(rivals, false)),
            spread: self.spread,
            gathered: Arc::clone(&self.gathered),
            context,
            output,
        }
    }
}

/// Where results go.
type Output = Sender<Result<RecordBatch>>;

/// An input that is indexed.
struct IndexedInput {
    plan: Arc<dyn ExecutionPlan>,
    position: [Arc<dyn PhysicalExpr>; 2],
    /// Whether it is read around something.
    near: bool,
    /// Whether its rows come in no certain order, and have to be brought into one.
    sorted: bool,
}

impl IndexedInput {
    fn of(side: &MatchSide, sorted: bool) -> Self {
        Self {
            near: reads_near(&side.plan),
            plan: Arc::clone(&side.plan),
            position: side.position.clone(),
            sorted,
        }
    }

    async fn gather(
        &self,
        rows: SendableRecordBatchStream,
        radius: Angle,
        context: &Arc<TaskContext>,
    ) -> Result<Arc<IndexedRows>> {
        let memory = MemoryConsumer::new("Crossmatch").register(context.memory_pool());
        let indexed = IndexedRows::gather(rows, &self.position, radius, self.sorted, memory);
        Ok(Arc::new(indexed.await?))
    }

    /// The rows of which some may be within the radius of places.
    async fn around(
        &self,
        places: impl Iterator<Item = (f64, f64)>,
        radius: Angle,
        once: &OnceCell<Arc<IndexedRows>>,
        context: &Arc<TaskContext>,
    ) -> Result<Arc<IndexedRows>> {
        if self.near {
            let search_cover = Arc::new(SearchCover::of(places, radius));
            let bound = bind_near(&self.plan, &search_cover)?;
            let rows = bound.execute(0, Arc::clone(context))?;
            return self.gather(rows, radius, context).await;
        }
        let gather = || async {
            let rows = execute_fresh(&self.plan, context)?;
            self.gather(rows, radius, context).await
        };
        once.get_or_try_init(gather).await.cloned()
    }
}

/// The work of a crossmatch for one partition of probe rows.
struct MatchTask {
    matcher: Matcher,
    build: IndexedInput,
    rivals: Option<IndexedInput>,
    spread: bool,
    gathered: Arc<GatheredRows>,
    context: Arc<TaskContext>,
    output: Output,
}

impl MatchTask {
    /// Whether something is read around the probe rows.
    fn reads_around(&self) -> bool {
        self.build.near || self.rivals.as_ref().is_some_and(|rivals| rivals.near)
    }

    async fn run(self, mut probe: SendableRecordBatchStream) -> Result<()> {
        let own_rivals =
            self.matcher.rule.wanted == MatchSelection::Mutual && self.rivals.is_none();
        let most = match (own_rivals, self.reads_around(), self.spread) {
            (true, ..) => usize::MAX,
            // The rows of a piece.
            (_, true, false) => usize::MAX,
            (_, true, true) => ROWS_GATHERED,
            (_, false, _) => 1,
        };
        let memory = MemoryConsumer::new("Crossmatch").register(self.context.memory_pool());
        loop {
            let mut batches: Vec<RecordBatch> = Vec::new();
            let mut rows = 0;
            while rows < most
                && let Some(batch) = probe.try_next().await?
            {
                memory.try_grow(batch.get_array_memory_size())?;
                rows += batch.num_rows();
                batches.push(batch);
            }
            if rows == 0 {
                return Ok(());
            }
            let batch = concat_batches(&probe.schema(), &batches)?;
            drop(batches);
            memory.try_resize(batch.get_array_memory_size())?;
            let own = match own_rivals {
                true => Some(self.matcher.index_of_probe(&batch)?),
                false => None,
            };
            if !self.match_rows(&batch, own.as_ref()).await? {
                return Ok(());
            }
            memory.free();
        }
    }

    /// Matches rows that are there, all at once or cell by cell. Returns `false` when the receiver was dropped.
    async fn match_rows(&self, batch: &RecordBatch, own: Option<&IndexedRows>) -> Result<bool> {
        if !(self.spread && self.reads_around()) {
            return self.match_together(batch, own).await;
        }
        let places = self.matcher.probe_places(batch)?;
        for rows in spread::cells(&places, self.matcher.rule.radius) {
            let rows = arrow::compute::take_record_batch(batch, &rows)?;
            if !self.match_together(&rows, own).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn match_together(&self, batch: &RecordBatch, own: Option<&IndexedRows>) -> Result<bool> {
        let radius = self.matcher.rule.radius;
        let places = self.matcher.probe_places(batch)?;
        let build = self
            .build
            .around(places.known(), radius, &self.gathered.build, &self.context);
        let build = build.await?;
        let mut pairs = self.matcher.candidates(&places, &build)?;
        if self.matcher.rule.wanted == MatchSelection::Mutual {
            let ends = self.matcher.build_places(&pairs, &build)?;
            let mutual = match (own, &self.rivals) {
                (Some(own), _) => pairs.without_nearer(own, &ends),
                (None, Some(rivals)) => {
                    // What is gathered once serves all probe rows, not only these.
                    let reach = if rivals.near { pairs.largest() } else { radius };
                    let once = &self.gathered.rivals;
                    let rivals = rivals.around(ends.known(), reach, once, &self.context);
                    pairs.without_nearer(rivals.await?.as_ref(), &ends)
                }
                (None, None) => return internal_err!("a crossmatch without rivals"),
            };
            pairs = mutual;
        }
        for rows in self.matcher.results(pairs, batch, &build) {
            if self.output.send(Ok(rows?)).await.is_err() {
                return Ok(false);
            }
        }
        // A loop that sends nothing has to yield by itself.
        yield_if_due().await?;
        Ok(!self.output.is_closed())
    }
}

/// All columns that a crossmatch can give, and their names.
fn all_columns(
    probe: &MatchSide,
    build: &MatchSide,
    unmatched: Unmatched,
) -> (SchemaRef, Vec<MatchColumn>) {
    let (probe, build) = (probe.plan.schema(), build.plan.schema());
    let mut fields: Vec<Arc<Field>> = probe.fields().iter().cloned().collect();
    let mut columns: Vec<MatchColumn> = (0..fields.len()).map(MatchColumn::Probe).collect();
    if unmatched != Unmatched::Alone {
        let kept = unmatched == Unmatched::Kept;
        for (at, field) in build.fields().iter().enumerate() {
            let nullable = field.is_nullable() || kept;
            fields.push(Arc::new(field.as_ref().clone().with_nullable(nullable)));
            columns.push(MatchColumn::Build(at));
        }
        fields.push(Arc::new(separation_field(unmatched)));
        columns.push(MatchColumn::Separation);
    }
    (Arc::new(Schema::new(fields)), columns)
}

/// The column of separations.
pub(crate) fn separation_field(unmatched: Unmatched) -> Field {
    let nullable = unmatched == Unmatched::Kept;
    Field::new(SEPARATION_COLUMN, DataType::Float64, nullable)
}

fn properties(probe: &Arc<dyn ExecutionPlan>, schema: SchemaRef) -> Arc<PlanProperties> {
    let partitions = probe.output_partitioning().partition_count();
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

impl DisplayAs for CrossmatchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ra, dec] = &self.probe.position;
        let [build_ra, build_dec] = &self.build.position;
        write!(
            f,
            "CrossmatchExec: {}, from ({ra}, {dec}) to ({build_ra}, {build_dec})",
            self.rule
        )?;
        if self.spread {
            f.write_str(", by cells of the sky")?;
        }
        let schema = self.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, ", columns=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for CrossmatchExec {
    plan_node!("CrossmatchExec");
    no_statistics!();

    /// Probe side, build side, and rivals if there are any.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        let mut children = vec![&self.probe.plan, &self.build.plan];
        children.extend(self.rivals.as_ref().map(|rivals| &rivals.plan));
        children
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let probe = if self.probes_are_rivals() {
            Distribution::SinglePartition
        } else {
            Distribution::UnspecifiedDistribution
        };
        let mut all = vec![probe, Distribution::SinglePartition];
        all.extend(self.rivals.iter().map(|_| Distribution::SinglePartition));
        InputDistributionRequirements::new(all)
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.input_distribution_requirements().into_per_child()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let sides = [&self.probe, &self.build].into_iter().chain(&self.rivals);
        apply_all!(f, sides.flat_map(|side| &side.position))
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != self.children().len() {
            return internal_err!("a crossmatch of {} inputs", children.len());
        }
        Ok(Arc::new(self.over(children)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let probe = self.probe.plan.execute(partition, Arc::clone(&context))?;
        let mut results = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let work = self.work(context, results.tx());
        results.spawn(carried(work.run(probe)));
        Ok(results.build())
    }

    /// A projection that only chooses and names columns becomes part of the crossmatch, which then makes no others.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let chosen: Option<Vec<MatchColumn>> = projection
            .expr()
            .iter()
            .map(|projected| {
                let column = projected.expr.downcast_ref::<Column>()?;
                self.columns.get(column.index()).copied()
            })
            .collect();
        Ok(chosen.map(|columns| {
            let schema: Schema = projection.schema().as_ref().clone();
            Arc::new(self.with_columns(columns, Arc::new(schema))) as Arc<dyn ExecutionPlan>
        }))
    }
}
