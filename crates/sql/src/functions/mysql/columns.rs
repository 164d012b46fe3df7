//! Functions of numbers, computed for whole columns at once: a value at a time costs twenty times as much.
//!
//! Each gives what the function of a row gives, or nothing: where the columns are of other types than it knows, or where some
//! result does not fit and a row has to say so.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Float64Array, Int64Array, PrimitiveArray,
    UInt64Array,
};
use arrow::compute::{binary, try_binary};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use arrow::error::ArrowError;

use crate::functions::real::real_column;

/// The same of whole columns.
pub(in crate::functions) type OfColumns = fn(&[ArrayRef]) -> Option<ArrayRef>;

fn as_type<T: ArrowPrimitiveType>(column: &ArrayRef) -> Option<&PrimitiveArray<T>> {
    column.as_primitive_opt::<T>()
}

/// An operator of the engine's that checks, of integers.
fn checked(
    columns: &[ArrayRef],
    operator: fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>,
) -> Option<ArrayRef> {
    let [left, right] = columns else {
        return None;
    };
    let signed = |column: &ArrayRef| *column.data_type() == DataType::Int64;
    (signed(left) && signed(right)).then(|| operator(left, right).ok())?
}

pub(super) fn add(columns: &[ArrayRef]) -> Option<ArrayRef> {
    checked(columns, arrow::compute::kernels::numeric::add)
}

pub(super) fn subtract(columns: &[ArrayRef]) -> Option<ArrayRef> {
    checked(columns, arrow::compute::kernels::numeric::sub)
}

pub(super) fn multiply(columns: &[ArrayRef]) -> Option<ArrayRef> {
    checked(columns, arrow::compute::kernels::numeric::mul)
}

/// A quotient or a remainder of integers, NULL for division by zero.
fn divided(
    columns: &[ArrayRef],
    of: impl Fn(i64, i64) -> i64,
    fails: impl Fn(i64, i64) -> bool,
) -> Option<ArrayRef> {
    let [left, right] = columns else {
        return None;
    };
    let (left, right) = (as_type::<Int64Type>(left)?, as_type::<Int64Type>(right)?);
    let mut failed = false;
    let divided: Int64Array = (left.iter().zip(right))
        .map(|(left, right)| {
            let (left, right) = (left?, right.filter(|right| *right != 0)?);
            failed |= fails(left, right);
            Some(of(left, right))
        })
        .collect();
    (!failed).then(|| Arc::new(divided) as ArrayRef)
}

pub(super) fn modulo(columns: &[ArrayRef]) -> Option<ArrayRef> {
    divided(columns, i64::wrapping_rem, |_, _| false)
}

pub(super) fn div(columns: &[ArrayRef]) -> Option<ArrayRef> {
    let fails = |left: i64, right: i64| left.checked_div(right).is_none();
    divided(columns, i64::wrapping_div, fails)
}

/// The bits of integers.
fn bits(column: &ArrayRef) -> Option<UInt64Array> {
    match column.data_type() {
        DataType::UInt64 => as_type::<UInt64Type>(column).cloned(),
        DataType::Int64 => Some(as_type::<Int64Type>(column)?.unary(|number| number as u64)),
        _ => None,
    }
}

fn bitwise(columns: &[ArrayRef], of: impl Fn(u64, u64) -> u64) -> Option<ArrayRef> {
    let [left, right] = columns else {
        return None;
    };
    let bits: UInt64Array = binary(&bits(left)?, &bits(right)?, of).ok()?;
    Some(Arc::new(bits))
}

pub(super) fn bit_and(columns: &[ArrayRef]) -> Option<ArrayRef> {
    bitwise(columns, |left, right| left & right)
}

pub(super) fn bit_or(columns: &[ArrayRef]) -> Option<ArrayRef> {
    bitwise(columns, |left, right| left | right)
}

pub(super) fn bit_xor(columns: &[ArrayRef]) -> Option<ArrayRef> {
    bitwise(columns, |left, right| left ^ right)
}

pub(super) fn bit_not(columns: &[ArrayRef]) -> Option<ArrayRef> {
    let bits: UInt64Array = bits(columns.first()?)?.unary(|bits| !bits);
    Some(Arc::new(bits))
}

/// Doubles of doubles; integers as they are.
fn doubles(columns: &[ArrayRef], of: impl Fn(f64) -> f64) -> Option<ArrayRef> {
    let [column] = columns else {
        return None;
    };
    match column.data_type() {
        DataType::Int64 | DataType::UInt64 => Some(Arc::clone(column)),
        _ => {
            let numbers = as_type::<Float64Type>(column)?.unary::<_, Float64Type>(of);
            Some(real_column(Arc::new(numbers)))
        }
    }
}

