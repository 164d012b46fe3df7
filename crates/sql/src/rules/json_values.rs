//! JSON values are compared and sorted as JSON values, never as the texts that they are written as.
//!
//! A document has no type of its own: it is text, and the field of its column says that it is one ([`is_document`]). Comparisons are planned
//! by [`crate::mysql::comparison`]; this rule sorts by keys, gives functions of numbers and times the value of a document, and rejects
//! what would take documents for texts.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::functions_aggregate::first_last::{first_value, first_value_udaf};
use datafusion::logical_expr::expr::{
    AggregateFunction, NullTreatment, ScalarFunction, Sort, WindowFunction,
};
use datafusion::logical_expr::{
    Aggregate, Case, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;

use super::{input_schema, rewrite_expressions};
use crate::functions::mysql::{self, is_document};
use crate::functions::{ROW, ROW_KEY};

/// Runs before [`super::CompareValues`], and in MySQL's dialect alone.
#[derive(Debug, Default)]
pub struct JsonValues;

impl AnalyzerRule for JsonValues {
    fn name(&self) -> &str {
        "json_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_documents(&plan)? {
            return Ok(plan);
        }
        let plan = rewrite_expressions(plan, |expr, schema| {
            expr.transform_up(|expr| rewritten(expr, schema))
        })?;
        plan.transform_up_with_subqueries(|plan| {
            let plan = match plan {
                LogicalPlan::Aggregate(aggregate) => grouped(aggregate)?,
                LogicalPlan::Distinct(Distinct::All(input)) => distinct(input)?,
                other => other,
            };
            check(&plan)?;
            match plan {
                LogicalPlan::Sort(mut sort) => {
                    let schema = Arc::clone(sort.input.schema());
                    sort_by_keys(&mut sort.expr, &schema);
                    Ok(Transformed::yes(LogicalPlan::Sort(sort)))
                }
                other => Ok(Transformed::yes(other)),
            }
        })
        .data()
    }
}

/// Whether an expression's values are JSON documents.
pub(crate) fn is_json(expr: &Expr, schema: &DFSchema) -> bool {
    expr.to_field(schema)
        .is_ok_and(|(_, field)| is_document(&field))
}

/// Whether some function of a statement gives documents, without which no column has any.
fn has_documents(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.schema().fields().iter().any(|it| is_document(it));
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= matches!(expr, Expr::ScalarFunction(call) if mysql::gives_document(call.name()));
                Ok(match found {
                    true => TreeNodeRecursion::Stop,
                    false => TreeNodeRecursion::Continue,
                })
            })
        })
    })?;
    Ok(found)
}

fn rejected<T>(place: &str) -> Result<T> {
    plan_err!(
        "JSON values are not supported in {place}: take the text of one, as in document ->> '$.path', or a number, as in \
         CAST(document ->> '$.path' AS DOUBLE)"
    )
}

fn key(document: Expr) -> Expr {
    mysql::call("mysql_json_key", vec![document])
}

fn sort_by_keys(keys: &mut [Sort], schema: &DFSchema) {
    for sort in keys {
        if is_json(&sort.expr, schema) {
            sort.expr = key(std::mem::take(&mut sort.expr));
        }
    }
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(function) => called(function, schema),
        Expr::AggregateFunction(function) => aggregated(function, schema),
        Expr::WindowFunction(function) => windowed(*function, schema),
        Expr::Case(case) => chosen(case, schema),
        other => Ok(Transformed::no(other)),
    }
}

/// A function whose arguments may be documents.
fn called(mut function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let given: Vec<bool> = function.args.iter().map(|it| is_json(it, schema)).collect();
    if !given.contains(&true) {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    }
    let value = match function.name() {
        "mysql_greatest" | "mysql_least" => return rejected("GREATEST and LEAST"),
        "mysql_field" => return rejected("FIELD"),
        // Rows of values, which are compared by what they are.
        "struct" | ROW => return rejected("rows and in GROUP_CONCAT(DISTINCT ...)"),
        ROW_KEY => "mysql_json_key",
        "mysql_signed" => "mysql_json_signed",
        "mysql_unsigned" => "mysql_json_unsigned",
        name if mysql::takes_numbers_or_times(name) => "mysql_json_scalar",
        _ => return Ok(Transformed::no(Expr::ScalarFunction(function))),
    };
    for (argument, is_json) in function.args.iter_mut().zip(given) {
        if is_json {
            *argument = mysql::call(value, vec![std::mem::take(argument)]);
        }
    }
    Ok(Transformed::yes(Expr::ScalarFunction(function)))
}

