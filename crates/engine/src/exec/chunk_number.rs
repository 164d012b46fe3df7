//! The number of the chunk, as a column of the rows of a piece.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use sky::ChunkId;

use super::table_scan::single_partition;
use crate::loaded_table::chunk_number_field;
use crate::piece::Piece;

/// Gives the rows of its input with the number of the piece's chunk as one more column.
///
/// ```text
///   piece (chunk 1234, ...) ───────────────┐
///   PieceScanExec ──► ra   decl            ▼
///                     10.1 -3.2 ──► ra   chunkid decl
///                     10.4 -3.3     10.1 1234    -3.2
///                                   10.4 1234    -3.3
/// ```
///
/// The files do not hold the number: the piece says it. Invariant: it runs only when bound to a piece
/// ([`ChunkNumberExec::bound_to`]), the one that the scan below it reads.
#[derive(Debug)]
pub struct ChunkNumberExec {
    input: Arc<dyn ExecutionPlan>,
    /// The place of the number among the columns that it gives.
    at: usize,
    chunk: Option<ChunkId>,
    properties: Arc<PlanProperties>,
}

impl ChunkNumberExec {
    /// The columns of `input` with the number before its column `at`, or after the last one.
    ///
    /// # Errors
    /// If the input has fewer columns than that.
    pub fn try_new(input: Arc<dyn ExecutionPlan>, at: usize) -> Result<Self> {
        let mut fields = input.schema().fields().to_vec();
        if at > fields.len() {
            return internal_err!(
                "the chunk's number was to be column {at} beside {} others",
                fields.len()
            );
        }
        fields.insert(at, Arc::new(chunk_number_field()));
        Ok(Self {
            properties: single_partition(Arc::new(Schema::new(fields))),
            input,
            at,
            chunk: None,
        })
    }

    /// The same over the rows of a particular piece.
    pub(crate) fn bound_to(&self, piece: &Piece, input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            at: self.at,
            chunk: Some(piece.chunk),
            properties: Arc::clone(&self.properties),
        }
    }

    /// The place of the number among the columns.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The rows that are given the number.
    pub(crate) fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// Whether it is bound to a piece.
    pub(crate) fn is_bound(&self) -> bool {
        self.chunk.is_some()
    }
}

/// A batch with the chunk's number before its column `at`.
fn with_number(
    batch: &RecordBatch,
    at: usize,
    chunk: ChunkId,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let number: ArrayRef = Arc::new(Int32Array::from_value(chunk.0, batch.num_rows()));
    let mut columns = batch.columns().to_vec();
    columns.insert(at, number);
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

impl DisplayAs for ChunkNumberExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkNumberExec")
    }
}

impl ExecutionPlan for ChunkNumberExec {
    fn name(&self) -> &str {
        "ChunkNumberExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

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
        Ok(Arc::new(Self {
            chunk: self.chunk,
            ..Self::try_new(children.swap_remove(0), self.at)?
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(chunk) = self.chunk else {
            return internal_err!("the number of a chunk was asked for without a piece");
        };
        let (at, schema) = (self.at, self.schema());
        let batches = self.input.execute(partition, context)?;
        let numbered = batches.map(move |batch| with_number(&batch?, at, chunk, &schema));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            numbered,
        )))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let [input] = inputs {
            statistics.num_rows = input.num_rows;
        }
        Ok(Arc::new(statistics))
    }

    /// Conditions on the other columns go on to the scan; those on the number are decided above.
    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(pushed))
    }
}
