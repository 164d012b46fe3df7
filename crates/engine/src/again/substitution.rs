//! Putting other numbers into the conditions of a plan.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NegativeExpr, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::wording::Number;

/// Which numbers become which others.
pub(super) struct Substitution {
    pairs: Vec<(Number, Number)>,
    /// How often each was met.
    met: RefCell<Vec<usize>>,
}

impl Substitution {
    /// From the numbers of a text to those of another, at these places; `None` where a number of the first stands there more
    /// than once, so that it cannot be told which of them a plan means.
    pub fn new(from: &[Number], to: &[Number], places: &[usize]) -> Option<Self> {
        let told_apart = |place: &usize| {
            let value = from[*place].value().to_bits();
            let same = from.iter().filter(|other| other.value().to_bits() == value);
            same.count() == 1
        };
        places.iter().all(told_apart).then(|| Self {
            pairs: places.iter().map(|at| (from[*at], to[*at])).collect(),
            met: RefCell::new(vec![0; places.len()]),
        })
    }

    /// Whether each of the numbers was met since this was last asked. A number that planning dropped from a condition, as it
    /// does with the 3 of `x > 5 AND x > 3`, may be the one that counts when others stand there.
    pub fn met_all(&self) -> bool {
        let mut met = self.met.borrow_mut();
        let all = met.iter().all(|times| *times > 0);
        met.fill(0);
        all
    }

    /// A constant with the other number in it, or as it was.
    pub fn put_into(&self, value: ScalarValue) -> ScalarValue {
        self.put(&value).unwrap_or(value)
    }

    fn put(&self, value: &ScalarValue) -> Option<ScalarValue> {
        self.pairs.iter().enumerate().find_map(|(at, (from, to))| {
            let put = match (value, *from, *to) {
                (ScalarValue::Int64(Some(value)), Number::Whole(from), Number::Whole(to)) => {
                    let same = value.unsigned_abs() == from.unsigned_abs();
                    let signed = if *value < 0 { -to } else { to };
                    same.then_some(ScalarValue::Int64(Some(signed)))
                }
                (ScalarValue::Float64(Some(value)), from, to) => {
                    let same = value.abs().to_bits() == from.value().to_bits();
                    let signed = to.value().copysign(*value);
                    same.then_some(ScalarValue::Float64(Some(signed)))
                }
                _ => None,
            }?;
            self.met.borrow_mut()[at] += 1;
            Some(put)
        })
    }

    /// A condition with the other numbers in it; `None` where one stands in an operator that may have drawn conclusions from it
    /// when it was made.
    pub fn physical(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let mut plain = true;
        let put = Arc::clone(expr)
            .transform_up(|node| {
                let Some(literal) = node.downcast_ref::<Literal>() else {
                    plain &= is_plain(&node);
                    return Ok(Transformed::no(node));
                };
                Ok(match self.put(literal.value()) {
                    Some(value) => {
                        let literal = Literal::new(value);
                        Transformed::yes(Arc::new(literal) as Arc<dyn PhysicalExpr>)
                    }
                    None => Transformed::no(node),
                })
            })
            .data()?;
        // Nothing was put into it: whatever it is, it is the same.
        Ok((plain || Arc::ptr_eq(&put, expr)).then_some(put))
    }

    /// The same of a condition that is not yet planned.
    pub fn logical(&self, expr: &Expr) -> Result<Expr> {
        expr.clone()
            .transform_up(|node| {
                let put = match &node {
                    Expr::Literal(value, _) => self.put(value),
                    _ => None,
                };
                Ok(match (put, node) {
                    (Some(value), Expr::Literal(_, metadata)) => {
                        Transformed::yes(Expr::Literal(value, metadata))
                    }
                    (_, node) => Transformed::no(node),
                })
            })
            .data()
    }
}

/// Whether an operator computes its value from those of its operands each time, and keeps nothing of them.
fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.is::<Column>()
        || expr.is::<BinaryExpr>()
        || expr.is::<CastExpr>()
        || expr.is::<ScalarFunctionExpr>()
        || expr.is::<NotExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<NegativeExpr>()
}
