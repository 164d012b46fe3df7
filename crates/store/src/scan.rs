//! Reading rows of a chunk file as Arrow batches.

use std::collections::VecDeque;
use std::ops::{BitAnd, Range};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef as ArrowArrayRef, BooleanArray};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{filter, prep_null_mask_filter};
use arrow::datatypes::{FieldRef, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};
use vortex::array::MaskFuture;
use vortex::buffer::BitBuffer;
use vortex::error::VortexResult;
use vortex::expr::transform::find_between;
use vortex::expr::{BoundExpression, Expression};
use vortex::mask::{AllOr, Mask};
use vortex::scalar_fn::fns::binary::Binary;
use vortex::scalar_fn::fns::operators::Operator;

use crate::columns::{Columns, OpenColumns};
use crate::condition::{Hint, RowCondition};
use crate::sorted::Sorted;
use crate::{ChunkFile, OpenFile, ROWS_PER_BLOCK, StoreError};

/// Batches of rows, in the order of the file.
pub type BatchStream = BoxStream<'static, Result<RecordBatch, StoreError>>;

/// Rows from which on zone maps are asked: for fewer, reading and evaluating them would take longer than it can spare, and
/// hints are not looked at.
pub const WORTH_PRUNING: usize = 3 * ROWS_PER_BLOCK;

/// Blocks of each column that the system is to fetch before they are read.
const BLOCKS_AHEAD: u64 = 64;
/// Blocks up to which the columns that are read for rows that meet the condition alone are fetched, too.
const FEW_BLOCKS: usize = 4;

/// What to read of a chunk.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Columns, as numbers within the file, in the order wanted, each at most once. None at all
    /// gives batches that have a number of rows only.
    pub projection: Vec<usize>,
    /// Rows for which this is not true (false or NULL) are left out; it names the file's columns.
    pub filter: Option<Expression>,
    /// What every wanted row meets. Blocks whose minima and maxima exclude it are not read; rows are not tested.
    pub hints: Vec<Arc<Hint>>,
    /// Rows that do not meet it are left out as well.
    pub condition: Option<Arc<dyn RowCondition>>,
    /// Rows to read, by their numbers within the chunk, sorted and disjoint; all rows if None.
    pub ranges: Option<Vec<Range<u64>>>,
    /// What the rows of each range are sorted by, if anything: rows with other values than the wanted ones are not read where
    /// they can be told from memory. The condition has to leave them out all the same.
    pub sorted: Option<Sorted>,
    /// The schema of the batches to produce: one field for each column of the projection, with that
    /// column's name and the Arrow type in which it is wanted.
    pub schema: SchemaRef,
}

