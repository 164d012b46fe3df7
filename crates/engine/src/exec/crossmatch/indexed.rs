//! The rows among which partners are looked for.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use futures::TryStreamExt;
use sky::Angle;
use sky::neighbours::NeighbourIndex;

use crate::error::external;
use crate::exec::neighbour_join::separation_condition::{BeyondPoles, RowPositions};

/// Bytes that an index takes for each row, with what building it takes for a while.
const INDEX_BYTES_PER_ROW: usize = 62;

/// Rows and the index of their positions.
pub(super) struct IndexedRows {
    pub rows: RecordBatch,
    pub index: NeighbourIndex,
    /// What they take of the query's memory.
    _memory: Option<MemoryReservation>,
}

impl fmt::Debug for IndexedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Indexed({} rows)", self.rows.num_rows())
    }
}

impl IndexedRows {
    /// The rows of a stream, `sorted` by their values if wanted, so that their order does not depend on that in which they
    /// came. The index is best for about `radius`.
    pub async fn gather(
        mut stream: SendableRecordBatchStream,
        position: &[Arc<dyn PhysicalExpr>; 2],
        radius: Angle,
        sorted: bool,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let mut batches = Vec::new();
        while let Some(batch) = stream.try_next().await? {
            let index = batch.num_rows() * INDEX_BYTES_PER_ROW;
            memory.try_grow(batch.get_array_memory_size() + index)?;
            batches.push(batch);
        }
        let mut rows = concat_batches(&stream.schema(), &batches)?;
        if sorted {
            rows = by_values(&rows)?;
        }
        let places = RowPositions::of(position, &rows, BeyondPoles::Nowhere)?;
        let indexed = Self::of(rows, &places, radius)?;
        Ok(Self {
            _memory: Some(memory),
            ..indexed
        })
    }

    /// Rows whose memory another owner has reserved.
    pub fn of(rows: RecordBatch, places: &RowPositions, radius: Angle) -> Result<Self> {
        Ok(Self {
            index: NeighbourIndex::build(places.positions(), radius).map_err(external)?,
            rows,
            _memory: None,
        })
    }
}

/// Rows in the order of their values. Those that are equal in all of them cannot be told apart anyway.
fn by_values(rows: &RecordBatch) -> Result<RecordBatch> {
    let columns: Vec<SortColumn> = rows
        .columns()
        .iter()
        .filter(|column| has_order(column.data_type()))
        .map(|column| SortColumn {
            values: Arc::clone(column),
            options: None,
        })
        .collect();
    if columns.is_empty() {
        return Ok(rows.clone());
    }
    let order = lexsort_to_indices(&columns, None)?;
    Ok(take_record_batch(rows, &order)?)
}

fn has_order(data_type: &DataType) -> bool {
    !data_type.is_nested() && *data_type != DataType::Null
}
