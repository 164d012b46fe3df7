//! The shuffles of a front end that are not over.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use axum::http::Method;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use engine::shuffle::{Holder, KeptPiece, KeptRun, RowKeeper, RowKeeping, Shuffle, ShuffleId};
use futures::future::{BoxFuture, FutureExt, join_all};
use sql::{ErrorCode, SqlError};
use tokio::time::timeout;

use super::fetch::role_of;
use super::{BucketWriter, KeptShuffles, MissingRequest, ShuffleList};
use crate::client::MemberClient;

/// How long one who keeps rows may take to say whether it still does.
const PATIENCE: Duration = Duration::from_secs(3);

/// The shuffles of this process that have begun and are not over.
#[derive(Debug, Default)]
pub(crate) struct LiveShuffles(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    live: BTreeSet<u64>,
    next: u64,
}

impl LiveShuffles {
    /// The list for workers.
    pub fn list(&self, front_end: u64) -> ShuffleList {
        let numbers = self.lock();
        ShuffleList {
            front_end,
            live: numbers.live.clone(),
            next: numbers.next,
        }
    }

    fn begin(&self) -> u64 {
        let mut numbers = self.lock();
        let number = numbers.next;
        numbers.next += 1;
        numbers.live.insert(number);
        number
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a front end knows of shuffles.
#[derive(Debug)]
pub(crate) struct FrontEndShuffles {
    /// Those that are not over.
    pub live: LiveShuffles,
    /// The rows of pieces that ran in this process.
    pub kept: KeptShuffles,
    /// This process, as others reach it.
    pub holder: Arc<Holder>,
}

impl FrontEndShuffles {
    /// Those of a process that others reach at this address.
    pub fn new(address: &str) -> Arc<Self> {
        Arc::new(Self {
            live: LiveShuffles::default(),
            kept: KeptShuffles::default(),
            holder: Arc::new(Holder {
                address: address.to_owned(),
                is_front_end: true,
            }),
        })
    }
}

/// A shuffle that has begun.
#[derive(Debug)]
pub(crate) struct BegunShuffle {
    id: ShuffleId,
    num_threads: usize,
    /// The number of the phase that the pieces have which run here.
    phase: u64,
    shuffles: Arc<FrontEndShuffles>,
    client: Arc<MemberClient>,
}

impl BegunShuffle {
    /// Begins a shuffle of this process, for workers that run so many pieces at once. Its own pieces are of a phase of this number, which no other has.
    pub fn begin(
        front_end: u64,
        num_threads: usize,
        phase: u64,
        shuffles: Arc<FrontEndShuffles>,
        client: Arc<MemberClient>,
    ) -> Self {
        let number = shuffles.live.begin();
        Self {
            id: ShuffleId { front_end, number },
            num_threads,
            phase,
            shuffles,
            client,
        }
    }

    /// The runs among some that one who keeps them has not any more; all if it does not answer.
    async fn missing_at(&self, holder: &Holder, runs: Vec<KeptRun>) -> Vec<KeptRun> {
        let request = MissingRequest {
            shuffle: self.id,
            runs,
        };
        let (role, path) = (role_of(holder), "/shuffles/missing");
        let asked = self
            .client
            .json(Method::POST, role, &holder.address, path, Some(&request));
        match timeout(PATIENCE, asked).await {
            Ok(Ok(missing)) => missing,
            _ => request.runs,
        }
    }
}

impl Drop for BegunShuffle {
    fn drop(&mut self) {
        // Workers are told with the next list.
        self.shuffles.live.lock().live.remove(&self.id.number);
        self.shuffles.kept.remove(self.id);
    }
}

impl Shuffle for BegunShuffle {
    fn id(&self) -> ShuffleId {
        self.id
    }

    fn num_threads(&self) -> usize {
        self.num_threads
    }

    fn keeper(
        &self,
        keeping: &RowKeeping,
        schema: &SchemaRef,
        context: &TaskContext,
    ) -> Result<Box<dyn RowKeeper>> {
        let runtime = context.runtime_env();
        let writer = BucketWriter::new(&runtime, schema, &keeping.columns, keeping.buckets);
        let writer = writer.map_err(not_kept)?;
        let run = KeptRun {
            phase: self.phase,
            // Whichever number it has, no other has it.
            run: self.shuffles.kept.num_runs(self.id),
        };
        let file = Arc::clone(writer.file());
        self.shuffles.kept.insert(self.id, run, file);
        Ok(Box::new(OwnRows {
            writer,
            holder: Arc::clone(&self.shuffles.holder),
            run,
            next: 0,
        }))
    }

    fn missing<'a>(&'a self, pieces: &'a [KeptPiece]) -> BoxFuture<'a, Vec<usize>> {
        async move {
            let mut runs: HashMap<&Holder, BTreeSet<KeptRun>> = HashMap::new();
            for piece in pieces {
                runs.entry(&piece.holder).or_default().insert(piece.run);
            }
            let asked = runs.into_iter().map(|(holder, runs)| async move {
                let missing = self.missing_at(holder, runs.into_iter().collect()).await;
                missing.into_iter().map(move |run| (holder, run))
            });
            let missing: BTreeSet<(&str, KeptRun)> =
                { join_all(asked).await.into_iter().flatten() }
                    .map(|(holder, run)| (holder.address.as_str(), run))
                    .collect();
            let is_missing =
                |piece: &KeptPiece| missing.contains(&(piece.holder.address.as_str(), piece.run));
            let places = (0..pieces.len()).filter(|at| is_missing(&pieces[*at]));
            places.collect()
        }
        .boxed()
    }
}

/// Keeps the rows of pieces that run in this process.
struct OwnRows {
    writer: BucketWriter,
    holder: Arc<Holder>,
    run: KeptRun,
    next: u32,
}

impl RowKeeper for OwnRows {
    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.push(batch).map_err(not_kept)
    }

    fn end_piece(&mut self) -> Result<KeptPiece> {
        let at = self.next;
        self.next += 1;
        Ok(KeptPiece {
            holder: Arc::clone(&self.holder),
            run: self.run,
            at,
            rows: self.writer.end_piece(at).map_err(not_kept)?,
        })
    }
}

/// Rows cannot be written to temporary files.
fn not_kept(error: ArrowError) -> DataFusionError {
    let error = SqlError::new(not_kept_sentence(&error)).with_code(ErrorCode::TEMPORARY_FULL);
    DataFusionError::External(Box::new(error))
}

/// What is said when rows cannot be kept.
pub(crate) fn not_kept_sentence(error: &ArrowError) -> String {
    format!("rows cannot be kept in temporary files until they are merged: {error}")
}
