//! Analysis of logical plans for the value rules, run before any optimisation, and what keeps optimisation from breaking them.

mod apart_groups;
mod branches;
mod check_integers;
mod compare_values;
mod distinct_windows;
mod guard_values;
mod join_subqueries;
mod json_values;
mod keep_lists_apart;
mod keys_of_groups;
mod literal_unions;
mod meet_values;
mod memberships;
mod nullable_subqueries;
mod order_comparisons;
mod plain_using;
mod project_subqueries;
mod recognise_geometry;
mod round_recursion;
mod row_members;
mod set_expressions;
mod settle_numbers;
mod single_rows;
mod times_as_texts;
mod widen_floats;
mod window_orders;

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

pub use apart_groups::ApartGroups;
pub use check_integers::CheckIntegers;
pub use compare_values::CompareValues;
pub use distinct_windows::DistinctWindows;
pub use guard_values::GuardValues;
pub use join_subqueries::{JoinSubqueries, KeyOfTable};
pub use json_values::JsonValues;
pub(crate) use json_values::is_json;
pub use keep_lists_apart::KeepListsApart;
pub use keys_of_groups::KeysOfGroups;
pub use literal_unions::LiteralUnions;
pub use meet_values::MeetValues;
pub use memberships::WriteOutMemberships;
pub use nullable_subqueries::NullableSubqueries;
pub use order_comparisons::OrderComparisons;
pub use plain_using::PlainUsing;
pub use project_subqueries::ProjectSubqueries;
pub use recognise_geometry::RecogniseGeometry;
pub use round_recursion::RoundRecursion;
pub use set_expressions::ProjectSetExpressions;
pub use settle_numbers::SettleNumbers;
pub use single_rows::SingleRows;
pub use times_as_texts::TimesAsTexts;
pub use widen_floats::WidenFloats;
pub use window_orders::WindowOrders;

/// Rewrites every expression of a plan and of its subqueries, from the leaves up, keeping the names of its columns.
/// `rewrite` is given the columns that the expression may refer to.
fn rewrite_expressions(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| rewrite_node(plan, &rewrite))
        .map(|rewritten| rewritten.data)
}

/// The same of a node alone, whose inputs have been rewritten.
fn rewrite_node(
    plan: LogicalPlan,
    rewrite: &impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan);
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let saved = names.save(&expr);
        let rewritten = rewrite(expr, &schema)?;
        Ok(rewritten.update_data(|e| saved.restore(e)))
    })?
    .map_data(|plan| plan.recompute_schema())
}

/// Whether an operator compares two values.
fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn input_schema(plan: &LogicalPlan) -> DFSchemaRef {
    match plan {
        LogicalPlan::TableScan(scan) => Arc::clone(&scan.projected_schema),
        _ if plan.inputs().is_empty() => Arc::new(DFSchema::empty()),
        _ => Arc::new(merge_schema(&plan.inputs())),
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::{FunctionRegistry as _, SessionStateBuilder};
    use datafusion::optimizer::analyzer::Analyzer;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// The value of an expression over one row: single precision a = 0.1 and b = 0.2, double x = -0.0 and y = 0.5, integer
    /// n = 0.
    async fn value(expression: &str) -> String {
        let mut rules = Analyzer::new().rules;
        let coercion = rules
            .iter()
            .position(|rule| rule.name() == "type_coercion")
            .unwrap();
        rules.insert(coercion, Arc::new(WidenFloats));
        rules.push(Arc::new(GuardValues));
        let mut state = SessionStateBuilder::new()
            .with_default_features()
            .with_analyzer_rules(rules)
            .build();
        for function in crate::functions::all() {
            state.register_udf(function).unwrap();
        }
        for function in crate::functions::all_aggregates() {
            state.register_udaf(function).unwrap();
        }
        let context = SessionContext::new_with_state(state);
        let table = "SELECT CAST(0.1 AS FLOAT) AS a, CAST(0.2 AS FLOAT) AS b, column1 AS x, 0.5 AS y, column2 AS n
                     FROM (VALUES (-1.0 * 0.0, 0))";
        let query = format!("SELECT {expression} AS v FROM ({table})");
        let batches = context.sql(&query).await.unwrap().collect().await.unwrap();
        let text = pretty_format_batches(&batches).unwrap().to_string();
        text.lines()
            .nth(3)
            .unwrap()
            .trim_matches(['|', ' '])
            .to_owned()
    }

    #[tokio::test]
    async fn single_precision_is_computed_with_in_double() {
        // 0.1f32 is 0.100000001490116..., and 0.2f32 is 0.200000002980232...
        assert_eq!(value("a + b").await, "0.30000000447034836");
        assert_eq!(value("a").await, "0.1");
        assert_eq!(value("coalesce(a, b)").await, "0.1");
    }

    #[tokio::test]
    async fn what_has_no_value_is_null() {
        for expression in [
            "y / x",
            "n / n",
            "5 % n",
            "x / x",
            "ln(x)",
            "ln(-y)",
            "sqrt(-y)",
            "asin(y + 1)",
            "log10(n)",
            "power(n, -1)",
            "CAST('nan' AS DOUBLE)",
            "y / (y - y)",
            "y / -0.0",
            "y % -0.0",
            "1e308 * y * 1e10",
            "exp(y * 10000)",
            "degrees(y * 1e308)",
            "CAST('inf' AS DOUBLE)",
            "CAST(y * 1e200 AS FLOAT)",
            "sum(y * 1e308 + 1e308) OVER () + 1e308",
            "(SELECT sum(d) FROM (VALUES (1.7e308), (1.7e308)) AS t (d))",
            "(SELECT avg(d) FROM (VALUES (1.7e308), (1.7e308)) AS t (d))",
            "(SELECT corr(d, d) FROM (VALUES (1.0), (1.0)) AS t (d))",
        ] {
            assert_eq!(value(expression).await, "", "{expression}");
        }
    }

    #[tokio::test]
    async fn negative_zero_is_found_like_zero() {
        for expression in [
            "CASE y - y WHEN -0.0 THEN 1 ELSE 0 END",
            "CASE WHEN (y - y) IN (-0.0, 7.0) THEN 1 ELSE 0 END",
            "(SELECT count(*) FROM (VALUES (0.0)) AS t (d) WHERE d = -0.0)",
            "(SELECT count(DISTINCT d * -1) FROM (VALUES (0.0), (-0.0)) AS t (d))",
            "(SELECT count(*) FROM (VALUES (0.0)) AS t (d) JOIN (VALUES (1.0)) AS u (e) ON d = (e - 1) * -1)",
        ] {
            assert_eq!(value(expression).await, "1", "{expression}");
        }
    }

    #[tokio::test]
    async fn negative_zero_is_zero() {
        for expression in [
            "-(y - y)",
            "(y - y) * -1",
            "round(-0.2 * y)",
            "(y - y) / -2.0",
            "-0.0",
            "CAST('-0.0' AS DOUBLE)",
            "greatest(-0.0, -1.0)",
            "ceil(-y)",
            "-1.0 % y",
            "coalesce(-0.0, y)",
            "mysql_ceil(-y)",
            "mysql_round(-0.2)",
            "mysql_double('-0.0')",
            "CAST(CAST(-1e-60 AS FLOAT) AS DOUBLE)",
            "(SELECT avg(d) FROM (VALUES (-5e-324), (0.0), (0.0)) AS t (d))",
        ] {
            assert_eq!(value(expression).await, "0.0", "{expression}");
            assert_eq!(
                value(&format!("{expression} = 0")).await,
                "true",
                "{expression}"
            );
        }
    }
}
