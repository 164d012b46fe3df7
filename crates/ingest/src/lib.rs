//! Loading: readers of foreign formats, the partitioner, overlap files, the director index, and the checks of what
//! was loaded.
//!
//! [`load`] takes a [`LoadRequest`] from files to a visible table or to a sentence that says what is wrong. The way of
//! a row: a reader ([`format`]) turns it into columns by the value rules ([`normalise`]), a placement ([`place`])
//! finds its chunk and sub-chunk, a [`sort`]er brings it in order within the memory budget, and [`write`] puts it into
//! chunk files. [`check`] verifies tables from the outside.
//!
//! The crate depends on `sky` (where a position is), `catalog` (what exists) and `store` (files), and knows nothing
//! of SQL or of queries.
//!
//! Invariants:
//! - Nothing of a load is visible before its one catalog transaction, and all of it is afterwards.
//! - What is loaded depends on the input rows, the options and the directors alone: not on threads or the budget.
//! - Every row that is read is loaded or counted as rejected, with a reason; none is dropped in silence.

mod append;
mod append_all;
mod budget;
mod check;
mod choose;
mod compact;
mod directors;
mod dry_run;
mod error;
mod fault;
mod file_of_chunks;
mod file_rows;
mod format;
mod hats;
mod inputs;
mod key_map;
mod leftovers;
mod load;
mod load_locks;
mod manifest;
mod memory;
mod mysql_type;
mod normalise;
mod pace;
mod partitioning;
mod pipeline;
mod place;
mod plan;
mod position;
mod progress;
mod read;
mod rejected_rows;
mod remote;
mod remote_listing;
mod remove;
mod repartition;
mod replace_all;
mod report;
mod request;
mod row_batch;
mod row_errors;
mod schema;
mod shares;
mod small_appends;
mod sort;
mod spool;
mod stored_rows;
mod text_keys;
mod write;
mod written_load;

pub use append_all::{AppendAllRequest, AppendedPart, TableRows, append_all};
pub use budget::{
    BytePool, DecodeBudget, DecodeLimits, PoolExhausted, Reservation, UNPACKS_TO_TOO_MUCH,
    unpacks_to_too_much,
};
pub use check::{CatalogCheck, CheckScope, Problem, TableCheck, check, check_catalog};
pub use choose::partitioning_for;
pub use compact::{
    CompactReport, CompactRequest, CompactedTable, MANY_PARTS, Merge, Month, MonthSort, compact,
    compact_with,
};
pub use error::{FoundColumns, IngestError, Rejection};
pub use fault::FAULT_PHASES;
pub use file_rows::{FileFormat, FileRows, RowFile};
pub use format::FieldDescription;
pub use format::fits::FitsHeaders;
pub use format::made::{MadeBatches, RowSource};
pub use format::votable::open_document;
pub use inputs::NamedInputs;
pub use leftovers::{HeldPart, held_parts, remove_superseded};
pub use load::{load, load_with};
pub use memory::{default_memory, machine_memory, parse_size};
pub use mysql_type::declared_column;
pub use normalise::column_type;
pub use place::end_rows::PartFiles;
pub use place::matches::HOME_COLUMNS;
pub use progress::{Phase, Progress, ProgressSnapshot};
pub use rejected_rows::{RejectedRow, RejectionSummary};
pub use remote::RemoteInputs;
pub use remove::{DropReport, drop_database, drop_expired, drop_part, drop_table};
pub use repartition::{RepartitionReport, RepartitionRequest, RepartitionedTable, repartition};
pub use replace_all::Replacement;
pub use report::{LoadReport, Partitioning, PlacementCounts, grouped, size};
pub use request::{LoadRequest, PositionUnit, TextOptions};
pub use schema::parse_byte;
pub use shares::{
    InputPlan, MayRead, PlanRequest, PlannedFile, ReadPart, ShareDirector, ShareFile, ShareReport,
    ShareRequest, SharedLoad, plan_inputs, write_share,
};
pub use small_appends::{SmallAppends, SmallRows};
