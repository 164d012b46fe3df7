//! The types of values that come from several places: of the branches of a CASE, of the sides of a UNION, of LAG and its
//! default.
//!
//! The planner takes them for values of the first one's type, which is settled only when types are coerced. What is chosen by types before
//! that, as the operators of integers, would make integers of all of them:
//!
//! ```text
//!   CASE WHEN f = 99 THEN 1 ELSE mjd END * 7
//!     ──►   CASE WHEN f = 99 THEN CAST(1 AS Float64) ELSE mjd END * 7
//! ```

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_expression;
use datafusion::logical_expr::{Case, Cast, Expr, ExprSchemable, LogicalPlan, Union};
use datafusion::optimizer::AnalyzerRule;

use super::branches::{fields_of_columns, rewrite_unions, with_columns};
use super::{compare_values, input_schema, meet_values};
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
        let rewrite = |plan: LogicalPlan| {
            let plan = plan.recompute_schema()?;
            let schema = input_schema(&plan);
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let saved = names.save(&expr);
                let settled = expr.transform_up(|expr| self.settled(expr, &schema))?;
                Ok(settled.update_data(|expr| saved.restore(expr)))
            })?
            .map_data(LogicalPlan::recompute_schema)
        };
        rewrite_unions(plan, rewrite, |union| match of_common_types(union)? {
            LogicalPlan::Union(union) => match self.dialect {
                Dialect::MySql => compare_values::united(union),
                Dialect::Adql => meet_values::united(union),
            },
            other => Ok(Transformed::yes(other)),
        })
    }
}

impl SettleNumbers {
    fn settled(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Case(case) => of_common_type(case, schema),
            Expr::WindowFunction(mut window) if is_shift(&window) => {
                let args = &mut window.params.args;
                let types = [&args[0], &args[2]].map(|arg| arg.get_type(schema));
                let [Ok(value), Ok(default)] = types else {
                    return Ok(Transformed::no(Expr::WindowFunction(window)));
                };
                if let Some(wanted) = common_type(&[value, default]) {
                    for at in [0, 2] {
                        args[at] = cast_to(std::mem::take(&mut args[at]), &wanted, schema)?;
                    }
                }
                Ok(Transformed::yes(Expr::WindowFunction(window)))
            }
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

/// Whether a window function gives the values of other rows, or another value where there is no such row: LAG and LEAD.
fn is_shift(window: &WindowFunction) -> bool {
    matches!(window.fun.name(), "lag" | "lead") && window.params.args.len() == 3
}

/// Whether there are any unions, CASEs, or defaults of LAG and LEAD.
fn has_several_places(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found |= matches!(plan, LogicalPlan::Union(_));
        plan.apply_expressions(|expr| {
            found |= expr.exists(|part| {
                Ok(match part {
                    Expr::Case(_) => true,
                    Expr::WindowFunction(window) => is_shift(window),
                    _ => false,
                })
            })?;
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
    // A decimal, or a number with half of the digits, would not hold all of them.
    if known.iter().any(DataType::is_floating) {
        return Some(DataType::Float64);
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

/// The types of a column of a UNION's sides.
struct WantedType {
    /// The one of all numbers.
    common: Option<DataType>,
    /// The one of NULL, which a side may have in all its rows: the first of another side. A column that is NULL by its type would have no other
    /// value for the rules that run before types are coerced.
    of_null: Option<DataType>,
}

impl WantedType {
    fn of(types: &[DataType]) -> Self {
        let common = common_type(types);
        let known = types.iter().find(|it| **it != DataType::Null);
        Self {
            of_null: common.as_ref().or(known).cloned(),
            common,
        }
    }

    fn instead_of(&self, given: &DataType) -> Option<&DataType> {
        match given {
            DataType::Null => self.of_null.as_ref(),
            _ => self.common.as_ref(),
        }
    }
}

fn of_common_types(union: Union) -> Result<LogicalPlan> {
    let fields = fields_of_columns(&union);
    let types = fields.iter().map(|fields| {
        let types = fields.iter().map(|field| field.data_type().clone());
        types.collect::<Vec<_>>()
    });
    let wanted: Vec<WantedType> = types.map(|types| WantedType::of(&types)).collect();
    with_columns(union, &|of| {
        let given = of.schema.field(of.at).data_type();
        let wanted = wanted.get(of.at).and_then(|it| it.instead_of(given));
        wanted
            .map(|wanted| cast_to(of.column.clone(), wanted, of.schema))
            .transpose()
    })
}
