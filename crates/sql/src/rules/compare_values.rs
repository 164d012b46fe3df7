//! Values of different types that meet, as MySQL has it: in lists, ranges, CASE, joins, sets, and among the results of a choice.
//!
//! The rules are those of [`crate::mysql::comparison`]. A plain comparison has followed them since it was planned; here the forms
//! that the engine would bring to one type are taken apart into comparisons of two values each:
//!
//! ```text
//! big IN (1, 7.5, '3')      becomes   big IN (1, 3) OR CAST(big AS DOUBLE) = 7.5
//! txt BETWEEN 1 AND 5       becomes   mysql_double(txt) >= 1 AND mysql_double(txt) <= 5
//! CASE txt WHEN 1 THEN ...  becomes   CASE WHEN mysql_double(txt) = 1 THEN ...
//! ```

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, NullEquality, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Expr, ExprSchemable, Join, JoinType, Like, LogicalPlan,
    LogicalPlanBuilder, Operator, Union, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::branches::{fields_of_columns, with_columns};
use super::row_members::RowMember;
use super::{is_comparison, rewrite_node};
use crate::functions::mysql::{self, choice};
use crate::mysql::comparison::{ComparisonKind, comparable, compared};
use crate::mysql::operand::{Kind, Operand, cast};

/// Makes values that meet comparable. Runs before all other rules, and in MySQL's dialect alone.
#[derive(Debug, Default)]
pub struct CompareValues;

impl AnalyzerRule for CompareValues {
    fn name(&self) -> &str {
        "compare_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            rewrite_node(plan, &|expr: Expr, schema: &DFSchema| {
                expr.transform_up(|expr| rewritten(expr, schema))
            })?
            .transform_data(|plan| match plan {
                LogicalPlan::Join(join) => Ok(joined(join)),
                other => Ok(Transformed::no(other)),
            })
        })
        .data()
    }
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        // What the planner has made comparable is so still, unless a UNION has become of another type.
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => {
            match made_comparable(&binary.left, &binary.right, schema) {
                Some((left, right)) => {
                    let compared = BinaryExpr::new(Box::new(left), binary.op, Box::new(right));
                    Transformed::yes(Expr::BinaryExpr(compared))
                }
                None => Transformed::no(Expr::BinaryExpr(binary)),
            }
        }
        Expr::Between(range) => between(range, schema),
        Expr::InList(list) => in_list(list, schema),
        Expr::InSubquery(member) => return in_subquery(member, schema),
        Expr::Case(case) => results(compared_case(case, schema), schema),
        Expr::Like(like) => matched(like, schema),
        Expr::WindowFunction(mut window) => {
            // LAG and LEAD.
            if let [value, _, default] = window.params.args.as_mut_slice() {
                together(value, default, schema);
            }
            for sort in &mut window.params.order_by {
                sort.expr = in_window_order(std::mem::take(&mut sort.expr), schema);
            }
            Transformed::yes(Expr::WindowFunction(window))
        }
        Expr::ScalarFunction(function) => chosen(function, schema),
        other => Transformed::no(other),
    })
}

/// Both sides of a comparison; `None` where a type cannot be told, or where the engine compares the two as they are.
fn made_comparable(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<(Expr, Expr)> {
    let given = (left.clone(), right.clone());
    let pair = comparable(Operand::of(given.0, schema)?, Operand::of(given.1, schema)?);
    (pair.0 != *left || pair.1 != *right).then_some(pair)
}

/// Whether a value is NULL by its type: it may meet values of several types.
fn is_null(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|it| it == DataType::Null)
}

fn comparison(left: &Expr, operator: Operator, right: &Expr, schema: &DFSchema) -> Expr {
    match (
        Operand::of(left.clone(), schema),
        Operand::of(right.clone(), schema),
    ) {
        (Some(left), Some(right)) => compared(operator, left, right),
        _ => datafusion::logical_expr::binary_expr(left.clone(), operator, right.clone()),
    }
}

/// A range as two comparisons, where its bounds are of other kinds. A text between numbers is a number, and between times a time,
/// also where it is compared with a text.
fn between(range: Between, schema: &DFSchema) -> Transformed<Expr> {
    let known = [&range.expr, &range.low, &range.high];
    let known = known.map(|expr| Operand::of((**expr).clone(), schema));
    let [Some(value), Some(low), Some(high)] = known else {
        return Transformed::no(Expr::Between(range));
    };
    let value = among(value, [low.kind, high.kind]);
    let plain = |bound: &Operand| {
        comparable(value.clone(), bound.clone()) == (value.expr.clone(), bound.expr.clone())
    };
    let is_plain = value.expr == *range.expr && value.kind != Kind::Null;
    if is_plain && plain(&low) && plain(&high) {
        return Transformed::no(Expr::Between(range));
    }
    let from = compared(Operator::GtEq, value.clone(), low);
    let both = from.and(compared(Operator::LtEq, value, high));
    Transformed::yes(match range.negated {
        true => Expr::Not(Box::new(both)),
        false => both,
    })
}

