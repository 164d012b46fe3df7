//! Finding rows by the column that they are sorted by, where it is in memory.

use std::ops::Range;
use std::slice;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use vortex::mask::Mask;

use crate::block_file::len;
use crate::block_rows::rows_of;
use crate::columns::{Columns, OpenColumns};
use crate::scan::{batch, check_ranges};
use crate::{ChunkFile, OpenFile, ROWS_PER_BLOCK, StoreError};

/// Blocks that a range may touch to be searched: looking many of them up takes longer than it spares.
const MOST_BLOCKS: usize = 4;

/// A column of 64-bit integers by which the rows of each range are sorted, and the values in it that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedColumn {
    /// The column's number in the file.
    pub column: usize,
    /// The least value that is wanted.
    pub least: i64,
    /// The greatest.
    pub greatest: i64,
}

impl ChunkFile {
    /// The rows of a range of the chunk's, which is sorted by a column, that have one of the wanted values there; `None` where it takes reading
    /// to tell, or where the rows turn out not to be sorted.
    pub fn find(&self, range: Range<u64>, sorted: &SortedColumn) -> Option<Range<u64>> {
        check_ranges(slice::from_ref(&range), self.num_rows()).ok()?;
        let range = self.in_file(&range);
        let keys = self.file.kept_keys(&range, sorted.column)?;
        let found = keys.narrowed(range, sorted);
        let wanted = sorted.least..=sorted.greatest;
        let mut rows = found.clone();
        rows.all(|row| wanted.contains(&keys.at(row)))
            .then(|| self.in_chunk(&found))
    }

    /// Columns of a few rows of the chunk, read without any condition: for so few that a stream of batches would be more work than reading.
    ///
    /// # Errors
    /// Those of [`Self::scan`].
    pub async fn read_rows(
        &self,
        rows: Range<u64>,
        columns: &[usize],
        schema: &SchemaRef,
    ) -> Result<RecordBatch, StoreError> {
        check_ranges(slice::from_ref(&rows), self.num_rows()).map_err(|message| {
            StoreError::WrongScan {
                path: self.path().to_owned(),
                message,
            }
        })?;
        self.file
            .read_rows(self.in_file(&rows), columns, schema)
            .await
    }
}

/// Rows have numbers within the file here.
impl OpenFile {
    async fn read_rows(
        &self,
        rows: Range<u64>,
        columns: &[usize],
        schema: &SchemaRef,
    ) -> Result<RecordBatch, StoreError> {
        if let Some(kept) = self.kept_rows(&rows, columns, schema)? {
            return Ok(kept);
        }
        let (file, columns) = (
            OpenColumns::of(self, 0, None),
            Columns::new(self, columns, schema.fields())?,
        );
        let mut parts = Vec::new();
        let mut start = rows.start;
        while start < rows.end {
            let block_end = (start + 1).next_multiple_of(ROWS_PER_BLOCK as u64);
            let part = start..rows.end.min(block_end);
            start = part.end;
            let arrays = columns
                .read(&file, &part, &Mask::new_true(len(&part)))
                .await?;
            parts.push(batch(&file.path, schema, arrays, len(&part))?);
        }
        match parts.as_slice() {
            [one] => Ok(one.clone()),
            several => concat_batches(schema, several)
                .map_err(|error| StoreError::vortex("scan", &file.path, &error.into())),
        }
    }

    /// The same from memory alone; `None` where a block is not there, or the rows lie in several.
    fn kept_rows(
        &self,
        rows: &Range<u64>,
        columns: &[usize],
        schema: &SchemaRef,
    ) -> Result<Option<RecordBatch>, StoreError> {
        let Some(decoded) = &self.decoded else {
            return Ok(None);
        };
        let block = rows.start / ROWS_PER_BLOCK as u64;
        let first = block * ROWS_PER_BLOCK as u64;
        if rows.is_empty() || rows.end > first + ROWS_PER_BLOCK as u64 {
            return Ok(None);
        }
        let own = self.schema().fields().len();
        let (start, mask) = (len(&(first..rows.start)), Mask::new_true(len(rows)));
        let fields = columns.iter().zip(schema.fields());
        let kept = fields.map(|(column, field)| match *column < own {
            true => decoded.kept(*column, block, field.data_type()).map(Some),
            false => field.is_nullable().then_some(None),
        });
        let Some(kept) = kept.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let arrays = kept.iter().zip(schema.fields());
        let arrays = arrays.map(|(block, field)| match block {
            Some(block) => rows_of(block, start, &mask),
            None => Ok(new_null_array(field.data_type(), len(rows))),
        });
        let arrays = arrays
            .collect::<Result<_, ArrowError>>()
            .map_err(|error| StoreError::vortex("decode", self.path(), &error.into()))?;
        batch(self.path(), schema, arrays, len(rows)).map(Some)
    }

    /// The part of a range that has all wanted values of a column by which its rows are sorted: where the blocks of the column
    /// are kept in memory only their rows, else the whole range.
    pub(crate) fn narrowed(&self, range: Range<u64>, sorted: &SortedColumn) -> Range<u64> {
        match self.kept_keys(&range, sorted.column) {
            Some(keys) => keys.narrowed(range, sorted),
            None => range,
        }
    }

