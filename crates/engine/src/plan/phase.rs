//! Making a chunk phase: choosing how, which pieces, and binding the scans.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{ScanLane, TableKind};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use sky::ChunkId;

use super::cut_pieces::{Cutting, ROWS_AROUND_JOINED, TouchedChunk, cut_pieces, touched_chunks};
use super::group_by_chunk::group_by_chunk;
use super::locality::{CoverageFormula, Variant};
use super::optimize_inner::optimize_inner;
use super::reduce_join_output::reduce_join_output;
use crate::coverage::{Coverage, SubChunkSet};
use crate::exec::{ChunkPhaseExec, PhaseSummary, RowsOf, ScanSource, TableScanExec};
use crate::loaded_table::LoadedTable;
use crate::piece::Piece;
use crate::restriction::Restriction;
use crate::{Archive, EngineError, FileScanExec};

/// Rows that are looked up in a table of groups in the time in which an aggregate begins and ends.
const ROWS_OF_AN_AGGREGATE: u64 = 1_024;

/// A phase over the pieces of partitioned tables, by the way that touches the least.
pub(super) fn chunk_phase(
    plan: &Arc<dyn ExecutionPlan>,
    variants: &[Variant],
    partial: bool,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let scans = scans(plan);
    let (variant, chunks) = variants
        .iter()
        .map(|variant| (variant, touched_chunks(&scans, &variant.coverage)))
        .min_by_key(|(_, chunks)| chunks.values().map(|chunk| chunk.rows).sum::<u64>())
        .ok_or_else(|| internal_datafusion_err!("a subtree can run piece by piece in no way"))?;
    let cutting = Cutting {
        cores: config.execution.target_partitions,
        joins: joins_chunks(plan),
        parts: most_parts(&scans),
    };
    let pieces = pieces(&scans, &chunks, cutting)?;
    let summary = summary(&scans, &variant.coverage, &chunks, pieces.len());
    let source = PhaseSource {
        scans: cut_scans(plan, &variant.scans),
        formula: variant.formula.clone(),
        cutting,
        is_choice: variants.len() > 1,
    };
    let mut inner = piece_scans(plan, &variant.scans)?;
    if is_worth_an_aggregate(&chunks) {
        inner = group_by_chunk(inner)?;
    }
    let rating = scans.iter().map(|scan| scan_rating(&scan.table)).max();
    let rating = rating.unwrap_or_default();
    let rows = chunks.values().map(|chunk| chunk.rows).sum();
    build(
        inner,
        pieces,
        partial,
        (summary, rating, rows),
        source,
        config,
    )
}

/// Bytes of a chunk, on average, from which on a table belongs to the next slower lane.
const BYTES_OF_LANES: [u64; 3] = [256 << 20, 2 << 30, 16 << 30];
/// Between the ratings of two lanes.
const RATINGS_OF_A_LANE: u8 = 10;

/// The scan rating of a table: as it was declared, or else by how much a chunk of it has to read.
fn scan_rating(table: &LoadedTable) -> u8 {
    let declared = table.spec().scan_rating;
    if ScanLane::chosen(declared).is_some() {
        return declared;
    }
    let bytes = table.table.bytes() / (table.chunks.len() as u64).max(1);
    let lane = BYTES_OF_LANES.iter().filter(|from| bytes >= **from).count();
    1 + RATINGS_OF_A_LANE * lane as u8
}

/// The parts of the partitioned table that has most of them.
fn most_parts(scans: &[Arc<TableScan>]) -> usize {
    let partitioned = scans
        .iter()
        .filter(|scan| scan.table.spec().kind != TableKind::Replicated);
    let parts = partitioned.map(|scan| scan.table.table.parts.len());
    parts.max().unwrap_or(1)
}

/// Whether chunks have so many rows that those of each had better be aggregated by themselves than looked up in a table of groups.
fn is_worth_an_aggregate(chunks: &BTreeMap<ChunkId, TouchedChunk>) -> bool {
    let rows: u64 = chunks.values().map(|chunk| chunk.rows).sum();
    rows >= chunks.len() as u64 * ROWS_OF_AN_AGGREGATE
}

