//! Aggregates that the engine has for fewer types, or whose sums of integers would wrap.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::{average::avg_udaf, sum::sum_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

/// Digits of the largest integer of 64 bits, signed or not.
const INTEGER_DIGITS: u8 = 20;

/// SUM and AVG as MySQL has them.
pub(crate) fn all() -> Vec<Arc<AggregateUDF>> {
    [
        Widened::new("mysql_sum", sum_udaf(), summed_as),
        Widened::new("mysql_avg", avg_udaf(), |_| DataType::Float64),
    ]
    .map(|function| Arc::new(AggregateUDF::new_from_impl(function)))
    .into()
}

/// Integers are summed as decimals, which hold more of them than there will ever be rows.
fn summed_as(given: &DataType) -> DataType {
    match given {
        DataType::Boolean => DataType::Int64,
        integer if integer.is_integer() => DataType::Decimal128(INTEGER_DIGITS, 0),
        DataType::Decimal128(..) | DataType::Decimal256(..) => given.clone(),
        _ => DataType::Float64,
    }
}

/// An aggregate of the engine's whose argument is made of a wider type first.
#[derive(Debug)]
struct Widened {
    name: &'static str,
    inner: Arc<AggregateUDF>,
    widen: fn(&DataType) -> DataType,
    signature: Signature,
}

impl PartialEq for Widened {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for Widened {}
impl std::hash::Hash for Widened {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Widened {
    fn new(name: &'static str, inner: Arc<AggregateUDF>, widen: fn(&DataType) -> DataType) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self {
            name,
            inner,
            widen,
            signature,
        }
    }
}

impl AggregateUDFImpl for Widened {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [only] => Ok(vec![(self.widen)(only)]),
            _ => datafusion::common::plan_err!(
                "this function takes one argument, not {}",
                arguments.len()
            ),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let widened: Vec<DataType> = arguments.iter().map(self.widen).collect();
        self.inner.return_type(&widened)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }
}
