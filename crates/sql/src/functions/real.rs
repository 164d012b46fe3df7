//! The guard of the value rules: no NaN, no infinity and no negative zero leaves what is computed.
//!
//! Arrow orders NaN above everything and -0.0 below 0.0, so either would make comparisons, groups and sorts surprise. MySQL
//! has neither infinities nor NaN.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, Float64Array, PrimitiveArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

/// Name of the guard that turns NaN and infinities into NULL and -0.0 into 0.0.
pub const REAL: &str = "meridian_real";

/// The guard named [`REAL`].
pub fn real() -> Arc<ScalarUDF> {
    static GUARD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let types = [DataType::Float64, DataType::Float32];
        let types = types.map(|it| TypeSignature::Exact(vec![it]));
        Arc::new(ScalarUDF::new_from_impl(Guard {
            signature: Signature::one_of(types.into(), Volatility::Immutable),
        }))
    });
    Arc::clone(&GUARD)
}

/// A constant as the value rules have it: -0.0 is 0.0; NaN and infinities are NULL.
pub fn real_constant(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(number) => {
            ScalarValue::Float64(number.filter(|it| it.is_finite()).map(|it| it + 0.0))
        }
        ScalarValue::Float32(number) => {
            ScalarValue::Float32(number.filter(|it| it.is_finite()).map(|it| it + 0.0))
        }
        other => other,
    }
}

/// A column of computed values as the value rules have it; one of another type than floating point as it is.
pub(super) fn real_column(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => keep_where(column.as_primitive(), f64::is_finite),
        DataType::Float32 => kept(
            column.as_primitive::<Float32Type>(),
            |x| x + 0.0,
            f32::is_finite,
        ),
        _ => column,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Guard {
    signature: Signature,
}

impl ScalarUDFImpl for Guard {
    fn name(&self) -> &str {
        REAL
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [only] => Ok(only.clone()),
            _ => exec_err!("{REAL} takes one number"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                Ok(ColumnarValue::Scalar(real_constant(value.clone())))
            }
            [ColumnarValue::Array(column)] => {
                Ok(ColumnarValue::Array(real_column(Arc::clone(column))))
            }
            _ => exec_err!("{REAL} takes one number"),
        }
    }
}

/// NULL where `keeps` says no; -0.0 becomes 0.0 (adding 0.0 does just that).
pub(super) fn keep_where(values: &Float64Array, keeps: impl Fn(f64) -> bool) -> ArrayRef {
    kept(values, |x| x + 0.0, keeps)
}

fn kept<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    positive: impl Fn(T::Native) -> T::Native,
    keeps: impl Fn(T::Native) -> bool,
) -> ArrayRef {
    let is_same = |x: T::Native| keeps(x) & positive(x).is_eq(x);
    if values
        .values()
        .iter()
        .fold(true, |all, &x| all & is_same(x))
    {
        return Arc::new(values.clone());
    }
    let numbers = values.values().iter().map(|&x| positive(x)).collect();
    kept_numbers::<T>(numbers, values.nulls().cloned(), keeps)
}

/// The numbers as an array that is also NULL where `keeps` says no.
pub(super) fn keep_numbers(
    numbers: Vec<f64>,
    nulls: Option<NullBuffer>,
    keeps: impl Fn(f64) -> bool,
) -> ArrayRef {
    kept_numbers::<Float64Type>(numbers, nulls, keeps)
}

fn kept_numbers<T: ArrowPrimitiveType>(
    mut numbers: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    keeps: impl Fn(T::Native) -> bool,
) -> ArrayRef {
    let all = numbers.iter().fold(true, |all, &x| all & keeps(x));
    let nulls = if all {
        nulls
    } else {
        let kept = BooleanBuffer::collect_bool(numbers.len(), |at| keeps(numbers[at]));
        // What is computed of the column next finds no NaN in the place of a NULL, which it would have to look at one by one.
        for number in &mut numbers {
            *number = if keeps(*number) {
                *number
            } else {
                T::Native::ZERO
            };
        }
        NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(kept)))
    };
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(numbers), nulls))
}

#[cfg(test)]
mod tests {
    use arrow::array::Float32Array;

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
        let guarded = real_column(Arc::new(values));
        let guarded = guarded.as_primitive::<Float64Type>();
        assert_eq!(
            guarded.iter().collect::<Vec<_>>(),
            vec![Some(1.5), None, None, Some(0.0), None]
        );
        assert!(guarded.value(3).is_sign_positive());
    }

    #[test]
    fn constants_and_single_precision_follow_the_same_rules() {
        let singles = Float32Array::from(vec![-0.0, f32::INFINITY, 2.5]);
        let guarded = real_column(Arc::new(singles));
        let guarded = guarded.as_primitive::<Float32Type>();
        assert!(guarded.value(0).is_sign_positive());
        assert!(guarded.is_null(1));
        let zero = real_constant(ScalarValue::Float64(Some(-0.0)));
        assert_eq!(zero, ScalarValue::Float64(Some(0.0)));
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(real_constant(ScalarValue::Float64(Some(number))).is_null());
        }
    }
}
