//! Pieces that run in other processes, as the engine asks for them and as those processes run them.
//!
//! ```text
//!   phase ──► PieceDispatcher ──┬─► pieces that run here
//!                               └─► shares, one for a worker ──► ShareRun ──► rows, piece by piece ──► PieceEvents
//! ```
//!
//! A share has what its plan reads beside tables: rows of small files, and values of scalar subqueries.
//!
//! Invariant: the rows of a run of a piece count only if that run is told to be done, and of all runs of a piece one at most is.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;

use crate::codec::{decode_share, encode_share, names_source};
use crate::exec::{PieceScanExec, RowsOf};
use crate::loaded_table::StoredTable;
use crate::piece::Piece;
use crate::shuffle::{BucketReader, RowKeeping, Shuffle};
use crate::{Archive, EngineError, FileScanExec, QueryExecution, RowStream};

/// Has pieces of chunk phases run by other processes.
pub trait PieceDispatcher: fmt::Debug + Send + Sync {
    /// Begins to have pieces of a phase run elsewhere; `None` if all of them have to run here.
    fn dispatch(&self, phase: EncodedPhase) -> Option<DispatchedPhase>;

    /// How many pieces of a phase each worker would get now, for EXPLAIN.
    fn preview(&self, phase: &EncodedPhase) -> Vec<(String, usize)>;

    /// Begins a shuffle; `None` if there is nobody to merge its buckets.
    fn begin_shuffle(&self) -> Option<Arc<dyn Shuffle>>;

    /// The most rows of pieces that are merged in this process; more are shuffled, if that can be. `None` if all are merged here.
    fn shuffles_above(&self) -> Option<u64>;

    /// Whoever brings this process the rows of buckets.
    fn bucket_reader(&self) -> Arc<dyn BucketReader>;
}

/// A phase whose pieces may run elsewhere.
#[derive(Debug, Clone)]
pub struct EncodedPhase {
    /// The plan of a piece, as [`SharePlan`] is read of it.
    pub plan: Arc<[u8]>,
    /// The pieces.
    pub pieces: Arc<[Piece]>,
    /// The tables that a piece reads, each with which of its rows; the one by whose chunks the pieces are cut comes first. There are none if the
    /// pieces are buckets of a shuffle: any worker can run them.
    pub tables: Vec<(Arc<StoredTable>, RowsOf)>,
    /// The largest scan rating of these.
    pub rating: u8,
    /// How many chunks all pieces have together.
    pub num_chunks: usize,
    /// Who is told which workers run the pieces.
    pub execution: Option<Arc<QueryExecution>>,
    /// The number of the phase among those of the query.
    pub number: u32,
    /// How whoever runs a piece keeps its rows; none if they are sent.
    pub keeping: Option<RowKeeping>,
}

/// A phase of which pieces run elsewhere.
pub struct DispatchedPhase {
    /// The numbers of the pieces that run here, ascending.
    pub local: Vec<usize>,
    /// What comes of the others. It ends when each of them is done, or was left to run here. Dropping it ends their runs.
    pub events: BoxStream<'static, PieceEvent>,
}

/// What comes of a piece that runs elsewhere.
#[derive(Debug)]
pub enum PieceEvent {
    /// Rows of one run of a piece.
    Rows {
        /// The run, by a number that no other run of the phase has.
        run: u64,
        /// The piece.
        piece: usize,
        /// The rows.
        batch: RecordBatch,
    },
    /// A run has given all rows of the piece, and they count.
    Done {
        /// The run.
        run: u64,
        /// The piece.
        piece: usize,
    },
    /// What a run gave counts for nothing.
    Discarded {
        /// The run.
        run: u64,
        /// The piece.
        piece: usize,
    },
    /// A piece has to run here.
    RunLocally(usize),
    /// The query fails.
    Failed(DataFusionError),
}

impl PieceEvent {
    /// The same of pieces that have these numbers in a longer list.
    pub(crate) fn renumbered(mut self, numbers: &[usize]) -> Self {
        if let Self::Rows { piece, .. }
        | Self::Done { piece, .. }
        | Self::Discarded { piece, .. }
        | Self::RunLocally(piece) = &mut self
        {
            *piece = numbers[*piece];
        }
        self
    }
}

/// What a session keeps of its dispatcher with the settings of its plans.
#[derive(Debug)]
pub(crate) struct Dispatching(pub Arc<dyn PieceDispatcher>);

/// Bytes that a plan may have to be sent elsewhere.
const MOST_PLAN_BYTES: usize = 32 << 20;

