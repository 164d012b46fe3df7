//! The nightly alert database (Level 1): what image differencing finds in each exposure of each detector, stored as it comes and read back
//! by the pipelines a minute later.
//!
//! It has versions of objects, their sources and their forced sources, in the columns of the operator's schema, in SQLite or in PostgreSQL
//! with the same statements. May depend on `sky`; knows nothing of chunks, queries or protocols.
//!
//! Invariants:
//! * An operation is done as a whole, or refused and not done at all; what was acknowledged is on disk. A store that is sent again under the
//!   same name is stored once.
//! * An object has at most one open version, intervals of validity never overlap, and no row is ever overwritten: only when a version ends,
//!   to which object a source belongs, how many sources an object has, and when a row was withdrawn are changed, and each such change is in
//!   the log of updates.
//! * An edition that is closed has the same rows and changes whenever it is read, until its rows are removed because they are published.
//! * A database that follows another one has the rows of that one at a moment, whenever an edition of it is closed; and nobody else's.
//! * What is removed is read from the archive: reads and operations cannot tell where a row is.
//! * A release takes the place of what was published before its cut as a whole or not at all; what was stored from then on stays.
//! * All times are the client's; when an edition is closed the server's clock decides.

mod archived;
mod config;
mod database;
mod definition;
mod editions;
mod error;
mod follow;
mod layout;
mod operation;
mod published;
mod reads;
mod reseed;
mod reseed_statements;
mod rows;
mod schema;
mod statements;
mod store;
mod transaction;
mod updates;
mod writer;

pub use config::StoreKind;
pub use database::{AlertDatabase, create, is_one, list};
pub use editions::{Edition, EditionTable, OpenChunks, PUBLISHED, REPLACES};
pub use error::{AlertsError, StorageError};
pub use follow::{
    Extent, FollowOutcome, FollowRequest, FollowStatus, FollowedChunk, Follows, ReadState,
    check_followed, detach,
};
pub use operation::{Operation, Outcome, StoreRequest};
pub use published::{
    EmptyStep, NeededRows, PublishedRequest, PublishedRows, PublishedSelection, Through,
};
pub use reads::{ReplicaChunk, SourceSelection};
pub use reseed::{ReseedState, ReseedStep, Turn, release_rows};
pub use schema::{AlertSchema, AlertTable, Column, ColumnType, TableSchema, names};
pub use updates::{ObjectPlace, SourcePlace, Update, UpdateRecord};