impl ChunkFile {
    /// Reads rows. The batches have exactly the schema requested and up to [`ROWS_PER_BLOCK`] rows
    /// (without any column: all rows of a range), none of them empty.
    ///
    /// Nothing is read before the stream is polled, and nothing ahead but by the system, into the page cache: reading and decoding
    /// happen on the thread that polls, block by block, so dropping the stream ends the scan, and
    /// whoever wants several cores runs several scans. The stream holds what it needs of the file.
    /// Errors come as items of the stream; the first is its last item.
    pub fn scan(&self, request: ScanRequest) -> BatchStream {
        match self.plan(request) {
            Ok(scan) => scan.into_stream(),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn plan(&self, request: ScanRequest) -> Result<Scan, StoreError> {
        let wrong = |message: String| StoreError::WrongScan {
            path: self.path().to_owned(),
            message,
        };
        if request.schema.fields().len() != request.projection.len() {
            return Err(wrong(format!(
                "{} columns are projected into {} fields",
                request.projection.len(),
                request.schema.fields().len()
            )));
        }
        let file = self.file.as_ref();
        let bind = |filter| {
            bind_conjuncts(filter, file)
                .map_err(|error| StoreError::vortex("scan", self.path(), &error))
        };
        let conjuncts = match &request.filter {
            Some(filter) => bind(filter)?,
            None => Vec::new(),
        };
        let (condition, rest, places) = self.split_columns(&request)?;
        let ranges = match &request.ranges {
            Some(ranges) => {
                check_ranges(ranges, self.num_rows()).map_err(wrong)?;
                ranges.iter().map(|range| self.in_file(range)).collect()
            }
            None => vec![self.rows_in_file()],
        };
        let mut hints: Vec<(BoundExpression, Option<Arc<Hint>>)> = Vec::new();
        if ranges.iter().map(rows).sum::<usize>() >= WORTH_PRUNING {
            hints.extend(conjuncts.iter().map(|conjunct| (conjunct.clone(), None)));
            for hint in request.hints.iter().filter(|hint| hint.is_worth_asking()) {
                for part in bind(&hint.expression)? {
                    hints.push((part, Some(Arc::clone(hint))));
                }
            }
        }
        Ok(Scan {
            file: OpenColumns::of(file),
            hints,
            conjuncts,
            condition,
            rest,
            places,
            ranges: ranges
                .into_iter()
                .map(|range| match &request.sorted {
                    Some(sorted) => file.narrowed(range, sorted),
                    None => range,
                })
                .filter(|range| !range.is_empty())
                .collect(),
            ahead: 0,
            schema: request.schema,
        })
    }

    /// The condition with its columns, the columns that are read after it, and where each column of the result comes from.
    fn split_columns(
        &self,
        request: &ScanRequest,
    ) -> Result<(Option<Conditioned>, Columns, Vec<Place>), StoreError> {
        let fields = request.schema.fields();
        let file = self.file.as_ref();
        let Some(condition) = &request.condition else {
            let rest = Columns::new(file, &request.projection, fields)?;
            let places = (0..request.projection.len()).map(Place::Rest).collect();
            return Ok((None, rest, places));
        };
        let (places, rest) = places(request, condition.as_ref());
        let rest_fields: Vec<FieldRef> = rest.iter().map(|at| Arc::clone(&fields[*at])).collect();
        let rest: Vec<usize> = rest.iter().map(|at| request.projection[*at]).collect();
        let conditioned = Conditioned {
            columns: Columns::new(file, condition.columns(), condition.fields())?,
            condition: Arc::clone(condition),
        };
        let rest = Columns::new(file, &rest, &rest_fields.into())?;
        Ok((Some(conditioned), rest, places))
    }
}

/// Where each column of the projection comes from, and which of them (as places in the projection) are read only for rows
/// that meet the condition. A column that the condition was given is not read again.
fn places(request: &ScanRequest, condition: &dyn RowCondition) -> (Vec<Place>, Vec<usize>) {
    let (tested, fields) = (condition.columns(), condition.fields());
    let mut rest = Vec::new();
    let mut places = Vec::with_capacity(request.projection.len());
    for (at, column) in request.projection.iter().enumerate() {
        let wanted = request.schema.field(at).data_type();
        let known = tested.iter().position(|other| other == column);
        match known.filter(|known| fields[*known].data_type() == wanted) {
            Some(known) => places.push(Place::Tested(known)),
            None => {
                places.push(Place::Rest(rest.len()));
                rest.push(at);
            }
        }
    }
    (places, rest)
}

fn bind_conjuncts(filter: &Expression, file: &OpenFile) -> VortexResult<Vec<BoundExpression>> {
    Ok(conjuncts(&find_between(bind(filter, file)?)?))
}

pub(crate) fn bind(expression: &Expression, file: &OpenFile) -> VortexResult<BoundExpression> {
    expression.bind(file.dtype())?.optimize_recursive()
}

/// The parts of a conjunction, in order: each is pruned and evaluated by itself, on the rows that
/// those before it left.
fn conjuncts(filter: &BoundExpression) -> Vec<BoundExpression> {
    let mut parts = Vec::new();
    let mut pending = vec![filter];
    while let Some(part) = pending.pop() {
        let operator = part
            .as_scalar()
            .and_then(|function| function.as_opt::<Binary>());
        if operator.is_some_and(|operator| *operator == Operator::And) {
            pending.extend(part.children().iter().rev());
        } else {
            parts.push(part.clone());
        }
    }
    parts
}

pub(crate) fn check_ranges(ranges: &[Range<u64>], rows: u64) -> Result<(), String> {
    let mut end = 0;
    for range in ranges {
        if range.start < end || range.end < range.start || range.end > rows {
            return Err(format!(
                "rows {}..{} are out of order or beyond the {rows} rows that there are",
                range.start, range.end
            ));
        }
        end = range.end;
    }
    Ok(())
}

/// A condition and the columns that it is given.
struct Conditioned {
    condition: Arc<dyn RowCondition>,
    columns: Columns,
}

/// Where a column of the result comes from.
#[derive(Clone, Copy)]
enum Place {
    /// The condition was given it, under this number.
    Tested(usize),
    /// It was read afterwards, under this number.
    Rest(usize),
}

/// A scan under way. Its rows have numbers within the file.
struct Scan {
    file: OpenColumns,
    /// What zone maps are asked, before anything is read.
    hints: Vec<(BoundExpression, Option<Arc<Hint>>)>,
    conjuncts: Vec<BoundExpression>,
    condition: Option<Conditioned>,
    /// The columns that the condition was not given.
    rest: Columns,
    /// Where each column of the result comes from.
    places: Vec<Place>,
    /// What is still to be read: sorted, disjoint, none empty.
    ranges: VecDeque<Range<u64>>,
    /// The first block that was not yet fetched ahead.
    ahead: u64,
    schema: SchemaRef,
}

impl Scan {
    fn into_stream(self) -> BatchStream {
        stream::try_unfold(self, |mut scan| async move {
            scan.prune().await?;
            scan.read_ahead();
            while let Some(part) = scan.next_part() {
                // Everything below is ready at once: without this, a long scan would keep its thread
                // from every other task, its own cancellation among them.
                tokio::task::consume_budget().await;
                if let Some(batch) = scan.read(part).await? {
                    return Ok(Some((batch, scan)));
                }
            }
            Ok(None)
        })
        .boxed()
    }

    /// Has the next blocks fetched that are read in any case: those of the condition's columns, and of all where there is no
    /// condition or where so few rows are looked at that some are likely to meet it. The others are fetched block by block.
    fn read_ahead(&mut self) {
        let block = ROWS_PER_BLOCK as u64;
        let Some(next) = self.ranges.front().map(|range| range.start / block) else {
            return;
        };
        if next + BLOCKS_AHEAD / 2 < self.ahead {
            return;
        }
        let wanted = next.max(self.ahead)..next + BLOCKS_AHEAD;
        self.ahead = wanted.end;
        let of_range = |range: &Range<u64>| range.start / block..range.end.div_ceil(block);
        let mut blocks: Vec<u64> = (self.ranges.iter().map(of_range))
            .take_while(|blocks| blocks.start < wanted.end)
            .flatten()
            .filter(|block| wanted.contains(block))
            .collect();
        blocks.dedup();
        if let Some(conditioned) = &self.condition {
            conditioned.columns.read_ahead(&self.file, &blocks);
        }
        if self.condition.is_none() || blocks.len() <= FEW_BLOCKS {
            self.rest.read_ahead(&self.file, &blocks);
        }
    }

    /// Takes the blocks that the zone maps exclude out of what is still to be read.
    async fn prune(&mut self) -> Result<(), StoreError> {
        let hints = std::mem::take(&mut self.hints);
        let (Some(first), Some(last)) = (self.ranges.front(), self.ranges.back()) else {
            return Ok(());
        };
        let span = first.start..last.end;
        let mut mask = Mask::new_true(rows(&span));
        for (condition, hint) in hints {
            let before = mask.true_count();
            mask = self
                .not_excluded_by(&span, &condition, mask)
                .await
                .map_err(|error| StoreError::vortex("scan", &self.file.path, &error))?;
            if let Some(hint) = hint {
                hint.was_asked(mask.true_count() < before);
            }
        }
        if mask.all_true() {
            return Ok(());
        }
        let mut kept = VecDeque::new();
        while let Some((part, wanted)) = self.next_part() {
            let at = rows(&(span.start..part.start))..rows(&(span.start..part.end));
            if mask.slice(at).all_false() {
                continue;
            }
            kept.extend(ranges_of(&part, &wanted));
        }
        self.ranges = kept;
        Ok(())
    }

    async fn not_excluded_by(
        &self,
        span: &Range<u64>,
        hint: &BoundExpression,
        mask: Mask,
    ) -> VortexResult<Mask> {
        if mask.all_false() {
            return Ok(mask);
        }
        let kept = self
            .file
            .layout
            .pruning_evaluation(span, hint, mask.clone())?
            .await?;
        Ok(mask.bitand(&kept))
    }

    /// Takes the wanted rows of the next block from the ranges: the range from the first to the last
    /// of them, and which rows in it are wanted. Several ranges in one block make one part, so the
    /// block is read once. Where nothing has to be read, a part is a whole range.
    fn next_part(&mut self) -> Option<(Range<u64>, Mask)> {
        let first = self.ranges.pop_front()?;
        if self.reads_nothing() {
            let mask = Mask::new_true(rows(&first));
            return Some((first, mask));
        }
        let block = ROWS_PER_BLOCK as u64;
        let block_end = first.start - first.start % block + block;
        let mut wanted: Vec<Range<u64>> = Vec::new();
        let mut next = Some(first);
        while let Some(range) = next.take() {
            if range.start >= block_end {
                self.ranges.push_front(range);
            } else if range.end > block_end {
                self.ranges.push_front(block_end..range.end);
                wanted.push(range.start..block_end);
            } else {
                wanted.push(range);
                next = self.ranges.pop_front();
            }
        }
        let start = wanted.first()?.start;
        let part = start..wanted.last()?.end;
        let mask = match wanted.as_slice() {
            [_] => Mask::new_true(rows(&part)),
            several => Mask::from_slices(
                rows(&part),
                several
                    .iter()
                    .map(|r| (rows(&(start..r.start)), rows(&(start..r.end))))
                    .collect(),
            ),
        };
        Some((part, mask))
    }

    /// Whether rows are only counted.
    fn reads_nothing(&self) -> bool {
        self.places.is_empty() && self.conjuncts.is_empty() && self.condition.is_none()
    }

    /// The rows of a part that are wanted; None if there are none.
    async fn read(
        &self,
        (rows, mask): (Range<u64>, Mask),
    ) -> Result<Option<RecordBatch>, StoreError> {
        let mut mask = self
            .filter(&rows, mask)
            .await
            .map_err(|error| StoreError::vortex("scan", &self.file.path, &error))?;
        if mask.all_false() {
            return Ok(None);
        }
        let mut tested = Vec::new();
        if let Some(Conditioned { condition, columns }) = &self.condition {
            tested = columns.read(&self.file, &rows, &mask).await?;
            let keep = condition
                .keep(&tested, mask.true_count())
                .map_err(StoreError::Condition)?;
            let keep = match keep.null_count() {
                0 => keep,
                _ => prep_null_mask_filter(&keep),
            };
            match keep.true_count() {
                0 => return Ok(None),
                kept if kept == keep.len() => {}
                _ => {
                    self.drop_rows(&mut tested, &keep)?;
                    mask = intersect(&mask, keep);
                }
            }
        }
        let count = mask.true_count();
        if self.condition.is_some() {
            // All columns at once rather than one after another.
            let block = rows.start / ROWS_PER_BLOCK as u64;
            self.rest.read_ahead(&self.file, &[block]);
        }
        let rest = self.rest.read(&self.file, &rows, &mask).await?;
        let columns = self
            .places
            .iter()
            .map(|place| match place {
                Place::Tested(at) => Arc::clone(&tested[*at]),
                Place::Rest(at) => Arc::clone(&rest[*at]),
            })
            .collect();
        batch(&self.file.path, &self.schema, columns, count).map(Some)
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

    async fn filter(&self, rows: &Range<u64>, mut mask: Mask) -> VortexResult<Mask> {
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

/// Columns of some rows of a file as a batch.
pub(crate) fn batch(
    path: &Path,
    schema: &SchemaRef,
    columns: Vec<ArrowArrayRef>,
    rows: usize,
) -> Result<RecordBatch, StoreError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(|error| {
        StoreError::WrongScan {
            path: path.to_owned(),
            message: error.to_string(),
        }
    })
}

/// The ranges of rows of a part that are in its mask.
fn ranges_of(part: &Range<u64>, wanted: &Mask) -> Vec<Range<u64>> {
    match wanted.slices() {
        AllOr::All => vec![part.clone()],
        AllOr::None => Vec::new(),
        AllOr::Some(slices) => slices
            .iter()
            .map(|(start, end)| part.start + *start as u64..part.start + *end as u64)
            .collect(),
    }
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

fn rows(range: &Range<u64>) -> usize {
    crate::block_file::len(range)
}
