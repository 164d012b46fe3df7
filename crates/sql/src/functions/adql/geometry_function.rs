//! What the functions of geometry have in common as functions of the engine.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// The arguments of a call: columns as long as there are rows, and whether all of them are constants.
pub(super) struct Arguments {
    pub columns: Vec<ArrayRef>,
    pub rows: usize,
    pub constant: bool,
    /// Which of them are constants.
    pub constants: Vec<bool>,
}

/// A function: one row of a table of them.
pub(super) struct GeometryFunction {
    pub name: &'static str,
    /// The types that arguments of these types are made of, or what should have been given.
    pub takes: fn(&[DataType]) -> Result<Vec<DataType>, String>,
    pub gives: fn(&[DataType]) -> DataType,
    /// Whether the result may be NULL.
    pub nullable: bool,
    pub of: fn(&Arguments) -> Result<ArrayRef>,
    /// What stands for a call with these arguments, if something else does; or what is wrong with those that are constant.
    pub simplified: fn(&[Expr]) -> Result<Option<Expr>>,
}

/// A call that nothing else stands for.
pub(super) fn as_it_is(_: &[Expr]) -> Result<Option<Expr>> {
    Ok(None)
}

impl GeometryFunction {
    pub(super) fn udf(&'static self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(GeometryUdf {
            function: self,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    }
}

struct GeometryUdf {
    function: &'static GeometryFunction,
    signature: Signature,
}

impl std::fmt::Debug for GeometryUdf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.function.name)
    }
}
impl PartialEq for GeometryUdf {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
    }
}
impl Eq for GeometryUdf {}
impl std::hash::Hash for GeometryUdf {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for GeometryUdf {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match (self.function.takes)(arguments) {
            Ok(types) => Ok(types),
            Err(sentence) => plan_err!("{sentence}"),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok((self.function.gives)(arguments))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let data_type = (self.function.gives)(&types);
        Ok(Arc::new(Field::new(
            self.function.name,
            data_type,
            self.function.nullable,
        )))
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match (self.function.simplified)(&args)? {
            Some(expr) => ExprSimplifyResult::Simplified(expr),
            None => ExprSimplifyResult::Original(args),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constants: Vec<bool> = (args.args.iter())
            .map(|argument| matches!(argument, ColumnarValue::Scalar(_)))
            .collect();
        let constant = constants.iter().all(|it| *it);
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args
            .args
            .iter()
            .map(|argument| argument.to_array(rows))
            .collect::<Result<_>>()?;
        let result = (self.function.of)(&Arguments {
            columns,
            rows,
            constant,
            constants,
        })?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}