pub(super) fn ceil(columns: &[ArrayRef]) -> Option<ArrayRef> {
    doubles(columns, f64::ceil)
}

pub(super) fn floor(columns: &[ArrayRef]) -> Option<ArrayRef> {
    doubles(columns, f64::floor)
}

pub(super) fn abs(columns: &[ArrayRef]) -> Option<ArrayRef> {
    let [column] = columns else {
        return None;
    };
    let Some(integers) = as_type::<Int64Type>(column) else {
        return doubles(columns, f64::abs);
    };
    let positive = |number: i64| number.checked_abs().ok_or(ArrowError::DivideByZero);
    let positive: Int64Array = integers.try_unary(positive).ok()?;
    Some(Arc::new(positive))
}

pub(super) fn sign(columns: &[ArrayRef]) -> Option<ArrayRef> {
    let numbers = as_type::<Float64Type>(columns.first()?)?;
    let sign = |number: f64| i64::from(number > 0.0) - i64::from(number < 0.0);
    let signs: Int64Array = numbers.unary(sign);
    Some(Arc::new(signs))
}

/// Doubles rounded to digits after their points.
pub(super) fn rounded(columns: &[ArrayRef], of: impl Fn(f64, i64) -> f64) -> Option<ArrayRef> {
    let numbers = as_type::<Float64Type>(columns.first()?)?;
    let rounded: Float64Array = match columns.get(1) {
        Some(digits) => {
            let digits = as_type::<Int64Type>(digits)?;
            try_binary(numbers, digits, |number, digits| Ok(of(number, digits))).ok()?
        }
        None => numbers.unary(|number| of(number, 0)),
    };
    Some(real_column(Arc::new(rounded)))
}

#[cfg(test)]
mod tests {
    use arrow::array::new_null_array;
    use arrow::compute::concat;
    use proptest::prelude::*;

    use super::super::numbers::FUNCTIONS;
    use super::super::row_function::{Arity, column_of};
    use super::super::value::value_at;
    use super::*;

    /// Numbers of which many are at the ends of the ranges.
    fn column() -> impl Strategy<Value = Vec<ArrayRef>> {
        let integer = prop_oneof![
            any::<i64>(),
            -3_i64..4,
            Just(i64::MIN),
            Just(i64::MAX),
            -320_i64..320
        ];
        let unsigned = prop_oneof![any::<u64>(), 0_u64..4, Just(u64::MAX)];
        let double = prop_oneof![
            any::<i32>().prop_map(|n| f64::from(n) / 8.0),
            -1e300..1e300,
            -3.0..3.0,
            Just(0.5),
            Just(-2.5)
        ];
        let rows = 1..20_usize;
        let with_nulls = |column: ArrayRef| {
            let nulls = new_null_array(column.data_type(), 1);
            concat(&[&column, &nulls, &column]).map(|column| vec![column])
        };
        prop_oneof![
            prop::collection::vec(integer, rows.clone())
                .prop_map(|it| Arc::new(Int64Array::from(it)) as ArrayRef),
            prop::collection::vec(unsigned, rows.clone())
                .prop_map(|it| Arc::new(UInt64Array::from(it)) as ArrayRef),
            prop::collection::vec(double, rows)
                .prop_map(|it| Arc::new(Float64Array::from(it)) as ArrayRef),
        ]
        .prop_map(move |column| with_nulls(column).unwrap_or_default())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn columns_are_what_their_rows_are(left in column(), right in column()) {
            let rows = left[0].len().min(right[0].len());
            let both = [left[0].slice(0, rows), right[0].slice(0, rows)];
            for function in FUNCTIONS {
                let Some(of_columns) = function.of_columns else {
                    continue;
                };
                let Arity(least, most) = function.arity;
                for given in least..=most.min(2) {
                    let columns = &both[..given];
                    let Some(found) = of_columns(columns) else {
                        continue;
                    };
                    let row = |row| {
                        let values: Vec<_> =
                            columns.iter().map(|column| value_at(column, row).unwrap()).collect();
                        function.row(&values)
                    };
                    let values = (0..rows).map(row).collect::<Result<Vec<_>, _>>();
                    let types: Vec<DataType> =
                        columns.iter().map(|column| column.data_type().clone()).collect();
                    let expected =
                        values.and_then(|values| column_of(values, &function.return_type.data_type(&types)));
                    match expected {
                        Ok(expected) => prop_assert_eq!(&found, &expected, "{} {:?}", function.name, columns),
                        Err(error) => prop_assert!(false, "{} {:?}: {error}", function.name, columns),
                    }
                }
            }
        }
    }
}
