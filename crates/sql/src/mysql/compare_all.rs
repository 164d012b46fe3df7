//! Comparisons with ANY and ALL of a subquery's values, by the least and the greatest of them; memberships of rows.
//!
//! `x > ANY (q)` holds where x is above the least value of q, `x > ALL (q)` where it is above the greatest; where that does
//! not hold, a NULL among the values, or x itself being NULL, leaves it unknown.
//!
//! Both sides of `(a, b) IN (q)` become one value each, for the planner; [`crate::rules::WriteOutMemberships`] takes them apart again.
//!
//! What is asked of q's values is asked in its own SELECT where that is a plain one, so that q may depend on the row outside: the engine
//! knows this row in a subquery, but not in a table within.
//!
//! ```text
//!   (SELECT min(v) FROM (SELECT flux FROM Source) AS __values (v))   where q has groups, is a UNION, ...
//!   (SELECT min(flux) FROM Source)                                   where it has not
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SelectItem, SetExpr, TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::MySqlGrammar;
use super::build::call;
use super::having::{aggregates, has_groups};
use super::row_values::{as_row, row};
use super::templates::substitute;
use crate::functions::ROW;
use crate::visiting::visit_mut;

/// The name of the table of values.
const VALUES: &str = "__values";

/// `left operator ANY (values)`; `None` for operators that do not compare.
pub(super) fn any(left: Expr, operator: &BinaryOperator, values: &Query) -> Option<Expr> {
    let holds = match operator {
        BinaryOperator::Eq => return Some(member(left, values, false)),
        BinaryOperator::Gt | BinaryOperator::GtEq => format!("$1 {operator} {}", of("min($2)")),
        BinaryOperator::Lt | BinaryOperator::LtEq => format!("$1 {operator} {}", of("max($2)")),
        BinaryOperator::NotEq => format!("$1 <> {} OR $1 <> {}", of("min($2)"), of("max($2)")),
        _ => return None,
    };
    let text = format!(
        "CASE WHEN {holds} THEN 1 WHEN {} = 0 THEN 0 WHEN $1 IS NULL OR {} > 0 THEN NULL ELSE 0 END",
        of("count(*)"),
        of("count(*) - count($2)")
    );
    with_values(&text, left, values)
}

/// `left operator ALL (values)`; `None` for operators that do not compare.
pub(super) fn all(left: Expr, operator: &BinaryOperator, values: &Query) -> Option<Expr> {
    let holds = match operator {
        BinaryOperator::NotEq => return Some(member(left, values, true)),
        BinaryOperator::Gt | BinaryOperator::GtEq => format!("$1 {operator} {}", of("max($2)")),
        BinaryOperator::Lt | BinaryOperator::LtEq => format!("$1 {operator} {}", of("min($2)")),
        BinaryOperator::Eq => format!("$1 = {} AND $1 = {}", of("min($2)"), of("max($2)")),
        _ => return None,
    };
    let text = format!(
        "CASE WHEN {} = 0 THEN 1 WHEN NOT ({holds}) THEN 0 WHEN $1 IS NULL OR {} > 0 THEN NULL ELSE 1 END",
        of("count(*)"),
        of("count(*) - count($2)")
    );
    with_values(&text, left, values)
}

/// `= ANY` is IN, and `<> ALL` is NOT IN. A row is written with [`ROW`], as are the rows of its set.
pub(super) fn member(left: Expr, values: &Query, negated: bool) -> Expr {
    let left = as_row(left);
    let set = row(&left).and_then(|row| rows_of(row.len(), values));
    let (left, set) = match set {
        Some(set) => (of_row(left), set),
        None => (left, values.clone()),
    };
    Expr::InSubquery {
        expr: Box::new(left),
        subquery: Box::new(set),
        negated,
    }
}

fn of_row(row: Expr) -> Expr {
    match row {
        Expr::Tuple(values) => call(ROW, values),
        Expr::Nested(inner) => of_row(*inner),
        other => other,
    }
}

/// A query with the rows of another one, of so many columns, as its only column.
fn rows_of(width: usize, values: &Query) -> Option<Query> {
    if let Some(fields) = own_values(values)
        && fields.len() == width
    {
        return Some(asked_of_its_own(values, call(ROW, fields)));
    }
    let fields: Vec<String> = (1..=width)
        .map(|number| format!("__field_{number}"))
        .collect();
    let fields = fields.join(", ");
    let text = format!("SELECT {ROW}({fields}) FROM (SELECT 1) AS `{VALUES}` ({fields})");
    let mut parser = Parser::new(&MySqlGrammar).try_with_sql(&text).ok()?;
    let mut query = *parser.parse_query().ok()?;
    let mut put = PutValues {
        values,
        in_own_select: false,
    };
    // It breaks off nowhere.
    let _ = visit_mut(&mut query, &mut put);
    Some(query)
}

