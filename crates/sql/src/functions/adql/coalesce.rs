//! COALESCE in ADQL: the engine's, once values of different types are of one (see [`crate::adql::meeting`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions::core;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::adql::meeting::types_of_results;

/// Its name.
pub(crate) const COALESCE: &str = "adql_coalesce";

/// The function.
pub(super) fn coalesce() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Coalesce {
        inner: core::coalesce(),
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Coalesce {
    /// The engine's, which takes values of one type.
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Coalesce {
    fn name(&self) -> &str {
        COALESCE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match types_of_results(arguments) {
            Some(met) => self.inner.coerce_types(&met),
            None => self.inner.coerce_types(arguments),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    /// The engine's own, of which its rules know more.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, context)? {
            ExprSimplifyResult::Original(args) => {
                ExprSimplifyResult::Simplified(self.inner.call(args))
            }
            simplified => simplified,
        })
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
