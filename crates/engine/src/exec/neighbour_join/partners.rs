//! Aggregates over the partners of each probe row, without pairs.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, filter};
use datafusion::common::{JoinSide, Result, internal_datafusion_err};
use sky::neighbours::{PairBuffer, Search};

use super::columns::{JoinedColumn, PartnerAggregate};
use super::joining::{BuildSide, JoinOutput, Joining, Output, record_batch};
use super::time_slices::TimeSlices;
use crate::interruptible::yield_if_due;

/// From this radius on, separations are added up as squared chords give them: each is within 6e-10 arcseconds of the truth, which
/// is the 10¹¹th part of what they are about. Separations within smaller ones are computed with all digits, as there are few.
const CHORDS_ADD_UP_FROM_DEGREES: f64 = 1.0 / 60.0;
/// Pairs whose separations are computed together.
const AT_A_TIME: usize = 1_024;

/// The aggregates of some probe rows; a vector is empty if no column needs it.
#[derive(Default)]
struct Summaries {
    counts: Vec<u64>,
    sums: Vec<f64>,
    least: Vec<f64>,
}

impl Joining {
    /// Whether the output has a row for each probe row rather than for each pair.
    pub(super) fn gives_partners(&self) -> bool {
        self.columns
            .iter()
            .any(|column| matches!(column, JoinedColumn::OfPartners(_)))
    }

    /// Sends one row for each probe row that has output. Returns `false` when the receiver was dropped.
    pub(super) async fn join_partners(
        &self,
        batch: &RecordBatch,
        build: &BuildSide,
        search: &Search<'_>,
        largest_radius: f64,
        output: &Output,
    ) -> Result<bool> {
        for turn in TimeSlices::of(super::joining::rows_of(batch).end) {
            if output.is_closed() {
                return Ok(false);
            }
            let rows = batch.slice(turn.start as usize, turn.len());
            let summaries = self.summarise(search, turn, largest_radius);
            let given = self.partners_batch(&rows, build, &summaries)?;
            if given.num_rows() > 0 && output.send(Ok(given)).await.is_err() {
                return Ok(false);
            }
            yield_if_due().await?;
        }
        Ok(true)
    }

    fn asks_for(&self, wanted: PartnerAggregate) -> bool {
        self.columns.contains(&JoinedColumn::OfPartners(wanted))
    }

    fn summarise(&self, search: &Search<'_>, rows: Range<u32>, largest_radius: f64) -> Summaries {
        let mut found = Summaries::default();
        search.counts(rows.clone(), &mut found.counts);
        if self.asks_for(PartnerAggregate::SumOfSeparations) {
            found.sums = vec![0.0; rows.len()];
            if largest_radius >= CHORDS_ADD_UP_FROM_DEGREES {
                search.for_each_run(rows.clone(), |partners| {
                    found.sums[(partners.left - rows.start) as usize] +=
                        partners.sum_of_separations();
                });
            } else {
                add_up(search, rows.clone(), &mut found.sums);
            }
        }
        if self.asks_for(PartnerAggregate::LeastSeparation) {
            let mut nearest = Vec::new();
            search.nearest(rows, &mut nearest);
            let degrees = nearest
                .iter()
                .map(|nearest| nearest.map_or(f64::NAN, |nearest| nearest.separation.degrees()));
            found.least = degrees.collect();
        }
        found
    }

    fn partners_batch(
        &self,
        rows: &RecordBatch,
        build: &BuildSide,
        summaries: &Summaries,
    ) -> Result<RecordBatch> {
        let has_partner = BooleanArray::from_iter(summaries.counts.iter().map(|n| Some(*n > 0)));
        let keep = match self.output {
            JoinOutput::PairsAndUnmatched => None,
            _ => Some(&has_partner),
        };
        let columns = (self.columns.iter().zip(self.schema.fields())).map(|(column, field)| {
            let values = match column {
                JoinedColumn::OfPartners(what) => summaries.column(*what, &has_partner)?,
                column => self.of_probe_row(*column, rows, build)?,
            };
            let values = match keep {
                Some(keep) => filter(&values, keep)?,
                None => values,
            };
            Ok(cast(&values, field.data_type())?)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let count = keep.map_or(rows.num_rows(), BooleanArray::true_count);
        record_batch(&self.schema, columns, count)
    }

    /// A column of a probe row without partners; all columns of the other side are NULL.
    pub(super) fn of_probe_row(
        &self,
        column: JoinedColumn,
        rows: &RecordBatch,
        build: &BuildSide,
    ) -> Result<ArrayRef> {
        let unmatched = |data_type| new_null_array(data_type, rows.num_rows());
        Ok(match column {
            JoinedColumn::OfSide(side, at) if side == self.probe => Arc::clone(rows.column(at)),
            JoinedColumn::OfRow(at) if self.row_exprs[at].side == self.probe => {
                self.row_exprs[at].evaluate(rows)?
            }
            JoinedColumn::OfRow(at) => self.row_exprs[at].of_nulls(rows.num_rows())?,
            JoinedColumn::OfSide(JoinSide::None, _) | JoinedColumn::OfPartners(_) => {
                return Err(internal_datafusion_err!(
                    "{column:?} is no column of a side"
                ));
            }
            JoinedColumn::OfSide(_, at) => unmatched(build.column_type(at)),
            JoinedColumn::Separation => unmatched(&arrow::datatypes::DataType::Float64),
        })
    }
}

impl Summaries {
    fn column(&self, what: PartnerAggregate, has_partner: &BooleanArray) -> Result<ArrayRef> {
        let known = || Some(NullBuffer::new(has_partner.values().clone()));
        let whole = |numbers: Vec<i64>| Arc::new(Int64Array::from(numbers)) as ArrayRef;
        let degrees = |values: &[f64]| {
            Arc::new(Float64Array::new(values.to_vec().into(), known())) as ArrayRef
        };
        Ok(match what {
            PartnerAggregate::Count => whole(self.counts.iter().map(|n| *n as i64).collect()),
            PartnerAggregate::Rows => {
                whole(self.counts.iter().map(|n| (*n).max(1) as i64).collect())
            }
            PartnerAggregate::SumOfSeparations => degrees(&self.sums),
            PartnerAggregate::LeastSeparation => degrees(&self.least),
        })
    }
}

/// Adds to `sums` the separations of the rows' partners, each computed exactly.
fn add_up(search: &Search<'_>, rows: Range<u32>, sums: &mut [f64]) {
    let mut cursor = search.pairs(rows.clone());
    let mut buffer = PairBuffer::with_separations(AT_A_TIME);
    loop {
        let more = cursor.fill(&mut buffer);
        for (row, separation) in buffer.left().iter().zip(buffer.separations()) {
            sums[(row - rows.start) as usize] += separation;
        }
        if !more {
            return;
        }
    }
}
