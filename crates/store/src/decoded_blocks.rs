//! Decoded blocks of columns, kept in memory for whoever reads them next.
//!
//! Most queries of an archive go to the same columns, and many to the same part of the sky; a decoded block serves them
//! without a read, a checksum and a decoder. What is kept is what a file holds, never an answer.
//!
//! ```text
//!   a block is read ──► kept? ──yes──► its rows are taken from memory
//!                         │no
//!                         ▼ decoded whole, and kept:  while there is room, if most of it was wanted or it was read before;
//!                                                     when there is none, once it was read often
//!                           decoded in part:          otherwise
//! ```
//!
//! The segments of a director index by which single keys are found are kept among them, by the same rules.
//!
//! So one look at a row does not decode thousands of others, and a scan of more than there is room for does not push out what
//! is used. What several scans read at about the same time is decoded once all the same: see [`crate::shared_blocks`].

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, UInt8Array};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use vortex::mask::Mask;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::block_file::len;
use crate::block_rows::rows_of;
use crate::shared_blocks::{Afterwards, Found, SharedBlocks, TypedBlock};
use crate::{ROWS_PER_BLOCK, StoreError};

/// What the cache itself takes for each block that it keeps: its key, the array's head, its place in a queue.
const BYTES_BESIDE: u64 = 256;
/// Bytes of a block of doubles, of which a budget holds about so many blocks.
const USUAL_BYTES: u64 = 8 * ROWS_PER_BLOCK as u64;
/// Reads of a block, of less than half of its rows, from which on it is kept while there is room.
const READS_WITH_ROOM: u8 = 2;
/// Reads of a block from which on it takes the place of others.
const READS_WITHOUT_ROOM: u8 = 8;
/// What counts as full, in 1/16 of the budget: the cache's parts fill unevenly.
const FULL_SIXTEENTHS: u64 = 15;
/// The same for blocks that others are about to read: a block for which its part of the cache has no room would be decoded by each.
const FULL_SIXTEENTHS_SHARED: u64 = 12;
/// Blocks that several scans share may take so much of the budget, in 1/16, from those that are kept.
const SHARED_SIXTEENTHS: u64 = 12;

/// Bytes of a segment of an index.
pub(crate) const SEGMENT_BYTES: u64 = 1 << 20;
/// Segments for which there has to be room, if nothing else is kept, before any is.
const LEAST_SEGMENTS: u64 = 4;

/// Decoded blocks within a budget of bytes. Shared by all files of a process.
///
/// A block is known by the checksum of its file, so that a file that is closed and opened again finds its own.
pub struct DecodedBlocks {
    budget: u64,
    kept: Cache<BlockId, ArrayRef, Bytes>,
    shared: SharedBlocks,
    /// What of the budget the shared blocks have taken, in 1/16. It changes with `lending` held.
    lent: AtomicU64,
    lending: Mutex<()>,
}

/// Which block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockId {
    /// The checksum of the file (see [`crate::ChunkFile::checksum`]).
    pub file: u64,
    /// The column's number in the file.
    pub column: u32,
    /// The block's number in the column.
    pub block: u32,
}

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<BlockId, ArrayRef> for Bytes {
    fn weight(&self, _: &BlockId, block: &ArrayRef) -> u64 {
        block.get_buffer_memory_size() as u64 + BYTES_BESIDE
    }
}

impl std::fmt::Debug for DecodedBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecodedBlocks")
            .field("bytes", &self.num_bytes())
            .field("budget", &self.budget())
            .finish()
    }
}

impl DecodedBlocks {
    /// Room for this many bytes; with 0 nothing is kept.
    pub fn new(budget: u64) -> Self {
        let blocks = usize::try_from(budget / USUAL_BYTES).unwrap_or(usize::MAX);
        Self {
            budget,
            kept: Cache::with_weighter(blocks, budget, Bytes),
            shared: SharedBlocks::new(budget / 16 * SHARED_SIXTEENTHS),
            lent: AtomicU64::new(0),
            lending: Mutex::default(),
        }
    }

