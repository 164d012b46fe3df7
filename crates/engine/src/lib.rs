//! DataFusion extended by Meridian's tables: pruning by sky region and key, joins that stay within a chunk, and plans that
//! run piece by piece.
//!
//! May depend on `sky`, `catalog`, `store`, `sql` and, for files that a query names, `ingest`; knows nothing of servers, users or the
//! network. Invariants: a filter
//! is always evaluated, pruning only spares work; every row of a table is read in exactly one piece; every plan node here
//! has a codec, but for the shuffle, which stays where the plan runs.

mod archive;
mod attempts;
mod barrier;
mod codec;
mod condition;
mod cone;
mod coverage;
mod crossmatch;
mod dispatch;
mod error;
mod estimate;
pub mod exec;
mod execution;
mod files;
mod information_schema;
mod interruptible;
mod key_places;
mod least_memory;
mod loaded_table;
mod memory;
pub mod milestones;
mod open_file_limit;
mod piece;
pub mod plan;
mod plan_cache;
mod provider;
mod release;
mod restriction;
mod result_cache;
mod row_reader;
mod search_cover;
mod session;
mod show;
mod shown;
pub mod shuffle;
mod stored_part;
mod stored_rows;
mod system_tables;
mod tap_schema;

pub use archive::{Archive, FileHolders, Replicas, Usage};
pub use codec::PlanCodec;
pub use cone::{ConeSearch, ConeTable};
pub use coverage::{Coverage, SubChunkSet};
pub use dispatch::{
    DispatchedPhase, EncodedPhase, PieceDispatcher, PieceEvent, SharePlan, ShareRows, ShareRun,
};
pub use error::EngineError;
pub use estimate::{INTERACTIVE_CHUNKS, ScanEstimate, TableEstimate};
pub use execution::{
    Admission, EnrolledPhase, PausedTurn, PhaseDemand, PhaseJournal, PhaseKey, PieceJournal,
    PieceRows, PieceScheduler, PieceTurn, PieceWriter, QueryExecution,
};
pub use files::{FileAccess, FileScanExec, ReceivedFile, ReceivedFiles};
pub use loaded_table::{LoadedTable, StoredTable};
pub use memory::{RESERVABLE, allocated_bytes, bound_memory};
pub use milestones::{HandedOut, Milestone, Milestones};
pub use open_file_limit::allow_more_open_files;
pub use piece::{ChunkSlice, Piece};
pub use release::check_release;
pub use restriction::Restriction;
pub use result_cache::{CachedRows, ResultCache, ResultKey};
pub use row_reader::{RowPlaces, RowReader, ValueTest};
pub use session::{
    ALIAS, COLUMN, DATABASE, DESCRIPTION, NO_DATABASE, NewView, PreparedQuery, QueryResult,
    Session, SessionOptions, TABLE, UCD, UNIT, UTYPE, XTYPE, create_view, drop_view, runtime,
    too_many_bytes, too_many_rows, views_of,
};
pub use show::{granted, stored_bytes};
pub use shown::ShownTable;
pub use stored_part::StoredPart;
pub use stored_rows::{RowStream, StoredRows};
pub use system_tables::{QueryInfo, QueryState, ScanForecast, SystemTables, WaitsFor};
pub use tap_schema::{ForeignKey, TapColumn, TapSchemaEntry, TapTable, tap_schema};
