//! A bound on a monotone expression of one column, as a range of the column's own values.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use vortex::expr::{Expression, and, col, gt_eq, lit, lt_eq};

use super::bits::{bits, restrict};
use super::chain::{Chain, comparison, plain_column};
use super::exact::{Exact, renumber, truth};

/// Values tried at a time while a bound is looked for.
const TRIED_AT_ONCE: u64 = 128;

/// By how much, relative to it, a double may lie beside the bound that was found and still be doubtful, where a magnitude is
/// compared.
///
/// A library's logarithm is right to 2 units in the last place, of numbers up to 324: 1.2e-13. Times 2.5, less 48.6 and rounded
/// twice, a magnitude is right to 6e-13, which is a factor of 10^(6e-13 / 2.5) = 1 + 5.6e-13 of the flux. For a 32-bit column
/// no doubt remains: neighbouring values are a factor of 1 + 6e-8 apart, so their computed magnitudes differ.
const DOUBT: f64 = 1e-11;

/// Doubles below this are always doubtful where a magnitude is compared: scaled to the unit of the magnitude they might vanish.
const SMALLEST_FLUX: f64 = 1e-250;

/// The condition that a column lies in a closed range.
#[derive(Debug)]
pub(super) struct Within {
    /// The column.
    pub column: usize,
    range: Range,
    /// Decides on values near the ends of the range; `None` if the range is exact.
    doubtful: Option<Exact>,
}

/// A closed range of values; empty if `low > high`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Range {
    Single { low: f32, high: f32 },
    Double { low: f64, high: f64 },
}

impl Within {
    /// The range in which `predicate` is true; `None` if it is not a bound on a monotone expression.
    pub fn of(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some((left, op, bound)) = comparison(predicate) else {
            return Ok(None);
        };
        if let Some(column) = plain_column(left, schema) {
            return Ok(Some(Self {
                column,
                range: match schema.field(column).data_type() {
                    DataType::Float32 => single_beyond(op, bound),
                    _ => double_beyond(op, bound),
                },
                doubtful: None,
            }));
        }
        let Some(chain) = Chain::of(left, schema) else {
            return Ok(None);
        };
        let search = Search {
            predicate: renumber(predicate, &[chain.column])?,
            schema: Arc::new(schema.project(&[chain.column])?),
        };
        let range = match schema.field(chain.column).data_type() {
            DataType::Float32 => search.single(chain.magnitude)?,
            _ => search.double(chain.magnitude)?,
        };
        let doubtful = match range {
            Range::Double { .. } if chain.magnitude => Some(Exact::of(predicate, schema)?),
            _ => None,
        };
        Ok(Some(Self {
            column: chain.column,
            range,
            doubtful,
        }))
    }

    /// The range, and what may be in it, as a condition on the column of this name.
    pub fn hint(&self, name: &str) -> Expression {
        match self.range {
            Range::Single { low, high } => {
                and(gt_eq(col(name), lit(low)), lt_eq(col(name), lit(high)))
            }
            Range::Double { low, high } => {
                let (low, high) = match self.doubtful {
                    Some(_) => (0.0, (high * (1.0 + DOUBT)).max(SMALLEST_FLUX)),
                    None => (low, high),
                };
                and(gt_eq(col(name), lit(low)), lt_eq(col(name), lit(high)))
            }
        }
    }

    /// Those of the rows in `alive` for which the condition is true.
    pub fn keep(&self, columns: &[ArrayRef], alive: BooleanBuffer) -> Result<BooleanBuffer> {
        let column = &columns[self.column];
        let found = match self.range {
            Range::Single { low, high } => {
                let values = column.as_primitive::<Float32Type>().values();
                bits(values, |value| low <= value && value <= high)
            }
            Range::Double { low, high } => {
                let values = column.as_primitive::<Float64Type>().values();
                bits(values, |value| low <= value && value <= high)
            }
        };
        let found = restrict(found, &alive, &[column]);
        match (&self.doubtful, self.range) {
            (Some(exact), Range::Double { low, high }) => {
                let near = |value: f64, end: f64| (value - end).abs() <= end * DOUBT;
                let values = column.as_primitive::<Float64Type>().values();
                let doubtful = bits(values, |value| {
                    near(value, low) || near(value, high) || (0.0 < value && value < SMALLEST_FLUX)
                });
                let doubtful = restrict(doubtful, &alive, &[column]);
                if doubtful.count_set_bits() == 0 {
                    return Ok(found);
                }
                let true_ones = exact.keep(columns, doubtful.clone())?;
                Ok(&(&found & &!&doubtful) | &true_ones)
            }
            _ => Ok(found),
        }
    }
}

