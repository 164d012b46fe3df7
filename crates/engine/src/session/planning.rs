//! From a statement to its plans, with values in it or with parameters in their places.

use std::sync::Arc;

use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType as AstType, ExactNumberInfo, Ident, Statement as Ast,
};

use crate::plan_cache::Candidate;

/// The logical and the physical plan of a statement.
pub(super) async fn plan(
    state: &SessionState,
    statement: Statement,
) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
    let logical = state.statement_to_plan(statement).await?;
    let plan = state.create_physical_plan(&logical).await?;
    Ok((logical, plan))
}

/// The same of a statement whose parameters are placeholders.
pub(super) async fn plan_with_parameters(
    state: &SessionState,
    statement: Statement,
    candidate: &Candidate,
) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
    let Statement::Statement(ast) = statement else {
        return plan_err!("only queries have parameters");
    };
    let types = candidate.values.iter().map(|value| match value {
        ScalarValue::Int64(_) => AstType::BigInt(None),
        _ => AstType::Double(ExactNumberInfo::None),
    });
    // As it is prepared, its placeholders have the types of the values.
    let prepare = Ast::Prepare {
        name: Ident::new("cached"),
        data_types: types.collect(),
        statement: ast,
    };
    let prepare = Statement::Statement(Box::new(prepare));
    let logical = match state.statement_to_plan(prepare).await? {
        LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => {
            Arc::unwrap_or_clone(prepare.input)
        }
        _ => return plan_err!("a prepared statement has no plan"),
    };
    let optimized = candidate.with_parameters(state.optimize(&logical)?)?;
    let planner = state.query_planner();
    let plan = planner.create_physical_plan(&optimized, state).await?;
    Ok((logical, plan))
}
