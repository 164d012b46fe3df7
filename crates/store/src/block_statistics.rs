//! The least and the greatest value of a batch's columns, found by Arrow before Vortex requests them.
//!
//! Vortex computes them value by value where a column holds floats or NULLs, and twice: for the zone maps and for the file.
//! Arrow's kernels take eight values at a time. What is noted with an array here is what Vortex finds there then.

use arrow::array::{Array, ArrayRef as ArrowArrayRef, ArrowNumericType, AsArray, RecordBatch};
use arrow::compute::{max, min};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use vortex::array::ArrayRef;
use vortex::array::arrays::Struct;
use vortex::array::arrays::struct_::StructArrayExt;
use vortex::array::expr::stats::{Precision, Stat};
use vortex::array::scalar::{PValue, ScalarValue};

/// Notes with each column of `rows` what is known of it from the batch that it was made of.
pub(crate) fn note(rows: &ArrayRef, batch: &RecordBatch) {
    let Some(columns) = rows.as_opt::<Struct>() else {
        return;
    };
    for (column, values) in columns.iter_unmasked_fields().zip(batch.columns()) {
        note_column(column, values);
    }
}

fn note_column(column: &ArrayRef, values: &ArrowArrayRef) {
    let bounds = match values.data_type() {
        DataType::Int8 => bounds::<Int8Type>(values, |_| false),
        DataType::Int16 => bounds::<Int16Type>(values, |_| false),
        DataType::Int32 => bounds::<Int32Type>(values, |_| false),
        DataType::Int64 => bounds::<Int64Type>(values, |_| false),
        DataType::UInt8 => bounds::<UInt8Type>(values, |_| false),
        DataType::UInt16 => bounds::<UInt16Type>(values, |_| false),
        DataType::UInt32 => bounds::<UInt32Type>(values, |_| false),
        DataType::UInt64 => bounds::<UInt64Type>(values, |_| false),
        DataType::Float32 => bounds::<Float32Type>(values, f32::is_nan),
        DataType::Float64 => bounds::<Float64Type>(values, f64::is_nan),
        _ => None,
    };
    let Some([least, greatest]) = bounds else {
        return;
    };
    let statistics = column.statistics();
    let exact = |value: PValue| Precision::Exact(ScalarValue::Primitive(value));
    statistics.set(Stat::Min, exact(least));
    statistics.set(Stat::Max, exact(greatest));
    let nulls = values.null_count() as u64;
    statistics.set(Stat::NullCount, exact(PValue::U64(nulls)));
    if values.data_type().is_floating() {
        statistics.set(Stat::NaNCount, exact(PValue::U64(0)));
    }
}

/// The least and the greatest value; `None` if there is none or NaN is among them, which Vortex passes over.
fn bounds<T: ArrowNumericType>(
    values: &ArrowArrayRef,
    is_nan: impl Fn(T::Native) -> bool,
) -> Option<[PValue; 2]>
where
    PValue: From<T::Native>,
{
    let values = values.as_primitive::<T>();
    let (least, greatest) = (min(values)?, max(values)?);
    // Arrow orders floats totally: a NaN is beyond all numbers, at the one end or at the other.
    let any_nan = is_nan(least) || is_nan(greatest);
    (!any_nan).then(|| [PValue::from(least), PValue::from(greatest)])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float32Array, Float64Array, Int64Array, UInt8Array};
    use arrow::datatypes::Schema;
    use proptest::prelude::*;
    use vortex::array::VortexSessionExecute;
    use vortex::array::expr::stats::StatsProvider;
    use vortex::arrow::ArrowSessionExt;

    use super::*;
    use crate::session::session;

    fn any_double() -> impl Strategy<Value = Option<f64>> {
        let special = prop_oneof![
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(0.0),
            Just(f64::MAX),
            Just(f64::MIN_POSITIVE),
        ];
        proptest::option::of(prop_oneof![4 => -1e3..1e3f64, 1 => special])
    }

    fn rows(batch: &RecordBatch, schema: &Schema) -> ArrayRef {
        let session = session().arrow();
        session
            .from_arrow_record_batch(batch.clone(), schema)
            .unwrap()
    }

    /// Whether what is noted is what Vortex would have computed, where anything is noted.
    fn check(columns: Vec<ArrowArrayRef>) -> usize {
        let names = (0..columns.len()).map(|n| format!("c{n}"));
        let batch = RecordBatch::try_from_iter_with_nullable(
            names.zip(columns).map(|(name, array)| (name, array, true)),
        )
        .unwrap();
        let (noted, plain) = (rows(&batch, &batch.schema()), rows(&batch, &batch.schema()));
        note(&noted, &batch);
        let mut ctx = session().create_execution_ctx();
        let mut found = 0;
        let columns = noted.as_opt::<Struct>().unwrap();
        let plain = plain.as_opt::<Struct>().unwrap();
        for (noted, plain) in columns
            .iter_unmasked_fields()
            .zip(plain.iter_unmasked_fields())
        {
            for stat in [Stat::Min, Stat::Max, Stat::NullCount, Stat::NaNCount] {
                if let Precision::Exact(value) = noted.statistics().get(stat) {
                    let computed = plain.statistics().compute_stat(stat, &mut ctx).unwrap();
                    assert_eq!(Some(value), computed, "{stat} of {}", plain.dtype());
                    found += 1;
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn what_is_noted_is_what_vortex_computes(
            doubles in proptest::collection::vec(any_double(), 1..200),
            nan in proptest::option::of(any::<bool>()),
        ) {
            let integers = doubles.iter().map(|v| v.map(|v| v as i64));
            let bytes = doubles.iter().map(|v| v.map(|v| v as u8));
            let singles = doubles.iter().map(|v| v.map(|v| v as f32));
            let mut with_nan = doubles.clone();
            with_nan.extend(nan.map(|negative| Some(if negative { -f64::NAN } else { f64::NAN })));
            let any_value = doubles.iter().any(Option::is_some);
            let found = check(vec![
                Arc::new(Int64Array::from_iter(integers)),
                Arc::new(UInt8Array::from_iter(bytes)),
                Arc::new(Float32Array::from_iter(singles)),
                Arc::new(Float64Array::from(doubles)),
            ]);
            prop_assert_eq!(found, if any_value { 14 } else { 0 });
            let found = check(vec![Arc::new(Float64Array::from(with_nan))]);
            prop_assert_eq!(found, if any_value && nan.is_none() { 4 } else { 0 });
        }
    }
}
