//! `IN (SELECT ...)` and `EXISTS` where the engine's joins do not have them, or have them wrongly.
//!
//! A value is in a set with a NULL, or it is unknown whether it is; the engine's joins know that where a condition is `NOT IN` by
//! itself or beside AND. Below OR, NOT, XOR and comparisons they take unknown for false: there the three cases are written out,
//!
//! ```text
//! x IN (S)   becomes   x IN (S) OR (NULL AND (x IS NULL AND EXISTS (S) OR EXISTS (S where its column IS NULL)))
//! ```
//!
//! A NOT IN whose set depends on the row outside is one that no row of the set contradicts. (The engine's join for NOT IN would look for a
//! NULL among all rows, those too that belong to other rows outside.)
//!
//! ```text
//! x NOT IN (S)   becomes   NOT EXISTS (S where its column = x is not false)
//! ```
//!
//! What an inner join asks of such sets in its ON is asked above it; an outer join cannot ask it.
//!
//! Among the items of a SELECT there is no such join at all, and rows are counted:
//!
//! ```text
//! EXISTS (S)   becomes   (SELECT COUNT(*) FROM (S)) > 0
//! x IN (S)     becomes   EXISTS (S where its column = x), with the three cases
//! ```
//!
//! Of lists too the engine forgets NULLs, where it makes one of `x IN (...) AND x NOT IN (..., NULL)`, which no row meets:
//!
//! ```text
//! x NOT IN (1, NULL)   becomes   x NOT IN (1) AND NULL
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue, not_impl_err, plan_err};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Filter, Join, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, Subquery, lit, not,
};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite_expressions;
use super::row_members::RowMember;

/// Writes out memberships whose unknown matters, and those among the items of a SELECT.
///
/// Runs before type coercion, for the comparisons that it makes.
#[derive(Debug, Default)]
pub struct WriteOutMemberships;

impl AnalyzerRule for WriteOutMemberships {
    fn name(&self) -> &str {
        "write_out_memberships"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = rewrite_expressions(plan, |expr, _| expr.transform_up(without_null))?;
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Filter(filter) => {
                let predicate = condition(filter.predicate, true, filter.input.schema())?;
                if !predicate.transformed {
                    let filter = Filter::new(predicate.data, filter.input);
                    return Ok(Transformed::no(LogicalPlan::Filter(filter)));
                }
                let filter = Filter::try_new(predicate.data, filter.input)?;
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            LogicalPlan::Projection(projection) => items(projection),
            LogicalPlan::Join(join) => above_join(join),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

/// A `NOT IN` of a list with the NULL beside it.
fn without_null(expr: Expr) -> Result<Transformed<Expr>> {
    let is_null = |item: &Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
    match expr {
        Expr::InList(mut list) if list.negated && list.list.iter().any(is_null) => {
            list.list.retain(|item| !is_null(item));
            let unknown = lit(ScalarValue::Boolean(None));
            Ok(Transformed::yes(if list.list.is_empty() {
                unknown
            } else {
                Expr::InList(list).and(unknown)
            }))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Goes down a condition while NULL is as good as false; `alone` says that there was nothing but AND above.
fn condition(expr: Expr, alone: bool, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) => {
            let alone = alone && op == Operator::And;
            let left = condition(*left, alone, schema)?;
            let right = condition(*right, alone, schema)?;
            let transformed = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(Transformed::new_transformed(
                Expr::BinaryExpr(both),
                transformed,
            ))
        }
        Expr::InSubquery(member) if let Some(row) = RowMember::of(&member)? => {
            Ok(Transformed::yes(match alone || !member.negated {
                true => row.as_condition(schema, exists)?,
                false => row.as_value(schema, exists)?,
            }))
        }
        Expr::InSubquery(member) if alone && member.negated && depends_on_row(&member) => {
            Ok(Transformed::yes(uncontradicted(&member, schema)?))
        }
        Expr::InSubquery(member) if alone => Ok(Transformed::no(Expr::InSubquery(member))),
        Expr::InSubquery(member) if !member.negated => Ok(Transformed::yes(Expr::InSubquery(
            with_named_column(member)?,
        ))),
        Expr::Not(inner) if alone && is_plain_membership(&inner) => match *inner {
            Expr::InSubquery(member) if let Some(row) = RowMember::of(&member)? => Ok(
                Transformed::yes(row.negated().as_condition(schema, exists)?),
            ),
            Expr::InSubquery(member) if depends_on_row(&member) => {
                Ok(Transformed::yes(uncontradicted(&member, schema)?))
            }
            inner => Ok(Transformed::no(Expr::Not(Box::new(inner)))),
        },
        other => other.transform_up(|expr| match expr {
            Expr::InSubquery(member) if let Some(row) = RowMember::of(&member)? => {
                Ok(Transformed::yes(row.as_value(schema, exists)?))
            }
            Expr::InSubquery(member) => {
                let member = with_named_column(member)?;
                let plain = plain_membership(&member, schema)?;
                three_valued(member, plain, schema, exists)
            }
            other => Ok(Transformed::no(other)),
        }),
    }
}

/// `x IN (S)` as it is true. Where the set depends on the row outside it is asked for a row that equals x: once what stands around it is
/// simplified it may be a `NOT IN` by itself, and the engine's join for that takes no condition on the row outside.
fn plain_membership(member: &InSubquery, schema: &DFSchema) -> Result<Expr> {
    if depends_on_row(member) {
        return exists(&with_member(member, schema)?);
    }
    Ok(Expr::InSubquery(InSubquery {
        negated: false,
        ..member.clone()
    }))
}

/// Whether a set is another one for each row outside.
fn depends_on_row(member: &InSubquery) -> bool {
    !member.subquery.outer_ref_columns.is_empty()
}

/// `x NOT IN (S)`, true where the comparison of x is false for every row of S, and not true else.
fn uncontradicted(member: &InSubquery, schema: &DFSchema) -> Result<Expr> {
    let subquery = with_value(member, schema, |column, value| {
        column.eq(value).is_not_false()
    })?;
    Ok(Expr::Exists(Exists {
        subquery,
        negated: true,
    }))
}

/// A join with what it asks of sets in its ON asked above it.
fn above_join(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let asks =
        |expr: &Expr| expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))));
    let Some(filter) = join.filter.take() else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    if !asks(&filter)? {
        join.filter = Some(filter);
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    if join.join_type != JoinType::Inner {
        return not_impl_err!(
            "IN (SELECT ...) and EXISTS in the ON of an outer join are not supported: select the flag beside one of the tables, as in \
             (SELECT *, EXISTS (SELECT ...) AS flag FROM t) t, and join ON flag"
        );
    }
    let (mut above, mut within) = (Vec::new(), Vec::new());
    for part in split_conjunction_owned(filter) {
        if asks(&part)? {
            above.push(part);
        } else {
            within.push(part);
        }
    }
    join.filter = conjunction(within);
    let joined = LogicalPlan::Join(join);
    let Some(predicate) = conjunction(above) else {
        return Ok(Transformed::no(joined));
    };
    let predicate = condition(predicate, true, joined.schema())?.data;
    let filter = Filter::try_new(predicate, Arc::new(joined))?;
    Ok(Transformed::yes(LogicalPlan::Filter(filter)))
}

fn is_plain_membership(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(member) if !member.negated)
}

