//! Numbers of a recursive WITH that become integers.
//!
//! A recursive table has the types of its first SELECT. The planner casts the columns of the second one to them, and a cast to an integer
//! cuts off what is behind the point, so that `SELECT 1 AS x UNION ALL SELECT x + 0.5 FROM n` had the same x for ever. MySQL rounds, as
//! it does where a number is stored.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, LogicalPlan, Projection, RecursiveQuery,
};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::mysql;

/// Rounds what the second SELECT of a recursive WITH gives for columns of integers: halves away from zero, as of the constants with a
/// point that people write there.
///
/// Runs before types are coerced, when the only casts to integers are those of the planner: MySQL's own are calls.
#[derive(Debug, Default)]
pub struct RoundRecursion;

impl AnalyzerRule for RoundRecursion {
    fn name(&self) -> &str {
        "round_recursion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::RecursiveQuery(query) => rounded(query),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn rounded(query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = query.recursive_term.as_ref() else {
        return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
    };
    let schema = projection.input.schema();
    let names = NamePreserver::new(&query.recursive_term);
    let mut is_rounded = false;
    let rounded = projection.expr.iter().map(|expr| {
        let saved = names.save(expr);
        let rounded = round(expr.clone(), schema);
        is_rounded |= rounded.transformed;
        saved.restore(rounded.data)
    });
    let rounded: Vec<Expr> = rounded.collect();
    if !is_rounded {
        return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
    }
    let projection = Projection::try_new(rounded, Arc::clone(&projection.input))?;
    let term = Arc::new(LogicalPlan::Projection(projection));
    RecursiveQuery::try_new(query.name, query.static_term, term, query.is_distinct)
        .map(|query| Transformed::yes(LogicalPlan::RecursiveQuery(query)))
}

/// A column of the second SELECT, rounded where a number with a fraction becomes an integer.
fn round(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::Alias(mut alias) => {
            let inner = round(*alias.expr, schema);
            alias.expr = Box::new(inner.data);
            Transformed::new_transformed(Expr::Alias(alias), inner.transformed)
        }
        Expr::Cast(cast) if cast.field.data_type().is_integer() && is_fraction(&cast, schema) => {
            let rounded = mysql::call("mysql_round_exact", vec![*cast.expr]);
            let data_type = cast.field.data_type().clone();
            Transformed::yes(Expr::Cast(Cast::new(Box::new(rounded), data_type)))
        }
        other => Transformed::no(other),
    }
}

/// Whether a number may have a fraction before the cast.
fn is_fraction(cast: &Cast, schema: &DFSchema) -> bool {
    let given = cast.expr.get_type(schema);
    given.is_ok_and(|it| it.is_floating() || it.is_decimal())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn the_columns_of_the_second_select_are_rounded() {
        let analyzed = async |text: &str| {
            let plan = SessionContext::new().sql(text).await.unwrap();
            let plan = plan.logical_plan().clone();
            let analyzed = RoundRecursion.analyze(plan, &ConfigOptions::default());
            analyzed.unwrap().display_indent().to_string()
        };
        let of_fraction = analyzed(
            "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 0.5 FROM n) SELECT x FROM n",
        )
        .await;
        assert!(
            of_fraction.contains("CAST(mysql_round_exact(n.x + Float64(0.5)) AS Int64)"),
            "{of_fraction}"
        );
        let of_integers = analyzed(
            "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
        )
        .await;
        assert!(!of_integers.contains("mysql_round_exact"), "{of_integers}");
    }
}
