//! Tables that a statement writes row by row, with `UNION`.
//!
//! To the engine each row is an input with constant columns, and it loses track of which order constants of several inputs are in: it rejects
//! `ORDER BY` above some outer joins. They are one list of rows all the same:
//!
//! ```text
//! Union                      becomes   Values: (1), (2)
//!   Projection: 1 AS x
//!     EmptyRelation
//!   Projection: 2 AS x
//!     EmptyRelation
//! ```

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::logical_plan::Values;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Makes one list of a UNION of literals. Runs when expressions of constants have been computed.
#[derive(Debug, Default)]
pub struct LiteralUnions;

impl OptimizerRule for LiteralUnions {
    fn name(&self) -> &str {
        "literal_unions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Union(union) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let rows = union.inputs.iter().map(|input| row(input, &union.schema));
        Ok(match rows.collect() {
            Some(values) => Transformed::yes(LogicalPlan::Values(Values {
                schema: union.schema.clone(),
                values,
            })),
            None => Transformed::no(plan),
        })
    }
}

/// The literals that a plan is one row of, if it is, and they are of the schema's types.
fn row(plan: &LogicalPlan, schema: &DFSchema) -> Option<Vec<Expr>> {
    let LogicalPlan::Projection(projection) = plan else {
        return None;
    };
    let is_one_row = matches!(
        projection.input.as_ref(),
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row
    );
    let exprs = projection.expr.iter().zip(schema.fields());
    let literals = exprs.map(|(expr, field)| {
        let literal = expr.clone().unalias();
        let value = literal.as_literal()?;
        let fits = value.data_type() == *field.data_type();
        (fits && (field.is_nullable() || !value.is_null())).then_some(literal)
    });
    literals.collect::<Option<Vec<_>>>().filter(|_| is_one_row)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::util::display::array_value_to_string;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::optimizer::Optimizer;
    use datafusion::prelude::SessionContext;

    use super::LiteralUnions;

    fn context() -> SessionContext {
        let mut rules = Optimizer::new().rules;
        let simplified = rules
            .iter()
            .position(|rule| rule.name() == "simplify_expressions");
        rules.insert(simplified.unwrap() + 1, Arc::new(LiteralUnions));
        SessionContext::new_with_state(
            SessionStateBuilder::new()
                .with_default_features()
                .with_optimizer_rules(rules)
                .build(),
        )
    }

    /// The plan of a query, and its rows as texts, in their order.
    async fn asked(query: &str) -> (String, Vec<String>) {
        let plan = context().sql(query).await.unwrap();
        let shown = plan.clone().into_optimized_plan().unwrap();
        let mut rows = Vec::new();
        for batch in plan.collect().await.unwrap() {
            for at in 0..batch.num_rows() {
                let values = batch.columns().iter();
                let values = values.map(|column| array_value_to_string(column, at).unwrap());
                rows.push(values.collect::<Vec<_>>().join(","));
            }
        }
        (shown.display_indent().to_string(), rows)
    }

    #[tokio::test]
    async fn rows_of_literals_are_one_list() {
        let (plan, rows) = asked(
            "SELECT x, y FROM (SELECT 1 AS x, 'a' AS y UNION ALL SELECT 1 + 1.5, NULL UNION ALL SELECT 1, 'a') ORDER BY x DESC, y",
        )
        .await;
        assert!(plan.contains("Values") && !plan.contains("Union"), "{plan}");
        assert_eq!(rows, ["2.5,", "1.0,a", "1.0,a"]);
        let (_, rows) = asked("SELECT 3 AS x UNION SELECT 1 UNION SELECT 3 ORDER BY x").await;
        assert_eq!(rows, ["1", "3"]);
    }

    #[tokio::test]
    async fn other_unions_stay() {
        let (plan, rows) =
            asked("SELECT 3 AS x UNION ALL SELECT v + 1 FROM (VALUES (1)) AS t(v) ORDER BY x")
                .await;
        assert!(plan.contains("Union"), "{plan}");
        assert_eq!(rows, ["2", "3"]);
    }

    #[tokio::test]
    async fn joins_of_such_tables_have_orders() {
        let (_, rows) = asked(
            "WITH a AS (SELECT 1 AS x UNION ALL SELECT 2), b AS (SELECT 2 AS y UNION ALL SELECT 3)
             SELECT a.x, b.y FROM a LEFT JOIN b ON a.x = b.y ORDER BY b.y NULLS FIRST, a.x",
        )
        .await;
        assert_eq!(rows, ["1,", "2,2"]);
    }
}
