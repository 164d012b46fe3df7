//! The blocks of each column of a chunk file, read one by one.
//!
//! Vortex's own reader walks its tree of layouts for every block of every column, with a future at each level; a block takes
//! longer to reach than to decode then. Our files have the same shape throughout, so the way to each block is walked once.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::ArrayRef as ArrowArrayRef;
use arrow::datatypes::Field;
use vortex::array::VortexSessionExecute;
use vortex::array::buffer::BufferHandle;
use vortex::array::serde::SerializedArray;
use vortex::arrow::ArrowSessionExt;
use vortex::error::{VortexError, VortexResult};
use vortex::file::SegmentSpec;
use vortex::layout::layouts::chunked::Chunked;
use vortex::layout::layouts::flat::{Flat, FlatLayout};
use vortex::layout::{LayoutChildType, LayoutRef};
use vortex::mask::Mask;

use crate::block_file::{BlockFile, len};
use crate::session::session;
use crate::{ROWS_PER_BLOCK, StoreError};

/// The columns of a file as blocks of [`ROWS_PER_BLOCK`] rows.
pub(crate) struct ColumnBlocks {
    blocks: Arc<BlockFile>,
    segments: Arc<[SegmentSpec]>,
    /// The layout of each column.
    layouts: Vec<LayoutRef>,
    /// Its blocks, once somebody has requested them; none if it is not laid out in blocks.
    found: Vec<OnceLock<Option<Vec<FlatLayout>>>>,
}

impl ColumnBlocks {
    /// The columns of a file whose rows have this layout.
    pub fn new(
        blocks: Arc<BlockFile>,
        segments: Arc<[SegmentSpec]>,
        rows: &LayoutRef,
    ) -> VortexResult<Self> {
        let mut layouts = Vec::with_capacity(rows.nslots());
        for slot in 0..rows.nslots() {
            if let Some(LayoutChildType::Field(_)) = rows.slot_type(slot) {
                layouts.extend(rows.slot(slot)?);
            }
        }
        Ok(Self {
            blocks,
            segments,
            found: layouts.iter().map(|_| OnceLock::new()).collect(),
            layouts,
        })
    }

    /// Whether [`Self::read`] can read this column.
    pub fn has(&self, column: usize) -> bool {
        self.of(column).is_some()
    }

    fn of(&self, column: usize) -> Option<&[FlatLayout]> {
        let found = self.found.get(column)?;
        found
            .get_or_init(|| blocks_of(&self.layouts[column]).ok().flatten())
            .as_deref()
    }

    /// Those rows of a column that are in the mask, which is about `rows`; these lie in one block.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`], [`StoreError::Decode`].
    pub async fn read(
        &self,
        column: usize,
        rows: &Range<u64>,
        mask: &Mask,
        field: &Field,
    ) -> Result<ArrowArrayRef, StoreError> {
        let failed = |error: VortexError| StoreError::vortex("decode", self.blocks.path(), &error);
        let block = rows.start / ROWS_PER_BLOCK as u64;
        let first = block * ROWS_PER_BLOCK as u64;
        let layout = self
            .of(column)
            .and_then(|blocks| blocks.get(usize::try_from(block).ok()?))
            .ok_or_else(|| {
                StoreError::damaged(self.blocks.path(), "its metadata name no such block")
            })?;
        let segment = self.segment(layout).await?;
        let rows = len(&(first..rows.start))..len(&(first..rows.end));
        decode(layout, segment, rows, mask, field).map_err(failed)
    }

    /// Where a block lies in the file; `None` if [`Self::read`] cannot read it.
    pub fn place(&self, column: usize, block: u64) -> Option<Range<u64>> {
        let layout = self.of(column)?.get(usize::try_from(block).ok()?)?;
        let spec = self.segments.get(*layout.segment_id() as usize)?;
        Some(spec.offset..spec.offset.saturating_add(u64::from(spec.length)))
    }

    /// Has bytes fetched that will be read soon.
    pub fn read_ahead(&self, bytes: &Range<u64>) {
        self.blocks.read_ahead(bytes);
    }

    async fn segment(&self, layout: &FlatLayout) -> Result<BufferHandle, StoreError> {
        let spec = self
            .segments
            .get(*layout.segment_id() as usize)
            .ok_or_else(|| {
                StoreError::damaged(self.blocks.path(), "its metadata name no such segment")
            })?;
        let end = spec.offset.saturating_add(u64::from(spec.length));
        self.blocks
            .read(spec.offset..end, spec.alignment)
            .await
            .map(BufferHandle::new_host)
    }
}

fn decode(
    layout: &FlatLayout,
    segment: BufferHandle,
    rows: Range<usize>,
    mask: &Mask,
    field: &Field,
) -> VortexResult<ArrowArrayRef> {
    let session = session();
    let all = len(&(0..layout.row_count()));
    let serialized = match layout.array_tree() {
        Some(tree) => SerializedArray::from_flatbuffer_and_segment(tree.clone(), segment)?,
        None => SerializedArray::try_from(segment)?,
    };
    let mut array = serialized.decode(layout.dtype(), all, layout.array_ctx(), session)?;
    if rows != (0..all) {
        array = array.slice(rows)?;
    }
    if !mask.all_true() {
        array = array.filter(mask.clone())?;
    }
    let mut context = session.create_execution_ctx();
    session
        .arrow()
        .execute_arrow(array, Some(field), &mut context)
}

/// The blocks of a column with this layout; `None` if it is laid out in another way, as text with few different values is.
fn blocks_of(column: &LayoutRef) -> VortexResult<Option<Vec<FlatLayout>>> {
    let mut layout = Arc::clone(column);
    // Zone maps stand above the rows that they describe.
    while let Some(LayoutChildType::Transparent(_)) = layout.slot_type(0) {
        match layout.slot(0)? {
            Some(rows) => layout = rows,
            None => return Ok(None),
        }
    }
    let parts = if layout.is::<Chunked>() {
        layout.children()?
    } else {
        vec![layout]
    };
    let mut blocks = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let whole = part.row_count() == ROWS_PER_BLOCK as u64;
        let last = at + 1 == parts.len() && part.row_count() <= ROWS_PER_BLOCK as u64;
        match part.as_opt::<Flat>() {
            Some(flat) if whole || last => blocks.push(flat.clone()),
            _ => return Ok(None),
        }
    }
    Ok(Some(blocks))
}
