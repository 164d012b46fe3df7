//! The operators of crossmatches and of barriers.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Result, internal_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use super::node::CrossmatchNode;
use crate::barrier::BarrierNode;
use crate::exec::{BarrierExec, CrossmatchExec, MatchSide};

/// DataFusion's planner, which knows crossmatches as well.
#[derive(Debug, Default)]
pub(crate) struct MatchingPlanner;

#[async_trait]
impl QueryPlanner for MatchingPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(PlanCrossmatch)])
            .create_physical_plan(plan, session)
            .await
    }
}

struct PlanCrossmatch;

#[async_trait]
impl ExtensionPlanner for PlanCrossmatch {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if node.as_any().is::<BarrierNode>() {
            return barrier(inputs).map(Some);
        }
        let Some(node) = node.as_any().downcast_ref::<CrossmatchNode>() else {
            return Ok(None);
        };
        let mut sides = Vec::with_capacity(inputs.len());
        for (side, plan) in node.sides().zip(inputs) {
            let [ra, dec] = &side.position;
            sides.push(MatchSide {
                plan: Arc::clone(plan),
                position: [column(plan, ra)?, column(plan, dec)?],
            });
        }
        let mut sides = sides.into_iter();
        match (sides.next(), sides.next(), sides.next()) {
            (Some(probe), Some(build), rivals) => {
                let matched = CrossmatchExec::new(probe, build, rivals, node.rule());
                Ok(Some(Arc::new(matched)))
            }
            _ => internal_err!("a crossmatch without two sides"),
        }
    }
}

fn barrier(inputs: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
    let [input] = inputs else {
        return internal_err!("a barrier above {} inputs", inputs.len());
    };
    let columns = (0..input.schema().fields().len()).collect();
    let barrier = BarrierExec::try_new(Arc::clone(input), None, columns)?;
    Ok(Arc::new(barrier))
}

fn column(plan: &Arc<dyn ExecutionPlan>, name: &str) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(Arc::new(Column::new_with_schema(name, &plan.schema())?))
}
