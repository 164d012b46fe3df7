//! COALESCE, GREATEST and LEAST of values of any types: the engine's, once the values are of one type.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions::core;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::row_function::{as_document, is_document};
use crate::mysql::comparison::ComparisonKind;
use crate::mysql::operand::Kind;

/// The functions by their names.
pub(super) fn all() -> [(&'static str, Arc<ScalarUDF>); 3] {
    [
        ("mysql_coalesce", core::coalesce(), false),
        ("mysql_greatest", core::greatest(), true),
        ("mysql_least", core::least(), true),
    ]
    .map(|(name, inner, ranks)| {
        let function = Choice {
            name,
            inner,
            ranks,
            signature: Signature::user_defined(Volatility::Immutable),
        };
        (name, Arc::new(ScalarUDF::new_from_impl(function)))
    })
}

/// How the arguments of a function of these meet; `None` for other functions.
pub(crate) fn meeting(function: &ScalarUDF, types: &[DataType]) -> Option<ComparisonKind> {
    let choice = function.inner().downcast_ref::<Choice>()?;
    Some(choice.meeting(types))
}

#[derive(Debug)]
struct Choice {
    name: &'static str,
    /// The engine's function, of values of one type.
    inner: Arc<ScalarUDF>,
    /// Whether it compares them.
    ranks: bool,
    signature: Signature,
}

impl PartialEq for Choice {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for Choice {}
impl std::hash::Hash for Choice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Choice {
    fn meeting(&self, types: &[DataType]) -> ComparisonKind {
        let kinds = types.iter().map(Kind::of_type);
        match self.ranks {
            true => ComparisonKind::of_ranked(kinds),
            false => ComparisonKind::of_results(kinds),
        }
    }
}

impl ScalarUDFImpl for Choice {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let meeting = self.meeting(arguments);
        let met: Vec<_> = arguments.iter().map(|it| meeting.type_of(it)).collect();
        self.inner.coerce_types(&met)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let given = args.arg_fields;
        let field = self.inner.return_field_from_args(args)?;
        let (nulls, values): (Vec<_>, Vec<_>) =
            given.iter().partition(|it| it.data_type().is_null());
        let of_documents = values.iter().all(|it| is_document(it)) && nulls.len() < given.len();
        Ok(match of_documents {
            true => Arc::new(as_document(field.as_ref().clone())),
            false => field,
        })
    }

    /// The engine's own.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, context)? {
            ExprSimplifyResult::Original(args) => {
                ExprSimplifyResult::Simplified(self.inner.call(args))
            }
            simplified => simplified,
        })
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
