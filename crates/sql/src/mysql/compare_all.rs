//! Comparisons with ANY and ALL of a subquery's values, by the least and the greatest of them.
//!
//! `x > ANY (q)` holds where x is above the least value of q, `x > ALL (q)` where it is above the greatest; where that does
//! not hold, a NULL among the values, or x itself being NULL, leaves it unknown.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::MySqlGrammar;
use super::templates::substitute;

/// The name of the table of values.
const VALUES: &str = "__values";

/// `left operator ANY (values)`; `None` for operators that do not compare.
pub(super) fn any(left: Expr, operator: &BinaryOperator, values: &Query) -> Option<Expr> {
    let holds = match operator {
        BinaryOperator::Eq => return Some(member(left, values, false)),
        BinaryOperator::Gt | BinaryOperator::GtEq => format!("$1 {operator} {}", of("min(v)")),
        BinaryOperator::Lt | BinaryOperator::LtEq => format!("$1 {operator} {}", of("max(v)")),
        BinaryOperator::NotEq => format!("$1 <> {} OR $1 <> {}", of("min(v)"), of("max(v)")),
        _ => return None,
    };
    let text = format!(
        "CASE WHEN {holds} THEN 1 WHEN {} = 0 THEN 0 WHEN $1 IS NULL OR {} > 0 THEN NULL ELSE 0 END",
        of("count(*)"),
        of("count(*) - count(v)")
    );
    with_values(&text, left, values)
}

/// `left operator ALL (values)`; `None` for operators that do not compare.
pub(super) fn all(left: Expr, operator: &BinaryOperator, values: &Query) -> Option<Expr> {
    let holds = match operator {
        BinaryOperator::NotEq => return Some(member(left, values, true)),
        BinaryOperator::Gt | BinaryOperator::GtEq => format!("$1 {operator} {}", of("max(v)")),
        BinaryOperator::Lt | BinaryOperator::LtEq => format!("$1 {operator} {}", of("min(v)")),
        BinaryOperator::Eq => format!("$1 = {} AND $1 = {}", of("min(v)"), of("max(v)")),
        _ => return None,
    };
    let text = format!(
        "CASE WHEN {} = 0 THEN 1 WHEN NOT ({holds}) THEN 0 WHEN $1 IS NULL OR {} > 0 THEN NULL ELSE 1 END",
        of("count(*)"),
        of("count(*) - count(v)")
    );
    with_values(&text, left, values)
}

/// `= ANY` is IN, and `<> ALL` is NOT IN.
fn member(left: Expr, values: &Query, negated: bool) -> Expr {
    Expr::InSubquery {
        expr: Box::new(left),
        subquery: Box::new(values.clone()),
        negated,
    }
}

/// A subquery that aggregates the values.
fn of(aggregate: &str) -> String {
    format!("(SELECT {aggregate} FROM (SELECT 1) AS `{VALUES}` (v))")
}

fn with_values(text: &str, left: Expr, values: &Query) -> Option<Expr> {
    let mut parser = Parser::new(&MySqlGrammar).try_with_sql(text).ok()?;
    let mut expr = parser.parse_expr().ok()?;
    substitute(&mut expr, &[left]);
    // It breaks off nowhere.
    let _ = expr.visit(&mut PutValues(values));
    Some(Expr::Nested(Box::new(expr)))
}

struct PutValues<'a>(&'a Query);

impl VisitorMut for PutValues<'_> {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived {
            subquery, alias, ..
        } = table
            && alias
                .as_ref()
                .is_some_and(|alias| alias.name.value == VALUES)
        {
            **subquery = self.0.clone();
        }
        ControlFlow::Continue(())
    }
}
