//! Rows that are kept for shuffles: by the process that ran their pieces, shared out over buckets, until the front end says that the shuffle is over.
//!
//! ```text
//!   share that keeps its rows ──► BucketWriter ──► BucketFile, one for each run of a share, in the temporary files
//!                                                      │ POST /shuffles/bucket, by whoever merges it
//!                                                      ▼
//!                                                    frames (see `frames`), the pieces in the order in which they are asked for
//! ```
//!
//! Invariant: what is kept ends with its shuffle. Front ends say once a second which of theirs are not over; of one that says nothing for
//! [`SILENT_AFTER`] nothing is kept.

mod begun;
mod bucket_file;
mod fetch;
mod hash;
mod serve;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::shuffle::{KeptRun, ShuffleId};
use serde::{Deserialize, Serialize};

pub(crate) use begun::{BegunShuffle, FrontEndShuffles, not_kept_sentence};
pub(crate) use bucket_file::{BucketFile, BucketWriter};
pub(crate) use fetch::BucketFetcher;
pub(crate) use serve::{BucketRequest, MissingRequest, bucket, missing};

/// How long a front end may say nothing before what was kept for it is given up.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Which shuffles of a front end are not over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShuffleList {
    /// The number of the front end's process.
    pub front_end: u64,
    /// The shuffles that have begun and are not over, by their numbers.
    pub live: BTreeSet<u64>,
    /// Those from this number on begin later.
    pub next: u64,
}

/// The rows that a process keeps.
#[derive(Debug, Default)]
pub(crate) struct KeptShuffles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: HashMap<ShuffleId, HashMap<KeptRun, Arc<BucketFile>>>,
    /// When front ends were last heard, by the numbers of their processes.
    heard: HashMap<u64, Instant>,
}

impl KeptShuffles {
    /// Keeps the rows of a run.
    pub fn insert(&self, shuffle: ShuffleId, run: KeptRun, file: Arc<BucketFile>) {
        let mut state = self.lock();
        { state.heard.entry(shuffle.front_end) }.or_insert_with(Instant::now);
        let files = state.files.entry(shuffle).or_default();
        files.insert(run, file);
    }

    /// The rows of a run, if they are kept.
    pub fn get(&self, shuffle: ShuffleId, run: KeptRun) -> Option<Arc<BucketFile>> {
        self.lock().files.get(&shuffle)?.get(&run).cloned()
    }

    /// How many runs' rows are kept for a shuffle.
    pub fn num_runs(&self, shuffle: ShuffleId) -> u64 {
        self.lock()
            .files
            .get(&shuffle)
            .map_or(0, |it| it.len() as u64)
    }

    /// Gives up what was kept for a shuffle.
    pub fn remove(&self, shuffle: ShuffleId) {
        // The files are removed without the lock.
        let _files = self.lock().files.remove(&shuffle);
    }

    /// Gives up what was kept for shuffles of a front end that are over.
    pub fn keep(&self, list: &ShuffleList) {
        let mut state = self.lock();
        state.heard.insert(list.front_end, Instant::now());
        let is_over = |it: &ShuffleId| {
            it.front_end == list.front_end
                && it.number < list.next
                && !list.live.contains(&it.number)
        };
        let _files: Vec<_> = state.files.extract_if(|id, _| is_over(id)).collect();
        drop(state);
    }

    /// Gives up what was kept for front ends that say nothing any more.
    pub fn forget_silent(&self, now: Instant) {
        let mut state = self.lock();
        state
            .heard
            .retain(|_, heard| now.duration_since(*heard) < SILENT_AFTER);
        let State { files, heard } = &mut *state;
        let _files: Vec<_> = files
            .extract_if(|id, _| !heard.contains_key(&id.front_end))
            .collect();
        drop(state);
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use datafusion::execution::runtime_env::RuntimeEnv;

    use super::*;

    const RUN: KeptRun = KeptRun { phase: 1, run: 2 };

    fn id(front_end: u64, number: u64) -> ShuffleId {
        ShuffleId { front_end, number }
    }

    fn file() -> Arc<BucketFile> {
        let schema = Arc::new(Schema::empty());
        let writer = BucketWriter::new(&RuntimeEnv::default(), &schema, &[], 1).unwrap();
        Arc::clone(writer.file())
    }

    fn list(front_end: u64, live: &[u64], next: u64) -> ShuffleList {
        ShuffleList {
            front_end,
            live: live.iter().copied().collect(),
            next,
        }
    }

    #[test]
    fn what_is_kept_ends_with_its_shuffle() {
        let kept = KeptShuffles::default();
        for id in [id(7, 1), id(7, 2), id(7, 3), id(8, 1)] {
            kept.insert(id, RUN, file());
        }
        let is_there = |id| kept.get(id, RUN).is_some();
        // The list was made before the third had begun.
        kept.keep(&list(7, &[2], 3));
        assert!(!is_there(id(7, 1)) && is_there(id(7, 2)) && is_there(id(7, 3)));
        assert!(is_there(id(8, 1)), "it is of another front end");
        kept.keep(&list(7, &[], 4));
        assert!(!is_there(id(7, 2)) && !is_there(id(7, 3)) && is_there(id(8, 1)));
        assert!(kept.get(id(8, 1), KeptRun { phase: 2, run: 2 }).is_none());
        kept.remove(id(8, 1));
        assert!(!is_there(id(8, 1)));
    }

    #[test]
    fn nothing_is_kept_for_front_ends_that_say_nothing() {
        let kept = KeptShuffles::default();
        kept.insert(id(7, 1), RUN, file());
        let now = Instant::now();
        kept.forget_silent(now + SILENT_AFTER / 2);
        assert!(kept.get(id(7, 1), RUN).is_some());
        kept.forget_silent(now + SILENT_AFTER * 2);
        assert!(kept.get(id(7, 1), RUN).is_none());
    }
}
