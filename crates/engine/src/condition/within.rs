//! A bound on a monotone expression of one column, as a range of the column's own values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, RecordBatch};
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
            expr: renumber(left, &[chain.column])?,
            schema: Arc::new(schema.project(&[chain.column])?),
        };
        let range = match schema.field(chain.column).data_type() {
            DataType::Float32 => search.single(chain.magnitude)?,
            _ => search.double(chain.magnitude)?,
        };
        let Some(range) = range else {
            return Ok(None);
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
    /// The monotone expression that it compares.
    expr: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
}

/// Columns of the numbers with some ordinals.
type Numbers<'a> = &'a dyn Fn(&[u64]) -> ArrayRef;

impl Search {
    /// The range of all numbers, or of those that have a magnitude; `None` where the condition is not true in one range.
    fn single(&self, magnitude: bool) -> Result<Option<Range>> {
        let zero = ordinal_32(0.0);
        let (first, known, last) = if magnitude {
            (zero + 1, zero + 1, ordinal_32(f32::MAX))
        } else {
            let (first, last) = (f32::NEG_INFINITY, f32::INFINITY);
            (ordinal_32(first), zero, ordinal_32(last))
        };
        let ends = self.ends([first, known, last].map(u64::from), &|ordinals| {
            let values = ordinals.iter().map(|at| value_32(*at as u32));
            Arc::new(Float32Array::from_iter_values(values))
        })?;
        Ok(ends.map(|ends| {
            let (low, high) = ends.map_or((1.0, 0.0), |(first, last)| {
                (value_32(first as u32), value_32(last as u32))
            });
            Range::Single { low, high }
        }))
    }

    fn double(&self, magnitude: bool) -> Result<Option<Range>> {
        let (first, known, last) = if magnitude {
            (SMALLEST_FLUX, SMALLEST_FLUX, f64::MAX)
        } else {
            (f64::NEG_INFINITY, 0.0, f64::INFINITY)
        };
        let ends = self.ends([first, known, last].map(ordinal_64), &|ordinals| {
            let values = ordinals.iter().map(|at| value_64(*at));
            Arc::new(Float64Array::from_iter_values(values))
        })?;
        Ok(ends.map(|ends| {
            let (low, high) = ends.map_or((1.0, 0.0), |(first, last)| {
                (value_64(first), value_64(last))
            });
            Range::Double { low, high }
        }))
    }

    /// The ends of the range in which the condition is true, if it is true at all. `None` where the expression is NULL for the
    /// number `known`, and thus perhaps here and there.
    fn ends(
        &self,
        [low, known, high]: [u64; 3],
        values: Numbers<'_>,
    ) -> Result<Option<Option<(u64, u64)>>> {
        match self.domain([low, known, high], values)? {
            Some((low, high)) => self.ray(low, high, values).map(Some),
            None => Ok(None),
        }
    }

    /// The first and the last ordinal for which the expression has a value: beyond them it is too large for a double, and NULL.
    fn domain(
        &self,
        [low, known, high]: [u64; 3],
        values: Numbers<'_>,
    ) -> Result<Option<(u64, u64)>> {
        let test = |values| self.has_value(values);
        let has_value = test(values(&[low, known, high]))?;
        if !has_value.value(1) {
            return Ok(None);
        }
        let low = match has_value.value(0) {
            true => low,
            false => change([low, known], false, values, &test)?.1,
        };
        let high = match has_value.value(2) {
            true => high,
            false => change([known, high], true, values, &test)?.0,
        };
        Ok(Some((low, high)))
    }

    /// The first and the last ordinal from `low` to `high` whose value makes the condition true; `None` if none does. One of
    /// the two ends is among them if any is.
    fn ray(&self, low: u64, high: u64, values: Numbers<'_>) -> Result<Option<(u64, u64)>> {
        let ends = self.truth(values(&[low, high]))?;
        let (at_low, at_high) = (ends.value(0), ends.value(1));
        if at_low == at_high {
            return Ok(at_low.then_some((low, high)));
        }
        let test = |values| self.truth(values);
        let (before, after) = change([low, high], at_low, values, &test)?;
        Ok(Some(if at_low { (low, before) } else { (after, high) }))
    }

    fn has_value(&self, values: ArrayRef) -> Result<BooleanBuffer> {
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), vec![values])?;
        let values = self.expr.evaluate(&rows)?.into_array(rows.num_rows())?;
        Ok(match values.logical_nulls() {
            Some(nulls) => nulls.into_inner(),
            None => BooleanBuffer::new_set(rows.num_rows()),
        })
    }

    fn truth(&self, values: ArrayRef) -> Result<BooleanBuffer> {
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), vec![values])?;
        truth(&self.predicate, &rows)
    }
}

/// The two neighbouring ordinals between which a test changes its outcome, which it does once from the first to the last of
/// these; `at_first` is its outcome there.
fn change(
    [mut before, mut after]: [u64; 2],
    at_first: bool,
    values: Numbers<'_>,
    test: &dyn Fn(ArrayRef) -> Result<BooleanBuffer>,
) -> Result<(u64, u64)> {
    while after - before > 1 {
        let parts = (after - before).min(TRIED_AT_ONCE);
        let step = (after - before) / parts;
        let tried: Vec<u64> = (1..parts).map(|part| before + step * part).collect();
        let outcomes = test(values(&tried))?;
        let same = outcomes.iter().take_while(|it| *it == at_first).count();
        if let Some(changed) = tried.get(same) {
            after = *changed;
        }
        if same > 0 {
            before = tried[same - 1];
        }
    }
    Ok((before, after))
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
