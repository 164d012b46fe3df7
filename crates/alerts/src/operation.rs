//! What pipelines ask to be changed.

use arrow::array::RecordBatch;

use crate::follow::FollowRequest;
use crate::published::EmptyStep;
use crate::reseed::ReseedStep;
use crate::schema::AlertSchema;
use crate::updates::UpdateRecord;

/// A change of an alert database: done as a whole, or refused and not done at all.
#[derive(Debug)]
pub enum Operation {
    /// Store what was found in an exposure of a detector.
    Store(Box<StoreRequest>),
    /// Sources are of objects of the solar system, given as pairs of a source and a solar-system object.
    ReassignToSolarSystem {
        /// The pairs.
        sources: Vec<(i64, i64)>,
        /// When, as MJD (TAI).
        time: f64,
    },
    /// Sources belong to other objects, given as pairs of a source and an object.
    ReassignToObjects {
        /// The pairs.
        sources: Vec<(i64, i64)>,
        /// Whether the objects that get sources count them.
        increment: bool,
        /// Whether the objects that lose sources count them no longer.
        decrement: bool,
        /// When, as MJD (TAI).
        time: f64,
    },
    /// The latest versions of objects are valid no longer.
    CloseObjects {
        /// The objects.
        objects: Vec<i64>,
        /// From when on, as MJD (TAI).
        validity_end: f64,
        /// Whether an object that was never stored is an error.
        must_exist: bool,
        /// When this is done, as MJD (TAI).
        time: f64,
    },
    /// Sources are withdrawn; those that are already stay as they are.
    WithdrawSources {
        /// The sources.
        sources: Vec<i64>,
        /// From when on, as MJD (TAI).
        withdrawn: f64,
        /// When this is done, as MJD (TAI).
        time: f64,
    },
    /// Forced sources are withdrawn; those that are already stay as they are.
    WithdrawForcedSources {
        /// The object, the visit and the detector of each.
        sources: Vec<(i64, i64, i64)>,
        /// From when on, as MJD (TAI).
        withdrawn: f64,
        /// When this is done, as MJD (TAI).
        time: f64,
    },
    /// Set metadata.
    SetMetadata {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Whether a key that is there gets the new value.
        replace: bool,
    },
    /// Delete metadata; tells how many there were, 0 or 1.
    DeleteMetadata {
        /// The key.
        key: String,
    },
    /// Remember when duplicate objects were merged, as MJD (TAI).
    ResetDeduplication {
        /// When.
        time: f64,
    },
    /// Add entries to the log of updates, as they come from another database.
    AppendUpdates {
        /// The entries.
        records: Vec<UpdateRecord>,
        /// The time that decides to which replica chunk they belong, as MJD (TAI).
        time: f64,
    },
    /// Forget replica chunks. Their rows stay.
    DeleteReplicaChunks {
        /// The chunks.
        chunks: Vec<i64>,
    },
    /// Everything that was stored and changed since the last edition becomes one, if a chunk of it is over by this time; tells its number,
    /// or 0.
    CloseEdition {
        /// The time, in microseconds since 1970 (UTC).
        now_us: i64,
    },
    /// Remove rows that are published in an edition or before; without a step, say that they are read from the archive from now on, which
    /// comes first. Tells how many were removed.
    Empty {
        /// The edition.
        through: i64,
        /// Which rows.
        step: Option<EmptyStep>,
    },
    /// Store and change rows as they are in the database that this one follows; tells how many were stored.
    Follow(Box<FollowRequest>),
    /// A part of putting a release in the place of what is published.
    Reseed(Box<ReseedStep>),
    /// Use another schema, with more columns.
    SetSchema(Box<AlertSchema>),
}

/// What was found in an exposure of a detector.
#[derive(Debug, Default)]
pub struct StoreRequest {
    /// The time of the visit, as MJD (TAI).
    pub visit_time: f64,
    /// What the client calls this store: one of the same name is stored once.
    pub request: Option<String>,
    /// The new versions of objects.
    pub objects: Vec<RecordBatch>,
    /// The sources.
    pub sources: Vec<RecordBatch>,
    /// The forced sources.
    pub forced: Vec<RecordBatch>,
}

impl StoreRequest {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        let batches = self.objects.iter().chain(&self.sources).chain(&self.forced);
        batches.map(RecordBatch::num_rows).sum()
    }
}

/// What an operation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many rows, objects or entries were stored or changed.
    pub count: u64,
    /// Whether it was done before, so that nothing was done now.
    pub is_repeated: bool,
}
