//! A statement of ADQL's with the engine's forms in the places of those that the engine does not have.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Query, Select, SelectItem, Spanned, Statement,
    TimezoneInfo, TypedString, UnaryOperator, Value, VisitorMut,
};

use super::compound;
use super::functions::{cast_to, expanded};
use super::repeated_names::name_repeated;
use super::top::limit_by_top;
use crate::all_rows::number_repetitions;
use crate::mysql::{name_results, row_values};
use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError, recursion};

/// Rewrites a statement in place. Its names are folded.
pub(crate) fn rewrite(sql: &str, statement: &mut Statement) -> Result<(), SqlError> {
    if let Statement::Query(query) = statement {
        name_results(&mut query.body);
    }
    match visit_mut(statement, &mut Rewriter { sql }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Rewriter<'a> {
    sql: &'a str,
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    /// Downwards, so that the arguments of an expansion are visited after it.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let taken = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        match self.expand(taken) {
            Ok(expanded) => {
                *expr = expanded;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let mut items = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        });
        if let Some(row) = items.find(|expr| is_row(expr)) {
            return ControlFlow::Break(self.stray_row(row));
        }
        name_repeated(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        recursion::put_limits_around(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let limited = limit_by_top(self.sql, query)
            .and_then(|()| number_repetitions(self.sql, &mut query.body));
        match limited {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Rewriter<'_> {
    /// A row that stands where none can.
    fn stray_row(&self, row: &Expr) -> SqlError {
        let values = row_values::row(row).unwrap_or_default();
        let start = values.first().map(|value| value.span().start);
        let sentence = format!(
            "a row of {} values stands here: ADQL compares rows with rows that are written out alone; instead of (a, b) IN (SELECT x, y ...) \
             write EXISTS (SELECT ... WHERE x = a AND y = b)",
            values.len()
        );
        let start = start.unwrap_or_else(|| row.span().start);
        SqlError::at_word(self.sql, start, sentence).with_code(ErrorCode::ONE_COLUMN)
    }

    fn expand(&self, expr: Expr) -> Result<Expr, SqlError> {
        Ok(match expr {
            Expr::Function(function) => {
                return match compound::value(self.sql, &function)? {
                    Some(inside) => Ok(inside),
                    None => expanded(self.sql, function),
                };
            }
            Expr::BinaryOp { left, op, right } if is_row(&left) || is_row(&right) => {
                if let (Expr::Subquery(_), row) | (row, Expr::Subquery(_)) = (&*left, &*right) {
                    return Err(self.stray_row(row));
                }
                row_values::compared(*left, op, *right)?
            }
            Expr::InList {
                expr,
                list,
                negated,
            } if is_row(&expr) || list.iter().any(is_row) => {
                row_values::in_list(*expr, list, negated)?
            }
            Expr::InSubquery { expr, .. } if is_row(&expr) => return Err(self.stray_row(&expr)),
            Expr::BinaryOp { left, op, right } => {
                let inside = compound::comparison(self.sql, &left, &op, &right)?;
                inside.unwrap_or(Expr::BinaryOp { left, op, right })
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                ..
            } => cast_to(*expr, data_type),
            // Of all years, as tables have them.
            Expr::TypedString(TypedString {
                data_type: data_type @ DataType::Timestamp(None, TimezoneInfo::None),
                value,
                ..
            }) => cast_to(Expr::Value(value), data_type),
            // The engine's negation knows no unsigned numbers, and wraps the least of the others.
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } if !matches!(*expr, Expr::Value(_)) => difference_from_zero(expr),
            // Patterns have no escapes: a backslash is one.
            Expr::Like {
                negated,
                any,
                expr,
                pattern,
                escape_char: None,
            } => Expr::Like {
                negated,
                any,
                expr,
                pattern: Box::new(with_plain_backslashes(*pattern)),
                escape_char: None,
            },
            Expr::ILike {
                negated,
                any,
                expr,
                pattern,
                escape_char: None,
            } => Expr::ILike {
                negated,
                any,
                expr,
                pattern: Box::new(with_plain_backslashes(*pattern)),
                escape_char: None,
            },
            Expr::Value(mut value) => {
                // All text is UTF-8.
                if let Value::NationalStringLiteral(text) = &mut value.value {
                    value.value = Value::SingleQuotedString(std::mem::take(text));
                }
                // Whole numbers may be written in hexadecimal.
                if let Value::HexStringLiteral(digits) = &value.value
                    && let Ok(number) = i64::from_str_radix(digits, 16)
                {
                    value.value = Value::Number(number.to_string(), false);
                }
                Expr::Value(value)
            }
            other => other,
        })
    }
}

fn is_row(expr: &Expr) -> bool {
    row_values::row(expr).is_some()
}

fn difference_from_zero(expr: Box<Expr>) -> Expr {
    let zero = Value::Number("0".to_owned(), false);
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(Expr::Value(zero.into())),
        op: BinaryOperator::Minus,
        right: Box::new(Expr::Nested(expr)),
    }))
}

fn with_plain_backslashes(mut pattern: Expr) -> Expr {
    if let Expr::Value(value) = &mut pattern
        && let Value::SingleQuotedString(text) = &mut value.value
    {
        *text = text.replace('\\', "\\\\");
    }
    pattern
}
