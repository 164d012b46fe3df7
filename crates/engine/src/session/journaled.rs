//! Giving the phases of a plan the keys by which a journal knows them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use crate::exec::{ChunkPhaseExec, JournaledPhase};
use crate::execution::PhaseKey;
use crate::{Archive, PlanCodec};

/// The same plan, whose phases keep the results of their pieces in the journal of the query; `only_committed` if they shall read
/// what the journal has, and run nothing.
///
/// The key of each phase is its number and a digest of the whole plan. Values from elsewhere in the plan may decide what a phase returns
/// (a scalar subquery's), and the parts and pieces of all tables are in the plan, so nothing less identifies the results.
///
/// # Errors
/// The plan has an operator or an expression that cannot be encoded.
pub(super) fn with_journal(
    plan: Arc<dyn ExecutionPlan>,
    archive: &Arc<Archive>,
    only_committed: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let codec = PlanCodec::new(Arc::clone(archive));
    let encoded = PhysicalPlanNode::try_from_physical_plan(Arc::clone(&plan), &codec)?;
    let mut bytes = encoded.encode_to_vec();
    // Another version of the program may compute otherwise.
    bytes.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    let digest = xxh3_128(&bytes);
    if only_committed {
        check_scans_once(&plan)?;
    }
    let mut number = 0;
    plan.transform_up(|node| {
        let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() else {
            return Ok(Transformed::no(node));
        };
        let key = PhaseKey { number, digest };
        number += 1;
        // Tables that are whole in every piece are read again: without them there is no result over some of the pieces.
        let phase = phase.journaled_as(JournaledPhase {
            key,
            only_committed: only_committed && is_partitioned(phase)?,
        });
        Ok(Transformed::yes(Arc::new(phase) as Arc<dyn ExecutionPlan>))
    })
    .data()
}

/// A result over some pieces is that over a part of the sky, if only one phase of the plan runs over pieces of the sky.
fn check_scans_once(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut scans = 0;
    plan.apply(|node| {
        if let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() {
            scans += usize::from(is_partitioned(phase)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if scans > 1 {
        return plan_err!(
            "the query has no result so far: it combines rows of different places of the sky, so that its rows are known only at its end"
        );
    }
    Ok(())
}

fn is_partitioned(phase: &ChunkPhaseExec) -> Result<bool> {
    let pieces = phase.pieces()?;
    let mut slices = pieces.iter().flat_map(|piece| piece.slices().iter());
    Ok(slices.any(|slice| slice.chunk != catalog::REPLICATED_CHUNK))
}
