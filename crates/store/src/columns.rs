//! Columns of the rows of a block, as Arrow arrays: from memory, from their own block, or through Vortex's reader.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef as ArrowArrayRef, AsArray, new_null_array};
use arrow::datatypes::{Field, FieldRef, Fields};
use arrow::error::ArrowError;
use vortex::array::{MaskFuture, VortexSessionExecute};
use vortex::arrow::ArrowSessionExt;
use vortex::error::{VortexError, VortexResult};
use vortex::expr::BoundExpression;
use vortex::layout::LayoutReaderRef;
use vortex::mask::Mask;

use crate::column_blocks::ColumnBlocks;
use crate::decoded_blocks::{CacheLookup, DecodedFile, RequestedRows};
use crate::session::session;
use crate::{OpenFile, ReadCounters, StoreError};

/// Bytes between two blocks that are fetched with them rather than apart.
const APART: u64 = 64 << 10;

/// What reading columns needs of an open file.
pub(crate) struct OpenColumns {
    pub path: Arc<Path>,
    pub layout: LayoutReaderRef,
    blocks: Arc<ColumnBlocks>,
    decoded: Option<Arc<DecodedFile>>,
    /// How many other scans are about to read the same.
    sharers: u32,
    counters: Option<Arc<ReadCounters>>,
}

impl OpenColumns {
    pub fn of(file: &OpenFile, sharers: u32, counters: Option<Arc<ReadCounters>>) -> Self {
        Self {
            sharers,
            counters,
            path: Arc::clone(file.blocks.path()),
            layout: Arc::clone(&file.layout),
            blocks: Arc::clone(&file.columns),
            decoded: file.decoded.clone(),
        }
    }

    fn count_decoded(&self, bytes: u64) {
        if let Some(counters) = &self.counters {
            counters.add_decoded(bytes);
        }
    }

    /// Counts rows that were found decoded.
    fn count_shared(&self, rows: &ArrowArrayRef) {
        if let Some(counters) = &self.counters {
            let width = rows.data_type().primitive_width();
            let bytes =
                width.map_or_else(|| rows.get_buffer_memory_size(), |width| rows.len() * width);
            counters.add_shared(bytes as u64);
        }
    }
}

/// Columns that are read together.
pub(crate) struct Columns(Vec<Column>);

/// A column that is read.
struct Column {
    /// Its number in the file.
    number: usize,
    /// The field that is wanted.
    field: FieldRef,
    source: Source,
}

/// Where a column is read.
enum Source {
    /// By itself, block by block.
    Block,
    /// By Vortex's reader, since it is not laid out in blocks: what to read, and the field as the type of a struct.
    Reader(BoundExpression, Field),
    /// Nowhere: the file was written before its table had the column, which is NULL in all of its rows.
    Missing,
}

