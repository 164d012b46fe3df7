//! How much memory a plan should have before it begins: its least share, so that many at once do not each get too little to go on.
//!
//! Operators that gather rows (sorts, groups, windows) share what there is evenly, and spill when their part is full; below some megabytes
//! each they cannot merge what they have spilled. The inner sides of joins and sets of distinct values cannot spill: several at once
//! would take each other's room, and fail where each alone would not. Everything else passes its rows on, and needs no share.

use std::sync::Arc;

use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::exec::{ChunkPhaseExec, CrossmatchExec, NeighbourJoinExec};

/// What an operator that gathers needs in each partition, a part of which it takes to merge what it has spilled.
const SHARE: u64 = 16 << 20;
/// What one needs that cannot spill and gathers from all pieces.
const HELD: u64 = 64 << 20;
/// Rows are gathered with keys and copies beside them.
const GATHERED: u64 = 4;
/// Values of which each counts once are in tables that double, beside those from which they come.
const COUNTED_ONCE: u64 = 12;
/// A join may have many more rows than its sides.
const JOINED: u64 = 64;
/// A sort that keeps no more rows than this gathers little.
const FEW_ROWS: usize = 10_000;
/// What needs less needs no share.
const LITTLE: u64 = 8 << 20;

/// The least share of a plan whose scans read so many bytes of columns; 0 if it needs none.
pub(crate) fn least_memory(plan: &Arc<dyn ExecutionPlan>, scanned: u64) -> u64 {
    Gathering::of(plan, None).least(scanned)
}

/// What gathers rows in a plan.
#[derive(Default)]
struct Gathering {
    /// What the operators need, each as often as it runs at once.
    bytes: u64,
    /// Whether there is a join among them.
    joins: bool,
    /// Whether one of them holds values that it has seen.
    holds_values: bool,
}

/// How an operator gathers rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gathers {
    /// It spills what has no room.
    Spilling,
    /// It holds values that it has seen.
    Values,
    /// It holds the rows of a join's inner side.
    Side,
}

impl Gathering {
    /// What it should have if so many bytes of columns are scanned.
    fn least(&self, scanned: u64) -> u64 {
        let may_gather = scanned.saturating_mul(match self {
            Self { joins: true, .. } => JOINED,
            Self {
                holds_values: true, ..
            } => COUNTED_ONCE,
            _ => GATHERED,
        });
        let least = self.bytes.min(may_gather);
        if least < LITTLE { 0 } else { least }
    }

    /// `at_once` runs of the plan at a time; by default each partition is one.
    fn of(plan: &Arc<dyn ExecutionPlan>, at_once: Option<usize>) -> Self {
        let mut found = Self::default();
        if let Some(how) = gathers(plan) {
            let runs = at_once.unwrap_or_else(|| plan.output_partitioning().partition_count());
            // In a piece it gathers from the rows of the piece alone.
            let is_whole = at_once.is_none() && how != Gathers::Spilling;
            let each = if is_whole { HELD } else { SHARE };
            found.bytes = (runs as u64).saturating_mul(each);
            found.joins = how == Gathers::Side;
            found.holds_values = how == Gathers::Values;
        }
        if let Some(phase) = plan.downcast_ref::<ChunkPhaseExec>() {
            let pieces = phase.pieces().map_or(1, |pieces| pieces.len());
            let at_once = phase.concurrency().min(pieces).max(1);
            found.add(&Self::of(phase.inner(), Some(at_once)));
            return found;
        }
        for child in plan.children() {
            found.add(&Self::of(child, at_once));
        }
        found
    }

    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.joins |= other.joins;
        self.holds_values |= other.holds_values;
    }
}

/// How an operator gathers rows; `None` for those that pass rows on.
fn gathers(node: &Arc<dyn ExecutionPlan>) -> Option<Gathers> {
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        let is_short = sort.fetch().is_some_and(|rows| rows <= FEW_ROWS);
        return (!is_short).then_some(Gathers::Spilling);
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        if aggregate.aggr_expr().iter().any(|it| it.is_distinct()) {
            return Some(Gathers::Values);
        }
        let has_groups = !aggregate.group_expr().is_empty();
        return has_groups.then_some(Gathers::Spilling);
    }
    if node.is::<WindowAggExec>() {
        return Some(Gathers::Spilling);
    }
    let joins = node.is::<HashJoinExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<NeighbourJoinExec>()
        || node.is::<CrossmatchExec>();
    joins.then_some(Gathers::Side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gathers_much_has_a_share_for_each_operator() {
        let least = |operators: u64, joins, scanned| {
            let bytes = operators.saturating_mul(SHARE);
            let gathering = Gathering {
                bytes,
                joins,
                holds_values: false,
            };
            gathering.least(scanned)
        };
        let much = 1 << 40;
        assert_eq!(least(0, false, much), 0);
        assert_eq!(least(1, false, much), SHARE);
        assert_eq!(least(6, true, much), 6 * SHARE);
        // No more than it may gather, and nothing for what gathers little.
        assert_eq!(least(6, false, 5 << 20), 4 * (5 << 20));
        assert_eq!(least(6, false, 1 << 20), 0);
        assert_eq!(least(6, true, 1 << 20), 64 << 20);
        assert_eq!(least(6, true, 1 << 16), 0);
        assert_eq!(least(6, true, 0), 0);
        assert_eq!(least(1_000, true, u64::MAX), 1_000 * SHARE);
    }
}
