//! Cutting a physical plan into chunk phases and what merges them.
//!
//! ```text
//!   physical plan as DataFusion first makes it
//!        │  locality: for each subtree, can it run piece by piece, and on which pieces?
//!        ▼
//!   the largest such subtrees become chunk phases; what stands above merges their results
//! ```

mod aggregate_partners;
mod bound_top_groups;
mod checked_rules;
mod crossmatch_locality;
mod cut_chunk_phases;
mod cut_pieces;
mod cut_shuffles;
mod distinct_members;
mod drop_group_limits;
mod engine_rules;
mod group_by_chunk;
mod join_locality;
mod keep_recursion_limits;
mod locality;
mod neighbour_locality;
mod optimize_inner;
mod phase;
mod push_exprs_into_join;
mod push_filters;
mod push_row_exprs_into_join;
mod push_separations_into_join;
mod recognise_neighbours;
mod recognise_windows;
mod reduce_join_output;
mod sort_many_rows;

pub use checked_rules::{CheckedRule, checked};
pub(crate) use cut_chunk_phases::CutChunkPhases;
pub(crate) use cut_shuffles::CutShuffles;
pub(crate) use engine_rules::{engine_rules, place_of, place_of_rule};
pub(crate) use keep_recursion_limits::KeepRecursionLimits;
pub(crate) use phase::PhaseSource;
pub use reduce_join_output::ReduceJoinOutput;
pub(crate) use sort_many_rows::{SortManyRows, most_first_rows};
