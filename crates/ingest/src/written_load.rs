//! A load between its files and its publication.

use catalog::{Chunk, LoadId, PartContents, Table, TableKind, TableMetadata, TableSpec};

use crate::directors::{Directors, Family};
use crate::pipeline::Outcome;
use crate::report::Partitioning;

/// A load whose files are written.
pub(crate) struct WrittenLoad {
    pub spec: TableSpec,
    pub partitioning: Partitioning,
    pub directors: Directors,
    pub outcome: Outcome,
    pub notes: Vec<String>,
    /// What the files say of the columns.
    pub metadata: TableMetadata,
    /// Kept until the table is visible, so that the next child of the director sees where this one's orphans went.
    pub family: Family,
}

impl WrittenLoad {
    /// A table that it is to replace as children find it then, whose only part it is.
    pub(crate) fn as_director(&self, old: &Table, load: LoadId) -> (Table, Vec<Chunk>) {
        let mut table = old.clone();
        table.placement = load;
        table.parts.truncate(1);
        for part in &mut table.parts {
            part.load = load;
        }
        (table, self.outcome.chunks.clone())
    }

    /// What is published of the part.
    pub(crate) fn contents<'a>(&'a self, source: &'a str) -> PartContents<'a> {
        let counts = &self.outcome.counts;
        PartContents {
            rows: self.outcome.rows,
            bytes: self.bytes(),
            null_keys: counts.null_keys,
            orphan_rows: match self.spec.kind {
                TableKind::Match => counts.unknown_ends().iter().sum(),
                _ => counts.orphan_rows,
            },
            source,
            chunks: &self.outcome.chunks,
            metadata: Some(&self.metadata),
        }
    }

    /// Bytes of all its files.
    fn bytes(&self) -> u64 {
        let of_chunk = |chunk: &Chunk| chunk.bytes + chunk.overlap.map_or(0, |o| o.bytes);
        let chunks: u64 = self.outcome.chunks.iter().map(of_chunk).sum();
        chunks + self.outcome.index_bytes
    }
}
