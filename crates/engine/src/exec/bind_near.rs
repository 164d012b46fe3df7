//! Scans that read what is near the rows of a join's other side, once these are known.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use super::{PieceScanExec, RowsOf};
use crate::search_cover::SearchCover;

/// Whether a plan reads what is near the rows of a join's other side.
pub(super) fn reads_near(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<PieceScanExec>() {
        Some(scan) => scan.rows() == RowsOf::Neighbourhood,
        None => plan.children().into_iter().any(reads_near),
    }
}

/// The same plan, reading what is near something.
pub(super) fn bind_near(
    plan: &Arc<dyn ExecutionPlan>,
    search_cover: &Arc<SearchCover>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<PieceScanExec>() {
        return Ok(Arc::new(scan.around(search_cover)));
    }
    let children = plan.children().into_iter();
    let bound = children
        .map(|child| bind_near(child, search_cover))
        .collect::<Result<_>>()?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(plan)
        .replace_children(bound, options)?
        .reset_state()
}
