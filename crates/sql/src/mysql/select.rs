//! A SELECT's list as the engine takes it: every column with a name of its own, and nothing beside groups that is neither
//! grouped by nor aggregated.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, GroupByWithModifier, Ident, LimitClause, OrderBy,
    OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr, UnaryOperator,
    Value, VisitorMut,
};

use super::build::{call, number, take};
use super::forms::stored_constant;
use crate::visiting::{visit_expressions, visit_mut};
use crate::{ErrorCode, SqlError};

/// Begins the names of columns that are headed by something else.
pub(crate) const UNNAMED: &str = "__column_";

/// Gives the columns of a SELECT that would have the name of one before them another. Their headings stay.
pub(super) fn name_repeated(select: &mut Select) {
    name_repeated_by(select, without_constants);
}

/// The text of an expression whatever its constants are.
fn without_constants(expr: &Expr) -> String {
    unqualified(&with_equal_constants(expr))
}

/// An expression with NULL in the places of its constants, and without its casts: the planner may have one name for several, as of 1.0
/// and 1.00, and leaves casts out of names.
pub(crate) fn with_equal_constants(expr: &Expr) -> Expr {
    struct Constants;
    impl VisitorMut for Constants {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let is_signed = matches!(expr, Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner }
                if matches!(**inner, Expr::Value(_)));
            if is_signed || matches!(expr, Expr::Value(_)) {
                *expr = super::build::null();
            } else if let Expr::Cast { expr: inner, .. } = expr {
                *expr = take(inner);
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    // It breaks off nowhere.
    let _ = visit_mut(&mut expr, &mut Constants);
    expr
}

/// Takes the constants among the results of a query for the decimals as which they are typed.
pub(crate) fn store_constants(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                {
                    *expr = stored_constant(take(expr));
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            store_constants(left);
            store_constants(right);
        }
        SetExpr::Query(query) => store_constants(&mut query.body),
        _ => {}
    }
}

/// Gives the columns of a whole statement's result different names, where their aliases are the same: a result may have two
/// columns of one name, a derived table may not.
pub(crate) fn name_results(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            let mut seen = HashSet::new();
            for (at, item) in select.projection.iter_mut().enumerate() {
                match item {
                    SelectItem::ExprWithAlias { alias, .. } if seen.contains(&alias.value) => {
                        *alias = Ident::new(format!("{UNNAMED}{at}"));
                    }
                    SelectItem::ExprWithAlias { alias, .. } => {
                        seen.insert(alias.value.clone());
                    }
                    SelectItem::UnnamedExpr(expr) => {
                        seen.extend(name_of_column(expr).map(|name| name.value));
                    }
                    _ => {}
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            name_results(left);
            name_results(right);
        }
        SetExpr::Query(query) => name_results(&mut query.body),
        _ => {}
    }
}