/// A phase over replicated tables alone: one piece reads them whole.
pub(super) fn replicated_phase(
    plan: &Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let scans = scans(plan);
    let rows_of: Vec<RowsOf> = scans.iter().map(|_| RowsOf::Whole).collect();
    let tables = scans.iter().map(|scan| scan.table.spec().name.clone());
    let names: Vec<String> = tables.chain(files(plan)).collect();
    let summary = PhaseSummary {
        text: format!("whole of {}", names.join(", ")),
    };
    let pieces = vec![Piece::whole(catalog::REPLICATED_CHUNK)];
    let source = PhaseSource {
        scans: Vec::new(),
        formula: CoverageFormula::Scan(0),
        cutting: Cutting {
            cores: config.execution.target_partitions,
            joins: false,
            parts: 1,
        },
        is_choice: false,
    };
    let inner = piece_scans(plan, &rows_of)?;
    build(inner, pieces, false, (summary, 0, 0), source, config)
}

/// Off what the pieces of a phase were read, so that they can be found anew for other values of a statement's parameters.
#[derive(Debug)]
pub(crate) struct PhaseSource {
    /// The tables that are cut, from left to right.
    scans: Vec<CutScan>,
    formula: CoverageFormula,
    cutting: Cutting,
    /// Whether the pieces were found in one of several ways, of which another may be better for other values.
    is_choice: bool,
}

#[derive(Debug)]
struct CutScan {
    source: Arc<ScanSource>,
    /// The number of the end by which a match table is cut; 0 for others.
    home: usize,
}

impl PhaseSource {
    /// Whether values of parameters decide which pieces there are.
    pub(crate) fn is_open(&self) -> bool {
        self.scans.iter().any(|scan| scan.source.is_open())
    }

    /// Whether the phase is as good for other values.
    pub(crate) fn is_rebindable(&self) -> bool {
        !(self.is_choice && self.is_open())
    }

    /// The pieces, given how values are put into the filters of a scan.
    pub(crate) async fn pieces(
        &self,
        archive: &Archive,
        mut with_values: impl FnMut(&[Expr]) -> std::result::Result<Vec<Expr>, EngineError>,
    ) -> std::result::Result<Vec<Piece>, EngineError> {
        let (mut coverages, mut scans) = (Vec::new(), Vec::new());
        for CutScan { source, home } in &self.scans {
            let table = &source.table;
            let restriction = table.roles().restriction(&with_values(&source.filters)?);
            coverages.push(table.coverage(archive, &restriction, *home).await?);
            scans.push(Arc::new(TableScan {
                table: Arc::clone(table),
                restriction,
            }));
        }
        let coverage = self.formula.evaluate(&coverages);
        let pieces = pieces(&scans, &touched_chunks(&scans, &coverage), self.cutting);
        pieces.map_err(|error| EngineError::from_run(&error))
    }
}

