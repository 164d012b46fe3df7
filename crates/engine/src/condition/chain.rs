//! Expressions that only rise or only fall with one column.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal, NegativeExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// A monotone expression of one floating-point column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    /// The column.
    pub column: usize,
    /// Whether it goes through a magnitude, which only positive numbers have.
    pub magnitude: bool,
}

impl Chain {
    /// What `expr`, an expression of doubles, is; `None` if it may rise and fall, or depends on several columns.
    ///
    /// Sums and products of doubles are rounded to the nearest, so they never fall where the exact ones rise; see
    /// [`super::within`] for the logarithm.
    pub fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            let float = matches!(
                schema.field(column.index()).data_type(),
                DataType::Float32 | DataType::Float64
            );
            return float.then_some(Self {
                column: column.index(),
                magnitude: false,
            });
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let widens = *cast.cast_type() == DataType::Float64;
            return Self::of(cast.expr(), schema).filter(|_| widens);
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return Self::of(negative.arg(), schema);
        }
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            let [argument] = function.args() else {
                return None;
            };
            return match function.name() {
                sql::functions::REAL => Self::of(argument, schema),
                name if sql::functions::is_magnitude_of_flux(name) => {
                    plain_column(argument, schema).map(|column| Self {
                        column,
                        magnitude: true,
                    })
                }
                _ => None,
            };
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        match binary.op() {
            Operator::Plus | Operator::Minus | Operator::Multiply => {
                match (number(binary.left()), number(binary.right())) {
                    (None, Some(_)) => Self::of(binary.left(), schema),
                    (Some(_), None) => Self::of(binary.right(), schema),
                    _ => None,
                }
            }
            Operator::Divide => {
                number(binary.right())?;
                Self::of(binary.left(), schema)
            }
            _ => None,
        }
        .filter(|_| expr.data_type(schema).is_ok_and(|t| t == DataType::Float64))
    }
}

/// A floating-point column, as it is or widened.
pub(super) fn plain_column(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
    let inner = match expr.downcast_ref::<CastExpr>() {
        Some(cast) if *cast.cast_type() == DataType::Float64 => cast.expr(),
        Some(_) => return None,
        None => expr,
    };
    let column = inner.downcast_ref::<Column>()?.index();
    let float = matches!(
        schema.field(column).data_type(),
        DataType::Float32 | DataType::Float64
    );
    float.then_some(column)
}

/// A literal double that is neither zero nor infinite: with it every operation of a chain is monotone.
pub(super) fn number(expr: &Arc<dyn PhysicalExpr>) -> Option<f64> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Float64(Some(value)) if value.is_finite() && *value != 0.0 => Some(*value),
        _ => None,
    }
}

/// A comparison `left op bound` for order, turned so that the bound, a finite literal double, is on the right.
pub(super) fn comparison(
    predicate: &Arc<dyn PhysicalExpr>,
) -> Option<(&Arc<dyn PhysicalExpr>, Operator, f64)> {
    let binary = predicate.downcast_ref::<BinaryExpr>()?;
    let bound = |expr: &Arc<dyn PhysicalExpr>| match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Float64(Some(value)) if value.is_finite() => Some(*value),
        _ => None,
    };
    let (left, op, bound) = match (bound(binary.left()), bound(binary.right())) {
        (None, Some(bound)) => (binary.left(), *binary.op(), bound),
        (Some(bound), None) => (binary.right(), binary.op().swap()?, bound),
        _ => return None,
    };
    let order = matches!(
        op,
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    order.then_some((left, op, bound))
}
