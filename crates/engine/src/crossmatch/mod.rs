//! `nearest(...)` and `crossmatch(...)` in FROM: from the call to a plan.
//!
//! ```text
//!   crossmatch(left, right, radius, find, join)
//!        │ relation: sides planned, their positions found, columns named
//!        ▼
//!   find 'all', join '1not2':  joins by the separation function, as a user could write them
//!   the others:                a CrossmatchNode, which becomes a CrossmatchExec
//! ```
//!
//! A node keeps conditions away from the rows among which the nearest is looked for: one on the build side's columns holds for
//! the rows of the result, and would change who is nearest if it were tested before. Those on the probe side's columns go below
//! ([`push_filters`]).

mod node;
mod physical;
mod position;
mod push_filters;
mod relation;

use datafusion::logical_expr::UserDefinedLogicalNode;

pub(crate) use physical::MatchingPlanner;
pub(crate) use push_filters::PushProbeFilters;
pub(crate) use relation::{MatchRelations, suffixed};

/// Whether a node of a logical plan is a crossmatch.
pub(crate) fn is_crossmatch(node: &dyn UserDefinedLogicalNode) -> bool {
    node.as_any().is::<node::CrossmatchNode>()
}
