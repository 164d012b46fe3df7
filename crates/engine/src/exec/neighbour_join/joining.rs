//! The execution of a neighbour join: it finds the partners of probe rows batch by batch, and outputs pairs or rows.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch, RecordBatchOptions,
    UInt32Array,
};
use arrow::compute::{concat_batches, filter, filter_record_batch, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, Float64Type, SchemaRef, UInt32Type};
use datafusion::common::{DataFusionError, JoinSide, Result, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::joins::utils::JoinFilter;
use futures::StreamExt;
use sky::Angle;
use sky::neighbours::{NeighbourIndex, PairBuffer, Search};
use tokio::sync::mpsc::Sender;

use super::columns::JoinedColumn;
use super::row_exprs::{ReadyExpr, RowValues};
use super::separation_condition::{RowPositions, RowRadii, SeparationCondition};
use super::time_slices::TimeSlices;
use crate::error::external;
use crate::interruptible::yield_if_due;

/// Bytes of an index for each row, including those for building it.
const INDEX_BYTES_PER_ROW: usize = 62;

/// The channel for the output.
pub(super) type Output = Sender<Result<RecordBatch>>;

/// The rows of the build side, and their index.
pub(super) struct BuildSide {
    rows: RecordBatch,
    index: NeighbourIndex,
    /// Of the join's row expressions.
    values: Vec<RowValues>,
    /// Their reservation in the query's memory.
    memory: MemoryReservation,
}

impl fmt::Debug for BuildSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildSide({} rows)", self.rows.num_rows())
    }
}

impl BuildSide {
    /// Gathers the rows of a stream. The index is optimised for `radius`.
    pub async fn gather(
        mut rows: SendableRecordBatchStream,
        joining: &Joining,
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
        let places = RowPositions::of(&joining.near.build, &rows, joining.near.poles)?;
        let index = NeighbourIndex::build(places.positions(), radius).map_err(external)?;
        Ok(Self {
            rows,
            index,
            values: RowValues::of_each(&joining.row_exprs),
            memory,
        })
    }

    /// The type of one of its columns.
    pub fn column_type(&self, at: usize) -> &DataType {
        self.rows.schema_ref().field(at).data_type()
    }
}

/// What a join outputs for the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinOutput {
    /// Each pair.
    Pairs,
    /// Each pair, and unmatched probe rows with NULLs.
    PairsAndUnmatched,
    /// Probe rows with a partner.
    Matched,
    /// Probe rows without a partner.
    Unmatched,
}

/// A neighbour join without its inputs.
#[derive(Debug)]
pub(super) struct Joining {
    pub near: SeparationCondition,
    pub probe: JoinSide,
    pub filter: Option<JoinFilter>,
    pub output: JoinOutput,
    pub row_exprs: Vec<ReadyExpr>,
    /// The output columns.
    pub columns: Vec<JoinedColumn>,
    pub schema: SchemaRef,
    /// The number of pairs that are tested together.
    pub batch_size: usize,
}

/// The probe rows of one batch.
struct ProbeRows<'a> {
    rows: &'a RecordBatch,
    /// Of the join's row expressions.
    values: Vec<RowValues>,
}

/// Pairs, as row numbers of both sides.
struct Pairs {
    probe: UInt32Array,
    build: UInt32Array,
    /// In degrees, if the output or the condition needs them.
    separations: Option<Float64Array>,
    /// The number of pairs. If only this is needed, the row numbers are those of all tested pairs.
    count: usize,
}

impl Joining {
    /// Joins the rows of a batch. Returns `false` when the receiver was dropped.
    pub async fn join(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        output: &Output,
    ) -> Result<bool> {
        let places = RowPositions::of(&self.near.probe, batch, self.near.poles)?;
        let radii = RowRadii::of(&self.near, batch)?;
        let largest = radii.largest().degrees();
        let radii = radii.radii(self.near.bound);
        let search = Search::new(&build.index, places.positions(), radii);
        if self.gives_partners() {
            return self
                .join_partners(batch, build, &search, largest, output)
                .await;
        }
        match (self.output, &self.filter) {
            (JoinOutput::Matched | JoinOutput::Unmatched, None) => {
                self.join_any(batch, build, &search, output).await
            }
            _ => self.join_pairs(batch, build, &search, output).await,
        }
    }

    /// Determines for each row only whether it has a partner.
    async fn join_any(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        search: &Search<'_>,
        output: &Output,
    ) -> Result<bool> {
        let mut any = Vec::new();
        for turn in TimeSlices::of(rows_of(batch).end) {
            let rows = batch.slice(turn.start as usize, turn.len());
            search.any(turn, &mut any);
            if !self.send_rest(&rows, build, &any, output).await? {
                return Ok(false);
            }
            yield_if_due().await?;
        }
        Ok(true)
    }

