//! Expressions over the rows of one side, which are computed once for a row however many partners it has.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{JoinSide, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;

use super::joining::record_batch;
use crate::condition::renumber;

/// An expression over the columns of one input of a join, such as the magnitude of its rows.
#[derive(Debug, Clone)]
pub struct RowExpr {
    /// The input.
    pub side: JoinSide,
    /// The expression, over the columns of that input.
    pub expr: Arc<dyn PhysicalExpr>,
}

impl PartialEq for RowExpr {
    fn eq(&self, other: &Self) -> bool {
        self.side == other.side && *self.expr == *other.expr
    }
}

impl fmt::Display for RowExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.side == JoinSide::Left {
            "left"
        } else {
            "right"
        };
        write!(f, "{side} {}", self.expr)
    }
}

/// An expression that is ready to be evaluated: over the columns that it names, each of which may be NULL.
#[derive(Debug)]
pub(super) struct ReadyExpr {
    pub side: JoinSide,
    columns: Vec<usize>,
    schema: SchemaRef,
    expr: Arc<dyn PhysicalExpr>,
}

impl ReadyExpr {
    /// `input` is the schema of the expression's side.
    pub fn of(computed: &RowExpr, input: &Schema) -> Result<Self> {
        let named = collect_columns(&computed.expr);
        let mut columns: Vec<usize> = named.iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let nullable = |at: &usize| Field::clone(input.field(*at)).with_nullable(true);
        Ok(Self {
            side: computed.side,
            schema: Arc::new(Schema::new(
                columns.iter().map(nullable).collect::<Vec<_>>(),
            )),
            expr: renumber(&computed.expr, &columns)?,
            columns,
        })
    }

    /// Of all rows.
    pub fn evaluate(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        let columns = self.columns.iter().map(|at| Arc::clone(rows.column(*at)));
        self.over(columns.collect(), rows.num_rows())
    }

    /// Of the rows with these numbers, which may come again and again.
    fn evaluate_at(&self, rows: &RecordBatch, numbers: &UInt32Array) -> Result<ArrayRef> {
        let columns = self.columns.iter();
        let taken = columns.map(|at| take(rows.column(*at), numbers, None));
        self.over(taken.collect::<Result<_, _>>()?, numbers.len())
    }

    /// Of as many rows that are not there, as beside a row without a partner.
    pub fn of_nulls(&self, rows: usize) -> Result<ArrayRef> {
        let fields = self.schema.fields().iter();
        let nulls = fields.map(|field| new_null_array(field.data_type(), rows));
        self.over(nulls.collect(), rows)
    }

    fn over(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let batch = record_batch(&self.schema, columns, rows)?;
        self.expr.evaluate(&batch)?.into_array(rows)
    }
}

/// The values of an expression for the rows of a batch.
///
/// Either few pairs need it, or many pairs need it of each row many times. So it is computed for the pairs, until that was done for as
/// many as there are rows, and then once for all rows: at most twice the work of the better alternative.
#[derive(Debug, Default)]
pub(super) struct RowValues {
    asked: AtomicUsize,
    /// `None` inside if they cannot be computed: the expression fails for some row, which may have no partner, or memory is short.
    all: OnceLock<Option<ArrayRef>>,
}

impl RowValues {
    /// For each of the expressions.
    pub fn of_each(exprs: &[ReadyExpr]) -> Vec<Self> {
        exprs.iter().map(|_| Self::default()).collect()
    }

    /// The values of the rows with these numbers. What is kept is counted in `memory`.
    pub fn take(
        &self,
        expr: &ReadyExpr,
        rows: &RecordBatch,
        numbers: &UInt32Array,
        memory: Option<&MemoryReservation>,
    ) -> Result<ArrayRef> {
        let asked = self.asked.fetch_add(numbers.len(), Ordering::Relaxed) + numbers.len();
        if asked < rows.num_rows() {
            return expr.evaluate_at(rows, numbers);
        }
        let all = self.all.get_or_init(|| {
            let all = expr.evaluate(rows).ok()?;
            let kept = memory.map(|memory| memory.try_grow(all.get_array_memory_size()));
            kept.transpose().ok().map(|_| all)
        });
        match all {
            Some(all) => Ok(take(all, numbers, None)?),
            None => expr.evaluate_at(rows, numbers),
        }
    }
}
