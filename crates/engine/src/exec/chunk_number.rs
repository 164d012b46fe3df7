//! The number of the chunk, as a column of the rows of a piece.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream::{self, StreamExt, TryStreamExt};
use sky::ChunkId;

use super::plan_node::{no_expressions, plan_node};
use super::table_scan::single_partition;
use crate::loaded_table::chunk_number_field;
use crate::piece::Piece;

/// Gives the rows that its input has for one chunk of the piece after another, with the number of the chunk as one more column.
///
/// ```text
///   piece (chunk 1234, chunk 1236) ────────┐
///   PieceScanExec ──► ra   decl            ▼
///                     10.1 -3.2 ──► ra   chunkid decl
///                     10.4 -3.3     10.1 1234    -3.2
///                     16.2 -3.1     10.4 1234    -3.3
///                                   16.2 1236    -3.1
/// ```
///
/// The files do not hold the number: the piece says it. As what is below runs for each chunk by itself, it may be an aggregate just
/// as well as a scan. Invariant: it runs only when bound to a piece ([`ChunkNumberExec::bound_to`]). It then has an input for each
/// chunk of the piece, which reads that chunk.
#[derive(Debug)]
pub struct ChunkNumberExec {
    /// One, or one for each of `chunks`.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    /// The place of the number among the columns that it gives.
    at: usize,
    /// The chunks of the piece that it is bound to.
    chunks: Option<Vec<ChunkId>>,
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
            inputs: vec![input],
            at,
            chunks: None,
        })
    }

    /// The same over the rows of a particular piece; `bind` binds the input to one with a single chunk.
    pub(crate) fn bound_to(
        &self,
        piece: &Piece,
        bind: impl Fn(&Arc<dyn ExecutionPlan>, &Piece) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Self> {
        let input = self.input()?;
        let slices = piece.slices().iter();
        let inputs = slices
            .clone()
            .map(|slice| bind(input, &Piece::from(slice.clone())));
        Ok(Self {
            inputs: inputs.collect::<Result<_>>()?,
            at: self.at,
            chunks: Some(slices.map(|slice| slice.chunk).collect()),
            properties: Arc::clone(&self.properties),
        })
    }

    /// The place of the number among the columns.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The rows that are given the number, before it is bound to a piece.
    fn input(&self) -> Result<&Arc<dyn ExecutionPlan>> {
        match (self.inputs.as_slice(), &self.chunks) {
            ([input], None) => Ok(input),
            _ => internal_err!("the number of a chunk was bound to a piece twice"),
        }
    }

    /// Whether it is bound to a piece.
    pub(crate) fn is_bound(&self) -> bool {
        self.chunks.is_some()
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
    plan_node!("ChunkNumberExec");
    no_expressions!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    /// The rows of one chunk follow those of another, in whatever order the input has them of each.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fits = children.len() == self.inputs.len();
        let Some(first) = children.first().filter(|_| fits) else {
            return internal_err!("the number of a chunk over {} inputs", children.len());
        };
        let properties = Self::try_new(Arc::clone(first), self.at)?.properties;
        Ok(Arc::new(Self {
            inputs: children,
            at: self.at,
            chunks: self.chunks.clone(),
            properties,
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(chunks) = &self.chunks else {
            return internal_err!("the number of a chunk was asked for without a piece");
        };
        let (at, schema) = (self.at, self.schema());
        let of_chunk = move |(chunk, input): (ChunkId, Arc<dyn ExecutionPlan>)| {
            let batches = input.execute(partition, Arc::clone(&context))?;
            let schema = Arc::clone(&schema);
            Ok::<_, DataFusionError>(
                batches.map(move |batch| with_number(&batch?, at, chunk, &schema)),
            )
        };
        let inputs: Vec<_> = chunks.iter().copied().zip(self.inputs.clone()).collect();
        let numbered = stream::iter(inputs).map(of_chunk).try_flatten();
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
        if let ([input], None) = (inputs, &self.chunks) {
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
