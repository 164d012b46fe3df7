//! Blocks that several scans read at about the same time: each is decoded once.
//!
//! Scans of a lane come to the same chunk one after another. What one of them decodes stays until as many others have read it as were about
//! to, or until there is no room for more.
//!
//! ```text
//!   a block is read ──► by somebody just now? ──yes──► wait for it
//!                         │no
//!                         ▼ decoded ──► the queue of shared blocks, or what is kept longer (DecodedBlocks)
//! ```
//!
//! Whoever decodes a block never waits for another block meanwhile, so nobody waits in a circle. If the decoding is given up (its
//! query has ended), the next one who waits does it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use tokio::sync::OnceCell;

use crate::StoreError;
use crate::decoded_blocks::BlockId;

/// Blocks that have left the queue and are still noted in it, beside as many as there are.
const MOST_GONE: usize = 1024;

/// How long a block waits for those who were about to read it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A block in the Arrow type in which it is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TypedBlock {
    pub id: BlockId,
    pub data_type: DataType,
}

/// What becomes of a block once it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// The caller keeps it elsewhere.
    Forget,
    /// It stays until so many other scans have read it, as long as there is room.
    Share(u32),
}

/// A block that somebody else has requested.
#[derive(Debug)]
pub(crate) enum Found {
    Decoded(ArrayRef),
    /// It is being decoded.
    InFlight,
}

/// Blocks that are being decoded, and those that were decoded for several scans.
#[derive(Debug)]
pub(crate) struct SharedBlocks {
    /// Bytes that the queue may have.
    budget: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those of the queue, and those that are being decoded.
    blocks: HashMap<TypedBlock, Entry>,
    /// The numbers of those that are decoded, oldest first. One that has been read by all has left `blocks`.
    queue: VecDeque<(u64, TypedBlock)>,
    /// How many were decoded so far.
    numbered: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Entry {
    cell: Arc<OnceCell<ArrayRef>>,
    /// Once it is in the queue.
    queued: Option<QueuedBlock>,
}

#[derive(Debug)]
struct QueuedBlock {
    number: u64,
    bytes: u64,
    /// How many scans are still to read it.
    readers: u32,
    since: Instant,
}

impl SharedBlocks {
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            state: Mutex::default(),
        }
    }

    /// Bytes of the queue, without those that nobody has come for in time.
    pub fn num_bytes(&self) -> u64 {
        let mut state = self.lock();
        state.drop_oldest(self.budget);
        state.bytes
    }

    /// What there is of a block, for one of its readers.
    pub fn find(&self, block: &TypedBlock) -> Option<Found> {
        let mut state = self.lock();
        let decoded = state.blocks.get(block)?.cell.get().cloned();
        let Some(decoded) = decoded else {
            return Some(Found::InFlight);
        };
        state.note_read(block);
        Some(Found::Decoded(decoded))
    }

    /// The block, which is decoded here unless somebody else has it or is decoding it; and whether it was decoded here. `decode` also
    /// says what becomes of it.
    ///
    /// # Errors
    /// Those of `decode`.
    pub async fn get_or_decode(
        &self,
        block: TypedBlock,
        decode: impl Future<Output = Result<(ArrayRef, Afterwards), StoreError>>,
    ) -> Result<(ArrayRef, bool), StoreError> {
        let claim = self.claim(block);
        let mut own = None;
        let decoded = claim.cell.get_or_try_init(async || {
            let (decoded, afterwards) = decode.await?;
            own = Some(afterwards);
            Ok::<_, StoreError>(decoded)
        });
        let decoded = Arc::clone(decoded.await?);
        match own {
            Some(Afterwards::Forget | Afterwards::Share(0)) => self.forget(&claim),
            Some(Afterwards::Share(readers)) => self.enqueue(&claim, &decoded, readers),
            None => self.lock().note_read(&claim.block),
        }
        Ok((decoded, own.is_some()))
    }

    fn claim(&self, block: TypedBlock) -> Claim<'_> {
        let cell = Arc::clone(&self.lock().blocks.entry(block.clone()).or_default().cell);
        Claim {
            shared: self,
            block,
            cell,
        }
    }

    fn forget(&self, claim: &Claim<'_>) {
        self.lock().remove(&claim.block, &claim.cell);
    }

    fn enqueue(&self, claim: &Claim<'_>, decoded: &ArrayRef, readers: u32) {
        let bytes = decoded.get_buffer_memory_size() as u64;
        let mut state = self.lock();
        // A block that takes most of the room would displace all the others.
        if bytes > self.budget / 4 {
            state.remove(&claim.block, &claim.cell);
            return;
        }
        state.enqueue(&claim.block, bytes, readers);
        state.drop_oldest(self.budget);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes a block that is not in the queue, if it is still this one.
    fn remove(&mut self, block: &TypedBlock, cell: &Arc<OnceCell<ArrayRef>>) {
        let entry = self.blocks.get(block);
        if entry.is_some_and(|it| it.queued.is_none() && Arc::ptr_eq(&it.cell, cell)) {
            self.blocks.remove(block);
        }
    }

    fn enqueue(&mut self, block: &TypedBlock, bytes: u64, readers: u32) {
        let Some(entry) = self.blocks.get_mut(block) else {
            return;
        };
        self.numbered += 1;
        entry.queued = Some(QueuedBlock {
            number: self.numbered,
            bytes,
            readers,
            since: Instant::now(),
        });
        self.bytes += bytes;
        self.queue.push_back((self.numbered, block.clone()));
        if self.queue.len() > 2 * self.blocks.len() + MOST_GONE {
            let blocks = &self.blocks;
            (self.queue).retain(|(number, block)| queued(blocks, block, *number).is_some());
        }
    }

    /// One of the readers of a block has read it; the last one takes it out.
    fn note_read(&mut self, block: &TypedBlock) {
        let Some(queued) = self.blocks.get_mut(block).and_then(|it| it.queued.as_mut()) else {
            return;
        };
        queued.readers = queued.readers.saturating_sub(1);
        if queued.readers == 0 {
            self.bytes -= queued.bytes;
            self.blocks.remove(block);
        }
    }

    /// Drops the oldest blocks until the others fit, and those that nobody has come for.
    fn drop_oldest(&mut self, budget: u64) {
        while let Some((number, block)) = self.queue.front() {
            if let Some(queued) = queued(&self.blocks, block, *number) {
                if self.bytes <= budget && queued.since.elapsed() < LONGEST_WAIT {
                    return;
                }
                self.bytes -= queued.bytes;
                self.blocks.remove(block);
            }
            self.queue.pop_front();
        }
    }
}

