//! The types of numbers that come from several places: of the branches of a CASE, and of the sides of a UNION.
//!
//! The planner takes them for numbers of the first one's type, which is settled only when types are coerced. What is chosen by types before
//! that, as the operators of integers, would make integers of all of them:
//!
//! ```text
//!   CASE WHEN f = 99 THEN 1 ELSE mjd END * 7
//!     ──►   CASE WHEN f = 99 THEN CAST(1 AS Float64) ELSE mjd END * 7
//! ```

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_expression;
use datafusion::logical_expr::{
    Case, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union,
};
use datafusion::optimizer::AnalyzerRule;

use super::input_schema;
use crate::Dialect;
use crate::mysql::with_settled_operands;

/// Gives such numbers their common type, and takes back what was chosen for another one.
#[derive(Debug)]
pub struct SettleNumbers {
    /// In MySQL's dialect operators are chosen when a statement is planned.
    pub dialect: Dialect,
}

impl AnalyzerRule for SettleNumbers {
    fn name(&self) -> &str {
        "settle_numbers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_several_places(&plan)? {
            return Ok(plan);
        }
        plan.transform_up_with_subqueries(|plan| {
            let plan = match plan {
                LogicalPlan::Union(union) => of_common_types(union)?,
                other => other.recompute_schema()?,
            };
            let schema = input_schema(&plan);
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let saved = names.save(&expr);
                let settled = expr.transform_up(|expr| self.settled(expr, &schema))?;
                Ok(settled.update_data(|expr| saved.restore(expr)))
            })?
            .map_data(LogicalPlan::recompute_schema)
        })
        .data()
    }
}

impl SettleNumbers {
    fn settled(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Case(case) => of_common_type(case, schema),
            // An operand that was widened, since it was taken for an integer.
            Expr::Cast(cast)
                if self.dialect == Dialect::MySql
                    && *cast.field.data_type() == DataType::Int64
                    && is_fractional(&cast.expr.get_type(schema)?) =>
            {
                Ok(Transformed::yes(*cast.expr))
            }
            other if self.dialect == Dialect::MySql => Ok(with_settled_operands(other, schema)),
            other => Ok(Transformed::no(other)),
        }
    }
}

fn is_fractional(data_type: &DataType) -> bool {
    data_type.is_floating() || data_type.is_decimal()
}

/// Whether there are any unions or CASEs.
fn has_several_places(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found |= matches!(plan, LogicalPlan::Union(_));
        plan.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(matches!(part, Expr::Case(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The type in which all numbers of some types are given, if they are numbers of different types.
fn common_type(types: &[DataType]) -> Option<DataType> {
    let known: Vec<DataType> = { types.iter() }
        .filter(|it| **it != DataType::Null)
        .cloned()
        .collect();
    let (first, others) = known.split_first()?;
    let are_numbers = known.iter().all(DataType::is_numeric);
    if !are_numbers || others.iter().all(|it| it == first) {
        return None;
    }
    get_coerce_type_for_case_expression(&known, None)
}

fn cast_to(expr: Expr, wanted: &DataType, schema: &DFSchema) -> Result<Expr> {
    Ok(match expr.get_type(schema)? == *wanted {
        true => expr,
        false => Expr::Cast(Cast::new(Box::new(expr), wanted.clone())),
    })
}

fn of_common_type(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let branches = case.when_then_expr.iter().map(|(_, then)| then);
    let branches = branches.chain(&case.else_expr);
    let types: Vec<DataType> = branches
        .map(|branch| branch.get_type(schema))
        .collect::<Result<_>>()?;
    let Some(wanted) = common_type(&types) else {
        return Ok(Transformed::no(Expr::Case(case)));
    };
    let branches = case.when_then_expr.iter_mut().map(|(_, then)| then);
    for branch in branches.chain(&mut case.else_expr) {
        let given = std::mem::take(branch.as_mut());
        **branch = cast_to(given, &wanted, schema)?;
    }
    Ok(Transformed::yes(Expr::Case(case)))
}

fn of_common_types(union: Union) -> Result<LogicalPlan> {
    let width = union.schema.fields().len();
    let types_at = |at: usize| -> Vec<DataType> {
        let fields = union
            .inputs
            .iter()
            .filter_map(|it| it.schema().fields().get(at));
        fields.map(|field| field.data_type().clone()).collect()
    };
    let wanted: Vec<Option<DataType>> = (0..width).map(|at| common_type(&types_at(at))).collect();
    let inputs = union.inputs.into_iter().map(|input| {
        let fields = input.schema().fields().iter().zip(&wanted);
        let is_of_type = { fields }
            .all(|(field, wanted)| wanted.as_ref().is_none_or(|it| it == field.data_type()));
        if is_of_type {
            return Ok(input);
        }
        let columns = input.schema().iter().zip(&wanted);
        let columns = columns.map(|((relation, field), wanted)| {
            let column = Expr::Column(Column::from((relation, field)));
            match wanted {
                Some(wanted) if wanted != field.data_type() => {
                    Expr::Cast(Cast::new(Box::new(column), wanted.clone()))
                        .alias_qualified(relation.cloned(), field.name())
                }
                _ => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        let cast = LogicalPlanBuilder::from(Arc::clone(&input)).project(columns)?;
        Ok(Arc::new(cast.build()?))
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
}