    /// Bytes of decoded blocks in memory.
    pub fn num_bytes(&self) -> u64 {
        // Whoever watches the memory asks often: room that nobody shares any more is given back.
        self.lend();
        self.kept.weight() + self.shared.num_bytes()
    }

    /// Bytes of these that are there for scans which read them at about the same time.
    pub fn num_shared_bytes(&self) -> u64 {
        self.shared.num_bytes()
    }

    /// Bytes that decoded blocks may have.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Takes room for shared blocks from those that are kept, in steps, and gives it back when none is shared any more.
    fn lend(&self) {
        if self.to_lend().is_none() {
            return;
        }
        let _alone = self.lending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((steps, bytes)) = self.to_lend() {
            self.lent.store(steps, Ordering::Relaxed);
            self.kept.set_capacity(self.budget.saturating_sub(bytes));
        }
    }

    /// The steps and the bytes that the shared blocks have to have, if that has changed.
    fn to_lend(&self) -> Option<(u64, u64)> {
        let step = (self.budget / 16).max(1);
        let taken = self.shared.num_bytes().div_ceil(step);
        let lent = self.lent.load(Ordering::Relaxed);
        let changes = taken > lent || (taken == 0 && lent > 0);
        changes.then_some((taken, taken * step))
    }

    /// How many blocks are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether blocks of columns of this type are kept. Text is not: one value would hold the text of the whole block.
    fn keeps(&self, data_type: &DataType) -> bool {
        self.budget() > 0 && (data_type.is_primitive() || *data_type == DataType::Boolean)
    }

    /// A block, if it is kept in this type.
    fn get(&self, id: &BlockId, data_type: &DataType) -> Option<ArrayRef> {
        let block = self.kept.get(id)?;
        (block.data_type() == data_type).then_some(block)
    }

    /// Keeps a block.
    fn keep(&self, id: BlockId, block: ArrayRef) {
        self.kept.insert(id, block);
    }

    /// Whether a block of `rows` that was read `reads` times so far, and of which `wanted` rows are wanted now, is to be kept.
    fn is_worth_keeping(&self, rows: usize, wanted: usize, reads: u8) -> bool {
        if reads >= READS_WITHOUT_ROOM {
            return true;
        }
        let most = wanted * 2 >= rows;
        (most || reads >= READS_WITH_ROOM) && !self.is_full(FULL_SIXTEENTHS)
    }

    fn is_full(&self, sixteenths: u64) -> bool {
        self.kept.weight() >= self.kept.capacity() / 16 * sixteenths
    }
}

/// How often each block of a column, or segment of an index, was read without being kept.
#[derive(Debug)]
struct Reads(Box<[AtomicU8]>);

impl Reads {
    fn new(blocks: u64) -> Self {
        Self((0..blocks).map(|_| AtomicU8::new(0)).collect())
    }

    /// Counts one more, and gives how many there are now; 255 stands for more.
    fn count(&self, block: u32) -> u8 {
        let Some(reads) = self.0.get(block as usize) else {
            return 0;
        };
        // A count that is lost between two threads makes no answer wrong.
        let now = reads.load(Ordering::Relaxed).saturating_add(1);
        reads.store(now, Ordering::Relaxed);
        now
    }

    /// Begins anew, for a block that is kept now and may be dropped later.
    fn forget(&self, block: u32) {
        if let Some(reads) = self.0.get(block as usize) {
            reads.store(0, Ordering::Relaxed);
        }
    }
}

/// The decoded blocks of one file.
#[derive(Debug)]
pub(crate) struct DecodedFile {
    decoded: Arc<DecodedBlocks>,
    /// The checksum of the file.
    file: u64,
    rows: u64,
    /// For each column, once it is read.
    reads: Vec<OnceLock<Reads>>,
}

