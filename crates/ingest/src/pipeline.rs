//! The work of a load between its begin and its publication: read, validate, write. It blocks its thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow::datatypes::{Field, Schema, SchemaRef};
use catalog::{Chunk, Column, TableKind};
use sky::Angle;
use store::{Durability, LoadDir, arrow_schema};
use tokio::runtime::Handle;

use crate::directors::Directors;
use crate::error::IngestError;
use crate::fault;
use crate::format::{ReadContext, TableFile};
use crate::memory::MemoryBudget;
use crate::pace::Pace;
use crate::place::child::ChildPlacement;
use crate::place::director::DirectorPlacement;
use crate::place::key_run::IndexTarget;
use crate::place::matches::{MatchPlacement, home_fields};
use crate::place::replicated::ReplicatedPlacement;
use crate::place::{PlaceContext, PlacedRows, Placement};
use crate::plan::{Roles, TablePlan};
use crate::progress::{Phase, Progress};
use crate::read::read_all;
use crate::rejected_rows::{RejectedRows, RejectionSummary};
use crate::report::{Partitioning, PlacementCounts};
use crate::request::LoadRequest;
use crate::write::ChunkWriter;

/// The directory within a load's own for rows that do not fit into memory and for copies of what can be read only once.
pub(crate) const SPILL_DIR: &str = "spill";

/// A load that is ready to read.
pub(crate) struct Pipeline {
    context: PlaceContext,
    columns: Vec<Column>,
    kind: TableKind,
    roles: Roles,
    files: Vec<Box<dyn TableFile>>,
    load_dir: Arc<LoadDir>,
    threads: usize,
    allow_empty: bool,
    is_share: bool,
}

/// What a load wrote.
pub(crate) struct Outcome {
    pub chunks: Vec<Chunk>,
    /// Rows as a query counts them.
    pub rows: u64,
    pub rejected: u64,
    pub rejected_rows: Vec<RejectionSummary>,
    pub counts: PlacementCounts,
    pub latin1_values: u64,
    pub comment_lines: u64,
    pub index_bytes: u64,
    pub input_bytes: u64,
    pub spilled_parts: u64,
}

impl Pipeline {
    pub(crate) fn new(
        request: &LoadRequest,
        cut: &Partitioning,
        plan: TablePlan,
        load_dir: Arc<LoadDir>,
        progress: Arc<Progress>,
    ) -> Result<Self, IngestError> {
        let threads = request.thread_count();
        let rejected_rows = RejectedRows::new(request.input_names(), request.max_errors);
        let read = ReadContext::new(plan.columns_to_read(), rejected_rows, progress);
        let spill_dir = load_dir.path().join(SPILL_DIR);
        catalog::make_directories(&spill_dir)
            .map_err(|e| IngestError::io("create", &spill_dir, e))?;
        Ok(Self {
            context: PlaceContext {
                read: Arc::new(read),
                budget: Arc::new(MemoryBudget::new(request.memory_bytes(), threads)),
                chunker: Arc::new(cut.chunker()?),
                overlap: Angle::from_degrees(cut.overlap_deg),
                spill_dir,
                index: IndexTarget::Directory(load_dir.index_dir()),
            },
            columns: plan.columns,
            kind: plan.kind,
            roles: plan.roles,
            files: plan.files,
            load_dir,
            threads,
            allow_empty: request.allow_empty,
            is_share: request.is_share,
        })
    }

    fn placement(
        &self,
        directors: &mut Directors,
    ) -> Result<Box<dyn Placement + Send>, IngestError> {
        let context = self.context.clone();
        let memory = context.budget.key_map_bytes();
        Ok(match self.roles {
            Roles::Director { key, positions } => {
                let earlier = directors.earlier_keys(memory)?;
                Box::new(DirectorPlacement::new(context, key, positions, earlier))
            }
            Roles::Child(columns) => Box::new(ChildPlacement::new(
                context,
                columns,
                Arc::new(directors.parent(memory)?),
            )),
            Roles::Match { keys } => {
                let ends = directors.ends(keys, &context, memory)?;
                Box::new(MatchPlacement::new(context, ends))
            }
            Roles::Replicated => Box::new(ReplicatedPlacement::new(context)),
        })
    }

