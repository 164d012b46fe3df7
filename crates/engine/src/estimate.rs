//! What a plan reads, by the catalog's counts of rows: for EXPLAIN, for the list of queries, and to reject what would take too long.
//!
//! It is an upper bound where rows are skipped (zone maps, keys within a sub-chunk), and no bound where rows are read around other rows
//! (neighbour joins), which are counted as if each were read once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use sky::{ChunkId, Chunker};

use crate::coverage::SubChunkSet;
use crate::exec::{BarrierExec, ChunkPhaseExec, PieceScanExec, RowsOf};
use crate::least_memory::least_memory;
use crate::piece::{ChunkSlice, Piece};
use crate::{Archive, EngineError, QueryExecution};

/// A query all of whose phases touch no more chunks than this is interactive: it takes some milliseconds.
pub const INTERACTIVE_CHUNKS: usize = 4;
/// Bytes that a decoded text is taken to have.
const BYTES_OF_TEXT: u64 = 16;

/// What one scan of a table reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEstimate {
    /// The declared names of database and table, with a point between.
    pub table: String,
    /// The declared names of the columns that are read.
    pub columns: Vec<String>,
    /// Chunks in which it has rows that are read.
    pub chunks: usize,
    /// Chunks in which it has rows.
    pub of_chunks: usize,
    /// Rows that are read.
    pub rows: u64,
    /// Bytes of their columns when they are decoded.
    pub bytes: u64,
}

/// What a query reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanEstimate {
    /// Its scans.
    pub tables: Vec<TableEstimate>,
    /// Pieces of all phases.
    pub pieces: usize,
    /// Chunks of the phase that touches most of them.
    pub chunks: usize,
    /// The largest scan rating.
    pub rating: u8,
    /// Bytes of memory that it should have before it begins; 0 if it gathers little.
    pub memory: u64,
    /// Whether it reads rows that whoever asks may not see: these numbers would tell how many.
    pub is_veiled: bool,
}

impl ScanEstimate {
    /// Whether it is answered at once, rather than in a lane of scans.
    pub fn is_interactive(&self) -> bool {
        self.chunks <= INTERACTIVE_CHUNKS
    }

    /// Decoded bytes of all scans.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// Rows of all scans.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

impl fmt::Display for TableEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} chunks, {} rows, {} bytes of ",
            self.table, self.chunks, self.of_chunks, self.rows, self.bytes
        )?;
        match self.columns.as_slice() {
            [] => f.write_str("no column"),
            columns => write!(f, "columns {}", columns.join(", ")),
        }
    }
}