fn aggregated(mut function: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let params = &mut function.params;
    sort_by_keys(&mut params.order_by, schema);
    let any_json = params.args.iter().any(|it| is_json(it, schema));
    match (function.func.name(), params.distinct) {
        _ if !any_json => {}
        // That of some row.
        ("count", false) | ("first_value", _) => {}
        // The document of the row that comes first by the keys.
        (name @ ("min" | "max"), _) if !params.args.is_empty() => {
            let by_key = Sort::new(key(params.args[0].clone()), name == "min", false);
            params.order_by = vec![by_key];
            params.null_treatment = Some(NullTreatment::IgnoreNulls);
            params.distinct = false;
            function.func = first_value_udaf();
        }
        ("count", true) => {
            for argument in &mut params.args {
                if is_json(argument, schema) {
                    *argument = key(std::mem::take(argument));
                }
            }
        }
        (name, _) => return rejected(&name.trim_start_matches("mysql_").to_ascii_uppercase()),
    }
    Ok(Transformed::yes(Expr::AggregateFunction(function)))
}

fn windowed(mut function: WindowFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let params = &mut function.params;
    for sort in &mut params.order_by {
        // Windows are not sorted by bytes.
        if is_json(&sort.expr, schema) {
            let key = key(std::mem::take(&mut sort.expr));
            sort.expr = mysql::call("mysql_hex", vec![key]);
        }
    }
    for group in &mut params.partition_by {
        if is_json(group, schema) {
            *group = key(std::mem::take(group));
        }
    }
    let counts =
        matches!(&function.fun, WindowFunctionDefinition::AggregateUDF(it) if it.name() == "count");
    if !counts && params.args.iter().any(|it| is_json(it, schema)) {
        return rejected("functions with OVER");
    }
    Ok(Transformed::yes(Expr::WindowFunction(Box::new(function))))
}

/// A CASE. Documents beside other values become texts, as in MySQL; of documents alone it would give documents.
fn chosen(case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let results = case.when_then_expr.iter().map(|(_, then)| then);
    let results: Vec<&Expr> = results
        .chain(&case.else_expr)
        .map(AsRef::as_ref)
        .filter(|it| !it.get_type(schema).is_ok_and(|given| given.is_null()))
        .collect();
    if !results.is_empty() && results.iter().all(|it| is_json(it, schema)) {
        return rejected("the results of IF, CASE and NULLIF");
    }
    Ok(Transformed::no(Expr::Case(case)))
}

/// An aggregate whose groups of documents are told apart by keys; of each group the document of some row is given. One of sets of groups
/// stays as it is.
fn grouped(aggregate: Aggregate) -> Result<LogicalPlan> {
    let schema = Arc::clone(aggregate.input.schema());
    let is_document: Vec<bool> = { aggregate.group_expr.iter() }
        .map(|group| !matches!(group, Expr::GroupingSet(_)) && is_json(group, &schema))
        .collect();
    if !is_document.contains(&true) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let name = |at: usize| format!("$document{at}");
    let mut groups = aggregate.group_expr.clone();
    let mut values = aggregate.aggr_expr.clone();
    for (at, group) in groups
        .iter_mut()
        .enumerate()
        .filter(|(at, _)| is_document[*at])
    {
        let document = group.clone().unalias();
        values.push(first_value(document.clone(), vec![]).alias(name(at)));
        *group = key(document).alias(format!("$key{at}"));
    }
    let columns = aggregate.schema.iter().enumerate();
    let columns: Vec<Expr> = columns
        .map(|(at, (table, field))| match is_document.get(at) {
            Some(true) => Expr::Column(Column::from_name(name(at)))
                .alias_qualified(table.cloned(), field.name()),
            _ => Expr::Column(Column::from((table, field))),
        })
        .collect();
    let keyed = Aggregate::try_new(aggregate.input, groups, values)?;
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(keyed))
        .project(columns)?
        .build()
}

/// Different rows, among which documents are told apart by keys. Those of sets stay as they are.
fn distinct(input: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let has_json = input.schema().fields().iter().any(|it| is_document(it));
    if !has_json || matches!(*input, LogicalPlan::Union(_)) {
        return Ok(LogicalPlan::Distinct(Distinct::All(input)));
    }
    let columns = input.schema().iter();
    let columns: Vec<Expr> = columns.map(|it| Expr::Column(Column::from(it))).collect();
    grouped(Aggregate::try_new(input, columns, vec![])?)
}

/// Rejects what tells rows apart by documents.
fn check(plan: &LogicalPlan) -> Result<()> {
    let has_json = |plan: &LogicalPlan| plan.schema().fields().iter().any(|it| is_document(it));
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let schema = input_schema(plan);
            let mut found = false;
            for group in &aggregate.group_expr {
                group.apply(|part| {
                    let is_set = matches!(part, Expr::GroupingSet(_));
                    found |= !is_set && is_json(part, &schema);
                    // Of an expression the value counts, of sets each of their expressions.
                    Ok(match is_set {
                        true => TreeNodeRecursion::Continue,
                        false => TreeNodeRecursion::Jump,
                    })
                })?;
            }
            match found {
                true => rejected("GROUP BY"),
                false => Ok(()),
            }
        }
        LogicalPlan::Distinct(Distinct::All(input)) if has_json(input) => {
            rejected("DISTINCT and in UNION, INTERSECT and EXCEPT")
        }
        LogicalPlan::RecursiveQuery(query) if query.is_distinct && has_json(plan) => {
            rejected("a recursive UNION")
        }
        _ => Ok(()),
    }
}
