//! The operators of Meridian.

mod chunk_phase;
mod piece_scan;
mod table_scan;

pub use chunk_phase::{ChunkPhaseExec, PhaseSummary};
pub use piece_scan::{PieceScanExec, RowsOf};
pub use table_scan::TableScanExec;
