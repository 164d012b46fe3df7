//! Making a chunk phase: choosing how, which pieces, and binding the scans.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::TableKind;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use sky::ChunkId;

use super::group_by_chunk::group_by_chunk;
use super::locality::{CoverageFormula, Variant};
use super::optimize_inner::optimize_inner;
use super::reduce_join_output::reduce_join_output;
use crate::coverage::{Coverage, SubChunkSet};
use crate::exec::{ChunkPhaseExec, PhaseSummary, RowsOf, ScanSource, TableScanExec};
use crate::loaded_table::{ChunkSummary, LoadedTable};
use crate::piece::Piece;
use crate::restriction::Restriction;
use crate::{Archive, EngineError, FileScanExec};

/// Rows that make a piece worth its overhead, and few enough that the cores end at about the same time.
const ROWS_OF_A_PIECE: std::ops::RangeInclusive<u64> = 32_768..=524_288;
/// Pieces for each core that a phase aims for.
const PIECES_FOR_A_CORE: u64 = 8;

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
        .map(|variant| (variant, touched(&scans, &variant.coverage)))
        .min_by_key(|(_, chunks)| chunks.values().map(|touched| touched.rows).sum::<u64>())
        .ok_or_else(|| internal_datafusion_err!("a subtree can run piece by piece in no way"))?;
    let pieces = cut(&scans, &chunks, config.execution.target_partitions);
    let summary = summary(&scans, &variant.coverage, &chunks, pieces.len());
    let source = PhaseSource {
        scans: cut_scans(plan, &variant.scans),
        formula: variant.formula.clone(),
        cores: config.execution.target_partitions,
        is_choice: variants.len() > 1,
    };
    build(
        plan,
        &variant.scans,
        pieces,
        partial,
        summary,
        source,
        config,
    )
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
        cores: config.execution.target_partitions,
        is_choice: false,
    };
    build(plan, &rows_of, pieces, false, summary, source, config)
}

/// Off what the pieces of a phase were read, so that they can be found anew for other values of a statement's parameters.
#[derive(Debug)]
pub(crate) struct PhaseSource {
    /// The tables that are cut, from left to right.
    scans: Vec<CutScan>,
    formula: CoverageFormula,
    cores: usize,
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
        Ok(cut(&scans, &touched(&scans, &coverage), self.cores))
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
    plan: &Arc<dyn ExecutionPlan>,
    rows_of: &[RowsOf],
    pieces: Vec<Piece>,
    ordered: bool,
    summary: PhaseSummary,
    source: PhaseSource,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let inner = group_by_chunk(piece_scans(plan, rows_of)?)?;
    let inner = reduce_join_output(optimize_inner(inner, config)?)?;
    let batches = [vec![Piece::encode(&pieces)?]];
    let input = MemorySourceConfig::try_new_exec(&batches, Piece::schema(), None)?;
    let concurrency = config.execution.target_partitions;
    let phase = ChunkPhaseExec::new(input, inner, concurrency, ordered, summary);
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

struct TableScan {
    table: Arc<LoadedTable>,
    restriction: Restriction,
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

/// A chunk that a phase touches.
#[derive(Debug, Clone)]
struct TouchedChunk {
    sub_chunks: SubChunkSet,
    /// Rows in it of the table that has most there, as far as they are known to be wanted.
    rows: u64,
}

fn touched(scans: &[Arc<TableScan>], coverage: &Coverage) -> BTreeMap<ChunkId, TouchedChunk> {
    let mut chunks = BTreeMap::new();
    for scan in scans
        .iter()
        .filter(|s| s.table.spec().kind != TableKind::Replicated)
    {
        for (chunk, stored, sub_chunks) in stored_parts(&scan.table, coverage) {
            let touched = chunks.entry(*chunk).or_insert(TouchedChunk {
                sub_chunks,
                rows: 0,
            });
            let share = share(&scan.table, *chunk, &touched.sub_chunks);
            touched.rows = touched.rows.max((stored.rows as f64 * share).ceil() as u64);
        }
    }
    chunks
}

/// The chunks of a table that a coverage touches. Where it names some, only these are looked at: a query about one place
/// must not take longer because there are many others.
fn stored_parts<'a>(
    table: &'a LoadedTable,
    coverage: &'a Coverage,
) -> Box<dyn Iterator<Item = (&'a ChunkId, &'a ChunkSummary, SubChunkSet)> + 'a> {
    match coverage {
        Coverage::Everything => {
            let all = table.chunks.iter();
            Box::new(all.map(|(chunk, stored)| (chunk, stored, SubChunkSet::All)))
        }
        Coverage::Only(only) => Box::new(only.iter().filter_map(|(chunk, set)| {
            let stored = table.chunks.get(chunk)?;
            Some((chunk, stored, set.clone()))
        })),
    }
}

