//! A table in a plan that has not been cut into phases yet.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics, internal_err, project_schema};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use super::plan_node::{no_children, no_expressions, plan_node};
use super::{ChunkNumberExec, PieceScanExec, RowsOf};
use crate::Archive;
use crate::coverage::Coverage;
use crate::loaded_table::LoadedTable;
use crate::plan_cache::has_parameters;
use crate::restriction::Restriction;

/// The table of a scan and the conditions of the statement on its rows, off which is read where these are.
#[derive(Debug)]
pub(crate) struct ScanSource {
    pub table: Arc<LoadedTable>,
    pub filters: Vec<Expr>,
    is_open: bool,
}

impl ScanSource {
    fn try_new(table: Arc<LoadedTable>, filters: &[Expr]) -> Result<Self> {
        let mut is_open = false;
        for filter in filters {
            is_open |= has_parameters(filter)?;
        }
        Ok(Self {
            table,
            filters: filters.to_vec(),
            is_open,
        })
    }

    /// Whether values of parameters decide where the rows are.
    pub fn is_open(&self) -> bool {
        self.is_open
    }
}

/// All rows of a table, with what is known of where the wanted ones are.
///
/// Planning puts it at the bottom of a plan; cutting turns it into a [`PieceScanExec`] inside a chunk phase, below a
/// [`ChunkNumberExec`] where the chunk's number is requested. It never runs.
#[derive(Debug)]
pub struct TableScanExec {
    pub(crate) archive: Arc<Archive>,
    pub(crate) table: Arc<LoadedTable>,
    projection: Vec<usize>,
    /// One for each home: two for a match table, else one.
    pub(crate) coverage: Vec<Coverage>,
    pub(crate) restriction: Restriction,
    /// What the restriction was read off.
    source: Arc<ScanSource>,
    /// Whether it gives what is near the rows of a join's other side, whatever the piece.
    near: bool,
    properties: Arc<PlanProperties>,
}

impl TableScanExec {
    /// A scan of the columns of `projection` among those of `schema`; all of them without one.
    pub(crate) fn try_new(
        archive: Arc<Archive>,
        table: Arc<LoadedTable>,
        schema: &SchemaRef,
        projection: Option<&Vec<usize>>,
        coverage: Vec<Coverage>,
        restriction: Restriction,
        filters: &[Expr],
    ) -> Result<Self> {
        let all = || (0..schema.fields().len()).collect();
        Ok(Self {
            projection: projection.cloned().unwrap_or_else(all),
            properties: single_partition(project_schema(schema, projection)?),
            archive,
            source: Arc::new(ScanSource::try_new(Arc::clone(&table), filters)?),
            table,
            coverage,
            restriction,
            near: false,
        })
    }

    /// The same scan of what is near the rows of a join's other side.
    pub(crate) fn around(&self) -> Self {
        Self {
            archive: Arc::clone(&self.archive),
            table: Arc::clone(&self.table),
            projection: self.projection.clone(),
            coverage: self.coverage.clone(),
            restriction: self.restriction.clone(),
            source: Arc::clone(&self.source),
            near: true,
            properties: Arc::clone(&self.properties),
        }
    }

    /// Off what it is read where its rows are.
    pub(crate) fn source(&self) -> &Arc<ScanSource> {
        &self.source
    }

    /// Whether it gives what is near the rows of a join's other side.
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }

    /// The numbers of the table's columns that it gives; the number after the last one stands for the chunk's number.
    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// The place of the chunk's number among the columns that it gives.
    pub(crate) fn chunk_number_at(&self) -> Option<usize> {
        let stored = self.table.stored.schema.fields().len();
        self.projection.iter().position(|column| *column == stored)
    }

    /// The scan of one piece after another that takes its place inside a chunk phase.
    pub(crate) fn to_piece_scan(&self, rows: RowsOf) -> Result<Arc<dyn ExecutionPlan>> {
        let mut columns = self.projection.clone();
        let number_at = self.chunk_number_at();
        if let Some(at) = number_at {
            columns.remove(at);
        }
        let scan = PieceScanExec::new(
            Arc::clone(&self.archive),
            Arc::clone(&self.table.stored),
            columns,
            rows,
            None,
        );
        let scan = scan.with_source(Arc::clone(&self.source));
        let scan = Arc::new(scan.restricted_by(&self.restriction));
        Ok(match number_at {
            Some(at) => Arc::new(ChunkNumberExec::try_new(scan, at)?),
            None => scan,
        })
    }
}

/// The properties of an operator with one partition in no order.
pub(crate) fn single_partition(schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

impl DisplayAs for TableScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.table.spec();
        write!(f, "TableScanExec: {}.{}", spec.database, spec.name)
    }
}

impl ExecutionPlan for TableScanExec {
    plan_node!("TableScanExec");
    no_children!();
    no_expressions!();

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("{} was left in a plan that runs", self.name())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        // The number of rows is exact: filters stand above the scan.
        statistics.num_rows = Precision::Exact(self.table.table.rows() as usize);
        Ok(Arc::new(statistics))
    }
}
