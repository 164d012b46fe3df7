//! Coverage maps in a result are texts, as the Virtual Observatory writes them.

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, Result, plan_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use sql::functions::{MOC_TEXT, is_moc};

/// Puts a projection on a plan whose result has maps.
#[derive(Debug)]
pub(super) struct MocsAsTexts;

impl AnalyzerRule for MocsAsTexts {
    fn name(&self) -> &str {
        "mocs_as_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let schema = plan.schema();
        if !schema
            .fields()
            .iter()
            .any(|field| is_moc(field.data_type()))
        {
            return Ok(plan);
        }
        let mut functions = sql::functions::all().into_iter();
        let text = functions
            .find(|function| function.name() == MOC_TEXT)
            .ok_or_else(|| plan_datafusion_err!("there is no function {MOC_TEXT}"))?;
        let text = ScalarUDF::clone(&text);
        let items: Vec<Expr> = (schema.iter())
            .map(|(table, field)| {
                let column = Expr::Column(Column::new(table.cloned(), field.name()));
                match is_moc(field.data_type()) {
                    true => text
                        .call(vec![column])
                        .alias_qualified(table.cloned(), field.name()),
                    false => column,
                }
            })
            .collect();
        LogicalPlanBuilder::from(plan).project(items)?.build()
    }
}
