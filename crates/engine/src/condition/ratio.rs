//! A bound on a colour, the difference of two magnitudes, as a bound on the ratio of their fluxes.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::bits::{bits_of_pairs, restrict};
use super::chain::{comparison, plain_column};
use super::exact::Exact;

/// By how much, relative to it, a flux may lie beside the bound and still be doubtful.
///
/// A colour is the difference of two magnitudes, each right to 6e-13 (see [`super::within`]), and rounded: right to 1.3e-12,
/// which is a factor of 10^(1.3e-12 / 2.5) = 1 + 1.2e-12 of the ratio. The factor between the fluxes is itself right to 2e-13
/// and its product to 2e-16.
const DOUBT: f64 = 1e-11;
/// Factors beyond this or its inverse are left alone: products with them might lose digits.
const LARGEST_FACTOR: f64 = 1e200;
/// Below this a product might be too small to have all its digits.
const SMALLEST_FLUX: f64 = 1e-90;

/// The condition that `redder` is more than a certain number of times `bluer`: both positive.
#[derive(Debug)]
pub(super) struct Ratio {
    bluer: usize,
    redder: usize,
    /// Of `bluer`: `redder` above this many times it is enough.
    enough: f64,
    /// Of `bluer`: `redder` below this many times it is too little.
    too_little: f64,
    /// Decides in between.
    exact: Exact,
}

impl Ratio {
    /// The ratio that decides `predicate`; `None` if it is not a bound on a colour.
    pub fn of(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some((left, op, bound)) = comparison(predicate) else {
            return Ok(None);
        };
        let Some((first, second)) = colour(left, schema) else {
            return Ok(None);
        };
        // mag(first) - mag(second) > bound where second / first > 10^(bound / 2.5), and the other way round.
        let (bluer, redder, bound) = match op {
            Operator::Gt | Operator::GtEq => (first, second, bound),
            _ => (second, first, -bound),
        };
        let factor = 10_f64.powf(bound / 2.5);
        if !(LARGEST_FACTOR.recip()..=LARGEST_FACTOR).contains(&factor) {
            return Ok(None);
        }
        Ok(Some(Self {
            bluer,
            redder,
            enough: factor * (1.0 + DOUBT),
            too_little: factor * (1.0 - DOUBT),
            exact: Exact::of(predicate, schema)?,
        }))
    }

    /// Those of the rows in `alive` for which the condition is true.
    pub fn keep(&self, columns: &[ArrayRef], alive: BooleanBuffer) -> Result<BooleanBuffer> {
        let (bluer, redder) = (&columns[self.bluer], &columns[self.redder]);
        let (possible, sure) = match (bluer.data_type(), redder.data_type()) {
            (DataType::Float32, DataType::Float32) => {
                self.compare::<Float32Type, Float32Type>(bluer, redder)
            }
            (DataType::Float32, _) => self.compare::<Float32Type, Float64Type>(bluer, redder),
            (_, DataType::Float32) => self.compare::<Float64Type, Float32Type>(bluer, redder),
            _ => self.compare::<Float64Type, Float64Type>(bluer, redder),
        };
        let possible = restrict(possible, &alive, &[bluer, redder]);
        if possible.count_set_bits() == 0 {
            return Ok(possible);
        }
        let sure = &possible & &sure;
        let doubtful = &possible & &!&sure;
        if doubtful.count_set_bits() == 0 {
            return Ok(sure);
        }
        Ok(&sure | &self.exact.keep(columns, doubtful)?)
    }

    /// The rows for which the condition may be true, and those for which it is.
    fn compare<B, R>(&self, bluer: &ArrayRef, redder: &ArrayRef) -> (BooleanBuffer, BooleanBuffer)
    where
        B: ArrowPrimitiveType<Native: Into<f64>>,
        R: ArrowPrimitiveType<Native: Into<f64>>,
    {
        let bluer = bluer.as_primitive::<B>().values();
        let redder = redder.as_primitive::<R>().values();
        let possible = bits_of_pairs(bluer, redder, |b, r| {
            let (b, r): (f64, f64) = (b.into(), r.into());
            b > 0.0 && r > 0.0 && (r >= b * self.too_little || b < SMALLEST_FLUX)
        });
        if possible.count_set_bits() == 0 {
            return (possible.clone(), possible);
        }
        let sure = bits_of_pairs(bluer, redder, |b, r| {
            let (b, r): (f64, f64) = (b.into(), r.into());
            b >= SMALLEST_FLUX && r > b * self.enough && r < f64::INFINITY
        });
        (possible, sure)
    }
}

/// The two columns whose magnitudes, by the same function, are subtracted.
fn colour(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(usize, usize)> {
    let inner = match expr.downcast_ref::<ScalarFunctionExpr>() {
        Some(guard) if guard.name() == sql::functions::REAL => guard.args().first()?,
        Some(_) => return None,
        None => expr,
    };
    let difference = inner.downcast_ref::<BinaryExpr>()?;
    if *difference.op() != Operator::Minus {
        return None;
    }
    let (first, first_name) = magnitude(difference.left(), schema)?;
    let (second, second_name) = magnitude(difference.right(), schema)?;
    (first_name == second_name).then_some((first, second))
}

fn magnitude<'a>(expr: &'a Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(usize, &'a str)> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let [argument] = function.args() else {
        return None;
    };
    sql::functions::is_magnitude_of_flux(function.name())
        .then(|| plain_column(argument, schema))
        .flatten()
        .map(|column| (column, function.name()))
}