/// The share of a chunk's sub-chunks that a set holds.
fn share(table: &LoadedTable, chunk: ChunkId, set: &SubChunkSet) -> f64 {
    match set {
        SubChunkSet::All => 1.0,
        SubChunkSet::Intervals(intervals) => {
            let all = table.chunker().sub_chunks_of(chunk);
            let held = all
                .iter()
                .filter(|s| intervals.iter().any(|(a, b)| (*a..=*b).contains(&s.0)))
                .count();
            held as f64 / all.len().max(1) as f64
        }
    }
}

/// Cuts the chunks that are touched into pieces of about equal numbers of rows.
fn cut(
    scans: &[Arc<TableScan>],
    chunks: &BTreeMap<ChunkId, TouchedChunk>,
    cores: usize,
) -> Vec<Piece> {
    let total: u64 = chunks.values().map(|touched| touched.rows).sum();
    let wanted = (total / (cores as u64 * PIECES_FOR_A_CORE).max(1))
        .clamp(*ROWS_OF_A_PIECE.start(), *ROWS_OF_A_PIECE.end());
    let Some(chunker) = scans
        .iter()
        .map(|s| &s.table)
        .find(|t| t.spec().kind != TableKind::Replicated)
    else {
        return Vec::new();
    };
    let mut pieces = Vec::with_capacity(chunks.len());
    for (chunk, touched) in chunks {
        let cuts = usize::try_from(touched.rows.div_ceil(wanted)).unwrap_or(usize::MAX);
        if cuts <= 1 {
            pieces.push(Piece {
                chunk: *chunk,
                sub_chunks: touched.sub_chunks.clone(),
            });
            continue;
        }
        let all = chunker.chunker().sub_chunks_of(*chunk);
        let held: Vec<_> = all
            .into_iter()
            .filter(|s| touched.sub_chunks.contains(*s))
            .collect();
        let length = held.len().div_ceil(cuts).max(1);
        pieces.extend(held.chunks(length).map(|run| Piece {
            chunk: *chunk,
            sub_chunks: SubChunkSet::of(run.iter().copied()),
        }));
    }
    pieces
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
        .map(|touched| match &touched.sub_chunks {
            SubChunkSet::All => 0,
            SubChunkSet::Intervals(intervals) => {
                intervals.iter().map(|(a, b)| (b - a + 1) as usize).sum()
            }
        })
        .sum();
    let partial = chunks
        .values()
        .filter(|touched| touched.sub_chunks != SubChunkSet::All)
        .count();
    let mut text = format!("{} of {}", chunks.len(), counted(all.len(), "chunk"));
    if partial > 0 {
        text.push_str(&format!(", {} there", counted(sub_chunks, "sub-chunk")));
    }
    text.push_str(&format!(", in {}", counted(pieces, "piece")));
    for scan in scans {
        let (of_table, read) = (
            scan.table.stored.parts.len(),
            scan.table.parts_in(coverage),
        );
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
