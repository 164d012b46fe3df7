//! Compression of a column's blocks: the schemes that suit one block are tried on those that follow.
//!
//! Vortex chooses for each block anew, by compressing samples with every scheme and counting distinct values: several
//! times the work of compressing. Neighbouring blocks of a column are alike, so here every [`BLOCKS_PER_CHOICE`]th is
//! compressed with all schemes, and those between with the schemes found in that one. A block for which these do
//! clearly worse is compressed with all, so that a column whose nature changes costs time, not bytes.
//!
//! Which blocks choose depends on their number alone: the bytes of a file do not depend on threads.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use futures::channel::oneshot;
use futures::future::Shared;
use futures::{FutureExt, StreamExt};
use vortex::array::{ArrayRef, ExecutionCtx, VortexSessionExecute};
use vortex::error::VortexResult;
use vortex::io::session::RuntimeSessionExt;
use vortex::layout::segments::SegmentSinkRef;
use vortex::layout::sequence::{
    SendableSequentialStream, SequenceId, SequencePointer, SequentialStreamAdapter,
    SequentialStreamExt,
};
use vortex::layout::{LayoutRef, LayoutStrategy, LayoutWriterContext};
use vortex::session::VortexSession;
use vortex_btrblocks::schemes::integer::IntDictScheme;
use vortex_btrblocks::{
    BtrBlocksCompressor, BtrBlocksCompressorBuilder, CompressionSessionExt, SchemeExt, SchemeId,
};

use crate::session::session;

/// One block of so many is compressed with all schemes. Half a million rows, the aim for a chunk of a director, are 31.
const BLOCKS_PER_CHOICE: usize = 32;

/// A block is compressed with all schemes where the chosen ones take this many times the bytes per row of the block for
/// which they were chosen. Blocks that are alike differ by less: by a bit of 20 in a packed column.
const CLEARLY_WORSE: f64 = 1.05;

/// Blocks of a column that are compressed at a time.
const BLOCKS_AT_A_TIME: usize = 2;

/// Compresses with all schemes that the session's edition allows.
pub(crate) fn all_schemes() -> &'static BtrBlocksCompressor {
    static ALL: LazyLock<BtrBlocksCompressor> = LazyLock::new(|| builder().clone().build());
    &ALL
}

/// As [`all_schemes`], but without dictionaries of integers: the codes of a dictionary have none of their own.
fn data_schemes() -> &'static BtrBlocksCompressor {
    static DATA: LazyLock<BtrBlocksCompressor> = LazyLock::new(|| excluding([]));
    &DATA
}

fn builder() -> &'static BtrBlocksCompressorBuilder {
    static BUILDER: LazyLock<BtrBlocksCompressorBuilder> =
        LazyLock::new(|| BtrBlocksCompressorBuilder::from_session(session()));
    &BUILDER
}

fn excluding(schemes: impl IntoIterator<Item = SchemeId>) -> BtrBlocksCompressor {
    let excluded = schemes.into_iter().chain([IntDictScheme.id()]);
    builder().clone().exclude_schemes(excluded).build()
}

/// What was chosen for a block, for those that follow it.
struct Choice {
    schemes: BtrBlocksCompressor,
    bytes_per_row: f64,
}

impl Choice {
    fn of(compressed: &ArrayRef) -> Self {
        Self {
            schemes: excluding(unused_schemes(compressed)),
            bytes_per_row: bytes_per_row(compressed),
        }
    }

    fn compress(&self, block: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
        let compressed = self.schemes.compress(block, ctx)?;
        if bytes_per_row(&compressed) <= self.bytes_per_row * CLEARLY_WORSE {
            return Ok(compressed);
        }
        let anew = data_schemes().compress(block, ctx)?;
        let smaller = anew.nbytes() < compressed.nbytes();
        Ok(if smaller { anew } else { compressed })
    }
}

/// The schemes that make none of the encodings in a compressed block.
fn unused_schemes(compressed: &ArrayRef) -> Vec<SchemeId> {
    let found: HashSet<String> = compressed
        .depth_first_traversal()
        .map(|array| encoding(array.encoding_id().as_str()))
        .collect();
    let session = session().compression();
    let unused = session.schemes().iter().filter(|scheme| {
        let made = scheme.produced_encodings();
        !made.iter().any(|id| found.contains(&encoding(id.as_str())))
    });
    unused.map(|scheme| scheme.id()).collect()
}

/// An encoding has one identifier in memory and may have another one, of an earlier version, in a file.
fn encoding(id: &str) -> String {
    id.trim_end_matches(".v2").to_owned()
}

fn bytes_per_row(array: &ArrayRef) -> f64 {
    array.nbytes() as f64 / array.len().max(1) as f64
}

/// A choice that is being made; `None` if its block could not be compressed.
type PendingChoice = Shared<futures::future::BoxFuture<'static, Option<Arc<Choice>>>>;

/// The layout strategy that compresses the blocks of one column and hands them to the next one.
pub(crate) struct CompressAlike {
    next: Arc<dyn LayoutStrategy>,
}

impl CompressAlike {
    pub(crate) fn new(next: impl LayoutStrategy) -> Self {
        Self {
            next: Arc::new(next),
        }
    }
}

