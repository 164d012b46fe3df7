//! An operator whose rows pass an [`InterruptibleStream`], and which otherwise behaves like the operator itself.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, resources_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use sql::Interrupt;

use super::stream::InterruptibleStream;

/// Wraps an operator. It shows the operator's name, children and metrics, so that no displayed plan changes, and code that searches for an
/// operator finds the wrapped one. It is only part of running plans, and has no codec.
#[derive(Debug)]
pub(super) struct InterruptibleExec {
    inner: Arc<dyn ExecutionPlan>,
    interrupt: Arc<Interrupt>,
    /// Whether it was executed, if it may be so once alone.
    executed: Option<AtomicBool>,
}

impl InterruptibleExec {
    pub fn new(inner: Arc<dyn ExecutionPlan>, interrupt: &Arc<Interrupt>) -> Self {
        Self {
            inner,
            interrupt: Arc::clone(interrupt),
            executed: None,
        }
    }

    /// Wraps an operator that is executed once. The second time there is no memory for it.
    pub fn once(inner: Arc<dyn ExecutionPlan>, interrupt: &Arc<Interrupt>) -> Self {
        Self {
            executed: Some(AtomicBool::new(false)),
            ..Self::new(inner, interrupt)
        }
    }

    fn over(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(match self.executed {
            Some(_) => Self::once(inner, &self.interrupt),
            None => Self::new(inner, &self.interrupt),
        })
    }
}

impl DisplayAs for InterruptibleExec {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(form, f)
    }
}

impl ExecutionPlan for InterruptibleExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.inner.input_distribution_requirements()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).replace_children(children, options)?;
        Ok(self.over(inner))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).reset_state()?;
        Ok(self.over(inner))
    }

    /// The working table of a recursion comes this way.
    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.with_new_state(state)?;
        Some(self.over(inner))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.interrupt.check()?;
        let executed = self.executed.as_ref();
        if executed.is_some_and(|it| it.swap(true, Relaxed)) {
            return resources_err!(
                "one side of a join that is not by equality has to fit into memory: restrict it, or give statements more (--memory)"
            );
        }
        let _guard = self.interrupt.enter();
        let rows = self.inner.execute(partition, context)?;
        Ok(Box::pin(InterruptibleStream::new(rows, &self.interrupt)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.inner.statistics_from_inputs(inputs, arguments)
    }
}
