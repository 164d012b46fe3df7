//! `IN_UNIT(value, 'unit')` in ADQL: the unit of a value that comes from a column is what the catalog says of the column.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use sql::functions::{IN_UNIT, unit_of_function};

use super::origins;

/// Functions that give a value in the unit of their first argument.
const KEEPING_UNITS: [&str; 8] = [
    "abs", "round", "trunc", "ceil", "floor", "min", "max", "avg",
];

/// Writes products in the places of calls of `IN_UNIT` that are left.
#[derive(Debug)]
pub(super) struct InUnits;

impl AnalyzerRule for InUnits {
    fn name(&self) -> &str {
        "in_units"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Downwards: units are traced through expressions as they are written.
        let rewritten = plan.transform_down_with_subqueries(|plan| {
            let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let saved = names.save(&expr);
                let rewritten = expr.transform_up(|expr| in_unit(expr, &inputs))?;
                Ok(rewritten.update_data(|expr| saved.restore(expr)))
            })
        })?;
        if !rewritten.transformed {
            return Ok(rewritten.data);
        }
        let all = rewritten
            .data
            .transform_up_with_subqueries(|plan| plan.recompute_schema().map(Transformed::yes))?;
        Ok(all.data)
    }
}

/// What stands for an expression, if it is a call of `IN_UNIT` over rows of these plans.
fn in_unit(expr: Expr, inputs: &[LogicalPlan]) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let ([value, unit], IN_UNIT) = (args.as_slice(), func.name()) else {
        return Ok(Transformed::no(expr));
    };
    let wanted = match unit {
        Expr::Literal(unit, _) => unit.try_as_str().flatten().unwrap_or_default().trim(),
        _ => {
            return plan_err!(
                "IN_UNIT takes a unit that is written out, as in IN_UNIT(value, 'arcsec')"
            );
        }
    };
    let Some(has) = of_expression(value, inputs) else {
        return plan_err!(
            "IN_UNIT cannot tell the unit of {value}: it converts columns whose unit is known (TAP_SCHEMA.columns has it), their products \
             with constants and their sums, and DISTANCE, AREA, COORD1, COORD2, DEGREES, RADIANS and the arc functions"
        );
    };
    match metadata::conversion(&has, wanted) {
        Ok(factor) => Ok(Transformed::yes(value.clone() * lit(factor))),
        Err(sentence) => plan_err!("IN_UNIT cannot convert {value}: {sentence}"),
    }
}

/// The unit of an expression over rows of these plans.
fn of_expression(expr: &Expr, inputs: &[LogicalPlan]) -> Option<String> {
    let of = |expr: &Expr| of_expression(expr, inputs);
    match expr {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Cast(cast) => of(&cast.expr),
        Expr::Negative(inner) => of(inner),
        Expr::Column(column) => inputs.iter().find_map(|input| of_column(column, input)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Multiply if is_number(right) => of(left),
            Operator::Multiply if is_number(left) => of(right),
            Operator::Divide if is_number(right) => of(left),
            // How a number is negated.
            Operator::Minus if is_zero(left) => of(right),
            Operator::Plus | Operator::Minus => {
                of(left).filter(|unit| of(right).as_ref() == Some(unit))
            }
            _ => None,
        },
        Expr::ScalarFunction(function) => match unit_of_function(function.name()) {
            Some(unit) => Some(unit.to_owned()),
            None => of_kept(function.name(), &function.args, inputs),
        },
        Expr::AggregateFunction(function) => {
            of_kept(function.func.name(), &function.params.args, inputs)
        }
        _ => None,
    }
}

fn of_kept(function: &str, args: &[Expr], inputs: &[LogicalPlan]) -> Option<String> {
    let keeps = KEEPING_UNITS.contains(&function);
    of_expression(args.first().filter(|_| keeps)?, inputs)
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.data_type().is_numeric(),
        Expr::Negative(inner) => is_number(inner),
        Expr::Cast(cast) => is_number(&cast.expr),
        _ => false,
    }
}

fn is_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => {
            ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero == *value)
        }
        Expr::Cast(cast) => is_zero(&cast.expr),
        _ => false,
    }
}

fn of_column(column: &Column, plan: &LogicalPlan) -> Option<String> {
    of_place(plan, plan.schema().maybe_index_of_column(column)?)
}

/// The unit of a plan's column.
fn of_place(plan: &LogicalPlan, at: usize) -> Option<String> {
    let inputs = || plan.inputs().into_iter().cloned().collect::<Vec<_>>();
    match plan {
        LogicalPlan::Projection(node) => of_expression(node.expr.get(at)?, &inputs()),
        LogicalPlan::SubqueryAlias(node) => of_place(&node.input, at),
        LogicalPlan::Filter(node) => of_place(&node.input, at),
        LogicalPlan::Sort(node) => of_place(&node.input, at),
        LogicalPlan::Limit(node) => of_place(&node.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => of_place(input, at),
        LogicalPlan::Aggregate(node) => {
            let mut expressions = node.group_expr.iter().chain(&node.aggr_expr);
            let no_sets = node
                .group_expr
                .iter()
                .all(|expr| !matches!(expr, Expr::GroupingSet(_)));
            of_expression(expressions.nth(at).filter(|_| no_sets)?, &inputs())
        }
        LogicalPlan::Window(node) => {
            let of_input = at < node.input.schema().fields().len();
            of_input.then(|| of_place(&node.input, at))?
        }
        // The columns of a join stand side by side; those of a semi-join are of one side.
        LogicalPlan::Join(node) => {
            let column = Column::from(plan.schema().qualified_field(at));
            let sides = [&node.left, &node.right];
            sides.into_iter().find_map(|side| of_column(&column, side))
        }
        LogicalPlan::Union(node) => {
            let mut units = node.inputs.iter().map(|input| of_place(input, at));
            let first = units.next()??;
            units
                .all(|unit| unit.as_ref() == Some(&first))
                .then_some(first)
        }
        LogicalPlan::TableScan(_) => origins::unit(plan, at),
        _ => None,
    }
}