    async fn join_pairs(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        search: &Search<'_>,
        output: &Output,
    ) -> Result<bool> {
        let gives_pairs = matches!(
            self.output,
            JoinOutput::Pairs | JoinOutput::PairsAndUnmatched
        );
        let probe = ProbeRows {
            rows: batch,
            values: RowValues::of_each(&self.row_exprs),
        };
        let mut matched = vec![false; batch.num_rows()];
        let mut cursor = search.pairs(rows_of(batch));
        let mut buffer = if self.needs_separations() {
            PairBuffer::with_separations(self.batch_size)
        } else {
            PairBuffer::new(self.batch_size)
        };
        loop {
            let more = cursor.fill(&mut buffer);
            let pairs = self.kept(&buffer, &probe, build)?;
            if self.output != JoinOutput::Pairs {
                for row in pairs.probe.values() {
                    matched[*row as usize] = true;
                }
            }
            if gives_pairs && pairs.count > 0 {
                let joined = self.joined(&pairs, &probe, build)?;
                if output.send(Ok(joined)).await.is_err() {
                    return Ok(false);
                }
            }
            if output.is_closed() {
                return Ok(false);
            }
            // A loop whose pairs are all rejected never sends: it has to yield by itself.
            yield_if_due().await?;
            if !more {
                break;
            }
        }
        if self.output == JoinOutput::Pairs {
            return Ok(true);
        }
        self.send_rest(batch, build, &matched, output).await
    }

    fn needs_separations(&self) -> bool {
        let filter = self.filter.iter().flat_map(JoinFilter::column_indices);
        let mut columns = filter.map(JoinedColumn::from).chain(self.columns.clone());
        columns.any(|column| column == JoinedColumn::Separation)
    }

    /// The pairs of a buffer that pass the residual condition.
    fn kept(&self, buffer: &PairBuffer, probe: &ProbeRows<'_>, build: &BuildSide) -> Result<Pairs> {
        let pairs = Pairs {
            probe: UInt32Array::from(buffer.left().to_vec()),
            build: UInt32Array::from(buffer.right().to_vec()),
            separations: self
                .needs_separations()
                .then(|| Float64Array::from(buffer.separations().to_vec())),
            count: buffer.left().len(),
        };
        let Some(rest) = &self.filter else {
            return Ok(pairs);
        };
        if pairs.count == 0 {
            return Ok(pairs);
        }
        let columns: Vec<_> = rest
            .column_indices()
            .iter()
            .map(JoinedColumn::from)
            .collect();
        let columns = self.take(&columns, &pairs, probe, build)?;
        let rows = record_batch(rest.schema(), columns, pairs.count)?;
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
        let count = keep.true_count();
        if self.output == JoinOutput::Pairs && self.columns.is_empty() {
            return Ok(Pairs { count, ..pairs });
        }
        let rows_kept = |rows: &UInt32Array| -> Result<UInt32Array> {
            Ok(filter(rows, &keep)?.as_primitive::<UInt32Type>().clone())
        };
        Ok(Pairs {
            probe: rows_kept(&pairs.probe)?,
            build: rows_kept(&pairs.build)?,
            separations: match &pairs.separations {
                Some(all) => Some(filter(all, &keep)?.as_primitive::<Float64Type>().clone()),
                None => None,
            },
            count,
        })
    }

    fn joined(
        &self,
        pairs: &Pairs,
        probe: &ProbeRows<'_>,
        build: &BuildSide,
    ) -> Result<RecordBatch> {
        let columns = self.take(&self.columns, pairs, probe, build)?;
        record_batch(&self.schema, columns, pairs.count)
    }

    fn take(
        &self,
        columns: &[JoinedColumn],
        pairs: &Pairs,
        probe: &ProbeRows<'_>,
        build: &BuildSide,
    ) -> Result<Vec<ArrayRef>> {
        let column = |column: &JoinedColumn| match *column {
            JoinedColumn::OfSide(side, at) if side == self.probe => {
                Ok(take(probe.rows.column(at), &pairs.probe, None)?)
            }
            JoinedColumn::OfSide(_, at) => Ok(take(build.rows.column(at), &pairs.build, None)?),
            JoinedColumn::OfRow(at) => {
                let expr = &self.row_exprs[at];
                if expr.side == self.probe {
                    probe.values[at].take(expr, probe.rows, &pairs.probe, None)
                } else {
                    let memory = Some(&build.memory);
                    build.values[at].take(expr, &build.rows, &pairs.build, memory)
                }
            }
            JoinedColumn::Separation => match &pairs.separations {
                Some(separations) => Ok(Arc::new(separations.clone()) as ArrayRef),
                None => Err(internal_datafusion_err!("separations were not computed")),
            },
            JoinedColumn::OfPartners(_) => {
                Err(internal_datafusion_err!("a pair has no {column:?}"))
            }
        };
        columns.iter().map(column).collect()
    }

    /// Sends the probe rows that are output without a partner.
    async fn send_rest(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        matched: &[bool],
        output: &Output,
    ) -> Result<bool> {
        let wanted = self.output == JoinOutput::Matched;
        let keep: BooleanArray = matched
            .iter()
            .map(|matched| Some(*matched == wanted))
            .collect();
        let count = keep.true_count();
        if count == 0 {
            return Ok(!output.is_closed());
        }
        let rows = filter_record_batch(batch, &keep)?;
        let columns = self
            .columns
            .iter()
            .map(|column| self.of_probe_row(*column, &rows, build))
            .collect::<Result<Vec<_>>>()?;
        let rest = record_batch(&self.schema, columns, count)?;
        Ok(output.send(Ok(rest)).await.is_ok())
    }
}

pub(super) fn rows_of(batch: &RecordBatch) -> std::ops::Range<u32> {
    // A batch of a stream, or the rows of a piece: far fewer than 2^32.
    0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX)
}

pub(super) fn record_batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
