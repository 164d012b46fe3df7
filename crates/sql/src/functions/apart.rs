//! An operand that the planner or the optimizer takes for another expression than it is.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

/// Name of the function that returns its first argument.
pub const APART: &str = "meridian_apart";

/// The function named [`APART`]: of a value and a mark, a number or a text, it returns the value.
pub fn apart() -> Arc<ScalarUDF> {
    static APART: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::new_from_impl(Apart {
            signature: Signature::any(2, Volatility::Immutable),
        }))
    });
    Arc::clone(&APART)
}

/// An expression of the same value that is equal to none with another number.
pub(crate) fn apart_from(expr: Expr, number: i64) -> Expr {
    apart().call(vec![expr, lit(number)])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Apart {
    signature: Signature,
}

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &str {
        APART
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, _] => Ok(value.clone()),
            _ => exec_err!("{APART} takes a value and a mark"),
        }
    }

    /// That of the value, of which it is not told that it cannot be NULL.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [value, _] => Ok(Arc::new(
                value.as_ref().clone().with_name(APART).with_nullable(true),
            )),
            _ => exec_err!("{APART} takes a value and a mark"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("{APART} takes a value and a mark"),
        }
    }
}
