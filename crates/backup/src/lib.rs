//! Backups of a data directory. One is of a moment, whatever is loaded, dropped or merged meanwhile; files that an earlier backup in the
//! same place has are not copied again.
//!
//! ```text
//! PLACE/backup.lock                              held by whoever changes the place
//! PLACE/snapshots/20261126T100000Z/snapshot.json what the snapshot has: each file with its length and checksum
//! PLACE/snapshots/20261126T100000Z/meridian.sqlite, users.sqlite, alerts/...
//! PLACE/tables/<db>.<table>/<load>/...           files of parts, which never change, for all snapshots
//! ```
//!
//! A snapshot is there once all its files are on the disk: its directory gets its name last. A place in a bucket of an object store has
//! the same names; there `snapshot.json` is written last. May depend on `catalog`, `store` and `remote-files`; knows nothing of queries or
//! rows.
//!
//! [`home`] has chunk files of a data directory in an object store, for want of room here: there is one copy of each in the store, and a
//! cache of them here.
//!
//! Invariants: a file of a part that is in the place whole is the one that its data directory has; what a snapshot names is never removed
//! before the snapshot is; a snapshot has every file of which its catalog speaks, and a file that is copied is the one that was published; a directory that is being restored has no catalog before all other files are there.

mod bucket;
mod bucket_lock;
mod copy;
mod directory;
mod error;
mod history;
pub mod home;
mod part_files;
mod place;
mod restore;
mod snapshot;
mod take;
mod verify;

pub use error::BackupError;
pub use place::Place;
pub use restore::{RestoreReport, restore};
pub use snapshot::{DamagedSnapshot, Snapshot, SnapshotFile, SnapshotList};
pub use take::{BackupProgress, BackupReport, Extra, take};
pub use verify::{DamagedFile, VerifyReport, verify};

type Result<T> = std::result::Result<T, BackupError>;
