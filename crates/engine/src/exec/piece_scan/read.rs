//! What a scan reads of a piece: which parts, files and rows, in which order.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use catalog::TableKind;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sky::SubChunkId;
use store::{
    ChunkFile, OpenFile, RowCondition, ScanRequest, SubChunkRange, WORTH_PRUNING, scan_files,
};
use vortex::expr::{Expression, and_collect, col, gt_eq, lit, lt_eq, or_collect};

use super::{PieceScanExec, RowsOf};
use crate::EngineError;
use crate::coverage::SubChunkSet;
use crate::error::external;
use crate::execution::QueryExecution;
use crate::interruptible::yield_if_due;
use crate::loaded_table::{LEFT_SUB_CHUNK, RIGHT_SUB_CHUNK, bounds_box};
use crate::piece::ChunkSlice;
use crate::stored_part::FileOfSlices;

/// Sub-chunks up to which a key is looked for in each by itself.
const MOST_APART: i32 = 4;

/// A file, and what is read of it.
type FileRequest = (Arc<OpenFile>, ScanRequest);

impl PieceScanExec {
    pub(super) async fn read(self) -> Result<BoxStream<'static, Result<RecordBatch>>, EngineError> {
        let slices: Arc<[ChunkSlice]> = match (&self.piece, self.rows) {
            (_, RowsOf::Neighbourhood) => self.near().await?.into(),
            (_, RowsOf::Whole) => Arc::new([ChunkSlice::whole(catalog::REPLICATED_CHUNK)]),
            (Some(piece), _) => Arc::clone(piece.slices()),
            (None, _) => {
                return Err(EngineError::internal(
                    "a piece scan was run without a piece",
                ));
            }
        };
        let parts = self.parts_to_read().await?;
        let scan = Arc::new(self);
        if let ([part], 1) = (parts.as_slice(), slices.len()) {
            return scan.read_slice(*part, &slices[0]).await;
        }
        let of_part = move |part: usize| {
            let (scan, slices) = (Arc::clone(&scan), Arc::clone(&slices));
            async move { scan.read_part(part, slices).await }
        };
        let requests = stream::iter(parts).then(of_part).try_flatten().boxed();
        Ok(scan_files(requests, external))
    }

    /// The parts that may have rows which meet the conditions, by their places in the list: of a director, a key is in one.
    async fn parts_to_read(&self) -> Result<Vec<usize>, EngineError> {
        let stored = &self.stored;
        let all = 0..stored.parts.len();
        let Some(sought) = (self.sought).filter(|_| stored.kind == TableKind::Director) else {
            return Ok(all.collect());
        };
        let mut parts = Vec::with_capacity(1);
        for at in all {
            if stored.parts.len() == 1
                || (stored.parts[at].may_have_key(&self.archive, sought.least)).await?
            {
                parts.push(at);
            }
        }
        Ok(parts)
    }

    /// What is near enough, one slice of a chunk after another.
    async fn near(&self) -> Result<Vec<ChunkSlice>, EngineError> {
        match &self.search_cover {
            Some(search_cover) => self.stored.near(&self.archive, search_cover).await,
            None => Err(EngineError::internal(
                "a scan of what is near was run without knowing what to",
            )),
        }
    }

    /// The rows of one slice in one part.
    async fn read_slice(
        &self,
        part: usize,
        slice: &ChunkSlice,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>, EngineError> {
        let slices = std::slice::from_ref(slice);
        let files = (self.stored.parts[part].files_of(&self.archive, slices)).await?;
        let Some(file) = files.first() else {
            return Ok(stream::empty().boxed());
        };
        let (open, mut requests) = self.read_file(part, slices, file).await?;
        match requests.pop() {
            Some(request) => Ok(open.scan(request).map_err(external).boxed()),
            None => Ok(stream::empty().boxed()),
        }
    }

    /// What is read of the files of a part for the slices, file by file: chunks that share one are read together.
    async fn read_part(
        self: Arc<Self>,
        part: usize,
        slices: Arc<[ChunkSlice]>,
    ) -> Result<BoxStream<'static, Result<FileRequest>>> {
        let files = self.stored.parts[part].files_of(&self.archive, &slices);
        let files = files.await.map_err(external)?;
        if files.len() < 2 {
            // Of many parts there may be no row for a long time.
            yield_if_due().await?;
            let mut requests = Vec::new();
            for file in &files {
                requests = self.requests_of(part, &slices, file).await?;
            }
            return Ok(stream::iter(requests.into_iter().map(Ok)).boxed());
        }
        let of_file = move |file: FileOfSlices| {
            let (scan, slices) = (Arc::clone(&self), Arc::clone(&slices));
            async move {
                yield_if_due().await?;
                let requests = scan.requests_of(part, &slices, &file).await?;
                let requests = requests.into_iter().map(Ok::<_, DataFusionError>);
                Ok::<_, DataFusionError>(stream::iter(requests))
            }
        };
        Ok(stream::iter(files).then(of_file).try_flatten().boxed())
    }

    async fn requests_of(
        &self,
        part: usize,
        slices: &[ChunkSlice],
        file: &FileOfSlices,
    ) -> Result<Vec<FileRequest>> {
        let read = self.read_file(part, slices, file).await;
        let (file, requests) = read.map_err(external)?;
        let of_file = requests.into_iter().map(|it| (Arc::clone(&file), it));
        Ok(of_file.collect())
    }

    /// What is read of a file for the slices that are in it, at once or slice by slice.
    async fn read_file(
        &self,
        part: usize,
        slices: &[ChunkSlice],
        file: &FileOfSlices,
    ) -> Result<(Arc<OpenFile>, Vec<ScanRequest>), EngineError> {
        let stored = &self.stored.parts[part];
        let open = stored.open_slices(&self.archive, slices, file).await?;
        let in_file: Vec<&ChunkSlice> = file.slices.iter().map(|at| &slices[*at]).collect();
        // Only a condition on the home of pairs differs between slices.
        let together = match in_file.iter().all(|it| it.sub_chunks == SubChunkSet::All) {
            false if self.rows == RowsOf::RightHome => 1,
            _ => in_file.len().max(1),
        };
        let requests = in_file
            .chunks(together)
            .map(|slices| self.request(&open, slices));
        let requests = requests.collect::<Result<_, EngineError>>()?;
        Ok((open, requests))
    }

    /// How many rows of a slice it looks at.
    ///
    /// # Errors
    /// A file of the chunk cannot be opened.
    pub(crate) async fn rows_looked_at(&self, slice: &ChunkSlice) -> Result<u64, EngineError> {
        let files = self.stored.open(&self.archive, slice.chunk).await?;
        let rows_of = |file: &Arc<ChunkFile>| {
            let ranges = self.ranges(file, slice);
            ranges.map_or(file.num_rows(), |ranges| rows_in(&ranges))
        };
        Ok(files.iter().map(rows_of).sum())
    }

    /// Whether it looks at all rows that a chunk of a slice has, whatever its sub-chunks.
    fn takes_whole(&self, slice: &ChunkSlice) -> bool {
        let anywhere = self.bounds.is_none() && self.search_cover.is_none();
        match self.rows {
            RowsOf::RightHome => true,
            RowsOf::Whole => slice.sub_chunks == SubChunkSet::All,
            RowsOf::Own | RowsOf::LeftHome | RowsOf::Neighbourhood => {
                anywhere && slice.sub_chunks == SubChunkSet::All
            }
        }
    }

    /// The rows of a slice that it looks at; all of the chunk if None.
    fn ranges(&self, file: &ChunkFile, slice: &ChunkSlice) -> Option<Vec<Range<u64>>> {
        let directory = file.directory();
        let bounds = self.bounds.and_then(bounds_box);
        let is_anywhere = bounds.is_none() && self.search_cover.is_none();
        let near = |entry: &SubChunkRange| {
            let Some(own) = entry.bounds.and_then(bounds_box) else {
                return true;
            };
            bounds.as_ref().is_none_or(|wanted| wanted.intersects(&own))
                && (self.search_cover.as_ref())
                    .is_none_or(|search_cover| search_cover.may_hold(&own))
        };
        match self.rows {
            RowsOf::Whole if slice.sub_chunks == SubChunkSet::All => None,
            RowsOf::RightHome => None,
            _ => Some(match &slice.sub_chunks {
                SubChunkSet::All => directory.rows_where(near),
                // Nothing is asked of each sub-chunk.
                SubChunkSet::Intervals(intervals) if is_anywhere => directory.rows_in(intervals),
                SubChunkSet::Intervals(intervals) => directory.rows_within(intervals, near),
            }),
        }
    }

    /// The rows of each sub-chunk of a slice by itself, where there are few of them: within each they are sorted.
    fn rows_apart(&self, file: &ChunkFile, slice: &ChunkSlice) -> Option<Vec<Range<u64>>> {
        let SubChunkSet::Intervals(intervals) = &slice.sub_chunks else {
            return None;
        };
        let few = intervals
            .iter()
            .all(|(first, last)| last - first < MOST_APART)
            && intervals.len() <= MOST_APART as usize;
        if self.rows != RowsOf::Own || !few {
            return None;
        }
        let directory = file.directory();
        let sub_chunks = intervals.iter().flat_map(|(first, last)| *first..=*last);
        let entries = sub_chunks.filter_map(|number| directory.get(SubChunkId(number)));
        Some(entries.map(|entry| entry.rows.clone()).collect())
    }

    /// What is read of a file for slices whose chunks it holds.
    fn request(
        &self,
        file: &Arc<OpenFile>,
        slices: &[&ChunkSlice],
    ) -> Result<ScanRequest, EngineError> {
        let apart = match self.sought {
            Some(sought) => self.all_apart(file, slices)?.map(|ranges| (sought, ranges)),
            None => None,
        };
        let (sorted, ranges) = match apart {
            Some((sought, ranges)) => (Some(sought), ranges),
            None => (None, self.ranges_in_file(file, slices)?),
        };
        let many = rows_in(&ranges) >= WORTH_PRUNING as u64;
        Ok(ScanRequest {
            projection: self.projection.clone(),
            filter: slices.first().and_then(|slice| self.home_condition(slice)),
            hints: match &self.condition {
                Some(condition) if many => condition.hints().to_vec(),
                _ => Vec::new(),
            },
            condition: self.condition.clone().map(|it| it as Arc<dyn RowCondition>),
            ranges: Some(ranges),
            sorted,
            sharers: self.sharers,
            counters: QueryExecution::current().map(|it| Arc::clone(it.reads())),
            schema: self.schema(),
        })
    }

    /// The rows of slices by their numbers within the file, those that follow each other as one range.
    fn ranges_in_file(
        &self,
        file: &Arc<OpenFile>,
        slices: &[&ChunkSlice],
    ) -> Result<Vec<Range<u64>>, EngineError> {
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(slices.len());
        let mut push = |rows: Range<u64>| match ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => ranges.push(rows),
        };
        for slice in slices {
            if self.takes_whole(slice) {
                // Most chunks are read whole: their sub-chunks do not have to be known.
                push(file.rows_of(slice.chunk)?);
                continue;
            }
            let chunk = file.chunk(slice.chunk)?;
            let rows = self.ranges(&chunk, slice).unwrap_or_default();
            rows.iter().for_each(|rows| push(chunk.in_file(rows)));
        }
        Ok(ranges)
    }

    /// The rows of each sub-chunk by itself, if there are few of them in each slice.
    fn all_apart(
        &self,
        file: &Arc<OpenFile>,
        slices: &[&ChunkSlice],
    ) -> Result<Option<Vec<Range<u64>>>, EngineError> {
        let mut ranges = Vec::new();
        for slice in slices {
            let chunk = file.chunk(slice.chunk)?;
            let Some(apart) = self.rows_apart(&chunk, slice) else {
                return Ok(None);
            };
            ranges.extend(apart.iter().map(|rows| chunk.in_file(rows)));
        }
        Ok(Some(ranges))
    }

    /// Which pairs of a match table have their home in the slice. A pair with homes in two chunks is in the files of both, and has
    /// this home in one of them alone.
    fn home_condition(&self, slice: &ChunkSlice) -> Option<Expression> {
        match (self.rows, &slice.sub_chunks) {
            // Row ranges have done the rest: pairs with a left home are stored by it.
            (RowsOf::LeftHome, _) => Some(gt_eq(col(LEFT_SUB_CHUNK), lit(0_i32))),
            (RowsOf::RightHome, SubChunkSet::All) => Some(gt_eq(col(RIGHT_SUB_CHUNK), lit(0_i32))),
            (RowsOf::RightHome, SubChunkSet::Intervals(intervals)) => {
                let within = intervals.iter().filter_map(|(first, last)| {
                    and_collect([
                        gt_eq(col(RIGHT_SUB_CHUNK), lit(*first)),
                        lt_eq(col(RIGHT_SUB_CHUNK), lit(*last)),
                    ])
                });
                or_collect(within).or_else(|| Some(lit(false)))
            }
            _ => None,
        }
    }
}

fn rows_in(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
