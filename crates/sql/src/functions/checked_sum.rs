//! Sums of integers, in 64 bits, which do not wrap.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};

/// Digits of the largest integer of 64 bits, signed or not.
const DIGITS: u8 = 20;

/// The sum of integers as one of 64 bits, an error where it is none. On its way it is a decimal, which holds the sum of more of
/// them than there will ever be rows.
pub(crate) fn checked_sum() -> Arc<AggregateUDF> {
    static SUM: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(CheckedSum { signature }))
    });
    Arc::clone(&SUM)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    signature: Signature,
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        "sum_of_integers"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [DataType::Decimal128(DIGITS, 0)] => Ok(arguments.to_vec()),
            [integer] if integer.is_integer() => Ok(vec![DataType::Decimal128(DIGITS, 0)]),
            _ => plan_err!("this function takes one argument, an integer"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let return_field = sum_of_decimals()?;
        let inner = sum_udaf().accumulator(AccumulatorArgs {
            return_field,
            ..args
        })?;
        Ok(Box::new(CheckedAccumulator(inner)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let return_field = sum_of_decimals()?;
        sum_udaf().state_fields(StateFieldsArgs {
            return_field,
            ..args
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        sum_of_decimals().is_ok_and(|return_field| {
            sum_udaf().groups_accumulator_supported(AccumulatorArgs {
                return_field,
                ..args
            })
        })
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let return_field = sum_of_decimals()?;
        let args = AccumulatorArgs {
            return_field,
            ..args
        };
        Ok(Box::new(CheckedGroups(
            sum_udaf().create_groups_accumulator(args)?,
        )))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let return_field = sum_of_decimals()?;
        let args = AccumulatorArgs {
            return_field,
            ..args
        };
        Ok(Box::new(CheckedAccumulator(
            sum_udaf().create_sliding_accumulator(args)?,
        )))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// What the sum is on its way.
fn sum_of_decimals() -> Result<FieldRef> {
    let sum = sum_udaf().return_type(&[DataType::Decimal128(DIGITS, 0)])?;
    Ok(Arc::new(Field::new("sum", sum, true)))
}

fn too_large(sum: impl std::fmt::Display) -> DataFusionError {
    exec_datafusion_err!("the sum of integers, {sum}, is beyond the range of BIGINT")
}

/// A sum whose result is checked.
#[derive(Debug)]
struct CheckedAccumulator(Box<dyn Accumulator>);

impl Accumulator for CheckedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.0.evaluate()? {
            ScalarValue::Decimal128(sum, _, _) => {
                let whole = |sum: i128| i64::try_from(sum).map_err(|_| too_large(sum));
                Ok(ScalarValue::Int64(sum.map(whole).transpose()?))
            }
            other => other.cast_to(&DataType::Int64),
        }
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// The same for the sums of many groups.
struct CheckedGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for CheckedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.0.evaluate(emit_to)?;
        let sums = sums.as_primitive::<Decimal128Type>();
        let whole = |sum: i128| i64::try_from(sum).map_err(|_| too_large(sum));
        Ok(Arc::new(sums.try_unary::<_, Int64Type, _>(whole)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.0.merge_batch(states, groups, total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
