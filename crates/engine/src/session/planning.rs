//! Planning a statement, with its values or with parameters in their places.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType as AstType, ExactNumberInfo, Ident, Statement as Ast,
};
use sql::NotFound;

use crate::Archive;
use crate::error::external;
use crate::loaded_table::LoadedTable;
use crate::plan_cache::Candidate;
use crate::provider::{ArchiveDatabase, ArchiveTable};

/// How often a statement is planned anew when one of its tables changes meanwhile.
const ATTEMPTS: usize = 20;
/// How the engine says that it cannot see that a plan is sorted.
const UNSORTED: &str = "does not satisfy order requirements";

/// The logical and the physical plan of a statement.
pub(super) async fn plan(
    state: &SessionState,
    statement: Statement,
) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
    let logical = Box::pin(logical_plan(state, statement)).await?;
    let optimized = state.optimize(&logical)?;
    let plan = physical_plan(state, &optimized).await?;
    Ok((logical, plan))
}

/// The physical plan of a statement that is optimised.
///
/// The engine checks that what it has made is sorted where it has to be, and cannot see that of some sorts by columns that are equal, or
/// by expressions with constants. Such a statement is planned once more without partitions, which leaves nothing to be merged in order.
async fn physical_plan(
    state: &SessionState,
    optimized: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planned = state
        .query_planner()
        .create_physical_plan(optimized, state)
        .await;
    match planned {
        Err(error) if error.to_string().contains(UNSORTED) => {
            let config = state.config().clone().with_target_partitions(1);
            let whole = SessionStateBuilder::new_from_existing(state.clone());
            let whole = whole.with_config(config).build();
            let planner = whole.query_planner();
            planner.create_physical_plan(optimized, &whole).await
        }
        planned => planned,
    }
}

/// The same for a statement whose parameters are placeholders.
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
    // PREPARE gives its placeholders the types of the values.
    let prepare = Ast::Prepare {
        name: Ident::new("cached"),
        data_types: types.collect(),
        statement: ast,
    };
    let prepare = Statement::Statement(Box::new(prepare));
    let logical = match Box::pin(logical_plan(state, prepare)).await? {
        LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => {
            Arc::unwrap_or_clone(prepare.input)
        }
        _ => return plan_err!("a prepared statement has no plan"),
    };
    let optimized = candidate.with_parameters(state.optimize(&logical)?)?;
    let plan = physical_plan(state, &optimized).await?;
    Ok((logical, plan))
}

/// The logical plan of a statement, whose tables are all of one state of the catalog.
///
/// Tables are looked up one after the other, and a load may be published between two look-ups. Which rows of two tables are in the
/// same piece is known of tables that exist together, so each is looked up once more after the last one: where none has changed,
/// all of them were there when that one was looked up.
pub(super) async fn logical_plan(
    state: &SessionState,
    statement: Statement,
) -> Result<LogicalPlan> {
    for _ in 0..ATTEMPTS {
        let logical = match state.statement_to_plan(statement.clone()).await {
            Ok(logical) => logical,
            Err(error) => return Err(with_alternatives(state, error).await),
        };
        if are_current(&logical).await? {
            return Ok(logical);
        }
    }
    exec_err!("the tables of the statement are being changed again and again: try it once more")
}

/// The error, which also says in which databases a table is that was not found, or which databases there are.
async fn with_alternatives(state: &SessionState, error: DataFusionError) -> DataFusionError {
    let Some((catalog, database, table)) = missing_table(&error) else {
        return error;
    };
    if NotFound::is_of_state(&error) {
        return error;
    }
    let place = error.diagnostic().cloned();
    let catalog = state.catalog_list().catalog(&catalog);
    let found = catalog.and_then(|catalog| catalog.schema(&database));
    let schema = found.as_ref();
    let told = match schema.and_then(|schema| schema.downcast_ref::<ArchiveDatabase>()) {
        Some(schema) => match schema.not_found(&table, error).await {
            Ok(error) | Err(error) => error,
        },
        None => error,
    };
    match place {
        Some(place) if told.diagnostic().is_none() => told.with_diagnostic(place),
        _ => told,
    }
}

/// The catalogue, the database and the table of the planner's error that there is no such table.
fn missing_table(error: &DataFusionError) -> Option<(String, String, String)> {
    let DataFusionError::Plan(message) = error.find_root() else {
        return None;
    };
    let name = message
        .strip_prefix("table '")?
        .split_once("' not found")?
        .0;
    let (catalog, name) = name.split_once('.')?;
    let (database, table) = name.split_once('.')?;
    Some((catalog.to_owned(), database.to_owned(), table.to_owned()))
}

async fn are_current(plan: &LogicalPlan) -> Result<bool> {
    let mut tables: Vec<(Arc<Archive>, Arc<LoadedTable>)> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(it) = provider.downcast_ref::<ArchiveTable>()
        {
            tables.push((Arc::clone(&it.archive), Arc::clone(&it.table)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // One table is of one state whatever happens.
    if tables.len() < 2 {
        return Ok(true);
    }
    for (archive, table) in tables {
        let spec = table.spec();
        let now = archive.table(&spec.database, &spec.name).await;
        let now = now.map_err(external)?;
        if !now.is_some_and(|now| Arc::ptr_eq(&now, &table)) {
            return Ok(false);
        }
    }
    Ok(true)
}
