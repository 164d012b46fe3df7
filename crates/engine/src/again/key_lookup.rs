//! Statements that ask for the rows of one key and no more: found by the director index and a search among sorted keys.
//!
//! ```text
//!   key ──► director index ──► chunk, sub-chunk ──► its rows, sorted by key ──► the rows of the key ──► what is selected of them
//! ```
//!
//! A plan takes longer to be put together for another key than it takes to run. Invariant: the rows are those that the plan
//! gives. Whatever would have to be read to find them, or is not as it usually is, is left to the plan.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::projection::ProjectionExec;
use store::Sorted;

use super::substitution::Substitution;
use crate::exec::{PieceScanExec, RowsOf};
use crate::loaded_table::LoadedTable;
use crate::{Archive, EngineError};

/// What a statement selects of the rows of a key.
#[derive(Debug, Clone)]
pub(super) struct KeyLookup {
    sorted: Sorted,
    /// Numbers of the columns in the files that are read.
    columns: Vec<usize>,
    /// These columns.
    schema: SchemaRef,
    /// What is computed of them, from the scan upwards.
    projections: Vec<Projection>,
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
        let sorted = scan.sought().filter(|_| scan.predicates().len() == 1)?;
        (scan.rows() == RowsOf::Own && scan.bounds().is_none()).then(|| Self {
            sorted,
            columns: scan.projection().to_vec(),
            schema: scan.schema(),
            projections,
        })
    }

    /// The rows of a key that stands in the place of this one's; `None` where the plan has to find them.
    pub async fn rows(
        &self,
        key: i64,
        table: &LoadedTable,
        archive: &Archive,
        most_rows: Option<u64>,
    ) -> std::result::Result<Option<RecordBatch>, EngineError> {
        let Some(places) = table.locate_keys(archive, 0, &[key]).await? else {
            return Ok(None);
        };
        let place = match places.as_slice() {
            [] => return self.computed(RecordBatch::new_empty(Arc::clone(&self.schema))),
            [place] => *place,
            _ => return Ok(None),
        };
        let Some(file) = table.stored.open(archive, place.chunk).await? else {
            return Ok(None);
        };
        let Some(entry) = file.directory().get(place.sub_chunk) else {
            return Ok(None);
        };
        let sought = Sorted {
            least: key,
            greatest: key,
            ..self.sorted
        };
        let Some(rows) = file.find(entry.rows.clone(), &sought) else {
            return Ok(None);
        };
        if most_rows.is_some_and(|most| rows.end - rows.start > most) {
            return Ok(None);
        }
        let read = file.read_rows(rows, &self.columns, &self.schema);
        self.computed(read.await?)
    }

    /// The key with the other numbers; `None` if that does not tell it.
    pub fn key(&self, substitution: &Substitution) -> Option<i64> {
        match substitution.put_into(ScalarValue::Int64(Some(self.sorted.least))) {
            ScalarValue::Int64(key) if substitution.met_all() => key,
            _ => None,
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
