//! Joins of rows that are near each other on the sky.

mod columns;
mod joining;
mod partners;
mod row_exprs;
pub(in crate::exec) mod separation_condition;
mod time_slices;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, JoinType, Result, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::joins::utils::{JoinFilter, build_join_schema};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use sky::Angle;
use sql::interrupt::carried;
use tokio::sync::OnceCell;

use self::joining::{BuildSide, JoinOutput, Joining, Output};
use self::row_exprs::ReadyExpr;
use self::separation_condition::{RowPositions, RowRadii};
use super::bind_near::{bind_near, reads_near};
use super::execute_fresh::execute_fresh;
use super::plan_node::{apply_all, no_statistics, plan_node};
use crate::search_cover::SearchCover;

pub use self::columns::{JoinedColumn, PartnerAggregate};
pub use self::row_exprs::RowExpr;
pub(crate) use self::separation_condition::constant_value;
pub use self::separation_condition::{BeyondPoles, SeparationCondition};

/// Batches that a join may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;
/// What an index is made for where the radius is one of each row and not known beforehand: positional errors of catalogues.
const USUAL_RADIUS: Angle = Angle::from_arcsec(5.0);

/// Joins the rows of two inputs whose separation on the sky is within a radius.
///
/// ```text
///   build rows ──► index: zones of declination, sorted by right ascension
///                    ▲ partners of each row
///   probe rows ──────┴──► pairs ──► the rest of the condition ──► rows
/// ```
///
/// The build side is held in memory, the probe side is not; so are pairs only a batch at a time, however many there are. Where
/// the build side's scan reads what is near ([`RowsOf::Neighbourhood`](super::RowsOf::Neighbourhood)), the probe rows of the piece are
/// gathered
/// first, and it reads around them.
///
/// Invariant: it gives what a loop over all pairs would that tests the condition with the separation function.
#[derive(Debug)]
pub struct NeighbourJoinExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    near: SeparationCondition,
    /// Which input is the probe side: the one whose rows are kept, if one's are.
    probe: JoinSide,
    filter: Option<JoinFilter>,
    join_type: JoinType,
    /// What is computed once for a row.
    row_exprs: Vec<RowExpr>,
    columns: Vec<JoinedColumn>,
    /// The build side, once it is gathered.
    build: Arc<OnceCell<Arc<BuildSide>>>,
    /// Whether copies of the join with other probe rows use the same build side.
    shares_build: bool,
    properties: Arc<PlanProperties>,
}

