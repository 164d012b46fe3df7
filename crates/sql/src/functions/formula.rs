//! Functions of doubles that are one formula.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Float64Builder};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::real::{keep_numbers, keep_where};

/// One function of doubles: its name, how many arguments it takes and its formula, in which what is not a finite number
/// stands for NULL.
pub(super) struct Formula {
    pub name: &'static str,
    pub arity: usize,
    pub of: fn(&[f64]) -> f64,
}

impl Formula {
    /// The formula as a function known under these names.
    pub(super) fn udf(&'static self, name: String, aliases: Vec<String>) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(FormulaFunction {
            formula: self,
            name,
            aliases,
            signature: Signature::exact(vec![DataType::Float64; self.arity], Volatility::Immutable),
        }))
    }
}

struct FormulaFunction {
    formula: &'static Formula,
    name: String,
    aliases: Vec<String>,
    signature: Signature,
}

impl std::fmt::Debug for FormulaFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}
impl PartialEq for FormulaFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for FormulaFunction {}
impl std::hash::Hash for FormulaFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for FormulaFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalars = args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let columns: Vec<&Float64Array> = arrays
            .iter()
            .map(|a| a.as_primitive::<Float64Type>())
            .collect();
        let result = evaluate(self.formula, &columns);
        if scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

pub(super) fn evaluate(formula: &Formula, columns: &[&Float64Array]) -> ArrayRef {
    if let [only] = columns {
        let of = formula.of;
        let numbers = only.values().iter().map(|&x| of(&[x]) + 0.0).collect();
        return keep_numbers(numbers, only.nulls().cloned(), f64::is_finite);
    }
    let rows = columns.first().map_or(0, |c| c.len());
    let mut result = Float64Builder::with_capacity(rows);
    let mut values = vec![0.0; columns.len()];
    for row in 0..rows {
        if columns.iter().any(|c| c.is_null(row)) {
            result.append_null();
            continue;
        }
        for (value, column) in values.iter_mut().zip(columns) {
            *value = column.value(row);
        }
        result.append_value((formula.of)(&values));
    }
    keep_where(&result.finish(), f64::is_finite)
}