/// A text as a value of the kind of one of the others with which it is compared.
fn among(value: Operand, others: [Kind; 2]) -> Operand {
    match value.kind {
        Kind::Text if others.into_iter().any(Kind::is_temporal) => Operand {
            expr: value.into_moment(),
            kind: Kind::Time,
        },
        Kind::Text if others.into_iter().any(Kind::is_number) => value.into_number(),
        _ => value,
    }
}

/// Items of a list that are compared with the same expression, as values of one type.
struct Group {
    expr: Expr,
    items: Vec<Expr>,
    is_floating: bool,
}

fn in_list(list: InList, schema: &DFSchema) -> Transformed<Expr> {
    if is_null(&list.expr, schema) {
        return Transformed::yes(lit(ScalarValue::Boolean(None)));
    }
    let is_floating = |expr: &Expr| expr.get_type(schema).is_ok_and(|it| it.is_floating());
    let mut groups: Vec<Group> = vec![];
    for item in &list.list {
        let pair = made_comparable(&list.expr, item, schema);
        let (expr, item) = pair.unwrap_or_else(|| ((*list.expr).clone(), item.clone()));
        // Beside one double, the engine would take all integers for doubles.
        let is_floating = !is_floating(&expr) && is_floating(&item);
        let found = groups
            .iter_mut()
            .find(|group| group.is_floating == is_floating && group.expr == expr);
        match found {
            Some(group) => group.items.push(item),
            None => groups.push(Group {
                expr,
                items: vec![item],
                is_floating,
            }),
        }
    }
    if let [only] = groups.as_slice()
        && only.expr == *list.expr
        && only.items == list.list
    {
        return Transformed::no(Expr::InList(list));
    }
    let negated = list.negated;
    let groups = groups
        .into_iter()
        .map(|group| Expr::InList(InList::new(Box::new(group.expr), group.items, negated)));
    let together = match negated {
        true => conjunction(groups),
        false => disjunction(groups),
    };
    match together {
        Some(expr) => Transformed::yes(expr),
        None => Transformed::no(Expr::InList(list)),
    }
}

/// Two values one of which is a result, as values of one type.
fn together(one: &mut Expr, other: &mut Expr, schema: &DFSchema) {
    let operand = |expr: &Expr| Operand::of(expr.clone(), schema);
    if let (Some(left), Some(right)) = (operand(one), operand(other)) {
        let meeting = ComparisonKind::of_results([left.kind, right.kind].into_iter());
        (*one, *other) = (meeting.meet(left), meeting.meet(right));
    }
}

/// A value by which the rows of a window are sorted, as one of a type of which the engine has windows: bytes as their digits, a time of
/// day as its microseconds.
fn in_window_order(expr: Expr, schema: &DFSchema) -> Expr {
    match expr.get_type(schema).map(|given| Kind::of_type(&given)) {
        Ok(Kind::Bytes) => mysql::call("mysql_hex", vec![expr]),
        Ok(Kind::TimeOfDay) => cast(expr, DataType::Int64),
        _ => expr,
    }
}

/// LIKE where one side is bytes: both are compared byte by byte.
fn matched(mut like: Like, schema: &DFSchema) -> Transformed<Expr> {
    // The text that the value was made of, which bytes may not have.
    let value = match &*like.expr {
        Expr::ScalarFunction(text) if text.name() == "mysql_text" => text.args.first(),
        _ => None,
    };
    let value = value.unwrap_or(&like.expr).clone();
    let is_bytes = |expr: &Expr| {
        let given = expr.get_type(schema);
        given.is_ok_and(|given| Kind::of_type(&given) == Kind::Bytes)
    };
    if !is_bytes(&value) && !is_bytes(&like.pattern) {
        return Transformed::no(Expr::Like(like));
    }
    let of_bytes = |expr: Expr| Box::new(mysql::call("mysql_byte_text", vec![expr]));
    like.pattern = of_bytes(*like.pattern);
    like.expr = of_bytes(value);
    Transformed::yes(Expr::Like(like))
}