/// What is known of rows of a block before they are read.
pub(crate) enum CacheLookup<R = ArrayRef, B = Range<u64>> {
    /// The rows themselves.
    Rows(R),
    /// Nothing, and their block, which has these rows of the file, is to be decoded whole by [`DecodedFile::get_or_decode`]; or this
    /// segment is to be read and given to [`IndexSegments::keep`].
    ToKeep(B),
    /// The same of a block for which there is no lasting room, but which other scans are about to read.
    ToShare(B),
    /// Nothing.
    No,
}

/// Some rows of one block of a column.
#[derive(Clone, Copy)]
pub(crate) struct RequestedRows<'a> {
    /// The column's number in the file.
    pub column: usize,
    /// From the first to the last of them.
    pub rows: &'a Range<u64>,
    /// Which of these.
    pub mask: &'a Mask,
    /// The Arrow type in which they are wanted.
    pub data_type: &'a DataType,
}

impl RequestedRows<'_> {
    fn block(&self) -> Range<u64> {
        let first = self.rows.start / ROWS_PER_BLOCK as u64 * ROWS_PER_BLOCK as u64;
        first..first + ROWS_PER_BLOCK as u64
    }

    /// The block, as what is decoded at the moment is known by.
    fn typed(&self, id: BlockId) -> TypedBlock {
        TypedBlock {
            id,
            data_type: self.data_type.clone(),
        }
    }

    /// Picks them out of their whole block.
    fn of(&self, block: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let start = len(&(self.block().start..self.rows.start));
        rows_of(block, start, self.mask)
    }
}

impl DecodedFile {
    /// Those of a file with this checksum, so many rows and so many columns.
    pub fn new(decoded: Arc<DecodedBlocks>, file: u64, rows: u64, columns: usize) -> Self {
        Self {
            decoded,
            file,
            rows,
            reads: (0..columns).map(|_| OnceLock::new()).collect(),
        }
    }

    /// What is known of rows, and whether their block is worth keeping, or sharing with other scans that are about to read it.
    pub fn look(&self, wanted: RequestedRows<'_>, sharers: u32) -> Result<CacheLookup, ArrowError> {
        let Some(reads) = self.reads.get(wanted.column) else {
            return Ok(CacheLookup::No);
        };
        let may_keep = self.decoded.keeps(wanted.data_type);
        if self.decoded.budget() == 0 {
            return Ok(CacheLookup::No);
        }
        let id = self.id(wanted);
        if may_keep && let Some(block) = self.decoded.get(&id, wanted.data_type) {
            return wanted.of(&block).map(CacheLookup::Rows);
        }
        let in_flight = match self.decoded.shared.find(&wanted.typed(id)) {
            Some(Found::Decoded(block)) => {
                self.decoded.lend();
                return wanted.of(&block).map(CacheLookup::Rows);
            }
            Some(Found::InFlight) => true,
            None => false,
        };
        let blocks = self.rows.div_ceil(ROWS_PER_BLOCK as u64);
        let reads = reads.get_or_init(|| Reads::new(blocks)).count(id.block);
        let block = wanted.block();
        let block = block.start..block.end.min(self.rows);
        let (rows, count) = (len(&block), wanted.mask.true_count());
        let is_shared = sharers > 0;
        let has_room = !is_shared || !self.decoded.is_full(FULL_SIXTEENTHS_SHARED);
        if may_keep && has_room && self.decoded.is_worth_keeping(rows, count, reads) {
            return Ok(CacheLookup::ToKeep(block));
        }
        let is_worth_sharing = is_shared && (count * 2 >= rows || reads >= READS_WITH_ROOM);
        Ok(match in_flight || is_worth_sharing {
            true => CacheLookup::ToShare(block),
            false => CacheLookup::No,
        })
    }

    /// Whether a whole block is kept, of which nothing is wanted yet.
    pub fn has(&self, column: usize, block: u64) -> bool {
        let id = self.block(column, block);
        self.decoded.kept.contains_key(&id)
    }

    /// A whole block, if it is kept in this type.
    pub fn kept(&self, column: usize, block: u64, data_type: &DataType) -> Option<ArrayRef> {
        self.decoded.get(&self.block(column, block), data_type)
    }

