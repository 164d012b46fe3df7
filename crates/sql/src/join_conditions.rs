//! Subqueries in the ON of inner joins.
//!
//! The engine has values of subqueries in conditions of a WHERE alone. There a condition of an inner join says the same, as long as no join
//! behind it keeps rows of its other side:
//!
//! ```text
//!   Object o JOIN Source s ON s.id = o.id AND s.mjd = (SELECT MAX(x.mjd) FROM Source x WHERE x.id = s.id)
//!     ──►   Object o JOIN Source s ON s.id = o.id WHERE s.mjd = (SELECT MAX(x.mjd) FROM Source x WHERE x.id = s.id)
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Select, Statement, Value, Visitor,
    VisitorMut,
};

use crate::mysql::build::take;
use crate::visiting::{visit, visit_mut};

/// Moves them in a statement.
pub(crate) fn move_subqueries(statement: &mut Statement) {
    // It breaks off nowhere.
    let _ = visit_mut(statement, &mut Joins);
}

struct Joins;

impl VisitorMut for Joins {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut moved = Vec::new();
        for table in &mut select.from {
            // From the last one back, up to what keeps rows of its right side.
            for join in table.joins.iter_mut().rev() {
                match &mut join.join_operator {
                    JoinOperator::Join(JoinConstraint::On(condition))
                    | JoinOperator::Inner(JoinConstraint::On(condition))
                    | JoinOperator::StraightJoin(JoinConstraint::On(condition)) => {
                        moved.extend(taken_out(condition));
                    }
                    JoinOperator::Right(_)
                    | JoinOperator::RightOuter(_)
                    | JoinOperator::FullOuter(_) => break,
                    _ => {}
                }
            }
        }
        if let Some(moved) = moved.into_iter().reduce(both) {
            select.selection = Some(match select.selection.take() {
                Some(condition) => both(Expr::Nested(Box::new(condition)), moved),
                None => moved,
            });
        }
        ControlFlow::Continue(())
    }
}

fn both(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    }
}

/// The parts of a condition that have values of subqueries; the others stay.
fn taken_out(condition: &mut Expr) -> Option<Expr> {
    if !has_value_of_subquery(condition) {
        return None;
    }
    let mut parts = Vec::new();
    split(take(condition), &mut parts);
    let (moved, kept): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(has_value_of_subquery);
    let kept = kept.into_iter().reduce(both);
    *condition = kept.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()));
    moved.into_iter().reduce(both)
}

fn split(condition: Expr, parts: &mut Vec<Expr>) {
    match condition {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            split(*left, parts);
            split(*right, parts);
        }
        Expr::Nested(inner)
            if matches!(
                inner.as_ref(),
                Expr::BinaryOp {
                    op: BinaryOperator::And,
                    ..
                }
            ) =>
        {
            split(*inner, parts);
        }
        other => parts.push(other),
    }
}

fn has_value_of_subquery(expr: &Expr) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Subquery(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    visit(expr, &mut Finder).is_break()
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::parse_in;

    fn from_clause(joins: &str) -> String {
        let sql = format!("SELECT 1 FROM a {joins}");
        let parsed = parse_in(Dialect::Adql, &sql).unwrap();
        let written = parsed[0].statement.to_string();
        written.split_once(" FROM a ").unwrap().1.to_owned()
    }

    #[test]
    fn conditions_of_inner_joins_are_moved() {
        let subquery = "b.x = (SELECT max(c.x) FROM c WHERE c.id = b.id)";
        let moved = from_clause(&format!(
            "JOIN b ON a.id = b.id AND ({subquery} AND b.y > 1) WHERE a.z = 1 OR a.z = 2"
        ));
        assert!(
            moved.starts_with(
                "JOIN b ON a.id = b.id AND b.y > 1 WHERE (a.z = 1 OR a.z = 2) AND b.x = (SELECT"
            ),
            "{moved}"
        );
        let moved = from_clause(&format!("JOIN b ON {subquery} LEFT JOIN d ON d.id = b.id"));
        assert!(
            moved.starts_with("JOIN b ON true LEFT JOIN d ON d.id = b.id WHERE b.x"),
            "{moved}"
        );
        for kept in [
            format!("LEFT JOIN b ON {subquery}"),
            format!("JOIN b ON {subquery} RIGHT JOIN d ON d.id = b.id"),
        ] {
            assert!(!from_clause(&kept).contains(" ON true "), "{kept}");
        }
    }
}
