//! Bringing the rows of a numbered chunk phase back into the order of the pieces.

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use super::{PIECE_NUMBER, ROW_NUMBER};

/// Sorts each partition by the numbers of piece and row, which are its last two columns, and drops them.
///
/// ```text
///   states of many pieces, mixed ──► sort by (piece, row), to disk if need be ──► the same, as one process has them
/// ```
///
/// It stands below the final half of an aggregate whose result depends on the order in which it meets its states: sums of
/// floating-point numbers. An ordinary sort there would be taken for useless by the optimizer, since nobody asks for it.
#[derive(Debug)]
pub struct PieceOrderExec {
    input: Arc<dyn ExecutionPlan>,
    sorted: Arc<dyn ExecutionPlan>,
}

impl PieceOrderExec {
    /// Over rows whose last two columns are the numbers.
    pub fn try_new(input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let schema = input.schema();
        let [own @ .., piece, row] = schema.fields().as_ref() else {
            return internal_err!(
                "rows without numbers cannot be brought into the order of the pieces"
            );
        };
        if piece.name() != PIECE_NUMBER || row.name() != ROW_NUMBER {
            return internal_err!(
                "the last columns are {piece} and {row}, not the numbers of piece and row"
            );
        }
        let by = [PIECE_NUMBER, ROW_NUMBER]
            .iter()
            .zip(own.len()..)
            .map(|(name, at)| {
                PhysicalSortExpr::new(Arc::new(Column::new(name, at)), SortOptions::default())
            });
        let Some(by) = LexOrdering::new(by) else {
            return internal_err!("an order by two columns has none");
        };
        let sort = SortExec::new(by, Arc::clone(&input)).with_preserve_partitioning(true);
        let kept = own.iter().enumerate().map(|(at, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
            (column, field.name().clone())
        });
        let sorted = Arc::new(ProjectionExec::try_new(
            kept.collect::<Vec<_>>(),
            Arc::new(sort),
        )?);
        Ok(Self { input, sorted })
    }
}

impl DisplayAs for PieceOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PieceOrderExec")
    }
}

impl ExecutionPlan for PieceOrderExec {
    fn name(&self) -> &str {
        "PieceOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sorted.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::try_new(children.swap_remove(0))?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.sorted.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.sorted.metrics()
    }
}
