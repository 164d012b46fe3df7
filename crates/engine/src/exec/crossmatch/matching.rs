//! The pairs of a crossmatch, and the rows that are made of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use sky::Angle;
use sky::neighbours::{Bound, PairBuffer, Radii, Radius, Search};
use sql::interrupt::check;

use super::indexed::IndexedRows;
use super::{MatchColumn, MatchRule, MatchSelection, Unmatched};
use crate::exec::neighbour_join::separation_condition::{BeyondPoles, RowPositions};

/// Arcseconds in a degree.
const ARCSEC: f64 = 3600.0;
/// Pairs that are looked for at a time.
const PAIRS_AT_A_TIME: usize = 8192;
/// Rows whose nearest are searched between two checks whether the result is still needed.
const ROWS_BETWEEN_CHECKS: usize = 1024;

/// Pairs: row numbers of both sides, and separations in degrees. Those of one probe row stand together.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    probe: Vec<u32>,
    build: Vec<u32>,
    separations: Vec<f64>,
}

impl Pairs {
    /// Those of which no row of an index is nearer to the build end, whose places are given, than the probe end is.
    pub fn without_nearer(self, rivals: &IndexedRows, ends: &RowPositions) -> Self {
        let radii = Radii::of_rows(&self.separations, None, Bound::Below);
        let search = Search::new(&rivals.index, ends.positions(), radii);
        let mut nearer = Vec::new();
        search.any(rows(self.separations.len()), &mut nearer);
        let mut kept = Self::default();
        for at in (0..nearer.len()).filter(|at| !nearer[*at]) {
            kept.push(self.probe[at], self.build[at], self.separations[at]);
        }
        kept
    }

    /// The largest separation.
    pub fn largest(&self) -> Angle {
        Angle::from_degrees(self.separations.iter().copied().fold(0.0, f64::max))
    }

    fn push(&mut self, probe: u32, build: u32, separation: f64) {
        self.probe.push(probe);
        self.build.push(build);
        self.separations.push(separation);
    }
}

/// How a crossmatch is done, without its inputs.
#[derive(Debug)]
pub(super) struct Matcher {
    pub rule: MatchRule,
    /// Right ascension and declination of probe rows, and of build rows.
    pub probe: [Arc<dyn PhysicalExpr>; 2],
    pub build: [Arc<dyn PhysicalExpr>; 2],
    pub columns: Vec<MatchColumn>,
    pub schema: SchemaRef,
    /// Rows of a result.
    pub batch_size: usize,
}

impl Matcher {
    pub fn probe_places(&self, batch: &RecordBatch) -> Result<RowPositions> {
        RowPositions::of(&self.probe, batch, BeyondPoles::Nowhere)
    }

    /// The index of the probe rows themselves.
    pub fn index_of_probe(&self, batch: &RecordBatch) -> Result<IndexedRows> {
        let places = self.probe_places(batch)?;
        IndexedRows::of(batch.clone(), &places, self.rule.radius)
    }

    /// The places of the build ends of pairs.
    pub fn build_places(&self, pairs: &Pairs, build: &IndexedRows) -> Result<RowPositions> {
        let ends = UInt32Array::from(pairs.build.clone());
        let [ra, dec] = RowPositions::of(&self.build, &build.rows, BeyondPoles::Nowhere)?.columns();
        let of_pairs =
            |column: &Float64Array| -> Result<ArrayRef> { Ok(take(column, &ends, None)?) };
        Ok(RowPositions::from_columns(
            &of_pairs(&ra)?,
            &of_pairs(&dec)?,
        ))
    }

    /// Each probe row's nearest: as many as are wanted, or all that are nearest where pairs are to be mutual.
    pub fn candidates(&self, probe: &RowPositions, build: &IndexedRows) -> Result<Pairs> {
        let radii = Radii::common(Radius::at_most(self.rule.radius));
        let search = Search::new(&build.index, probe.positions(), radii);
        let mut pairs = Pairs::default();
        let most = match self.rule.wanted {
            MatchSelection::Nearest(most) => most,
            MatchSelection::Mutual => 1,
        };
        let all = rows(probe.len());
        for from in all.clone().step_by(ROWS_BETWEEN_CHECKS) {
            check()?;
            let some = from..from.saturating_add(ROWS_BETWEEN_CHECKS as u32).min(all.end);
            search.nearest_few(most, some, |row, found| {
                for neighbour in found {
                    pairs.push(row, neighbour.right, neighbour.separation.degrees());
                }
            });
        }
        match self.rule.wanted {
            MatchSelection::Nearest(_) => Ok(pairs),
            MatchSelection::Mutual => with_equally_near(&pairs, probe, build),
        }
    }

