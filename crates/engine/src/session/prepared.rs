//! A statement that is planned, and the result that it becomes.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::{BoxStream, Stream, StreamExt};
use sql::{Connection, ErrorCode, Interrupt, RowWarnings, SqlError, Warning};

use super::{explain, views};
use crate::EngineError;
use crate::exec::ChunkPhaseExec;

/// The result of a query, as a stream.
pub struct QueryResult {
    /// The columns, under their headings.
    pub schema: SchemaRef,
    /// The rows. Dropping the stream stops the query.
    pub batches: BoxStream<'static, Result<RecordBatch, EngineError>>,
    /// The plan that produces them.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The warnings of the statement.
    pub warnings: Vec<Warning>,
    /// Those about values of rows, which come with them: all are there when the last row is.
    pub row_warnings: Arc<RowWarnings>,
}

/// A statement that is planned and has not started.
#[derive(Debug)]
pub struct PreparedQuery {
    /// The logical plan.
    pub logical: LogicalPlan,
    /// The physical plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The columns of the result, under their headings.
    pub schema: SchemaRef,
    /// The warnings of the statement.
    pub warnings: Vec<Warning>,
    /// Rows before those of the plan: what EXPLAIN says of the query as a whole.
    pub(super) preface: Option<RecordBatch>,
    /// Whether a row at the end tells what was read: of EXPLAIN ANALYZE.
    pub(super) analyzes: bool,
    /// The statement as it was read, if its result may answer an equal one.
    pub(super) cacheable: Option<String>,
    /// Whether it reads tables that whoever asks may not read, through views.
    pub(super) reads_hidden: bool,
}

impl PreparedQuery {
    /// The pieces of each of its phases.
    pub fn pieces_of_phases(&self) -> Vec<usize> {
        let mut found = Vec::new();
        // The closure cannot fail.
        let _ = self.plan.apply(|node| {
            if let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() {
                found.push(phase.pieces().map_or(0, |pieces| pieces.len()));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        found
    }

    /// Whether whoever asks may be told of the values of rows that it reads, as warnings do.
    pub fn tells_of_rows(&self) -> bool {
        !self.reads_hidden
    }

    /// The result with the rows of `batches`, wherever the plan runs, as work on a statement.
    pub fn into_result(
        self,
        batches: SendableRecordBatchStream,
        interrupt: &Interrupt,
    ) -> QueryResult {
        let preface = futures::stream::iter(self.preface.map(Ok));
        let report = explain::report(self.analyzes, &self.plan.schema());
        let mut result =
            with_headings(self.schema, self.plan, preface.chain(batches).chain(report));
        result.warnings = self.warnings;
        result.row_warnings = Arc::clone(interrupt.warnings());
        if self.reads_hidden {
            // They would tell values that whoever asks may not see.
            result.row_warnings = Arc::default();
            let batches = result.batches;
            result.batches = batches.map(|batch| batch.map_err(views::veiled)).boxed();
        }
        result
    }
}

/// A result whose columns have the headings of `schema`.
pub(super) fn with_headings(
    schema: SchemaRef,
    plan: Arc<dyn ExecutionPlan>,
    batches: impl Stream<Item = datafusion::common::Result<RecordBatch>> + Send + 'static,
) -> QueryResult {
    let headed = Arc::clone(&schema);
    let batches = batches.map(move |batch| {
        let batch = batch.map_err(|error| EngineError::from_run(&error))?;
        with_schema(batch, &headed)
    });
    QueryResult {
        schema,
        batches: batches.boxed(),
        plan,
        warnings: vec![],
        row_warnings: Arc::default(),
    }
}

/// A result that ends with an error if it has more rows or bytes than one of the connection may have.
pub(super) fn within(connection: &Connection, mut result: QueryResult) -> QueryResult {
    let (most_rows, most_bytes) = (connection.most_rows, connection.most_bytes);
    if most_rows.is_none() && most_bytes.is_none() {
        return result;
    }
    let (mut rows, mut bytes) = (0, 0);
    let counted = result.batches.map(move |batch| {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        if let Some(most) = most_rows.filter(|most| rows > *most) {
            return Err(too_many_rows(most));
        }
        if let Some(most) = most_bytes {
            bytes += bytes_of(&batch)?;
            if bytes > most {
                return Err(too_many_bytes(most));
            }
        }
        Ok(batch)
    });
    result.batches = counted.boxed();
    result
}

/// Bytes of the values of a batch.
fn bytes_of(batch: &RecordBatch) -> Result<u64, EngineError> {
    let mut bytes = 0;
    for column in batch.columns() {
        let of_column = column.to_data().get_slice_memory_size();
        let failed = |error: ArrowError| EngineError::internal(error.to_string());
        bytes += of_column.map_err(failed)? as u64;
    }
    Ok(bytes)
}

/// The error of a result with more bytes than its user may have of one query.
pub fn too_many_bytes(most: u64) -> EngineError {
    let sentence = format!(
        "the result has more than {most} bytes, which is the most that you may have of one query: select fewer columns or rows, or aggregate them; SHOW LIMITS tells all limits"
    );
    SqlError::new(sentence)
        .with_code(ErrorCode::LIMIT_REACHED)
        .into()
}

/// The error of a result with more rows than its user may have of one query.
pub fn too_many_rows(most: u64) -> EngineError {
    let sentence = format!(
        "the result has more than {most} rows, which is the most that you may have of one query: give a LIMIT, select fewer rows or aggregate them; SHOW LIMITS tells all limits"
    );
    SqlError::new(sentence)
        .with_code(ErrorCode::LIMIT_REACHED)
        .into()
}

pub(super) fn with_schema(
    batch: RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, EngineError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
        .map_err(|error| EngineError::internal(error.to_string()))
}
