//! Giving the phases of a plan the keys by which a journal knows them.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use xxhash_rust::xxh3::xxh3_128;

use crate::estimate::nodes;
use crate::exec::{ChunkPhaseExec, JournaledPhase, PieceScanExec};
use crate::execution::PhaseKey;

/// The same plan, whose phases keep the results of their pieces in the journal of the query; `only_committed` if they shall read
/// what the journal has, and run nothing.
///
/// The key of each phase is its number and a [digest](digest_of) of the whole plan.
///
/// # Errors
/// The pieces of a phase cannot be told.
pub(super) fn with_journal(
    plan: Arc<dyn ExecutionPlan>,
    only_committed: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let digest = digest_of(&plan)?;
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

/// A digest of a plan of one query, whose statement is always the same: of the plan as it is shown, of the parts of its tables, and of its
/// pieces. Values from elsewhere in the plan may decide what a phase returns (a scalar subquery's), so nothing less than the whole plan
/// identifies the results. The encoded plan would not do: a sort of which the first rows are wanted has a number of its own in each.
fn digest_of(plan: &Arc<dyn ExecutionPlan>) -> Result<u128> {
    // Another version of the program may compute otherwise.
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    // A text takes whatever is written.
    let _ = write!(text, "\n{}", displayable(plan.as_ref()).indent(true));
    for node in nodes(plan, |node| node.is::<ChunkPhaseExec>()) {
        let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() else {
            continue;
        };
        for field in phase.schema().fields() {
            let _ = write!(text, "{} {};", field.name(), field.data_type());
        }
        for slice in phase.pieces()?.iter().flat_map(|piece| {
            let slices = piece.slices().iter();
            slices.map(Some).chain([None])
        }) {
            let _ = match slice {
                Some(slice) => write!(text, "{} {},", slice.chunk.0, slice.sub_chunks),
                None => writeln!(text),
            };
        }
        for scan in nodes(phase.inner(), |node| node.is::<PieceScanExec>()) {
            if let Some(scan) = scan.downcast_ref::<PieceScanExec>() {
                let stored = scan.stored();
                let parts = stored.parts.iter().map(|part| part.load.0);
                let parts: Vec<i64> = parts.collect();
                let _ = writeln!(text, "{}.{} {parts:?}", stored.database, stored.name);
            }
        }
    }
    Ok(xxh3_128(text.as_bytes()))
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
