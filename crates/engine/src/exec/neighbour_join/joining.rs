//! The work of a neighbour join: the partners of probe rows, batch by batch, and what is made of the pairs.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
    new_null_array,
};
use arrow::compute::{concat_batches, filter, prep_null_mask_filter, take};
use arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::common::{DataFusionError, JoinSide, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use futures::StreamExt;
use sky::Angle;
use sky::neighbours::{NeighbourIndex, PairBuffer, Search};
use tokio::sync::mpsc::Sender;

use super::near::{Near, Places, RadiiOfRows};
use crate::error::external;

/// Bytes that an index takes for each row, with what building it takes for a while.
const INDEX_BYTES_PER_ROW: usize = 62;
/// Rows without columns that are given at once: whoever does not only count them may make a value of each.
const ROWS_WITHOUT_COLUMNS: u64 = 1 << 20;

/// Where results go.
pub(super) type Output = Sender<Result<RecordBatch>>;

/// The rows that partners are looked for among, and their index.
pub(super) struct BuildSide {
    rows: RecordBatch,
    index: NeighbourIndex,
    /// What they take of the query's memory.
    _memory: MemoryReservation,
}

impl fmt::Debug for BuildSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildSide({} rows)", self.rows.num_rows())
    }
}

impl BuildSide {
    /// Gathers the rows of a stream. The index is best for about `radius`.
    pub async fn gather(
        mut rows: SendableRecordBatchStream,
        near: &Near,
        radius: Angle,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let index = batch.num_rows() * INDEX_BYTES_PER_ROW;
            memory.try_grow(batch.get_array_memory_size() + index)?;
            batches.push(batch);
        }
        let rows = concat_batches(&rows.schema(), &batches)?;
        let places = Places::of(&near.build, &rows)?;
        let index = NeighbourIndex::build(places.positions(), radius).map_err(external)?;
        Ok(Self {
            rows,
            index,
            _memory: memory,
        })
    }
}

/// What a join makes of the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    /// Each pair.
    Pairs,
    /// Each pair, and probe rows without a partner beside NULLs.
    PairsAndLonely,
    /// Probe rows with a partner.
    Matched,
    /// Probe rows without.
    Lonely,
}

/// How a neighbour join is done, without its inputs.
#[derive(Debug)]
pub(super) struct Joining {
    pub near: Near,
    pub probe: JoinSide,
    pub filter: Option<JoinFilter>,
    pub gives: Gives,
    /// The columns that it gives.
    pub columns: Vec<ColumnIndex>,
    pub schema: SchemaRef,
    /// Pairs that are looked at together.
    pub batch_size: usize,
}

/// Pairs, as row numbers of both sides.
struct Pairs {
    probe: UInt32Array,
    build: UInt32Array,
}

impl Joining {
    /// Joins the rows of a batch. Gives `false` when nobody wants more results.
    pub async fn join(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        output: &Output,
    ) -> Result<bool> {
        let places = Places::of(&self.near.probe, batch)?;
        let radii = RadiiOfRows::of(&self.near, batch)?;
        let radii = radii.radii(self.near.bound);
        let search = Search::new(&build.index, places.positions(), radii);
        match (self.gives, &self.filter) {
            (Gives::Matched | Gives::Lonely, None) => {
                let mut any = Vec::new();
                search.any(rows_of(batch), &mut any);
                self.send_rest(batch, build, &any, output).await
            }
            (Gives::Pairs, None) if self.columns.is_empty() => {
                send_count(search.count(rows_of(batch)), &self.schema, output).await
            }
            _ => self.join_pairs(batch, build, &search, output).await,
        }
    }

    async fn join_pairs(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        search: &Search<'_>,
        output: &Output,
    ) -> Result<bool> {
        let gives_pairs = matches!(self.gives, Gives::Pairs | Gives::PairsAndLonely);
        let mut matched = vec![false; batch.num_rows()];
        let mut cursor = search.pairs(rows_of(batch));
        let mut buffer = PairBuffer::new(self.batch_size);
        loop {
            let more = cursor.fill(&mut buffer);
            let pairs = self.kept(&buffer, batch, &build.rows)?;
            for row in pairs.probe.values() {
                matched[*row as usize] = true;
            }
            if gives_pairs && !pairs.probe.is_empty() {
                let joined = self.joined(&pairs, batch, &build.rows)?;
                if output.send(Ok(joined)).await.is_err() {
                    return Ok(false);
                }
            }
            if output.is_closed() {
                return Ok(false);
            }
            // What is filtered out is not waited for by anybody: other tasks shall have their turn all the same.
            tokio::task::consume_budget().await;
            if !more {
                break;
            }
        }
        if self.gives == Gives::Pairs {
            return Ok(true);
        }
        self.send_rest(batch, build, &matched, output).await
    }