#[async_trait]
impl LayoutStrategy for CompressAlike {
    async fn write_stream(
        &self,
        ctx: LayoutWriterContext,
        segments: SegmentSinkRef,
        stream: SendableSequentialStream,
        eof: SequencePointer,
        session: &VortexSession,
    ) -> VortexResult<LayoutRef> {
        let dtype = stream.dtype().clone();
        let mut compression = Compression {
            session: session.clone(),
            choice: None,
        };
        let compressed = stream
            .enumerate()
            .map(move |(number, block)| compression.start(number, block))
            .buffered(BLOCKS_AT_A_TIME);
        let compressed = SequentialStreamAdapter::new(dtype, compressed).sendable();
        self.next
            .write_stream(ctx, segments, compressed, eof, session)
            .await
    }
}

type Block = VortexResult<(SequenceId, ArrayRef)>;

/// The compression of one column.
struct Compression {
    session: VortexSession,
    choice: Option<PendingChoice>,
}

impl Compression {
    fn start(&mut self, number: usize, block: Block) -> futures::future::BoxFuture<'static, Block> {
        match &self.choice {
            Some(choice) if !number.is_multiple_of(BLOCKS_PER_CHOICE) => {
                follow(self.session.clone(), choice.clone(), block).boxed()
            }
            _ => self.choose(block),
        }
    }

    fn choose(&mut self, block: Block) -> futures::future::BoxFuture<'static, Block> {
        let (tell, told) = oneshot::channel();
        self.choice = Some(told.map(Result::ok).boxed().shared());
        let session = self.session.clone();
        let chosen = self.session.handle().spawn_cpu(move || {
            let (place, block) = block?;
            let compressed =
                data_schemes().compress(&block, &mut session.create_execution_ctx())?;
            // Nobody waits for it where this is the column's last block.
            let _ = tell.send(Arc::new(Choice::of(&compressed)));
            Ok((place, compressed))
        });
        chosen.boxed()
    }
}

async fn follow(session: VortexSession, choice: PendingChoice, block: Block) -> Block {
    let (place, block) = block?;
    let choice = choice.await;
    let handle = session.handle();
    let compressed = handle.spawn_cpu(move || {
        let mut ctx = session.create_execution_ctx();
        match choice {
            Some(choice) => choice.compress(&block, &mut ctx),
            None => data_schemes().compress(&block, &mut ctx),
        }
    });
    Ok((place, compressed.await?))
}

#[cfg(test)]
mod tests {
    use vortex::array::IntoArray;
    use vortex::array::arrays::PrimitiveArray;

    use super::*;

    const ROWS: u64 = 16_384;

    fn random(n: u64) -> u64 {
        let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
    }

    fn compress(schemes: &BtrBlocksCompressor, block: &ArrayRef) -> ArrayRef {
        let mut ctx = session().create_execution_ctx();
        schemes.compress(block, &mut ctx).unwrap()
    }

    fn follow_choice(of: &ArrayRef, block: &ArrayRef) -> (u64, u64) {
        let choice = Choice::of(&compress(data_schemes(), of));
        let mut ctx = session().create_execution_ctx();
        let alike = choice.compress(block, &mut ctx).unwrap();
        (alike.nbytes(), compress(data_schemes(), block).nbytes())
    }

    /// Columns of different natures, each from row `start` on.
    fn columns(start: u64) -> Vec<ArrayRef> {
        let rows = start..start + ROWS;
        let noise = rows.clone().map(|n| random(n) as f64 / 1e9);
        let degrees = rows
            .clone()
            .map(|n| (random(n) % 3_600_000) as f64 / 10_000.0);
        let keys = rows.clone().map(|n| (n * 7 + random(n) % 5) as i64);
        let few = rows.clone().map(|n| (random(n) % 6) as i32);
        let signed = rows.clone().map(|n| (random(n) % 2_000) as i64 - 1_000);
        let rare = rows.clone().map(|n| {
            if random(n).is_multiple_of(99) {
                n as i64
            } else {
                0
            }
        });
        vec![
            PrimitiveArray::from_iter(noise).into_array(),
            PrimitiveArray::from_iter(degrees).into_array(),
            PrimitiveArray::from_iter(keys).into_array(),
            PrimitiveArray::from_iter(few).into_array(),
            PrimitiveArray::from_iter(signed).into_array(),
            PrimitiveArray::from_iter(rare).into_array(),
        ]
    }

    #[test]
    fn a_block_like_the_one_before_takes_the_bytes_that_all_schemes_give() {
        for (first, later) in columns(0).iter().zip(columns(40 * ROWS)) {
            let (alike, anew) = follow_choice(first, &later);
            assert!(
                alike as f64 <= anew as f64 * 1.02,
                "{alike} {anew} {}",
                compress(data_schemes(), first).display_tree()
            );
        }
    }

    #[test]
    fn a_block_unlike_the_one_before_does_not_suffer_from_it() {
        let columns = columns(0);
        for first in &columns {
            for later in columns.iter().filter(|c| c.dtype() == first.dtype()) {
                let chosen = bytes_per_row(&compress(data_schemes(), first));
                let (alike, anew) = follow_choice(first, later);
                let allowed = (anew as f64).max(chosen * CLEARLY_WORSE * ROWS as f64);
                assert!(alike as f64 <= allowed, "{alike} {anew} {chosen}");
            }
        }
    }

    #[test]
    fn a_choice_leaves_few_schemes() {
        let all = session().compression().schemes().len();
        for column in columns(0) {
            let compressed = compress(data_schemes(), &column);
            let kept = all - unused_schemes(&compressed).len();
            assert!(kept > 0 && kept <= all / 3, "{kept} of {all}");
        }
    }
}
