//! `IN (SELECT ...)` where it matters that it may be unknown.
//!
//! A value is in a set with a NULL, or it is unknown whether it is; the engine's joins know that where a condition is `NOT IN` by
//! itself or beside AND. Below OR, NOT, XOR and comparisons they take unknown for false: there the three cases are written out,
//!
//! ```text
//! x IN (S)   becomes   x IN (S) OR (NULL AND (x IS NULL AND EXISTS (S) OR EXISTS (S with its item IS NULL)))
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, GroupByExpr, Query, Select, SelectItem, SetExpr,
    Statement, UnaryOperator, Value, VisitMut, VisitorMut,
};

/// Rewrites the conditions of all SELECTs of a statement.
pub(crate) fn write_out(statement: &mut Statement) {
    // It breaks off nowhere.
    let _ = statement.visit(&mut Conditions);
}

struct Conditions;

impl VisitorMut for Conditions {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for condition in [&mut select.selection, &mut select.having]
            .into_iter()
            .flatten()
        {
            walk(condition, true);
        }
        ControlFlow::Continue(())
    }
}

/// Goes down while NULL is as good as false; `alone` says that there was nothing but AND above.
fn walk(expr: &mut Expr, alone: bool) {
    match expr {
        Expr::Nested(inner) => walk(inner, alone),
        Expr::BinaryOp {
            left,
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            right,
        } => {
            let alone = alone && *op == BinaryOperator::And;
            walk(left, alone);
            walk(right, alone);
        }
        Expr::InSubquery { negated, .. } if alone || !*negated => {}
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } if alone && is_plain_membership(expr) => {}
        other => {
            // It breaks off nowhere.
            let _ = other.visit(&mut Memberships { queries: 0 });
        }
    }
}

fn is_plain_membership(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_plain_membership(inner),
        Expr::InSubquery { negated, .. } => !negated,
        _ => false,
    }
}

/// Writes out all of an expression, but those of its subqueries' own conditions.
struct Memberships {
    queries: usize,
}

impl VisitorMut for Memberships {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries == 0
            && let Expr::InSubquery {
                expr: value,
                subquery,
                negated,
            } = expr
            && let Some(with_null) = with_null(subquery)
        {
            let unknown = or(
                and(is_null((**value).clone()), exists((**subquery).clone())),
                exists(with_null),
            );
            let member = Expr::InSubquery {
                expr: value.clone(),
                subquery: subquery.clone(),
                negated: false,
            };
            let three_valued = nested(or(member, nested(and(null(), nested(unknown)))));
            *expr = if *negated {
                Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr: Box::new(three_valued),
                }
            } else {
                three_valued
            };
        }
        ControlFlow::Continue(())
    }
}

/// The rows of a plain subquery whose only item, a column, is NULL; `None` for another.
fn with_null(query: &Query) -> Option<Query> {
    let mut query = query.clone();
    let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    if !plain || !ungrouped || select.having.is_some() || select.top.is_some() {
        return None;
    }
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    if !matches!(item, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    let is_null = is_null(item.clone());
    select.selection = Some(match select.selection.take() {
        Some(condition) => and(nested(condition), is_null),
        None => is_null,
    });
    Some(query)
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn is_null(expr: Expr) -> Expr {
    Expr::IsNull(Box::new(nested(expr)))
}

fn exists(query: Query) -> Expr {
    Expr::Exists {
        subquery: Box::new(query),
        negated: false,
    }
}

fn and(left: Expr, right: Expr) -> Expr {
    joined(left, BinaryOperator::And, right)
}

fn or(left: Expr, right: Expr) -> Expr {
    joined(left, BinaryOperator::Or, right)
}

fn joined(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// An unknown truth.
fn null() -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::Null.into())),
        data_type: DataType::Boolean,
        array: false,
        format: None,
    }
}
