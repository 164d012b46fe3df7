//! Comparisons of rows, as those of their values: `(a, b) = (1, 2)` is `a = 1 AND b = 2`.
//!
//! Rows are ordered by their first values that differ: `(a, b) < (1, 2)` is `a < 1 OR a = 1 AND b < 2`.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, SelectItem, SetExpr};

use super::build::{not, plain_arguments};
use super::compare_all::row_equal;
use crate::{ErrorCode, SqlError};

/// A comparison of two rows written out; another expression as it is.
///
/// # Errors
/// The rows are not equally long, or one side is none.
pub(crate) fn compared(left: Expr, op: BinaryOperator, right: Expr) -> Result<Expr, SqlError> {
    let (left, right) = (as_row(left), as_row(right));
    match (row(&left), row(&right)) {
        (None, None) => {}
        (Some(left), Some(right)) if left.len() == right.len() => {
            if let Some(compared) = of_values(left, &op, right) {
                return Ok(Expr::Nested(Box::new(compared)));
            }
        }
        (Some(_), None) if matches!(right, Expr::Subquery(_)) => {
            return compared_with_subquery(left, &op, &right);
        }
        (None, Some(_)) if matches!(left, Expr::Subquery(_)) => {
            return compared_with_subquery(right, &op, &left);
        }
        (Some(row), _) | (_, Some(row)) => return Err(wrong_width(row.len())),
    }
    Ok(binary(left, op, right))
}

/// `(a, b) IN ((1, 2), (3, 4))` as comparisons with each; another list as it is.
///
/// # Errors
/// The rows are not equally long.
pub(crate) fn in_list(expr: Expr, list: Vec<Expr>, negated: bool) -> Result<Expr, SqlError> {
    let expr = as_row(expr);
    let list: Vec<Expr> = list.into_iter().map(as_row).collect();
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

/// # Errors
/// The rows of a set have other numbers of values than that which is looked for in it, as far as its SELECT tells.
pub(super) fn check_width(expr: &Expr, set: &Query) -> Result<(), SqlError> {
    let Some(width) = row(&as_row(expr.clone())).map(<[Expr]>::len) else {
        return Ok(());
    };
    let is_value = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    match set.body.as_ref() {
        SetExpr::Select(select)
            if select.projection.iter().all(is_value) && select.projection.len() != width =>
        {
            Err(wrong_width(width))
        }
        _ => Ok(()),
    }
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

/// A row that stands where a value has to.
pub(super) fn stray(width: usize) -> SqlError {
    let sentence = format!(
        "a row of {width} values stands where one value is expected: rows can be compared, or looked for with IN; for a text of several values \
         write CONCAT_WS(',', ...)"
    );
    SqlError::new(sentence).with_code(ErrorCode::ONE_COLUMN)
}

/// A row compared with the one that a subquery gives.
fn compared_with_subquery(
    row: Expr,
    op: &BinaryOperator,
    subquery: &Expr,
) -> Result<Expr, SqlError> {
    let equal = match subquery {
        Expr::Subquery(values) => {
            check_width(&row, values)?;
            row_equal(row, values)
        }
        _ => None,
    };
    match (equal, op) {
        (Some(equal), BinaryOperator::Eq) => Ok(equal),
        (Some(equal), BinaryOperator::NotEq) => Ok(Expr::Nested(Box::new(not(equal)))),
        _ => {
            let sentence = "a row is compared with that of a subquery by = and <> alone: for others compare each value with a subquery of its own";
            Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
        }
    }
}

/// `ROW(a, b)` as `(a, b)`; another expression as it is.
pub(super) fn as_row(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(inner) if is_call(&inner) => as_row(*inner),
        Expr::Function(function) if function.name.to_string() == "row" => {
            match plain_arguments(&function) {
                Some(values) if values.len() > 1 => Expr::Tuple(values),
                _ => Expr::Function(function),
            }
        }
        other => other,
    }
}

fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_call(inner),
        Expr::Function(function) => function.name.to_string() == "row",
        _ => false,
    }
}

/// The values of a row, of which there are several.
pub(crate) fn row(expr: &Expr) -> Option<&[Expr]> {
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