impl NeighbourJoinExec {
    /// A join of two inputs. `filter` is what else is to hold of a pair.
    ///
    /// # Errors
    /// A kind of join that this operator does not do ([`Self::probe_side`] says which it does).
    pub fn try_new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        near: SeparationCondition,
        probe: JoinSide,
        filter: Option<JoinFilter>,
        join_type: JoinType,
    ) -> Result<Self> {
        if !Self::can_probe(join_type, probe) {
            return internal_err!("a {join_type} join cannot be probed by its {probe:?} side");
        }
        let (schema, columns) = build_join_schema(&left.schema(), &right.schema(), &join_type);
        Ok(Self {
            properties: properties(&left, &right, probe, Arc::new(schema)),
            left,
            right,
            near,
            probe,
            filter,
            join_type,
            row_exprs: Vec::new(),
            columns: columns.iter().map(JoinedColumn::from).collect(),
            build: Arc::default(),
            shares_build: false,
        })
    }

    /// Whether a join of this type can be done by taking one row of this side after another.
    pub fn can_probe(join_type: JoinType, side: JoinSide) -> bool {
        join_output(join_type).is_some_and(|(_, sides)| sides.contains(&side))
    }

    /// The same join, giving these of its columns under the names of `schema`.
    pub(crate) fn with_columns(&self, columns: Vec<JoinedColumn>, schema: SchemaRef) -> Self {
        Self {
            properties: properties(&self.left, &self.right, self.probe, schema),
            columns,
            ..self.over(Arc::clone(&self.left), Arc::clone(&self.right))
        }
    }

    /// The same join, giving the columns with these numbers among its own.
    pub(crate) fn with_projection(&self, columns: &[usize]) -> Result<Self> {
        let schema = self.schema().project(columns)?;
        let columns = columns.iter().map(|at| self.columns[*at]);
        Ok(self.with_columns(columns.collect(), Arc::new(schema)))
    }

    /// The same join, to be run with one part of the probe rows after another: the build side, which must be the same for all of them,
    /// is gathered once.
    pub(super) fn sharing_build(&self) -> Self {
        Self {
            shares_build: true,
            ..self.over(Arc::clone(&self.left), Arc::clone(&self.right))
        }
    }

    /// The same join of other inputs with the same columns, which has not begun, but for a build side that it shares.
    fn over(&self, left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            properties: properties(&left, &right, self.probe, self.schema()),
            left,
            right,
            near: self.near.clone(),
            probe: self.probe,
            filter: self.filter.clone(),
            join_type: self.join_type,
            row_exprs: self.row_exprs.clone(),
            columns: self.columns.clone(),
            build: if self.shares_build {
                Arc::clone(&self.build)
            } else {
                Arc::default()
            },
            shares_build: self.shares_build,
        }
    }

    /// The same join with another rest of its condition, not yet begun.
    pub(crate) fn with_filter(&self, filter: JoinFilter) -> Self {
        Self {
            filter: Some(filter),
            ..self.over(Arc::clone(&self.left), Arc::clone(&self.right))
        }
    }

    /// The same join with other row expressions, not yet begun.
    pub(crate) fn with_row_exprs(&self, row_exprs: Vec<RowExpr>) -> Self {
        Self {
            row_exprs,
            ..self.over(Arc::clone(&self.left), Arc::clone(&self.right))
        }
    }

    /// The condition.
    pub fn near(&self) -> &SeparationCondition {
        &self.near
    }

    /// Which input is the probe side.
    pub fn probe_side(&self) -> JoinSide {
        self.probe
    }

    /// The kind of join.
    pub fn join_type(&self) -> JoinType {
        self.join_type
    }

    /// What else is to hold of a pair.
    pub fn filter(&self) -> Option<&JoinFilter> {
        self.filter.as_ref()
    }

    /// What it computes once for a row of either side, for its condition and its columns.
    pub fn row_exprs(&self) -> &[RowExpr] {
        &self.row_exprs
    }

    /// The columns that it gives.
    pub fn columns(&self) -> &[JoinedColumn] {
        &self.columns
    }

    /// The input that is indexed.
    pub fn build(&self) -> &Arc<dyn ExecutionPlan> {
        self.input(self.probe.negate())
    }

    /// The input whose rows are taken one after another.
    pub fn probe(&self) -> &Arc<dyn ExecutionPlan> {
        self.input(self.probe)
    }

    /// The left or the right input.
    pub(crate) fn input(&self, side: JoinSide) -> &Arc<dyn ExecutionPlan> {
        if side == JoinSide::Left {
            &self.left
        } else {
            &self.right
        }
    }

    fn joining(&self, context: &TaskContext) -> Result<Joining> {
        let Some((output, _)) = join_output(self.join_type) else {
            return internal_err!("a {} join by nearness", self.join_type);
        };
        let ready = |expr: &RowExpr| ReadyExpr::of(expr, &self.input(expr.side).schema());
        Ok(Joining {
            near: self.near.clone(),
            probe: self.probe,
            filter: self.filter.clone(),
            output,
            row_exprs: self.row_exprs.iter().map(ready).collect::<Result<_>>()?,
            columns: self.columns.clone(),
            schema: self.schema(),
            batch_size: context.session_config().batch_size(),
        })
    }
}

/// What a kind of join gives, and by which sides it can be probed.
fn join_output(join_type: JoinType) -> Option<(JoinOutput, &'static [JoinSide])> {
    const LEFT: &[JoinSide] = &[JoinSide::Left];
    const RIGHT: &[JoinSide] = &[JoinSide::Right];
    Some(match join_type {
        JoinType::Inner => (JoinOutput::Pairs, &[JoinSide::Left, JoinSide::Right]),
        JoinType::Left => (JoinOutput::PairsAndUnmatched, LEFT),
        JoinType::Right => (JoinOutput::PairsAndUnmatched, RIGHT),
        JoinType::LeftSemi => (JoinOutput::Matched, LEFT),
        JoinType::RightSemi => (JoinOutput::Matched, RIGHT),
        JoinType::LeftAnti => (JoinOutput::Unmatched, LEFT),
        JoinType::RightAnti => (JoinOutput::Unmatched, RIGHT),
        _ => return None,
    })
}