impl Columns {
    /// Columns of a file with these numbers, to be given as these fields.
    pub fn new(file: &OpenFile, columns: &[usize], fields: &Fields) -> Result<Self, StoreError> {
        let columns = columns.iter().zip(fields).map(|(number, field)| {
            let own = file.schema().fields().len();
            if *number >= own && !field.is_nullable() {
                return Err(StoreError::WrongScan {
                    path: file.path().to_owned(),
                    message: format!(
                        "it has {own} columns, and none may be missing that is NOT NULL"
                    ),
                });
            }
            Ok(Column {
                number: *number,
                field: Arc::clone(field),
                source: Source::of(file, *number, field)
                    .map_err(|error| StoreError::vortex("scan", file.path(), &error))?,
            })
        });
        columns.collect::<Result<_, _>>().map(Self)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those rows that are in the mask, which is about `rows`; these lie in one block.
    pub async fn read(
        &self,
        file: &OpenColumns,
        rows: &Range<u64>,
        mask: &Mask,
    ) -> Result<Vec<ArrowArrayRef>, StoreError> {
        let mut arrays = Vec::with_capacity(self.0.len());
        for column in &self.0 {
            arrays.push(column.read(file, rows, mask).await?);
        }
        Ok(arrays)
    }
}

impl Columns {
    /// Lets the system fetch what reading blocks of these columns will need and is neither in memory nor in the page cache: the
    /// disk is then requested much at once, and not for a block after the other.
    pub fn read_ahead(&self, file: &OpenColumns, blocks: &[u64]) {
        let stored = |column: &&Column| !matches!(column.source, Source::Missing);
        for column in self.0.iter().filter(stored) {
            let is_kept = |block: u64| {
                let decoded = file.decoded.as_ref();
                decoded.is_some_and(|it| it.has(column.number, block))
            };
            let wanted = blocks.iter().filter(|block| !is_kept(**block));
            let mut together: Option<Range<u64>> = None;
            for place in wanted.filter_map(|block| file.blocks.place(column.number, *block)) {
                match &mut together {
                    Some(before) if place.start.saturating_sub(before.end) <= APART => {
                        before.end = place.end;
                    }
                    _ => {
                        if let Some(before) = together.replace(place) {
                            file.blocks.read_ahead(&before);
                        }
                    }
                }
            }
            if let Some(last) = together {
                file.blocks.read_ahead(&last);
            }
        }
    }
}

impl Source {
    fn of(file: &OpenFile, number: usize, field: &FieldRef) -> VortexResult<Self> {
        if number >= file.schema().fields().len() {
            return Ok(Self::Missing);
        }
        if file.columns.has(number) {
            return Ok(Self::Block);
        }
        let target = Field::new_struct("", [Arc::clone(field)], false);
        Ok(Self::Reader(file.reader_of(number)?, target))
    }
}

impl Column {
    async fn read(
        &self,
        file: &OpenColumns,
        rows: &Range<u64>,
        mask: &Mask,
    ) -> Result<ArrowArrayRef, StoreError> {
        if let Source::Missing = self.source {
            return Ok(self.nulls(mask.true_count()));
        }
        let Some(decoded) = &file.decoded else {
            return self.decode_and_count(file, rows, mask).await;
        };
        let failed = |error: ArrowError| StoreError::vortex("decode", &file.path, &error.into());
        let wanted = RequestedRows {
            column: self.number,
            rows,
            mask,
            data_type: self.field.data_type(),
        };
        let (block, is_worth_keeping) = match decoded.look(wanted, file.sharers).map_err(failed)? {
            CacheLookup::Rows(array) => {
                file.count_shared(&array);
                return Ok(array);
            }
            CacheLookup::No => return self.decode_and_count(file, rows, mask).await,
            CacheLookup::ToKeep(block) => (block, true),
            CacheLookup::ToShare(block) => (block, false),
        };
        let every = Mask::new_true(crate::block_file::len(&block));
        let decode = self.decode(file, &block, &every);
        // On the heap: it is large, and most reads find what they want.
        let found = Box::pin(decoded.get_or_decode(wanted, is_worth_keeping, file.sharers, decode));
        let (array, own) = found.await?;
        let array = array.map_err(failed)?;
        match own {
            Some(bytes) => file.count_decoded(bytes),
            None => file.count_shared(&array),
        }
        Ok(array)
    }

    fn nulls(&self, rows: usize) -> ArrowArrayRef {
        new_null_array(self.field.data_type(), rows)
    }

    async fn decode_and_count(
        &self,
        file: &OpenColumns,
        rows: &Range<u64>,
        mask: &Mask,
    ) -> Result<ArrowArrayRef, StoreError> {
        let array = self.decode(file, rows, mask).await?;
        file.count_decoded(array.get_buffer_memory_size() as u64);
        Ok(array)
    }

    async fn decode(
        &self,
        file: &OpenColumns,
        rows: &Range<u64>,
        mask: &Mask,
    ) -> Result<ArrowArrayRef, StoreError> {
        let (expression, target) = match &self.source {
            Source::Block => {
                return file.blocks.read(self.number, rows, mask, &self.field).await;
            }
            Source::Reader(expression, target) => (expression, target),
            Source::Missing => return Ok(self.nulls(mask.true_count())),
        };
        let failed = |what, error: VortexError| StoreError::vortex(what, &file.path, &error);
        let array = file
            .layout
            .projection_evaluation(rows, expression, MaskFuture::ready(mask.clone()))
            .map_err(|error| failed("scan", error))?
            .await
            .map_err(|error| failed("scan", error))?;
        let mut context = session().create_execution_ctx();
        let structs = session()
            .arrow()
            .execute_arrow(array, Some(target), &mut context)
            .map_err(|error| failed("decode", error))?;
        structs
            .as_struct_opt()
            .and_then(|structs| structs.columns().first().cloned())
            .ok_or_else(|| StoreError::damaged(&file.path, "a column of it is none"))
    }
}
