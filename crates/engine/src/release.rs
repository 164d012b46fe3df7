//! Rows that are released by a condition: whoever may not see all rows of a table sees those that meet it, by whatever road.
//!
//! ```text
//!   the statement's plan        FilterExec: what the reader wrote
//!                                  BarrierExec: the release's condition
//!   ArchiveTable::scan                TableScanExec: the columns of both, restricted to pieces as without a release
//! ```
//!
//! The condition is no part of the logical plan, so that no rule can move anything below it; what the physical plan has in its place lets
//! nothing down ([`BarrierExec`]). A condition that cannot be planned any more hides all rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use catalog::ViewQuery;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use sql::{Dialect, ErrorCode, SqlError};

use crate::loaded_table::LoadedTable;
use crate::session::views::analyzed_definition;
use crate::{Archive, EngineError};

/// The condition of a release on the rows of a table, with the values of a statement's moment.
pub(crate) struct ReleaseCondition {
    condition: Arc<dyn PhysicalExpr>,
    /// The numbers of the table's columns that it reads, each once.
    read: Vec<usize>,
}

impl ReleaseCondition {
    /// Plans the condition of a table for a statement.
    ///
    /// # Errors
    /// [`ErrorCode::VIEW_INVALID`] if that cannot be done, without words that tell of the condition.
    pub async fn plan(
        archive: &Archive,
        session: &dyn Session,
        table: &LoadedTable,
        condition: &str,
    ) -> std::result::Result<Self, EngineError> {
        let spec = table.spec();
        let expr = condition_of(archive, &spec.database, &spec.name, condition).await;
        let planned = expr.and_then(|expr| {
            let planned = Self::of(expr, session, &table.stored.schema);
            planned.map_err(|error| EngineError::from_run(&error))
        });
        planned.map_err(|error| match error.code() {
            ErrorCode::INTERRUPTED => error,
            _ => {
                tracing::warn!(database = spec.database, table = spec.name, %error, "the condition by which rows are released cannot be used");
                let sentence = format!(
                    "{}.{} cannot be read at present, since the condition by which its rows are released cannot be used: tell whoever runs this archive",
                    spec.database, spec.name
                );
                SqlError::new(sentence)
                    .with_code(ErrorCode::VIEW_INVALID)
                    .into()
            }
        })
    }

    fn of(expr: Expr, session: &dyn Session, schema: &Arc<Schema>) -> Result<Self> {
        let schema = Arc::new(DFSchema::try_from(Arc::clone(schema))?);
        let props = session.execution_props();
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(&schema))
            .with_config_options(Arc::clone(session.config().options()))
            .with_query_execution_start_time(props.query_execution_start_time)
            .build();
        let expr = ExprSimplifier::new(context).simplify(expr)?;
        let condition =
            create_physical_expr(&expr, &schema, props, &PhysicalPlanningContext::default())?;
        let columns = collect_columns(&condition);
        let mut read: Vec<usize> = columns.iter().map(|column| column.index()).collect();
        read.sort_unstable();
        Ok(Self { condition, read })
    }

    /// The numbers of the table's columns that a scan has to read which is to give `wanted`: these, and then others.
    pub fn columns_with(&self, wanted: &[usize]) -> Vec<usize> {
        let others = self.read.iter().filter(|at| !wanted.contains(at));
        wanted.iter().chain(others).copied().collect()
    }

    /// The condition over the columns of such a scan.
    pub fn over(&self, scan: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        reassign_expr_columns(Arc::clone(&self.condition), scan)
    }
}

/// Whether rows of a table can be released by a condition.
///
/// # Errors
/// There is no such table; or the condition cannot be planned, or is more than a condition on the values of a row: the sentence says what
/// is wrong, and where in the condition.
pub async fn check_release(
    archive: &Archive,
    database: &str,
    table: &str,
    condition: &str,
) -> std::result::Result<(), EngineError> {
    let Some(found) = archive.table(database, table).await? else {
        let sentence = format!(
            "there is no table {database}.{table}: rows of tables are released, not those of views"
        );
        return Err(SqlError::new(sentence)
            .with_code(ErrorCode::NO_TABLE)
            .into());
    };
    let spec = found.spec();
    let expr = condition_of(archive, &spec.database, &spec.name, condition).await?;
    drop(expr);
    Ok(())
}

/// A condition as an expression over the columns of a table. A mistake has its place in the condition.
async fn condition_of(
    archive: &Archive,
    database: &str,
    table: &str,
    condition: &str,
) -> std::result::Result<Expr, EngineError> {
    sql::check_one_expression(Dialect::MySql, condition).map_err(|error| {
        let sentence = format!(
            "a release is one condition, as in obsTime < '2026-01-01': {}",
            error.sentence()
        );
        error.with_sentence(sentence).with_code(ErrorCode::SYNTAX)
    })?;
    // What is quoted has no quotes in it, and a comment at the condition's end ends with its line.
    let before = format!("SELECT 1 FROM `{database}`.`{table}` WHERE (");
    let query = ViewQuery {
        definition: format!("{before}{condition}\n)"),
        default_database: Some(database.to_owned()),
        columns: vec![],
        headings: vec![],
        position: None,
    };
    let planned = analyzed_definition(&archive.whole(), &query).await;
    let plan = planned.map_err(|error| match error {
        EngineError::Sql(error) => error
            .moved(condition, |byte| {
                let byte = byte.checked_sub(before.len())?;
                (byte < condition.len()).then_some(byte)
            })
            .into(),
        other => other,
    })?;
    let expr = only_condition(&plan).and_then(without_qualifiers);
    expr.map_err(|error| EngineError::from_run(&error))
}

/// The condition of a plan that does nothing but scan a table and filter its rows.
fn only_condition(plan: &LogicalPlan) -> Result<Expr> {
    let LogicalPlan::Projection(selected) = plan else {
        return plan_err!("a release is one condition, as in obsTime < '2026-01-01'");
    };
    let LogicalPlan::Filter(filter) = selected.input.as_ref() else {
        return plan_err!(
            "a release is a condition on the columns of the table, as in obsTime < '2026-01-01'"
        );
    };
    if !matches!(filter.input.as_ref(), LogicalPlan::TableScan(_)) {
        return plan_err!(
            "the condition of a release reads one row of its table, and no other rows"
        );
    }
    let is_more = |expr: &Expr| {
        Ok(match expr {
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Volatile,
            Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::Exists(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::AggregateFunction(_)
            | Expr::WindowFunction(_) => true,
            _ => false,
        })
    };
    if filter.predicate.exists(is_more)? {
        return plan_err!(
            "the condition of a release has no subqueries and nothing that is random: the rows of a table are released by their own values and the time"
        );
    }
    match filter.predicate.get_type(filter.input.schema())? {
        DataType::Boolean => Ok(filter.predicate.clone()),
        other => plan_err!("the condition of a release is true or false, and not of type {other}"),
    }
}

fn without_qualifiers(expr: Expr) -> Result<Expr> {
    let bare = |expr: Expr| {
        Ok(match expr {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    };
    expr.transform(bare).data()
}
