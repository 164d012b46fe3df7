//! Times of day in a result are texts, which say by their field's metadata that they are a TIME's.
//!
//! Within a statement they are spans of microseconds, with which it computes and by which it sorts. No format of files has such a type that
//! readers take for a time of day, and MySQL's protocol sends texts of it; so the last step of a plan writes them as MySQL does.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::mysql::{self, TIME_TEXT};

/// Puts a projection on a plan whose result has times of day. Runs after values were made comparable, and in MySQL's dialect alone.
#[derive(Debug, Default)]
pub struct TimesAsTexts;

impl AnalyzerRule for TimesAsTexts {
    fn name(&self) -> &str {
        "times_as_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let is_time = |given: &DataType| matches!(given, DataType::Duration(_));
        let schema = plan.schema();
        if !schema.fields().iter().any(|it| is_time(it.data_type())) {
            return Ok(plan);
        }
        let items: Vec<Expr> = (schema.iter())
            .map(|(table, field)| {
                let column = Expr::Column(Column::new(table.cloned(), field.name()));
                match is_time(field.data_type()) {
                    true => mysql::call(TIME_TEXT, vec![column])
                        .alias_qualified(table.cloned(), field.name()),
                    false => column,
                }
            })
            .collect();
        LogicalPlanBuilder::from(plan).project(items)?.build()
    }
}