/// The block that was decoded under a number, if it is still there.
fn queued<'a>(
    blocks: &'a HashMap<TypedBlock, Entry>,
    block: &TypedBlock,
    number: u64,
) -> Option<&'a QueuedBlock> {
    let queued = blocks.get(block)?.queued.as_ref();
    queued.filter(|it| it.number == number)
}

/// Somebody who wants a block. Dropping the last one of a block that is not decoded forgets the block.
struct Claim<'a> {
    shared: &'a SharedBlocks,
    block: TypedBlock,
    cell: Arc<OnceCell<ArrayRef>>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.cell.get().is_some() {
            return;
        }
        let mut state = self.shared.lock();
        // The map's and this one.
        if Arc::strong_count(&self.cell) <= 2 {
            state.remove(&self.block, &self.cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::Int64Array;
    use tokio::sync::Notify;

    use super::*;

    fn block(number: u32) -> TypedBlock {
        TypedBlock {
            id: BlockId {
                file: 7,
                column: 0,
                block: number,
            },
            data_type: DataType::Int64,
        }
    }

    fn values(number: i64, length: usize) -> ArrayRef {
        Arc::new(Int64Array::from(vec![number; length]))
    }

    /// Many who want a block at once have it decoded once, and the last of them takes it.
    #[tokio::test]
    async fn a_block_is_decoded_once() {
        let (shared, decoded) = (SharedBlocks::new(1 << 20), AtomicUsize::new(0));
        let decode = || async {
            decoded.fetch_add(1, Relaxed);
            tokio::task::yield_now().await;
            Ok((values(3, 10), Afterwards::Share(20)))
        };
        let wanted = (0..20).map(|_| shared.get_or_decode(block(0), decode()));
        let found = futures::future::join_all(wanted).await;
        assert_eq!(decoded.load(Relaxed), 1);
        let own = found.iter().map(|it| it.as_ref().map(|it| it.1));
        assert_eq!(own.filter(|own| matches!(own, Ok(true))).count(), 1);
        let is_whole =
            |it: &Result<(ArrayRef, bool), _>| it.as_ref().is_ok_and(|it| it.0.len() == 10);
        assert!(found.iter().all(is_whole));
        assert!(shared.num_bytes() > 0 && shared.find(&block(1)).is_none());
        assert!(matches!(shared.find(&block(0)), Some(Found::Decoded(_))));
        assert!(shared.find(&block(0)).is_none() && shared.num_bytes() == 0);
    }

    /// The oldest go first, and what is forgotten takes no room.
    #[tokio::test]
    async fn the_queue_keeps_within_its_budget() {
        let shared = SharedBlocks::new(8 * 100 * 8);
        for number in 0..20_u32 {
            let afterwards = match number % 5 {
                4 => Afterwards::Forget,
                _ => Afterwards::Share(9),
            };
            let decode = async { Ok((values(i64::from(number), 100), afterwards)) };
            let found = shared.get_or_decode(block(number), decode).await;
            assert!(found.is_ok_and(|(_, is_own)| is_own));
            assert!(shared.num_bytes() <= shared.budget);
        }
        let there: Vec<u32> = (0..20)
            .filter(|n| shared.find(&block(*n)).is_some())
            .collect();
        assert_eq!(there, [10, 11, 12, 13, 15, 16, 17, 18]);
        assert_eq!(shared.lock().blocks.len(), there.len());
        let large = async { Ok((values(0, 100 * 3), Afterwards::Share(9))) };
        let found = shared.get_or_decode(block(99), large).await;
        assert!(found.is_ok() && shared.find(&block(99)).is_none());
        // Those that are read by all leave the queue where they stand.
        for _ in 0..8 {
            shared.find(&block(12));
        }
        let before = shared.num_bytes();
        assert!(shared.find(&block(12)).is_none());
        let decode = async { Ok((values(12, 100), Afterwards::Share(1))) };
        assert!(shared.get_or_decode(block(12), decode).await.is_ok());
        assert_eq!(shared.num_bytes(), before + 800);
        assert!(shared.find(&block(10)).is_some());
    }

    /// A block for which one reader has not come does not keep the numbers of all that come and go behind it.
    #[tokio::test]
    async fn the_queue_does_not_grow_behind_a_block() {
        let shared = SharedBlocks::new(1 << 20);
        for number in 0..10_000_u32 {
            let readers = if number == 0 { 2 } else { 1 };
            let decode = async { Ok((values(0, 10), Afterwards::Share(readers))) };
            assert!(shared.get_or_decode(block(number), decode).await.is_ok());
            assert!(shared.find(&block(number)).is_some());
        }
        assert_eq!(shared.lock().blocks.len(), 1);
        assert!(shared.lock().queue.len() <= MOST_GONE + 4);
        assert!(shared.find(&block(0)).is_some() && shared.num_bytes() == 0);
        assert!(shared.lock().queue.is_empty());
    }

    /// Who waits decodes himself if the first one is dropped or fails; nothing is left behind.
    #[tokio::test]
    async fn who_waits_takes_over() {
        let shared = Arc::new(SharedBlocks::new(1 << 20));
        let started = Arc::new(Notify::new());
        let (other, told) = (Arc::clone(&shared), Arc::clone(&started));
        let first = tokio::spawn(async move {
            let never = async move {
                told.notify_one();
                std::future::pending().await
            };
            other.get_or_decode(block(0), never).await
        });
        started.notified().await;
        let other = Arc::clone(&shared);
        let second = tokio::spawn(async move {
            let decode = async { Ok((values(5, 10), Afterwards::Share(1))) };
            other.get_or_decode(block(0), decode).await
        });
        tokio::task::yield_now().await;
        assert!(matches!(shared.find(&block(0)), Some(Found::InFlight)));
        first.abort();
        let found = second.await.unwrap();
        assert!(found.is_ok_and(|(_, is_own)| is_own));

        let failing = async { Err(StoreError::damaged(std::path::Path::new("x"), "no")) };
        let failed = shared.get_or_decode(block(1), failing).await;
        assert!(failed.is_err() && shared.lock().blocks.len() == 1);
    }
}
