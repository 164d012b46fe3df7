//! A row of several values, where the planner knows single ones only.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Name of the function whose arguments are the values of a row.
pub(crate) const ROW: &str = "meridian_row";

/// The function named [`ROW`]. It stands on both sides of a membership until this is written out value by value, and is never computed.
pub(crate) fn row() -> Arc<ScalarUDF> {
    static ROW: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::new_from_impl(Row {
            signature: Signature::variadic_any(Volatility::Immutable),
        }))
    });
    Arc::clone(&ROW)
}

/// The values of a row; `None` of any other expression.
pub(crate) fn values_of_row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::ScalarFunction(function) if function.func.name() == ROW => Some(&function.args),
        Expr::Alias(alias) => values_of_row(&alias.expr),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Row {
    signature: Signature,
}

impl ScalarUDFImpl for Row {
    fn name(&self) -> &str {
        ROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("a row of several values stands where one is expected")
    }
}
