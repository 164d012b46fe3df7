//! `qserv_result(id)` in FROM: the stored result of a query as a table.
//!
//! The name of the function is Qserv's (*Qserv User Guide*, "Asynchronous queries"). Results are those of one user, so the name of who
//! asks is part of the call: [`sql`] appends it to what is typed.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use catalog::fold_name;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream::{BoxStream, StreamExt};
use sql::{MOST_WARNINGS, Warning};

use crate::EngineError;
use crate::error::external;
use crate::system_tables::SystemTables;

/// The name of the function.
pub(crate) use sql::RESULT_FUNCTION;

/// Rows of a result, as a stream.
pub type RowStream = BoxStream<'static, Result<RecordBatch, EngineError>>;

/// Rows that are stored and can be read any number of times.
#[derive(Clone)]
pub struct StoredRows {
    /// The columns under their headings, of which several may be the same.
    pub schema: SchemaRef,
    /// The warnings of the statement that they are the result of.
    pub warnings: Arc<[Warning]>,
    /// Begins to read the rows.
    pub open: Arc<dyn Fn() -> RowStream + Send + Sync>,
}

impl fmt::Debug for StoredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredRows({})", self.schema)
    }
}

/// `qserv_result(id)`.
#[derive(Debug)]
pub(crate) struct ResultFunction {
    pub system: Option<Arc<dyn SystemTables>>,
}

impl TableFunctionImpl for ResultFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let Some(system) = &self.system else {
            return plan_err!(
                "{RESULT_FUNCTION} is not available here: results are stored by a server"
            );
        };
        let (id, partial, user) = match args.exprs() {
            [Expr::Literal(id, _), Expr::Literal(user, _)] => (id, false, user),
            [Expr::Literal(id, _), _, Expr::Literal(user, _)] => (id, true, user),
            _ => return usage(),
        };
        let (Some(id), Some(user)) = (number(id), text(user)) else {
            return usage();
        };
        let rows = system.result(id, user, partial).map_err(external)?;
        Ok(Arc::new(StoredRowsTable::of(rows)))
    }
}

fn usage<T>() -> Result<T> {
    plan_err!("{RESULT_FUNCTION} takes the number of a query, as in {RESULT_FUNCTION}(1000017)")
}

fn number(value: &ScalarValue) -> Option<u64> {
    match value {
        ScalarValue::Int64(Some(number)) => u64::try_from(*number).ok(),
        ScalarValue::UInt64(Some(number)) => Some(*number),
        _ => None,
    }
}

fn text(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => Some(text),
        _ => None,
    }
}

/// Stored rows as a table.
#[derive(Debug)]
pub(crate) struct StoredRowsTable {
    rows: StoredRows,
    /// The columns under folded names that differ.
    schema: SchemaRef,
    /// The same under the names that are shown.
    declared: SchemaRef,
}

impl StoredRowsTable {
    fn of(rows: StoredRows) -> Self {
        let declared = distinct_names(&rows.schema);
        let folded = |field: &Arc<Field>| field.as_ref().clone().with_name(fold_name(field.name()));
        let schema = Schema::new(declared.fields().iter().map(folded).collect::<Vec<_>>());
        Self {
            rows,
            schema: Arc::new(schema),
            declared,
        }
    }

    /// The columns as they are shown.
    pub fn declared(&self) -> &SchemaRef {
        &self.declared
    }
}

/// The warnings of the stored results that a plan reads, each result's once: whoever reads it now has not been told of them.
pub(crate) fn warnings_of_results(plan: &LogicalPlan) -> Vec<Warning> {
    let mut read: Vec<Arc<[Warning]>> = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = provider.downcast_ref::<StoredRowsTable>()
            && !read.contains(&table.rows.warnings)
        {
            read.push(Arc::clone(&table.rows.warnings));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let all = read.iter().flat_map(|warnings| warnings.iter());
    all.take(MOST_WARNINGS).cloned().collect()
}

/// The same columns; a name that an earlier one has, without regard to case, gets a number: `ra`, `ra_2`.
fn distinct_names(schema: &Schema) -> SchemaRef {
    let mut used = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        let mut name = field.name().clone();
        let mut number = 1;
        while !used.insert(fold_name(&name)) {
            number += 1;
            name = format!("{}_{number}", field.name());
        }
        field.as_ref().clone().with_name(name)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[async_trait]
impl TableProvider for StoredRowsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partition: Arc<dyn PartitionStream> = Arc::new(StoredPartition {
            rows: self.rows.clone(),
            schema: Arc::clone(&self.schema),
        });
        let plan = StreamingTableExec::try_new(
            Arc::clone(&self.schema),
            vec![partition],
            projection,
            [],
            false,
            limit,
        )?;
        Ok(Arc::new(plan))
    }
}

/// The rows as the only partition of a scan.
#[derive(Debug)]
struct StoredPartition {
    rows: StoredRows,
    schema: SchemaRef,
}

impl PartitionStream for StoredPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let names = Arc::clone(&schema);
        let rows = (self.rows.open)().map(move |batch| renamed(&batch.map_err(external)?, &names));
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    let renamed = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    Ok(renamed?)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn names_of_columns_differ_without_regard_to_case() {
        let named = |names: &[&str]| {
            let field = |name: &&str| Field::new(*name, DataType::Int64, true);
            Schema::new(names.iter().map(field).collect::<Vec<_>>())
        };
        let found = distinct_names(&named(&["ra", "RA", "ra_2", "count(*)", "ra"]));
        let names: Vec<&str> = found.fields().iter().map(|it| it.name().as_str()).collect();
        assert_eq!(names, ["ra", "RA_2", "ra_2_2", "count(*)", "ra_3"]);
    }
}
