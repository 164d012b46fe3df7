//! Guards of the value rules: no NaN and no negative zero leaves an expression.
//!
//! Arrow orders NaN above everything and -0.0 below 0.0, so either would make comparisons, groups and sorts surprise.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Name of the guard that turns NaN into NULL and -0.0 into 0.0.
pub const REAL: &str = "meridian_real";
/// Name of the guard that also turns infinities into NULL, for functions that have poles.
pub const FINITE: &str = "meridian_finite";

/// The guard named [`REAL`].
pub fn real() -> Arc<ScalarUDF> {
    static GUARD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Guard::udf(REAL, false));
    Arc::clone(&GUARD)
}

/// The guard named [`FINITE`].
pub fn finite() -> Arc<ScalarUDF> {
    static GUARD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Guard::udf(FINITE, true));
    Arc::clone(&GUARD)
}

#[derive(Debug)]
struct Guard {
    name: &'static str,
    /// Whether infinities are turned into NULL as well.
    finite: bool,
    signature: Signature,
}

impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for Guard {}
impl std::hash::Hash for Guard {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Guard {
    fn udf(name: &'static str, finite: bool) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(Self {
            name,
            finite,
            signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
        }))
    }
}

impl ScalarUDFImpl for Guard {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(&args.args)?;
        let values = values[0].as_primitive::<Float64Type>();
        // Two loops, each with its condition in it: a call for each value would take longer than all the rest.
        Ok(ColumnarValue::Array(if self.finite {
            keep_where(values, f64::is_finite)
        } else {
            keep_where(values, |x| !x.is_nan())
        }))
    }
}

/// NULL where `keeps` says no; -0.0 becomes 0.0 (adding 0.0 does just that).
pub(super) fn keep_where(values: &Float64Array, keeps: impl Fn(f64) -> bool) -> ArrayRef {
    let positive = values.values().iter().map(|x| x + 0.0).collect();
    keep_numbers(positive, values.nulls().cloned(), keeps)
}

/// The numbers as an array that is also NULL where `keeps` says no.
pub(super) fn keep_numbers(
    numbers: Vec<f64>,
    nulls: Option<NullBuffer>,
    keeps: impl Fn(f64) -> bool,
) -> ArrayRef {
    let all = numbers.iter().fold(true, |all, &x| all & keeps(x));
    let nulls = if all {
        nulls
    } else {
        let kept = BooleanBuffer::collect_bool(numbers.len(), |at| keeps(numbers[at]));
        NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(kept)))
    };
    Arc::new(Float64Array::new(numbers.into(), nulls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_becomes_null_and_negative_zero_positive() {
        let values = Float64Array::from(vec![
            Some(1.5),
            None,
            Some(f64::NAN),
            Some(-0.0),
            Some(f64::INFINITY),
        ]);
        let guarded = keep_where(&values, |x| !x.is_nan());
        let guarded = guarded.as_primitive::<Float64Type>();
        assert_eq!(
            guarded.iter().collect::<Vec<_>>(),
            vec![Some(1.5), None, None, Some(0.0), Some(f64::INFINITY)]
        );
        assert!(guarded.value(3).is_sign_positive());
        assert!(keep_where(&values, f64::is_finite).is_null(4));
    }
}
