//! Which views have states of former times.

use catalog::View;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use sql::AS_OF_FUNCTION;

use super::views::marked;
use crate::{Archive, EngineError};

/// Whether a view has states of former times: its definition, or that of a view that its plan reads, asks for the time of the state.
///
/// # Errors
/// The catalog cannot be read.
pub(crate) async fn has_states(
    archive: &Archive,
    view: &View,
    plan: &LogicalPlan,
) -> Result<bool, EngineError> {
    let asks = |view: &View| {
        let definition = view.query.definition.to_ascii_lowercase();
        definition.contains(&format!("{AS_OF_FUNCTION}("))
    };
    if asks(view) {
        return Ok(true);
    }
    let mut read = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node {
            read.extend(marked(&alias.alias));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let views = archive.whole().views().await?;
    Ok(read
        .iter()
        .any(|name| views.get(name).is_some_and(|view| asks(view))))
}