    /// Reads all files.
    pub(crate) fn read(self, directors: &mut Directors) -> Result<ReadRows, IngestError> {
        let placement = self.placement(directors)?;
        let progress = &self.context.read.progress;
        progress.enter(
            Phase::Reading,
            self.files.iter().map(|file| file.work()).sum(),
        );
        read_all(
            &self.files,
            &self.context.read,
            placement.as_ref(),
            self.threads,
        )?;
        Ok(ReadRows {
            pipeline: self,
            placement,
        })
    }
}

/// The schema of a table's chunk files.
pub(crate) fn file_schema(columns: &[Column], kind: TableKind) -> SchemaRef {
    let declared = arrow_schema(columns);
    if kind != TableKind::Match {
        return declared;
    }
    let mut fields: Vec<Arc<Field>> = declared.fields().iter().cloned().collect();
    fields.extend(home_fields().map(Arc::new));
    Arc::new(Schema::new(fields))
}

/// A load whose rows have all been read.
pub(crate) struct ReadRows {
    pipeline: Pipeline,
    placement: Box<dyn Placement + Send>,
}

impl ReadRows {
    /// Settles what depends on all rows and writes the files. `siblings` are the orphan indexes of the director's
    /// other children.
    pub(crate) fn write(
        self,
        siblings: &[PathBuf],
        runtime: Handle,
    ) -> Result<Outcome, IngestError> {
        let Self {
            pipeline,
            placement,
        } = self;
        let read = &pipeline.context.read;
        read.progress.enter(Phase::Indexing, 0);
        let placed = placement.finish(siblings)?;
        read.rejected_rows.check()?;
        let is_share = pipeline.is_share;
        if placed.query_rows == 0 && read.rejected_rows.count() > 0 && !is_share {
            return Err(IngestError::AllRejected {
                count: read.rejected_rows.count(),
                examples: read.rejected_rows.first_examples(),
                why: read.rejected_rows.first_rejection(),
            });
        }
        if placed.query_rows == 0 && !pipeline.allow_empty && !is_share {
            return Err(IngestError::NoRows {
                inputs: read.rejected_rows.inputs(),
            });
        }
        fault::reached("index-written")?;
        let chunks = pipeline.write_files(&placed, runtime)?;
        let spilled =
            placed.rows.spilled_parts() + placed.overlap.as_ref().map_or(0, |o| o.spilled_parts());
        let outcome = Outcome {
            chunks,
            rows: placed.query_rows,
            rejected: read.rejected_rows.count(),
            rejected_rows: read.rejected_rows.summary(),
            counts: placed.counts,
            latin1_values: read.latin1_values.load(Relaxed),
            comment_lines: read.comment_lines.load(Relaxed),
            index_bytes: placed.index_bytes,
            input_bytes: read.progress.snapshot().bytes,
            spilled_parts: spilled as u64,
        };
        drop(placed);
        let spill_dir = &pipeline.context.spill_dir;
        std::fs::remove_dir_all(spill_dir).map_err(|e| IngestError::io("remove", spill_dir, e))?;
        Ok(outcome)
    }
}

impl Pipeline {
    fn write_files(&self, placed: &PlacedRows, runtime: Handle) -> Result<Vec<Chunk>, IngestError> {
        let schema = file_schema(&self.columns, self.kind);
        let writer = ChunkWriter {
            placed,
            load_dir: &self.load_dir,
            writers: self.context.budget.writers(schema.fields().len()),
            schema,
            runtime,
            progress: &self.context.read.progress,
            pace: &Pace::new(None),
            durability: Durability::WithName,
        };
        write_files(&writer, self.kind)
    }
}

/// Writes the chunk files and overlap files of a table of this kind.
pub(crate) fn write_files(
    writer: &ChunkWriter<'_>,
    kind: TableKind,
) -> Result<Vec<Chunk>, IngestError> {
    let placed = writer.placed;
    let overlap_rows = placed.overlap.as_ref().map_or(0, |overlap| overlap.rows());
    let rows = placed.rows.rows() + overlap_rows;
    writer.progress.enter(Phase::Writing, rows);
    let mut chunks = writer.write_chunks()?;
    if kind == TableKind::Replicated && chunks.is_empty() {
        chunks.push(writer.write_empty()?);
    }
    fault::reached("chunks-written")?;
    writer.write_overlaps(&mut chunks)?;
    fault::reached("overlap-written")?;
    Ok(chunks)
}
