//! What exists: databases, tables, their columns and chunks, and the loads that made them.
//!
//! [`Catalog`] is the one way to this knowledge. It knows names, numbers and checksums; it does not
//! know what is in a chunk file, how rows are partitioned, or what SQL is. It may depend on `sky`
//! (for chunk numbers) and on nothing else of ours.
//!
//! Invariants:
//! - A table is an ordered list of parts, at least one; each is what one *published* load has made. The list changes in one
//!   transaction, with all that goes with it: columns, directors, chunks ([`Catalog::publish`], [`Catalog::append`]).
//! - A load's number is never used again, so what is stored under it never changes its meaning.
//! - Names compare without regard to case ([`fold_name`]) and are unique so; the spelling in which
//!   they were declared is kept.
//! - Readers never wait for writers, nor writers for readers.
//! - Whatever is read fits the checksum that was written with it, or it is an error ([`CatalogError::Altered`]).

mod access;
mod backend;
mod catalog;
mod check;
mod clock;
mod column;
mod copy;
mod error;
mod expiry;
mod lock;
mod metadata;
mod moving;
mod names;
mod opened;
mod opening;
mod postgres;
mod process;
mod releases;
mod rights;
mod scan_lane;
mod sqlite;
mod state;
mod statements;
mod table;
mod text_key;
mod view;

pub use access::{make_directories, writable_file};
pub use catalog::{
    Append, Catalog, ChangedView, NewColumns, Publication, RESTORE_MARKER, SupersededLoad,
};
pub use clock::{since_boot, utc_now, utc_text};
pub use column::{Column, ColumnType};
pub use copy::{CATALOG_FILE, copy_database};
pub use error::{CatalogError, UNKNOWN_LOAD};
pub use expiry::Expiry;
pub use lock::{Holder, LoadLock};
pub use metadata::{
    Change, ColumnChange, ColumnMetadata, DatabaseChange, TableChange, TableMetadata, combined,
};
pub use moving::{COPIED_FILE, catalog_place, copy_catalog, copy_to_postgres, copy_to_sqlite};
pub use names::{fold_name, path_name};
pub use postgres::{DEFAULT_SCHEMA, PartLease, PartRemoval, PostgresAddress, SharedDatabase};
pub use process::host_name;
pub use releases::Releases;
pub use rights::{Columns, Rights, Tables};
pub use scan_lane::{ScanLane, UNRATED};
pub use state::CatalogState;
pub use table::{
    Chunk, Database, DirectorRef, LoadId, NewDatabase, OtherDatabase, OverlapFile, Part,
    PartContents, Position, REPLICATED_CHUNK, Table, TableKind, TableSpec,
};
pub use text_key::text_key;
pub use view::{View, ViewQuery};
