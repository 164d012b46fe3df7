//! Shuffles: the rows of a phase are kept where its pieces run, shared out over buckets by a hash of some columns, and each bucket is merged by
//! one process.
//!
//! ```text
//!   phase ──► piece ──► its rows by buckets, kept by the process that ran it
//!                              │ one bucket of every piece, in the order of the pieces
//!                              ▼
//!             merging plan (final aggregate, HAVING, first rows) ──► rows of the bucket ──► front end
//! ```
//!
//! Here is what the engine asks of whoever keeps and brings rows. Invariants: rows that are equal in the columns are in one bucket, whatever
//! process kept them; a bucket is read whole, or reading it fails.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::error::external;

/// A shuffle, by a number that no other of its front end has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShuffleId {
    /// The number of the front end's process.
    pub front_end: u64,
    /// Its number there; later ones have higher ones.
    pub number: u64,
}

/// A process that keeps rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Where it listens.
    pub address: String,
    /// Whether it is a front end; else it is a worker.
    pub is_front_end: bool,
}

/// A run of pieces whose rows are kept together, by a number that no other run of the shuffle has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeptRun {
    /// The phase, which may be run in several goes.
    pub phase: u64,
    /// The run in it.
    pub run: u64,
}

/// A piece whose rows are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPiece {
    /// Who keeps them.
    pub holder: Arc<Holder>,
    /// The run that gave them.
    pub run: KeptRun,
    /// The number of the piece in that run.
    pub at: u32,
    /// How many rows there are.
    pub rows: u64,
}

/// How the rows of a phase's pieces are to be kept.
#[derive(Debug, Clone)]
pub struct RowKeeping {
    /// The shuffle that they are for.
    pub shuffle: ShuffleId,
    /// The columns whose hash says in which bucket a row is.
    pub columns: Arc<[usize]>,
    /// How many buckets there are.
    pub buckets: u32,
    /// The pieces whose rows others keep.
    pub kept: Arc<KeptPieces>,
}

/// The pieces of a phase whose rows others keep, by their numbers in the phase.
#[derive(Debug, Default)]
pub struct KeptPieces(Mutex<HashMap<usize, KeptPiece>>);

impl KeptPieces {
    /// Notes who keeps the rows of a piece, before it is told to be done.
    pub fn note(&self, piece: usize, kept: KeptPiece) {
        self.lock().insert(piece, kept);
    }

    /// Who keeps the rows of a piece, if anybody does.
    pub(crate) fn take(&self, piece: usize) -> Option<KeptPiece> {
        self.lock().remove(&piece)
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, KeptPiece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether rows can be shared out by a column of this type.
pub(crate) fn can_be_hashed(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
}

/// A shuffle that has begun. What was kept for it is given up when it is dropped.
pub trait Shuffle: fmt::Debug + Send + Sync {
    /// Which one it is.
    fn id(&self) -> ShuffleId;

    /// How many pieces others run at once.
    fn num_threads(&self) -> usize;

    /// Begins to keep rows of pieces that run in this process.
    ///
    /// # Errors
    /// No temporary file can be made.
    fn keeper(
        &self,
        keeping: &RowKeeping,
        schema: &SchemaRef,
        context: &TaskContext,
    ) -> Result<Box<dyn RowKeeper>>;

    /// Those of some pieces whose rows are not there any more, by their places in the list.
    fn missing<'a>(&'a self, pieces: &'a [KeptPiece]) -> BoxFuture<'a, Vec<usize>>;
}

/// Keeps the rows of pieces that run in this process, one piece after the other.
pub trait RowKeeper: Send {
    /// Takes rows of a piece.
    ///
    /// # Errors
    /// They cannot be written.
    fn push(&mut self, batch: &RecordBatch) -> Result<()>;

    /// The piece has given all its rows.
    ///
    /// # Errors
    /// They cannot be written.
    fn end_piece(&mut self) -> Result<KeptPiece>;
}

/// A bucket that somebody wants to read.
#[derive(Debug, Clone)]
pub struct WantedBucket {
    /// The shuffle.
    pub shuffle: ShuffleId,
    /// The number of the bucket.
    pub bucket: u32,
    /// All pieces, in the order in which their rows are wanted.
    pub pieces: Arc<[KeptPiece]>,
    /// The columns of the rows.
    pub schema: SchemaRef,
}

/// Brings the rows of buckets from those who keep them.
pub trait BucketReader: fmt::Debug + Send + Sync {
    /// The rows of a bucket. They end without an error only if all have come; where some cannot be had, the error is [`lost_rows`].
    fn read(&self, bucket: WantedBucket) -> BoxStream<'static, Result<RecordBatch>>;
}

/// What a session keeps of whoever brings it the rows of buckets.
#[derive(Debug)]
pub(crate) struct ReadingBuckets(pub Arc<dyn BucketReader>);

/// Kept rows cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
struct LostRows(String);

/// The error that rows which somebody keeps cannot be had, as this sentence says: whoever has begun the shuffle looks what is lost, and has it computed
/// anew.
pub fn lost_rows(sentence: impl Into<String>) -> DataFusionError {
    external(LostRows(sentence.into()))
}

/// What [`lost_rows`] says, if an error is of that kind.
pub fn lost_rows_sentence(error: &DataFusionError) -> Option<String> {
    match error.find_root() {
        DataFusionError::External(cause) => {
            cause.downcast_ref::<LostRows>().map(LostRows::to_string)
        }
        _ => None,
    }
}
