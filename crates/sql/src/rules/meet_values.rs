//! Values of different types that meet in ADQL: in lists, ranges, CASE, joins, unions and subqueries.
//!
//! What they meet as, [`crate::adql::meeting`] says. Plain comparisons of truths have followed it since they were planned; here are all
//! other places where the engine would bring values to one type:
//!
//! ```text
//! flag IN (0, 1)                        becomes   flag IN (false, true)
//! t BETWEEN '1600-01-01' AND NOW()      becomes   t BETWEEN ... AND CAST(NOW() AS Timestamp(µs))
//! CASE WHEN x > 1 THEN t ELSE '?' END   becomes   CASE WHEN x > 1 THEN CAST(t AS Utf8) ELSE '?' END
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Expr, ExprSchemable as _, Join, LogicalPlan, LogicalPlanBuilder,
    Union,
};
use datafusion::optimizer::AnalyzerRule;

use super::branches::{fields_of_columns, with_columns};
use super::{is_comparison, rewrite_node};
use crate::adql::meeting::{
    cannot_compare, compared_of_types, compared_together, never_alike, never_alike_of_types,
    never_one_result, results_together, types_of_results,
};
use crate::mysql::operand::cast;

/// Gives values that meet types that the engine compares. Runs before type coercion, and in ADQL alone.
#[derive(Debug, Default)]
pub struct MeetValues;

impl AnalyzerRule for MeetValues {
    fn name(&self) -> &str {
        "meet_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            rewrite_node(plan, &|expr: Expr, schema: &DFSchema| {
                expr.transform_up(|expr| rewritten(expr, schema))
            })?
            .transform_data(|plan| match plan {
                LogicalPlan::Join(join) => joined(join),
                other => Ok(Transformed::no(other)),
            })
        })
        .data()
    }
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(binary) => return compared(binary, schema),
        Expr::Between(range) => return between(range, schema),
        Expr::InList(list) => return in_list(list, schema),
        Expr::InSubquery(member) => return in_subquery(member, schema),
        Expr::Case(case) => return chosen(case, schema),
        Expr::ScalarFunction(function) if function.func.name() == "nullif" => {
            return null_if(function, schema);
        }
        other => Transformed::no(other),
    })
}

fn compared(binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_comparison(binary.op) {
        return Ok(Transformed::no(Expr::BinaryExpr(binary)));
    }
    let sides = [&*binary.left, &*binary.right];
    if let Some((left, right)) = never_alike(&sides, schema) {
        return cannot_compare(&left, &binary.op.to_string(), &right);
    }
    let Some([left, right]) = together(sides, schema) else {
        return Ok(Transformed::no(Expr::BinaryExpr(binary)));
    };
    let binary = BinaryExpr::new(Box::new(left), binary.op, Box::new(right));
    Ok(Transformed::yes(Expr::BinaryExpr(binary)))
}

/// Two values of different inputs that are compared with each other.
fn across(
    (left, left_schema): (&Expr, &DFSchema),
    (right, right_schema): (&Expr, &DFSchema),
) -> Option<[Expr; 2]> {
    let types = [
        left.get_type(left_schema).ok()?,
        right.get_type(right_schema).ok()?,
    ];
    compared_of_types(&[left, right], &types)?.try_into().ok()
}

/// The types of two values of different inputs that cannot be compared with each other.
fn unlike_across(
    (left, left_schema): (&Expr, &DFSchema),
    (right, right_schema): (&Expr, &DFSchema),
) -> Option<(DataType, DataType)> {
    let types = [
        left.get_type(left_schema).ok()?,
        right.get_type(right_schema).ok()?,
    ];
    never_alike_of_types(&[left, right], &types)
}

/// A few values that are compared with each other, where something becomes of them.
fn together<const N: usize>(values: [&Expr; N], schema: &DFSchema) -> Option<[Expr; N]> {
    compared_together(&values, schema)?.try_into().ok()
}

fn between(range: Between, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let values = [&*range.expr, &*range.low, &*range.high];
    if let Some((value, bound)) = never_alike(&values, schema) {
        return cannot_compare(&value, "BETWEEN", &bound);
    }
    let Some([value, low, high]) = together(values, schema) else {
        return Ok(Transformed::no(Expr::Between(range)));
    };
    let range = Between::new(
        Box::new(value),
        range.negated,
        Box::new(low),
        Box::new(high),
    );
    Ok(Transformed::yes(Expr::Between(range)))
}

fn in_list(list: InList, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let values: Vec<&Expr> = std::iter::once(&*list.expr).chain(&list.list).collect();
    if let Some((value, item)) = never_alike(&values, schema) {
        return cannot_compare(&value, "IN", &item);
    }
    let Some(mut met) = compared_together(&values, schema) else {
        return Ok(Transformed::no(Expr::InList(list)));
    };
    let items = met.split_off(1);
    Ok(match met.pop() {
        Some(value) => {
            let list = InList::new(Box::new(value), items, list.negated);
            Transformed::yes(Expr::InList(list))
        }
        None => Transformed::no(Expr::InList(list)),
    })
}

