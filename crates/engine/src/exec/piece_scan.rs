//! The rows of a table in one piece: the leaf of the plan that runs inside a chunk phase.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sky::SubChunkId;
use store::{ChunkFile, RowCondition, ScanRequest, Sorted, SubChunkRange, WORTH_PRUNING};
use tokio::sync::OnceCell;
use vortex::expr::{Expression, and_collect, col, gt_eq, lit, lt_eq, or_collect};

use super::table_scan::{ScanSource, single_partition};
use crate::condition::{ScanCondition, equal_to_column, renumber};
use crate::coverage::SubChunkSet;
use crate::error::external;
use crate::interruptible::yield_if_due;
use crate::loaded_table::{LEFT_SUB_CHUNK, RIGHT_SUB_CHUNK, StoredTable, bounds_box};
use crate::piece::{ChunkSlice, Piece};
use crate::restriction::Restriction;
use crate::search_cover::SearchCover;
use crate::{Archive, EngineError};

/// Which rows of a table belong to a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsOf {
    /// Those stored in the piece's sub-chunks.
    Own,
    /// Of a match table: pairs whose left home is in the piece.
    LeftHome,
    /// Of a match table: pairs whose right home is in the piece.
    RightHome,
    /// Of a replicated table: all rows, whatever the piece.
    Whole,
    /// Those that can be near the rows of a neighbour join's other side, in whichever chunk.
    Neighbourhood,
}

/// A replicated table of up to this many values is read once for all pieces of a query and kept in memory.
const KEPT_VALUES: u64 = 16 << 20;
/// Sub-chunks up to which a key is looked for in each by itself.
const MOST_APART: i32 = 4;

/// Reads the rows of one piece from the table's chunk files, one chunk after another in the order of the piece.
///
/// ```text
///   slice (chunk, sub-chunks) ──► directory ──► row ranges ──► zone maps ──► conditions ──► the other columns ──► batches
/// ```
///
/// Invariant: it runs only when bound to a piece ([`PieceScanExec::bound_to`]), and then gives each row of the table that
/// belongs to that piece exactly once, but for rows that its predicate drops.
#[derive(Debug, Clone)]
pub struct PieceScanExec {
    archive: Arc<Archive>,
    stored: Arc<StoredTable>,
    projection: Vec<usize>,
    rows: RowsOf,
    /// Rows whose own positions lie outside of these (ra_min, dec_min, ra_max, dec_max) are not needed.
    bounds: Option<[f64; 4]>,
    /// Conditions on the rows it gives, over the table's columns.
    predicates: Vec<Arc<dyn PhysicalExpr>>,
    /// Off what bounds and pieces were read; None in a plan from elsewhere.
    source: Option<Arc<ScanSource>>,
    /// The predicates, ready to be tested.
    condition: Option<Arc<ScanCondition>>,
    /// What the predicates say of the column by which rows are sorted, if anything.
    sought: Option<Sorted>,
    piece: Option<Piece>,
    /// Where rows are wanted, once a join knows ([`RowsOf::Neighbourhood`]).
    search_cover: Option<Arc<SearchCover>>,
    /// The batches of a small replicated table, shared by all pieces of a query.
    kept: Arc<OnceCell<Vec<RecordBatch>>>,
    properties: Arc<PlanProperties>,
}

impl PieceScanExec {
    pub(crate) fn new(
        archive: Arc<Archive>,
        stored: Arc<StoredTable>,
        projection: Vec<usize>,
        rows: RowsOf,
        bounds: Option<[f64; 4]>,
    ) -> Self {
        let fields: Vec<_> = projection
            .iter()
            .map(|at| Arc::clone(&stored.schema.fields()[*at]))
            .collect();
        Self {
            archive,
            projection,
            rows,
            bounds,
            predicates: vec![],
            source: None,
            condition: None,
            sought: None,
            piece: None,
            search_cover: None,
            kept: Arc::default(),
            properties: single_partition(Arc::new(Schema::new(fields))),
            stored,
        }
    }

    /// The same scan of a particular piece.
    pub(crate) fn bound_to(&self, piece: &Piece) -> Self {
        Self {
            piece: Some(piece.clone()),
            ..self.clone()
        }
    }

    /// The same scan of what is near something.
    pub(super) fn around(&self, search_cover: &Arc<SearchCover>) -> Self {
        Self {
            search_cover: Some(Arc::clone(search_cover)),
            ..self.clone()
        }
    }