/// `(a, b) = (values)`, where the values are one row: NULL where there is none, and an error where there are several.
pub(super) fn row_equal(left: Expr, values: &Query) -> Option<Expr> {
    // The subquery by itself tells how many rows there are; the membership, whether it is this one.
    let text =
        format!("CASE WHEN (SELECT 1 FROM (SELECT 1) AS `{VALUES}`) = 1 THEN $1 ELSE NULL END");
    let mut parser = Parser::new(&MySqlGrammar).try_with_sql(&text).ok()?;
    let mut expr = parser.parse_expr().ok()?;
    let is_distinct =
        matches!(values.body.as_ref(), SetExpr::Select(select) if select.distinct.is_some());
    let mut put = PutValues {
        values,
        in_own_select: !is_distinct && own_values(values).is_some() && is_of_rows(values),
    };
    // It breaks off nowhere.
    let _ = visit_mut(&mut expr, &mut put);
    substitute(&mut expr, &[member(left, values, false)]);
    Some(Expr::Nested(Box::new(expr)))
}

/// A subquery that aggregates the values, `$2`.
fn of(aggregate: &str) -> String {
    format!("(SELECT {aggregate} FROM (SELECT 1) AS `{VALUES}` (v))")
}

fn with_values(text: &str, left: Expr, values: &Query) -> Option<Expr> {
    let mut parser = Parser::new(&MySqlGrammar).try_with_sql(text).ok()?;
    let mut expr = parser.parse_expr().ok()?;
    let own = match own_values(values).as_deref() {
        Some([value]) if is_of_rows(values) => Some(value.clone()),
        _ => None,
    };
    let mut put = PutValues {
        values,
        in_own_select: own.is_some(),
    };
    let value = own.unwrap_or_else(|| Expr::Identifier("v".into()));
    substitute(&mut expr, &[left, value]);
    // It breaks off nowhere.
    let _ = visit_mut(&mut expr, &mut put);
    Some(Expr::Nested(Box::new(expr)))
}

/// What a query selects, if that is nothing but values of one SELECT, none of which the query means by its name.
fn own_values(query: &Query) -> Option<Vec<Expr>> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let is_cut = query.limit_clause.is_some() || query.fetch.is_some() || select.top.is_some();
    if is_cut || select.qualify.is_some() {
        return None;
    }
    let may_be_meant = has_groups(select) || select.having.is_some();
    let values = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) => Some(expr.clone()),
        SelectItem::ExprWithAlias { expr, .. } if !may_be_meant => Some(expr.clone()),
        _ => None,
    });
    values.collect()
}

/// Whether a query's values are those of single rows, so that they can be aggregated where they are.
fn is_of_rows(query: &Query) -> bool {
    match query.body.as_ref() {
        SetExpr::Select(select) => {
            !(has_groups(select)
                || select.having.is_some()
                || aggregates(&select.projection)
                || has_windows(select))
        }
        _ => false,
    }
}

fn has_windows(select: &Select) -> bool {
    let mut found = Windows(false);
    let mut items = select.projection.clone();
    // It breaks off nowhere.
    let _ = visit_mut(&mut items, &mut found);
    found.0
}

struct Windows(bool);

impl VisitorMut for Windows {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.0 |= matches!(expr, Expr::Function(function) if function.over.is_some());
        ControlFlow::Continue(())
    }
}

/// A query that selects something else of its rows. Their order does not matter, nor how often there is each.
fn asked_of_its_own(query: &Query, value: Expr) -> Query {
    let mut query = query.clone();
    query.order_by = None;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.distinct = None;
        select.projection = vec![SelectItem::UnnamedExpr(value)];
    }
    query
}

/// Puts the values in the place of the table of values.
struct PutValues<'a> {
    values: &'a Query,
    in_own_select: bool,
}

impl VisitorMut for PutValues<'_> {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        let [SelectItem::UnnamedExpr(value)] = select.projection.as_slice() else {
            return ControlFlow::Continue(());
        };
        let [table] = select.from.as_mut_slice() else {
            return ControlFlow::Continue(());
        };
        if let TableFactor::Derived {
            subquery,
            alias: Some(alias),
            ..
        } = &mut table.relation
            && alias.name.value == VALUES
        {
            if self.in_own_select {
                *query = asked_of_its_own(self.values, value.clone());
            } else {
                **subquery = self.values.clone();
            }
        }
        ControlFlow::Continue(())
    }
}