/// The same, with a set whose column belongs to a table. One that does not (an expression's, a UNION's) would be taken by the
/// optimizer for two columns where the join marks rows instead of choosing them. Where the set depends on the row outside it makes
/// columns of its own, but for a DISTINCT, which a set need not have.
fn with_named_column(member: InSubquery) -> Result<InSubquery> {
    const TABLE: &str = "__set";
    let set = &member.subquery;
    if set.subquery.schema().qualified_field(0).0.is_some() {
        return Ok(member);
    }
    if depends_on_row(&member) {
        let LogicalPlan::Distinct(Distinct::All(rows)) = set.subquery.as_ref() else {
            return Ok(member);
        };
        return Ok(InSubquery {
            subquery: set.with_plan(Arc::clone(rows)),
            ..member
        });
    }
    let plan = LogicalPlanBuilder::from(Arc::clone(&set.subquery))
        .alias(TABLE)?
        .build()?;
    Ok(InSubquery {
        subquery: set.with_plan(Arc::new(plan)),
        ..member
    })
}

fn items(mut projection: Projection) -> Result<Transformed<LogicalPlan>> {
    let asks =
        |expr: &Expr| expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))));
    let mut any = false;
    for expr in &projection.expr {
        any |= asks(expr)?;
    }
    if !any {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    }
    let schema = Arc::clone(projection.input.schema());
    let names = NamePreserver::new_for_projection();
    let exprs = std::mem::take(&mut projection.expr)
        .into_iter()
        .map(|expr| {
            let name = names.save(&expr);
            let counted = expr.transform_up(|expr| item(expr, &schema)).data()?;
            Ok(name.restore(counted))
        });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let projection = Projection::try_new(exprs, projection.input)?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn item(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Exists(Exists { subquery, negated }) => {
            let any = any(&subquery)?;
            Ok(Transformed::yes(if negated { not(any) } else { any }))
        }
        Expr::InSubquery(member) if let Some(row) = RowMember::of(&member)? => {
            Ok(Transformed::yes(row.as_value(schema, any)?))
        }
        Expr::InSubquery(member) => {
            let found = with_member(&member, schema)?;
            let found = any(&found)?;
            three_valued(member, found, schema, any)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// A membership with its three cases; `found` is that for which it is true, `any` that there are rows.
fn three_valued(
    member: InSubquery,
    found: Expr,
    schema: &DFSchema,
    any: fn(&Subquery) -> Result<Expr>,
) -> Result<Transformed<Expr>> {
    check_depth(&member.subquery)?;
    let mut unknown = None;
    if may_be_null(&member.expr, schema) {
        let without = member.expr.as_ref().clone().is_null();
        unknown = Some(without.and(any(&member.subquery)?));
    }
    let set = member.subquery.subquery.schema();
    let column = only_column(set);
    if may_be_null(&column, set) {
        let nulls = any(&filtered(&member.subquery, column.is_null())?)?;
        unknown = Some(match unknown {
            Some(unknown) => unknown.or(nulls),
            None => nulls,
        });
    }
    let truth = match unknown {
        Some(unknown) => {
            let null = lit(ScalarValue::Boolean(None));
            found.or(null.and(unknown))
        }
        None => found,
    };
    Ok(Transformed::yes(if member.negated {
        not(truth)
    } else {
        truth
    }))
}

/// Subqueries of a set of which three copies are made, at most: it has them three times for each one that it is deep.
const MOST_SUBQUERIES: usize = 20;

fn check_depth(set: &Subquery) -> Result<()> {
    let mut subqueries = 0;
    set.subquery.apply_with_subqueries(|plan| {
        subqueries += usize::from(matches!(plan, LogicalPlan::Subquery(_)));
        Ok(TreeNodeRecursion::Continue)
    })?;
    if subqueries > MOST_SUBQUERIES {
        return plan_err!(
            "memberships (IN with a subquery) are nested too deeply below OR and NOT: give the inner ones names with WITH"
        );
    }
    Ok(())
}

/// Whether a value may be NULL. Computed ones may become so by the guards of values, whatever they are said to be.
pub(super) fn may_be_null(expr: &Expr, schema: &DFSchema) -> bool {
    let is_sure = matches!(expr, Expr::Column(_) | Expr::Literal(..))
        && expr
            .get_type(schema)
            .is_ok_and(|t| t.is_integer() || t.is_string());
    !is_sure || expr.nullable(schema).unwrap_or(true)
}

fn only_column(schema: &DFSchema) -> Expr {
    Expr::Column(Column::from(schema.qualified_field(0)))
}

/// The rows of a subquery whose column equals the value.
fn with_member(member: &InSubquery, schema: &DFSchema) -> Result<Subquery> {
    with_value(member, schema, Expr::eq)
}

/// The rows of a subquery of whose column and the value this is true.
fn with_value(
    member: &InSubquery,
    schema: &DFSchema,
    is_so: impl FnOnce(Expr, Expr) -> Expr,
) -> Result<Subquery> {
    let mut outer = member.subquery.outer_ref_columns.clone();
    let value = from_outside(&member.expr, schema, &mut outer)?;
    let column = only_column(member.subquery.subquery.schema());
    let mut found = filtered(&member.subquery, is_so(column, value))?;
    found.outer_ref_columns = outer;
    Ok(found)
}

/// An expression of a row as a subquery sees it from within, whose columns from outside, `outer`, have then those of the expression too.
pub(super) fn from_outside(expr: &Expr, schema: &DFSchema, outer: &mut Vec<Expr>) -> Result<Expr> {
    let seen = expr.clone().transform_up(|expr| match expr {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            let column = Expr::OuterReferenceColumn(Arc::clone(field), column);
            if !outer.contains(&column) {
                outer.push(column.clone());
            }
            Ok(Transformed::yes(column))
        }
        other => Ok(Transformed::no(other)),
    });
    seen.data()
}

fn filtered(subquery: &Subquery, condition: Expr) -> Result<Subquery> {
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery))
        .filter(condition)?
        .build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}

fn exists(subquery: &Subquery) -> Result<Expr> {
    Ok(Expr::Exists(Exists {
        subquery: subquery.clone(),
        negated: false,
    }))
}

/// That there are rows, as a comparison of their number.
fn any(subquery: &Subquery) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery))
        .aggregate(Vec::<Expr>::new(), [count(lit(1))])?
        .build()?;
    let number = Expr::ScalarSubquery(subquery.with_plan(Arc::new(plan)));
    Ok(number.gt(lit(0_i64)))
}