/// The same, where a column's name is what `name` says of its expression.
pub(crate) fn name_repeated_by(select: &mut Select, name: fn(&Expr) -> String) {
    let all_columns = select.projection.iter().any(is_wildcard);
    let mut seen = HashSet::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                seen.insert(alias.value.clone());
            }
            continue;
        };
        let unnamed = has_subquery(expr) || (all_columns && is_column(expr));
        let repeats = !seen.insert(name(expr)) || unnamed;
        if repeats {
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            let alias = Ident::new(format!("{UNNAMED}{at}"));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// The planner calls all subqueries the same.
fn has_subquery(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

pub(super) fn is_wildcard(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// The name of a column without its table's.
pub(super) fn name_of_column(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(names) => names.last().cloned(),
        _ => None,
    }
}

/// The text of an expression, its columns without their tables.
fn unqualified(expr: &Expr) -> String {
    struct LastParts;
    impl VisitorMut for LastParts {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::CompoundIdentifier(names) => {
                    if let Some(last) = names.pop() {
                        *expr = Expr::Identifier(last);
                    }
                }
                Expr::Nested(inner) => {
                    let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.into()));
                    *expr = inner;
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    // It breaks off nowhere.
    let _ = visit_mut(&mut expr, &mut LastParts);
    expr.to_string().replace('`', "")
}

/// A plain column beside groups that is not grouped by has the value of some row of the group, as MySQL has it.
pub(super) fn choose_for_groups(select: &mut Select) {
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else {
        return;
    };
    if groups.is_empty() || !(modifiers.is_empty() || is_rollup(modifiers)) {
        return;
    }
    let grouped: HashSet<String> = groups.iter().map(unqualified).collect();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let by_place = grouped.contains(&(at + 1).to_string());
        match item {
            SelectItem::UnnamedExpr(expr)
                if is_column(expr) && !by_place && !grouped.contains(&unqualified(expr)) =>
            {
                let chosen = call("first_value", vec![expr.clone()]);
                let alias = Ident::new(unqualified(expr));
                *item = SelectItem::ExprWithAlias {
                    expr: chosen,
                    alias,
                };
            }
            SelectItem::ExprWithAlias { expr, alias } if is_column(expr) => {
                let named = grouped.contains(&alias.value);
                if !by_place && !named && !grouped.contains(&unqualified(expr)) {
                    *expr = call("first_value", vec![expr.clone()]);
                }
            }
            _ => {}
        }
    }
}

fn is_rollup(modifiers: &[GroupByWithModifier]) -> bool {
    matches!(modifiers, [GroupByWithModifier::Rollup])
}

/// `GROUP BY a, b WITH ROLLUP`: groups by both, by the first, and of all, as the standard's `ROLLUP (a, b)` has them. Places
/// of items become the items.
pub(super) fn roll_up(select: &mut Select) {
    let GroupByExpr::Expressions(groups, modifiers) = &mut select.group_by else {
        return;
    };
    if !is_rollup(modifiers) {
        return;
    }
    modifiers.clear();
    let items = &select.projection;
    let group = |group: Expr| vec![item_of_place(items, &group).unwrap_or(group)];
    let sets = std::mem::take(groups).into_iter().map(group).collect();
    groups.push(Expr::Rollup(sets));
    // Of no rows MySQL gives no total; the standard's empty grouping set gives one.
    let has_rows = Expr::BinaryOp {
        left: Box::new(call("count", vec![number("1")])),
        op: BinaryOperator::Gt,
        right: Box::new(number("0")),
    };
    select.having = Some(match select.having.take() {
        Some(having) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(having))),
            op: BinaryOperator::And,
            right: Box::new(has_rows),
        },
        None => has_rows,
    });
}

/// Gives a query WITH ROLLUP that has no order the one in which MySQL computes it: groups ascending, NULL first, and behind the rows of a
/// group the one of all of them. (MySQL 8.4 Reference Manual, 14.19.2, "GROUP BY Modifiers".)
///
/// ```text
///   SELECT a, b, COUNT(*) FROM t GROUP BY ROLLUP (a, b) ORDER BY grouping(a), a, grouping(b), b
/// ```
pub(super) fn order_rolled_up(query: &mut Query) {
    if query.order_by.is_some() {
        return;
    }
    let keys = match query.body.as_mut() {
        SetExpr::Query(inner) => return order_rolled_up(inner),
        SetExpr::Select(select) => rolled_up_keys(select),
        _ => None,
    };
    query.order_by = keys.map(|keys| OrderBy {
        kind: OrderByKind::Expressions(keys),
        interpolate: None,
    });
}

/// The keys by which the rows of a SELECT are ordered that has groups of groups; `None` for another one, or where a name in its
/// groups would mean something else in an ORDER BY.
fn rolled_up_keys(select: &Select) -> Option<Vec<OrderByExpr>> {
    let GroupByExpr::Expressions(groups, _) = &select.group_by else {
        return None;
    };
    // The rows of a DISTINCT are ordered by what it selects alone.
    let ([Expr::Rollup(sets)], None) = (groups.as_slice(), &select.distinct) else {
        return None;
    };
    let mut keys = Vec::with_capacity(2 * sets.len());
    for group in sets.iter().flatten() {
        if has_subquery(group) || names_item(group, &select.projection) {
            return None;
        }
        keys.push(ascending(call("grouping", vec![group.clone()])));
        if !matches!(group, Expr::Value(_)) {
            keys.push(ascending(group.clone()));
        }
    }
    Some(keys)
}

fn ascending(expr: Expr) -> OrderByExpr {
    OrderByExpr {
        expr,
        options: OrderByOptions {
            asc: Some(true),
            nulls_first: Some(true),
        },
        with_fill: None,
    }
}

