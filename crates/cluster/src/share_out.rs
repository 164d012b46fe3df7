//! What has to change in a plan before several tasks may share it.
//!
//! Some operators keep state that all their partitions share in memory. In one process that is no matter; on a cluster each
//! task has a state of its own, and the answer would be wrong in silence. Ballista sees to hash joins and to sorts; what is
//! left is done here. And partial aggregates, which meet in whatever order their tasks end, are brought back into the order
//! of the pieces, so that the same question gives the same floating-point sum every time.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use engine::exec::{ChunkPhaseExec, PieceOrderExec};

/// The same plan, safe to be cut into tasks.
pub(crate) fn share_out(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if gives_build_rows(&node) {
            let children: Vec<_> = node.children().into_iter().map(gathered).collect();
            return Ok(Transformed::yes(replace_children_if_necessary(
                node, children,
            )?));
        }
        if depends_on_order(&node)
            && let Some(numbered) = numbered(node.children()[0])?
        {
            let ordered = Arc::new(PieceOrderExec::try_new(numbered)?);
            return Ok(Transformed::yes(replace_children_if_necessary(
                node,
                vec![ordered],
            )?));
        }
        Ok(Transformed::no(node))
    })
    .data()
}

/// Whether a join gives rows of its build side, which it can only once all partitions of its probe side have ended: each
/// task would give those that found no partner among its own partitions.
fn gives_build_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<NestedLoopJoinExec>()
        .is_some_and(|join| {
            matches!(
                join.join_type(),
                JoinType::Left
                    | JoinType::Full
                    | JoinType::LeftSemi
                    | JoinType::LeftAnti
                    | JoinType::LeftMark
            )
        })
}

fn gathered(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if input.output_partitioning().partition_count() > 1 {
        Arc::new(CoalescePartitionsExec::new(Arc::clone(input)))
    } else {
        Arc::clone(input)
    }
}

/// Functions whose result is the same in whatever order they meet their values.
const ORDERLESS: &[&str] = &[
    "count",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "approx_distinct",
];

/// Whether it is the final half of an aggregate that gives another result, if only in the last digit, when it meets its
/// states in another order.
fn depends_on_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return false;
    };
    let last = matches!(
        aggregate.mode(),
        AggregateMode::Final | AggregateMode::FinalPartitioned
    );
    last && aggregate.aggr_expr().iter().any(|expr| {
        let name = expr.fun().name();
        let exact_sum = name == "sum" && !expr.field().data_type().is_floating();
        !exact_sum && !ORDERLESS.contains(&name)
    })
}

/// The same input with numbered rows, if it comes from an ordered phase through nothing but shuffles.
fn numbered(input: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(phase) = input.downcast_ref::<ChunkPhaseExec>() {
        let mixed = phase.ordered() && input.output_partitioning().partition_count() > 1;
        return Ok(mixed.then(|| Arc::new(phase.with_numbers()) as Arc<dyn ExecutionPlan>));
    }
    if !input.is::<RepartitionExec>() && !input.is::<CoalescePartitionsExec>() {
        return Ok(None);
    }
    match numbered(input.children()[0])? {
        Some(child) => Ok(Some(replace_children_if_necessary(
            Arc::clone(input),
            vec![child],
        )?)),
        None => Ok(None),
    }
}
