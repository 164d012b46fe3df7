//! Reading rows of a chunk file as Arrow batches.

use std::collections::VecDeque;
use std::ops::{BitAnd, Range};
use std::path::Path;
use std::sync::Arc;

use arrow::array::ArrayRef as ArrowArrayRef;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};
use vortex::error::VortexResult;
use vortex::expr::transform::find_between;
use vortex::expr::{BoundExpression, Expression};
use vortex::mask::{AllOr, Mask};
use vortex::scalar_fn::fns::binary::Binary;
use vortex::scalar_fn::fns::operators::Operator;

use crate::columns::{Columns, OpenColumns};
use crate::condition::{Hint, RowCondition};
use crate::sorted::SortedColumn;
use crate::untested_rows::{ConditionColumns, Place, ScanColumns, UntestedRows, read_tested};
use crate::{ChunkFile, OpenFile, ROWS_PER_BLOCK, ReadCounters, StoreError};

/// Batches of rows, in the order of the file.
pub type BatchStream = BoxStream<'static, Result<RecordBatch, StoreError>>;

/// Rows from which on zone maps are asked: for fewer, reading and evaluating them would take longer than it can spare, and
/// hints are not looked at.
pub const WORTH_PRUNING: usize = 3 * ROWS_PER_BLOCK;

/// Blocks of each column that the system is to fetch before they are read.
const BLOCKS_AHEAD: u64 = 64;
/// Blocks up to which the columns that are read for rows that meet the condition alone are fetched, too.
const FEW_BLOCKS: usize = 4;

/// What to read of a chunk, or of a file.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Columns, as numbers within the file, in the order wanted, each at most once. None at all
    /// gives batches that have a number of rows only. One beyond the last column of the file, which was
    /// written before the table had it, is NULL.
    pub projection: Vec<usize>,
    /// Rows for which this is not true (false or NULL) are left out; it names the file's columns.
    pub filter: Option<Expression>,
    /// What every wanted row meets. Blocks whose minima and maxima exclude it are not read; rows are not tested.
    pub hints: Vec<Arc<Hint>>,
    /// Rows that do not meet it are left out as well.
    pub condition: Option<Arc<dyn RowCondition>>,
    /// Rows to read, by their numbers within the chunk or file, sorted and disjoint; all rows if None.
    pub ranges: Option<Vec<Range<u64>>>,
    /// What the rows of each range are sorted by, if anything: rows with other values than the wanted ones are not read where
    /// they can be told from memory. The condition has to leave them out all the same.
    pub sorted: Option<SortedColumn>,
    /// How many other scans are about to read the same rows, so that what is decoded for this one should serve them.
    pub sharers: u32,
    /// Where bytes are counted, if anywhere.
    pub counters: Option<Arc<ReadCounters>>,
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
    pub fn scan(&self, mut request: ScanRequest) -> BatchStream {
        let ranges = match &request.ranges {
            Some(ranges) => {
                if let Err(message) = check_ranges(ranges, self.num_rows()) {
                    let path = self.path().to_owned();
                    return failed(StoreError::WrongScan { path, message });
                }
                ranges.iter().map(|range| self.in_file(range)).collect()
            }
            None => vec![self.rows_in_file()],
        };
        request.ranges = Some(ranges);
        self.file.scan(request)
    }
}

fn failed(error: StoreError) -> BatchStream {
    stream::once(async { Err(error) }).boxed()
}

impl OpenFile {
    /// Reads rows as [`ChunkFile::scan`] does, of whichever chunks: the ranges of the request have their numbers within the file.
    pub fn scan(&self, request: ScanRequest) -> BatchStream {
        match self.plan(request) {
            Ok(scan) => scan.into_stream(),
            Err(error) => failed(error),
        }
    }

    pub(crate) fn plan(&self, request: ScanRequest) -> Result<Scan, StoreError> {
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
        let bind = |filter| {
            bind_conjuncts(filter, self)
                .map_err(|error| StoreError::vortex("scan", self.path(), &error))
        };
        let conjuncts = match &request.filter {
            Some(filter) => bind(filter)?,
            None => Vec::new(),
        };
        let (condition, rest, places) = self.split_columns(&request)?;
        let mut ranges = match &request.ranges {
            Some(ranges) => {
                check_ranges(ranges, self.num_rows()).map_err(wrong)?;
                ranges.clone()
            }
            None => std::iter::once(0..self.num_rows()).collect(),
        };
        if self.lacks_what_is_wanted(&request) {
            ranges.clear();
        }
        let mut hints: Vec<(BoundExpression, Option<Arc<Hint>>)> = Vec::new();
        if ranges.iter().map(rows).sum::<usize>() >= WORTH_PRUNING {
            hints.extend(conjuncts.iter().map(|conjunct| (conjunct.clone(), None)));
            let own = self.schema().fields().len();
            let is_asked = |hint: &&Arc<Hint>| hint.fits(own) && hint.is_worth_asking();
            for hint in request.hints.iter().filter(is_asked) {
                for part in bind(&hint.expression)? {
                    hints.push((part, Some(Arc::clone(hint))));
                }
            }
        }
        let columns = ScanColumns {
            file: OpenColumns::of(self, request.sharers, request.counters),
            conjuncts,
            condition,
            rest,
            places,
            schema: request.schema,
        };
        Ok(Scan {
            columns: Arc::new(columns),
            hints,
            ranges: ranges
                .into_iter()
                .map(|range| match &request.sorted {
                    Some(sorted) => self.narrowed(range, sorted),
                    None => range,
                })
                .filter(|range| !range.is_empty())
                .collect(),
            ahead: 0,
        })
    }

