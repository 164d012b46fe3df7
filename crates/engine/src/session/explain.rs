//! What EXPLAIN says of a query as a whole, before its plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use futures::{Stream, StreamExt, future, stream};
use sql::{ErrorCode, ParsedStatement, SqlError};

use super::{PreparedQuery, Session};
use crate::dispatch::Dispatching;
use crate::exec::{ChunkPhaseExec, ShuffleExec};
use crate::provider::ArchiveTable;
use crate::{EngineError, QueryExecution, ScanEstimate, estimate};

/// The name of the row, beside `logical_plan` and `physical_plan`.
const SUMMARY: &str = "summary";
/// The name of the last row of an EXPLAIN ANALYZE.
const READS: &str = "reads";

impl Session {
    /// The first row of an EXPLAIN: class, lane, expected time, pieces, and what is read of each table. `None` for other statements.
    pub(super) async fn preface(
        &self,
        parsed: &ParsedStatement,
        prepared: &PreparedQuery,
    ) -> Result<Option<RecordBatch>, EngineError> {
        let Some(explained) = explained(&parsed.statement) else {
            return Ok(None);
        };
        let explained = ParsedStatement {
            statement: explained,
            ..parsed.clone()
        };
        // The statement has just been planned.
        let Ok((_, plan)) = self.planned(&explained, None).await else {
            return Ok(None);
        };
        let estimate = estimate::estimate(&self.archive, &plan).await?;
        let mut summary = self.summary(&estimate);
        if let Some(sent) = self.pieces_sent(&plan) {
            summary.push_str(&sent);
        }
        let row = [SUMMARY.to_owned(), summary];
        let columns = row.map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
        // Another form of EXPLAIN may have other columns.
        Ok(RecordBatch::try_new(Arc::clone(&prepared.plan.schema()), columns.to_vec()).ok())
    }