/// What a plan that is ready to run reads.
pub(crate) async fn estimate(
    archive: &Archive,
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<ScanEstimate, EngineError> {
    let mut estimate = ScanEstimate {
        is_veiled: has_barrier(plan),
        ..ScanEstimate::default()
    };
    for phase in nodes(plan, |node| node.is::<ChunkPhaseExec>()) {
        let Some(phase) = phase.downcast_ref::<ChunkPhaseExec>() else {
            continue;
        };
        let pieces = phase
            .pieces()
            .map_err(|error| EngineError::from_run(&error))?;
        let chunks = pieces.iter().map(|piece| piece.slices().len()).sum();
        estimate.is_veiled |= has_barrier(phase.inner());
        estimate.pieces += pieces.len();
        estimate.chunks = estimate.chunks.max(chunks);
        estimate.rating = estimate.rating.max(phase.rating());
        for scan in nodes(phase.inner(), |node| node.is::<PieceScanExec>()) {
            if let Some(scan) = scan.downcast_ref::<PieceScanExec>() {
                estimate.tables.push(of_scan(archive, scan, &pieces).await?);
            }
        }
    }
    estimate.memory = least_memory(plan, estimate.bytes());
    Ok(estimate)
}

fn has_barrier(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !nodes(plan, |node| node.is::<BarrierExec>()).is_empty()
}

/// Has the query of this thread's statement admitted before the plan runs, if somebody judges it. Returns what it reads, if that was
/// asked.
///
/// # Errors
/// It would take longer than it may.
pub(crate) async fn admit(
    archive: &Archive,
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Option<ScanEstimate>, EngineError> {
    let execution = QueryExecution::current();
    let Some(admission) = execution.as_ref().and_then(|it| it.admission()) else {
        return Ok(None);
    };
    let estimate = estimate(archive, plan).await?;
    admission.admit(&estimate)?;
    admission.reserve(estimate.memory).await?;
    Ok(Some(estimate))
}

/// Takes a place for the query of this thread's statement, which reads a single piece of so many chunks, before it runs, if somebody judges it.
///
/// # Errors
/// Its user has as many such queries as they may.
pub(crate) fn admit_piece(chunks: usize) -> Result<(), EngineError> {
    let execution = QueryExecution::current();
    match execution.as_ref().and_then(|it| it.admission()) {
        Some(admission) => admission.take_place(chunks <= INTERACTIVE_CHUNKS),
        None => Ok(()),
    }
}

/// The nodes of a plan of which something is so, from the root on.
pub(crate) fn nodes(
    plan: &Arc<dyn ExecutionPlan>,
    is_wanted: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut found = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        if is_wanted(node) {
            found.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

async fn of_scan(
    archive: &Archive,
    scan: &PieceScanExec,
    pieces: &[Piece],
) -> Result<TableEstimate, EngineError> {
    let stored = scan.stored();
    let (mut of_chunks, mut chunks, mut rows) = (Vec::new(), Vec::new(), 0_u64);
    for part in &stored.parts {
        let known = part.chunks(archive).await?;
        of_chunks.extend(known.keys().copied());
        for slice in pieces.iter().flat_map(|piece| piece.slices().iter()) {
            if let Some(chunk) = known.get(&slice.chunk) {
                chunks.push(slice.chunk);
                rows += rows_of_slice(&stored.chunker, slice, chunk.rows);
            }
        }
    }
    let (of_chunks, mut chunks) = (num_distinct(of_chunks), num_distinct(chunks));
    if scan.rows() == RowsOf::Whole {
        (chunks, rows) = (of_chunks, stored.rows);
    }
    // The shares of slices are rounded up.
    rows = rows.min(stored.rows);
    let columns = columns(scan);
    let width: u64 = columns.iter().map(|at| bytes_of(scan, *at)).sum();
    let name = |at: &usize| stored.files_schema.field(*at).name().clone();
    Ok(TableEstimate {
        table: format!("{}.{}", stored.database, stored.name),
        columns: columns.iter().map(name).collect(),
        chunks,
        of_chunks,
        rows,
        bytes: rows.saturating_mul(width),
    })
}

fn num_distinct(mut chunks: Vec<ChunkId>) -> usize {
    chunks.sort_unstable();
    chunks.dedup();
    chunks.len()
}

/// Rows of a slice, if the rows of its chunk are spread evenly over the sub-chunks.
fn rows_of_slice(chunker: &Chunker, slice: &ChunkSlice, rows: u64) -> u64 {
    let SubChunkSet::Intervals(intervals) = &slice.sub_chunks else {
        return rows;
    };
    let wanted: u64 = intervals
        .iter()
        .map(|(first, last)| (last - first + 1).max(0) as u64)
        .sum();
    let all = sub_chunks(chunker, slice.chunk).max(1);
    (rows * wanted.min(all)).div_ceil(all)
}

fn sub_chunks(chunker: &Chunker, chunk: ChunkId) -> u64 {
    chunker.sub_chunks_of(chunk).len() as u64
}

/// The columns of the table's files that a scan decodes, ascending.
fn columns(scan: &PieceScanExec) -> Vec<usize> {
    let mut columns: BTreeSet<usize> = scan.projection().iter().copied().collect();
    for predicate in scan.predicates() {
        columns.extend(
            collect_columns(predicate)
                .iter()
                .map(|column| column.index()),
        );
    }
    columns.into_iter().collect()
}

fn bytes_of(scan: &PieceScanExec, column: usize) -> u64 {
    match scan.stored().files_schema.field(column).data_type() {
        DataType::Boolean => 1,
        other => other
            .primitive_width()
            .map_or(BYTES_OF_TEXT, |width| width as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sky::SubChunkId;

    #[test]
    fn a_slice_has_its_share_of_the_rows_of_its_chunk() {
        let chunker = Chunker::new(18, 10).unwrap();
        let chunk = chunker.all_chunks().next().unwrap();
        let all = chunker.sub_chunks_of(chunk);
        let some: Vec<SubChunkId> = all.iter().copied().take(2).collect();
        let slice = |sub_chunks| ChunkSlice { chunk, sub_chunks };
        let rows = |sub_chunks| rows_of_slice(&chunker, &slice(sub_chunks), 1000);
        assert_eq!(rows(SubChunkSet::All), 1000);
        assert_eq!(rows(SubChunkSet::of([])), 0);
        let expected = (1000 * some.len() as u64).div_ceil(all.len() as u64);
        assert_eq!(rows(SubChunkSet::of(some)), expected);
        assert_eq!(rows(SubChunkSet::of(all)), 1000);
    }
}