    /// Whether no row meets the condition, since the file lacks columns of it.
    fn lacks_what_is_wanted(&self, request: &ScanRequest) -> bool {
        let own = self.schema().fields().len();
        let condition = request.condition.as_ref();
        condition.is_some_and(|condition| {
            let is_missing = |column: &usize| *column >= own;
            condition.columns().iter().any(is_missing) && !condition.may_keep_without(own)
        })
    }

    /// The condition with its columns, the columns that are read after it, and where each column of the result comes from.
    fn split_columns(
        &self,
        request: &ScanRequest,
    ) -> Result<(Option<ConditionColumns>, Columns, Vec<Place>), StoreError> {
        let fields = request.schema.fields();
        let Some(condition) = &request.condition else {
            let rest = Columns::new(self, &request.projection, fields)?;
            let places = (0..request.projection.len()).map(Place::Rest).collect();
            return Ok((None, rest, places));
        };
        let (places, rest) = places(request, condition.as_ref());
        let rest_fields: Vec<FieldRef> = rest.iter().map(|at| Arc::clone(&fields[*at])).collect();
        let rest: Vec<usize> = rest.iter().map(|at| request.projection[*at]).collect();
        let conditioned = ConditionColumns {
            columns: Columns::new(self, condition.columns(), condition.fields())?,
            condition: Arc::clone(condition),
        };
        let rest = Columns::new(self, &rest, &rest_fields.into())?;
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

/// A scan under way. Its rows have numbers within the file.
pub(crate) struct Scan {
    columns: Arc<ScanColumns>,
    /// What zone maps are asked, before anything is read.
    hints: Vec<(BoundExpression, Option<Arc<Hint>>)>,
    /// What is still to be read: sorted, disjoint, none empty.
    ranges: VecDeque<Range<u64>>,
    /// The first block that was not yet fetched ahead.
    ahead: u64,
}

impl Scan {
    fn into_stream(self) -> BatchStream {
        stream::try_unfold(self, |mut scan| async move {
            scan.begin().await?;
            while let Some(part) = scan.next_rows().await? {
                if let Some(batch) = read_tested(vec![part]).await? {
                    return Ok(Some((batch, scan)));
                }
            }
            Ok(None)
        })
        .boxed()
    }

    /// Asks the zone maps, once.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        self.prune().await?;
        self.read_ahead();
        Ok(())
    }

    /// The next rows that are wanted, by all that is known without the condition.
    pub(crate) async fn next_rows(&mut self) -> Result<Option<UntestedRows>, StoreError> {
        while let Some((rows, mask)) = self.next_part() {
            // Everything below is ready at once: without this, a long scan would keep its thread
            // from every other task, its own cancellation among them.
            tokio::task::consume_budget().await;
            let columns = Arc::clone(&self.columns);
            let mask = columns.filter(&rows, mask).await;
            let mask = mask.map_err(|e| StoreError::vortex("scan", &columns.file.path, &e))?;
            if mask.all_false() {
                continue;
            }
            let tested = match &columns.condition {
                Some(condition) => condition.columns.read(&columns.file, &rows, &mask).await?,
                None => Vec::new(),
            };
            return Ok(Some(UntestedRows {
                columns,
                rows,
                mask,
                tested,
            }));
        }
        Ok(None)
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
        let columns = &self.columns;
        if let Some(conditioned) = &columns.condition {
            conditioned.columns.read_ahead(&columns.file, &blocks);
        }
        if columns.condition.is_none() || blocks.len() <= FEW_BLOCKS {
            columns.rest.read_ahead(&columns.file, &blocks);
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
                .map_err(|error| StoreError::vortex("scan", &self.columns.file.path, &error))?;
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
            .columns
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
        if self.columns.reads_nothing() {
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

fn rows(range: &Range<u64>) -> usize {
    crate::block_file::len(range)
}