    /// Which workers the pieces go to, where there is a cluster.
    fn pieces_sent(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
        let task = self.task();
        let dispatching = task.session_config().get_extension::<Dispatching>()?;
        let mut sent: BTreeMap<String, usize> = BTreeMap::new();
        let mut merged_above = None;
        let counted = plan.apply(|node| {
            if let Some(shuffle) = node.downcast_ref::<ShuffleExec>() {
                merged_above = Some(shuffle.most_rows());
            }
            if let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() {
                for (worker, pieces) in phase.preview(&dispatching)? {
                    *sent.entry(worker).or_default() += pieces;
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        counted.ok()?;
        let workers: Vec<String> = sent
            .into_iter()
            .map(|(worker, pieces)| format!("{worker} {pieces}"))
            .collect();
        let mut text = match workers.is_empty() {
            true => "\npieces sent to workers: none".to_owned(),
            false => format!("\npieces sent to workers: {}", workers.join(", ")),
        };
        if let Some(rows) = merged_above.filter(|_| !workers.is_empty()) {
            text.push_str(&format!(
                "\nmerged by workers if the pieces give more than {rows} rows, else by the front end"
            ));
        }
        Some(text)
    }

    /// The EXPLAIN of a statement that reads tables of which not all rows are released to whoever asks: what they have written, as the
    /// optimizer reads it, and by what the scans are restricted. The numbers of pieces, chunks, rows and bytes, the expected time, and the
    /// physical plan, which is made by such numbers, would tell of the other rows. Whatever form is asked for, there is one.
    pub(super) async fn explained_without_rows(
        &self,
        explained: &ParsedStatement,
        prepared: PreparedQuery,
    ) -> Result<PreparedQuery, EngineError> {
        let failed = |error: DataFusionError| EngineError::from_run(&error);
        let optimized = self.optimized(explained).await.map_err(failed)?;
        let rows = [
            (SUMMARY, summary_without_rows(&optimized)),
            ("logical_plan", optimized.display_indent().to_string()),
        ];
        let schema = LogicalPlan::explain_schema();
        let (kinds, texts): (Vec<&str>, Vec<String>) = rows.into_iter().unzip();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(kinds)),
            Arc::new(StringArray::from(texts)),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|error| EngineError::internal(error.to_string()))?;
        let plan = MemorySourceConfig::try_new_exec(&[vec![batch]], Arc::clone(&schema), None);
        Ok(PreparedQuery {
            plan: plan.map_err(failed)?,
            schema,
            ..prepared
        })
    }

    fn summary(&self, estimate: &ScanEstimate) -> String {
        if estimate.tables.is_empty() {
            return "interactive: reads no table of the archive".to_owned();
        }
        let forecast = self.system.as_ref().map(|it| it.forecast(estimate));
        let mut text = match (estimate.is_interactive(), &forecast) {
            (true, _) => "interactive".to_owned(),
            (false, None) => "scan".to_owned(),
            (false, Some(forecast)) => {
                format!("scan in lane {}", forecast.lane.to_ascii_uppercase())
            }
        };
        text.push_str(&format!(", pieces: {}", estimate.pieces));
        if let Some(forecast) = forecast {
            text.push_str(&format!(", expected: {}", time(forecast.seconds)));
        }
        for table in &estimate.tables {
            text.push_str(&format!("\n{table}"));
        }
        text
    }
}

/// What is read of each table, by what the statement says alone.
fn summary_without_rows(optimized: &LogicalPlan) -> String {
    let (mut lines, mut partly): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    // The closure cannot fail.
    let _ = optimized.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(it) = provider.downcast_ref::<ArchiveTable>()
        {
            let spec = it.table.spec();
            let name = spec.full_name();
            let is_released = it.archive.release_of(&it.table).is_some();
            if is_released && !partly.contains(&name) {
                partly.push(name.clone());
            }
            let rows = if is_released { "released rows, " } else { "" };
            let restriction = it.table.roles().restriction(&scan.filters);
            let mut columns: BTreeSet<String> = { scan.projected_schema.fields().iter() }
                .map(|field| field.name().clone())
                .collect();
            let filters = scan.filters.iter().flat_map(Expr::column_refs);
            columns.extend(filters.map(|column| column.name.clone()));
            let columns: Vec<&str> = { columns.iter() }
                .map(|name| spec.column(name).map_or(name.as_str(), |it| &it.name))
                .collect();
            let columns = match columns.as_slice() {
                [] => "no column".to_owned(),
                some => format!("columns {}", some.join(", ")),
            };
            lines.push(format!("{name}: {rows}{restriction}, {columns}"));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    format!(
        "pieces, rows, bytes, times and the physical plan are not told, since not all rows of {} are released to you\n{}",
        partly.join(", "),
        lines.join("\n")
    )
}

/// The last row of an EXPLAIN ANALYZE: what the query has read, and how it was scheduled. It is empty elsewhere, and where nobody
/// watches the query.
pub(super) fn report(
    analyzes: bool,
    schema: &SchemaRef,
) -> impl Stream<Item = datafusion::common::Result<RecordBatch>> + Send + 'static {
    let execution = QueryExecution::current().filter(|_| analyzes);
    let (schema, began) = (Arc::clone(schema), Instant::now());
    let row = move |execution: Arc<QueryExecution>| {
        let mut lines = execution.report();
        lines.push(format!("elapsed: {:.3?}", began.elapsed()));
        let row = [READS.to_owned(), lines.join("\n")];
        let columns = row.map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
        // Another form of EXPLAIN may have other columns.
        RecordBatch::try_new(schema, columns.to_vec()).ok()
    };
    stream::once(async move { execution.and_then(row).map(Ok) }).filter_map(future::ready)
}

/// Whether a statement is an EXPLAIN ANALYZE.
pub(super) fn analyzes(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(explain) => explain.options.analyze,
        Statement::Statement(ast) => matches!(ast.as_ref(), Ast::Explain { analyze: true, .. }),
        _ => false,
    }
}

/// The error of an EXPLAIN of what whoever asks may not see.
pub(super) fn not_explained(analyzes: bool) -> EngineError {
    let sentence = match analyzes {
        true => {
            "EXPLAIN ANALYZE counts rows that are not released to you, or that a view leaves out: EXPLAIN explains what reads tables, and the query can be executed without that"
        }
        false => {
            "a query of a view is explained to those who may read all that the view is made of, and all rows of its tables; it can be executed without that"
        }
    };
    SqlError::new(sentence)
        .with_code(ErrorCode::VIEW_NOT_EXPLAINED)
        .into()
}

/// A time as people say it, of three digits.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => "less than 1 ms".to_owned(),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The statement that an EXPLAIN of any form explains.
pub(super) fn explained(statement: &Statement) -> Option<Statement> {
    match statement {
        Statement::Explain(explain) => Some(explain.statement.as_ref().clone()),
        Statement::Statement(ast) => match ast.as_ref() {
            Ast::Explain { statement, .. } => Some(Statement::Statement(statement.clone())),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told = [0.0002, 0.0123, 1.26, 75.0, 300.0, 7200.0].map(time);
        let expected = [
            "less than 1 ms",
            "12 ms",
            "1.3 s",
            "75.0 s",
            "5 min",
            "2.0 h",
        ];
        assert_eq!(told, expected);
    }
}
