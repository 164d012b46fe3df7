//! A condition evaluated as it is written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use vortex::expr::Expression;

use super::zone_hint::HintColumns;

/// A condition that is evaluated, on those rows that are not out already.
#[derive(Debug)]
pub(super) struct Exact {
    /// The columns that it looks at, as numbers among the scan's.
    columns: Vec<usize>,
    /// These columns.
    schema: SchemaRef,
    /// The condition over these columns.
    predicate: Arc<dyn PhysicalExpr>,
}

impl Exact {
    /// The condition `predicate` over columns of `schema`.
    pub fn of(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Self> {
        let mut columns: Vec<usize> = collect_columns(predicate)
            .into_iter()
            .map(|column| column.index())
            .collect();
        columns.sort_unstable();
        Ok(Self {
            schema: Arc::new(schema.project(&columns)?),
            predicate: renumber(predicate, &columns)?,
            columns,
        })
    }

    /// What zone maps can be asked of it, if anything; `name` gives a scan's column its name in the files.
    pub fn hint(&self, name: &dyn Fn(usize) -> String) -> Option<Expression> {
        let columns = HintColumns {
            schema: &self.schema,
            name: &|own| name(self.columns[own]),
        };
        columns.hint(&self.predicate)
    }

    /// Those of the rows in `alive` for which the condition is true.
    pub fn keep(&self, columns: &[ArrayRef], alive: BooleanBuffer) -> Result<BooleanBuffer> {
        let options = RecordBatchOptions::new().with_row_count(Some(alive.len()));
        let own = self
            .columns
            .iter()
            .map(|at| Arc::clone(&columns[*at]))
            .collect();
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), own, &options)?;
        let wanted = alive.count_set_bits();
        if wanted == alive.len() {
            return truth(&self.predicate, &rows);
        }
        // Copying a few rows is cheaper than computing the condition for all.
        let mask = BooleanArray::new(alive.clone(), None);
        let truth = truth(&self.predicate, &filter_record_batch(&rows, &mask)?)?;
        Ok(spread(&truth, &alive))
    }
}

/// For each row whether the condition is true; NULL is not.
pub(super) fn truth(
    predicate: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
) -> Result<BooleanBuffer> {
    let truth = predicate.evaluate(rows)?.into_array(rows.num_rows())?;
    let truth = truth.as_boolean_opt().ok_or_else(|| {
        internal_datafusion_err!("the condition {predicate} gives no truth values")
    })?;
    Ok(match truth.null_count() {
        0 => truth.values().clone(),
        _ => prep_null_mask_filter(truth).values().clone(),
    })
}

/// Gives each set bit of `alive`, one after another, the next value of `truth`.
fn spread(truth: &BooleanBuffer, alive: &BooleanBuffer) -> BooleanBuffer {
    let mut spread = BooleanBufferBuilder::new(alive.len());
    spread.append_n(alive.len(), false);
    for (value, row) in truth.iter().zip(alive.set_indices()) {
        spread.set_bit(row, value);
    }
    spread.finish()
}

/// The same expression where the columns of `numbers` are numbered 0, 1, and so on.
pub(crate) fn renumber(
    predicate: &Arc<dyn PhysicalExpr>,
    numbers: &[usize],
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(predicate)
        .transform(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let at = numbers
                .iter()
                .position(|number| *number == column.index())
                .ok_or_else(|| internal_datafusion_err!("the column {column} is not there"))?;
            let renumbered = Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>;
            Ok(Transformed::yes(renumbered))
        })
        .data()
}
