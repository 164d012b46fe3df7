//! `ivo_histogram(value, lower, upper, bins)`: how many values are in each of so many bins of equal width.
//!
//! The first count is of values below `lower`, NULLs among them, and the last of those from `upper` on.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

/// The most bins there may be: more are requested by mistake.
const MOST_BINS: usize = 1_000_000;

/// The aggregate.
pub(crate) fn histogram() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Histogram {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Histogram {
    signature: Signature,
}

fn list_of_counts() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, false)))
}

impl AggregateUDFImpl for Histogram {
    fn name(&self) -> &str {
        "ivo_histogram"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let number = |given: &DataType| given.is_numeric() || *given == DataType::Null;
        if arguments.len() != 4 || !arguments.iter().all(number) {
            return plan_err!(
                "ivo_histogram takes four numbers: value, lower, upper, number of bins; {} arguments were given",
                arguments.len()
            );
        }
        let mut types = vec![DataType::Float64; 4];
        types[3] = DataType::Int64;
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(list_of_counts())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let [_, lower, upper, bins] = args.exprs else {
            return exec_err!("ivo_histogram takes four numbers");
        };
        let (lower, upper, bins) = (constant(lower)?, constant(upper)?, constant(bins)?);
        let sensible = (1.0..=MOST_BINS as f64).contains(&bins) && lower < upper;
        if !sensible {
            return exec_err!(
                "ivo_histogram takes a lower limit below its upper one, and 1 to {MOST_BINS} bins; \
                 {lower}, {upper} and {bins} were given"
            );
        }
        let bins = bins as usize;
        Ok(Box::new(Counts {
            lower,
            upper,
            counts: vec![0; bins + 2],
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[counts]", args.name);
        Ok(vec![Arc::new(Field::new(name, list_of_counts(), true))])
    }
}

fn constant(expr: &Arc<dyn PhysicalExpr>) -> Result<f64> {
    let value = expr.downcast_ref::<Literal>().map(Literal::value);
    let number = value.and_then(|value| value.cast_to(&DataType::Float64).ok());
    match number {
        Some(ScalarValue::Float64(Some(number))) => Ok(number),
        _ => exec_err!(
            "the limits and the number of bins of ivo_histogram have to be constant numbers"
        ),
    }
}

#[derive(Debug)]
struct Counts {
    lower: f64,
    upper: f64,
    /// Below, in each bin, above.
    counts: Vec<i64>,
}

impl Counts {
    fn place(&self, value: Option<f64>) -> usize {
        let bins = self.counts.len() - 2;
        match value {
            Some(value) if value >= self.upper => bins + 1,
            Some(value) if value >= self.lower => {
                let at = (value - self.lower) / (self.upper - self.lower) * bins as f64;
                // Rounding may reach the upper limit.
                1 + (at as usize).min(bins - 1)
            }
            _ => 0,
        }
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>() {
            let place = self.place(value);
            self.counts[place] += 1;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let counts: Vec<ScalarValue> = self.counts.iter().map(|n| ScalarValue::from(*n)).collect();
        let list = ScalarValue::new_list(&counts, &DataType::Int64, false);
        Ok(ScalarValue::List(list))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<i64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            let counts: ArrayRef = lists.value(row);
            let counts: &Int64Array = counts.as_primitive::<Int64Type>();
            for (sum, count) in self.counts.iter_mut().zip(counts.values()) {
                *sum += count;
            }
        }
        Ok(())
    }
}
