//! Aggregates of the engine's whose results follow the value rules: no NaN, no infinity, no negative zero.
//!
//! The average of very small negative numbers is rounded to -0.0, a sum of very large ones to infinity, and a correlation of
//! equal numbers is 0 / 0.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};

use super::real::{real_column, real_constant};

/// Aggregates that give values of their rows, or numbers that are no floating point: they need no guard.
const PLAIN: &[&str] = &[
    "any_value",
    "approx_distinct",
    "array_agg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "count",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "min",
    "nth_value",
    "regr_count",
    "string_agg",
];

/// All other aggregates of the engine, guarded, under their own names.
pub(super) fn all() -> Vec<Arc<AggregateUDF>> {
    all_default_aggregate_functions()
        .into_iter()
        .filter(|function| !PLAIN.contains(&function.name()))
        .map(of_unknown_growth)
        .collect()
}

/// An aggregate of which the engine knows no more than that it computes the same: not that it grows with its rows, either.
pub(crate) fn of_unknown_growth(function: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    let (name, signature) = (function.name().to_owned(), function.signature().clone());
    GuardedAggregate::udaf(name, function, signature, None)
}

/// An aggregate of the engine's under the name `name`, guarded, which takes one argument, whatever its type: it is made of the
/// type that `taken_as` says first.
pub(super) fn guarded(
    name: &str,
    inner: Arc<AggregateUDF>,
    taken_as: fn(&DataType) -> DataType,
) -> Arc<AggregateUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    GuardedAggregate::udaf(name.to_owned(), inner, signature, Some(taken_as))
}

#[derive(Debug)]
struct GuardedAggregate {
    name: String,
    inner: Arc<AggregateUDF>,
    taken_as: Option<fn(&DataType) -> DataType>,
    signature: Signature,
}

impl PartialEq for GuardedAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for GuardedAggregate {}
impl std::hash::Hash for GuardedAggregate {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl GuardedAggregate {
    fn udaf(
        name: String,
        inner: Arc<AggregateUDF>,
        signature: Signature,
        taken_as: Option<fn(&DataType) -> DataType>,
    ) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::new_from_impl(Self {
            name,
            inner,
            taken_as,
            signature,
        }))
    }
}

impl AggregateUDFImpl for GuardedAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        match self.taken_as {
            None => self.inner.aliases(),
            Some(_) => &[],
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match (self.taken_as, arguments) {
            (None, _) => self.inner.coerce_types(arguments),
            (Some(taken_as), [only]) => Ok(vec![taken_as(only)]),
            (Some(_), _) => plan_err!("this function takes one argument, not {}", arguments.len()),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match self.taken_as {
            None => self.inner.return_type(arguments),
            Some(taken_as) => {
                let taken: Vec<DataType> = arguments.iter().map(taken_as).collect();
                self.inner.return_type(&taken)
            }
        }
    }

    fn is_nullable(&self) -> bool {
        true
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OfRows(self.inner.accumulator(args)?)))
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
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(Box::new(OfGroups(inner)))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OfRows(
            self.inner.create_sliding_accumulator(args)?,
        )))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.order_sensitivity() {
            AggregateOrderSensitivity::Insensitive => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }
}

/// An aggregate whose result is guarded.
#[derive(Debug)]
struct OfRows(Box<dyn Accumulator>);

impl Accumulator for OfRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate().map(real_constant)
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

/// The same for many groups.
struct OfGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for OfGroups {
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
        self.0.evaluate(emit_to).map(real_column)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_plain_is_there() {
        let all = all_default_aggregate_functions();
        for name in PLAIN {
            assert!(all.iter().any(|it| it.name() == *name), "{name}");
        }
    }

    #[test]
    fn plain_aggregates_compute_no_floating_point() {
        let doubles = [DataType::Float64, DataType::Float64];
        // They give values of their rows, or take no doubles.
        let of_rows = [
            "any_value",
            "bit_and",
            "bit_or",
            "bit_xor",
            "first_value",
            "last_value",
            "max",
            "min",
            "nth_value",
        ];
        for function in all_default_aggregate_functions() {
            let name = function.name();
            if PLAIN.contains(&name) && !of_rows.contains(&name) {
                let given = function.return_type(&doubles[..1]);
                assert_ne!(given.ok(), Some(DataType::Float64), "{name}");
            }
        }
    }
}
