//! The operators of Meridian.

mod barrier;
mod bind_near;
mod bucket_scan;
mod chunk_number;
mod chunk_phase;
mod crossmatch;
mod execute_fresh;
mod gathered;
mod journaled;
mod neighbour_join;
mod piece_milestone;
mod piece_scan;
pub(crate) mod plan_node;
mod recursion;
mod rows_in_order;
mod run_pieces;
mod shuffle;
mod started_phase;
mod table_scan;
mod unscheduled;

pub use barrier::BarrierExec;
pub use bucket_scan::BucketScanExec;
pub use chunk_number::ChunkNumberExec;
pub use chunk_phase::{ChunkPhaseExec, PhaseSummary};
pub(crate) use chunk_phase::{JournaledPhase, bind_to_piece, pieces_run};
pub(crate) use crossmatch::separation_field;
pub use crossmatch::{
    CrossmatchExec, MatchColumn, MatchRule, MatchSelection, MatchSide, Unmatched,
};
pub(crate) use neighbour_join::constant_value;
pub use neighbour_join::{
    BeyondPoles, JoinedColumn, NeighbourJoinExec, PartnerAggregate, RowExpr, SeparationCondition,
};
pub use piece_scan::{PieceScanExec, RowsOf};
pub(crate) use recursion::bound_recursions;
pub use shuffle::ShuffleExec;
pub(crate) use started_phase::run_share;
pub use table_scan::TableScanExec;
pub(crate) use table_scan::{ScanSource, single_partition};
