//! The rows of a table in one piece: the leaf of the plan that runs inside a chunk phase.

mod read;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use catalog::text_key;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use store::SortedColumn;
use tokio::sync::OnceCell;

use super::plan_node::{apply_all, no_children, plan_node};
use super::table_scan::{ScanSource, single_partition};
use crate::condition::{ScanCondition, equal_to_column, renumber};
use crate::error::external;
use crate::loaded_table::StoredTable;
use crate::piece::Piece;
use crate::restriction::{Restriction, text_of};
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
/// Reads the rows of one piece from the table's chunk files, one part after another in the order of the list, and in it chunk by chunk
/// in the order of the piece. Chunks that share a file are read by one scan, which reads each of its blocks once.
///
/// ```text
///   slices (chunk, sub-chunks) ──► part ──► file ──► row ranges ──► zone maps ──► conditions ──► the other columns ──► batches
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
    sought: Option<SortedColumn>,
    piece: Option<Piece>,
    /// How many other queries are about to read the same piece.
    sharers: u32,
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
            sharers: 0,
            search_cover: None,
            kept: Arc::default(),
            properties: single_partition(Arc::new(Schema::new(fields))),
            stored,
        }
    }

    /// The same scan of a particular piece.
    pub(crate) fn bound_to(&self, piece: &Piece) -> Self {
        Self {
            sharers: piece.sharers(),
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
        self.sought = (self.stored.sorted_by)
            .and_then(|column| sought(&predicates, column, self.stored.sorted_by_texts));
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

    pub(crate) fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    pub(crate) fn stored(&self) -> &Arc<StoredTable> {
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
}

/// What conditions say of a column of 64-bit integers: that it is one number, perhaps that of a text which another column is.
fn sought(
    predicates: &[Arc<dyn PhysicalExpr>],
    column: usize,
    texts: Option<usize>,
) -> Option<SortedColumn> {
    let constant = |predicate, column| {
        let constant = equal_to_column(predicate, column)?.downcast_ref::<Literal>();
        Some(constant?.value())
    };
    let number = |predicate| match constant(predicate, column)? {
        ScalarValue::Int64(number) => *number,
        _ => None,
    };
    let of_text = |predicate| Some(text_key(text_of(constant(predicate, texts?)?)?));
    let key = |predicate| number(predicate).or_else(|| of_text(predicate));
    predicates.iter().find_map(key).map(|key| SortedColumn {
        column,
        least: key,
        greatest: key,
    })
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
    plan_node!("PieceScanExec");
    no_children!();

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_all!(f, &self.predicates)
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