    /// The rows that the crossmatch gives of these pairs and of probe rows without one.
    pub fn results(
        &self,
        pairs: Pairs,
        probe: &RecordBatch,
        build: &IndexedRows,
    ) -> impl Iterator<Item = Result<RecordBatch>> {
        let alone = self.alone(&pairs, probe.num_rows());
        let pairs = match self.rule.unmatched {
            Unmatched::Alone => Pairs::default(),
            _ => pairs,
        };
        let slices = (0..pairs.probe.len()).step_by(self.batch_size.max(1));
        let ends = |at: usize| at..(at + self.batch_size.max(1)).min(pairs.probe.len());
        let paired: Vec<_> = slices
            .map(|at| self.paired(&pairs, ends(at), probe, build))
            .collect();
        let unpaired: Vec<_> = alone
            .chunks(self.batch_size.max(1))
            .map(|rows| self.unpaired(rows, probe, build))
            .collect();
        paired.into_iter().chain(unpaired)
    }

    /// Probe rows in no pair, where they are wanted.
    fn alone(&self, pairs: &Pairs, rows: usize) -> Vec<u32> {
        if self.rule.unmatched == Unmatched::Dropped {
            return Vec::new();
        }
        let mut matched = vec![false; rows];
        for row in &pairs.probe {
            matched[*row as usize] = true;
        }
        let alone = (0..rows as u32).filter(|row| !matched[*row as usize]);
        alone.collect()
    }

    fn paired(
        &self,
        pairs: &Pairs,
        at: std::ops::Range<usize>,
        probe: &RecordBatch,
        build: &IndexedRows,
    ) -> Result<RecordBatch> {
        let probe_rows = UInt32Array::from(pairs.probe[at.clone()].to_vec());
        let build_rows = UInt32Array::from(pairs.build[at.clone()].to_vec());
        let column = |column: &MatchColumn| -> Result<ArrayRef> {
            Ok(match column {
                MatchColumn::Probe(column) => take(probe.column(*column), &probe_rows, None)?,
                MatchColumn::Build(column) => take(build.rows.column(*column), &build_rows, None)?,
                MatchColumn::Separation => {
                    let degrees = pairs.separations[at.clone()].iter();
                    Arc::new(Float64Array::from_iter_values(degrees.map(|d| d * ARCSEC)))
                }
            })
        };
        let columns = self.columns.iter().map(column).collect::<Result<_>>()?;
        self.batch(columns, at.len())
    }

    fn unpaired(
        &self,
        rows: &[u32],
        probe: &RecordBatch,
        build: &IndexedRows,
    ) -> Result<RecordBatch> {
        let probe_rows = UInt32Array::from(rows.to_vec());
        let column = |(column, field): (&MatchColumn, &Arc<arrow::datatypes::Field>)| {
            Ok(match column {
                MatchColumn::Probe(column) => take(probe.column(*column), &probe_rows, None)?,
                MatchColumn::Build(column) => {
                    new_null_array(build.rows.column(*column).data_type(), rows.len())
                }
                MatchColumn::Separation => new_null_array(field.data_type(), rows.len()),
            })
        };
        let named = self.columns.iter().zip(self.schema.fields());
        let columns = named.map(column).collect::<Result<_>>()?;
        self.batch(columns, rows.len())
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// Pairs of probe rows with their nearest, and with all that are exactly as near.
fn with_equally_near(nearest: &Pairs, probe: &RowPositions, build: &IndexedRows) -> Result<Pairs> {
    // Nothing is within a radius below 0.
    let mut radii = vec![-1.0; probe.len()];
    for (row, separation) in nearest.probe.iter().zip(&nearest.separations) {
        radii[*row as usize] = *separation;
    }
    // Nothing is nearer than the nearest: what is within its separation is as near.
    let radii = Radii::of_rows(&radii, None, Bound::AtMost);
    let search = Search::new(&build.index, probe.positions(), radii);
    let mut cursor = search.pairs(nearest.probe.iter().copied());
    let mut buffer = PairBuffer::with_separations(PAIRS_AT_A_TIME);
    let mut pairs = Pairs::default();
    loop {
        check()?;
        let more = cursor.fill(&mut buffer);
        pairs.probe.extend_from_slice(buffer.left());
        pairs.build.extend_from_slice(buffer.right());
        pairs.separations.extend_from_slice(buffer.separations());
        if !more {
            return Ok(pairs);
        }
    }
}

fn rows(count: usize) -> std::ops::Range<u32> {
    // Rows that are gathered in memory and indexed: fewer than 2^32, or the index would have rejected them.
    0..u32::try_from(count).unwrap_or(u32::MAX)
}
