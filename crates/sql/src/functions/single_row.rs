//! The value of a subquery that depends on the row outside and has to have one row at most.
//!
//! The aggregate gives the value with the number of rows, since it is computed for more rows than are asked for; the function gives the value
//! where it is asked for, and an error if there were more rows than one.

use std::mem::size_of_val;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StructArray};
use arrow::compute::{is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

/// The value of some row, with the number of rows.
pub(crate) fn counted_value() -> Arc<AggregateUDF> {
    static COUNTED: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(CountedValue { signature }))
    });
    Arc::clone(&COUNTED)
}

/// The value that [`counted_value`] gives, if it is of one row.
pub(crate) fn single_row() -> Arc<ScalarUDF> {
    static SINGLE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(SingleRow { signature }))
    });
    Arc::clone(&SINGLE)
}

fn fields_of(value: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("value", value.clone(), true),
        Field::new("rows", DataType::Int64, true),
    ])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CountedValue {
    signature: Signature,
}

impl AggregateUDFImpl for CountedValue {
    fn name(&self) -> &str {
        "meridian_counted_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value] => Ok(DataType::Struct(fields_of(value))),
            _ => exec_err!("{} takes a value", self.name()),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let value = args.input_fields.iter().map(|field| field.data_type());
        Ok(value.flat_map(|value| fields_of(value).to_vec()).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let DataType::Struct(fields) = args.return_field.data_type() else {
            return exec_err!("{} gives a struct", self.name());
        };
        let value = match fields.first() {
            Some(value) => ScalarValue::try_from(value.data_type())?,
            None => ScalarValue::Null,
        };
        Ok(Box::new(CountingAccumulator { value, rows: 0 }))
    }
}

#[derive(Debug)]
struct CountingAccumulator {
    value: ScalarValue,
    rows: i64,
}

impl CountingAccumulator {
    fn add(&mut self, values: &ArrayRef, at: usize, rows: i64) -> Result<()> {
        if self.rows == 0 && rows > 0 {
            self.value = ScalarValue::try_from_array(values, at)?;
        }
        self.rows += rows;
        Ok(())
    }
}

impl Accumulator for CountingAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values.first() {
            Some(values) => self.add(values, 0, values.len() as i64),
            None => Ok(()),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, rows] = states else {
            return exec_err!("a value is merged with its number of rows");
        };
        for (at, rows) in rows.as_primitive::<Int64Type>().iter().enumerate() {
            self.add(values, at, rows.unwrap_or(0))?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            self.value.clone(),
            ScalarValue::Int64(Some(self.rows)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let columns = ScalarValue::iter_to_array([self.value.clone()])?;
        let rows = ScalarValue::Int64(Some(self.rows)).to_array()?;
        let fields = fields_of(columns.data_type());
        let one = StructArray::try_new(fields, vec![columns, rows], None)?;
        Ok(ScalarValue::Struct(Arc::new(one)))
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleRow {
    signature: Signature,
}

impl ScalarUDFImpl for SingleRow {
    fn name(&self) -> &str {
        "meridian_single_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Struct(fields)] if fields.len() == 2 => Ok(fields[0].data_type().clone()),
            _ => exec_err!("{} takes what meridian_counted_value gives", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(argument) = args.args.first() else {
            return exec_err!("{} takes a value", self.name());
        };
        let is_constant = matches!(argument, ColumnarValue::Scalar(_));
        let counted = argument.to_array(if is_constant { 1 } else { args.number_rows })?;
        let counted = counted.as_struct();
        let rows = counted.column(1).as_primitive::<Int64Type>();
        let is_several =
            |at: usize| counted.is_valid(at) && rows.is_valid(at) && rows.value(at) > 1;
        if (0..counted.len()).any(is_several) {
            return exec_err!("a subquery has more than one row where a value is needed");
        }
        let values = nullif(counted.column(0), &is_null(counted)?)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &values, 0,
            )?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}
