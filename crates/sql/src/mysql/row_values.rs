//! Comparisons of rows, as those of their values: `(a, b) = (1, 2)` is `a = 1 AND b = 2`.
//!
//! Rows are ordered by their first values that differ: `(a, b) < (1, 2)` is `a < 1 OR a = 1 AND b < 2`.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::build::not;
use crate::{ErrorCode, SqlError};

/// A comparison of two rows written out; another expression as it is.
///
/// # Errors
/// The rows are not equally long, or one side is none.
pub(super) fn compared(left: Expr, op: BinaryOperator, right: Expr) -> Result<Expr, SqlError> {
    match (row(&left), row(&right)) {
        (None, None) => {}
        (Some(left), Some(right)) if left.len() == right.len() => {
            if let Some(compared) = of_values(left, &op, right) {
                return Ok(Expr::Nested(Box::new(compared)));
            }
        }
        // A row of a subquery is compared by the planner, if at all.
        (Some(_), None) if matches!(right, Expr::Subquery(_)) => {}
        (Some(row), _) | (_, Some(row)) => return Err(wrong_width(row.len())),
    }
    Ok(binary(left, op, right))
}

/// `(a, b) IN ((1, 2), (3, 4))` as comparisons with each; another list as it is.
///
/// # Errors
/// The rows are not equally long.
pub(super) fn in_list(expr: Expr, list: Vec<Expr>, negated: bool) -> Result<Expr, SqlError> {
    let Some(width) = row(&expr).map(<[Expr]>::len) else {
        if list.iter().any(|item| row(item).is_some()) {
            return Err(wrong_width(1));
        }
        return Ok(Expr::InList {
            expr: Box::new(expr),
            list,
            negated,
        });
    };
    let same_width = |item: &Expr| row(item).is_some_and(|row| row.len() == width);
    if !list.iter().all(same_width) {
        return Err(wrong_width(width));
    }
    let compared = list
        .into_iter()
        .map(|item| compared(expr.clone(), BinaryOperator::Eq, item));
    let any = joined(compared.collect::<Result<_, _>>()?, &BinaryOperator::Or);
    let any = Expr::Nested(Box::new(any));
    Ok(if negated { not(any) } else { any })
}

fn wrong_width(width: usize) -> SqlError {
    let sentence = match width {
        1 => {
            "a single value is compared with a row here: compare it with a single value".to_owned()
        }
        width => format!(
            "a row of {width} values is compared with something else here: both sides need as many values"
        ),
    };
    SqlError::new(sentence).with_code(ErrorCode::ONE_COLUMN)
}

/// The values of a row, of which there are several.
fn row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(values) => Some(values),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

fn of_values(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    let pairs = || left.iter().cloned().zip(right.iter().cloned());
    let all = |op: BinaryOperator| {
        let compared = pairs().map(|(left, right)| binary(left, op.clone(), right));
        joined(compared.collect(), &BinaryOperator::And)
    };
    let strict = match op {
        BinaryOperator::Eq | BinaryOperator::Spaceship => return Some(all(op.clone())),
        BinaryOperator::NotEq => {
            return Some(not(Expr::Nested(Box::new(all(BinaryOperator::Eq)))));
        }
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        _ => return None,
    };
    let mut ordered = None;
    for (left, right) in pairs().rev() {
        ordered = Some(match ordered {
            None => binary(left, op.clone(), right),
            Some(rest) => {
                let first = binary(left.clone(), strict.clone(), right.clone());
                let equal = binary(left, BinaryOperator::Eq, right);
                let rest = binary(equal, BinaryOperator::And, Expr::Nested(Box::new(rest)));
                binary(first, BinaryOperator::Or, rest)
            }
        });
    }
    ordered
}

/// Conditions joined in a balanced tree, which is no deeper than it must be.
fn joined(mut conditions: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if conditions.len() == 1 {
        return conditions.remove(0);
    }
    let right = conditions.split_off(conditions.len() / 2);
    let side = |conditions| Expr::Nested(Box::new(joined(conditions, op)));
    binary(side(conditions), op.clone(), side(right))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}
