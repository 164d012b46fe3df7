//! What the shares of a load know of the tables by which their rows are placed: a child's director, or those of whose rows pairs are.

use std::sync::Arc;

use catalog::TableKind;

use super::{ReadPart, ShareDirector, SharedLoad};
use crate::directors::Directors;
use crate::error::IngestError;
use crate::load::blocking;
use crate::memory::MemoryBudget;
use crate::pipeline::SPILL_DIR;

/// Bytes of memory for the sorting of a child's own keys, in the process that publishes: it may serve queries meanwhile.
const MOST_MEMORY: u64 = 1 << 30;

impl SharedLoad {
    /// The parts whose chunk files shares read: those of whose rows pairs are.
    pub fn read_parts(&self) -> Vec<ReadPart> {
        if self.request.effective_kind() != TableKind::Match {
            return Vec::new();
        }
        let mut parts: Vec<ReadPart> = Vec::new();
        for table in self.directors.tables() {
            for part in table.part_numbers() {
                if parts.iter().all(|it| it.part != part) {
                    parts.push(ReadPart {
                        part,
                        database: table.spec.database.clone(),
                        table: table.spec.name.clone(),
                    });
                }
            }
        }
        parts
    }

    /// Finds the runs of keys by which shares are placed, and writes those of the own keys of children of whose rows pairs are.
    pub(super) async fn find_director_runs(&mut self, kind: TableKind) -> Result<(), IngestError> {
        let Some(share) = self.shares.first().filter(|_| kind == TableKind::Match) else {
            self.director_runs = self.directors.runs();
            return Ok(());
        };
        let dir = share.dir.path().join(SPILL_DIR);
        let memory = self.request.memory_bytes().min(MOST_MEMORY);
        let budget = Arc::new(MemoryBudget::new(memory, 1));
        let mut directors = std::mem::replace(&mut self.directors, Directors::none());
        let found = blocking(move || {
            catalog::make_directories(&dir)
                .map_err(|error| IngestError::io("create", &dir, error))?;
            let runs = directors.end_runs(&budget, &dir)?;
            Ok((directors, runs))
        });
        (self.directors, self.director_runs) = found.await?;
        Ok(())
    }

    /// Those tables, each with what a share has to know of it.
    pub(super) fn share_directors(&self) -> Vec<ShareDirector> {
        let tables = self.directors.tables().cloned();
        let smallest = self.directors.smallest_chunks().into_iter();
        let scattered = self.directors.scattered_keys().into_iter();
        let runs = self.director_runs.iter().map(Vec::len);
        tables
            .zip(smallest)
            .zip(scattered)
            .zip(runs)
            .map(
                |(((table, smallest), scattered_keys), runs)| ShareDirector {
                    table,
                    smallest_chunk: smallest.map(|chunk| chunk.0),
                    runs,
                    scattered_keys,
                },
            )
            .collect()
    }
}
