//! How the columns of a chunk file are laid out: blocks, zone maps, dictionaries, compression.
//!
//! The rows come cut into whole blocks ([`crate::blocks`]).
//!
//! It is the layout of Vortex's own [`vortex::file::WriteStrategyBuilder`] with three things done otherwise, all for the
//! time that writing takes: the schemes of a block serve the blocks that follow ([`crate::compress`]), no statistics are
//! computed for every block but those of the zone maps, and these are taken from Arrow ([`crate::block_statistics`]).

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use vortex::layout::LayoutStrategy;
use vortex::layout::layouts::buffered::BufferedStrategy;
use vortex::layout::layouts::chunked::writer::ChunkedLayoutStrategy;
use vortex::layout::layouts::collect::CollectStrategy;
use vortex::layout::layouts::compressed::{CompressingStrategy, CompressorPlugin};
use vortex::layout::layouts::dict::writer::DictStrategy;
use vortex::layout::layouts::flat::writer::FlatLayoutStrategy;
use vortex::layout::layouts::repartition::{RepartitionStrategy, RepartitionWriterOptions};
use vortex::layout::layouts::table::TableStrategy;
use vortex::layout::layouts::zoned::writer::{ZonedLayoutOptions, ZonedStrategy};

use crate::compress::{CompressAlike, all_schemes};
use crate::write::ROWS_PER_BLOCK;

/// Bytes of a column that are gathered before they are written, so that they lie together in the file.
const BYTES_TOGETHER: u64 = 2 << 20;

/// The layout of all chunk files.
pub(crate) fn chunk_layout() -> Arc<dyn LayoutStrategy> {
    static LAYOUT: LazyLock<Arc<dyn LayoutStrategy>> = LazyLock::new(|| Arc::new(table()));
    LAYOUT.clone()
}

fn table() -> TableStrategy {
    let compressor: Arc<dyn CompressorPlugin> = Arc::new(all_schemes().clone());
    // Tables of zones, and the values of dictionaries.
    let small = CompressingStrategy::new(FlatLayoutStrategy::default(), compressor.clone());
    let blocks = ChunkedLayoutStrategy::new(FlatLayoutStrategy::default());
    let together = BufferedStrategy::new(blocks, BYTES_TOGETHER);
    let compressed = Arc::new(CompressAlike::new(together));
    // A dictionary that is full ends within a block: its codes are cut anew.
    let codes = RepartitionStrategy::new(
        compressed.clone() as Arc<dyn LayoutStrategy>,
        RepartitionWriterOptions {
            block_size_minimum: 0,
            block_len_multiple: ROWS_PER_BLOCK,
            block_size_target: None,
            canonicalize: true,
        },
    );
    let dictionary = DictStrategy::new(
        codes,
        small.clone(),
        compressed as Arc<dyn LayoutStrategy>,
        Default::default(),
        compressor,
    );
    let zoned = ZonedStrategy::new(
        dictionary,
        small.clone(),
        ZonedLayoutOptions {
            block_size: NonZeroUsize::new(ROWS_PER_BLOCK).unwrap_or(NonZeroUsize::MIN),
            ..Default::default()
        },
    );
    TableStrategy::new(Arc::new(CollectStrategy::new(small)), Arc::new(zoned))
}
