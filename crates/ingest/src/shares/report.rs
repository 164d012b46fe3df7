//! What is told of a load in shares: what its shares have done, put together.

use std::collections::BTreeMap;

use catalog::{Chunk, PartContents, TableKind, TableSpec};

use super::{InputPlan, ShareReport, SharedLoad};
use crate::append::{many_parts_note, unsettled_note};
use crate::error::IngestError;
use crate::load::Transaction;
use crate::position;
use crate::rejected_rows::{EXAMPLES, RejectionSummary};
use crate::report::{LoadReport, Partitioning, PlacementCounts, upgraded_note};

impl SharedLoad {
    /// The report of a load whose first part is that of a transaction. `chunks` are those of its parts.
    pub(super) async fn report(
        &self,
        first: &Transaction,
        spec: &TableSpec,
        partitioning: Partitioning,
        reports: &[ShareReport],
        chunks: &[Vec<Chunk>],
    ) -> Result<LoadReport, IngestError> {
        let sum = |of: fn(&ShareReport) -> u64| reports.iter().map(of).sum::<u64>();
        let rows = sum(|it| it.manifest.rows);
        let all: Vec<Chunk> = chunks.iter().flatten().cloned().collect();
        let mut notes = match &self.plan {
            Some((plan, _)) => plan.notes.clone(),
            None => Vec::new(),
        };
        notes.extend(self.catalog.upgraded_from().map(upgraded_note));
        if self.request.position_unit.is_none() {
            notes.extend(position::unit_note(&all, rows));
        }
        notes.extend(self.directors.notes(&self.catalog).await?);
        match &self.appended_to {
            Some(table) => {
                notes.extend(unsettled_note(table, self.family.unsettled()));
                notes.extend(many_parts_note(table, chunks.len(), &self.request.data_dir));
            }
            None => notes.extend(first.children_left_behind(spec).await?),
        }
        let overlap = |of: fn(catalog::OverlapFile) -> u64| {
            let of_chunk = |chunk: &Chunk| chunk.overlap.map_or(0, of);
            all.iter().map(of_chunk).sum::<u64>()
        };
        let mut numbers: Vec<i32> = all.iter().map(|chunk| chunk.chunk.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(LoadReport {
            database: spec.database.clone(),
            table: spec.name.clone(),
            kind: spec.kind,
            load: first.load,
            appended: self.appended_to.is_some(),
            partitioning,
            rows_read: rows + sum(|it| it.rejected),
            rows_loaded: rows,
            rows_rejected: sum(|it| it.rejected),
            rejected_rows: rejections(reports),
            counts: self.counts(reports),
            latin1_values: sum(|it| it.latin1_values),
            comment_lines: sum(|it| it.comment_lines),
            chunks: numbers.len() as u64,
            overlap_rows: overlap(|it| it.rows),
            chunk_bytes: all.iter().map(|chunk| chunk.bytes).sum(),
            overlap_bytes: overlap(|it| it.bytes),
            index_bytes: sum(|it| it.index_bytes),
            input_bytes: sum(|it| it.input_bytes),
            spilled_parts: sum(|it| it.spilled_parts),
            elapsed: self.started.elapsed(),
            notes,
            schema: None,
        })
    }

    fn counts(&self, reports: &[ShareReport]) -> PlacementCounts {
        let sum = |of: fn(&PlacementCounts) -> u64| reports.iter().map(|it| of(&it.counts)).sum();
        PlacementCounts {
            duplicate_keys: sum(|it| it.duplicate_keys),
            stray_rows: sum(|it| it.stray_rows),
            null_keys: sum(|it| it.null_keys),
            orphan_rows: sum(|it| it.orphan_rows),
            orphan_keys: match self.request.effective_kind() {
                TableKind::Child => self.orphan_keys,
                _ => 0,
            },
            displaced_rows: sum(|it| it.displaced_rows),
            unknown_left_keys: sum(|it| it.unknown_left_keys),
            unknown_right_keys: sum(|it| it.unknown_right_keys),
            default_location_pairs: sum(|it| it.default_location_pairs),
        }
    }
}

/// What is published of a share.
pub(super) fn contents<'a>(
    report: &ShareReport,
    source: &'a str,
    chunks: &'a [Chunk],
    plan: &'a InputPlan,
) -> PartContents<'a> {
    let of_chunk = |chunk: &Chunk| chunk.bytes + chunk.overlap.map_or(0, |it| it.bytes);
    PartContents {
        rows: report.manifest.rows,
        bytes: chunks.iter().map(of_chunk).sum::<u64>() + report.index_bytes,
        null_keys: report.counts.null_keys,
        orphan_rows: match report.manifest.table.kind {
            TableKind::Match => report.counts.unknown_ends().iter().sum(),
            _ => report.counts.orphan_rows,
        },
        source,
        chunks,
        metadata: Some(&plan.metadata),
    }
}

/// The rejected rows of all shares by reason, the most frequent first.
fn rejections(reports: &[ShareReport]) -> Vec<RejectionSummary> {
    let mut by_reason: BTreeMap<&str, RejectionSummary> = BTreeMap::new();
    for summary in reports.iter().flat_map(|it| &it.rejected_rows) {
        let all = by_reason
            .entry(&summary.reason)
            .or_insert_with(|| RejectionSummary {
                reason: summary.reason.clone(),
                rows: 0,
                examples: Vec::new(),
            });
        all.rows += summary.rows;
        let room = EXAMPLES.saturating_sub(all.examples.len());
        all.examples
            .extend(summary.examples.iter().take(room).cloned());
    }
    let mut all: Vec<RejectionSummary> = by_reason.into_values().collect();
    all.sort_by(|one, other| {
        { other.rows.cmp(&one.rows) }.then_with(|| one.reason.cmp(&other.reason))
    });
    all
}

/// The first rejected row of the first share that has one.
pub(super) fn first_examples(reports: &[ShareReport]) -> String {
    let mut summaries = reports.iter().flat_map(|it| &it.rejected_rows);
    let first = summaries.find_map(|it| it.examples.first());
    first.map_or_else(String::new, |row| format!("First: {row}"))
}
