//! A filter through which nothing of a reader's goes down.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::stream::StreamExt;

use super::plan_node::{no_statistics, plan_node};

/// Gives the rows for which a condition is true, if it has one, and of these some columns.
///
/// Unlike a filter of a statement it is a barrier: no condition from above is evaluated below it or together with its own, no sort, no limit and
/// no projection goes through it, and nothing is told of how many rows its input has. So what a reader writes is never computed on a row
/// that the condition leaves out, whatever it may do there. Its own condition goes on to the scan, which may leave rows out by it.
#[derive(Debug)]
pub struct BarrierExec {
    input: Arc<dyn ExecutionPlan>,
    condition: Option<Arc<dyn PhysicalExpr>>,
    /// The numbers of the input's columns that it gives.
    columns: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl BarrierExec {
    /// # Errors
    /// The input has no column of one of the numbers.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        condition: Option<Arc<dyn PhysicalExpr>>,
        columns: Vec<usize>,
    ) -> Result<Self> {
        let schema = Arc::new(input.schema().project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Ok(Self {
            input,
            condition,
            columns,
            properties: Arc::new(properties),
        })
    }

    /// What is filtered.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// The condition, over the columns of the input.
    pub fn condition(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.condition.as_ref()
    }

    /// The numbers of the input's columns that it gives.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }
}

fn kept(
    batch: &RecordBatch,
    condition: Option<&Arc<dyn PhysicalExpr>>,
    columns: &[usize],
) -> Result<RecordBatch> {
    let Some(condition) = condition else {
        return Ok(batch.project(columns)?);
    };
    let tested = condition.evaluate(batch)?.into_array(batch.num_rows())?;
    let tested = as_boolean_array(&tested)?;
    let batch = batch.project(columns)?;
    Ok(filter_record_batch(&batch, tested)?)
}

impl DisplayAs for BarrierExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.condition {
            Some(condition) => write!(f, "BarrierExec: {condition}"),
            None => f.write_str("BarrierExec"),
        }
    }
}

impl ExecutionPlan for BarrierExec {
    plan_node!("BarrierExec");
    no_statistics!();

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    /// A sort would go below it otherwise, with what its keys compute.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match &self.condition {
            Some(condition) => f(condition),
            None => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return internal_err!("a barrier over {} inputs", children.len());
        };
        let condition = self.condition.clone();
        let same = Self::try_new(Arc::clone(input), condition, self.columns.clone())?;
        Ok(Arc::new(same))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (condition, columns) = (self.condition.clone(), self.columns.clone());
        let batches = self.input.execute(partition, context)?;
        let batches = batches.map(move |batch| kept(&batch?, condition.as_ref(), &columns));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let mut child = ChildFilterDescription::all_unsupported(&parent_filters);
        if phase == FilterPushdownPhase::Pre
            && let Some(condition) = &self.condition
        {
            child = child.with_self_filter(Arc::clone(condition));
        }
        Ok(FilterDescription::new().with_child(child))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::all_unsupported(pushed))
    }
}
