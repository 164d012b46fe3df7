//! Aggregates that the engine has for fewer types, or whose sums of integers would wrap.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::{average::avg_udaf, sum::sum_udaf};
use datafusion::logical_expr::AggregateUDF;

use crate::functions::guarded::guarded;

/// Digits of the largest integer of 64 bits, signed or not.
const INTEGER_DIGITS: u8 = 20;

/// SUM and AVG as MySQL has them, and the engine's GROUP_CONCAT with a bound.
pub(crate) fn all() -> Vec<Arc<AggregateUDF>> {
    vec![
        guarded("mysql_sum", sum_udaf(), summed_as),
        guarded("mysql_avg", avg_udaf(), |_| DataType::Float64),
        Arc::new(super::bounded_aggregate::string_agg()),
    ]
}

/// Integers are summed as decimals, which hold more of them than there will ever be rows.
fn summed_as(given: &DataType) -> DataType {
    match given {
        integer if integer.is_integer() => DataType::Decimal128(INTEGER_DIGITS, 0),
        DataType::Decimal128(..) | DataType::Decimal256(..) => given.clone(),
        _ => DataType::Float64,
    }
}
