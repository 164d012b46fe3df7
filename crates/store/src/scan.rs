//! Reading rows of a chunk file as Arrow batches.

use std::collections::VecDeque;
use std::ops::{BitAnd, Range};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};
use vortex::array::{ArrayRef, MaskFuture, VortexSessionExecute};
use vortex::arrow::ArrowSessionExt;
use vortex::error::{VortexError, VortexResult};
use vortex::expr::transform::find_between;
use vortex::expr::{BoundExpression, Expression, root, select};
use vortex::layout::LayoutReaderRef;
use vortex::mask::Mask;
use vortex::scalar_fn::fns::binary::Binary;
use vortex::scalar_fn::fns::operators::Operator;

use crate::session::session;
use crate::{ChunkFile, ROWS_PER_BLOCK, StoreError};

/// Batches of rows, in the order of the file.
pub type BatchStream = BoxStream<'static, Result<RecordBatch, StoreError>>;

/// What to read from a chunk file.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Columns, as numbers within the file, in the order wanted, each at most once. None at all
    /// gives batches that have a number of rows only.
    pub projection: Vec<usize>,
    /// Rows for which this is not true (false or NULL) are left out; it names the file's columns.
    pub filter: Option<Expression>,
    /// Rows to read, sorted and disjoint; all rows if None.
    pub ranges: Option<Vec<Range<u64>>>,
    /// The schema of the batches to produce: one field for each column of the projection, with that
    /// column's name and the Arrow type in which it is wanted.
    pub schema: SchemaRef,
}

impl ChunkFile {
    /// Reads rows. The batches have exactly the schema asked for and up to [`ROWS_PER_BLOCK`] rows
    /// (without any column: all rows of a range), none of them empty.
    ///
    /// Nothing is read before the stream is polled and nothing is read ahead: reading and decoding
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
        let failed = |error: VortexError| StoreError::vortex("scan", self.path(), &error);
        if request.schema.fields().len() != request.projection.len() {
            return Err(wrong(format!(
                "{} columns are projected into {} fields",
                request.projection.len(),
                request.schema.fields().len()
            )));
        }
        let names = request
            .projection
            .iter()
            .map(|at| {
                self.schema()
                    .fields()
                    .get(*at)
                    .map(|field| Arc::from(field.name().as_str()))
            })
            .collect::<Option<Vec<Arc<str>>>>()
            .ok_or_else(|| wrong(format!("it has {} columns", self.schema().fields().len())))?;
        let projection = if names.is_empty() {
            None
        } else {
            Some(bind(&select(names, root()), self).map_err(failed)?)
        };
        let conjuncts = match &request.filter {
            Some(filter) => bind(filter, self)
                .and_then(find_between)
                .map(|f| conjuncts(&f))
                .map_err(failed)?,
            None => Vec::new(),
        };
        let all = 0..self.num_rows();
        let ranges = request.ranges.unwrap_or_else(|| [all].into());
        check_ranges(&ranges, self.num_rows()).map_err(wrong)?;
        Ok(Scan {
            path: Arc::clone(self.blocks.path()),
            layout: Arc::clone(&self.layout),
            projection,
            conjuncts,
            ranges: ranges
                .into_iter()
                .filter(|range| !range.is_empty())
                .collect(),
            target: Field::new_struct("", request.schema.fields().clone(), false),
            schema: request.schema,
        })
    }
}

fn bind(expression: &Expression, file: &ChunkFile) -> VortexResult<BoundExpression> {
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

fn check_ranges(ranges: &[Range<u64>], rows: u64) -> Result<(), String> {
    let mut end = 0;
    for range in ranges {
        if range.start < end || range.end < range.start || range.end > rows {
            return Err(format!(
                "rows {}..{} are out of order or beyond its {rows} rows",
                range.start, range.end
            ));
        }
        end = range.end;
    }
    Ok(())
}

/// A scan under way.
struct Scan {
    path: Arc<Path>,
    layout: LayoutReaderRef,
    /// None if no column is wanted.
    projection: Option<BoundExpression>,
    conjuncts: Vec<BoundExpression>,
    /// What is still to be read: sorted, disjoint, none empty.
    ranges: VecDeque<Range<u64>>,
    schema: SchemaRef,
    /// The schema as the type of a struct.
    target: Field,
}

impl Scan {
    fn into_stream(self) -> BatchStream {
        stream::try_unfold(self, |mut scan| async move {
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

    /// Takes the wanted rows of the next block from the ranges: the range from the first to the last
    /// of them, and which rows in it are wanted. Several ranges in one block make one part, so the
    /// block is read once. Where nothing has to be read, a part is a whole range.
    fn next_part(&mut self) -> Option<(Range<u64>, Mask)> {
        let first = self.ranges.pop_front()?;
        if self.projection.is_none() && self.conjuncts.is_empty() {
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

    /// The rows of a part that pass the filter; None if there are none.
    async fn read(
        &self,
        (rows, mask): (Range<u64>, Mask),
    ) -> Result<Option<RecordBatch>, StoreError> {
        let failed = |error: VortexError| StoreError::vortex("scan", &self.path, &error);
        let mask = self.filter(&rows, mask).await.map_err(failed)?;
        if mask.all_false() {
            return Ok(None);
        }
        let Some(projection) = &self.projection else {
            return self.batch(Vec::new(), mask.true_count()).map(Some);
        };
        let array = self
            .layout
            .projection_evaluation(&rows, projection, MaskFuture::ready(mask))
            .map_err(failed)?
            .await
            .map_err(failed)?;
        self.to_arrow(array).map(Some)
    }

    async fn filter(&self, rows: &Range<u64>, mut mask: Mask) -> VortexResult<Mask> {
        for conjunct in &self.conjuncts {
            if mask.all_false() {
                return Ok(mask);
            }
            let kept = self
                .layout
                .pruning_evaluation(rows, conjunct, mask.clone())?
                .await?;
            mask = mask.bitand(&kept);
        }
        for conjunct in &self.conjuncts {
            if mask.all_false() {
                return Ok(mask);
            }
            let input = MaskFuture::ready(mask);
            mask = self
                .layout
                .filter_evaluation(rows, conjunct, input)?
                .await?;
        }
        Ok(mask)
    }

    fn to_arrow(&self, array: ArrayRef) -> Result<RecordBatch, StoreError> {
        let mut context = session().create_execution_ctx();
        let structs = session()
            .arrow()
            .execute_arrow(array, Some(&self.target), &mut context)
            .map_err(|error| StoreError::vortex("decode", &self.path, &error))?;
        let rows = structs.len();
        let columns = structs
            .as_struct_opt()
            .map(|s| s.columns().to_vec())
            .unwrap_or_default();
        self.batch(columns, rows)
    }

    fn batch(
        &self,
        columns: Vec<arrow::array::ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch, StoreError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(
            |error| StoreError::WrongScan {
                path: self.path.to_path_buf(),
                message: error.to_string(),
            },
        )
    }
}

fn rows(range: &Range<u64>) -> usize {
    crate::block_file::len(range)
}