    /// The values of a column in all blocks that a range touches, if they are in memory and none in the range is NULL.
    fn kept_keys(&self, range: &Range<u64>, column: usize) -> Option<Keys> {
        let decoded = self.decoded.as_ref()?;
        let first = range.start / ROWS_PER_BLOCK as u64;
        let blocks = first..range.end.div_ceil(ROWS_PER_BLOCK as u64);
        if len(&blocks) > MOST_BLOCKS {
            return None;
        }
        let kept = blocks.map(|block| decoded.kept(column, block, &DataType::Int64));
        Keys::of(range, kept)
    }
}

/// The values of a column in blocks that follow each other.
struct Keys {
    blocks: Vec<Int64Array>,
    /// The first row of the first block.
    first_row: u64,
}

impl Keys {
    /// Those of the blocks that a range touches; `None` where a block is not there, is of another type, or has a NULL in the range:
    /// NULLs of other sub-chunks, and of other chunks of the file, do not count.
    fn of(range: &Range<u64>, blocks: impl Iterator<Item = Option<ArrayRef>>) -> Option<Self> {
        let first_row = range.start - range.start % ROWS_PER_BLOCK as u64;
        let keys = (first_row..).step_by(ROWS_PER_BLOCK).zip(blocks);
        let keys = keys.map(|(start, block)| {
            let keys = block?.as_primitive_opt::<Int64Type>()?.clone();
            let end = start + keys.len() as u64;
            let part = range.start.clamp(start, end)..range.end.clamp(start, end);
            let known = keys.null_count() == 0
                || keys
                    .slice(len(&(start..part.start)), len(&part))
                    .null_count()
                    == 0;
            known.then_some(keys)
        });
        Some(Self {
            blocks: keys.collect::<Option<_>>()?,
            first_row,
        })
    }

    fn at(&self, row: u64) -> i64 {
        let at = len(&(self.first_row..row));
        self.blocks[at / ROWS_PER_BLOCK].value(at % ROWS_PER_BLOCK)
    }

    /// The part of a range, which is sorted, that has the wanted values.
    fn narrowed(&self, range: Range<u64>, sorted: &SortedColumn) -> Range<u64> {
        let first = partition_point(range.clone(), |row| self.at(row) < sorted.least);
        let end = partition_point(first..range.end, |row| self.at(row) <= sorted.greatest);
        first..end
    }
}

/// The first row of a range for which something does not hold that holds for those before it and for none behind it.
fn partition_point(mut rows: Range<u64>, holds: impl Fn(u64) -> bool) -> u64 {
    while rows.start < rows.end {
        let middle = rows.start + (rows.end - rows.start) / 2;
        if holds(middle) {
            rows.start = middle + 1;
        } else {
            rows.end = middle;
        }
    }
    rows.start
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = ROWS_PER_BLOCK as u64;

    /// The blocks of rows of which `from` and those behind it have these keys.
    fn blocks(from: u64, keys: &[i64]) -> Option<Keys> {
        let lead = len(&(from - from % BLOCK..from));
        // Other sub-chunks' rows, which are not looked at.
        let mut all = vec![i64::MAX; lead];
        all.extend(keys);
        let blocks = all.chunks(ROWS_PER_BLOCK);
        let blocks = blocks.map(|keys| Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef);
        Keys::of(&(from..from + keys.len() as u64), blocks.map(Some))
    }

    #[test]
    fn keys_that_are_not_all_known_are_not_searched() {
        let whole = || Some(Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef);
        let with_null = || Some(Arc::new(Int64Array::from(vec![None, Some(2)])) as ArrayRef);
        let of =
            |range: Range<u64>, blocks: [Option<ArrayRef>; 1]| Keys::of(&range, blocks.into_iter());
        assert!(of(0..2, [whole()]).is_some());
        assert!(of(0..2, [None]).is_none());
        assert!(of(0..2, [with_null()]).is_none());
        assert!(of(BLOCK..BLOCK + 1, [with_null()]).is_none());
        // The NULL is another's.
        assert!(of(1..2, [with_null()]).is_some());
        assert!(of(BLOCK + 1..BLOCK + 2, [with_null()]).is_some());
    }

    proptest! {
        #[test]
        fn all_wanted_rows_and_no_others_are_found(
            from in prop_oneof![0..3 * BLOCK, BLOCK - 3..BLOCK + 3],
            mut keys in proptest::collection::vec(prop_oneof![-5..5_i64, any::<i64>()], 0..100),
            least in -7..7_i64,
            more in 0..4_i64,
        ) {
            keys.sort_unstable();
            let sorted = SortedColumn { column: 0, least, greatest: least + more };
            let range = from..from + keys.len() as u64;
            let found = blocks(from, &keys).unwrap().narrowed(range.clone(), &sorted);
            for (row, key) in range.zip(&keys) {
                prop_assert_eq!(found.contains(&row), (least..=least + more).contains(key));
            }
        }
    }
}
