//! Rows that a scan has come to: tested by the condition, and their columns read where they meet it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef as ArrowArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{concat, filter, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use vortex::array::MaskFuture;
use vortex::buffer::BitBuffer;
use vortex::error::VortexResult;
use vortex::expr::BoundExpression;
use vortex::mask::Mask;

use crate::columns::{Columns, OpenColumns};
use crate::condition::RowCondition;
use crate::scan::batch;
use crate::{ROWS_PER_BLOCK, StoreError};

/// A condition and the columns that it is given.
pub(crate) struct ConditionColumns {
    pub condition: Arc<dyn RowCondition>,
    pub columns: Columns,
}

/// Where a column of the result comes from.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The condition was given it, under this number.
    Tested(usize),
    /// It was read afterwards, under this number.
    Rest(usize),
}

/// What a scan reads of the rows that it looks at.
pub(crate) struct ScanColumns {
    pub file: OpenColumns,
    pub conjuncts: Vec<BoundExpression>,
    pub condition: Option<ConditionColumns>,
    /// The columns that the condition was not given.
    pub rest: Columns,
    /// Where each column of the result comes from.
    pub places: Vec<Place>,
    pub schema: SchemaRef,
}

/// Rows of a block whose columns of the condition were read, but not yet tested.
pub(crate) struct UntestedRows {
    pub columns: Arc<ScanColumns>,
    /// From the first to the last of them.
    pub rows: Range<u64>,
    /// Which of these; at least one.
    pub mask: Mask,
    /// The columns of the condition.
    pub tested: Vec<ArrowArrayRef>,
}

impl ScanColumns {
    /// Whether rows are only counted.
    pub fn reads_nothing(&self) -> bool {
        self.places.is_empty() && self.conjuncts.is_empty() && self.condition.is_none()
    }

    /// Keeps the rows for which `keep` is true in the columns that the result has.
    fn drop_rows(
        &self,
        tested: &mut [ArrowArrayRef],
        keep: &BooleanArray,
    ) -> Result<(), StoreError> {
        for place in &self.places {
            if let Place::Tested(at) = place {
                tested[*at] = filter(&tested[*at], keep)
                    .map_err(|error| StoreError::Condition(Arc::new(error)))?;
            }
        }
        Ok(())
    }

    pub async fn filter(&self, rows: &Range<u64>, mut mask: Mask) -> VortexResult<Mask> {
        for conjunct in &self.conjuncts {
            if mask.all_false() {
                return Ok(mask);
            }
            let input = MaskFuture::ready(mask);
            mask = self
                .file
                .layout
                .filter_evaluation(rows, conjunct, input)?
                .await?;
        }
        Ok(mask)
    }
}

impl UntestedRows {
    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.mask.true_count()
    }

    /// Leaves out the rows that do not meet the condition. Gives whether any is left.
    fn keep(&mut self, keep: BooleanArray) -> Result<bool, StoreError> {
        let columns = Arc::clone(&self.columns);
        match keep.true_count() {
            0 => return Ok(false),
            kept if kept == keep.len() => {}
            _ => {
                columns.drop_rows(&mut self.tested, &keep)?;
                self.mask = intersect(&self.mask, keep);
            }
        }
        Ok(true)
    }

    /// All columns of the result.
    async fn read(&self) -> Result<Vec<ArrowArrayRef>, StoreError> {
        let columns = &self.columns;
        if columns.condition.is_some() && columns.rest.len() > 1 {
            // All columns at once rather than one after another.
            let block = self.rows.start / ROWS_PER_BLOCK as u64;
            columns.rest.read_ahead(&columns.file, &[block]);
        }
        let rest = columns.rest.read(&columns.file, &self.rows, &self.mask);
        let rest = rest.await?;
        let column = |place: &Place| match place {
            Place::Tested(at) => Arc::clone(&self.tested[*at]),
            Place::Rest(at) => Arc::clone(&rest[*at]),
        };
        Ok(columns.places.iter().map(column).collect())
    }
}

/// Tests rows of one request, of whichever files, and reads the others' columns for those that meet the condition; None if there are
/// none. Rows of several blocks are tested and given together.
pub(crate) async fn read_tested(
    mut parts: Vec<UntestedRows>,
) -> Result<Option<RecordBatch>, StoreError> {
    let Some(first) = parts.first() else {
        return Ok(None);
    };
    let columns = Arc::clone(&first.columns);
    if let Some(ConditionColumns { condition, .. }) = &columns.condition {
        let keep = test(condition.as_ref(), &parts)?;
        let (mut start, mut kept) = (0, Vec::with_capacity(parts.len()));
        for mut part in parts {
            let length = part.len();
            if part.keep(keep.slice(start, length))? {
                kept.push(part);
            }
            start += length;
        }
        parts = kept;
    }
    let (path, schema) = (&columns.file.path, &columns.schema);
    let count = parts.iter().map(UntestedRows::len).sum();
    match parts.as_slice() {
        [] => Ok(None),
        [part] => batch(path, schema, part.read().await?, count).map(Some),
        several => {
            let mut of_columns: Vec<Vec<ArrowArrayRef>> = vec![Vec::new(); schema.fields().len()];
            for part in several {
                let read = part.read().await?;
                of_columns
                    .iter_mut()
                    .zip(read)
                    .for_each(|(all, it)| all.push(it));
            }
            batch(path, schema, concatenated(&of_columns, path)?, count).map(Some)
        }
    }
}

/// Which rows of all parts meet the condition.
fn test(condition: &dyn RowCondition, parts: &[UntestedRows]) -> Result<BooleanArray, StoreError> {
    let rows = parts.iter().map(UntestedRows::len).sum();
    let kept = match parts {
        [part] => condition.keep(&part.tested, rows),
        several => {
            let column = |at| {
                several
                    .iter()
                    .map(|part| Arc::clone(&part.tested[at]))
                    .collect()
            };
            let columns: Vec<Vec<ArrowArrayRef>> =
                (0..condition.columns().len()).map(column).collect();
            let path = &several[0].columns.file.path;
            condition.keep(&concatenated(&columns, path)?, rows)
        }
    };
    let keep = kept.map_err(StoreError::Condition)?;
    Ok(match keep.null_count() {
        0 => keep,
        _ => prep_null_mask_filter(&keep),
    })
}

fn concatenated(
    columns: &[Vec<ArrowArrayRef>],
    path: &Path,
) -> Result<Vec<ArrowArrayRef>, StoreError> {
    let joined = columns.iter().map(|parts| {
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        concat(&parts)
    });
    let joined: Result<_, ArrowError> = joined.collect();
    joined.map_err(|error| StoreError::vortex("decode", path, &error.into()))
}

/// The rows of `mask` for which `keep`, which has one value for each of them, is true.
fn intersect(mask: &Mask, keep: BooleanArray) -> Mask {
    let (kept, _) = keep.into_parts();
    let kept = Mask::from_buffer(BitBuffer::from(kept));
    if mask.all_true() {
        kept
    } else {
        mask.intersect_by_rank(&kept)
    }
}