    /// The same scan, giving only rows for which all of `predicates` are true; their columns are numbered as the table's.
    pub(crate) fn with_predicates(
        mut self,
        predicates: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        self.condition = ScanCondition::try_new(&predicates, &self.stored.files_schema)?;
        self.sought = (self.stored.sorted_by).and_then(|column| sought(&predicates, column));
        self.predicates = predicates;
        // What was kept, if anything, was kept under other predicates.
        self.kept = Arc::default();
        Ok(self)
    }

    /// The same scan, of which it is known off what its bounds and pieces are read.
    pub(crate) fn with_source(self, source: Arc<ScanSource>) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// The same scan with the bounds that a restriction gives.
    pub(crate) fn restricted_by(self, restriction: &Restriction) -> Self {
        let bounds = match self.rows {
            RowsOf::Own | RowsOf::Neighbourhood => restriction.envelope(),
            RowsOf::LeftHome | RowsOf::RightHome | RowsOf::Whole => None,
        };
        Self { bounds, ..self }
    }

    /// The same scan, giving only the columns with these numbers among its own.
    fn with_columns(&self, columns: &[usize]) -> Self {
        let narrowed = Self::new(
            Arc::clone(&self.archive),
            Arc::clone(&self.stored),
            columns.iter().map(|at| self.projection[*at]).collect(),
            self.rows,
            self.bounds,
        );
        Self {
            predicates: self.predicates.clone(),
            source: self.source.clone(),
            condition: self.condition.clone(),
            sought: self.sought,
            ..narrowed
        }
    }

    /// The piece that it reads; none in a plan that does not run yet.
    pub(crate) fn piece(&self) -> Option<&Piece> {
        self.piece.as_ref()
    }

    pub(crate) fn stored(&self) -> &StoredTable {
        &self.stored
    }

    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    pub(crate) fn rows(&self) -> RowsOf {
        self.rows
    }

    pub(crate) fn bounds(&self) -> Option<[f64; 4]> {
        self.bounds
    }

    pub(crate) fn source(&self) -> Option<&ScanSource> {
        self.source.as_deref()
    }

    pub(crate) fn predicates(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.predicates
    }

    /// A condition over the output columns as one over the table's.
    fn over_table(&self, predicate: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        Arc::clone(predicate)
            .transform(|expr| {
                let Some(column) = expr.downcast_ref::<Column>() else {
                    return Ok(Transformed::no(expr));
                };
                let at = self.projection[column.index()];
                Ok(Transformed::yes(
                    Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>
                ))
            })
            .data()
    }

    fn keeps_rows(&self) -> bool {
        let values = self
            .stored
            .rows
            .saturating_mul(self.projection.len().max(1) as u64);
        self.rows == RowsOf::Whole && values <= KEPT_VALUES
    }

