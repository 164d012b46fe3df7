//! Reading a file that a query names.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream::{self, TryStreamExt};
use ingest::RowFile;
use sql::functions::GeometryKind;
use tokio::sync::OnceCell;

use super::{read_schema, shapes};
use crate::error::external;
use crate::exec::plan_node::{no_children, no_expressions, plan_node};
use crate::exec::single_partition;

/// A file of up to this many values is read once for a query and kept in memory.
const KEPT_VALUES: u64 = 16 << 20;
/// Batches that are read ahead.
const BATCHES_AHEAD: usize = 4;

/// Gives the rows of a file in their order, as often as it is run.
#[derive(Debug)]
pub struct FileScanExec {
    file: Arc<RowFile>,
    columns: Vec<usize>,
    /// Whether columns that the file says are geometry are.
    has_geometry: bool,
    /// The rows of a small file, shared by whatever reads them in a query.
    kept: Arc<OnceCell<Vec<RecordBatch>>>,
    properties: Arc<PlanProperties>,
}

impl FileScanExec {
    /// A scan of the columns with these numbers. Those that the file says are geometry are, or texts of its numbers.
    pub fn try_new(file: Arc<RowFile>, columns: Vec<usize>, has_geometry: bool) -> Result<Self> {
        let kinds = shapes::kinds(&file, &columns, has_geometry);
        let schema = read_schema(&file, &file.schema().project(&columns)?, &kinds);
        Ok(Self {
            file,
            columns,
            has_geometry,
            kept: Arc::default(),
            properties: single_partition(schema),
        })
    }

    /// The file.
    pub fn file(&self) -> &RowFile {
        &self.file
    }

    /// The numbers of the file's columns that it gives.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Whether columns that the file says are geometry are.
    pub(crate) fn has_geometry(&self) -> bool {
        self.has_geometry
    }

    /// Reads a small file, so that its rows are there.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn keep_rows(&self) -> Result<()> {
        if self.is_small() {
            let reading = self.reading();
            self.kept.get_or_try_init(|| reading.whole()).await?;
        }
        Ok(())
    }

    /// The rows of a small file that was read.
    pub(crate) fn kept_rows(&self) -> Option<&Vec<RecordBatch>> {
        self.kept.get()
    }

    fn reading(&self) -> Reading {
        Reading {
            file: Arc::clone(&self.file),
            columns: self.columns.clone(),
            kinds: shapes::kinds(&self.file, &self.columns, self.has_geometry),
            schema: self.schema(),
        }
    }

    /// Whether the file is small enough to be read once and kept.
    pub(crate) fn is_small(&self) -> bool {
        let width = self.columns.len().max(1) as u64;
        self.file.estimated_rows().saturating_mul(width) <= KEPT_VALUES
    }
}

/// What is needed to read a file on another thread.
struct Reading {
    file: Arc<RowFile>,
    columns: Vec<usize>,
    kinds: Vec<Option<GeometryKind>>,
    schema: SchemaRef,
}

impl Reading {
    /// Reads the file to its end, as long as `give` takes what there is.
    fn run(self, mut give: impl FnMut(RecordBatch) -> bool) -> Result<()> {
        for batch in self.file.rows(&self.columns).map_err(external)? {
            let batch = batch.map_err(external)?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let schema = Arc::clone(&self.schema);
            let columns = shapes::shapes(batch.columns(), &self.kinds)?;
            let folded = RecordBatch::try_new_with_options(schema, columns, &options)?;
            if !give(folded) {
                break;
            }
        }
        Ok(())
    }

    /// All of the file.
    async fn whole(self) -> Result<Vec<RecordBatch>> {
        let reading = tokio::task::spawn_blocking(move || {
            let mut batches = Vec::new();
            self.run(|batch| {
                batches.push(batch);
                true
            })?;
            Ok(batches)
        });
        reading.await.map_err(external)?
    }
}

impl DisplayAs for FileScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.file.schema().fields();
        let columns: Vec<&str> = self
            .columns
            .iter()
            .map(|at| fields[*at].name().as_str())
            .collect();
        write!(f, "FileScanExec: {}", self.file.path().display())?;
        write!(f, ", columns=[{}]", columns.join(", "))
    }
}

impl ExecutionPlan for FileScanExec {
    plan_node!("FileScanExec");
    no_children!();
    no_expressions!();

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reading = self.reading();
        if self.is_small() {
            let kept = Arc::clone(&self.kept);
            let batches = async move {
                let batches = kept.get_or_try_init(|| reading.whole()).await?.clone();
                Ok::<_, DataFusionError>(stream::iter(batches.into_iter().map(Ok)))
            };
            let batches = stream::once(batches).try_flatten();
            let stream = RecordBatchStreamAdapter::new(self.schema(), batches);
            return Ok(Box::pin(stream));
        }
        let mut results = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let output = results.tx();
        results
            .spawn_blocking(move || reading.run(|batch| output.blocking_send(Ok(batch)).is_ok()));
        Ok(results.build())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        let rows = usize::try_from(self.file.estimated_rows()).unwrap_or(usize::MAX);
        statistics.num_rows = Precision::Inexact(rows);
        Ok(Arc::new(statistics))
    }
}