/// Some pieces of a phase, of which all have so many chunks together, for other processes; `None` if they read what only this process has.
/// For a preview the plan is none that could run.
pub(crate) fn encode_phase(
    inner: &Arc<dyn ExecutionPlan>,
    pieces: &Arc<[Piece]>,
    rating: u8,
    num_chunks: usize,
    (execution, number): (Option<&Arc<QueryExecution>>, u32),
    is_preview: bool,
) -> Option<EncodedPhase> {
    let mut leaves = Leaves::default();
    inner.apply(|node| leaves.add(node)).ok()?;
    let archive = leaves.archive.filter(|_| !leaves.is_bound_to_process)?;
    let mut tables = leaves.tables;
    // Pieces are cut by the chunks of a table whose own rows they read.
    tables.sort_by_key(|(_, rows)| match rows {
        RowsOf::Own => 0,
        RowsOf::LeftHome | RowsOf::RightHome => 1,
        RowsOf::Neighbourhood | RowsOf::Whole => 2,
    });
    if tables
        .first()
        .is_none_or(|(_, rows)| *rows == RowsOf::Whole)
    {
        return None;
    }
    Some(EncodedPhase {
        plan: encoded_plan(inner, archive, is_preview)?,
        num_chunks,
        pieces: Arc::clone(pieces),
        tables,
        rating,
        execution: execution.cloned(),
        number,
        keeping: None,
    })
}

/// The plan that merges buckets of a shuffle, for other processes; `None` if it cannot be sent to them. Which buckets there are is for the caller
/// to say.
pub(crate) fn encode_merging(
    merging: &Arc<dyn ExecutionPlan>,
    archive: Arc<Archive>,
    rating: u8,
    is_preview: bool,
) -> Option<EncodedPhase> {
    Some(EncodedPhase {
        plan: encoded_plan(merging, archive, is_preview)?,
        num_chunks: 0,
        pieces: Arc::default(),
        tables: Vec::new(),
        rating,
        execution: None,
        number: 0,
        keeping: None,
    })
}

/// The archive whose tables a plan reads, if it reads any.
pub(crate) fn archive_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Archive>> {
    let mut leaves = Leaves::default();
    plan.apply(|node| leaves.add(node)).ok()?;
    leaves.archive
}

fn encoded_plan(
    plan: &Arc<dyn ExecutionPlan>,
    archive: Arc<Archive>,
    is_preview: bool,
) -> Option<Arc<[u8]>> {
    match encode_share(plan, archive, is_preview) {
        Ok(plan) if plan.len() <= MOST_PLAN_BYTES => Some(plan.into()),
        Ok(plan) => {
            tracing::debug!(bytes = plan.len(), "a phase is too large to run elsewhere");
            None
        }
        Err(error) => {
            tracing::debug!(%error, "a phase cannot run elsewhere");
            None
        }
    }
}

/// What the pieces of a plan read.
#[derive(Default)]
struct Leaves {
    archive: Option<Arc<Archive>>,
    tables: Vec<(Arc<StoredTable>, RowsOf)>,
    /// Whether it reads what only this process has.
    is_bound_to_process: bool,
}

impl Leaves {
    fn add(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
    ) -> datafusion::common::Result<TreeNodeRecursion> {
        if let Some(scan) = node.downcast_ref::<PieceScanExec>() {
            self.archive = Some(Arc::clone(scan.archive()));
            self.tables.push((Arc::clone(scan.stored()), scan.rows()));
        }
        // The rows of a file that a query names travel if they are few.
        self.is_bound_to_process |= names_source(node) && !node.is::<FileScanExec>();
        Ok(TreeNodeRecursion::Continue)
    }
}

/// Reads the small files of a phase, so that their rows can be sent elsewhere.
///
/// # Errors
/// One cannot be read.
pub(crate) async fn keep_small_files(
    inner: &Arc<dyn ExecutionPlan>,
) -> datafusion::common::Result<()> {
    let mut files = Vec::new();
    inner.apply(|node| {
        if node.is::<FileScanExec>() {
            files.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for file in &files {
        if let Some(scan) = file.downcast_ref::<FileScanExec>() {
            scan.keep_rows().await?;
        }
    }
    Ok(())
}

/// The rows of the pieces of a share, each by its number in the share, in the order in which they end.
pub type ShareRows = BoxStream<'static, Result<(usize, RowStream), EngineError>>;

/// The plan of a piece as it came from another process ([`EncodedPhase::plan`]): a template for any number of shares, which share no state.
#[derive(Debug, Clone)]
pub struct SharePlan(pub(crate) Arc<dyn ExecutionPlan>);

/// Pieces of a phase that came from another process, to run here.
#[derive(Debug, Clone)]
pub struct ShareRun {
    /// The pieces of the share.
    pub pieces: Vec<Piece>,
    /// The largest scan rating of the tables that are read.
    pub rating: u8,
    /// How many chunks all pieces of the phase have together.
    pub num_chunks: usize,
}

impl SharePlan {
    /// The columns of the rows of a piece.
    pub fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    /// The plan in these bytes, with the tables of this archive.
    pub(crate) fn decode(
        bytes: &[u8],
        archive: &Arc<Archive>,
        context: &datafusion::execution::TaskContext,
    ) -> datafusion::common::Result<Self> {
        let plan = decode_share(bytes, Arc::clone(archive), context)?;
        let mut names_sources = false;
        plan.apply(|node| {
            names_sources |= names_source(node);
            Ok(TreeNodeRecursion::Continue)
        })?;
        match names_sources {
            true => datafusion::common::exec_err!("the plan of a share names a file"),
            false => Ok(Self(plan)),
        }
    }
}
