//! A number of a statement that its plan leaves open.
//!
//! While a statement is analysed and optimised, its parameters are DataFusion's placeholders, of which nothing but the type is known.
//! In the physical plan each is a call of a function that the planner takes for any other, and that has no value of its own:
//! [`Binding`](super::binding::Binding) puts values in the places of these calls.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue, exec_err, plan_datafusion_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// The function that stands for a parameter.
#[derive(Debug)]
struct ParameterUdf {
    /// Its number, from 0.
    index: usize,
    /// The value with which the statement was planned. Estimates may look at it: what a plan touches and in which of several right ways
    /// it runs. No rewriting does.
    first_value: ScalarValue,
    name: String,
    signature: Signature,
}

impl PartialEq for ParameterUdf {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.first_value == other.first_value
    }
}
impl Eq for ParameterUdf {}
impl Hash for ParameterUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl ParameterUdf {
    fn new(index: usize, first_value: ScalarValue) -> Self {
        Self {
            index,
            first_value,
            name: format!("parameter_{}", index + 1),
            // It depends on nothing: it may stand wherever a constant may.
            signature: Signature::nullary(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ParameterUdf {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.first_value.data_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        let field = Field::new(&self.name, self.first_value.data_type(), false);
        Ok(Arc::new(field))
    }

    /// It is never called: a plan runs once all of its parameters are bound.
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} was not bound to a value before its plan ran", self.name)
    }
}

/// The plan with functions in the places of its placeholders, which stand for these values.
pub(super) fn with_parameters(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    let functions: Vec<Arc<ScalarUDF>> = values
        .iter()
        .enumerate()
        .map(|(index, value)| ParameterUdf::new(index, value.clone()))
        .map(|function| Arc::new(ScalarUDF::new_from_impl(function)))
        .collect();
    plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::Placeholder(placeholder) => {
                    let index = placeholder.id[1..].parse::<usize>();
                    let index = index.ok().and_then(|number| number.checked_sub(1));
                    let function = index.and_then(|index| functions.get(index));
                    let function = function.ok_or_else(|| {
                        plan_datafusion_err!("there is no parameter {}", placeholder.id)
                    })?;
                    let call = ScalarFunction::new_udf(Arc::clone(function), vec![]);
                    Ok(Transformed::yes(Expr::ScalarFunction(call)))
                }
                expr => Ok(Transformed::no(expr)),
            })
        })
    })
    .data()
}

fn of_function(function: &ScalarUDF) -> Option<&ParameterUdf> {
    let function = function.inner().as_ref();
    (function as &dyn std::any::Any).downcast_ref()
}

/// The number of the parameter that an expression is.
pub(super) fn parameter(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
    Some(of_function(function.fun())?.index)
}

/// A condition with values in the places of its parameters.
pub(super) fn bound(expr: &Expr, value: impl Fn(usize) -> Option<ScalarValue>) -> Result<Expr> {
    with_values(expr, |parameter| value(parameter.index))
}

/// A condition with the values in it with which its statement was planned, for estimates.
pub(crate) fn with_first_values(expr: &Expr) -> Result<Expr> {
    with_values(expr, |parameter| Some(parameter.first_value.clone()))
}

/// Casts of values are done: where a column is compared with a cast value, a restriction is read off it as off any constant.
fn with_values(expr: &Expr, value: impl Fn(&ParameterUdf) -> Option<ScalarValue>) -> Result<Expr> {
    expr.clone()
        .transform_up(|node| {
            Ok(match &node {
                Expr::ScalarFunction(call) => match of_function(&call.func) {
                    Some(parameter) => match value(parameter) {
                        Some(value) => Transformed::yes(Expr::Literal(value, None)),
                        None => return exec_err!("{} has no value", parameter.name),
                    },
                    None => Transformed::no(node),
                },
                Expr::Cast(cast) => match cast.expr.as_ref() {
                    Expr::Literal(value, metadata) => {
                        let cast = value.cast_to(cast.field.data_type())?;
                        Transformed::yes(Expr::Literal(cast, metadata.clone()))
                    }
                    _ => Transformed::no(node),
                },
                _ => Transformed::no(node),
            })
        })
        .data()
}

/// Whether a condition has a parameter.
pub(crate) fn has_parameters(expr: &Expr) -> Result<bool> {
    expr.exists(|node| {
        Ok(matches!(node, Expr::ScalarFunction(call) if of_function(&call.func).is_some()))
    })
}