/// A value that is looked for among those of a subquery.
fn in_subquery(member: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let set = &member.subquery.subquery;
    if set.schema().fields().len() != 1 {
        return Ok(Transformed::no(Expr::InSubquery(member)));
    }
    let column = Expr::Column(Column::from(set.schema().qualified_field(0)));
    if let Some((value, of_set)) = unlike_across((&member.expr, schema), (&column, set.schema())) {
        return cannot_compare(&value, "IN", &of_set);
    }
    let met = across((&member.expr, schema), (&column, set.schema()));
    let Some([value, of_set]) = met else {
        return Ok(Transformed::no(Expr::InSubquery(member)));
    };
    let plan = match of_set == column {
        true => Arc::clone(set),
        false => {
            let name = column.schema_name().to_string();
            let made = LogicalPlanBuilder::from(Arc::clone(set)).project([of_set.alias(name)])?;
            Arc::new(made.build()?)
        }
    };
    Ok(Transformed::yes(Expr::InSubquery(InSubquery {
        expr: Box::new(value),
        subquery: member.subquery.with_plan(plan),
        negated: member.negated,
    })))
}

/// A CASE: the values that it compares, and its results.
fn chosen(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut transformed = false;
    if let Some(value) = &mut case.expr {
        let whens = case.when_then_expr.iter().map(|(when, _)| &**when);
        let compared: Vec<&Expr> = std::iter::once(&**value).chain(whens).collect();
        if let Some((value, when)) = never_alike(&compared, schema) {
            return cannot_compare(&value, "CASE", &when);
        }
        if let Some(met) = compared_together(&compared, schema) {
            let whens = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
            let places = std::iter::once(&mut **value).chain(whens);
            places.zip(met).for_each(|(place, met)| *place = met);
            transformed = true;
        }
    }
    let thens = case.when_then_expr.iter().map(|(_, then)| &**then);
    let results: Vec<&Expr> = thens.chain(case.else_expr.as_deref()).collect();
    let types: Vec<DataType> = { results.iter() }
        .filter_map(|result| result.get_type(schema).ok())
        .collect();
    if let Some((time, number)) = never_one_result(&types) {
        return plan_err!(
            "Failed to coerce then ({time}) and else ({number}) to common types in CASE"
        );
    }
    if let Some(met) = results_together(&results, schema) {
        let thens = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
        let places = thens.chain(case.else_expr.as_deref_mut());
        places.zip(met).for_each(|(place, met)| *place = met);
        transformed = true;
    }
    Ok(Transformed::new_transformed(Expr::Case(case), transformed))
}

/// NULLIF, which compares two values and gives the first.
fn null_if(mut function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let values: Vec<&Expr> = function.args.iter().collect();
    if let Some((value, other)) = never_alike(&values, schema) {
        return cannot_compare(&value, "NULLIF", &other);
    }
    Ok(match compared_together(&values, schema) {
        Some(met) => {
            function.args = met;
            Transformed::yes(Expr::ScalarFunction(function))
        }
        None => Transformed::no(Expr::ScalarFunction(function)),
    })
}

/// A join by equal values of different types.
fn joined(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut transformed = false;
    for (left, right) in &mut join.on {
        let schemas = (join.left.schema(), join.right.schema());
        if let Some((left, right)) = unlike_across((&*left, schemas.0), (&*right, schemas.1)) {
            return cannot_compare(&left, "=", &right);
        }
        if let Some(met) = across((&*left, schemas.0), (&*right, schemas.1)) {
            [*left, *right] = met;
            transformed = true;
        }
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        transformed,
    ))
}

/// A UNION whose branches have columns of the same types. Numbers have them already.
pub(super) fn united(union: Union) -> Result<Transformed<LogicalPlan>> {
    let types = |fields: Vec<FieldRef>| {
        let types = fields.iter().map(|field| field.data_type().clone());
        types.collect::<Vec<_>>()
    };
    let given: Vec<_> = { fields_of_columns(&union).into_iter() }
        .map(types)
        .collect();
    for (types, field) in given.iter().zip(union.schema.fields()) {
        if let Some((time, number)) = never_one_result(types) {
            return plan_err!(
                "UNION field {} have different type in inputs: left has {time} whereas right has {number}",
                field.name()
            );
        }
    }
    let wanted: Vec<_> = given.iter().map(|types| types_of_results(types)).collect();
    if wanted.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let union = with_columns(union, &|of| {
        let wanted = wanted.get(of.at).and_then(Option::as_ref);
        let wanted = wanted.and_then(|types| types.get(of.branch));
        let given = of.schema.field(of.at).data_type();
        let wanted = wanted.filter(|wanted| *wanted != given);
        Ok(wanted.map(|wanted| cast(of.column.clone(), wanted.clone())))
    })?;
    Ok(Transformed::yes(union))
}