    /// The pairs of a buffer for which the rest of the condition is true.
    fn kept(&self, buffer: &PairBuffer, probe: &RecordBatch, build: &RecordBatch) -> Result<Pairs> {
        let pairs = Pairs {
            probe: UInt32Array::from(buffer.left().to_vec()),
            build: UInt32Array::from(buffer.right().to_vec()),
        };
        let Some(rest) = &self.filter else {
            return Ok(pairs);
        };
        if pairs.probe.is_empty() {
            return Ok(pairs);
        }
        let columns = self.take(rest.column_indices(), &pairs, probe, build)?;
        let rows = record_batch(rest.schema(), columns, pairs.probe.len())?;
        let keep = rest
            .expression()
            .evaluate(&rows)?
            .into_array(rows.num_rows())?;
        let keep = keep.as_boolean_opt().ok_or_else(|| {
            DataFusionError::Internal("a join's condition is no truth value".to_owned())
        })?;
        let keep = match keep.null_count() {
            0 => keep.clone(),
            _ => prep_null_mask_filter(keep),
        };
        let rows_kept = |rows: &UInt32Array| -> Result<UInt32Array> {
            Ok(filter(rows, &keep)?.as_primitive::<UInt32Type>().clone())
        };
        Ok(Pairs {
            probe: rows_kept(&pairs.probe)?,
            build: rows_kept(&pairs.build)?,
        })
    }

    fn joined(
        &self,
        pairs: &Pairs,
        probe: &RecordBatch,
        build: &RecordBatch,
    ) -> Result<RecordBatch> {
        let columns = self.take(&self.columns, pairs, probe, build)?;
        record_batch(&self.schema, columns, pairs.probe.len())
    }

    fn take(
        &self,
        columns: &[ColumnIndex],
        pairs: &Pairs,
        probe: &RecordBatch,
        build: &RecordBatch,
    ) -> Result<Vec<ArrayRef>> {
        let column = |column: &ColumnIndex| {
            let (side, rows) = if column.side == self.probe {
                (probe, &pairs.probe)
            } else {
                (build, &pairs.build)
            };
            Ok(take(side.column(column.index), rows, None)?)
        };
        columns.iter().map(column).collect()
    }

    /// Sends the probe rows that are given for themselves.
    async fn send_rest(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        matched: &[bool],
        output: &Output,
    ) -> Result<bool> {
        let wanted = self.gives == Gives::Matched;
        let keep: BooleanArray = matched
            .iter()
            .map(|matched| Some(*matched == wanted))
            .collect();
        let count = keep.true_count();
        if count == 0 {
            return Ok(!output.is_closed());
        }
        let column = |column: &ColumnIndex| {
            Ok(if column.side == self.probe {
                filter(batch.column(column.index), &keep)?
            } else {
                new_null_array(build.rows.column(column.index).data_type(), count)
            })
        };
        let columns = self
            .columns
            .iter()
            .map(column)
            .collect::<Result<Vec<_>>>()?;
        let rest = record_batch(&self.schema, columns, count)?;
        Ok(output.send(Ok(rest)).await.is_ok())
    }
}

/// Sends rows that have no columns.
async fn send_count(mut count: u64, schema: &SchemaRef, output: &Output) -> Result<bool> {
    while count > 0 {
        let now = count.min(ROWS_WITHOUT_COLUMNS);
        let rows = record_batch(schema, Vec::new(), now as usize)?;
        if output.send(Ok(rows)).await.is_err() {
            return Ok(false);
        }
        count -= now;
    }
    Ok(!output.is_closed())
}

fn rows_of(batch: &RecordBatch) -> std::ops::Range<u32> {
    // A batch of a stream, or the rows of a piece: far fewer than 2^32.
    0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX)
}

fn record_batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
