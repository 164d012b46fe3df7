//! Queries from their submission to their stored results: the registry of all of them, and the service that runs those which were
//! submitted to run without a connection.
//!
//! May depend on `engine`; knows nothing of protocols. Invariants: a query's number is its own for ever; a piece of a submitted query is
//! committed once, whatever happens to the process; a result that is visible is complete.

mod admission;
mod block_file;
mod database;
mod error;
mod journal;
mod lease;
mod listing;
mod made_table;
mod memory_gate;
mod milestones;
mod partial;
mod query;
mod record;
mod registry;
mod run;
mod scan_rate;
pub mod scheduler;
mod service;
mod shared;
mod sharing;
mod storage;
mod stored_result;
mod stored_warnings;
mod turns;

pub use admission::ClassPlaces;
pub use block_file::without_unused_bytes;
pub use error::QueryError;
pub use listing::QueryFilter;
pub use made_table::MadeTable;
pub use registry::{Protocol, QueryGuard, QueryRegistry};
pub use run::{given_time, over_limit};
pub use service::{QueryHost, QueryLimits, QueryService, Submission, UserLimits};
pub use shared::copy_to_file;
pub use turns::QueryTurns;