    /// The wanted rows of a block that is decoded whole, unless somebody else is just doing it or has done it; and the bytes of the
    /// block if it was decoded here. It is kept if it is worth it, and there for so many other scans if it is not.
    pub async fn get_or_decode(
        &self,
        wanted: RequestedRows<'_>,
        is_worth_keeping: bool,
        sharers: u32,
        decode: impl Future<Output = Result<ArrayRef, StoreError>>,
    ) -> Result<(Result<ArrayRef, ArrowError>, Option<u64>), StoreError> {
        let id = self.id(wanted);
        let decode = async {
            let block = decode.await?;
            if let Some(reads) = self.reads.get(wanted.column).and_then(OnceLock::get) {
                reads.forget(id.block);
            }
            if is_worth_keeping {
                self.decoded.keep(id, Arc::clone(&block));
            }
            // What is nearly full may have no room for a new block.
            Ok(
                match is_worth_keeping && self.has(wanted.column, u64::from(id.block)) {
                    true => (block, Afterwards::Forget),
                    false => (block, Afterwards::Share(sharers)),
                },
            )
        };
        let found = self.decoded.shared.get_or_decode(wanted.typed(id), decode);
        let (block, is_own) = found.await?;
        self.decoded.lend();
        let decoded = is_own.then(|| block.get_buffer_memory_size() as u64);
        Ok((wanted.of(&block), decoded))
    }

    fn id(&self, wanted: RequestedRows<'_>) -> BlockId {
        self.block(wanted.column, wanted.rows.start / ROWS_PER_BLOCK as u64)
    }

    fn block(&self, column: usize, block: u64) -> BlockId {
        BlockId {
            file: self.file,
            column: column as u32,
            block: block as u32,
        }
    }
}

/// Segments of a director index, kept as they are in its file among the decoded blocks.
#[derive(Debug)]
pub(crate) struct IndexSegments {
    decoded: Arc<DecodedBlocks>,
    /// What stands in the place of a file's checksum.
    index: u64,
    reads: Reads,
}

impl IndexSegments {
    /// Those of an index of so many bytes that has just been opened.
    pub fn new(decoded: Arc<DecodedBlocks>, bytes: u64) -> Self {
        /// How many indexes were opened.
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        Self {
            decoded,
            // As good as a checksum, of something that no chunk file is.
            index: xxh3_64_with_seed(b"director index", number),
            reads: Reads::new(bytes.div_ceil(SEGMENT_BYTES)),
        }
    }

    /// What is known of a segment of which one page is wanted.
    pub fn look(&self, segment: u32) -> CacheLookup<UInt8Array, u32> {
        // What does not fit would be read whole again and again.
        if self.decoded.budget() < LEAST_SEGMENTS * SEGMENT_BYTES {
            return CacheLookup::No;
        }
        let kept = self.decoded.get(&self.id(segment), &DataType::UInt8);
        if let Some(kept) = kept.as_ref().and_then(|it| it.as_primitive_opt()) {
            return CacheLookup::Rows(kept.clone());
        }
        let reads = self.reads.count(segment);
        // One of many.
        match self.decoded.is_worth_keeping(usize::MAX, 1, reads) {
            true => CacheLookup::ToKeep(segment),
            false => CacheLookup::No,
        }
    }

    /// Keeps a segment.
    pub fn keep(&self, segment: u32, bytes: Vec<u8>) -> UInt8Array {
        let bytes = UInt8Array::from(bytes);
        self.reads.forget(segment);
        self.decoded.keep(self.id(segment), Arc::new(bytes.clone()));
        bytes
    }

    /// A segment that cannot be kept is not tried again at once.
    pub fn put_off(&self, segment: u32) {
        self.reads.forget(segment);
    }

    fn id(&self, segment: u32) -> BlockId {
        BlockId {
            file: self.index,
            column: 0,
            block: segment,
        }
    }
}
