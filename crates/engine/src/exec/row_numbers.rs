//! Numbering the rows that a chunk phase gives, so that an order can be found again after they were mixed on their way.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::coverage::SubChunkSet;
use crate::piece::Piece;

/// Column with the number of the piece; pieces are numbered along the sky, as they are ordered in a phase.
pub const PIECE_NUMBER: &str = "__piece";
/// Column with the number of the row among those of its piece.
pub const ROW_NUMBER: &str = "__row";

/// A schema with the two numbers after its own columns.
pub(super) fn numbered_schema(schema: &Schema) -> SchemaRef {
    let numbers =
        [PIECE_NUMBER, ROW_NUMBER].map(|name| Arc::new(Field::new(name, DataType::Int64, false)));
    let fields: Vec<_> = schema.fields().iter().cloned().chain(numbers).collect();
    Arc::new(Schema::new(fields))
}

/// The results of a piece with the two numbers; `schema` is their [`numbered_schema`].
pub(super) fn number_rows(
    batches: SendableRecordBatchStream,
    piece: &Piece,
    schema: SchemaRef,
) -> SendableRecordBatchStream {
    let number = piece_number(piece);
    let mut next = 0_i64;
    let numbered_as = Arc::clone(&schema);
    let numbered = batches.map(move |batch| {
        let batch = batch?;
        let end = next + batch.num_rows() as i64;
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_value(number, batch.num_rows())));
        columns.push(Arc::new(Int64Array::from_iter_values(next..end)));
        next = end;
        Ok(RecordBatch::try_new(Arc::clone(&numbered_as), columns)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, numbered))
}

/// Chunk first, then sub-chunk: pieces of one chunk have no sub-chunk in common.
fn piece_number(piece: &Piece) -> i64 {
    let first = match &piece.sub_chunks {
        SubChunkSet::All => 0,
        SubChunkSet::Intervals(intervals) => intervals.first().map_or(0, |(first, _)| *first),
    };
    (i64::from(piece.chunk.0) << 32) | i64::from(first.max(0))
}
