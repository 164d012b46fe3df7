//! Sorting all rows, on the disk if need be, where so many of the first ones are wanted that they have no room in memory.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// About what one of the first rows takes while they are kept: the row, its key as bytes, and rows of its batch that are no longer among the first.
const BYTES_OF_A_ROW: usize = 512;
/// The part of the memory for queries that the first rows of one sort may take.
const PART_OF_MEMORY: usize = 16;

/// How many of the first rows a sort keeps in memory at most.
pub(crate) const fn most_first_rows(memory: &MemoryLimit) -> usize {
    match memory {
        MemoryLimit::Finite(bytes) => *bytes / PART_OF_MEMORY / BYTES_OF_A_ROW,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    }
}

/// Has a sort that is to give many of its first rows sort all of them.
///
/// ```text
///   SortExec: fetch=5000000   ──►   GlobalLimitExec: fetch=5000000
///                                     SortExec
/// ```
///
/// A sort with a limit keeps its first rows in memory, and fails where there is no room for them; one without spills to the disk. It runs
/// after DataFusion's rules, which join a limit with the sort below it.
#[derive(Debug)]
pub(crate) struct SortManyRows {
    /// From [`most_first_rows`].
    pub most_first_rows: usize,
}

impl PhysicalOptimizerRule for SortManyRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let sort = node.downcast_ref::<SortExec>();
            let Some((sort, fetch)) = sort.and_then(|sort| Some((sort, sort.fetch()?))) else {
                return Ok(Transformed::no(node));
            };
            if fetch <= self.most_first_rows {
                return Ok(Transformed::no(node));
            }
            let all: Arc<dyn ExecutionPlan> = Arc::new(sort.with_fetch(None));
            Ok(Transformed::yes(match sort.preserve_partitioning() {
                // What merges the partitions cuts off.
                true => all,
                false => Arc::new(GlobalLimitExec::new(all, 0, Some(fetch))),
            }))
        })
        .data()
    }

    fn name(&self) -> &str {
        "sort_many_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
