//! The engine's `string_agg`, which GROUP_CONCAT is, with a bound on the text that it makes of any number of rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

use super::row_function::{LONGEST_VALUE, too_long};
use crate::interrupt::check;

/// `string_agg` in the place of the engine's.
pub(super) fn string_agg() -> AggregateUDF {
    AggregateUDF::new_from_impl(BoundedStringAgg(string_agg_udaf()))
}

/// The engine's aggregate, whose value may not become longer than others.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedStringAgg(Arc<AggregateUDF>);

impl AggregateUDFImpl for BoundedStringAgg {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let one_text = !args.is_distinct && args.order_bys.is_empty();
        let inner = self.0.accumulator(args)?;
        Ok(Box::new(BoundedAccumulator { inner, one_text }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(Arc::new(string_agg()))
    }
}

/// An accumulator that says no when its text has become too long.
#[derive(Debug)]
struct BoundedAccumulator {
    inner: Box<dyn Accumulator>,
    /// Whether it holds the text as it will be, and not the list of its parts.
    one_text: bool,
}

impl BoundedAccumulator {
    fn check(&self) -> Result<()> {
        check()?;
        match self.one_text && self.inner.size() > 2 * LONGEST_VALUE {
            true => exec_err!("{}", too_long("GROUP_CONCAT")),
            false => Ok(()),
        }
    }
}

impl Accumulator for BoundedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)?;
        self.check()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)?;
        self.check()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        match &value {
            ScalarValue::LargeUtf8(Some(text)) if text.len() > LONGEST_VALUE => {
                exec_err!("{}", too_long("GROUP_CONCAT"))
            }
            _ => Ok(value),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    /// GROUP_CONCAT of fifty million numbers took three gigabytes, whatever the statements might have.
    #[tokio::test]
    async fn texts_of_many_rows_are_bounded() {
        let context = SessionContext::new();
        context.register_udaf(super::string_agg());
        let of = async |rows: u32, rest: &str| {
            let text = format!(
                "SELECT length(string_agg(repeat('x', 1000), ','{rest})) FROM range({rows})"
            );
            context.sql(&text).await.unwrap().collect().await
        };
        assert_eq!(of(3, "").await.unwrap()[0].num_rows(), 1);
        for rest in ["", " ORDER BY value"] {
            let error = of(40_000, rest).await.unwrap_err().to_string();
            assert!(error.contains("longer than a value may be"), "{error}");
        }
    }
}