/// Whether a name without a table's before it is that of an item which is another expression than the column.
fn names_item(group: &Expr, items: &[SelectItem]) -> bool {
    let is_item = |name: &Ident| {
        items.iter().any(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                alias.value == name.value
                    && name_of_column(expr).is_none_or(|it| it.value != name.value)
            }
            _ => false,
        })
    };
    let found = visit_expressions(group, |part| match part {
        Expr::Identifier(name) if is_item(name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// What stands in the list at the place that an expression is the number of.
fn item_of_place(items: &[SelectItem], place: &Expr) -> Option<Expr> {
    let place: usize = place.to_string().parse().ok()?;
    match items.get(place.checked_sub(1)?)? {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            Some(expr.clone())
        }
        _ => None,
    }
}

/// Makes `FETCH FIRST n ROWS ONLY`, as standard SQL has it, a LIMIT.
pub(super) fn limit_by_fetch(sql: &str, query: &mut Query) -> Result<(), SqlError> {
    let Some(fetch) = query.fetch.take() else {
        return Ok(());
    };
    let rejected =
        |sentence| Err(SqlError::about(sql, "fetch", sentence).with_code(ErrorCode::NOT_SUPPORTED));
    if fetch.percent || fetch.with_ties {
        return rejected("FETCH FIRST takes a number of rows and neither PERCENT nor WITH TIES");
    }
    let rows = fetch.quantity.unwrap_or_else(|| number("1"));
    match &mut query.limit_clause {
        None => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(rows),
                offset: None,
                limit_by: vec![],
            });
        }
        Some(LimitClause::LimitOffset { limit, .. }) if limit.is_none() => *limit = Some(rows),
        Some(_) => {
            return rejected(
                "FETCH FIRST and LIMIT both say how many rows are wanted; leave one of them out",
            );
        }
    }
    Ok(())
}

/// As many rows as nobody has. The engine adds a LIMIT to an OFFSET, in integers of 64 bits.
const MOST_ROWS: u64 = 1 << 61;

/// Takes a LIMIT or an OFFSET beyond all rows, as `LIMIT 95, 18446744073709551615` for those from the 95th on, for a number whose sum
/// with another one the engine has.
pub(super) fn bound_limit(query: &mut Query) {
    let numbers = match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => [
            limit.as_mut(),
            offset.as_mut().map(|offset| &mut offset.value),
        ],
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => [Some(offset), Some(limit)],
        None => return,
    };
    for number in numbers.into_iter().flatten() {
        if let Expr::Value(value) = number
            && let Value::Number(digits, _) = &mut value.value
            && digits.parse::<u64>().is_ok_and(|number| number > MOST_ROWS)
        {
            *digits = MOST_ROWS.to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::rewritten_in;

    fn written(sql: &str) -> String {
        rewritten_in(Dialect::MySql, sql)
    }

    /// The totals were anywhere among the rows of their groups, and elsewhere with each execution.
    #[test]
    fn rows_with_rollup_are_ordered_as_they_are_computed() {
        let order = " ORDER BY grouping(a) ASC NULLS FIRST, a ASC NULLS FIRST, grouping(b + 1) ASC NULLS FIRST, b + 1 ASC NULLS FIRST";
        let select = "SELECT a, COUNT(*) FROM t GROUP BY a, b + 1 WITH ROLLUP";
        for sql in [select.to_owned(), format!("({select})")] {
            let written = written(&sql);
            assert!(written.trim_end_matches(')').ends_with(order), "{written}");
        }
        let limited = format!("{order} LIMIT 3");
        for sql in [
            format!("{select} LIMIT 3"),
            format!("SELECT * FROM ({select} LIMIT 3) AS s"),
            format!("SELECT 1 UNION ALL ({select} LIMIT 3)"),
        ] {
            let written = written(&sql);
            assert!(written.contains(&limited), "{written}");
        }
    }

    #[test]
    fn other_rows_have_the_order_that_is_said() {
        for (sql, order) in [
            ("SELECT a FROM t GROUP BY a", None),
            (
                "SELECT a FROM t GROUP BY a WITH ROLLUP ORDER BY a DESC",
                Some("a DESC"),
            ),
            (
                "SELECT a FROM t GROUP BY a WITH ROLLUP ORDER BY NULL",
                Some("NULL"),
            ),
            ("SELECT DISTINCT a FROM t GROUP BY a WITH ROLLUP", None),
            (
                "SELECT * FROM (SELECT a FROM t GROUP BY a WITH ROLLUP) AS s",
                None,
            ),
            // Of which columns the names are is not known here.
            (
                "SELECT a + 1 AS x, COUNT(*) FROM t GROUP BY x WITH ROLLUP",
                None,
            ),
        ] {
            let written = written(sql);
            let found = written.split_once(" ORDER BY ").map(|it| it.1);
            assert_eq!(found, order, "{sql}");
        }
    }
}