    async fn batches(self) -> Result<BoxStream<'static, Result<RecordBatch>>, EngineError> {
        if !self.keeps_rows() {
            return self.read().await;
        }
        let kept = Arc::clone(&self.kept);
        let batches = kept
            .get_or_try_init(|| async {
                let batches = self.read().await?;
                batches
                    .try_collect()
                    .await
                    .map_err(|error| EngineError::from_run(&error))
            })
            .await?;
        Ok(stream::iter(batches.clone().into_iter().map(Ok)).boxed())
    }

    async fn read(self) -> Result<BoxStream<'static, Result<RecordBatch>>, EngineError> {
        let slices: Arc<[ChunkSlice]> = match (&self.piece, self.rows) {
            (_, RowsOf::Neighbourhood) => self.near().await?.into(),
            (_, RowsOf::Whole) => Arc::new([ChunkSlice::whole(catalog::REPLICATED_CHUNK)]),
            (Some(piece), _) => Arc::clone(piece.slices()),
            (None, _) => {
                return Err(EngineError::Query(
                    "a piece scan was run without a piece".into(),
                ));
            }
        };
        match slices.as_ref() {
            [slice] => self.read_slice(slice).await,
            _ => Ok(self.read_slices(slices)),
        }
    }

    /// What is near enough, one slice of a chunk after another.
    async fn near(&self) -> Result<Vec<ChunkSlice>, EngineError> {
        match &self.search_cover {
            Some(search_cover) => self.stored.near(&self.archive, search_cover).await,
            None => Err(EngineError::Query(
                "a scan of what is near was run without knowing what to".into(),
            )),
        }
    }

    /// The rows of one slice after another, each of which is opened when those before it were read.
    fn read_slices(self, slices: Arc<[ChunkSlice]>) -> BoxStream<'static, Result<RecordBatch>> {
        let scan = Arc::new(self);
        let batches = stream::iter(0..slices.len()).then(move |at| {
            let (scan, slices) = (Arc::clone(&scan), Arc::clone(&slices));
            async move {
                // Of many chunks there may be no row for a long time.
                yield_if_due().await?;
                scan.read_slice(&slices[at]).await.map_err(external)
            }
        });
        batches.try_flatten().boxed()
    }

    async fn read_slice(
        &self,
        slice: &ChunkSlice,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>, EngineError> {
        let files = self.stored.open(&self.archive, slice.chunk).await?;
        let of_file = |file: Arc<ChunkFile>| {
            let request = self.request(&file, slice);
            file.scan(request).map_err(external).boxed()
        };
        if let [file] = files.as_slice() {
            return Ok(of_file(Arc::clone(file)));
        }
        // Opened by now, but nothing is read of a file before the rows of the one before it are through.
        let batches: Vec<_> = files.into_iter().map(of_file).collect();
        Ok(stream::iter(batches).flatten().boxed())
    }

    /// How many rows of a slice it looks at.
    ///
    /// # Errors
    /// A file of the chunk cannot be opened.
    pub(crate) async fn rows_looked_at(&self, slice: &ChunkSlice) -> Result<u64, EngineError> {
        let files = self.stored.open(&self.archive, slice.chunk).await?;
        let rows_of = |file: &Arc<ChunkFile>| {
            let ranges = self.ranges(file, slice);
            ranges.map_or(file.num_rows(), |ranges| rows_in(&ranges))
        };
        Ok(files.iter().map(rows_of).sum())
    }

    /// The rows of a slice that it looks at; all of the file if None.
    fn ranges(&self, file: &ChunkFile, slice: &ChunkSlice) -> Option<Vec<Range<u64>>> {
        let directory = file.directory();
        let bounds = self.bounds.and_then(bounds_box);
        let near = |entry: &SubChunkRange| {
            let Some(own) = entry.bounds.and_then(bounds_box) else {
                return true;
            };
            bounds.as_ref().is_none_or(|wanted| wanted.intersects(&own))
                && (self.search_cover.as_ref())
                    .is_none_or(|search_cover| search_cover.may_hold(&own))
        };
        match self.rows {
            RowsOf::Whole if slice.sub_chunks == SubChunkSet::All => None,
            RowsOf::RightHome => None,
            _ => Some(match &slice.sub_chunks {
                SubChunkSet::All => directory.rows_where(near),
                SubChunkSet::Intervals(intervals) => directory.rows_within(intervals, near),
            }),
        }
    }

    /// The rows of each sub-chunk of a slice by itself, where there are few of them: within each they are sorted.
    fn rows_apart(&self, file: &ChunkFile, slice: &ChunkSlice) -> Option<Vec<Range<u64>>> {
        let SubChunkSet::Intervals(intervals) = &slice.sub_chunks else {
            return None;
        };
        let few = intervals
            .iter()
            .all(|(first, last)| last - first < MOST_APART)
            && intervals.len() <= MOST_APART as usize;
        if self.rows != RowsOf::Own || !few {
            return None;
        }
        let directory = file.directory();
        let sub_chunks = intervals.iter().flat_map(|(first, last)| *first..=*last);
        let entries = sub_chunks.filter_map(|number| directory.get(SubChunkId(number)));
        Some(entries.map(|entry| entry.rows.clone()).collect())
    }

    fn request(&self, file: &ChunkFile, slice: &ChunkSlice) -> ScanRequest {
        let apart = (self.sought).and_then(|sought| Some((sought, self.rows_apart(file, slice)?)));
        let (sorted, ranges) = match apart {
            Some((sought, ranges)) => (Some(sought), Some(ranges)),
            None => (None, self.ranges(file, slice)),
        };
        let many = (ranges.as_ref()).is_none_or(|ranges| rows_in(ranges) >= WORTH_PRUNING as u64);
        ScanRequest {
            projection: self.projection.clone(),
            filter: self.home_condition(slice),
            hints: match &self.condition {
                Some(condition) if many => condition.hints().to_vec(),
                _ => Vec::new(),
            },
            condition: self.condition.clone().map(|it| it as Arc<dyn RowCondition>),
            ranges,
            sorted,
            schema: self.schema(),
        }
    }

    /// Which pairs of a match table have their home in the slice. A pair with homes in two chunks is in the files of both, and has
    /// this home in one of them alone.
    fn home_condition(&self, slice: &ChunkSlice) -> Option<Expression> {
        match (self.rows, &slice.sub_chunks) {
            // Row ranges have done the rest: pairs with a left home are stored by it.
            (RowsOf::LeftHome, _) => Some(gt_eq(col(LEFT_SUB_CHUNK), lit(0_i32))),
            (RowsOf::RightHome, SubChunkSet::All) => Some(gt_eq(col(RIGHT_SUB_CHUNK), lit(0_i32))),
            (RowsOf::RightHome, SubChunkSet::Intervals(intervals)) => {
                let within = intervals.iter().filter_map(|(first, last)| {
                    and_collect([
                        gt_eq(col(RIGHT_SUB_CHUNK), lit(*first)),
                        lt_eq(col(RIGHT_SUB_CHUNK), lit(*last)),
                    ])
                });
                or_collect(within).or_else(|| Some(lit(false)))
            }
            _ => None,
        }
    }
}