fn properties(
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
    probe: JoinSide,
    schema: SchemaRef,
) -> Arc<PlanProperties> {
    let probe = if probe == JoinSide::Left { left } else { right };
    let partitions = probe.output_partitioning().partition_count();
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// Joins one batch of probe rows after another with what was gathered of the build side for all of them.
async fn stream_probe(
    joining: Joining,
    mut probe: SendableRecordBatchStream,
    build: Arc<dyn ExecutionPlan>,
    gathered: Arc<OnceCell<Arc<BuildSide>>>,
    context: Arc<TaskContext>,
    output: Output,
) -> Result<()> {
    let schema = probe.schema();
    let build = gathered
        .get_or_try_init(|| async {
            let radius = if joining.near.has_one_radius() {
                let none = RecordBatch::new_empty(Arc::clone(&schema));
                RowRadii::of(&joining.near, &none)?.largest()
            } else {
                USUAL_RADIUS
            };
            let rows = execute_fresh(&build, &context)?;
            let memory = MemoryConsumer::new("NeighbourJoin").register(context.memory_pool());
            let side = BuildSide::gather(rows, &joining, radius, memory).await?;
            Ok::<_, datafusion::common::DataFusionError>(Arc::new(side))
        })
        .await?;
    while let Some(batch) = probe.next().await {
        if !joining.join(&batch?, build, &output).await? {
            break;
        }
    }
    Ok(())
}

/// Gathers the probe rows, reads the build side around them, and joins.
async fn read_around_probe(
    joining: Joining,
    probe: SendableRecordBatchStream,
    build: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    output: Output,
) -> Result<()> {
    let memory = MemoryConsumer::new("NeighbourJoin").register(context.memory_pool());
    let mut batches: Vec<RecordBatch> = Vec::new();
    let mut probe = probe;
    while let Some(batch) = probe.try_next().await? {
        memory.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    if batches.is_empty() {
        return Ok(());
    }
    let mut radius = Angle::ZERO;
    let mut places = Vec::with_capacity(batches.len());
    for batch in &batches {
        radius = radius.max(RowRadii::of(&joining.near, batch)?.largest());
        places.push(RowPositions::of(
            &joining.near.probe,
            batch,
            joining.near.poles,
        )?);
    }
    let search_cover = SearchCover::of(places.iter().flat_map(RowPositions::known), radius);
    drop(places);
    let rows = bind_near(&build, &Arc::new(search_cover))?.execute(0, Arc::clone(&context))?;
    let memory_of_build = MemoryConsumer::new("NeighbourJoin").register(context.memory_pool());
    let side = BuildSide::gather(rows, &joining, radius, memory_of_build).await?;
    for batch in &batches {
        if !joining.join(batch, &side, &output).await? {
            break;
        }
    }
    drop(memory);
    Ok(())
}

impl DisplayAs for NeighbourJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeighbourJoinExec: join_type={:?}", self.join_type)?;
        let side = if self.probe == JoinSide::Left {
            "left"
        } else {
            "right"
        };
        write!(f, ", separation from {side} {}", self.near)?;
        if let Some(filter) = &self.filter {
            write!(f, ", filter={}", filter.expression())?;
        }
        if !self.row_exprs.is_empty() {
            let written = self.row_exprs.iter().map(RowExpr::to_string);
            write!(
                f,
                ", once a row=[{}]",
                written.collect::<Vec<_>>().join(", ")
            )?;
        }
        let schema = self.schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(f, ", columns=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for NeighbourJoinExec {
    plan_node!("NeighbourJoinExec");
    no_statistics!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let of = |side| {
            if side == self.probe {
                Distribution::UnspecifiedDistribution
            } else {
                Distribution::SinglePartition
            }
        };
        InputDistributionRequirements::new(vec![of(JoinSide::Left), of(JoinSide::Right)])
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.input_distribution_requirements().into_per_child()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let near = self.near.probe.iter().chain(&self.near.build);
        let all = near.chain([&self.near.radius]);
        let all = all.chain(self.filter.iter().map(JoinFilter::expression));
        apply_all!(
            f,
            all.chain(self.row_exprs.iter().map(|computed| &computed.expr))
        )
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 2]>::try_from(children) {
            Ok([left, right]) => Ok(Arc::new(self.over(left, right))),
            Err(children) => internal_err!("a join of {} inputs", children.len()),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let joining = self.joining(&context)?;
        let probe = self.probe().execute(partition, Arc::clone(&context))?;
        let build = Arc::clone(self.build());
        let mut results = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let output = results.tx();
        if reads_near(&build) {
            let work = read_around_probe(joining, probe, build, context, output);
            results.spawn(carried(work));
        } else {
            let gathered = Arc::clone(&self.build);
            let work = stream_probe(joining, probe, build, gathered, context, output);
            results.spawn(carried(work));
        }
        Ok(results.build())
    }

    /// A projection that only chooses and names columns becomes part of the join, which then makes no others.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let chosen: Option<Vec<JoinedColumn>> = projection
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