/// The doubles `x` for which `x op bound` is true.
fn double_beyond(op: Operator, bound: f64) -> Range {
    let (low, high) = match op {
        Operator::Gt => (bound.next_up(), f64::INFINITY),
        Operator::GtEq => (bound, f64::INFINITY),
        Operator::Lt => (f64::NEG_INFINITY, bound.next_down()),
        _ => (f64::NEG_INFINITY, bound),
    };
    Range::Double { low, high }
}

/// The 32-bit numbers `x` for which `x op bound` is true.
fn single_beyond(op: Operator, bound: f64) -> Range {
    let Range::Double { low, high } = double_beyond(op, bound) else {
        return Range::Single {
            low: 1.0,
            high: 0.0,
        };
    };
    let (nearest_low, nearest_high) = (low as f32, high as f32);
    Range::Single {
        low: if f64::from(nearest_low) < low {
            nearest_low.next_up()
        } else {
            nearest_low
        },
        high: if f64::from(nearest_high) > high {
            nearest_high.next_down()
        } else {
            nearest_high
        },
    }
}

/// Looks for the ends of the range in which a condition on one column is true.
struct Search {
    predicate: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
}

impl Search {
    /// The range of all numbers, or of those that have a magnitude.
    fn single(&self, magnitude: bool) -> Result<Range> {
        let (first, last) = if magnitude {
            (ordinal_32(0.0) + 1, ordinal_32(f32::MAX))
        } else {
            (ordinal_32(f32::NEG_INFINITY), ordinal_32(f32::INFINITY))
        };
        let ends = self.ray(first.into(), last.into(), &|ordinals| {
            let values = ordinals.iter().map(|at| value_32(*at as u32));
            Arc::new(Float32Array::from_iter_values(values))
        })?;
        let (low, high) = ends.map_or((1.0, 0.0), |(first, last)| {
            (value_32(first as u32), value_32(last as u32))
        });
        Ok(Range::Single { low, high })
    }

    fn double(&self, magnitude: bool) -> Result<Range> {
        let (first, last) = if magnitude {
            (ordinal_64(SMALLEST_FLUX), ordinal_64(f64::MAX))
        } else {
            (ordinal_64(f64::NEG_INFINITY), ordinal_64(f64::INFINITY))
        };
        let ends = self.ray(first, last, &|ordinals| {
            let values = ordinals.iter().map(|at| value_64(*at));
            Arc::new(Float64Array::from_iter_values(values))
        })?;
        let (low, high) = ends.map_or((1.0, 0.0), |(first, last)| {
            (value_64(first), value_64(last))
        });
        Ok(Range::Double { low, high })
    }

    /// The first and the last ordinal from `low` to `high` whose value makes the condition true; `None` if none does. One of
    /// the two ends is among them if any is.
    fn ray(
        &self,
        low: u64,
        high: u64,
        values: &dyn Fn(&[u64]) -> ArrayRef,
    ) -> Result<Option<(u64, u64)>> {
        let ends = self.truth(values(&[low, high]))?;
        let (at_low, at_high) = (ends.value(0), ends.value(1));
        if at_low == at_high {
            return Ok(at_low.then_some((low, high)));
        }
        // Between `before` and `after` truth changes once.
        let (mut before, mut after) = (low, high);
        while after - before > 1 {
            let parts = (after - before).min(TRIED_AT_ONCE);
            let step = (after - before) / parts;
            let tried: Vec<u64> = (1..parts).map(|part| before + step * part).collect();
            let truth = self.truth(values(&tried))?;
            let same = truth.iter().take_while(|value| *value == at_low).count();
            if let Some(changed) = tried.get(same) {
                after = *changed;
            }
            if same > 0 {
                before = tried[same - 1];
            }
        }
        Ok(Some(if at_low { (low, before) } else { (after, high) }))
    }

    fn truth(&self, values: ArrayRef) -> Result<BooleanBuffer> {
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), vec![values])?;
        truth(&self.predicate, &rows)
    }
}

/// Where a number stands among all in their order (-0.0 just below 0.0).
fn ordinal_32(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_sign_negative() {
        !bits
    } else {
        bits | 1 << 31
    }
}

fn value_32(ordinal: u32) -> f32 {
    let negative = ordinal >> 31 == 0;
    f32::from_bits(if negative {
        !ordinal
    } else {
        ordinal & !(1 << 31)
    })
}

fn ordinal_64(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() {
        !bits
    } else {
        bits | 1 << 63
    }
}

fn value_64(ordinal: u64) -> f64 {
    let negative = ordinal >> 63 == 0;
    f64::from_bits(if negative {
        !ordinal
    } else {
        ordinal & !(1 << 63)
    })
}
