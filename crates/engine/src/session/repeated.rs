//! The columns of a result that wildcards repeat, put after one another above the plan of each of them once.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use sql::{ErrorCode, RepeatedColumns, SqlError};

use crate::EngineError;

/// The plan and the headed columns of a result of which some columns are given again.
pub(super) fn repeat(
    repeated: &RepeatedColumns,
    logical: &LogicalPlan,
    plan: Arc<dyn ExecutionPlan>,
    headed: &SchemaRef,
) -> Result<(Arc<dyn ExecutionPlan>, SchemaRef), EngineError> {
    let Some(columns) = repeated.columns(logical.schema()) else {
        let sentence = "it cannot be told which columns a wildcard gives here that stands twice: write their names";
        return Err(SqlError::new(sentence)
            .with_code(ErrorCode::NOT_SUPPORTED)
            .into());
    };
    let headed = headed.project(&columns);
    let headed = headed.map_err(|error| EngineError::from_run(&error.into()))?;
    let plan = with_columns(plan, &columns).map_err(|error| EngineError::from_run(&error))?;
    Ok((plan, Arc::new(headed)))
}

/// A plan with these of its columns.
fn with_columns(plan: Arc<dyn ExecutionPlan>, columns: &[usize]) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let columns = columns.iter().map(|at| {
        let name = schema.field(*at).name();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, *at));
        (column, name.clone())
    });
    let columns: Vec<_> = columns.collect();
    Ok(Arc::new(ProjectionExec::try_new(columns, plan)?))
}
