//! Whether planning has dropped a number.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

use crate::exec::PieceScanExec;

/// Whether each number on which the conditions of a statement may depend stands in those of the scan, as often.
///
/// Of `x > 5 AND x > 17` planning keeps `x > 17`, which with another number in the place of 17 is a condition that nobody asked for.
pub(super) fn are_all_kept(logical: &LogicalPlan, scan: &PieceScanExec) -> bool {
    let mut asked = Numbers::default();
    if asked.of_conditions(logical, false).is_err() {
        return false;
    }
    let (mut filters, mut predicates) = (Numbers::default(), Numbers::default());
    let read = (scan.filters().iter().try_for_each(|it| filters.of(it)))
        .and_then(|()| (scan.predicates().iter()).try_for_each(|it| predicates.of_physical(it)));
    read.is_ok() && asked.are_within(&filters) && asked.are_within(&predicates)
}

/// How often each constant stands somewhere.
#[derive(Default)]
struct Numbers(HashMap<Constant, usize>);

#[derive(PartialEq, Eq, Hash)]
enum Constant {
    /// A number of whatever type, without its sign, which may be an operator of its own: the bits of a double.
    Number(u64),
    /// Another one, which may stand for a number: `x > '5'`, `x > TRUE`.
    Other(String),
}

impl Constant {
    /// `None` for a text that has nothing of a number, as the `ICRS` of `POINT('ICRS', ra, decl)`, which planning leaves out.
    fn of(value: &ScalarValue) -> Option<Self> {
        let text = value.try_as_str().flatten();
        if text.is_some_and(|text| !text.bytes().any(|byte| byte.is_ascii_digit())) {
            return None;
        }
        let is_number = value.data_type().is_numeric();
        match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(number))) if is_number || text.is_some() => {
                Some(Self::Number(number.abs().to_bits()))
            }
            _ => Some(Self::Other(value.to_string())),
        }
    }
}

impl Numbers {
    fn add(&mut self, value: &ScalarValue) {
        if let Some(constant) = Constant::of(value) {
            *self.0.entry(constant).or_default() += 1;
        }
    }

    /// Those of conditions, and of what the conditions may be about: a column that is computed below.
    fn of_conditions(&mut self, plan: &LogicalPlan, below: bool) -> Result<()> {
        let below = below || matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
        if below {
            plan.expressions().iter().try_for_each(|it| self.of(it))?;
        }
        let inputs = plan.inputs();
        inputs
            .into_iter()
            .try_for_each(|input| self.of_conditions(input, below))
    }

    fn of(&mut self, expr: &Expr) -> Result<()> {
        expr.apply(|node| {
            match node {
                Expr::Literal(value, _) => self.add(value),
                Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_) => {
                    return plan_err!("a question within a condition has numbers of its own");
                }
                _ => {}
            }
            match whether(node) {
                Some(function) => self.of(function).map(|()| TreeNodeRecursion::Jump),
                None => Ok(TreeNodeRecursion::Continue),
            }
        })?;
        Ok(())
    }

    fn of_physical(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<()> {
        expr.apply(|node| {
            if let Some(literal) = node.downcast_ref::<Literal>() {
                self.add(literal.value());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn are_within(&self, others: &Self) -> bool {
        let mut numbers = self.0.iter();
        numbers.all(|(number, times)| others.0.get(number).is_some_and(|there| there >= times))
    }
}

/// The function whose value is to be 0 or 1, or is not to be: whether something is so. Planning makes a condition of it that has no such
/// number, by itself and not for the sake of another condition.
fn whether(expr: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return None;
    };
    let is_flag = |expr: &Expr| {
        let flags = [0, 1].map(|flag| ScalarValue::Int64(Some(flag)));
        matches!(expr, Expr::Literal(value, _) if flags.contains(value))
    };
    let is_function = |expr: &Expr| matches!(expr, Expr::ScalarFunction(_));
    match (&**left, &**right) {
        _ if !matches!(op, Operator::Eq | Operator::NotEq) => None,
        (flag, function) | (function, flag) if is_flag(flag) && is_function(function) => {
            Some(function)
        }
        _ => None,
    }
}
