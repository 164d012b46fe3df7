//! Joins that make many rows out of few let others have their turn.
//!
//! Whoever stops a statement drops its task, which ends where it next waits. DataFusion makes scans wait now and then; but between two
//! batches of a scan a join of everything with everything can make rows for hours, and an aggregate above it takes them all at
//! one go. So what such a join gives passes a `CooperativeExec` too.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};

/// Puts a `CooperativeExec` above each join that loops.
#[derive(Debug)]
pub struct YieldAboveLoops;

impl PhysicalOptimizerRule for YieldAboveLoops {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        yield_above_loops(plan)
    }

    fn name(&self) -> &str {
        "yield_above_loops"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

pub(super) fn yield_above_loops(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if loops(&node) {
            let yielding: Arc<dyn ExecutionPlan> = Arc::new(CooperativeExec::new(node));
            return Ok(Transformed::yes(yielding));
        }
        Ok(Transformed::no(node))
    })
    .data()
}

/// Whether an operator can make any number of rows without reading one.
fn loops(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CrossJoinExec>() || plan.is::<NestedLoopJoinExec>()
}