/// What conditions say of a column of 64-bit integers: that it is one number.
fn sought(predicates: &[Arc<dyn PhysicalExpr>], column: usize) -> Option<Sorted> {
    let key = |predicate| match equal_to_column(predicate, column)?
        .downcast_ref::<Literal>()?
        .value()
    {
        ScalarValue::Int64(number) => *number,
        _ => None,
    };
    predicates.iter().find_map(key).map(|key| Sorted {
        column,
        least: key,
        greatest: key,
    })
}

fn rows_in(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Columns of a projection without the doubles: those that it reads, in order.
fn columns_read(projection: &ProjectionExec) -> Vec<usize> {
    let mut columns: Vec<usize> = projection
        .expr()
        .iter()
        .flat_map(|projected| collect_columns(&projected.expr))
        .map(|column| column.index())
        .collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

impl DisplayAs for PieceScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self
            .projection
            .iter()
            .map(|at| self.stored.files_schema.field(*at).name().as_str())
            .collect();
        write!(
            f,
            "PieceScanExec: table={}.{}",
            self.stored.database, self.stored.name
        )?;
        write!(f, ", columns=[{}]", columns.join(", "))?;
        match self.rows {
            RowsOf::Own => {}
            RowsOf::LeftHome => f.write_str(", pairs by their left end")?,
            RowsOf::RightHome => f.write_str(", pairs by their right end")?,
            RowsOf::Whole => f.write_str(", whole")?,
            RowsOf::Neighbourhood => {
                f.write_str(", around the other side's rows in whichever chunks")?
            }
        }
        if !self.predicates.is_empty() {
            let predicates: Vec<String> = self.predicates.iter().map(ToString::to_string).collect();
            write!(f, ", where={}", predicates.join(" AND "))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for PieceScanExec {
    fn name(&self) -> &str {
        "PieceScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for predicate in &self.predicates {
            if f(predicate)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = stream::once(self.clone().batches())
            .map_err(external)
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        // Only ever compared with its neighbours in the same piece: the whole tables compare alike.
        statistics.num_rows = Precision::Inexact(self.stored.rows as usize);
        Ok(Arc::new(statistics))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        // All of them: the scan tests rows before it reads the columns that no condition needs.
        let mut predicates = self.predicates.clone();
        for filter in &pushed.parent_filters {
            for part in split_conjunction(&filter.filter) {
                predicates.push(self.over_table(part)?);
            }
        }
        let taken = vec![PushedDown::Yes; pushed.parent_filters.len()];
        let updated: Arc<dyn ExecutionPlan> = Arc::new(self.clone().with_predicates(predicates)?);
        Ok(
            FilterPushdownPropagation::with_parent_pushdown_result(taken)
                .with_updated_node(updated),
        )
    }

    /// Columns that only conditions needed are left out.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let read = columns_read(projection);
        if read.len() == self.projection.len() {
            return Ok(None);
        }
        let narrowed: Arc<dyn ExecutionPlan> = Arc::new(self.with_columns(&read));
        let expressions = projection
            .expr()
            .iter()
            .map(|projected| {
                Ok(ProjectionExpr {
                    expr: renumber(&projected.expr, &read)?,
                    alias: projected.alias.clone(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let same = expressions.iter().enumerate().all(|(at, projected)| {
            let column = projected.expr.downcast_ref::<Column>();
            column.is_some_and(|c| c.index() == at && c.name() == projected.alias)
        });
        if same && expressions.len() == read.len() {
            return Ok(Some(narrowed));
        }
        Ok(Some(Arc::new(ProjectionExec::try_new(
            expressions,
            narrowed,
        )?)))
    }
}
