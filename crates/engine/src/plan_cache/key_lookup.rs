//! Statements that request the rows of one key and no more: found by the director index and a search among sorted keys.
//!
//! ```text
//!   key ──► director index ──► chunk, sub-chunk ──► its rows, sorted by key ──► the rows of the key ──► what is selected of them
//! ```
//!
//! A plan takes longer to be put together for another key than it takes to run. Invariant: the rows are those that the plan
//! gives. Whatever would have to be read to find them, or is not as it usually is, is left to the plan.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::projection::ProjectionExec;
use store::SortedColumn;

use super::parameter::parameter;
use crate::condition::equal_to_column;
use crate::exec::{PieceScanExec, RowsOf};
use crate::loaded_table::LoadedTable;
use crate::{Archive, EngineError};

/// What a statement selects of the rows of a key.
#[derive(Debug, Clone)]
pub(super) struct KeyLookup {
    table: Arc<LoadedTable>,
    /// The column of the key, by which rows are sorted.
    column: usize,
    key: Key,
    /// Numbers of the columns in the files that are read.
    columns: Vec<usize>,
    /// These columns.
    schema: SchemaRef,
    /// What is computed of them, from the scan upwards.
    projections: Vec<Projection>,
}

/// The key that is requested.
#[derive(Debug, Clone, Copy)]
enum Key {
    Fixed(i64),
    Parameter(usize),
}

/// What an operator computes of the rows below it.
#[derive(Debug, Clone)]
struct Projection {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

impl KeyLookup {
    /// What the plan of a piece looks up; `None` if it does anything else.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let mut projections = Vec::new();
        let mut node = plan;
        loop {
            if let Some(scan) = node.downcast_ref::<PieceScanExec>() {
                projections.reverse();
                return Self::of_scan(scan, projections);
            }
            node = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                let expressions = projection.expr().iter();
                projections.push(Projection {
                    expressions: expressions.map(|it| Arc::clone(&it.expr)).collect(),
                    schema: projection.schema(),
                });
                projection.input()
            } else {
                node.downcast_ref::<CooperativeExec>()?.input()
            };
        }
    }

    fn of_scan(scan: &PieceScanExec, projections: Vec<Projection>) -> Option<Self> {
        let [predicate] = scan.predicates() else {
            return None;
        };
        let column = scan.stored().sorted_by?;
        let source = scan.source()?;
        Some(Self {
            table: Arc::clone(&source.table),
            column,
            key: key_of(predicate, column)?,
            columns: scan.projection().to_vec(),
            schema: scan.schema(),
            projections,
        })
        .filter(|_| scan.rows() == RowsOf::Own && scan.bounds().is_none())
    }

    /// The rows of the key, no more than so many; `None` where the plan has to find them.
    pub async fn rows(
        &self,
        values: &[ScalarValue],
        archive: &Archive,
        most_rows: Option<u64>,
    ) -> std::result::Result<Option<RecordBatch>, EngineError> {
        let key = match self.key {
            Key::Fixed(key) => key,
            Key::Parameter(index) => match values.get(index) {
                Some(ScalarValue::Int64(Some(key))) => *key,
                _ => return Ok(None),
            },
        };
        let Some(found) = self.table.locate_key(archive, key).await? else {
            return Ok(None);
        };
        let place = match found.places.as_slice() {
            [] => return self.computed(RecordBatch::new_empty(Arc::clone(&self.schema))),
            [place] => *place,
            _ => return Ok(None),
        };
        let sought = SortedColumn {
            column: self.column,
            least: key,
            greatest: key,
        };
        let stored = &self.table.stored;
        let files = match found.part {
            Some(part) => stored.open_part(archive, part, place.chunk).await?,
            None => stored.open(archive, place.chunk).await?,
        };
        let mut found = Vec::with_capacity(1);
        let mut count = 0;
        for file in &files {
            let Some(entry) = file.directory().get(place.sub_chunk) else {
                continue;
            };
            let Some(rows) = file.find(entry.rows.clone(), &sought) else {
                return Ok(None);
            };
            count += rows.end - rows.start;
            if !rows.is_empty() {
                found.push((file, rows));
            }
        }
        if most_rows.is_some_and(|most| count > most) {
            return Ok(None);
        }
        let mut batches = Vec::with_capacity(found.len());
        for (file, rows) in found {
            batches.push(file.read_rows(rows, &self.columns, &self.schema).await?);
        }
        match batches.len() {
            0 => self.computed(RecordBatch::new_empty(Arc::clone(&self.schema))),
            1 => self.computed(batches.swap_remove(0)),
            _ => {
                let all = concat_batches(&self.schema, &batches);
                self.computed(all.map_err(|error| EngineError::from_run(&error.into()))?)
            }
        }
    }

    fn computed(
        &self,
        mut rows: RecordBatch,
    ) -> std::result::Result<Option<RecordBatch>, EngineError> {
        for projection in &self.projections {
            let computed = projection.of(&rows);
            rows = computed.map_err(|error| EngineError::from_run(&error))?;
        }
        Ok(Some(rows))
    }
}

impl Projection {
    fn of(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let columns = self.expressions.iter();
        let columns = columns.map(|it| it.evaluate(rows)?.into_array(count));
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let columns = columns.collect::<Result<_>>()?;
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

/// The key of a condition that the column equals it.
fn key_of(predicate: &Arc<dyn PhysicalExpr>, column: usize) -> Option<Key> {
    let key = equal_to_column(predicate, column)?;
    if let Some(index) = parameter(key) {
        return Some(Key::Parameter(index));
    }
    match key.downcast_ref::<Literal>()?.value() {
        ScalarValue::Int64(key) => key.map(Key::Fixed),
        _ => None,
    }
}