/// The scans of a subtree whose rows are cut, which belong to its pieces in these ways.
fn cut_scans(plan: &Arc<dyn ExecutionPlan>, rows_of: &[RowsOf]) -> Vec<CutScan> {
    let mut found = Vec::with_capacity(rows_of.len());
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<TableScanExec>()
            && !scan.is_near()
            && scan.table.spec().kind != TableKind::Replicated
        {
            let home = usize::from(rows_of.get(found.len()) == Some(&RowsOf::RightHome));
            let source = Arc::clone(scan.source());
            found.push(CutScan { source, home });
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

fn build(
    inner: Arc<dyn ExecutionPlan>,
    pieces: Vec<Piece>,
    ordered: bool,
    (summary, rating, rows): (PhaseSummary, u8, u64),
    source: PhaseSource,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let inner = reduce_join_output(optimize_inner(inner, config)?)?;
    let batches = [vec![Piece::encode(&pieces)?]];
    let input = MemorySourceConfig::try_new_exec(&batches, Piece::schema(), None)?;
    let concurrency = config.execution.target_partitions;
    let phase = ChunkPhaseExec::new(input, inner, concurrency, ordered, summary);
    let phase = phase.with_rating(rating).with_rows(rows);
    Ok(Arc::new(phase.with_source(Arc::new(source))))
}

/// The table scans of a subtree, from left to right.
fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<TableScan>> {
    let mut found = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<TableScanExec>()
            && !scan.is_near()
        {
            found.push(Arc::new(TableScan {
                table: Arc::clone(&scan.table),
                restriction: scan.restriction.clone(),
            }));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// The names of the files that a subtree reads.
fn files(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let mut found = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<FileScanExec>() {
            let name = scan.file().path().file_name().unwrap_or_default();
            found.push(name.to_string_lossy().into_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// An input that reads what is near, ready to stand above the pieces: its scans are no longer to be cut.
pub(super) fn uncut_near(
    plan: &Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    optimize_inner(piece_scans(plan, &[])?, config)
}

pub(super) struct TableScan {
    pub table: Arc<LoadedTable>,
    restriction: Restriction,
}

/// Whether a piece of a phase may have several chunks.
///
/// Where a table is read around the rows of a piece, what lies around all chunks of the piece is held in memory at once, and may be
/// much more than the piece has itself. So chunks are joined only where all such tables together have few rows, and are directors:
/// where the rows of others are is known by the bounds of each of their sub-chunks, which are compared with the places of all rows of
/// the piece.
fn joins_chunks(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let (mut rows, mut directors) = (0_u64, true);
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<TableScanExec>()
            && scan.is_near()
        {
            rows = rows.saturating_add(scan.table.table.rows());
            directors &= scan.table.spec().kind == TableKind::Director;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    directors && rows <= ROWS_AROUND_JOINED
}

/// Puts piece scans in the places of the table scans.
fn piece_scans(
    plan: &Arc<dyn ExecutionPlan>,
    rows_of: &[RowsOf],
) -> Result<Arc<dyn ExecutionPlan>> {
    // Children are met from left to right, as `scans` and the variants have them; replicated tables are in no variant.
    let mut rows_of = rows_of.iter().copied();
    Arc::clone(plan)
        .transform_up(|node| {
            let Some(scan) = node.downcast_ref::<TableScanExec>() else {
                return Ok(Transformed::no(node));
            };
            let rows = if scan.is_near() {
                RowsOf::Neighbourhood
            } else if scan.table.spec().kind == TableKind::Replicated {
                RowsOf::Whole
            } else {
                rows_of.next().ok_or_else(|| {
                    internal_datafusion_err!("a phase has more tables than it was planned for")
                })?
            };
            Ok(Transformed::yes(scan.to_piece_scan(rows)?))
        })
        .data()
}

/// The pieces of the chunks that a phase over these tables touches.
fn pieces(
    scans: &[Arc<TableScan>],
    chunks: &BTreeMap<ChunkId, TouchedChunk>,
    cutting: Cutting,
) -> Result<Vec<Piece>> {
    let mut tables = scans.iter().map(|scan| &scan.table);
    let Some(table) = tables.find(|table| table.spec().kind != TableKind::Replicated) else {
        return Ok(Vec::new());
    };
    cut_pieces(chunks, cutting, |chunk| {
        table.chunker().sub_chunks_of(chunk)
    })
}

fn summary(
    scans: &[Arc<TableScan>],
    coverage: &Coverage,
    chunks: &BTreeMap<ChunkId, TouchedChunk>,
    pieces: usize,
) -> PhaseSummary {
    let mut all: Vec<ChunkId> = scans
        .iter()
        .filter(|s| s.table.spec().kind != TableKind::Replicated)
        .flat_map(|s| s.table.chunks.keys().copied())
        .collect();
    all.sort_unstable();
    all.dedup();
    let sub_chunks: usize = chunks
        .values()
        .map(|chunk| match &chunk.sub_chunks {
            SubChunkSet::All => 0,
            SubChunkSet::Intervals(intervals) => {
                intervals.iter().map(|(a, b)| (b - a + 1) as usize).sum()
            }
        })
        .sum();
    let partial = chunks
        .values()
        .filter(|chunk| chunk.sub_chunks != SubChunkSet::All)
        .count();
    let mut text = format!("{} of {}", chunks.len(), counted(all.len(), "chunk"));
    if partial > 0 {
        text.push_str(&format!(", {} there", counted(sub_chunks, "sub-chunk")));
    }
    text.push_str(&format!(", in {}", counted(pieces, "piece")));
    for scan in scans {
        let (of_table, read) = (scan.table.stored.parts.len(), scan.table.parts_in(coverage));
        if of_table > 1 {
            let name = &scan.table.spec().name;
            text.push_str(&format!(", {read} of {of_table} parts of {name}"));
        }
    }
    let reasons: Vec<String> = scans
        .iter()
        .map(|s| format!("{} by {}", s.table.spec().name, s.restriction))
        .collect();
    if *coverage != Coverage::Everything {
        text.push_str(&format!("; {}", reasons.join("; ")));
    }
    PhaseSummary { text }
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