/// A membership, both of whose sides are made comparable: those of the set in a projection of it.
fn in_subquery(member: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Some(row) = RowMember::of(&member)? {
        let made = |(value, outside): (Expr, &DFSchema), (field, of_set): (Expr, &DFSchema)| match (
            Operand::of(value.clone(), outside),
            Operand::of(field.clone(), of_set),
        ) {
            (Some(value), Some(field)) => comparable(value, field),
            _ => (value, field),
        };
        return Ok(Transformed::yes(Expr::InSubquery(
            row.with_pairs(schema, made)?,
        )));
    }
    let set = &member.subquery.subquery;
    if set.schema().fields().len() != 1 {
        return Ok(Transformed::no(Expr::InSubquery(member)));
    }
    let column = Expr::Column(Column::from(set.schema().qualified_field(0)));
    let (Some(value), Some(of_set)) = (
        Operand::of((*member.expr).clone(), schema),
        Operand::of(column.clone(), set.schema()),
    ) else {
        return Ok(Transformed::no(Expr::InSubquery(member)));
    };
    let (value, of_set) = comparable(value, of_set);
    if value == *member.expr && of_set == column {
        return Ok(Transformed::no(Expr::InSubquery(member)));
    }
    let plan = if of_set == column {
        Arc::clone(set)
    } else {
        let name = column.schema_name().to_string();
        let made = LogicalPlanBuilder::from(Arc::clone(set)).project([of_set.alias(name)])?;
        Arc::new(made.build()?)
    };
    Ok(Transformed::yes(Expr::InSubquery(InSubquery {
        expr: Box::new(value),
        subquery: member.subquery.with_plan(plan),
        negated: member.negated,
    })))
}

/// A CASE of a value, as one of conditions where it is compared with values of other kinds.
fn compared_case(case: Case, schema: &DFSchema) -> Transformed<Case> {
    let Some(value) = &case.expr else {
        return Transformed::no(case);
    };
    let made = |when: &Expr| made_comparable(value, when, schema).is_some();
    let any_made = case.when_then_expr.iter().any(|(when, _)| made(when));
    if !any_made && !is_null(value, schema) {
        return Transformed::no(case);
    }
    let conditions = case.when_then_expr.iter().map(|(when, then)| {
        let condition = comparison(value, Operator::Eq, when, schema);
        (Box::new(condition), then.clone())
    });
    let conditions = conditions.collect();
    Transformed::yes(Case::new(None, conditions, case.else_expr))
}

/// A CASE whose results are of one type.
fn results(case: Transformed<Case>, schema: &DFSchema) -> Transformed<Expr> {
    let Transformed {
        data: mut case,
        transformed,
        ..
    } = case;
    let results = case.when_then_expr.iter_mut().map(|(_, then)| then);
    let mut results: Vec<_> = results.chain(case.else_expr.as_mut()).collect();
    let types = types(results.iter().map(|result| &***result), schema);
    let met = types.is_some_and(|types| {
        let meeting = ComparisonKind::of_results(types.iter().map(Kind::of_type));
        for result in &mut results {
            if let Some(operand) = Operand::of((***result).clone(), schema) {
                ***result = meeting.meet(operand);
            }
        }
        meeting != ComparisonKind::AsTheyAre
    });
    Transformed::new_transformed(Expr::Case(case), transformed || met)
}

/// COALESCE, GREATEST or LEAST of values that are of one type.
fn chosen(mut function: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let meeting = types(function.args.iter(), schema)
        .and_then(|types| choice::meeting(&function.func, &types));
    let Some(meeting) = meeting.filter(|it| *it != ComparisonKind::AsTheyAre) else {
        return Transformed::no(Expr::ScalarFunction(function));
    };
    for arg in &mut function.args {
        if let Some(operand) = Operand::of(arg.clone(), schema) {
            *arg = meeting.meet(operand);
        }
    }
    Transformed::yes(Expr::ScalarFunction(function))
}

/// A UNION whose branches have columns of the same types. Numbers have them already.
pub(super) fn united(union: Union) -> Result<Transformed<LogicalPlan>> {
    let meetings: Vec<ComparisonKind> = { fields_of_columns(&union).into_iter() }
        .map(|fields| ComparisonKind::of_results(fields.iter().map(|field| Kind::of_field(field))))
        .collect();
    if meetings.iter().all(|it| *it == ComparisonKind::AsTheyAre) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let union = with_columns(union, &|of| {
        let operand = Operand::of(of.column.clone(), of.schema);
        Ok(operand
            .zip(meetings.get(of.at))
            .map(|(it, meeting)| meeting.meet(it)))
    })?;
    Ok(Transformed::yes(union))
}

fn types<'a>(exprs: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Option<Vec<DataType>> {
    exprs.map(|expr| expr.get_type(schema).ok()).collect()
}

/// A join by equal values of different types. What INTERSECT and EXCEPT keep is as equal as in a UNION.
fn joined(mut join: Join) -> Transformed<LogicalPlan> {
    let is_of_set = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull;
    let mut transformed = false;
    for (left, right) in &mut join.on {
        let (Some(of_left), Some(of_right)) = (
            Operand::of(left.clone(), join.left.schema()),
            Operand::of(right.clone(), join.right.schema()),
        ) else {
            continue;
        };
        let pair = match is_of_set {
            true => {
                let meeting = ComparisonKind::of_results([of_left.kind, of_right.kind].into_iter());
                (meeting.meet(of_left), meeting.meet(of_right))
            }
            false => comparable(of_left, of_right),
        };
        transformed |= pair.0 != *left || pair.1 != *right;
        (*left, *right) = pair;
    }
    Transformed::new_transformed(LogicalPlan::Join(join), transformed)
}
